//! Reading typed values without stopping at the first mistake.

use std::collections::{BTreeMap, BTreeSet};

use super::declare::{FromParsed, FromValue};
use super::layers::{Layers, Resolved};
use super::mistake::Mistake;
use super::program::Program;
use super::setting::{Setting, Value};

/// What the settings lead to, in one thing.
pub(super) struct Note {
    /// The thing, in a word.
    pub(super) topic: &'static str,
    pub(super) text: String,
}

/// Returns the values of settings by their keys, and collects mistakes.
///
/// It always returns a value, so that all settings are read and every mistake is found. For a value
/// that is wrong or missing it returns the default or a placeholder; [`load`](super::load) discards
/// all values if there is a mistake. A key that is not in the table, or the wrong type, is an error
/// of the program: it panics.
pub struct Reader<'a> {
    settings: Vec<&'a Setting>,
    resolved: BTreeMap<&'static str, Resolved>,
    mistakes: Vec<Mistake>,
    notes: Vec<Note>,
    /// Settings that already have a mistake: one for each is enough.
    wrong: BTreeSet<&'static str>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(program: &Program, layers: Layers) -> Self {
        let Layers { resolved, mistakes } = layers;
        let is_wrong =
            |(key, resolved): (&&'static str, &Resolved)| resolved.value.is_none().then_some(*key);
        let wrong = resolved.iter().filter_map(is_wrong).collect();
        Self {
            settings: program.settings().collect(),
            resolved,
            mistakes,
            notes: Vec::new(),
            wrong,
        }
    }

    /// Returns the defaults of a table.
    pub fn of_defaults(table: &'a [Setting]) -> Self {
        Self {
            settings: table.iter().collect(),
            resolved: BTreeMap::new(),
            mistakes: Vec::new(),
            notes: Vec::new(),
            wrong: BTreeSet::new(),
        }
    }

    pub fn value<T: FromValue>(&self, key: &str) -> T {
        let setting = self.setting(key);
        if T::SECRET != setting.secret {
            program_error(key, "is secret, or its type is, but not both");
        }
        let value = self.effective_value(setting);
        let value = value.or_else(|| setting.required.then(|| setting.kind.placeholder()));
        let converted = value.map_or_else(T::if_unset, T::from_value);
        converted.unwrap_or_else(|| {
            program_error(
                key,
                "is of another type, or has no default and is not required",
            )
        })
    }

    /// The value of a setting that is parsed by `parse`, which returns the value, or a description
    /// of what it expects.
    pub fn parsed<T, F: FromParsed<T>>(
        &mut self,
        key: &str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> F {
        let setting = self.setting(key);
        let default = setting.default;
        let parsed = match self.effective_value(setting) {
            Some(Value::Text(text)) => match parse(&text) {
                Ok(value) => Some(value),
                Err(expected) => {
                    self.reject(key, &expected);
                    default.and_then(|text| parse(text).ok())
                }
            },
            Some(_) => program_error(key, "is not a text"),
            None => None,
        };
        F::from_parsed(parsed).unwrap_or_else(|| program_error(key, "has no valid default"))
    }

    /// The names of a setting and its effective value, for a mistake in how settings fit together:
    /// `MAX_PAYLOAD (limits.payload, 500kb)`.
    pub fn described(&self, key: &str) -> String {
        let setting = self.setting(key);
        let resolved = self.resolved.get(setting.key);
        let text = resolved.filter(|resolved| resolved.value.is_some());
        let text = text.map(|resolved| resolved.text.as_str());
        match text.or(setting.default) {
            Some(text) => format!("{} ({key}, {})", setting.env, setting.shown(text)),
            None => format!("{} ({key})", setting.env),
        }
    }

    /// The effective value as it may be shown; empty if it is not set.
    pub fn shown(&self, key: &str) -> String {
        let setting = self.setting(key);
        let resolved = self.resolved.get(setting.key);
        let text = resolved.map(|resolved| resolved.text.as_str());
        text.or(setting.default)
            .map(|text| setting.shown(text))
            .unwrap_or_default()
    }

    /// Where the value came from, in words; `None` if it is not set.
    pub fn origin(&self, key: &str) -> Option<&str> {
        let resolved = self.resolved.get(self.setting(key).key)?;
        Some(&resolved.origin)
    }

    /// Adds the mistake that the value of `key` is not what is `expected`. Only the first mistake of
    /// a setting is added.
    pub fn reject(&mut self, key: &str, expected: &str) {
        let setting = self.setting(key);
        if !self.wrong.insert(setting.key) {
            return;
        }
        let mistake = match self.resolved.get(setting.key) {
            Some(Resolved { text, origin, .. }) => Mistake::value(setting, text, origin, expected),
            None => Mistake::missing(setting, expected),
        };
        self.mistakes.push(mistake);
    }

    /// Adds a mistake that does not belong to one setting, such as two that do not fit together.
    pub fn complain(&mut self, mistake: impl Into<String>) {
        self.mistakes.push(Mistake::new(mistake));
    }

    /// Adds a sentence about what the settings lead to, for `--check-config`. It must not hold a secret.
    pub fn note(&mut self, topic: &'static str, text: impl Into<String>) {
        let text = text.into();
        self.notes.push(Note { topic, text });
    }

    /// The end of a note: where a value came from.
    pub fn source(&self, key: &str) -> String {
        match self.origin(key) {
            Some(origin) => format!(" ({origin})"),
            None => String::new(),
        }
    }

    pub(super) fn into_parts(self) -> (Vec<Mistake>, Vec<Note>) {
        (self.mistakes, self.notes)
    }

    fn setting(&self, key: &str) -> &'a Setting {
        let setting = self.settings.iter().find(|setting| setting.key == key);
        setting.unwrap_or_else(|| program_error(key, "is not in the table"))
    }

    /// The value, or the default if it is wrong or not set.
    fn effective_value(&self, setting: &Setting) -> Option<Value> {
        let resolved = self.resolved.get(setting.key);
        let value = resolved.and_then(|resolved| resolved.value.clone());
        value.or_else(|| setting.kind.parse(setting.default?))
    }
}

/// Panics: the table and the code that reads it do not fit together.
fn program_error(key: &str, what: &str) -> ! {
    panic!("the setting {key} {what}")
}
