//! Whether the collector has kept a usage that it has accepted: its `Location` gives the document,
//! with an `error` where Abacus has set the usage aside.

use reqwest::header::RETRY_AFTER;
use sampler_domain::Timestamp;
use sampler_service::oauth::TlsError;
use sampler_service::oauth::http::{describe, read_body};
use serde_json::Value;
use url::Url;

use crate::answer::{ABACUS, Answer, AnswerParts, interpret};
use crate::error_name::ErrorName;
use crate::http::{ClientOptions, UpstreamClient, header};
use crate::port::{LookupAnswer, LookupResult};

/// The largest document that is read, in bytes. A usage of ours has half a megabyte at the most.
const DOCUMENT_LEN_MAX: usize = 2 << 20;

/// The name of an error that has no name which can be shown.
const UNNAMED: &str = "unnamed error";

/// Asks the collector over HTTP.
#[derive(Clone, Debug)]
pub struct HttpConfirmer {
    client: UpstreamClient,
    base: Url,
}

impl HttpConfirmer {
    /// Prepares a client; connections are made when they are needed, and kept.
    pub fn new(options: &ClientOptions) -> Result<Self, TlsError> {
        Ok(Self {
            client: UpstreamClient::new(options)?,
            base: options.url.clone(),
        })
    }

    /// Asks for the document of a usage at its `Location`.
    pub async fn ask(&self, location: &str, usage_guid: &str, now: Timestamp) -> LookupResult {
        let Some(url) = at_collector(&self.base, location) else {
            return LookupResult {
                answer: mismatch("the Location is not a valid address"),
                status: None,
            };
        };
        let response = match self.client.send(self.client.get(url)).await {
            Ok(response) => response,
            Err(error) => return error.into_looked_up(),
        };
        let status = response.status().as_u16();
        let retry_after = header(&response, &RETRY_AFTER).map(str::to_owned);
        let answer = match status {
            200 => match read_body(response, DOCUMENT_LEN_MAX).await {
                Ok(Some(body)) => meaning(&body, usage_guid),
                Ok(None) => mismatch("the answer is too large for the document of a usage"),
                Err(error) => LookupAnswer::Failed {
                    after: None,
                    error: describe(error),
                },
            },
            404 | 410 => LookupAnswer::NotFound,
            _ => otherwise(status, retry_after.as_deref(), now),
        };
        LookupResult {
            answer,
            status: Some(status),
        }
    }
}

/// Any other status. 401, 403 and 5xx say nothing about the usage.
fn otherwise(status: u16, retry_after: Option<&str>, now: Timestamp) -> LookupAnswer {
    let parts = AnswerParts {
        status,
        retry_after,
        name: None,
        is_page: false,
    };
    match (status, interpret(&ABACUS, parts, now)) {
        (_, Answer::Wait { after }) => LookupAnswer::Wait { after },
        (401 | 403 | 500..=599, Answer::TryAgain { after, error }) => {
            LookupAnswer::Failed { after, error }
        }
        _ => mismatch(&format!("Abacus answered {status}")),
    }
}

/// The answer that a document gives. A document of another kind, such as a login page, gives none.
fn meaning(body: &[u8], usage_guid: &str) -> LookupAnswer {
    let document: Value = serde_json::from_slice(body).unwrap_or_default();
    let Some(dedup_id) = document.get("dedup_id") else {
        return mismatch("the answer is not the document of a usage");
    };
    if dedup_id.as_str() != Some(usage_guid) {
        return mismatch("the answer is the document of another usage");
    }
    match document.get("error") {
        None | Some(Value::Null | Value::Bool(false)) => LookupAnswer::Counts,
        Some(error) => LookupAnswer::SetAside {
            error: ErrorName::of_value(error)
                .map_or_else(|| UNNAMED.to_owned(), |it| it.to_string()),
        },
    }
}

