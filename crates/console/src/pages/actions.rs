//! Actions on what is suspended: each is confirmed on a page of its own, which says in numbers what will
//! be done, and asks why.

use askama::Template;
use axum::extract::Path;
use axum::response::{IntoResponse, Redirect, Response};
use http::{Method, StatusCode};
use percent_encoding::utf8_percent_encode;
use sampler_api::{Cause, Problem, Span, Target};
use sampler_domain::Timestamp;
use serde_json::json;

use super::{spans, suspended};
use crate::api::{self, Refusal, SEGMENT};
use crate::estimate::Estimate;
use crate::form::{SubmittedForm, in_a_form};
use crate::page::{Frame, message, refused, render};
use crate::show;
use crate::visit::Visit;

/// Spans that an estimate is made of.
const ESTIMATED: &str = "1000";

#[derive(Clone, Copy, PartialEq)]
enum ActionKind {
    ResumeCause,
    Resume,
    Skip,
}

/// An action and its subject, as its address says.
struct Subject {
    kind: ActionKind,
    id: String,
}

impl Subject {
    fn encoded(&self) -> String {
        utf8_percent_encode(&self.id, SEGMENT).to_string()
    }

    /// The address of the API that carries it out.
    fn path(&self) -> String {
        let id = self.encoded();
        match self.kind {
            ActionKind::ResumeCause => format!("/v1/suspended/{id}/resume"),
            ActionKind::Resume => format!("/v1/spans/{id}/resume"),
            ActionKind::Skip => format!("/v1/spans/{id}/skip"),
        }
    }

    /// The page that it is confirmed on.
    fn page(&self) -> String {
        match self.kind {
            ActionKind::ResumeCause => suspended::resume_page_of(&self.id),
            ActionKind::Resume => format!("{}/resume", spans::page_of(&self.id)),
            ActionKind::Skip => format!("{}/skip", spans::page_of(&self.id)),
        }
    }

    /// Where it leads, done or not.
    fn back(&self) -> String {
        match self.kind {
            ActionKind::ResumeCause => suspended::page_of_cause(&self.id),
            ActionKind::Resume | ActionKind::Skip => spans::page_of(&self.id),
        }
    }
}

/// The page that confirms an action.
#[derive(Template)]
#[template(path = "act.html")]
pub(super) struct ActPage {
    pub(super) frame: Frame,
    pub(super) title: &'static str,
    /// The effect, in full sentences.
    pub(super) effect: Vec<String>,
    pub(super) facts: Vec<(&'static str, String)>,
    pub(super) button: String,
    pub(super) action: String,
    pub(super) back: String,
    /// The entity tag of the state that was shown: the action applies only to this state.
    pub(super) tag: String,
    pub(super) usage_id: String,
    pub(super) reason: String,
    pub(super) problem: Option<Problem>,
}

macro_rules! handlers {
    ($($show:ident, $carry_out:ident: $kind:expr, $path:literal;)+) => {$(
        #[doc = concat!("`GET ", $path, "`.")]
        pub(crate) async fn $show(Path(id): Path<String>, visit: Visit) -> Response {
            match page(&visit, &Subject { kind: $kind, id }).await {
                Ok(page) => render(StatusCode::OK, &page),
                Err(response) => response,
            }
        }

        #[doc = concat!("`POST ", $path, "`.")]
        pub(crate) async fn $carry_out(Path(id): Path<String>, form: SubmittedForm) -> Response {
            carry_out(Subject { kind: $kind, id }, form).await
        }
    )+};
}

handlers! {
    show_resume_of_cause, resume_cause: ActionKind::ResumeCause, "/console/suspended/{cause}/resume";
    show_resume, resume: ActionKind::Resume, "/console/spans/{id}/resume";
    show_skip, skip: ActionKind::Skip, "/console/spans/{id}/skip";
}

async fn carry_out(subject: Subject, form: SubmittedForm) -> Response {
    let mut body = json!({ "reason": form.value("reason") });
    if subject.kind == ActionKind::Skip {
        body["usage_id"] = json!(form.value("usage_id"));
    }
    let path = subject.path();
    let done = form
        .act(Method::POST, &path, form.value("tag"), &body)
        .await;
    let page = page(&form.visit, &subject);
    answer(&form, "Suspended", &subject.back(), done, page).await
}

/// The answer to a form that confirms an action. Where it was refused and can be confirmed again, the
/// page shows why, and the action with the present state.
pub(super) async fn answer(
    form: &SubmittedForm,
    place: &'static str,
    back: &str,
    done: Result<(), Refusal>,
    page: impl Future<Output = Result<ActPage, Response>>,
) -> Response {
    let Err(refusal) = done else {
        return Redirect::to(back).into_response();
    };
    let can_be_confirmed_again =
        refusal.status.is_client_error() && refusal.status != StatusCode::NOT_FOUND;
    if can_be_confirmed_again && let Ok(mut page) = page.await {
        form.value("reason").clone_into(&mut page.reason);
        page.problem = Some(in_a_form(*refusal.problem));
        return render(refusal.status, &page);
    }
    refused(form.visit.frame(place), refusal)
}

/// The page for an action in the present state, or the page that says why there is none.
async fn page(visit: &Visit, subject: &Subject) -> Result<ActPage, Response> {
    let frame = visit.frame("Suspended");
    if !visit.session.is_admin() {
        return Err(not_allowed(frame));
    }
    let made = match subject.kind {
        ActionKind::ResumeCause => of_cause(visit, subject).await,
        ActionKind::Resume | ActionKind::Skip => of_span(visit, subject).await,
    };
    made.map_err(|refusal| refused(frame, refusal))
}

pub(super) fn not_allowed(frame: Frame) -> Response {
    let detail = "Changes need the scope abacus.sampler.admin.";
    message(frame, StatusCode::FORBIDDEN, "Not allowed", detail, None)
}

async fn of_cause(visit: &Visit, subject: &Subject) -> Result<ActPage, Refusal> {
    let path = format!("/v1/suspended/{}", subject.encoded());
    let cause = visit.get::<Cause>(&path, &[]).await?.body;
    if cause.spans == 0 {
        let title = "No span is suspended for this cause";
        return Err(Refusal::not_there(
            title,
            "Its spans may have resumed already.",
        ));
    }
    let asked = [
        ("state", "suspended"),
        ("cause", cause.cause.as_str()),
        ("limit", ESTIMATED),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()));
    let spans = visit.first::<Span>("/v1/spans", &asked).await?;
    let estimate = Estimate::of(&spans, cause.spans, visit.console.parts.clock.now());
    let status = cause.status.map(|status| format!("{status} "));
    let why = format!("{}{}", status.unwrap_or_default(), cause.error);
    Ok(ActPage {
        frame: visit.frame("Suspended"),
        title: "Resume the spans of a cause",
        effect: vec![
            format!("Resume {}.", estimate.in_words()),
            "Spans that the upstream refuses again are suspended again.".to_owned(),
        ],
        facts: vec![
            ("Cause", why),
            ("Resource", cause.resource_id),
            ("Plan", cause.plan_id),
        ],
        button: format!("Resume {}", estimate.spans_in_words()),
        action: subject.page(),
        back: subject.back(),
        tag: String::new(),
        usage_id: String::new(),
        reason: String::new(),
        problem: None,
    })
}

