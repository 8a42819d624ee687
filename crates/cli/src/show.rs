//! Documents of the API in the words of a table.

use std::fmt::Display;
use std::process::ExitCode;

use sampler_api::{Measure, Target};
use sampler_verify::moment::Millis;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::api::Answer;
use crate::failure::Failure;
use crate::listing::Common;
use crate::output::{print, print_json_text, printable};

/// Shown for an absent value.
const NOTHING: &str = "-";

pub(crate) fn print_json(document: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(document)
        .map_err(|error| Failure::Input(error.to_string()))?;
    print_json_text(&text)
}

/// Prints an answer as it is, for machines, or in words.
pub(crate) fn show_answer<T: DeserializeOwned>(
    common: &Common,
    answer: &Answer,
    path: &[&str],
    words: impl FnOnce(&T) -> String,
) -> Result<ExitCode, Failure> {
    if common.json {
        print_json(&answer.read::<Value>(path)?)?;
    } else {
        print(&words(&answer.read(path)?))?;
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn text(value: Option<impl Display>) -> String {
    value.map_or_else(|| NOTHING.to_owned(), |value| printable(&value.to_string()))
}

/// A length of time as hours, minutes, seconds and milliseconds: nothing is rounded.
pub(crate) fn length_in_words(length: Millis) -> String {
    let sign = if length < 0 { "-" } else { "" };
    let millis = length.unsigned_abs();
    let (seconds, minutes, hours) = (
        millis / 1_000 % 60,
        millis / 60_000 % 60,
        millis / 3_600_000,
    );
    format!(
        "{sign}{hours}:{minutes:02}:{seconds:02}.{:03}",
        millis % 1_000
    )
}

/// The resource, plan and instance of a target.
pub(crate) fn target(target: &Target) -> String {
    let [resource, plan, instance] = [
        &target.resource_id,
        &target.plan_id,
        &target.resource_instance_id,
    ]
    .map(|id| printable(id));
    format!("{resource}/{plan}/{instance}")
}

pub(crate) fn measures(measures: &[Measure]) -> String {
    let measures = measures.iter();
    named(measures.map(|it| {
        (
            it.measure.as_str(),
            it.quantity
                .as_str()
                .map_or_else(|| it.quantity.to_string(), str::to_owned),
        )
    }))
}

/// Names, each with its value.
pub(crate) fn named<'a>(pairs: impl Iterator<Item = (&'a str, String)>) -> String {
    let all: Vec<String> = pairs
        .map(|(name, value)| format!("{} {}", printable(name), printable(&value)))
        .collect();
    if all.is_empty() {
        return NOTHING.to_owned();
    }
    all.join(", ")
}

/// Names and values, one pair on a line, the values below each other.
pub(crate) fn pairs(pairs: &[(&str, String)]) -> String {
    let width = pairs.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let lines = pairs
        .iter()
        .map(|(name, value)| format!("{name:width$}  {value}\n"));
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_exact() {
        assert_eq!(length_in_words(0), "0:00:00.000");
        assert_eq!(length_in_words(281_712_345), "78:15:12.345");
        assert_eq!(length_in_words(-1_689_000), "-0:28:09.000");
        assert_eq!(length_in_words(i64::MIN), "-2562047788015:12:55.808");
    }

    #[test]
    fn what_is_not_there_is_a_dash() {
        assert_eq!(text(None::<u16>), "-");
        assert_eq!(text(Some(5)), "5");
        assert_eq!(text(Some("x\u{1b}")), "x\u{fffd}");
        assert_eq!(measures(&[]), "-");
    }

    #[test]
    fn values_stand_below_each_other() {
        assert_eq!(
            pairs(&[("a", "1".to_owned()), ("bcd", "2".to_owned())]),
            "a    1\nbcd  2\n"
        );
    }
}
