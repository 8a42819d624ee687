//! A request for a page: who asks, and for what.

use std::sync::Arc;

use axum::extract::{FromRequest, FromRequestParts, Path, Request};
use http::header::HOST;
use http::request::Parts;
use http::{HeaderMap, StatusCode};
use http_body_util::{BodyExt, Limited};
use sampler_api::{List, Problem};
use sampler_domain::Timestamp;
use sampler_service::oauth::discovery::is_private;
use sampler_service::security::Grant;
use serde::de::DeserializeOwned;
use url::Url;

use crate::api::Refusal;
use crate::query::Query;
use crate::session::Session;
use crate::{Console, PATH};

/// Items that are read at a time, where more than a page of them is needed.
const ITEMS_AT_A_TIME: &str = "1000";

/// The longest form, in bytes: a reason of 1,000 characters that are encoded, and some fields.
const FORM_MAX: usize = 32 << 10;

pub(crate) struct Visit {
    pub(crate) console: Arc<Console>,
    /// None on a page that anybody may see.
    pub(crate) session: Option<Session>,
    pub(crate) path: String,
    /// The reference from the page to [`PATH`].
    pub(crate) root: String,
    /// The id in the path; empty where there is none.
    pub(crate) id: String,
    pub(crate) query: Query,
}

/// A form that a page of this session has made.
pub(crate) struct Form {
    pub(crate) visit: Visit,
    pub(crate) fields: Query,
}

/// What is around the items of a list.
#[derive(Default)]
pub(crate) struct Around {
    pub(crate) next: Option<String>,
    /// What is wrong with the query, which is shown beside the search.
    pub(crate) problem: Option<Problem>,
}

impl Around {
    pub(crate) fn status(&self) -> StatusCode {
        match self.problem {
            Some(_) => StatusCode::BAD_REQUEST,
            None => StatusCode::OK,
        }
    }
}

/// A page of a list, without items where nothing was asked for or the query is wrong.
pub(crate) type Listed<T> = (Option<Vec<T>>, Around);

impl Visit {
    /// A visit of a page at this path.
    pub(crate) fn new(console: &Arc<Console>, session: Option<Session>, path: &str) -> Self {
        Self {
            console: Arc::clone(console),
            session,
            path: path.to_owned(),
            root: relative(path, PATH),
            id: String::new(),
            query: Query::default(),
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.console.parts.clock.now()
    }

    pub(crate) fn grant(&self) -> Option<Grant> {
        self.session.as_ref().and_then(Session::grant)
    }

    pub(crate) fn is_admin(&self) -> bool {
        let grant = self.grant();
        grant.is_some_and(|grant| grant.require_admin().is_ok())
    }

    /// A page of a list.
    pub(crate) async fn list<T: DeserializeOwned>(
        &self,
        path: &str,
        query: &Query,
    ) -> Result<Listed<T>, Refusal> {
        let mut around = Around::default();
        match self.get::<List<T>>(path, query).await {
            Ok(answer) => {
                let next = |cursor: String| self.query.with("cursor", &cursor).at("");
                around.next = answer.cursor.map(next);
                Ok((Some(answer.body.items), around))
            }
            Err(refusal) if refusal.status == StatusCode::BAD_REQUEST => {
                around.problem = Some(self.query.in_words(*refusal.problem));
                Ok((None, around))
            }
            Err(refusal) => Err(refusal),
        }
    }

    /// The items of a list, and whether there are more than so many thousands.
    pub(crate) async fn all<T: DeserializeOwned>(
        &self,
        path: &str,
        query: &Query,
        thousands: usize,
    ) -> Result<(Vec<T>, bool), Refusal> {
        let mut query = query.with("limit", ITEMS_AT_A_TIME).with("cursor", "");
        let mut items = Vec::new();
        for _ in 0..thousands {
            let page = self.get::<List<T>>(path, &query).await?;
            items.extend(page.body.items);
            let Some(cursor) = page.cursor else {
                return Ok((items, false));
            };
            query = query.with("cursor", &cursor);
        }
        Ok((items, true))
    }
}

impl FromRequestParts<Arc<Console>> for Visit {
    /// There is no page at an address that is not UTF-8.
    type Rejection = Refusal;

    async fn from_request_parts(head: &mut Parts, console: &Arc<Console>) -> Result<Self, Refusal> {
        let id = Option::<Path<String>>::from_request_parts(head, console).await;
        let id = id.map_err(|_| Refusal::no_page())?;
        let session = head.extensions.get::<Session>().cloned();
        Ok(Self {
            id: id.map(|Path(id)| id).unwrap_or_default(),
            query: Query::parse(head.uri.query().unwrap_or_default()),
            ..Self::new(console, session, head.uri.path())
        })
    }
}

impl FromRequest<Arc<Console>> for Form {
    /// 403 where a page of this session has not made it, and 413 where it is too long.
    type Rejection = Refusal;

