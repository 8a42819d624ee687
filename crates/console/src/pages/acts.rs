//! What operators do about suspended spans and excluded time. Each action is confirmed on a page of its
//! own, which says what will be done and asks why.

use std::sync::Arc;

use askama::Template;
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{MethodRouter, get};
use http::StatusCode;
use sampler_api::{Cause, Problem, Span};
use serde_json::json;

use crate::Console;
use crate::api::{Refusal, segment};
use crate::frame::render;
use crate::query::{self, Query};
use crate::show;
use crate::visit::{Form, Visit};

/// An action, in the API and in the console alike at `subjects/{id}/verb`: the subjects, the verb, and the
/// times that its form asks for. Each may be left empty.
type Action = (&'static str, &'static str, &'static [&'static str]);

const CAUSES: &str = "suspended";
const SPANS: &str = "spans";

pub(crate) const ACTIONS: [Action; 4] = [
    (CAUSES, "resume", &[]),
    (SPANS, "resume", &[]),
    (SPANS, "skip", &["until"]),
    (SPANS, "resend", &["from", "to"]),
];

/// The page that confirms an action.
#[derive(Template)]
#[template(path = "act.html")]
struct ActPage<'a> {
    visit: &'a Visit,
    verb: &'static str,
    times: &'static [&'static str],
    /// What was entered so far.
    fields: &'a Query,
    cause: Option<Cause>,
    span: Option<Span>,
    /// The entity tag of the state that was shown: the action applies only to this state.
    tag: String,
    /// Where the action leads, done or not.
    back: String,
    problem: Option<Problem>,
}

/// The page of an action, and the form that it sends.
pub(crate) fn page_and_form(action: Action) -> MethodRouter<Arc<Console>> {
    get(async move |visit: Visit| {
        let page = page(&visit, action, &visit.query).await?;
        Ok::<_, Refusal>(render(StatusCode::OK, &page))
    })
    .post(async move |form: Form| carry_out(action, &form).await)
}

fn back(visit: &Visit, subjects: &str) -> String {
    let (root, id) = (&visit.root, segment(&visit.id));
    match subjects {
        CAUSES => format!("{root}/suspended?cause={id}"),
        _ => format!("{root}/spans/{id}"),
    }
}

/// Where the action was refused and can be confirmed again, the page shows why, and the present state.
async fn carry_out(action: Action, form: &Form) -> Result<Response, Refusal> {
    let (Form { visit, fields }, (subjects, verb, times)) = (form, action);
    let mut body = json!({ "reason": fields.get("reason") });
    for name in times.iter().filter(|name| !fields.get(name).is_empty()) {
        let time = fields.time(name);
        body[name] = time.map_or_else(|| json!(fields.get(name)), |time| json!(time));
    }
    let path = format!("/v1/{subjects}/{}/{verb}", segment(&visit.id));
    let Err(refusal) = visit.act(&path, fields.get("tag"), &body).await else {
        return Ok(Redirect::to(&back(visit, subjects)).into_response());
    };
    if !refusal.status.is_client_error() || refusal.status == StatusCode::NOT_FOUND {
        return Err(refusal);
    }
    let Ok(mut page) = page(visit, action, fields).await else {
        return Err(refusal);
    };
    let mut problem = fields.in_words(*refusal.problem);
    // A person has sent no JSON.
    if !problem.errors.is_empty() {
        "Nothing was done".clone_into(&mut problem.title);
        problem.detail.clear();
    }
    page.problem = Some(problem);
    Ok(render(refusal.status, &page))
}

/// The page for an action in the present state.
async fn page<'a>(
    visit: &'a Visit,
    (subjects, verb, times): Action,
    fields: &'a Query,
) -> Result<ActPage<'a>, Refusal> {
    if !visit.is_admin() {
        let detail = "Changes need the scope abacus.sampler.admin.";
        return Err(Refusal::new(StatusCode::FORBIDDEN, "Not allowed", detail));
    }
    let mut page = ActPage {
        visit,
        verb,
        times,
        fields,
        cause: None,
        span: None,
        tag: String::new(),
        back: back(visit, subjects),
        problem: None,
    };
    let path = format!("/v1/{subjects}/{}", segment(&visit.id));
    if subjects == CAUSES {
        page.cause = Some(visit.get(&path, &Query::default()).await?.body);
    } else {
        let read = visit.get(&path, &Query::default()).await?;
        (page.span, page.tag) = (Some(read.body), read.tag);
    }
    Ok(page)
}
