//! Query parameters: each is taken by its name, and all that are wrong are named at once.

use std::collections::BTreeSet;

use axum::http::Uri;
use percent_encoding::percent_decode_str;
use sampler_domain::{Id, Target, Timestamp};
use sampler_service::problem::{FieldError, Problem};
use sampler_store::TargetFilter;
use serde::Serialize;
use serde::de::DeserializeOwned;
use url::form_urlencoded::{self, Serializer};

use super::cursor;
use crate::problems;

/// Items on a page, unless the client asks for another number; and at the most.
const LIMIT: usize = 100;
const LIMIT_MAX: usize = 1_000;

const CURSOR: &str = "cursor";

pub(crate) struct Parameters {
    path: String,
    given: Vec<(String, String)>,
    /// The places of parameters that are not UTF-8.
    undecoded: BTreeSet<usize>,
    /// The places of parameters that were not taken yet.
    rest: Vec<usize>,
    errors: Vec<FieldError>,
}

impl Parameters {
    pub(crate) fn of(uri: &Uri) -> Self {
        let pairs = uri
            .query()
            .unwrap_or_default()
            .split('&')
            .filter(|pair| !pair.is_empty())
            .enumerate();
        let (mut given, mut undecoded) = (Vec::new(), BTreeSet::new());
        for (index, pair) in pairs {
            given.extend(form_urlencoded::parse(pair.as_bytes()).into_owned());
            // A value that is not UTF-8 was decoded to another one.
            if percent_decode_str(pair).decode_utf8().is_err() {
                undecoded.insert(index);
            }
        }
        Self {
            path: uri.path().to_owned(),
            rest: (0..given.len()).collect(),
            given,
            undecoded,
            errors: Vec::new(),
        }
    }

    /// The value of a parameter. One that is given twice is wrong.
    fn take(&mut self, name: &str) -> Option<String> {
        let given = &self.given;
        let (mine, rest): (Vec<_>, _) =
            self.rest.iter().partition(|index| given[**index].0 == name);
        self.rest = rest;
        let value = mine.first().map(|index| given[*index].1.clone());
        if mine.len() > 1 {
            self.complain(name, "It must be given once.");
            return None;
        }
        if mine.iter().any(|index| self.undecoded.contains(index)) {
            self.complain(name, "It must be UTF-8, percent-encoded.");
            return None;
        }
        value
    }

    pub(crate) fn complain(&mut self, name: &str, detail: &str) {
        self.errors.push(FieldError::of_parameter(name, detail));
    }

