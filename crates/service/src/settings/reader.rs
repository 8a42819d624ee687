//! Reading typed values without stopping at the first mistake.

use std::collections::{BTreeMap, BTreeSet};

use super::declare::{FromParsed, FromText};
use super::setting::Setting;

/// A value of the highest layer that has one.
pub(super) struct Resolved {
    pub(super) text: String,
    /// Where it came from, in words.
    pub(super) origin: String,
    /// Whether the text is of the setting's kind; if not, there is a mistake, too.
    pub(super) is_valid: bool,
}

/// Returns the values of settings by their keys, and collects mistakes.
///
/// It always returns a value, so that all settings are read and every mistake is found. For a value
/// that is wrong it returns the default; [`load`](super::load) discards all values if there is a
/// mistake. A key that is not in the table, or the wrong type, is an error of the program: it panics.
pub struct Reader {
    settings: Vec<&'static Setting>,
    pub(super) resolved: BTreeMap<&'static str, Resolved>,
    /// Settings that already have a mistake: one for each is enough.
    wrong: BTreeSet<&'static str>,
    pub(super) mistakes: Vec<String>,
    /// What the settings lead to: for each thing, in a word, a sentence.
    pub(super) notes: Vec<(&'static str, String)>,
}

impl Reader {
    /// Returns the defaults of settings.
    pub fn new(settings: impl IntoIterator<Item = &'static Setting>) -> Self {
        Self {
            settings: settings.into_iter().collect(),
            resolved: BTreeMap::new(),
            wrong: BTreeSet::new(),
            mistakes: Vec::new(),
            notes: Vec::new(),
        }
    }

    pub fn value<T: FromText>(&self, key: &str) -> T {
        let setting = self.setting(key);
        if T::SECRET != setting.secret {
            program_error(key, "is secret, or its type is, but not both");
        }
        let value = match self.text(setting) {
            Some(text) => T::from_text(text, setting.kind),
            None => T::if_unset(),
        };
        value.unwrap_or_else(|| program_error(key, "is of another type, or has no default"))
    }

    /// The value of a setting that is parsed by `parse`, which returns the value, or a description
    /// of what it expects.
    pub fn parsed<T, F: FromParsed<T>>(
        &mut self,
        key: &str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> F {
        let setting = self.setting(key);
        let parsed = match self.text(setting).map(&parse).transpose() {
            Ok(parsed) => parsed,
            Err(expected) => {
                self.reject(key, &expected);
                setting.default.and_then(|text| parse(text).ok())
            }
        };
        F::from_parsed(parsed).unwrap_or_else(|| program_error(key, "has no valid default"))
    }

    /// The names of a setting and its effective value, for a mistake in how settings fit together:
    /// `MAX_PAYLOAD (limits.payload, 500kb)`.
    pub fn described(&self, key: &str) -> String {
        let setting = self.setting(key);
        match self.text(setting) {
            Some(text) => format!("{} ({key}, {})", setting.env, setting.shown(text)),
            None => format!("{} ({key})", setting.env),
        }
    }

    /// The effective value as it may be shown; empty if it is not set.
    pub fn shown(&self, key: &str) -> String {
        let setting = self.setting(key);
        let text = self.text(setting);
        text.map(|text| setting.shown(text)).unwrap_or_default()
    }

    /// Where the value came from, in words; `None` if it is not set.
    pub fn origin(&self, key: &str) -> Option<&str> {
        let resolved = self.resolved.get(self.setting(key).key)?;
        Some(&resolved.origin)
    }

    /// The end of a note: where a value came from.
    pub fn source(&self, key: &str) -> String {
        match self.origin(key) {
            Some(origin) => format!(" ({origin})"),
            None => String::new(),
        }
    }

    /// Adds the mistake that the value of `key` is not what is `expected`. Only the first mistake of
    /// a setting is added.
    pub fn reject(&mut self, key: &str, expected: &str) {
        let setting = self.setting(key);
        if self.wrong.insert(setting.key) {
            let given = match self.resolved.get(setting.key) {
                Some(Resolved { text, origin, .. }) => setting.shown_as_given(text, origin),
                None => "not set".to_owned(),
            };
            let env = setting.env;
            self.complain(format!("{env} ({key}) is {given}: expected {expected}"));
        }
    }

    /// Adds the mistake that one setting `must` something of another one, unless they fit together.
    pub fn require(&mut self, fits: bool, one: &str, must: &str, other: &str, otherwise: &str) {
        if !fits {
            let (one, other) = (self.described(one), self.described(other));
            self.complain(format!("{one} must {must} {other}: otherwise {otherwise}"));
        }
    }

    /// Adds a mistake that does not belong to one setting, such as two that do not fit together. It must
    /// not hold a secret.
    pub fn complain(&mut self, mistake: impl Into<String>) {
        self.mistakes.push(mistake.into());
    }

    /// Adds a sentence about what the settings lead to, for `--check-config`. It must not hold a secret.
    pub fn note(&mut self, topic: &'static str, text: impl Into<String>) {
        self.notes.push((topic, text.into()));
    }

    fn setting(&self, key: &str) -> &'static Setting {
        let setting = self.settings.iter().find(|setting| setting.key == key);
        setting.unwrap_or_else(|| program_error(key, "is not in the table"))
    }

    /// The text of the value, or of the default if that is not of the setting's kind.
    fn text(&self, setting: &Setting) -> Option<&str> {
        match self.resolved.get(setting.key) {
            Some(resolved) if resolved.is_valid => Some(&resolved.text),
            _ => setting.default,
        }
    }
}

/// Panics: the table and the code that reads it do not fit together.
fn program_error(key: &str, what: &str) -> ! {
    panic!("the setting {key} {what}")
}
