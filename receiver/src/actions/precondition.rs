//! `If-Match`: an action changes only the state that the operator has seen.

use axum::http::HeaderMap;
use axum::http::header::{HeaderValue, IF_MATCH};
use sampler_service::problem::Problem;

use crate::problems;

/// The entity tags that a request names in `If-Match` (RFC 9110, section 13.1.1).
pub(crate) struct IfMatch(Vec<String>);

impl IfMatch {
    /// # Errors
    /// 428 where the header is missing.
    pub(crate) fn of(headers: &HeaderMap) -> Result<Self, Problem> {
        let values = headers.get_all(IF_MATCH).iter();
        let tags: Vec<String> = values
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(','))
            .map(|tag| tag.trim().to_owned())
            .filter(|tag| !tag.is_empty())
            .collect();
        if tags.is_empty() {
            let detail = "The request needs If-Match with the ETag of what it is about, as it was \
                          read last. Nothing was done.";
            return Err(Problem::new(&problems::PRECONDITION_REQUIRED, detail));
        }
        Ok(Self(tags))
    }

    /// Compares with the tag of what is there now. A weak tag counts as the strong one: a proxy that
    /// compresses an answer weakens its tag.
    ///
    /// # Errors
    /// 412 where it has changed.
    pub(crate) fn require(&self, now: &HeaderValue) -> Result<(), Problem> {
        let strong = |tag: &String| tag.strip_prefix("W/").unwrap_or(tag) == now;
        if self.0.iter().any(|tag| tag == "*" || strong(tag)) {
            return Ok(());
        }
        Err(stale())
    }
}

/// The subject of an action has changed since it was read.
pub(crate) fn stale() -> Problem {
    let detail = "It has changed since it was read. Nothing was done. Read it again, and send the \
                  request again if it still is right.";
    Problem::new(&problems::PRECONDITION_FAILED, detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(values: &[&str]) -> Result<IfMatch, Problem> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(IF_MATCH, value.parse().unwrap());
        }
        IfMatch::of(&headers)
    }

    #[test]
    fn a_tag_must_be_the_one_that_is_there() {
        let now = HeaderValue::from_static("\"a\"");
        for good in [
            &["\"a\""][..],
            &["*"],
            &["\"b\" , \"a\""],
            &["\"b\"", "\"a\""],
            &["W/\"a\""],
            &["\"b\", W/\"a\""],
        ] {
            assert!(of(good).unwrap().require(&now).is_ok(), "{good:?}");
        }
        for stale in [&["\"b\""][..], &["a"], &["W/\"b\""], &["\"A\""]] {
            let problem = of(stale).unwrap().require(&now).unwrap_err();
            assert_eq!(problem.status(), 412, "{stale:?}");
        }
        for none in [&[][..], &[""], &[" , "]] {
            assert_eq!(of(none).err().unwrap().status(), 428, "{none:?}");
        }
    }
}