fn mismatch(error: &str) -> LookupAnswer {
    LookupAnswer::Mismatch {
        error: error.to_owned(),
    }
}

/// Where the document is asked for: the path of the `Location` at the address of the collector. Our
/// token goes nowhere else, whatever an answer says; and a collector behind a router may know itself
/// by another scheme or name.
fn at_collector(collector: &Url, location: &str) -> Option<Url> {
    let location = collector.join(location).ok()?;
    let mut url = collector.clone();
    if location.cannot_be_a_base() {
        return None;
    }
    url.set_path(location.path());
    url.set_query(location.query());
    Some(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_says_what_became_of_the_usage() {
        let meaning = |text: &str| meaning(text.as_bytes(), "guid");
        let aside = |error: &str| LookupAnswer::SetAside {
            error: error.to_owned(),
        };
        assert_eq!(
            meaning(r#"{"dedup_id":"guid","x":1}"#),
            LookupAnswer::Counts
        );
        assert_eq!(
            meaning(r#"{"dedup_id":"guid","error":null}"#),
            LookupAnswer::Counts
        );
        for (error, name) in [
            (r#""the month is closed""#, "the month is closed"),
            (r#"{"name":"plan not found","x":1}"#, "plan not found"),
            (r#"{"error":"slack"}"#, "slack"),
            (r#"{"message":"eyJhbGciOiJSUzI1NiJ9"}"#, UNNAMED),
            (r#"{"isFutureUsageError":true}"#, "isFutureUsageError"),
            (
                r#"{"message":"no plan","isPlanBusinessError":true}"#,
                "isPlanBusinessError",
            ),
            (r#"{"message":"no plan","retry":false}"#, "no plan"),
            ("true", UNNAMED),
            ("[]", UNNAMED),
        ] {
            let document = format!(r#"{{"dedup_id":"guid","error":{error}}}"#);
            assert_eq!(meaning(&document), aside(name), "{error}");
        }
        for other in ["", "<html>", "[]", "{}", r#"{"dedup_id":"other"}"#, "null"] {
            assert!(
                matches!(meaning(other), LookupAnswer::Mismatch { .. }),
                "{other}"
            );
        }
    }

    #[test]
    fn what_says_nothing_about_the_usage_is_not_held_against_it() {
        let now = Timestamp::clamped(0);
        let kind = |status| match otherwise(status, Some("7"), now) {
            LookupAnswer::Wait { after } => ("wait", Some(after.as_secs())),
            LookupAnswer::Failed { after, .. } => ("failed", after.map(|after| after.as_secs())),
            LookupAnswer::Mismatch { .. } => ("mismatch", None),
            other => panic!("{other:?}"),
        };
        assert_eq!(kind(429), ("wait", Some(7)));
        for status in [401, 403, 500, 502, 503] {
            assert_eq!(kind(status), ("failed", Some(7)), "{status}");
        }
        for status in [201, 202, 204, 302, 400, 422] {
            assert_eq!(kind(status), ("mismatch", None), "{status}");
        }
    }

    #[test]
    fn nothing_but_the_collector_is_asked() {
        let collector = Url::parse("https://collector:1/x/v1/metering/collected/usage").unwrap();
        for (location, asked) in [
            (
                "https://collector:1/v1/usage/7?a=b",
                "https://collector:1/v1/usage/7?a=b",
            ),
            (
                "http://evil.example/v1/usage/7",
                "https://collector:1/v1/usage/7",
            ),
            ("//evil.example/7", "https://collector:1/7"),
            ("/v1/usage/7#x", "https://collector:1/v1/usage/7"),
            (
                "https://user:secret@evil.example:9/7",
                "https://collector:1/7",
            ),
        ] {
            let url = at_collector(&collector, location).map(String::from);
            assert_eq!(url.as_deref(), Some(asked), "{location}");
        }
        assert_eq!(at_collector(&collector, "data:text/plain,x"), None);
    }
}
