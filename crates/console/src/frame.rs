//! What all pages have: the frame, the page that says why there is no other, and headers that keep a
//! browser from being used against us.

use std::sync::Arc;

use askama::Template;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{Html, IntoResponse, Response};
use http::StatusCode;
use http::header::{
    CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, HeaderValue, REFERRER_POLICY, RETRY_AFTER,
    SET_COOKIE,
};

use crate::api::Refusal;
use crate::session::Session;
use crate::visit::Visit;
use crate::{Console, PATH, files, show};

/// Nothing but our own files, no frame around us, and forms that lead to us alone.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; \
     object-src 'none'",
);

const OPENER_POLICY: HeaderName = HeaderName::from_static("cross-origin-opener-policy");
const SAME_ORIGIN: HeaderValue = HeaderValue::from_static("same-origin");

/// The pages of the navigation: the last segment of the path of each, and its name.
const PLACES: [(&str, &str); 5] = [
    ("", "Overview"),
    ("spans", "Spans"),
    ("suspended", "Suspended"),
    ("usage", "Usage"),
    ("audit", "Audit"),
];

/// Makes a page of a refusal, and adds the headers that a page needs. The receiver adds the headers that
/// all its answers have.
pub(crate) async fn complete(
    State(console): State<Arc<Console>>,
    request: Request,
    next: Next,
) -> Response {
    let path = request.uri().path().to_owned();
    let mut response = next.run(request).await;
    if let Some(refusal) = response.extensions_mut().remove::<Refusal>() {
        let session = response.extensions_mut().remove::<Session>();
        let cookie = response.headers_mut().remove(SET_COOKIE);
        response = refused(Visit::new(&console, session, &path), refusal);
        let headers = response.headers_mut();
        headers.extend(cookie.map(|cookie| (SET_COOKIE, cookie)));
    }
    let headers = response.headers_mut();
    if headers.contains_key(CONTENT_TYPE) {
        headers.insert(CONTENT_SECURITY_POLICY, POLICY);
    }
    // Other sites do not learn the previous page of a visitor: its address may name a customer.
    headers.insert(REFERRER_POLICY, SAME_ORIGIN);
    headers.insert(OPENER_POLICY, SAME_ORIGIN);
    response
}

/// The frame around a page's own content.
impl Visit {
    /// The address of a file.
    pub(crate) fn file(&self, name: &str) -> String {
        format!("{}/assets/{}/{name}", self.root, *files::RELEASE)
    }

    /// Whether every page says that sampling is paused.
    pub(crate) fn is_paused(&self) -> bool {
        self.session.is_some() && (self.console.parts.is_paused)()
    }

    /// The pages that the session may see, and whether this is one of them.
    pub(crate) fn places(&self) -> Vec<(&'static str, &'static str, bool)> {
        let own = self.path.strip_prefix(PATH).unwrap_or_default();
        let own = own.split('/').nth(1).unwrap_or_default();
        let may_see = |place| self.is_admin() || (self.session.is_some() && place != "audit");
        let places = PLACES.into_iter().filter(|(place, _)| may_see(*place));
        places
            .map(|(place, name)| (place, name, place == own))
            .collect()
    }

    /// The secret that each form must repeat.
    pub(crate) fn csrf(&self) -> &str {
        self.session.as_ref().map_or("", |session| &session.csrf)
    }
}

pub(crate) fn render(status: StatusCode, page: &impl Template) -> Response {
    let text = page.render().expect("whatever is shown can be written");
    (status, Html(text)).into_response()
}

/// A page that says why there is no other.
#[derive(Template)]
#[template(path = "problem.html")]
struct ProblemPage {
    visit: Visit,
    refusal: Refusal,
}

fn refused(visit: Visit, refusal: Refusal) -> Response {
    let wait = refusal.retry_after.clone();
    let mut response = render(refusal.status, &ProblemPage { visit, refusal });
    let headers = response.headers_mut();
    headers.extend(wait.map(|wait| (RETRY_AFTER, wait)));
    response
}