    async fn from_request(request: Request, console: &Arc<Console>) -> Result<Self, Refusal> {
        let (mut head, body) = request.into_parts();
        let visit = Visit::from_request_parts(&mut head, console).await?;
        let Ok(body) = Limited::new(body, FORM_MAX).collect().await else {
            let detail = "The form is too long, or did not arrive. Nothing was done.";
            let status = StatusCode::PAYLOAD_TOO_LARGE;
            return Err(Refusal::new(status, "Not done", detail));
        };
        let fields = Query::parse(body.to_bytes());
        let session = visit.session.as_ref();
        let is_own = session.is_some_and(|session| session.has_made(fields.get("csrf")));
        if !is_own || is_from_elsewhere(&head.headers) {
            let detail = "The form does not come from a page of this session. Nothing was done.";
            return Err(Refusal::new(StatusCode::FORBIDDEN, "Not done", detail));
        }
        Ok(Self { visit, fields })
    }
}

/// Whether the browser says that a page of another origin has sent the form. Old browsers say nothing.
fn is_from_elsewhere(headers: &HeaderMap) -> bool {
    let site = headers.get("sec-fetch-site");
    site.is_some_and(|site| site != "same-origin" && site != "none")
}

/// The reference from the page at one path to another path, the same below any prefix.
pub(crate) fn relative(from: &str, to: &str) -> String {
    let depth = from.matches('/').count().saturating_sub(1);
    format!("{}{}", "../".repeat(depth), to.trim_start_matches('/'))
}

/// The address of this program, as the browser has it, without a slash at its end.
///
/// It is https, unless it is a plain connection to a loopback: elsewhere a session must not be sent
/// without TLS, so that a router in front is taken to have ended TLS.
pub(crate) fn own_address(headers: &HeaderMap) -> Option<String> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let host = text(HOST.as_str())?;
    // A host with a path, or a name and a password, is not a host.
    let is_host = !host.contains(['/', '?', '#', '@', '\\']);
    let mut address = Url::parse(&format!("http://{host}/"))
        .ok()
        .filter(|_| is_host)?;
    let is_forwarded_tls =
        text("x-forwarded-proto").is_some_and(|it| it.eq_ignore_ascii_case("https"));
    if is_forwarded_tls || !is_private(&address) {
        address = Url::parse(&format!("https://{host}/")).ok()?;
    }
    let origin = address.as_str().trim_end_matches('/');
    Some(format!("{origin}{}", prefix(text("x-forwarded-prefix"))))
}

/// Whether the cookies of a request are sent over TLS alone.
pub(crate) fn is_secure(headers: &HeaderMap) -> bool {
    own_address(headers).is_none_or(|address| address.starts_with("https:"))
}

/// The prefix that a router in front has taken away; empty where there is none.
fn prefix(given: Option<&str>) -> &str {
    let prefix = given.unwrap_or_default().trim_end_matches('/');
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~".contains(&byte);
    let is_path = prefix.starts_with('/') && !prefix.contains("//") && prefix.bytes().all(is_plain);
    if is_path { prefix } else { "" }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let pairs = pairs.iter().map(|(name, value)| {
            let name = http::HeaderName::from_static(name);
            (name, HeaderValue::from_str(value).unwrap())
        });
        pairs.collect()
    }

    #[test]
    fn the_own_address_is_plain_on_a_loopback_alone_and_has_the_prefix() {
        for (host, proto, prefix, expected) in [
            ("127.0.0.1:7070", "", "", "http://127.0.0.1:7070"),
            ("localhost:7070", "http", "", "http://localhost:7070"),
            ("[::1]:7070", "", "", "http://[::1]:7070"),
            ("localhost", "https", "", "https://localhost"),
            ("sampler.example", "", "", "https://sampler.example"),
            (
                "sampler.example",
                "http",
                "/metering/",
                "https://sampler.example/metering",
            ),
            ("sampler.example", "", "/a/b", "https://sampler.example/a/b"),
            ("sampler.example", "", "/", "https://sampler.example"),
            ("sampler.example", "", "metering", "https://sampler.example"),
            (
                "sampler.example",
                "",
                "//evil.example",
                "https://sampler.example",
            ),
            ("sampler.example", "", "/a?b", "https://sampler.example"),
        ] {
            let pairs = [
                ("host", host),
                ("x-forwarded-proto", proto),
                ("x-forwarded-prefix", prefix),
            ];
            assert_eq!(own_address(&headers(&pairs)).as_deref(), Some(expected));
        }
        for host in ["a/b", "a@b", "user:word@b", "a?b", "a#b", "a\\b", ""] {
            assert_eq!(own_address(&headers(&[("host", host)])), None, "{host}");
        }
    }

    #[test]
    fn a_reference_leads_from_a_page_to_another_below_any_prefix() {
        for (from, to, expected) in [
            ("/console", "/console", "console"),
            ("/console/", "/console", "../console"),
            ("/console/spans/a", "/console/spans", "../../console/spans"),
            ("/", "/console", "console"),
        ] {
            assert_eq!(relative(from, to), expected);
            let page = Url::parse(&format!("https://a.example/p{from}")).unwrap();
            assert_eq!(page.join(expected).unwrap().path(), format!("/p{to}"));
        }
    }
}
