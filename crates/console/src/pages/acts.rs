//! What operators do about suspended spans and excluded time. Each action is confirmed on a page of its own,
//! which says what will be done and asks why.

use std::sync::Arc;

use askama::Template;
use axum::extract::Path;
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{MethodRouter, get};
use http::{Method, StatusCode};
use sampler_api::{Cause, Excluded, FieldError, Problem, Span};
use serde_json::json;

use super::{spans, suspended};
use crate::Console;
use crate::address::relative;
use crate::api::{Query, Refusal, address, segment};
use crate::form::SubmittedForm;
use crate::page::{Frame, render};
use crate::parameters::{self, label};
use crate::show::{self, Html};
use crate::visit::Visit;

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum ActKind {
    ResumeCause,
    Resume,
    Skip,
    Resend,
}

impl ActKind {
    fn title(self) -> &'static str {
        match self {
            Self::ResumeCause => "Resume the spans of a cause",
            Self::Resume => "Resume a span",
            Self::Skip => "Skip what is refused",
            Self::Resend => "Resend what is excluded",
        }
    }

    /// The times that its form asks for. Each may be left empty.
    fn times(self) -> &'static [&'static str] {
        match self {
            Self::ResumeCause | Self::Resume => &[],
            Self::Skip => &["until"],
            Self::Resend => &["from", "to"],
        }
    }
}

/// An action, and the id of its cause or its span.
struct Subject {
    kind: ActKind,
    id: String,
}

impl Subject {
    /// The address of what it is about, in the API.
    fn path(&self) -> String {
        let id = segment(&self.id);
        match self.kind {
            ActKind::ResumeCause => format!("/v1/suspended/{id}"),
            _ => format!("/v1/spans/{id}"),
        }
    }

    /// The address of the API that does it.
    fn act_path(&self) -> String {
        let act = match self.kind {
            ActKind::ResumeCause | ActKind::Resume => "resume",
            ActKind::Skip => "skip",
            ActKind::Resend => "resend",
        };
        format!("{}/{act}", self.path())
    }

    /// Where the action leads, done or not.
    fn back(&self, root: &str) -> String {
        match self.kind {
            ActKind::ResumeCause => suspended::page_of(root, &self.id),
            _ => spans::page_of(root, &self.id),
        }
    }
}

