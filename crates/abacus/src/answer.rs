//! What an answer of the collector means for a usage.

use std::time::{Duration, UNIX_EPOCH};

use sampler_domain::Timestamp;

use crate::error_name::ErrorName;

/// What the collector says of a usage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It has the usage, or had it before.
    Accepted,
    /// It takes none from anybody for so long.
    Wait {
        /// How long.
        after: Duration,
    },
    /// It could not take it, or gave no answer; the same usage may be taken later.
    TryAgain {
        /// Not before so long, if it said so.
        after: Option<Duration>,
        /// What happened.
        error: String,
    },
    /// It will not take this usage as it is. Somebody must do something about it; until then it
    /// is kept, and offered again.
    Refused {
        /// What it said.
        error: String,
    },
}

/// For how long everybody waits after a 429 that does not say.
const WAIT_DEFAULT: Duration = Duration::from_secs(5);

/// For how long anybody waits at the most, whatever the collector says: a slip in a header must
/// not stop billing for a day.
const WAIT_MAX: Duration = Duration::from_hours(1);

/// The rest of an answer that is not 202: a slip in the address of the collector, most likely.
const NOT_THE_COLLECTOR: &str = "COLLECTOR_URL seems to lead to something that is not Abacus's \
                                 collector (a login page or a catch-all route)";

/// What an answer consists of, as far as it decides.
#[derive(Clone, Copy, Debug, Default)]
pub struct Parts<'a> {
    /// Its status.
    pub status: u16,
    /// Its header `Retry-After`.
    pub retry_after: Option<&'a str>,
    /// The name of the error in its body, for the operator.
    pub name: Option<&'a ErrorName>,
}

/// The table: what a status means. `now` is for a `Retry-After` that is a date: the date of the
/// answer itself, where it has one.
///
/// Abacus accepts with 202 and with nothing else: whatever answers 200 or redirects is not its
/// collector, and a usage that it "took" would never be billed. Abacus never answers 409; gateways
/// may, for a usage that is there already. Whether there is such a one, `accept_conflict` says.
pub fn answer_of(parts: Parts<'_>, now: Timestamp, accept_conflict: bool) -> Answer {
    let Parts { status, name, .. } = parts;
    let after = parts.retry_after.and_then(|text| wait(text, now));
    match status {
        202 => Answer::Accepted,
        409 if accept_conflict => Answer::Accepted,
        409 => Answer::Refused {
            error: format!(
                "{}: Abacus itself never answers so; if a gateway answers repeats with it, set \
                 SAMPLER_ACCEPT_CONFLICT",
                describe(status, name)
            ),
        },
        429 => Answer::Wait {
            after: after.unwrap_or(WAIT_DEFAULT),
        },
        200..=399 => Answer::TryAgain {
            after,
            error: format!("Abacus answered {status}, not 202: {NOT_THE_COLLECTOR}"),
        },
        // 401 and 403 say something of us, not of the usage: it is as good as before.
        401 | 403 | 500..=599 => Answer::TryAgain {
            after,
            error: describe(status, name),
        },
        _ => Answer::Refused {
            error: describe(status, name),
        },
    }
}

fn describe(status: u16, name: Option<&ErrorName>) -> String {
    match name {
        Some(name) => format!("Abacus answered {status}: {name}"),
        None => format!("Abacus answered {status}"),
    }
}

/// Reads a `Date`; none where it is no moment that we count.
pub fn date(text: &str) -> Option<Timestamp> {
    let date = httpdate::parse_http_date(text.trim()).ok()?;
    let since_epoch = date.duration_since(UNIX_EPOCH).ok()?;
    Timestamp::new(i64::try_from(since_epoch.as_millis()).ok()?).ok()
}

/// Reads a `Retry-After`: seconds, or a date (RFC 9110, section 10.2.3).
pub fn wait(retry_after: &str, now: Timestamp) -> Option<Duration> {
    let text = retry_after.trim();
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        // More digits than fit are a long time too.
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
        let parts = Parts {
            status,
            retry_after,
            name: name.as_ref(),
        };
        answer_of(parts, NOW, false)
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
            200..=399 | 401 | 403 | 500..=599 => "try again",
            _ => "refused",
        };
        for status in 200..600 {
            let answer = answer(status, None, "");
            assert_eq!(kind(&answer), expected(status), "{status}");
        }
    }

    /// A catch-all route or a login page "billed" everything.
    #[test]
    fn what_is_neither_202_nor_an_error_says_what_is_wrong_with_the_address() {
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

    #[test]
    fn a_409_is_accepted_only_where_a_setting_says_so() {
        let Answer::Refused { error } = answer(409, None, "there already") else {
            panic!("refused");
        };
        assert!(error.contains("SAMPLER_ACCEPT_CONFLICT"), "{error}");
        let conflict = Parts {
            status: 409,
            ..Parts::default()
        };
        assert_eq!(answer_of(conflict, NOW, true), Answer::Accepted);
        let elsewhere = Parts {
            status: 200,
            ..Parts::default()
        };
        assert_eq!(kind(&answer_of(elsewhere, NOW, true)), "try again");
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
            wait("Tue, 10 Mar 2026 12:00:30 GMT", NOW),
            Some(seconds(30))
        );
        assert_eq!(wait("Tue, 10 Mar 2026 11:00:00 GMT", NOW), Some(seconds(0)));
        assert_eq!(wait(" 7 ", NOW), Some(seconds(7)));
        assert_eq!(wait("0", NOW), Some(seconds(0)));
        assert_eq!(wait("99999999999999999999999", NOW), Some(WAIT_MAX));
        for nonsense in ["", "soon", "-1", "1.5"] {
            assert_eq!(wait(nonsense, NOW), None, "{nonsense:?}");
        }
    }

    #[test]
    fn a_date_is_a_moment_or_none() {
        assert_eq!(date("Tue, 10 Mar 2026 12:00:00 GMT"), Some(NOW));
        for nonsense in ["", "yesterday", "Tue, 10 Mar 1926 12:00:00 GMT"] {
            assert_eq!(date(nonsense), None, "{nonsense:?}");
        }
    }

    #[test]
    fn a_wait_always_has_a_length() {
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
