//! The query of a page: the parameters of the API behind it, as forms send them.

use sampler_api::{FieldError, Problem};
use sampler_domain::{Granularity, Timestamp};
use url::form_urlencoded::{self, Serializer};

const PARAMETERS_MAX: usize = 100;

/// The ids of a target, and the time, which most pages are searched by.
pub(crate) const FIELDS: [&str; 8] = [
    "organization_id",
    "space_id",
    "consumer_id",
    "resource_id",
    "plan_id",
    "resource_instance_id",
    "from",
    "to",
];

/// The label of a parameter, or of one of its values.
pub(crate) fn label(name: &str) -> String {
    let words = name.replace("_id", "").replace('_', " ");
    let zone = if is_time(name) { ", UTC" } else { "" };
    let mut letters = words.chars();
    let first = letters.next().into_iter().flat_map(char::to_uppercase);
    first.chain(letters).chain(zone.chars()).collect()
}

pub(crate) fn is_time(name: &str) -> bool {
    matches!(name, "from" | "to" | "until")
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    /// The pairs of an address or a form. Forms also send fields that were left empty, which are left
    /// out.
    pub(crate) fn parse(text: impl AsRef<[u8]>) -> Self {
        let pairs = form_urlencoded::parse(text.as_ref()).into_owned();
        let given = pairs.filter(|(_, value)| !value.is_empty());
        Self(given.take(PARAMETERS_MAX).collect())
    }

    /// The value of a parameter; empty where it is not there.
    pub(crate) fn get(&self, name: &str) -> &str {
        let found = self.0.iter().find(|(given, _)| given == name);
        found.map_or("", |(_, value)| value)
    }

    pub(crate) fn is(&self, name: &str, value: &str) -> bool {
        self.get(name) == value
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The same with another value of a parameter; without it, where the value is empty.
    #[must_use]
    pub(crate) fn with(&self, name: &str, value: &str) -> Self {
        let others = self.0.iter().filter(|(given, _)| given != name);
        let mut pairs: Vec<_> = others.cloned().collect();
        if !value.is_empty() {
            pairs.push((name.to_owned(), value.to_owned()));
        }
        Self(pairs)
    }

    /// The same for another part of the time, from its beginning.
    #[must_use]
    pub(crate) fn between(&self, from: Timestamp, to: Timestamp) -> Self {
        let [from, to] = [from, to].map(|at| at.as_millis().to_string());
        self.with("cursor", "").with("from", &from).with("to", &to)
    }

    /// An address with this query; that of the same page where the path is empty.
    pub(crate) fn at(&self, path: &str) -> String {
        let query = Serializer::new(String::new())
            .extend_pairs(&self.0)
            .finish();
        format!("{path}?{query}")
    }

    /// The time in a parameter. A time without a zone is in UTC, and a date alone is midnight.
    pub(crate) fn time(&self, name: &str) -> Option<Timestamp> {
        let text = self.get(name).trim().replace(' ', "T");
        let endings = ["", "Z", ":00Z", "T00:00:00Z"];
        let mut texts = endings.iter().map(|ending| format!("{text}{ending}"));
        texts.find_map(|text| Timestamp::from_text(&text))
    }

    /// The query as the API reads it.
    pub(crate) fn for_api(&self) -> Self {
        let pairs = self.0.iter().map(|(name, value)| {
            let time = self.time(name).filter(|_| is_time(name));
            let value = time.map_or_else(|| value.clone(), |at| at.as_millis().to_string());
            (name.clone(), value)
        });
        Self(pairs.collect())
    }

    /// The value of a field, as a person would enter it: a time without its zone, and without seconds
    /// where there are none. A wrong time can be mended in the field.
    pub(crate) fn shown(&self, name: &str) -> String {
        let Some(time) = self.time(name).filter(|_| is_time(name)) else {
            return self.get(name).to_owned();
        };
        let text = time.to_string();
        let text = text.trim_end_matches('Z').trim_end_matches(".000");
        text.strip_suffix(":00").unwrap_or(text).to_owned()
    }

    /// Whether the query asks for a part of the time.
    pub(crate) fn has_time(&self) -> bool {
        self.0.iter().any(|(name, _)| is_time(name))
    }

    /// Whether nothing but a time is asked for: a preset may come before anything else.
    pub(crate) fn has_time_alone(&self) -> bool {
        self.0.iter().all(|(name, _)| is_time(name))
    }

    /// The same page for the times that people ask for most.
    pub(crate) fn presets(&self, now: Timestamp) -> Vec<(&'static str, String)> {
        let month = Granularity::Month;
        let last = month.window_of(now).plus(-1);
        let all = [
            ("Today", Granularity::Day, now),
            ("This month", month, now),
            ("Last month", month, last),
        ];
        let pages = all.into_iter().filter_map(|(name, granularity, at)| {
            let from = granularity.window_of(at);
            let to = granularity.boundary_after(from)?;
            Some((name, self.between(from, to).at("")))
        });
        pages.collect()
    }

    /// A problem of the API in the words of the form that sent this query: the labels of its fields, and
    /// how a time is written there.
    pub(crate) fn in_words(&self, mut problem: Problem) -> Problem {
        for error in &mut problem.errors {
            let name = error.place().rsplit('/').next().unwrap_or_default();
            let is_no_time = is_time(name) && self.time(name).is_none();
            let hint = is_no_time.then(|| "Enter a time like 2026-11-20T14:00.".to_owned());
            let detail = hint.unwrap_or_else(|| error.detail.clone());
            *error = FieldError::of_parameter(label(name), detail);
        }
        problem
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_without_a_zone_is_in_utc_and_stays_as_exact_as_it_was_given() {
        for (given, time, shown) in [
            (
                "2026-11-20T14:10",
                1_795_183_800_000_i64,
                "2026-11-20T14:10",
            ),
            ("2026-11-20 14:10", 1_795_183_800_000, "2026-11-20T14:10"),
            (
                "2026-11-20T14:10:05.25",
                1_795_183_805_250,
                "2026-11-20T14:10:05.250",
            ),
            (
                "2026-11-20T15:10:05+01:00",
                1_795_183_805_000,
                "2026-11-20T14:10:05",
            ),
            ("1795183800000", 1_795_183_800_000, "2026-11-20T14:10"),
            ("2026-11-20", 1_795_132_800_000, "2026-11-20T00:00"),
        ] {
            let query = Query::default().with("from", given);
            assert_eq!(query.for_api().get("from"), time.to_string(), "{given}");
            assert_eq!(query.shown("from"), shown, "{given}");
        }
        for wrong in ["soon", "\u{e4}T14:10", "20.11.2026", "2026-11-31"] {
            let query = Query::default().with("from", wrong);
            assert_eq!(
                [query.for_api().get("from"), &query.shown("from")],
                [wrong; 2]
            );
        }
        // An id may look like a time.
        let query = Query::default().with("plan_id", "2026-11-20");
        assert_eq!(
            [query.for_api().get("plan_id"), &query.shown("plan_id")],
            ["2026-11-20"; 2]
        );
    }

    #[test]
    fn a_label_is_made_of_whatever_somebody_calls_a_field() {
        for (name, expected) in [
            ("organization_id", "Organization"),
            ("from", "From, UTC"),
            ("\u{e9}t\u{e9}", "\u{c9}t\u{e9}"),
            ("_id", ""),
            ("", ""),
        ] {
            assert_eq!(label(name), expected);
        }
    }

    #[test]
    fn the_times_that_people_ask_for_most_keep_what_else_was_asked_for() {
        let query = Query::parse("plan_id=p&cursor=c&from=1&space_id=");
        let presets = query.presets(Timestamp::from_text("2027-01-15T10:00:00Z").unwrap());
        for ((name, address), (expected, from, to)) in presets.iter().zip([
            ("Today", "2027-01-15T00:00", "2027-01-16T00:00"),
            ("This month", "2027-01-01T00:00", "2027-02-01T00:00"),
            ("Last month", "2026-12-01T00:00", "2027-01-01T00:00"),
        ]) {
            let query = Query::parse(&address[1..]);
            let asked = ["plan_id", "cursor", "from", "to"].map(|name| query.shown(name));
            assert_eq!(
                (*name, asked),
                (expected, ["p", "", from, to].map(str::to_owned))
            );
        }
    }
}