async fn of_span(visit: &Visit, subject: &Subject) -> Result<ActPage, Refusal> {
    let path = format!("/v1/spans/{}", subject.encoded());
    let read = visit.get::<Span>(&path, &[]).await?;
    let span = read.body;
    let now = visit.console.parts.clock.now();
    let planned = span.planned.as_ref();
    let usage_id = planned.map_or_else(String::new, |plan| plan.usage_id.clone());
    let (title, effect, button) = match subject.kind {
        ActionKind::Skip => (
            "Skip a usage",
            skipped(&span, now),
            "Skip 1 usage".to_owned(),
        ),
        _ => (
            "Resume a span",
            vec![format!(
                "Resume {}.",
                Estimate::of(std::slice::from_ref(&span), 1, now).in_words()
            )],
            "Resume 1 span".to_owned(),
        ),
    };
    Ok(ActPage {
        frame: visit.frame("Suspended"),
        title,
        effect,
        facts: facts_of(&span.target),
        button,
        action: subject.page(),
        back: subject.back(),
        tag: read.tag.unwrap_or_default(),
        usage_id,
        reason: String::new(),
        problem: (span.state != "suspended").then(not_suspended),
    })
}

/// The ids of a span by which people know it.
pub(super) fn facts_of(target: &Target) -> Vec<(&'static str, String)> {
    vec![
        ("Organization", target.organization_id.clone()),
        ("Resource", target.resource_id.clone()),
        ("Plan", target.plan_id.clone()),
        ("Instance", target.resource_instance_id.clone()),
    ]
}

/// The effect of skipping the planned usage of a span, in full sentences.
fn skipped(span: &Span, now: Timestamp) -> Vec<String> {
    let Some(plan) = &span.planned else {
        return vec!["Nothing is planned that could be skipped.".to_owned()];
    };
    let length = plan.end.since(plan.start);
    let direction = if length < 0 {
        "It takes back what was billed too much. That stays billed, unless it is sent again later."
    } else {
        "It is not billed, unless it is sent again later."
    };
    let unanswered = span.delivery.unanswered.then(|| {
        "A post of this usage had no answer, so the upstream may count it. Compare with its own numbers before \
         anybody bills it by hand."
            .to_owned()
    });
    let effects = [
        format!(
            "Skip 1 usage of {}: {} {} to {} {}. {direction}",
            show::in_words(length),
            show::date(plan.start),
            show::clock(plan.start),
            show::date(plan.end),
            show::clock(plan.end),
        ),
        "A worker does it five minutes after the last refusal.".to_owned(),
        format!(
            "Then resume {}.",
            Estimate::after_skip(span, plan.end, now).in_words()
        ),
    ];
    effects.into_iter().chain(unanswered).collect()
}

fn not_suspended() -> Problem {
    let detail = "Only a span that is suspended can be resumed, or its usage skipped.";
    api::problem("The span is not suspended", detail)
}