/// The page that confirms an action.
#[derive(Template)]
#[template(path = "act.html")]
struct ActPage {
    frame: Frame,
    title: &'static str,
    /// What the action does, in full sentences.
    effect: Vec<String>,
    facts: Vec<(&'static str, Html)>,
    button: String,
    back: String,
    /// The entity tag of the state that was shown: the action applies only to this state.
    tag: String,
    /// Times that the form asks for: each with its name, its label and its value.
    times: Vec<(&'static str, &'static str, String)>,
    reason: String,
    problem: Option<Problem>,
}

/// The page of an action, and the form that it sends.
pub(crate) fn routes(kind: ActKind) -> MethodRouter<Arc<Console>> {
    get(async move |Path(id): Path<String>, visit: Visit| {
        let page = page(&visit, &Subject { kind, id }, &visit.query).await?;
        Ok::<_, Refusal>(render(StatusCode::OK, &page))
    })
    .post(async move |Path(id): Path<String>, form: SubmittedForm| {
        carry_out(&Subject { kind, id }, &form).await
    })
}

/// The buttons of a suspended span.
pub(crate) fn buttons_of(root: &str, span: &str) -> Html {
    let page = spans::page_of(root, span);
    let resume = show::button(&format!("{page}/resume"), "Resume\u{2026}", "resume");
    resume.and(show::button(
        &format!("{page}/skip"),
        "Skip\u{2026}",
        "skip",
    ))
}

/// The page that sends an excluded range of a span again.
pub(crate) fn resend_page(root: &str, span: &str, range: &Excluded) -> String {
    let (one, other) = (range.start, range.end);
    let [from, to] = [one.min(other), one.max(other)].map(|at| at.as_millis().to_string());
    let query = parameters::of_pairs(&[("from", &from), ("to", &to)]);
    address(&format!("{}/resend", spans::page_of(root, span)), &query)
}

/// Where the action was refused and can be confirmed again, the page shows why, and the present state.
async fn carry_out(subject: &Subject, form: &SubmittedForm) -> Result<Response, Refusal> {
    let mut body = json!({ "reason": form.value("reason") });
    for name in subject.kind.times() {
        let given = form.value(name);
        if !given.is_empty() {
            let time = parameters::moment(&form.fields, name);
            body[name] = time.map_or_else(|| json!(given), |time| json!(time));
        }
    }
    let (visit, tag, path) = (&form.visit, form.value("tag"), subject.act_path());
    let grant = visit.session.grant();
    let done = visit.console.act(grant, Method::POST, &path, tag, &body);
    let Err(refusal) = done.await else {
        let root = relative(&visit.path, crate::PATH);
        return Ok(Redirect::to(&subject.back(&root)).into_response());
    };
    let can_be_confirmed_again =
        refusal.status.is_client_error() && refusal.status != StatusCode::NOT_FOUND;
    if !can_be_confirmed_again {
        return Err(refusal);
    }
    let Ok(mut page) = page(visit, subject, &form.fields).await else {
        return Err(refusal);
    };
    form.value("reason").clone_into(&mut page.reason);
    page.problem = Some(in_a_form(*refusal.problem));
    Ok(render(refusal.status, &page))
}

/// The page for an action in the present state.
async fn page(visit: &Visit, subject: &Subject, asked: &Query) -> Result<ActPage, Refusal> {
    if !visit.session.is_admin() {
        let detail = "Changes need the scope abacus.sampler.admin.";
        return Err(Refusal::new(StatusCode::FORBIDDEN, "Not allowed", detail));
    }
    let frame = visit.frame();
    let times = subject.kind.times().iter();
    let page = ActPage {
        title: subject.kind.title(),
        effect: Vec::new(),
        facts: Vec::new(),
        button: String::new(),
        back: subject.back(&frame.root),
        frame,
        tag: String::new(),
        times: times
            .map(|name| (*name, label(name), parameters::local(asked, name)))
            .collect(),
        reason: String::new(),
        problem: None,
    };
    match subject.kind {
        ActKind::ResumeCause => of_cause(visit, subject, page).await,
        _ => of_span(visit, subject, page).await,
    }
}

async fn of_cause(visit: &Visit, subject: &Subject, page: ActPage) -> Result<ActPage, Refusal> {
    let cause = visit.get::<Cause>(&subject.path(), &[]).await?.body;
    let at_least = if cause.spans >= Cause::COUNTED_MAX {
        "at least "
    } else {
        ""
    };
    let spans = format!("{at_least}{}", show::counted(cause.spans, "span"));
    let status = cause.status.map(|status| format!("{status} "));
    let error = format!("{}{}", status.unwrap_or_default(), cause.error);
    Ok(ActPage {
        effect: vec![
            format!("Resume {spans}."),
            "A span whose usage the upstream refuses again is suspended again.".to_owned(),
        ],
        facts: vec![
            ("Error", show::error(&error)),
            ("Resource", show::id(&cause.resource_id)),
            ("Plan", show::id(&cause.plan_id)),
        ],
        button: format!("Resume {spans}"),
        ..page
    })
}

async fn of_span(visit: &Visit, subject: &Subject, page: ActPage) -> Result<ActPage, Refusal> {
    let read = visit.get::<Span>(&subject.path(), &[]).await?;
    let (span, target) = (&read.body, &read.body.target);
    let is_resend = subject.kind == ActKind::Resend;
    let (effect, button) = match subject.kind {
        ActKind::Skip => (skipped(span), "Skip"),
        ActKind::Resend => (vec![RESENT.to_owned()], "Resend"),
        _ => (vec!["Resume 1 span.".to_owned()], "Resume 1 span"),
    };
    Ok(ActPage {
        effect,
        facts: vec![
            ("Organization", show::id(&target.organization_id)),
            ("Resource", show::id(&target.resource_id)),
            ("Plan", show::id(&target.plan_id)),
            ("Instance", show::id(&target.resource_instance_id)),
        ],
        button: button.to_owned(),
        tag: read.tag.unwrap_or_default(),
        problem: (!is_resend && span.state != "suspended").then(|| Problem {
            title: "The span is not suspended".to_owned(),
            detail: "Only a suspended span can be resumed, or skipped.".to_owned(),
            ..Problem::default()
        }),
        ..page
    })
}

const RESENT: &str = "Post what is excluded within these times to the upstream again, with the same ids. Without \
                      times, everything that is excluded is posted.";

/// What skipping does, in full sentences.
fn skipped(span: &Span) -> Vec<String> {
    let Some(plan) = &span.planned else {
        return vec!["No usage is planned.".to_owned()];
    };
    let length = plan.end.since(plan.start);
    let direction = if length < 0 {
        "The usage takes back what was billed too much. That stays billed, unless the usage is sent \
         again later."
    } else {
        "The usage is not billed, unless it is sent again later."
    };
    let [start, end] = [plan.start, plan.end].map(|at| {
        let (date, clock) = (show::date(at), show::clock(at));
        format!("{date} {clock}")
    });
    let words = show::in_words(length);
    let unanswered = span.delivery.unanswered.then(|| {
        "A post of this usage had no answer, so the upstream may count the usage. Compare with the \
         upstream's numbers before you bill by hand."
            .to_owned()
    });
    let mut effect = vec![format!(
        "Skip 1 usage of {words}: {start} to {end}. {direction}"
    )];
    if length > 0 {
        let until = "With a later time in the field, everything up to that time is skipped: a boundary of the \
                     span's intervals, or its end.";
        effect.push(until.to_owned());
    }
    effect.extend(unanswered);
    effect
}

/// A problem of the API in the words of a form, where it names fields: the person who sent the form
/// did not see any JSON.
fn in_a_form(mut problem: Problem) -> Problem {
    if problem.errors.is_empty() {
        return problem;
    }
    "Nothing was done".clone_into(&mut problem.title);
    problem.detail.clear();
    let errors = problem.errors.into_iter().map(|error| {
        let name = error.place().rsplit('/').next().unwrap_or_default();
        FieldError::of_parameter(label(name), error.detail.clone())
    });
    problem.errors = errors.collect();
    problem
}
