//! The overview: the backlog, the month that closes, what is paused and what is suspended.

use askama::Template;
use axum::response::Response;
use http::StatusCode;
use sampler_api::{Act, Backlog, Cause, Control, List};
use serde::de::DeserializeOwned;

use crate::frame::render;
use crate::query::Query;
use crate::visit::Visit;
use crate::{api, show};

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
pub(crate) async fn show(visit: Visit) -> Response {
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
