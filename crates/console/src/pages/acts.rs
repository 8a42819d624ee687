//! What operators do about suspended spans and given-up usages. Each action is confirmed on a page of
//! its own, which says what will be done and asks why.

use std::sync::Arc;

use askama::Template;
use axum::extract::Path;
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{MethodRouter, get};
use http::{Method, StatusCode};
use sampler_api::{Cause, FieldError, Problem, Span};
use serde_json::json;

use super::{spans, suspended};
use crate::Console;
use crate::address::relative;
use crate::api::{Refusal, segment};
use crate::form::SubmittedForm;
use crate::page::{Frame, render};
use crate::parameters::label;
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
            Self::Skip => "Skip a usage",
            Self::Resend => "Resend a usage",
        }
    }
}

/// An action, and the ids in the address of its page.
struct Subject {
    kind: ActKind,
    ids: Vec<String>,
}

impl Subject {
    /// The first id: of the cause, or of the span.
    fn id(&self) -> &str {
        self.ids.first().map_or("", String::as_str)
    }

    /// The address of the API that does it.
    fn path(&self) -> String {
        let id = segment(self.id());
        match self.kind {
            ActKind::ResumeCause => format!("/v1/suspended/{id}/resume"),
            ActKind::Resume => format!("/v1/spans/{id}/resume"),
            ActKind::Skip => format!("/v1/spans/{id}/skip"),
            ActKind::Resend => format!("/v1/usages/{}/resend", segment(self.usage())),
        }
    }

    fn usage(&self) -> &str {
        self.ids.last().map_or("", String::as_str)
    }

    /// Where the action leads, done or not.
    fn back(&self, root: &str) -> String {
        match self.kind {
            ActKind::ResumeCause => suspended::page_of(root, self.id()),
            _ => spans::page_of(root, self.id()),
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
    usage_id: String,
    reason: String,
    problem: Option<Problem>,
}

/// The page of an action, and the form that it sends.
pub(crate) fn routes(kind: ActKind) -> MethodRouter<Arc<Console>> {
    get(async move |Path(ids): Path<Vec<String>>, visit: Visit| {
        let page = page(&visit, &Subject { kind, ids }).await?;
        Ok::<_, Refusal>(render(StatusCode::OK, &page))
    })
    .post(
        async move |Path(ids): Path<Vec<String>>, form: SubmittedForm| {
            carry_out(&Subject { kind, ids }, &form).await
        },
    )
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

/// The page that sends a usage of a span again.
pub(crate) fn resend_page(root: &str, span: &str, usage: &str) -> String {
    format!(
        "{}/usages/{}/resend",
        spans::page_of(root, span),
        segment(usage)
    )
}

/// Where the action was refused and can be confirmed again, the page shows why, and the present state.
async fn carry_out(subject: &Subject, form: &SubmittedForm) -> Result<Response, Refusal> {
    let mut body = json!({ "reason": form.value("reason") });
    if subject.kind == ActKind::Skip {
        body["usage_id"] = json!(form.value("usage_id"));
    }
    let (visit, tag, path) = (&form.visit, form.value("tag"), subject.path());
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
    let Ok(mut page) = page(visit, subject).await else {
        return Err(refusal);
    };
    form.value("reason").clone_into(&mut page.reason);
    page.problem = Some(in_a_form(*refusal.problem));
    Ok(render(refusal.status, &page))
}

/// The page for an action in the present state.
async fn page(visit: &Visit, subject: &Subject) -> Result<ActPage, Refusal> {
    if !visit.session.is_admin() {
        let detail = "Changes need the scope abacus.sampler.admin.";
        return Err(Refusal::new(StatusCode::FORBIDDEN, "Not allowed", detail));
    }
    let frame = visit.frame();
    let page = ActPage {
        title: subject.kind.title(),
        effect: Vec::new(),
        facts: Vec::new(),
        button: String::new(),
        back: subject.back(&frame.root),
        frame,
        tag: String::new(),
        usage_id: String::new(),
        reason: String::new(),
        problem: None,
    };
    match subject.kind {
        ActKind::ResumeCause => of_cause(visit, subject, page).await,
        _ => of_span(visit, subject, page).await,
    }
}

async fn of_cause(visit: &Visit, subject: &Subject, page: ActPage) -> Result<ActPage, Refusal> {
    let path = format!("/v1/suspended/{}", segment(subject.id()));
    let cause = visit.get::<Cause>(&path, &[]).await?.body;
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
    let path = format!("/v1/spans/{}", segment(subject.id()));
    let read = visit.get::<Span>(&path, &[]).await?;
    let (span, target) = (&read.body, &read.body.target);
    let mut facts = vec![
        ("Organization", show::id(&target.organization_id)),
        ("Resource", show::id(&target.resource_id)),
        ("Plan", show::id(&target.plan_id)),
        ("Instance", show::id(&target.resource_instance_id)),
    ];
    let mut tag = read.tag.unwrap_or_default();
    let (effect, button) = match subject.kind {
        ActKind::Skip => (skipped(span), "Skip 1 usage"),
        ActKind::Resend => {
            facts.push(("Usage", show::id(subject.usage())));
            // The API asks for no tag: the action is about the usage.
            tag.clear();
            (vec![RESENT.to_owned()], "Resend 1 usage")
        }
        _ => (vec!["Resume 1 span.".to_owned()], "Resume 1 span"),
    };
    let needs_suspension = subject.kind != ActKind::Resend;
    let planned = span.planned.as_ref();
    Ok(ActPage {
        effect,
        facts,
        button: button.to_owned(),
        tag,
        usage_id: planned.map_or_else(String::new, |plan| plan.usage_id.clone()),
        problem: (needs_suspension && span.state != "suspended").then(|| Problem {
            title: "The span is not suspended".to_owned(),
            detail: "Only a suspended span can be resumed, or its usage skipped.".to_owned(),
            ..Problem::default()
        }),
        ..page
    })
}

const RESENT: &str = "Post 1 usage to the upstream again, with the same id. Only a usage that was skipped \
                      or set aside can be sent again.";

/// What skipping the planned usage of a span does, in full sentences.
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
    let effect = [
        format!("Skip 1 usage of {words}: {start} to {end}. {direction}"),
        "A worker does so five minutes after the last refusal. Then the span resumes.".to_owned(),
    ];
    effect.into_iter().chain(unanswered).collect()
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
