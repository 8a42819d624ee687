//! Reading typed values without stopping at the first mistake.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use secrecy::SecretString;
use url::Url;

use super::layers::{Layers, Resolved};
use super::mistake::{Mistake, Source};
use super::parse;
use super::program::Program;
use super::setting::{Setting, Value};

/// Hands out the values of a program's settings, by their keys.
///
/// Reading always yields a value, so that all of them can be read and every mistake found: where
/// one is wrong or missing it yields some stand-in, and [`load`](super::load) throws everything
/// away in the end. Asking for a key that is not in the table, or for the wrong type, is a slip
/// of the program and panics.
pub struct Reader<'a> {
    program: &'a Program,
    resolved: BTreeMap<&'static str, Resolved>,
    mistakes: Vec<Mistake>,
    /// Settings that were already found wrong: one mistake each is enough.
    wrong: BTreeSet<&'static str>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(program: &'a Program, layers: Layers) -> Self {
        let Layers { resolved, mistakes } = layers;
        let is_wrong =
            |(key, resolved): (&&'static str, &Resolved)| resolved.value.is_none().then_some(*key);
        let wrong = resolved.iter().filter_map(is_wrong).collect();
        Self {
            program,
            resolved,
            mistakes,
            wrong,
        }
    }

    /// A whole number. It must have a default, and its limits must fit the type.
    pub fn integer<T: TryFrom<u64>>(&self, key: &str) -> T {
        let number = match self.value_or_default(key) {
            Some(Value::Number(number)) => T::try_from(number).ok(),
            _ => None,
        };
        number.unwrap_or_else(|| self.slip(key, "is no number of this type with a default"))
    }

    /// A size in bytes. It must have a default.
    pub fn size(&self, key: &str) -> usize {
        self.integer(key)
    }

    /// True or false. It must have a default.
    pub fn boolean(&self, key: &str) -> bool {
        self.optional_boolean(key)
            .unwrap_or_else(|| self.slip(key, "is no boolean with a default"))
    }

    /// True or false; none where it is left out.
    pub fn optional_boolean(&self, key: &str) -> Option<bool> {
        match self.value_or_default(key)? {
            Value::Boolean(value) => Some(value),
            _ => self.slip(key, "is no boolean"),
        }
    }

    /// A length of time. It must have a default.
    pub fn duration(&self, key: &str) -> Duration {
        match self.value_or_default(key) {
            Some(Value::Duration(value)) => value,
            _ => self.slip(key, "is no duration with a default"),
        }
    }

    /// What the chosen word stands for. `meanings` must give one for each word of the table.
    pub fn choice<T: Clone>(&self, key: &str, meanings: &[(&str, T)]) -> T {
        let word = self.text(key);
        let meaning = meanings.iter().find(|(name, _)| *name == word);
        meaning.map_or_else(
            || self.slip(key, "has a word without a meaning"),
            |(_, it)| it.clone(),
        )
    }

    /// Some text. It must have a default or be required.
    pub fn text(&self, key: &str) -> String {
        match self.optional_text(key) {
            Some(text) => text,
            None if self.setting(key).required => String::new(),
            None => self.slip(key, "has no default and is not required"),
        }
    }

    /// Some text that may be left out.
    pub fn optional_text(&self, key: &str) -> Option<String> {
        match self.value_or_default(key)? {
            Value::Text(text) => Some(text),
            _ => self.slip(key, "is no text"),
        }
    }

    /// A secret that may be left out.
    pub fn secret(&self, key: &str) -> Option<SecretString> {
        if !self.setting(key).secret {
            self.slip(key, "is no secret")
        }
        self.optional_text(key).map(SecretString::from)
    }

    /// The address of an HTTP server that may be left out.
    pub fn optional_url(&self, key: &str) -> Option<Url> {
        match self.value_or_default(key)? {
            Value::Url(url) => Some(url),
            _ => self.slip(key, "is no address"),
        }
    }

    /// The address of an HTTP server. It must have a default or be required.
    pub fn url(&self, key: &str) -> Url {
        match self.optional_url(key) {
            Some(url) => url,
            None if self.setting(key).required => parse::no_url(),
            None => self.slip(key, "has no default and is not required"),
        }
    }

    /// Text that something else can read: `parse` yields the value, or what it expected instead.
    /// None where the setting is left out or wrong.
    pub fn parse_with<T>(
        &mut self,
        key: &str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Option<T> {
        let text = self.optional_text(key)?;
        match parse(&text) {
            Ok(value) => Some(value),
            Err(expected) => {
                self.reject(key, &expected);
                None
            }
        }
    }

    /// Where the value came from; none where there is none.
    pub fn source(&self, key: &str) -> Option<&Source> {
        let setting = self.setting(key);
        self.resolved
            .get(setting.key)
            .map(|resolved| &resolved.source)
    }

    /// Adds the mistake that the value of `key` is not what is `expected`, as checks of several
    /// settings against each other find it. Once per setting: the first is what to mend.
    pub fn reject(&mut self, key: &str, expected: &str) {
        let setting = self.setting(key);
        if !self.wrong.insert(setting.key) {
            return;
        }
        let mistake = match self.resolved.get(setting.key) {
            Some(Resolved { text, source, .. }) => Mistake::value(setting, text, source, expected),
            None => Mistake::new(format!(
                "{} ({}) is not set: expected {expected}",
                setting.env, setting.key
            )),
        };
        self.mistakes.push(mistake);
    }

    /// Adds a mistake that belongs to no one setting.
    pub fn complain(&mut self, mistake: impl Into<String>) {
        self.mistakes.push(Mistake::new(mistake));
    }

    pub(super) fn into_mistakes(self) -> Vec<Mistake> {
        self.mistakes
    }

    fn setting(&self, key: &str) -> &'static Setting {
        let setting = self.program.setting(key);
        setting.unwrap_or_else(|| self.slip(key, "is not in the table"))
    }

    fn slip(&self, key: &str, what: &str) -> ! {
        panic!("the setting {key} of {} {what}", self.program.name)
    }

    /// A value that is wrong gives way to the default, so that reading can go on.
    fn value_or_default(&self, key: &str) -> Option<Value> {
        let setting = self.setting(key);
        let value = self
            .resolved
            .get(setting.key)
            .and_then(|resolved| resolved.value.clone());
        value.or_else(|| setting.kind.parse(setting.default?))
    }
}
