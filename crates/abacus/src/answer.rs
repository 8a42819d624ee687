//! What an answer of the collector means for a usage.

use std::time::{Duration, UNIX_EPOCH};

use sampler_domain::Timestamp;

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

/// The table: what a status means. `now` is for a `Retry-After` that is a date; `body` is what the
/// answer held, shortened, for the operator.
///
/// 409 is an answer for a usage that is there already; Abacus itself never gives it, but what may
/// stand in front of it does.
pub fn answer_of(status: u16, retry_after: Option<&str>, body: &str, now: Timestamp) -> Answer {
    let after = retry_after.and_then(|text| wait(text, now));
    match status {
        200..=299 | 409 => Answer::Accepted,
        429 => Answer::Wait {
            after: after.unwrap_or(WAIT_DEFAULT),
        },
        // 401 and 403 say something of us, not of the usage: it is as good as before.
        401 | 403 | 500..=599 => Answer::TryAgain {
            after,
            error: describe(status, body),
        },
        _ => Answer::Refused {
            error: describe(status, body),
        },
    }
}

fn describe(status: u16, body: &str) -> String {
    let body = body.trim();
    if body.is_empty() {
        format!("Abacus answered {status}")
    } else {
        format!("Abacus answered {status}: {body}")
    }
}

/// How far `sent_at`, our time when a request was sent, lies beyond any moment at which the answer
/// can have been dated so (`Date` counts whole seconds), in ms; 0 where it does not.
pub fn clock_ahead(sent_at: Timestamp, date: &str) -> Option<i64> {
    let date = httpdate::parse_http_date(date.trim()).ok()?;
    let since_epoch = date.duration_since(UNIX_EPOCH).ok()?;
    let latest = i64::try_from(since_epoch.as_millis())
        .ok()?
        .saturating_add(1_000);
    Some((sent_at.as_millis() - latest).max(0))
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

    fn kind(status: u16) -> &'static str {
        match answer_of(status, None, "", NOW) {
            Answer::Accepted => "accepted",
            Answer::Wait { .. } => "wait",
            Answer::TryAgain { .. } => "try again",
            Answer::Refused { .. } => "refused",
        }
    }

    #[test]
    fn every_status_has_a_meaning() {
        for (status, meaning) in [
            (200, "accepted"),
            (201, "accepted"),
            (202, "accepted"),
            (204, "accepted"),
            (301, "refused"),
            (304, "refused"),
            (400, "refused"),
            (401, "try again"),
            (403, "try again"),
            (404, "refused"),
            (409, "accepted"),
            (413, "refused"),
            (422, "refused"),
            (429, "wait"),
            (451, "refused"),
            (500, "try again"),
            (502, "try again"),
            (503, "try again"),
            (504, "try again"),
        ] {
            assert_eq!(kind(status), meaning, "{status}");
        }
    }

    /// Fault 9 of the original: 451 was logged once, and the interval counted as done.
    #[test]
    fn fault_9_451_is_refused_and_kept() {
        let error = "Abacus answered 451: licence".to_owned();
        assert_eq!(
            answer_of(451, None, " licence\n", NOW),
            Answer::Refused { error }
        );
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
    fn a_clock_is_ahead_only_beyond_doubt() {
        let ahead = |date: &str| clock_ahead(NOW, date);
        assert_eq!(ahead("Tue, 10 Mar 2026 11:59:00 GMT"), Some(59_000));
        assert_eq!(ahead("Tue, 10 Mar 2026 11:59:59 GMT"), Some(0));
        assert_eq!(ahead("Tue, 10 Mar 2026 12:30:00 GMT"), Some(0));
        assert_eq!(ahead("yesterday"), None);
    }

    #[test]
    fn a_wait_always_has_a_length() {
        assert_eq!(
            answer_of(429, None, "", NOW),
            Answer::Wait {
                after: WAIT_DEFAULT
            }
        );
        let after = Duration::from_secs(9);
        assert_eq!(answer_of(429, Some("9"), "", NOW), Answer::Wait { after });
        let error = "Abacus answered 503".to_owned();
        let again = Answer::TryAgain {
            after: Some(after),
            error,
        };
        assert_eq!(answer_of(503, Some("9"), "", NOW), again);
    }
}
