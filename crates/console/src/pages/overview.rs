//! The overview.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use askama::Template;
use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use sampler_domain::Timestamp;
use serde_json::Value;

use super::suspended;
use crate::api::Refusal;
use crate::chart::Trend;
use crate::documents::{Backlog, Cause, Closing, Control, Instance, List};
use crate::page::{Frame, render};
use crate::session::Session;
use crate::{Console, show};

/// Causes that the overview shows, the largest.
const CAUSES: usize = 5;

/// Resources with rates of their own that the overview shows, the lowest rates first.
const RATES: usize = 10;

/// Instances that the overview shows: those first that are not as they should be.
const INSTANCES: usize = 40;

#[derive(Template)]
#[template(path = "overview.html")]
struct Page {
    frame: Frame,
    backlog: Result<Backlog, Refusal>,
    causes: Result<Vec<Cause>, Refusal>,
    /// How many causes are not shown here.
    hidden_causes: usize,
    /// Whether there are more than were read.
    has_more_causes: bool,
    control: Result<Control, Refusal>,
    rates: Vec<(String, Value)>,
    /// How many rates are not shown here.
    hidden_rates: usize,
    trend: Option<Trend>,
    instances: Result<Vec<Instance>, Refusal>,
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

/// The number of due spans until now.
fn trend(console: &Console, now: Timestamp, due: i64) -> Option<Trend> {
    let past = (console.past)().into_iter();
    let moment = |(ago, due): (Duration, u64)| {
        let ago = i64::try_from(ago.as_millis()).unwrap_or(i64::MAX);
        (now.plus(-ago), i64::try_from(due).unwrap_or(i64::MAX))
    };
    let moments: Vec<_> = past.map(moment).chain([(now, due)]).collect();
    Trend::of(&moments)
}

/// The rates of single resources, the lowest first.
fn lowest(rates: &BTreeMap<String, Value>) -> Vec<(String, Value)> {
    let number = |rate: &Value| rate.as_f64().unwrap_or(100.0);
    let mut rates: Vec<_> = rates.clone().into_iter().collect();
    rates.sort_by(|(_, one), (_, other)| number(one).total_cmp(&number(other)));
    rates.truncate(RATES);
    rates
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
    let causes = suspended::causes_page(&console, grant, None).await;
    let has_more_causes = causes.as_ref().is_ok_and(|answer| answer.cursor.is_some());
    let causes = causes.map(|answer| answer.body.items);
    let control = console.api.get::<Control>(grant, "/v1/control", &[]).await;
    let backlog = backlog.map(|answer| answer.body);
    let instances = console
        .api
        .get::<List<Instance>>(grant, "/v1/instances", &[])
        .await;
    let instances = instances.map(|answer| answer.body.items);
    let now = console.clock.now();
    let due = backlog.as_ref().ok().map(|backlog| backlog.due);
    let trend = due.and_then(|due| trend(&console, now, due));
    let control = control.map(|answer| answer.body);
    let rates = control.as_ref().map(|control| &control.starts.resources);
    let (rates, all_rates) = rates.map_or((Vec::new(), 0), |rates| (lowest(rates), rates.len()));
    let page = Page {
        frame,
        backlog,
        hidden_causes: causes
            .as_ref()
            .map_or(0, |causes: &Vec<_>| causes.len().saturating_sub(CAUSES)),
        has_more_causes,
        causes: causes.map(|causes| causes.into_iter().take(CAUSES).collect()),
        control,
        hidden_rates: all_rates - rates.len(),
        rates,
        trend,
        hidden_instances: instances
            .as_ref()
            .map_or(0, |all: &Vec<_>| all.len().saturating_sub(INSTANCES)),
        instances: instances.map(chosen),
    };
    render(StatusCode::OK, &page)
}
