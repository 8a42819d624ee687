//! What operators see first, what is suspended, and what can be done about it. Each action is confirmed on a
//! page of its own, which says what will be done and asks why.

use std::sync::Arc;

use askama::Template;
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{MethodRouter, get};
use http::StatusCode;
use sampler_api::{Act, Backlog, Cause, Control, List, Problem, Span};
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::Console;
use crate::api::{self, Refusal, segment};
use crate::frame::render;
use crate::query::{self, Query};
use crate::show;
use crate::visit::{Form, Visit};

/// Each part, or why it cannot be read: the page shows the others.
#[derive(Template)]
#[template(path = "overview.html")]
struct OverviewPage {
    visit: Visit,
    backlog: Result<Backlog, String>,
    control: Result<Control, String>,
    /// Who paused sampling, when and why, as far as the session may know.
    pause: Option<Act>,
    causes: Result<List<Cause>, String>,
}

/// `GET /console`.
pub(crate) async fn overview(visit: Visit) -> Response {
    let page = OverviewPage {
        backlog: part(&visit, "/v1/backlog").await,
        control: part(&visit, "/v1/control").await,
        pause: pause(&visit).await,
        causes: part(&visit, "/v1/suspended").await,
        visit,
    };
    render(StatusCode::OK, &page)
}

async fn part<T: DeserializeOwned>(visit: &Visit, path: &str) -> Result<T, String> {
    let read = visit.get(path, &Query::default()).await;
    read.map(|answer| answer.body)
        .map_err(|refusal| refusal.in_place())
}

async fn pause(visit: &Visit) -> Option<Act> {
    if !visit.is_paused() {
        return None;
    }
    let acts: List<Act> = part(visit, "/v1/audit").await.ok()?;
    let is_pause = |act: &Act| {
        let [before, after] = [&act.before, &act.after].map(|it| it["sampling"]["paused"] == true);
        act.act == "control.set" && after && !before
    };
    acts.items.into_iter().find(is_pause)
}

/// Spans of a cause on one page.
const PAGE: &str = "50";

#[derive(Template)]
#[template(path = "suspended.html")]
struct SuspendedPage {
    visit: Visit,
    causes: List<Cause>,
    /// Whether a cause is chosen, what is known of it, and its spans.
    is_chosen: bool,
    chosen: Option<Cause>,
    spans: Vec<Span>,
    next: Option<String>,
}

/// `GET /console/suspended`.
pub(crate) async fn suspended(visit: Visit) -> Result<Response, Refusal> {
    let asked = Query::default().with("resource_id", visit.query.get("resource_id"));
    let causes = visit.get::<List<Cause>>("/v1/suspended", &asked).await?;
    let causes = causes.body;
    let first = causes.items.first().map_or("", |cause| &cause.cause);
    let id = Some(visit.query.get("cause")).filter(|id| !id.is_empty());
    let id = id.unwrap_or(first).to_owned();
    let mut page = SuspendedPage {
        is_chosen: !id.is_empty(),
        chosen: None,
        spans: Vec::new(),
        next: None,
        causes,
        visit,
    };
    if page.is_chosen {
        page.choose(&id).await?;
    }
    Ok(render(StatusCode::OK, &page))
}

impl SuspendedPage {
    /// Shows the spans of a cause, which may not be in the list, or be gone.
    async fn choose(&mut self, id: &str) -> Result<(), Refusal> {
        let asked = self.visit.query.with("cause", id);
        let spans = asked.with("limit", PAGE).with("state", "suspended");
        let spans = self.visit.get::<List<Span>>("/v1/spans", &spans).await?;
        self.spans = spans.body.items;
        self.next = spans
            .cursor
            .map(|cursor| asked.with("cursor", &cursor).at(""));
        let path = format!("/v1/suspended/{}", segment(id));
        let cause = self.visit.get(&path, &Query::default()).await;
        self.chosen = cause.ok().map(|answer| answer.body);
        Ok(())
    }
}

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