    /// The result of `read` for a parameter. If it fails, an error is noted.
    pub(crate) fn parsed<T>(
        &mut self,
        name: &str,
        expected: &str,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Option<T> {
        let text = self.take(name)?;
        let value = read(&text);
        if value.is_none() {
            self.complain(name, expected);
        }
        value
    }

    /// An id that is to be equal.
    pub(crate) fn id(&mut self, name: &str) -> Option<Id> {
        let text = self.take(name)?;
        match Id::new(text) {
            Ok(id) => Some(id),
            Err(error) => {
                self.complain(name, &format!("It {error}."));
                None
            }
        }
    }

    /// Conditions on the fields of a target.
    pub(crate) fn target(&mut self) -> TargetFilter {
        let mut target = TargetFilter::default();
        for name in Target::FIELDS {
            if let Some(id) = self.id(name) {
                target.set(name, id);
            }
        }
        target
    }

    /// A condition that is there, or not.
    pub(crate) fn only_true(&mut self, name: &str) -> bool {
        let given = self.parsed(name, "It must be true.", |text| {
            (text == "true").then_some(())
        });
        given.is_some()
    }

    /// A time: milliseconds since the epoch, or RFC 3339.
    pub(crate) fn moment(&mut self, name: &str) -> Option<Timestamp> {
        let expected = "It must be a time: whole milliseconds since the epoch, or RFC 3339.";
        // A plus that was not encoded means a space.
        self.parsed(name, expected, |text| {
            Timestamp::from_text(&text.replace(' ', "+"))
        })
    }

    /// The time between `from` and `to`, where these are given.
    pub(crate) fn time(&mut self) -> (Option<Timestamp>, Option<Timestamp>) {
        let (from, to) = (self.moment("from"), self.moment("to"));
        if let (Some(from), Some(to)) = (from, to)
            && from >= to
        {
            self.complain("to", "It must be later than from.");
        }
        (from, to)
    }

    pub(crate) fn limit(&mut self) -> usize {
        let expected = format!("It must be a whole number from 1 to {LIMIT_MAX}.");
        let limit = self.parsed("limit", &expected, |text| {
            let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
            let limit = text.parse().ok().filter(|_| is_number)?;
            (1..=LIMIT_MAX).contains(&limit).then_some(limit)
        });
        limit.unwrap_or(LIMIT)
    }

    pub(crate) fn cursor<P: DeserializeOwned>(&mut self) -> Option<P> {
        self.cursor_if(|_| true)
    }

    /// The cursor of the page, where its position is one of the list.
    pub(crate) fn cursor_if<P: DeserializeOwned>(
        &mut self,
        is_of_list: impl FnOnce(&P) -> bool,
    ) -> Option<P> {
        let expected = "It must be the cursor of a link to the next page of this list.";
        self.parsed(CURSOR, expected, |text| {
            cursor::read(text).filter(is_of_list)
        })
    }

    /// Refuses wrong parameters, and those that were not taken.
    ///
    /// # Errors
    /// 400 that names all of these.
    pub(crate) fn finish(mut self) -> Result<Next, Problem> {
        for index in std::mem::take(&mut self.rest) {
            let name = self.given[index].0.clone();
            self.complain(&name, "There is no parameter of this name here.");
        }
        if self.errors.is_empty() {
            return Ok(Next {
                path: self.path,
                given: self.given,
            });
        }
        let detail = "Parameters of the query are unknown or wrong.";
        Err(Problem::new(&problems::INVALID_QUERY, detail).errors(self.errors))
    }
}

/// Addresses the pages behind one.
pub(crate) struct Next {
    path: String,
    given: Vec<(String, String)>,
}

impl Next {
    /// The address of the page behind a position; all else is asked for as before.
    pub(crate) fn page(&self, position: &impl Serialize) -> String {
        let mut query = Serializer::new(String::new());
        let others = self.given.iter().filter(|(name, _)| name != CURSOR);
        query
            .extend_pairs(others)
            .append_pair(CURSOR, &cursor::write(position));
        format!("{}?{}", self.path, query.finish())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(query: &str) -> Parameters {
        Parameters::of(&format!("/v1/things?{query}").parse().unwrap())
    }

    #[test]
    fn parameters_are_decoded() {
        let mut parameters = of("a=%C3%A4%20b+c%2Bd&from=2018-08-03T02:00:00+02:00&limit=7");
        assert_eq!(parameters.id("a"), Some(Id::from_store("ä b c+d")));
        let midnight = Timestamp::new(1_533_254_400_000).ok();
        assert_eq!(parameters.time(), (midnight, None));
        assert_eq!(parameters.limit(), 7);
        assert!(parameters.finish().is_ok());
        assert_eq!(of("").limit(), 100);
    }

    #[test]
    fn the_next_page_is_asked_for_as_this_one() {
        let query = format!("a=%C3%A4&cursor={}&limit=7", cursor::write(&7));
        let mut parameters = of(&query);
        parameters.id("a");
        parameters.limit();
        assert_eq!(parameters.cursor(), Some(7));
        let next = parameters.finish().ok().unwrap();
        let expected = format!("/v1/things?a=%C3%A4&limit=7&cursor={}", cursor::write(&8));
        assert_eq!(next.page(&8), expected);
    }
}
