//! The meaning of an upstream's answer to a post.

use std::time::{Duration, UNIX_EPOCH};

use sampler_domain::Timestamp;

use crate::error_name::ErrorName;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The upstream has the usage, perhaps from before.
    Accepted,
    /// It takes no usages for a while (429).
    Wait { after: Duration },
    /// It failed, or gave no answer. The same usage may be accepted later.
    TryAgain {
        /// The wait that the upstream asked for, if any.
        after: Option<Duration>,
        error: String,
    },
    /// The upstream does not take this usage as it is. An operator must act; until then the worker
    /// keeps the usage and posts it again.
    Refused {
        /// The status, and the name of the error.
        error: String,
    },
}

/// The load that an answer shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// The upstream can take it, whatever the answer says about the usage.
    Sustained,
    /// The upstream cannot take it: 429, 401, 403, 5xx, an unexpected 2xx or 3xx, a timeout or a lost
    /// connection.
    Overload,
}

impl Answer {
    /// The load that it shows. The upstream can refuse a usage without being overloaded.
    pub fn load(&self) -> Load {
        match self {
            Self::Accepted | Self::Refused { .. } => Load::Sustained,
            Self::Wait { .. } | Self::TryAgain { .. } => Load::Overload,
        }
    }
}

/// The wait after a 429 without `Retry-After`.
const WAIT_DEFAULT: Duration = Duration::from_secs(5);

/// The longest wait, whatever the upstream asks for: a wrong header must not stop billing for a day.
const WAIT_MAX: Duration = Duration::from_hours(1);

/// What the statuses of an upstream mean.
#[derive(Clone, Copy, Debug)]
pub struct Meanings {
    name: &'static str,
    /// The statuses that accept a usage.
    accepted: &'static [u16],
    /// The same, in words.
    expected: &'static str,
    /// A page for people accepts nothing, whatever its status is.
    refuses_pages: bool,
    /// The end of the message about another 2xx or 3xx: its address is probably wrong.
    elsewhere: &'static str,
}

/// Abacus accepts a usage with 202 only. A server that answers 200 or redirects is not its collector, and
/// the usage would never be billed.
pub const ABACUS: Meanings = Meanings {
    name: "Abacus",
    accepted: &[202],
    expected: "202",
    refuses_pages: false,
    elsewhere: "COLLECTOR_URL seems to lead to something that is not Abacus's collector (a login page or a \
                catch-all route)",
};

/// A receiver of CloudEvents accepts with these. 207 is for several events, some of which were refused.
pub const CLOUD_EVENTS: Meanings = Meanings {
    name: "the upstream",
    accepted: &[200, 201, 202, 204],
    expected: "200, 201, 202 or 204 without a page",
    refuses_pages: true,
    elsewhere: "SAMPLER_UPSTREAM_URL seems to lead to something that takes no CloudEvents (a login page or \
                a catch-all route)",
};

/// The parts of an answer that decide.
#[derive(Clone, Copy, Debug, Default)]
pub struct AnswerParts<'a> {
    pub status: u16,
    pub retry_after: Option<&'a str>,
    /// The name of the error in its body, for the operator.
    pub name: Option<&'a ErrorName>,
    /// Its body is a page for people.
    pub is_page: bool,
}

/// The meaning of a status. `now` is needed for a `Retry-After` that is a date; it is the date of
/// the answer, if it has one. A 409 may say that the usage is there, or that it conflicts with another
/// one: it accepts nothing.
pub fn interpret(meanings: &Meanings, parts: AnswerParts<'_>, now: Timestamp) -> Answer {
    let AnswerParts {
        status,
        name,
        is_page,
        ..
    } = parts;
    let after = parts
        .retry_after
        .and_then(|text| parse_retry_after(text, now));
    match status {
        _ if meanings.accepted.contains(&status) && !(is_page && meanings.refuses_pages) => {
            Answer::Accepted
        }
        207 => Answer::Refused {
            error: meanings.describe(status, name),
        },
        429 => Answer::Wait {
            after: after.unwrap_or(WAIT_DEFAULT),
        },
        200..=399 => Answer::TryAgain {
            after,
            error: format!(
                "{} answered {status}, not {}: {}",
                meanings.name, meanings.expected, meanings.elsewhere
            ),
        },
        // 401 and 403 are about our token, not about the usage.
        401 | 403 | 500..=599 => Answer::TryAgain {
            after,
            error: meanings.describe(status, name),
        },
        _ => Answer::Refused {
            error: meanings.describe(status, name),
        },
    }
}

impl Meanings {
    pub(crate) fn describe(&self, status: u16, name: Option<&ErrorName>) -> String {
        match name {
            Some(name) => format!("{} answered {status}: {name}", self.name),
            None => format!("{} answered {status}", self.name),
        }
    }
}

/// Parses a `Date`; `None` if it is invalid or out of range.
pub fn parse_date(text: &str) -> Option<Timestamp> {
    let date = httpdate::parse_http_date(text.trim()).ok()?;
    let since_epoch = date.duration_since(UNIX_EPOCH).ok()?;
    Timestamp::new(i64::try_from(since_epoch.as_millis()).ok()?).ok()
}

/// Whether an answer is a page for people, such as a login page.
pub(crate) fn is_page(media_type: Option<&str>, body: &[u8]) -> bool {
    let head = String::from_utf8_lossy(&body[..body.len().min(64)]).to_ascii_lowercase();
    let text = head.trim_start_matches('\u{feff}').trim_start();
    media_type.is_some_and(|of_body| of_body.to_ascii_lowercase().contains("html"))
        || text.starts_with("<!doctype")
        || text.starts_with("<html")
}

