//! The query of a page: the parameters of the API behind it, as forms send them.

use http::Uri;
use sampler_api::Problem;
use sampler_domain::{Granularity, Timestamp};
use url::form_urlencoded;

use crate::api::{Query, address};

const PARAMETERS_MAX: usize = 100;

/// The parameter that asks for a file, and its value.
pub(crate) const FORMAT: &str = "format";
pub(crate) const CSV: &str = "csv";

/// The ids of a target.
pub(crate) const IDS: [&str; 6] = [
    "organization_id",
    "space_id",
    "consumer_id",
    "resource_id",
    "plan_id",
    "resource_instance_id",
];

/// The label of a field; its name where there is none.
pub(crate) fn label(name: &str) -> &str {
    match name {
        "organization_id" => "Organization",
        "space_id" => "Space",
        "consumer_id" => "Consumer",
        "resource_id" => "Resource",
        "plan_id" => "Plan",
        "resource_instance_id" => "Instance",
        "state" => "State",
        "window" => "Window",
        "group_by" => "Group by",
        "from" => "From, UTC",
        "to" => "To, UTC",
        "until" => "Until, UTC",
        "who" => "Who",
        "span" => "Span",
        "reason" => "Reason",
        _ => name,
    }
}

/// The query of an address. Forms also send fields that were left empty, which are left out.
pub(crate) fn read(uri: &Uri) -> Query {
    let query = uri.query().unwrap_or_default().as_bytes();
    let pairs = form_urlencoded::parse(query).into_owned();
    let given = pairs.filter(|(_, value)| !value.is_empty());
    given.take(PARAMETERS_MAX).collect()
}

pub(crate) fn of_pairs(pairs: &[(&str, &str)]) -> Query {
    let pairs = pairs.iter();
    pairs
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}

pub(crate) fn value<'a>(query: &'a Query, name: &str) -> &'a str {
    let found = query.iter().find(|(given, _)| given == name);
    found.map_or("", |(_, value)| value)
}

/// The same query with another value of a parameter, or without it.
pub(crate) fn with(query: &Query, name: &str, value: Option<&str>) -> Query {
    let others = query.iter().filter(|(given, _)| given != name);
    let mut query: Query = others.cloned().collect();
    query.extend(value.map(|value| (name.to_owned(), value.to_owned())));
    query
}

/// The query as the API reads it. A field for a time sends it without its zone, which is UTC here.
pub(crate) fn for_api(query: &Query) -> Query {
    let pairs = query.iter().map(|(name, value)| {
        let value = if is_moment(name) {
            with_zone(value)
        } else {
            value.clone()
        };
        (name.clone(), value)
    });
    pairs.collect()
}

pub(crate) fn moment(query: &Query, name: &str) -> Option<Timestamp> {
    Timestamp::from_text(&with_zone(value(query, name)).replace(' ', "+"))
}

/// The same page for the times that people ask for most.
pub(crate) fn presets(query: &Query, now: Timestamp) -> Vec<(&'static str, String)> {
    let month = window(Granularity::Month, now);
    let last = month.and_then(|(start, _)| window(Granularity::Month, start.plus(-1)));
    let all = [
        ("Today", window(Granularity::Day, now)),
        ("This month", month),
        ("Last month", last),
    ];
    let pages = all.into_iter().filter_map(|(name, window)| {
        let (from, to) = window?;
        let query = with(query, "cursor", None);
        let query = with(&query, "from", Some(&from.as_millis().to_string()));
        let query = with(&query, "to", Some(&to.as_millis().to_string()));
        Some((name, address("", &query)))
    });
    pages.collect()
}

fn window(granularity: Granularity, at: Timestamp) -> Option<(Timestamp, Timestamp)> {
    let start = granularity.window_of(at);
    Some((start, granularity.boundary_after(start)?))
}

/// The time in a parameter as people write it in a field: without seconds where there are none.
pub(crate) fn local(query: &Query, name: &str) -> String {
    let Some(given) = moment(query, name).map(|at| at.to_string()) else {
        // It can be mended there.
        return value(query, name).to_owned();
    };
    let text = given
        .as_str()
        .trim_end_matches('Z')
        .trim_end_matches(".000");
    text.strip_suffix(":00").unwrap_or(text).to_owned()
}

