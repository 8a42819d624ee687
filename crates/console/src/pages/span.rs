//! One span: its timeline, its proof and its ledger.

use std::sync::Arc;

use askama::Template;
use axum::Extension;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Redirect, Response};
use http::{StatusCode, Uri};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use sampler_api::{List, Span, Usage};
use sampler_domain::Timestamp;

use crate::api::{Query, Refusal, address};
use crate::page::{Frame, refused, render};
use crate::session::Session;
use crate::show::{self, in_words};
use crate::timeline::{DRAWN_MAX, Timeline, View};
use crate::{Console, parameters};

/// Usages that are read at a time, and how often, for one drawing.
const USAGES_AT_A_TIME: usize = 1_000;
const READS_MAX: usize = 5;

#[derive(Template)]
#[template(path = "span.html")]
struct Page {
    frame: Frame,
    span: Span,
    timeline: Timeline,
    usages: Vec<Usage>,
    /// Up to where usages are drawn, where there are more.
    drawn_to: Option<Timestamp>,
    later: Option<String>,
    next: Option<String>,
    zoom: Vec<(&'static str, String)>,
    query: Query,
    is_refreshing: bool,
    /// Whether the session may act.
    is_admin: bool,
    /// Whether rows name their usages, because the drawing has no element for each.
    rows_name_usages: bool,
}

impl Page {
    fn local(&self, name: &str) -> String {
        parameters::local(&self.query, name)
    }

    /// Whether the session may act on the span, and there is something to do.
    fn may_act(&self) -> bool {
        self.is_admin && self.span.state == "suspended"
    }

    /// Whether the session may have usages sent again, and there is one in the table.
    fn may_resend(&self) -> bool {
        self.is_admin && self.usages.iter().any(Usage::is_resendable)
    }

    /// The time between `sampled_to` and the end, in words. `None` if there is none, or no end.
    fn unsampled(&self) -> Option<String> {
        let left = self.span.end?.since(self.span.sampled_to);
        (left != 0).then(|| in_words(left))
    }
}

/// Usages for the drawing.
struct Drawn {
    usages: Vec<Usage>,
    has_more: bool,
}

/// `GET /console/spans/{id}`.
pub(crate) async fn show(
    State(console): State<Arc<Console>>,
    Extension(session): Extension<Session>,
    Path(id): Path<String>,
    uri: Uri,
) -> Response {
    let query = parameters::read(&uri);
    if let Some(address) = parameters::without_empty(&uri, &query) {
        return Redirect::to(&address).into_response();
    }
    let frame = Frame::new(&console, &session, "Spans");
    match page(&console, &session, &id, &uri, query, frame).await {
        Ok(page) => render(StatusCode::OK, &page),
        Err((frame, refusal)) => refused(frame, refusal),
    }
}

async fn page(
    console: &Arc<Console>,
    session: &Session,
    id: &str,
    uri: &Uri,
    query: Query,
    frame: Frame,
) -> Result<Page, (Frame, Refusal)> {
    let read = read(console, session, id, &query).await;
    let (span, drawn, rows) = match read {
        Ok(read) => read,
        Err(refusal) => return Err((frame, refusal)),
    };
    let path = uri.path().to_owned();
    let (from, to) = (
        parameters::moment(&query, "from"),
        parameters::moment(&query, "to"),
    );
    let base = parameters::with(&query, "cursor", None);
    let address_of = move |from: Timestamp, to: Timestamp| {
        let query = parameters::with(&base, "from", Some(&from.as_millis().to_string()));
        address(
            &path,
            &parameters::with(&query, "to", Some(&to.as_millis().to_string())),
        )
    };
    let view = View {
        from,
        to,
        now: console.clock.now(),
        address: Box::new(address_of),
    };
    let timeline = Timeline::draw(&span, &drawn.usages, &view);
    let last = drawn.usages.last().map(|usage| usage.timestamp);
    let drawn_to = last.filter(|_| drawn.has_more);
    let later = drawn_to.map(|at| (view.address)(at, timeline.to()));
    let zoom = timeline.zoom(&span, &view, uri.path());
    let next = rows.cursor.map(|cursor| {
        let query = parameters::with(&query, "cursor", Some(&cursor));
        address(uri.path(), &query)
    });
    Ok(Page {
        frame,
        timeline,
        is_admin: session.is_admin(),
        is_refreshing: span.state != "complete" && query.is_empty(),
        rows_name_usages: drawn.usages.len() > DRAWN_MAX,
        usages: rows.body.items,
        drawn_to,
        later,
        next,
        zoom,
        query,
        span,
    })
}

/// The span, the usages for the drawing, and those for the table.
async fn read(
    console: &Console,
    session: &Session,
    id: &str,
    query: &Query,
) -> Result<(Span, Drawn, crate::api::Answer<List<Usage>>), Refusal> {
    let path = format!("/v1/spans/{}", utf8_percent_encode(id, NON_ALPHANUMERIC));
    let api = &console.api;
    let span = api.get::<Span>(session.grant(), &path, &[]).await?.body;
    let path = format!("{path}/usages");
    let asked = parameters::for_api(query);
    let rows = api
        .get::<List<Usage>>(session.grant(), &path, &asked)
        .await?;
    let is_all = rows.cursor.is_none() && parameters::value(query, "cursor").is_empty();
    if is_all {
        let usages = rows.body.items.clone();
        let drawn = Drawn {
            usages,
            has_more: false,
        };
        return Ok((span, drawn, rows));
    }
    let drawn = drawn(console, session, &path, &asked).await?;
    Ok((span, drawn, rows))
}

async fn drawn(
    console: &Console,
    session: &Session,
    path: &str,
    asked: &Query,
) -> Result<Drawn, Refusal> {
    let limit = USAGES_AT_A_TIME.to_string();
    let mut query = parameters::with(asked, "limit", Some(&limit));
    query = parameters::with(&query, "cursor", None);
    let mut usages = Vec::new();
    for _ in 0..READS_MAX {
        let page = console
            .api
            .get::<List<Usage>>(session.grant(), path, &query)
            .await?;
        usages.extend(page.body.items);
        let Some(cursor) = page.cursor else {
            return Ok(Drawn {
                usages,
                has_more: false,
            });
        };
        query = parameters::with(&query, "cursor", Some(&cursor));
    }
    Ok(Drawn {
        usages,
        has_more: true,
    })
}
