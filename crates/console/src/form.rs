//! The body that a form of a page sends.

use std::sync::Arc;

use axum::extract::{FromRequest, FromRequestParts, Request};
use http::header::{HOST, ORIGIN};
use http::{HeaderMap, StatusCode};
use http_body_util::{BodyExt, Limited};
use url::{Url, form_urlencoded};

use crate::api::{Query, Refusal};
use crate::visit::Visit;
use crate::{Console, parameters};

/// The longest form, in bytes: a reason of 1,000 characters that are encoded, and some fields.
const BYTES_MAX: usize = 32 << 10;

/// A form that a page of this session has made.
pub(crate) struct SubmittedForm {
    pub(crate) visit: Visit,
    pub(crate) fields: Query,
}

impl FromRequest<Arc<Console>> for SubmittedForm {
    /// 403 where a page of this session has not made it, and 413 where it is too long.
    type Rejection = Refusal;

    async fn from_request(request: Request, console: &Arc<Console>) -> Result<Self, Refusal> {
        let (mut head, body) = request.into_parts();
        let visit = Visit::from_request_parts(&mut head, console).await?;
        let Ok(body) = Limited::new(body, BYTES_MAX).collect().await else {
            let detail = "The form is too long, or did not arrive. Nothing was done.";
            let status = StatusCode::PAYLOAD_TOO_LARGE;
            return Err(Refusal::new(status, "Not done", detail));
        };
        let fields = form_urlencoded::parse(&body.to_bytes())
            .into_owned()
            .collect();
        let csrf = parameters::value(&fields, "csrf");
        if !visit.session.is_own_form(csrf) || is_from_elsewhere(&head.headers) {
            let detail = "The form does not come from a page of this session. Nothing was done.";
            return Err(Refusal::new(StatusCode::FORBIDDEN, "Not done", detail));
        }
        Ok(Self { visit, fields })
    }
}

impl SubmittedForm {
    /// The value of a field; empty where it is not there.
    pub(crate) fn value(&self, name: &str) -> &str {
        parameters::value(&self.fields, name)
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
