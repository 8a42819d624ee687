//! The body that a form of a page sends.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{FromRequest, Request};
use axum::response::{IntoResponse, Redirect, Response};
use http::header::{HOST, ORIGIN};
use http::request::Parts;
use http::{HeaderMap, Method, StatusCode};
use http_body_util::{BodyExt, Limited};
use sampler_api::{FieldError, Problem};
use serde_json::Value;
use url::{Url, form_urlencoded};

use crate::api::{Query, Refusal};
use crate::page::{Frame, message};
use crate::visit::Visit;
use crate::{Console, PATH, parameters};

/// The longest form, in bytes: a reason of 1,000 characters that are encoded, and some fields.
const BYTES_MAX: usize = 32 << 10;

const NOTHING_DONE: &str = "Nothing was done";

pub(crate) fn problem_of_field(name: &str, detail: &str) -> Problem {
    Problem {
        title: NOTHING_DONE.to_owned(),
        errors: vec![FieldError::of_parameter(name, detail)],
        ..Problem::default()
    }
}

/// A problem of the API in the words of a form, where it names fields: the person who sent the form
/// did not see any JSON.
pub(crate) fn in_a_form(mut problem: Problem) -> Problem {
    if problem.errors.is_empty() {
        return problem;
    }
    NOTHING_DONE.clone_into(&mut problem.title);
    problem.detail.clear();
    for error in &mut problem.errors {
        if let Some(pointer) = error.pointer.take() {
            error.parameter = Some(label_of(&pointer).to_owned());
        }
    }
    problem
}

/// The label of the field of a form that is sent at a JSON Pointer.
fn label_of(pointer: &str) -> &str {
    match pointer {
        "#/reason" => "Why?",
        "#/starts/rate" => "Admitted of all new starts, %",
        "#/controller/target_seconds" => "Time that the backlog may need, s",
        _ => pointer.rsplit('/').next().unwrap_or(pointer),
    }
}

/// A form that a page of this session has made.
pub(crate) struct SubmittedForm {
    pub(crate) visit: Visit,
    pub(crate) headers: HeaderMap,
    fields: Query,
}

impl FromRequest<Arc<Console>> for SubmittedForm {
    /// 403 where a page of this session has not made it, and 413 where it is too long.
    type Rejection = Response;

    async fn from_request(request: Request, console: &Arc<Console>) -> Result<Self, Response> {
        let (head, body): (Parts, Body) = request.into_parts();
        let Some(visit) = Visit::of(console, &head) else {
            return Err(Redirect::to(PATH).into_response());
        };
        let Ok(body) = Limited::new(body, BYTES_MAX).collect().await else {
            let detail = "The form is too long, or did not arrive. Nothing was done.";
            let frame = Frame::outside(console);
            let status = StatusCode::PAYLOAD_TOO_LARGE;
            return Err(message(frame, status, "Not done", detail, None));
        };
        let fields = form_urlencoded::parse(&body.to_bytes())
            .into_owned()
            .collect();
        let is_own = visit
            .session
            .is_own_form(parameters::value(&fields, "csrf"));
        if !is_own || is_from_elsewhere(&head.headers) {
            let detail = "The form does not come from a page of this session. Nothing was done.";
            let link = Some((PATH, "Open the console"));
            let frame = Frame::outside(console);
            return Err(message(
                frame,
                StatusCode::FORBIDDEN,
                "Not done",
                detail,
                link,
            ));
        }
        Ok(Self {
            visit,
            headers: head.headers,
            fields,
        })
    }
}

impl SubmittedForm {
    /// Asks the API for a change, as [`Console::act`].
    pub(crate) async fn act(
        &self,
        method: Method,
        path: &str,
        tag: &str,
        body: &Value,
    ) -> Result<(), Refusal> {
        let grant = self.visit.session.grant();
        self.visit.console.act(grant, method, path, tag, body).await
    }

    /// The value of a field; empty where it is not there.
    pub(crate) fn value(&self, name: &str) -> &str {
        parameters::value(&self.fields, name)
    }

    pub(crate) fn trimmed(&self, name: &str) -> String {
        self.value(name).trim().to_owned()
    }
}

/// Whether the browser says that a page of another origin has sent the form. Old browsers say nothing.
fn is_from_elsewhere(headers: &HeaderMap) -> bool {
    let site = headers.get("sec-fetch-site");
    if site.is_some_and(|site| site != "same-origin" && site != "none") {
        return true;
    }
    match [ORIGIN, HOST].map(|name| headers.get(name)?.to_str().ok()) {
        [Some(origin), Some(host)] => {
            // The scheme may have been another one in front of a router; a port that is usual is left out.
            let own = ["http", "https"].map(|scheme| host_of(&format!("{scheme}://{host}")));
            !own.contains(&host_of(origin))
        }
        [Some(_), None] => true,
        [None, _] => headers.contains_key(ORIGIN),
    }
}

fn host_of(origin: &str) -> Option<String> {
    Some(Url::parse(origin).ok()?.authority().to_owned())
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn a_form_of_another_origin_is_told_from_an_own_one() {
        let from_elsewhere = |pairs: &[(&'static str, &'static str)]| {
            let mut headers = HeaderMap::new();
            headers.insert(HOST, HeaderValue::from_static("sampler.example:443"));
            for (name, value) in pairs {
                headers.insert(*name, HeaderValue::from_static(value));
            }
            is_from_elsewhere(&headers)
        };
        for own in [
            &[][..],
            &[("sec-fetch-site", "same-origin")],
            &[("sec-fetch-site", "none")],
            &[("origin", "https://sampler.example")],
            &[
                ("origin", "https://sampler.example"),
                ("sec-fetch-site", "same-origin"),
            ],
        ] {
            assert!(!from_elsewhere(own), "{own:?}");
        }
        for foreign in [
            &[("sec-fetch-site", "cross-site")][..],
            &[("sec-fetch-site", "same-site")],
            &[("origin", "null")],
            &[("origin", "https://evil.example")],
            &[("origin", "https://sampler.example.evil.example")],
            &[("origin", "https://sampler.example:8443")],
        ] {
            assert!(from_elsewhere(foreign), "{foreign:?}");
        }
    }
}
