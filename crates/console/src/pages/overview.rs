//! The overview.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use askama::Template;
use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use sampler_domain::Timestamp;

use crate::chart::Trend;
use crate::documents::{Backlog, Cause, Closing, Control, Instance, List};
use crate::page::{Frame, render};
use crate::session::Session;
use crate::{Console, show};

/// Causes that the overview shows, the largest.
const CAUSES: usize = 5;

/// Instances that the overview shows: those first that are not as they should be.
const INSTANCES: usize = 40;

/// Backlogs that are remembered, and the least time between two, in ms.
const REMEMBERED: usize = 240;
const PAUSE: i64 = 5_000;

#[derive(Template)]
#[template(path = "overview.html")]
struct Page {
    frame: Frame,
    backlog: Option<Backlog>,
    causes: Option<Vec<Cause>>,
    /// How many causes are not shown here.
    hidden_causes: usize,
    control: Option<Control>,
    trend: Option<Trend>,
    instances: Option<Vec<Instance>>,
    /// How many instances are not shown here. They are up.
    hidden_instances: usize,
}

impl Page {
    #[allow(clippy::unused_self, reason = "templates call methods of the page")]
    fn is_in_time(&self, closing: &Closing) -> bool {
        closing
            .done_at
            .is_some_and(|done| done <= closing.closes_at)
    }
}

/// The backlogs that pages have shown lately. They are kept only here.
#[derive(Default)]
pub(crate) struct Memory(Mutex<VecDeque<(Timestamp, i64)>>);

impl Memory {
    /// Adds how many spans are due, and gives all that are remembered.
    fn add(&self, now: Timestamp, due: i64) -> Vec<(Timestamp, i64)> {
        let mut memory = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if memory
            .back()
            .is_none_or(|(last, _)| now.since(*last) >= PAUSE)
        {
            memory.push_back((now, due));
        }
        while memory.len() > REMEMBERED {
            memory.pop_front();
        }
        memory.iter().copied().collect()
    }
}

/// Those that are shown: the order of the API, but where there are too many those that are up go.
fn chosen(mut instances: Vec<Instance>) -> Vec<Instance> {
    if instances.len() > INSTANCES {
        instances.sort_by_key(Instance::is_up);
        instances.truncate(INSTANCES);
    }
    instances
}

/// `GET /console`.
pub(crate) async fn show(
    State(console): State<Arc<Console>>,
    Extension(session): Extension<Session>,
) -> Response {
    let frame = Frame::new(&console, &session, "Overview");
    let grant = session.grant();
    // If the API refuses a part or cannot answer now, the page says so there and shows the rest.
    let backlog = console.api.get::<Backlog>(grant, "/v1/backlog", &[]).await;
    let causes = console
        .api
        .get::<List<Cause>>(grant, "/v1/suspended?limit=1000", &[])
        .await;
    let causes = causes.ok().map(|answer| answer.body.items);
    let control = console.api.get::<Control>(grant, "/v1/control", &[]).await;
    let backlog = backlog.ok().map(|answer| answer.body);
    let instances = console
        .api
        .get::<List<Instance>>(grant, "/v1/instances", &[])
        .await;
    let instances = instances.ok().map(|answer| answer.body.items);
    let now = console.clock.now();
    let trend = backlog
        .as_ref()
        .and_then(|it| Trend::of(&console.memory.add(now, it.due)));
    let page = Page {
        frame,
        backlog,
        hidden_causes: causes
            .as_ref()
            .map_or(0, |causes| causes.len().saturating_sub(CAUSES)),
        causes: causes.map(|causes| causes.into_iter().take(CAUSES).collect()),
        control: control.ok().map(|answer| answer.body),
        trend,
        hidden_instances: instances
            .as_ref()
            .map_or(0, |all| all.len().saturating_sub(INSTANCES)),
        instances: instances.map(chosen),
    };
    render(StatusCode::OK, &page)
}
