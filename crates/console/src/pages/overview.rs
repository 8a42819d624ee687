//! The overview.

use std::collections::BTreeMap;
use std::time::Duration;

use askama::Template;
use axum::response::Response;
use http::StatusCode;
use sampler_api::{Backlog, Cause, Closing, Control, Instance, InstanceState, Intake};

use super::suspended;
use crate::api::Refusal;
use crate::chart::Trend;
use crate::page::{Frame, render};
use crate::visit::Visit;
use crate::{Console, show};

/// Causes that the overview shows, the largest.
const CAUSES: usize = 5;

/// Resources with rates of their own that the overview shows, the lowest rates first.
const RATES: usize = 10;

/// Instances that the overview shows, those with defects first.
const INSTANCES: usize = 40;

#[derive(Template)]
#[template(path = "overview.html")]
struct OverviewPage {
    frame: Frame,
    backlog: Result<Backlog, Refusal>,
    causes: Result<Vec<Cause>, Refusal>,
    hidden_causes: u64,
    control: Result<Control, Refusal>,
    rates: Vec<(String, f64)>,
    hidden_rates: usize,
    trend: Option<Trend>,
    intake: Option<Intake>,
    usages_today: Option<u64>,
    instances: Result<Vec<Instance>, Refusal>,
    /// How many instances are not shown here. They are up.
    hidden_instances: usize,
}

impl OverviewPage {
    fn is_paused(&self) -> bool {
        self.control
            .as_ref()
            .is_ok_and(|control| control.sampling.paused)
    }

    #[allow(clippy::unused_self, reason = "templates call methods of the page")]
    fn per_minute(&self, backlog: &Backlog) -> String {
        show::exact(&format!("{:.0}", backlog.rate * 60.0))
    }

    #[allow(clippy::unused_self, reason = "templates call methods of the page")]
    fn is_in_time(&self, closing: &Closing) -> bool {
        closing
            .done_at
            .is_some_and(|done| done <= closing.closes_at)
    }
}

fn live(instances: &[Instance]) -> impl Iterator<Item = &Instance> {
    instances
        .iter()
        .filter(|it| it.state != InstanceState::Stale)
}

/// The usages that all workers together have recorded today; none where none reports it.
fn usages_today(instances: &[Instance]) -> Option<u64> {
    live(instances)
        .filter_map(|it| it.usages_today)
        .reduce(u64::saturating_add)
}

/// What all receivers together have taken in of late; none where none reports it.
fn intake(instances: &[Instance]) -> Option<Intake> {
    live(instances)
        .filter_map(|it| it.intake)
        .reduce(|one, other| Intake {
            kept: one.kept.saturating_add(other.kept),
            refused: one.refused.saturating_add(other.refused),
            last_at: one.last_at.max(other.last_at),
        })
}

/// The number of due spans until now.
fn trend(console: &Console, due: u64) -> Option<Trend> {
    let now = console.parts.clock.now();
    let past = (console.parts.past)().into_iter();
    let all = past.chain([(Duration::ZERO, due)]);
    let backlogs = all.map(|(ago, due)| {
        let ago = i64::try_from(ago.as_millis()).unwrap_or(i64::MAX);
        (now.plus(-ago), i64::try_from(due).unwrap_or(i64::MAX))
    });
    Trend::of(&backlogs.collect::<Vec<_>>())
}

fn lowest(rates: &BTreeMap<String, f64>) -> Vec<(String, f64)> {
    let mut rates: Vec<_> = rates.clone().into_iter().collect();
    rates.sort_by(|(_, one), (_, other)| one.total_cmp(other));
    rates.truncate(RATES);
    rates
}

/// Those that are shown: the order of the API, but where there are too many those that are up go.
fn chosen(mut instances: Vec<Instance>) -> Vec<Instance> {
    if instances.len() > INSTANCES {
        instances.sort_by_key(|instance| instance.state == InstanceState::Up);
        instances.truncate(INSTANCES);
    }
    instances
}

/// How many causes are not shown here: those of the list, and those that the list has no room for.
fn hidden(causes: &[Cause]) -> u64 {
    let listed = causes.len().saturating_sub(CAUSES) as u64;
    let more = causes.iter().map(|cause| cause.more);
    more.fold(listed, u64::saturating_add)
}

/// Why an instance is not as it should be, or pauses; empty where there is nothing to say.
fn troubles(instance: &Instance) -> String {
    let all = [
        ("fails", &instance.failing),
        ("warns", &instance.warnings),
        ("pauses", &instance.paused_by),
    ]
    .into_iter()
    .filter(|(_, names)| !names.is_empty())
    .map(|(what, names)| format!("{what}: {}", names.join(", ")));
    all.collect::<Vec<_>>().join("; ")
}

/// `GET /console`.
pub(crate) async fn show(visit: Visit) -> Response {
    // If the API refuses a part or cannot answer now, the page says so there and shows the rest.
    let backlog = visit.get::<Backlog>("/v1/backlog", &[]).await;
    let causes = suspended::causes(&visit, None).await;
    let control = visit.get::<Control>("/v1/control", &[]).await;
    let backlog = backlog.map(|answer| answer.body);
    let instances = visit.first::<Instance>("/v1/instances", &[]).await;
    let due = backlog.as_ref().ok().map(|backlog| backlog.due);
    let trend = due.and_then(|due| trend(&visit.console, due));
    let control = control.map(|answer| answer.body);
    let rates = control.as_ref().map(|control| &control.starts.resources);
    let (rates, all_rates) = rates.map_or((Vec::new(), 0), |rates| (lowest(rates), rates.len()));
    let page = OverviewPage {
        frame: visit.frame("Overview"),
        backlog,
        hidden_causes: causes.as_ref().map_or(0, |causes| hidden(causes)),
        causes: causes.map(|causes| causes.into_iter().take(CAUSES).collect()),
        control,
        hidden_rates: all_rates - rates.len(),
        rates,
        trend,
        intake: instances.as_ref().ok().and_then(|all| intake(all)),
        usages_today: instances.as_ref().ok().and_then(|all| usages_today(all)),
        hidden_instances: instances
            .as_ref()
            .map_or(0, |all: &Vec<_>| all.len().saturating_sub(INSTANCES)),
        instances: instances.map(chosen),
    };
    render(StatusCode::OK, &page)
}
