//! The frame of every page, and its headers, which keep a browser from being used against us.

use sampler_api::Problem;
use std::sync::Arc;

use askama::Template;
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{Html, IntoResponse, Response};
use http::StatusCode;
use http::header::{
    CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, HeaderValue, REFERRER_POLICY, RETRY_AFTER,
};

use crate::Console;
use crate::api::{Refusal, problem};
use crate::session::{Pause, Session};
use crate::show::Name;

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

/// The frame around a page's own content.
pub(crate) struct Frame {
    console: Arc<Console>,
    session: Option<Session>,
    /// The page that is open, as the navigation names it.
    place: &'static str,
}

pub(crate) struct NavigationItem {
    pub(crate) path: &'static str,
    pub(crate) name: &'static str,
    is_for_admins: bool,
}

impl NavigationItem {
    const fn new(path: &'static str, name: &'static str, is_for_admins: bool) -> Self {
        Self {
            path,
            name,
            is_for_admins,
        }
    }
}

const PLACES: [NavigationItem; 6] = [
    NavigationItem::new("/console", "Overview", false),
    NavigationItem::new("/console/spans", "Spans", false),
    NavigationItem::new("/console/suspended", "Suspended", false),
    NavigationItem::new("/console/usage", "Usage", false),
    NavigationItem::new("/console/control", "Control", true),
    NavigationItem::new("/console/audit", "Audit", true),
];

impl Frame {
    pub(crate) fn new(console: &Arc<Console>, session: &Session, place: &'static str) -> Self {
        Self {
            console: Arc::clone(console),
            session: Some(session.clone()),
            place,
        }
    }

    /// The frame of a page that anybody may see.
    pub(crate) fn outside(console: &Arc<Console>) -> Self {
        Self {
            console: Arc::clone(console),
            session: None,
            place: "",
        }
    }

    pub(crate) fn style(&self) -> &str {
        &self.console.assets.style
    }

    pub(crate) fn script(&self) -> &str {
        &self.console.assets.script
    }

    pub(crate) fn icon(&self) -> &str {
        &self.console.assets.icon
    }

    pub(crate) fn is_open(&self) -> bool {
        self.console.is_open()
    }

    /// The pages that the session may see.
    pub(crate) fn places(&self) -> Vec<&'static NavigationItem> {
        let session = self.session.as_ref();
        PLACES
            .iter()
            .filter(|place| {
                session.is_some_and(|session| !place.is_for_admins || session.is_admin())
            })
            .collect()
    }

    pub(crate) fn is_here(&self, place: &NavigationItem) -> bool {
        place.name == self.place
    }

    pub(crate) fn person(&self) -> Option<Name<'_>> {
        let text = self.session.as_ref()?.person()?;
        Some(Name { text })
    }

    /// The pause of sampling, which every page shows.
    pub(crate) fn pause(&self) -> Option<&Pause> {
        self.session.as_ref()?.pause()
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
    status: u16,
    problem: Problem,
    /// Where else to go.
    link: Option<(&'static str, &'static str)>,
}

pub(crate) fn refused(frame: Frame, refusal: Refusal) -> Response {
    let page = ProblemPage {
        frame,
        status: refusal.status.as_u16(),
        problem: *refusal.problem,
        link: None,
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

pub(crate) fn message(
    frame: Frame,
    status: StatusCode,
    title: &str,
    detail: &str,
    link: Option<(&'static str, &'static str)>,
) -> Response {
    let page = ProblemPage {
        frame,
        status: status.as_u16(),
        problem: problem(title, detail),
        link,
    };
    render(status, &page)
}
