//! How long the ledger keeps entries.

use std::time::Duration;

use sampler_domain::Granularity;

use crate::value::{Value, duration};

const HOUR: Duration = Duration::from_hours(1);
const DAY: Duration = Duration::from_hours(24);

/// The longest time that an entry is kept, in days.
const DAYS_MAX: u32 = 3_660;

/// How long an entry is kept whose target is sampled by the minute, the hour, the day or the month.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LedgerRetention {
    pub minute: Duration,
    pub hour: Duration,
    pub day: Duration,
    pub month: Duration,
}

/// The same as the table's.
const DEFAULT: LedgerRetention = LedgerRetention {
    minute: Duration::from_hours(24 * 32),
    hour: Duration::from_hours(24 * 93),
    day: Duration::from_hours(24 * 400),
    month: Duration::from_hours(24 * 800),
};

impl Value for LedgerRetention {
    const EXPECTED: &'static str = "granularities (minute, hour, day, month), each once with a duration from 1h \
         to 3660d, as in minute=32d,hour=93d";

    fn parse(text: &str) -> Result<Self, String> {
        let mut retention = DEFAULT;
        let mut given = Vec::new();
        for part in text.split(',') {
            let (granularity, kept) = pair(part).ok_or(Self::EXPECTED)?;
            if given.contains(&granularity) {
                return Err(Self::EXPECTED.to_owned());
            }
            given.push(granularity);
            *retention.place(granularity) = kept;
        }
        Ok(retention)
    }
}

impl LedgerRetention {
    /// How long the entry of a usage is kept whose target is sampled so.
    pub fn of(mut self, granularity: Granularity) -> Duration {
        *self.place(granularity)
    }

    fn place(&mut self, granularity: Granularity) -> &mut Duration {
        match granularity {
            Granularity::Minute => &mut self.minute,
            Granularity::Hour => &mut self.hour,
            Granularity::Day => &mut self.day,
            Granularity::Month => &mut self.month,
        }
    }
}

/// A granularity, and how long entries of its targets are kept.
fn pair(part: &str) -> Option<(Granularity, Duration)> {
    let (granularity, kept) = part.split_once('=')?;
    let kept = duration(kept.trim())?;
    let is_allowed = (HOUR..=DAYS_MAX * DAY).contains(&kept);
    is_allowed.then_some((granularity.trim().parse().ok()?, kept))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::LedgerSettings;

    #[test]
    fn the_default_of_the_table_is_that_of_what_is_left_out() {
        assert_eq!(LedgerSettings::default().retention, DEFAULT);
    }

    #[test]
    fn each_granularity_has_its_own() {
        let retention = LedgerRetention::parse("hour=30d, day = 1h").unwrap();
        let expected = LedgerRetention {
            hour: 30 * DAY,
            day: HOUR,
            ..DEFAULT
        };
        assert_eq!(retention, expected);
        assert_eq!(retention.of(Granularity::Hour), 30 * DAY);
        assert_eq!(retention.of(Granularity::Month), 800 * DAY);
    }

    #[test]
    fn what_is_not_meant_is_refused() {
        for text in [
            "30d",
            "hours=30d",
            "hour=",
            "hour=30d,",
            "hour=59m",
            "hour=3661d",
            "hour=1d,hour=2d",
            "hour=30d day=1d",
        ] {
            assert!(LedgerRetention::parse(text).is_err(), "{text}");
        }
    }
}
