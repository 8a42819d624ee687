//! The causes of suspended spans, and the spans of a cause.

use std::sync::Arc;

use askama::Template;
use axum::Extension;
use axum::extract::State;
use axum::response::{IntoResponse, Redirect, Response};
use http::{StatusCode, Uri};
use percent_encoding::utf8_percent_encode;
use sampler_domain::Timestamp;

use crate::api::{Query, Refusal, SEGMENT, address};
use crate::documents::{ActRecord, Cause, List, Span};
use crate::estimate::{left, roughly};
use crate::page::{Frame, refused, render};
use crate::session::Session;
use crate::{Console, parameters, show};

pub(crate) const PAGE: &str = "/console/suspended";

/// Spans of a cause on one page, where nothing else is asked for.
const SPANS: &str = "50";

/// Acts that are shown of those before.
const HISTORY: usize = 10;

#[derive(Template)]
#[template(path = "suspended.html")]
struct Page {
    frame: Frame,
    may_act: bool,
    causes: Vec<Cause>,
    /// The cause whose spans are shown.
    chosen: Option<String>,
    spans: Vec<Span>,
    next: Option<String>,
    history: Vec<ActRecord>,
    now: Timestamp,
}

impl Page {
    fn is_chosen(&self, cause: &Cause) -> bool {
        self.chosen.as_deref() == Some(&cause.cause)
    }

    /// The chosen cause, where it is one that is there.
    fn chosen_cause(&self) -> Option<&Cause> {
        self.causes.iter().find(|cause| self.is_chosen(cause))
    }

    fn behind(&self, span: &Span) -> String {
        roughly(left(span, self.now).abs())
    }
}

/// The page with the spans of a cause.
pub(crate) fn page_of_cause(cause: &str) -> String {
    address(PAGE, &[("cause".to_owned(), cause.to_owned())])
}

/// The page that lets the spans of a cause go on.
pub(crate) fn resume_page_of(cause: &str) -> String {
    format!("{PAGE}/{}/resume", utf8_percent_encode(cause, SEGMENT))
}

/// `GET /console/suspended`.
pub(crate) async fn show(
    State(console): State<Arc<Console>>,
    Extension(session): Extension<Session>,
    uri: Uri,
) -> Response {
    let query = parameters::read(&uri);
    if let Some(address) = parameters::without_empty(&uri, &query) {
        return Redirect::to(&address).into_response();
    }
    let frame = Frame::new(&console, &session, "Suspended");
    match page(&console, &session, query).await {
        Ok(page) => render(StatusCode::OK, &page),
        Err(refusal) => refused(frame, refusal),
    }
}

async fn page(console: &Arc<Console>, session: &Session, query: Query) -> Result<Page, Refusal> {
    let (api, grant) = (&console.api, session.grant());
    let causes = api
        .get::<List<Cause>>(grant, "/v1/suspended?limit=1000", &[])
        .await?;
    let causes = causes.body.items;
    let asked_for = Some(parameters::value(&query, "cause").to_owned());
    let asked_for = asked_for.filter(|cause| !cause.is_empty());
    let first = || causes.first().map(|cause| cause.cause.clone());
    let chosen = asked_for.or_else(first);
    let (mut spans, mut next) = (Vec::new(), None);
    if let Some(cause) = &chosen {
        let asked = of_cause(cause, &query);
        let answer = api.get::<List<Span>>(grant, "/v1/spans", &asked).await?;
        next = answer.cursor.map(|cursor| {
            let query = parameters::with(&query, "cause", Some(cause));
            address(PAGE, &parameters::with(&query, "cursor", Some(&cursor)))
        });
        spans = answer.body.items;
    }
    Ok(Page {
        frame: Frame::new(console, session, "Suspended"),
        may_act: session.is_admin(),
        chosen,
        causes,
        spans,
        next,
        history: history(console, session).await,
        now: console.clock.now(),
    })
}

/// The query for the API: the page's, for the spans of this cause.
fn of_cause(cause: &str, query: &Query) -> Query {
    let mut asked = parameters::for_api(query);
    if parameters::value(&asked, "limit").is_empty() {
        asked = parameters::with(&asked, "limit", Some(SPANS));
    }
    asked = parameters::with(&asked, "cause", Some(cause));
    parameters::with(&asked, "state", Some("suspended"))
}

/// The last acts on what is suspended, for those who may see them.
async fn history(console: &Console, session: &Session) -> Vec<ActRecord> {
    if !session.is_admin() {
        return Vec::new();
    }
    let acts = console
        .api
        .get::<List<ActRecord>>(session.grant(), "/v1/audit", &[]);
    let Ok(acts) = acts.await else {
        return Vec::new();
    };
    let names = ["cause.resume", "span.resume", "span.skip", "usage.resend"];
    let of_page = acts.body.items.into_iter();
    let of_page = of_page.filter(|act| names.contains(&act.act.as_str()));
    of_page.take(HISTORY).collect()
}
