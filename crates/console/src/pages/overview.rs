//! The overview: the backlog, the month that closes, what is paused and what is suspended.

use askama::Template;
use axum::response::Response;
use http::StatusCode;
use sampler_api::{Act, Backlog, Cause, Control};

use super::suspended;
use crate::api::Refusal;
use crate::page::{Frame, render};
use crate::show::{self, Html};
use crate::view::Table;
use crate::visit::Visit;

/// Causes that the overview shows, the largest.
const CAUSES: usize = 5;

/// Resources with rates of their own that the overview shows.
const RATES: usize = 10;

#[derive(Template)]
#[template(path = "overview.html")]
struct OverviewPage {
    frame: Frame,
    cards: Vec<Card>,
    causes: Result<Table, String>,
    /// How many causes are not shown here.
    hidden: usize,
}

/// One thing to know, with some facts about it.
#[derive(Default)]
struct Card {
    title: &'static str,
    hook: &'static str,
    figure: Html,
    facts: Vec<(&'static str, Html)>,
    /// What is said instead, where it cannot be read.
    missing: Option<String>,
}

/// `GET /console`.
pub(crate) async fn show(visit: Visit) -> Response {
    // If the API refuses a part or cannot answer now, the page says so there and shows the rest.
    let backlog = visit.get::<Backlog>("/v1/backlog", &[]).await;
    let backlog = backlog.map(|answer| answer.body);
    let control = visit.get::<Control>("/v1/control", &[]).await;
    let control = control.map(|answer| answer.body);
    let causes = visit.first::<Cause>("/v1/suspended", &[]).await;
    let pause = match &control {
        Ok(control) if control.sampling.paused => pause(&visit).await,
        _ => None,
    };
    let frame = visit.frame();
    let cards = vec![
        card("Backlog", "backlog", &backlog, |backlog| {
            due(backlog, &frame)
        }),
        card("Month close", "month-close", &backlog, closing),
        card("Sampling", "sampling", &control, |control| {
            sampling(control, pause.as_ref())
        }),
    ];
    let page = OverviewPage {
        hidden: causes
            .as_deref()
            .map_or(0, |all| all.len().saturating_sub(CAUSES)),
        causes: causes
            .map(|causes| suspended::table(&visit, &causes[..causes.len().min(CAUSES)], false))
            .map_err(|refusal| refusal.in_place()),
        cards,
        frame,
    };
    render(StatusCode::OK, &page)
}

/// The card of something that was read, or was not.
fn card<T>(
    title: &'static str,
    hook: &'static str,
    read: &Result<T, Refusal>,
    show: impl FnOnce(&T) -> Card,
) -> Card {
    let missing = read.as_ref().err().map(Refusal::in_place);
    Card {
        title,
        hook,
        missing,
        ..read.as_ref().map(show).unwrap_or_default()
    }
}

/// A number, and what it counts.
fn figure(count: u64, noun: &str) -> Html {
    show::number(count).and(show::faint(noun))
}

fn due(backlog: &Backlog, frame: &Frame) -> Card {
    let noun = if backlog.at_least {
        "spans due, and more"
    } else {
        "spans due"
    };
    let address = format!("{}/suspended", frame.root);
    let suspended = show::words(&show::counted(backlog.suspended, "span"));
    let rate = show::words(&format!("{:.1} usages a second", backlog.rate));
    Card {
        figure: figure(backlog.due, noun),
        facts: vec![
            ("Oldest", show::at_or(backlog.oldest, "none")),
            ("Rate", rate.and(show::faint("in the last two minutes"))),
            ("Suspended", show::link(&address, &suspended)),
        ],
        ..Card::default()
    }
}

fn closing(backlog: &Backlog) -> Card {
    let Some(closing) = &backlog.closing else {
        return Card {
            figure: show::faint("No month is closing."),
            ..Card::default()
        };
    };
    Card {
        figure: figure(closing.left, &format!("spans left of {}", closing.month)),
        facts: vec![("Closes", show::at(closing.closes_at))],
        ..Card::default()
    }
}

fn sampling(control: &Control, pause: Option<&Act>) -> Card {
    let mut facts = Vec::new();
    if let Some(act) = pause {
        facts.push(("Since", show::at(act.at)));
        facts.extend(act.who.as_deref().map(|who| ("By", show::id(who))));
        facts.push(("Reason", show::quoted(&act.reason)));
    }
    let starts = format!("{} % of new starts are admitted", control.starts.rate);
    facts.push(("Starts", show::words(&starts)));
    let resources = control.starts.resources.iter().map(|(id, rate)| {
        let rate = show::words(&format!("{rate} %"));
        ("Starts of", show::id(id).and(rate))
    });
    facts.extend(resources.take(RATES));
    let (is_paused, is_controlled) = (control.sampling.paused, control.controller.enabled);
    let controller = ["off", "on"][usize::from(is_controlled)];
    facts.push(("Controller", show::words(controller)));
    let paused = is_paused.then(|| show::bad("paused"));
    Card {
        figure: paused.unwrap_or_else(|| show::words("on")),
        facts,
        ..Card::default()
    }
}

/// Who paused sampling, when and why, as far as the session may know.
async fn pause(visit: &Visit) -> Option<Act> {
    let acts = visit.first::<Act>("/v1/audit", &[]).await.ok()?;
    let is_pause = |act: &Act| {
        let [before, after] = [&act.before, &act.after].map(|it| it["sampling"]["paused"] == true);
        act.act == "control.set" && after && !before
    };
    acts.into_iter().find(is_pause)
}