/// A problem in the words of the form that sent the query: the labels of its fields, and how a time is
/// written there.
pub(crate) fn in_words(mut problem: Problem, query: &Query) -> Problem {
    for error in &mut problem.errors {
        let Some(name) = error.parameter.take() else {
            continue;
        };
        if is_moment(&name) && moment(query, &name).is_none() {
            "Enter a time like 2026-11-20T14:00.".clone_into(&mut error.detail);
        }
        error.parameter = Some(label(&name).to_owned());
    }
    problem
}

/// Whether the query asks for a part of the time alone.
pub(crate) fn is_part(query: &Query) -> bool {
    query.iter().any(|(name, _)| is_moment(name))
}

pub(crate) fn is_moment(name: &str) -> bool {
    matches!(name, "from" | "to" | "until")
}

/// A time without a zone is in UTC, and a date alone is midnight.
fn with_zone(text: &str) -> String {
    let text = text.trim();
    let (date, time) = text.split_once(['T', ' ']).unwrap_or((text, "00:00"));
    let has_others = date.contains(|it: char| !it.is_ascii_digit() && it != '-')
        || time.contains(|it: char| !it.is_ascii_digit() && !matches!(it, ':' | '.'));
    let is_date = date.len() == 10 && date.contains('-');
    if !is_date || time.len() < 5 || has_others {
        return text.to_owned();
    }
    let seconds = if time.len() == 5 { ":00" } else { "" };
    format!("{date}T{time}{seconds}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_without_a_zone_is_in_utc() {
        for (text, expected) in [
            ("2026-11-20T14:10", "2026-11-20T14:10:00Z"),
            ("2026-11-20T14:10:01.5", "2026-11-20T14:10:01.5Z"),
            ("2026-11-20T14:10:00+01:00", "2026-11-20T14:10:00+01:00"),
            ("1795186800000", "1795186800000"),
            ("soon", "soon"),
            ("2026-11-20", "2026-11-20T00:00:00Z"),
            ("2026-11-20 14:10", "2026-11-20T14:10:00Z"),
            ("\u{e4}T14:10", "\u{e4}T14:10"),
        ] {
            assert_eq!(with_zone(text), expected);
        }
    }

    #[test]
    fn the_times_that_people_ask_for_most_keep_what_else_was_asked_for() {
        let query = vec![
            ("plan_id".to_owned(), "p".to_owned()),
            ("cursor".to_owned(), "c".to_owned()),
        ];
        let now = Timestamp::from_text("2027-01-15T10:00:00Z").unwrap();
        let presets = presets(&query, now);
        let bounds = |index: usize| {
            let (name, address) = &presets[index];
            let query = read(&format!("/x{address}").parse().unwrap());
            assert_eq!(
                (value(&query, "plan_id"), value(&query, "cursor")),
                ("p", "")
            );
            (*name, local(&query, "from"), local(&query, "to"))
        };
        let of =
            |name, from: &str, to: &str| (name, format!("{from}T00:00"), format!("{to}T00:00"));
        assert_eq!(bounds(0), of("Today", "2027-01-15", "2027-01-16"));
        assert_eq!(bounds(1), of("This month", "2027-01-01", "2027-02-01"));
        assert_eq!(bounds(2), of("Last month", "2026-12-01", "2027-01-01"));
    }

    #[test]
    fn a_moment_stays_as_exact_as_it_was_given() {
        for (given, shown) in [
            ("2026-11-20", "2026-11-20T00:00"),
            ("2026-11-20T14:10:05", "2026-11-20T14:10:05"),
            ("2026-11-20T14:00:00.250", "2026-11-20T14:00:00.250"),
            ("soon", "soon"),
        ] {
            let query = vec![("from".to_owned(), given.to_owned())];
            assert_eq!(local(&query, "from"), shown);
            assert_eq!(local(&query, "to"), "");
        }
    }

    #[test]
    fn fields_that_were_left_empty_are_left_out() {
        let uri: Uri = "/console/spans?a=&b=%26x&c=".parse().unwrap();
        assert_eq!(read(&uri), of_pairs(&[("b", "&x")]));
    }
}
