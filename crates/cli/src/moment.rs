//! Times as people write them on a command line, and the present time.

use std::time::{SystemTime, UNIX_EPOCH};

use sampler_verify::moment::{DAY, Millis, parse_length, parse_moment, parse_rfc3339};

/// The help of every option that takes a time.
pub(crate) const FORMS: &str = "\
TIME is 2026-11-20, 2026-11-20T15:10, yesterday, today, now, -2d, -1h30m, RFC 3339 with an offset
(2026-11-20T15:10:11+01:00), or milliseconds since 1970. Without an offset it is UTC, and a date means
00:00.";

/// The present time, in milliseconds since 1970: the one place that asks the system for it.
#[expect(
    clippy::disallowed_methods,
    reason = "this is the place that supplies the time"
)]
pub(crate) fn now() -> Millis {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
    let since_epoch = since_epoch.unwrap_or_default();
    Millis::try_from(since_epoch.as_millis()).unwrap_or(Millis::MAX)
}

/// Reads a time: a value parser of the command line.
pub(crate) fn time(text: &str) -> Result<Millis, String> {
    time_at(text, now()).ok_or_else(|| {
        format!(
            "{text:?} is not a valid time: write 2026-11-20, 2026-11-20T15:10:00Z, yesterday, -2d, or \
             milliseconds since 1970"
        )
    })
}

fn time_at(text: &str, now: Millis) -> Option<Millis> {
    match text {
        "now" => Some(now),
        "today" => Some(now.div_euclid(DAY) * DAY),
        "yesterday" => Some(now.div_euclid(DAY) * DAY - DAY),
        // It could be a date.
        _ if text.len() == 8 && text.starts_with("20") => None,
        _ if text.starts_with(['-', '+']) => now.checked_add(parse_length(text).ok()?),
        _ => parse_moment(text).ok().or_else(|| in_utc(text)),
    }
}

/// Reads a date, or a date and a time, without an offset.
fn in_utc(text: &str) -> Option<Millis> {
    let rest = match text.len() {
        10 => "T00:00:00Z",
        16 => ":00Z",
        _ => "Z",
    };
    parse_rfc3339(&(text.replace(' ', "T") + rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-22T13:00:00Z
    const NOW: Millis = 1_795_352_400_000;
    const HOUR: Millis = 3_600_000;

    #[test]
    fn times_are_read_as_people_write_them() {
        for (text, at) in [
            ("5", 5),
            ("1795352400000", NOW),
            ("2026-11-22T14:00:00+01:00", NOW),
            ("2026-11-22", NOW - 13 * HOUR),
            ("2026-11-22T13:00", NOW),
            ("2026-11-22 13:00", NOW),
            ("2026-11-22T13:00:00.250", NOW + 250),
            ("2026-11-22 13:00:01", NOW + 1_000),
            ("now", NOW),
            ("today", NOW - 13 * HOUR),
            ("yesterday", NOW - 37 * HOUR),
            ("-2d", NOW - 48 * HOUR),
            ("+1h30m", NOW + HOUR + HOUR / 2),
        ] {
            assert_eq!(time_at(text, NOW), Some(at), "{text}");
        }
    }

    /// What could mean two things, or nothing, is refused: it decides what is billed.
    #[test]
    fn what_is_not_clear_is_no_time() {
        for text in [
            "",
            "2d",
            "-",
            "--1h",
            "20261120",
            "20.11.2026",
            "11/20/2026",
            "2026-11-31",
            "2026-11",
            "tuesday",
            "2026-11-20T25:00",
            "-9999999999999d",
            "15:10",
        ] {
            assert!(time(text).is_err(), "{text}");
        }
    }
}
