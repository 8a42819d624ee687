//! The frame of every page, and its headers, which keep a browser from being used against us.

use std::sync::Arc;

use askama::Template;
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{Html, IntoResponse, Response};
use http::StatusCode;
use http::header::{
    CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, HeaderValue, REFERRER_POLICY, RETRY_AFTER,
};
use sampler_api::Problem;

use crate::address::relative;
use crate::api::Refusal;
use crate::session::Session;
use crate::{Console, PATH, show};

/// Nothing but our own files, no frame around us, and forms that lead to us alone.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; \
     object-src 'none'",
);

/// Other sites do not learn the previous page of a visitor: its address may name a customer.
const REFERRERS: HeaderValue = HeaderValue::from_static("same-origin");

const OPENER_POLICY: HeaderName = HeaderName::from_static("cross-origin-opener-policy");
const SAME_ORIGIN: HeaderValue = HeaderValue::from_static("same-origin");

/// Adds the headers that a page needs. The receiver adds the headers that all its answers have.
pub(crate) async fn protect(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    if headers.contains_key(CONTENT_TYPE) {
        headers.insert(CONTENT_SECURITY_POLICY, POLICY);
    }
    headers.insert(REFERRER_POLICY, REFERRERS);
    headers.insert(OPENER_POLICY, SAME_ORIGIN);
    response
}

/// A page of the navigation: the end of its path, its name, and whether admins alone may see it.
type Place = (&'static str, &'static str, bool);

const PLACES: [Place; 5] = [
    ("", "Overview", false),
    ("/spans", "Spans", false),
    ("/suspended", "Suspended", false),
    ("/usage", "Usage", false),
    ("/audit", "Audit", true),
];

/// The frame around a page's own content.
pub(crate) struct Frame {
    console: Arc<Console>,
    session: Option<Session>,
    /// The path of the page, below [`PATH`].
    place: String,
    /// The reference to [`PATH`].
    pub(crate) root: String,
}

impl Frame {
    /// The frame of a page at this path; without a session it is that of a page that anybody may see.
    pub(crate) fn new(console: &Arc<Console>, session: Option<Session>, path: &str) -> Self {
        let place = path.strip_prefix(PATH).unwrap_or_default();
        Self {
            console: Arc::clone(console),
            session,
            place: place.trim_end_matches('/').to_owned(),
            root: relative(path, PATH),
        }
    }

    /// The address of a file.
    pub(crate) fn asset(&self, name: &str) -> String {
        format!("{}/assets/{}", self.root, self.console.assets.address(name))
    }

    pub(crate) fn is_open(&self) -> bool {
        self.console.is_open()
    }

    /// Whether every page says that sampling is paused.
    pub(crate) fn is_paused(&self) -> bool {
        self.has_session() && (self.console.parts.is_paused)()
    }

    pub(crate) fn has_session(&self) -> bool {
        self.session.is_some()
    }

    /// The pages that the session may see.
    pub(crate) fn places(&self) -> Vec<Place> {
        let session = self.session.as_ref();
        let is_admin = session.is_some_and(Session::is_admin);
        let places = PLACES
            .into_iter()
            .filter(|(.., is_for_admins)| session.is_some() && (is_admin || !is_for_admins));
        places.collect()
    }

    pub(crate) fn is_here(&self, place: &str) -> bool {
        let rest = self.place.strip_prefix(place);
        rest.is_some_and(|rest| rest.is_empty() || (!place.is_empty() && rest.starts_with('/')))
    }

    pub(crate) fn person(&self) -> Option<show::Html> {
        self.session.as_ref()?.person().map(show::id)
    }

    pub(crate) fn csrf(&self) -> &str {
        self.session.as_ref().map_or("", Session::csrf)
    }
}

pub(crate) fn render(status: StatusCode, page: &impl Template) -> Response {
    match page.render() {
        Ok(text) => (status, Html(text)).into_response(),
        Err(error) => {
            tracing::error!(
                code = "console.not_rendered",
                error = %error,
                "a page could not be rendered"
            );
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

/// A page that says why there is no other.
#[derive(Template)]
#[template(path = "problem.html")]
struct ProblemPage {
    frame: Frame,
    title: String,
    status: u16,
    problem: Problem,
}

pub(crate) fn refused(frame: Frame, refusal: Refusal) -> Response {
    let mut problem = *refusal.problem;
    let page = ProblemPage {
        frame,
        title: std::mem::take(&mut problem.title),
        status: refusal.status.as_u16(),
        problem,
    };
    let mut response = render(refusal.status, &page);
    let retry_after = refusal
        .retry_after
        .and_then(|it| HeaderValue::try_from(it).ok());
    if let Some(seconds) = retry_after {
        response.headers_mut().insert(RETRY_AFTER, seconds);
    }
    response
}
