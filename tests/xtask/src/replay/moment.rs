//! Moments and lengths of time as people write them.

use anyhow::{Context, Result, bail};
use chrono::{NaiveTime, Timelike};
use serde_json::{Map, Value};

/// A day in ms.
const DAY: i64 = 86_400_000;

/// Takes the moment out of an event: what is left are the fields that the receiver takes.
pub(super) fn take_moment(fields: &mut Map<String, Value>, now: i64) -> Result<i64> {
    let timestamp = fields.shift_remove("timestamp");
    let at = fields.shift_remove("at");
    let (day, time) = (fields.shift_remove("day"), fields.shift_remove("time"));
    match (timestamp, at, day, time) {
        (Some(timestamp), None, None, None) => timestamp
            .as_i64()
            .context("\"timestamp\" is not a whole number"),
        (None, Some(at), None, None) => {
            let at = at.as_str().context("\"at\" is not a text")?;
            Ok(now + parse_offset(at)?)
        }
        (None, None, Some(day), Some(time)) => {
            let day = day.as_i64().context("\"day\" is not a whole number")?;
            let time = time.as_str().context("\"time\" is not a text")?;
            Ok((now.div_euclid(DAY) + day) * DAY + parse_time(time)?)
        }
        _ => bail!("an event has either \"timestamp\", or \"at\", or \"day\" and \"time\""),
    }
}

/// A time of the day, like `10:30:00.000`, in ms.
fn parse_time(text: &str) -> Result<i64> {
    let time: NaiveTime = text
        .parse()
        .with_context(|| format!("not a time of the day: {text}"))?;
    let seconds = i64::from(time.num_seconds_from_midnight());
    Ok(seconds * 1000 + i64::from(time.nanosecond() / 1_000_000))
}

/// An offset like `-2d3h`, in ms; `+` or no sign lead into the future.
fn parse_offset(text: &str) -> Result<i64> {
    match text.strip_prefix('-') {
        Some(rest) => Ok(-parse_duration(rest)?),
        None => parse_duration(text.strip_prefix('+').unwrap_or(text)),
    }
}

/// A length of time like `90m` or `1d12h30m`, in ms.
pub(crate) fn parse_duration(text: &str) -> Result<i64> {
    let length = humantime::parse_duration(text);
    let length = length.with_context(|| format!("not a length of time like 1d12h: {text:?}"))?;
    i64::try_from(length.as_millis()).with_context(|| format!("too long: {text}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// 2023-11-14T22:13:20Z.
    const NOW: i64 = 1_700_000_000_000;

    fn moment(event: &Value) -> Result<i64> {
        take_moment(&mut event.as_object().unwrap().clone(), NOW)
    }

    #[test]
    fn reads_lengths() {
        for (text, millis) in [("90m", 5_400_000), ("1d1h1m1s1ms", 90_061_001), ("0s", 0)] {
            assert_eq!(parse_duration(text).unwrap(), millis, "{text}");
        }
        for text in ["", "5", "h", "1x", "-1h", "99999999999999d"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn reads_moments() {
        let midnight = 1_699_920_000_000;
        for (event, expected) in [
            (json!({ "timestamp": 5 }), 5),
            (json!({ "at": "-1h30m" }), NOW - 5_400_000),
            (json!({ "at": "+1s" }), NOW + 1000),
            (json!({ "day": 0, "time": "00:00:00" }), midnight),
            (
                json!({ "day": -2, "time": "10:30:01.250" }),
                midnight - 2 * DAY + 37_801_250,
            ),
        ] {
            assert_eq!(moment(&event).unwrap(), expected, "{event}");
        }
    }

    #[test]
    fn a_moment_is_said_in_one_way() {
        for event in [
            json!({}),
            json!({ "day": -1 }),
            json!({ "time": "10:00:00" }),
            json!({ "timestamp": 1, "at": "-1h" }),
            json!({ "timestamp": 1.5 }),
            json!({ "day": -1, "time": "25:00:00" }),
        ] {
            assert!(moment(&event).is_err(), "{event}");
        }
    }

    #[test]
    fn the_moment_is_taken_out() {
        let mut fields = json!({ "day": 0, "time": "10:00:00", "id": "x" });
        let fields = fields.as_object_mut().unwrap();
        take_moment(fields, NOW).unwrap();
        assert_eq!(Value::Object(fields.clone()), json!({ "id": "x" }));
    }
}
