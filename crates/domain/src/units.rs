//! The units of measures: an amount is quantity × ms, and people are billed by the hour.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

const HOUR: f64 = 3_600_000.0;

/// Units that are billed in a larger unit: the unit, the larger one, and how many units make one of it.
const LARGER: [(&str, &str, u32); 5] = [
    ("B", "GB", 1_000_000_000),
    ("kB", "GB", 1_000_000),
    ("MB", "GB", 1_000),
    ("KiB", "GiB", 1 << 20),
    ("MiB", "GiB", 1 << 10),
];

/// The unit of each measure that has one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Units(BTreeMap<String, Unit>);

/// The unit of a quantity, such as MB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit(String);

/// An amount by the hour: what it is called, and how it follows from quantity × ms.
#[derive(Clone, Debug, PartialEq)]
pub struct Hourly {
    /// Such as `GB·h`.
    pub name: String,
    /// Such as `GB·h = MB × ms ÷ 1000 ÷ 3600000`.
    pub formula: String,
    divisor: f64,
}

/// The text names no units.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a measure and its unit for each, with commas between, as in memory = \"MB\", disk = \"GB\""
)]
pub struct UnitsError;

impl Units {
    pub fn of(&self, measure: &str) -> Option<&Unit> {
        self.0.get(measure)
    }
}

impl FromStr for Units {
    type Err = UnitsError;

    fn from_str(text: &str) -> Result<Self, UnitsError> {
        let mut units = BTreeMap::new();
        for pair in text.split(',') {
            let (measure, unit) = pair.rsplit_once('=').ok_or(UnitsError)?;
            let (measure, unit) = (bare(measure), bare(unit));
            let is_unit = (1..=20).contains(&unit.len()) && !unit.contains(char::is_control);
            if measure.is_empty() || !is_unit {
                return Err(UnitsError);
            }
            if units
                .insert(measure.to_owned(), Unit(unit.to_owned()))
                .is_some()
            {
                return Err(UnitsError);
            }
        }
        Ok(Self(units))
    }
}

/// Without the spaces and the quotes around it.
fn bare(text: &str) -> &str {
    let text = text.trim();
    let quoted = text
        .strip_prefix('"')
        .and_then(|text| text.strip_suffix('"'));
    quoted.unwrap_or(text)
}

impl Unit {
    pub fn new(name: &str) -> Self {
        Self(name.to_owned())
    }

    /// How amounts of this unit are shown by the hour.
    pub fn hourly(&self) -> Hourly {
        let larger = LARGER.iter().find(|(unit, ..)| *unit == self.0);
        let (unit, count) =
            larger.map_or((self.0.as_str(), 1), |(_, larger, count)| (larger, *count));
        let step = match count {
            1 => String::new(),
            count => format!(" ÷ {count}"),
        };
        let name = format!("{unit}·h");
        Hourly {
            formula: format!("{name} = {self} × ms{step} ÷ 3600000"),
            divisor: f64::from(count) * HOUR,
            name,
        }
    }
}

impl Hourly {
    /// The amount by the hour, of quantity × ms, to three decimals. The exact amount is that one.
    pub fn of(&self, amount: f64) -> String {
        let text = format!("{:.3}", amount / self.divisor);
        text.strip_prefix("-0.000")
            .map_or(text.clone(), |_| "0.000".to_owned())
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_read_as_people_write_them() {
        for text in ["memory=MB,disk=GiB", " memory = \"MB\" , disk = \"GiB\" "] {
            let units: Units = text.parse().unwrap();
            assert_eq!(units.of("memory"), Some(&Unit::new("MB")), "{text}");
            assert_eq!(units.of("disk"), Some(&Unit::new("GiB")), "{text}");
            assert_eq!(units.of("load"), None);
        }
        for wrong in [
            "",
            "memory",
            "memory=",
            "=MB",
            "a=MB,",
            "a=MB,a=GB",
            "a=\u{1b}",
        ] {
            assert_eq!(wrong.parse::<Units>(), Err(UnitsError), "{wrong:?}");
        }
    }

    #[test]
    fn an_amount_is_shown_by_the_hour_in_the_unit_of_a_bill() {
        let shown = |unit: &str, amount: f64| {
            let hourly = Unit::new(unit).hourly();
            (hourly.of(amount), hourly.name, hourly.formula)
        };
        let (amount, name, formula) = shown("MB", 512.0 * 20.0 * HOUR);
        assert_eq!((&*amount, &*name), ("10.240", "GB·h"));
        assert_eq!(formula, "GB·h = MB × ms ÷ 1000 ÷ 3600000");
        assert_eq!(shown("MiB", 512.0 * HOUR).0, "0.500");
        let (amount, name, formula) = shown("GB", -1.5 * HOUR);
        assert_eq!((&*amount, &*name), ("-1.500", "GB·h"));
        assert_eq!(formula, "GB·h = GB × ms ÷ 3600000");
        assert_eq!(
            shown("instance", -1.0),
            (
                "0.000".to_owned(),
                "instance·h".to_owned(),
                "instance·h = instance × ms ÷ 3600000".to_owned()
            )
        );
    }
}