/// Parses a `Retry-After`: seconds, or a date (RFC 9110, section 10.2.3).
pub fn parse_retry_after(retry_after: &str, now: Timestamp) -> Option<Duration> {
    let text = retry_after.trim();
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        // A number that does not fit is a long time, too.
        let seconds = text.parse().unwrap_or(u64::MAX);
        return Some(Duration::from_secs(seconds).min(WAIT_MAX));
    }
    let date = httpdate::parse_http_date(text).ok()?;
    let now = UNIX_EPOCH + Duration::from_millis(now.as_millis().unsigned_abs());
    Some(date.duration_since(now).unwrap_or_default().min(WAIT_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::clamped(1_773_144_000_000); // Tue, 10 Mar 2026 12:00:00 GMT

    fn answer(status: u16, retry_after: Option<&str>, body: &str) -> Answer {
        let name = ErrorName::of_body(body.as_bytes());
        let parts = AnswerParts {
            status,
            retry_after,
            name: name.as_ref(),
            is_page: false,
        };
        interpret(&ABACUS, parts, NOW)
    }

    fn kind(answer: &Answer) -> &'static str {
        match answer {
            Answer::Accepted => "accepted",
            Answer::Wait { .. } => "wait",
            Answer::TryAgain { .. } => "try again",
            Answer::Refused { .. } => "refused",
        }
    }

    #[test]
    fn every_status_has_a_meaning() {
        let expected = |status: u16| match status {
            202 => "accepted",
            429 => "wait",
            207 => "refused",
            200..=399 | 401 | 403 | 500..=599 => "try again",
            _ => "refused",
        };
        for status in 200..600 {
            let answer = answer(status, None, "");
            assert_eq!(kind(&answer), expected(status), "{status}");
        }
    }

    /// A catch-all route or a login page must not count as accepting.
    #[test]
    fn an_unexpected_2xx_or_3xx_points_to_the_address() {
        for status in [200, 201, 204, 301, 302, 304, 307] {
            let Answer::TryAgain { error, .. } = answer(status, None, "<html>Log in</html>") else {
                panic!("{status}");
            };
            let begin = format!("Abacus answered {status}, not 202: COLLECTOR_URL seems to lead");
            assert!(error.starts_with(&begin), "{error}");
            assert!(
                !error.contains('\n') && !error.contains("<html>"),
                "{error}"
            );
        }
    }

    /// An upstream that allows one event an hour answers 409 to a correction; nothing was counted then.
    #[test]
    fn no_409_and_no_207_accepts_a_usage() {
        for meanings in [&ABACUS, &CLOUD_EVENTS] {
            for status in [207, 409] {
                let parts = AnswerParts {
                    status,
                    ..AnswerParts::default()
                };
                let answer = interpret(meanings, parts, NOW);
                assert_eq!(kind(&answer), "refused", "{status} of {}", meanings.name);
            }
        }
    }

    /// Fault 9 of the original: 451 was logged once, and the interval counted as done.
    #[test]
    fn fault_9_451_is_refused_and_kept() {
        let error = "Abacus answered 451: licence".to_owned();
        let body = r#" {"name":"licence"}"#;
        assert_eq!(answer(451, None, body), Answer::Refused { error });
    }

    /// Fault 16 of the original: a `Retry-After` that is a date was read as 0.
    #[test]
    fn fault_16_retry_after_may_be_a_date() {
        let seconds = Duration::from_secs;
        assert_eq!(
            parse_retry_after("Tue, 10 Mar 2026 12:00:30 GMT", NOW),
            Some(seconds(30))
        );
        assert_eq!(
            parse_retry_after("Tue, 10 Mar 2026 11:00:00 GMT", NOW),
            Some(seconds(0))
        );
        assert_eq!(parse_retry_after(" 7 ", NOW), Some(seconds(7)));
        assert_eq!(parse_retry_after("0", NOW), Some(seconds(0)));
        assert_eq!(
            parse_retry_after("99999999999999999999999", NOW),
            Some(WAIT_MAX)
        );
        for nonsense in ["", "soon", "-1", "1.5"] {
            assert_eq!(parse_retry_after(nonsense, NOW), None, "{nonsense:?}");
        }
    }

    #[test]
    fn invalid_dates_are_ignored() {
        assert_eq!(parse_date("Tue, 10 Mar 2026 12:00:00 GMT"), Some(NOW));
        for nonsense in ["", "yesterday", "Tue, 10 Mar 1926 12:00:00 GMT"] {
            assert_eq!(parse_date(nonsense), None, "{nonsense:?}");
        }
    }

    #[test]
    fn pages_are_told_from_other_bodies() {
        for (media_type, body) in [
            (Some("text/html; charset=utf-8"), ""),
            (Some("application/xhtml+xml"), "x"),
            (None, "\n <!DOCTYPE html><html>"),
            (Some("text/plain"), "<HTML>"),
        ] {
            assert!(is_page(media_type, body.as_bytes()), "{body}");
        }
        for (media_type, body) in [
            (Some("application/json"), "{}"),
            (None, ""),
            (Some("text/plain"), "ok"),
        ] {
            assert!(!is_page(media_type, body.as_bytes()), "{body}");
        }
    }

    #[test]
    fn a_429_without_retry_after_has_a_default_wait() {
        assert_eq!(
            answer(429, None, ""),
            Answer::Wait {
                after: WAIT_DEFAULT
            }
        );
        let after = Duration::from_secs(9);
        assert_eq!(answer(429, Some("9"), ""), Answer::Wait { after });
        let error = "Abacus answered 503".to_owned();
        let again = Answer::TryAgain {
            after: Some(after),
            error,
        };
        assert_eq!(answer(503, Some("9"), ""), again);
    }
}
