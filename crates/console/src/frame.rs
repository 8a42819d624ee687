//! What all pages have: the frame with its files, the page that says why there is no other, and headers
//! that keep a browser from being used against us.

use std::sync::{Arc, LazyLock};

use askama::Template;
use aws_lc_rs::digest::{SHA256, digest};
use axum::extract::{Path, Request, State};
use axum::middleware::Next;
use axum::response::{Html, IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::StatusCode;
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, HeaderValue, REFERRER_POLICY,
    RETRY_AFTER, SET_COOKIE,
};

use crate::api::Refusal;
use crate::session::Session;
use crate::visit::Visit;
use crate::{Console, PATH, show};

/// Nothing but our own files, no frame around us, and forms that lead to us alone.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; \
     object-src 'none'",
);

const OPENER_POLICY: HeaderName = HeaderName::from_static("cross-origin-opener-policy");
const SAME_ORIGIN: HeaderValue = HeaderValue::from_static("same-origin");

/// The pages of the navigation: the last segment of the path of each, and its name.
pub(crate) const PLACES: [(&str, &str); 5] = [
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
        format!("{}/assets/{}/{name}", self.root, *RELEASE)
    }

    /// Whether every page says that sampling is paused.
    pub(crate) fn is_paused(&self) -> bool {
        self.session.is_some() && (self.console.parts.is_paused)()
    }

    /// Which of [`PLACES`] the page belongs to, and the name of that.
    pub(crate) fn place(&self) -> (&str, &'static str) {
        let own = self.path.strip_prefix(PATH).unwrap_or_default();
        let own = own.split('/').nth(1).unwrap_or_default();
        let known = PLACES.into_iter().find(|(place, _)| *place == own);
        known.unwrap_or((own, ""))
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

const STYLE: &str = include_str!("../assets/console.css");
const SCRIPT: &str = include_str!("../assets/console.js");
const ICON: &str = include_str!("../assets/icon.svg");

/// A hash of all files of this release. Addresses have it, so that a browser may keep the files for ever.
static RELEASE: LazyLock<String> = LazyLock::new(|| {
    let all = digest(&SHA256, [STYLE, SCRIPT, ICON].concat().as_bytes());
    URL_SAFE_NO_PAD.encode(all)
});

/// `GET /console/assets/{release}/{name}`. The address of another release answers with this one's
/// content, which is not kept.
pub(crate) async fn file(Path((release, name)): Path<(String, String)>) -> Response {
    let (kind, content) = match name.as_str() {
        "console.css" => ("text/css; charset=utf-8", STYLE),
        "console.js" => ("text/javascript; charset=utf-8", SCRIPT),
        "icon.svg" => ("image/svg+xml", ICON),
        _ => return StatusCode::NOT_FOUND.into_response(),
    };
    let caching = if release == *RELEASE {
        "public, max-age=31536000, immutable"
    } else {
        "no-store"
    };
    ([(CONTENT_TYPE, kind), (CACHE_CONTROL, caching)], content).into_response()
}
