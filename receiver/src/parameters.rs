//! Query parameters: each is taken by its name, and all that are wrong are named at once.

use axum::http::Uri;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sampler_domain::{Id, Target, Timestamp};
use sampler_service::problem::{FieldError, Problem};
use sampler_store::TargetFilter;
use serde::Serialize;
use serde::de::DeserializeOwned;
use url::form_urlencoded::{self, Serializer};

use crate::problems;

/// Items on a page, unless the client asks for another number; and at the most.
const LIMIT: usize = 100;
const LIMIT_MAX: usize = 1_000;

const CURSOR: &str = "cursor";

/// The parameters of a request.
pub(crate) struct Parameters {
    uri: Uri,
    /// Those that were not taken yet.
    rest: Vec<(String, String)>,
    errors: Vec<FieldError>,
}

impl Parameters {
    pub(crate) fn of(uri: &Uri) -> Self {
        Self {
            uri: uri.clone(),
            rest: given(uri).collect(),
            errors: Vec::new(),
        }
    }

    /// The value of a parameter. One that is given twice is wrong.
    fn take(&mut self, name: &str) -> Option<String> {
        let mut mine = self.rest.extract_if(.., |(given, _)| given == name);
        let (value, second) = (mine.next()?.1, mine.next());
        drop(mine);
        if second.is_some() {
            self.complain(name, "The parameter must be given once.");
            return None;
        }
        if value.contains(char::REPLACEMENT_CHARACTER) {
            self.complain(name, "The value must be UTF-8, percent-encoded.");
            return None;
        }
        Some(value)
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
        let value = read(&self.take(name)?);
        if value.is_none() {
            self.complain(name, expected);
        }
        value
    }

    /// An id that is to be equal.
    pub(crate) fn id(&mut self, name: &str) -> Option<Id> {
        let id = Id::new(self.take(name)?);
        id.map_err(|error| self.complain(name, &format!("The value {error}.")))
            .ok()
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
        let is_true = |text: &str| (text == "true").then_some(());
        self.parsed(name, "The value must be true.", is_true)
            .is_some()
    }

    /// A time: milliseconds since the epoch, or RFC 3339.
    pub(crate) fn moment(&mut self, name: &str) -> Option<Timestamp> {
        let expected = "The value must be whole milliseconds since the epoch, or RFC 3339.";
        // A plus that was not encoded means a space.
        self.parsed(name, expected, |text| {
            Timestamp::from_text(&text.replace(' ', "+"))
        })
    }

    /// The time between `from` and `to`, where these are given.
    pub(crate) fn time(&mut self) -> (Option<Timestamp>, Option<Timestamp>) {
        let (from, to) = (self.moment("from"), self.moment("to"));
        if from.zip(to).is_some_and(|(from, to)| from >= to) {
            self.complain("to", "The time must be later than from.");
        }
        (from, to)
    }

    pub(crate) fn limit(&mut self) -> usize {
        let expected = format!("The value must be a whole number from 1 to {LIMIT_MAX}.");
        let limit = self.parsed("limit", &expected, |text| {
            let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
            let limit = text.parse().ok().filter(|_| is_number)?;
            (1..=LIMIT_MAX).contains(&limit).then_some(limit)
        });
        limit.unwrap_or(LIMIT)
    }

    /// The position behind which the page begins: the last item of the page before, by fields of it that never
    /// change. So it stays right while documents come, change and go. A cursor grants nothing: with one that is
    /// made up, a list begins somewhere else, with the same filters and scopes.
    pub(crate) fn cursor<P: DeserializeOwned>(&mut self) -> Option<P> {
        self.cursor_if(|_| true)
    }

    /// The same, where the position is one of the list.
    pub(crate) fn cursor_if<P: DeserializeOwned>(
        &mut self,
        is_of_list: impl FnOnce(&P) -> bool,
    ) -> Option<P> {
        let expected = "The value must be the cursor of a link to the next page of this list.";
        self.parsed(CURSOR, expected, |text| {
            let json = URL_SAFE_NO_PAD.decode(text).ok()?;
            serde_json::from_slice(&json).ok().filter(is_of_list)
        })
    }

    /// Refuses wrong parameters, and those that were not taken. The error names all of these.
    pub(crate) fn finish(&mut self) -> Result<(), Problem> {
        for (name, _) in std::mem::take(&mut self.rest) {
            self.complain(&name, "There is no parameter of this name here.");
        }
        if self.errors.is_empty() {
            return Ok(());
        }
        let detail = "Parameters of the query are unknown or wrong.";
        Err(Problem::new(&problems::INVALID_QUERY, detail).errors(self.errors.drain(..)))
    }

    /// The address of the page behind a position; all else is asked for as before.
    pub(crate) fn next_page(&self, position: &impl Serialize) -> String {
        let json = serde_json::to_vec(position).expect("texts, numbers and lists of these");
        let mut query = Serializer::new(String::new());
        query
            .extend_pairs(given(&self.uri).filter(|(name, _)| name != CURSOR))
            .append_pair(CURSOR, &URL_SAFE_NO_PAD.encode(json));
        format!("{}?{}", self.uri.path(), query.finish())
    }
}

fn given(uri: &Uri) -> impl Iterator<Item = (String, String)> {
    form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes()).into_owned()
}
