//! Reading typed values without stopping at the first mistake.

use std::collections::{BTreeMap, BTreeSet};

use super::declare::{Given, Holds};
use super::layers::{Layers, Resolved};
use super::mistake::Mistake;
use super::program::Program;
use super::setting::{Setting, Value};

/// Hands out the values of settings, by their keys.
///
/// Reading always yields a value, so that all of them can be read and every mistake found: where
/// one is wrong or missing it yields some stand-in, and [`load`](super::load) throws everything
/// away in the end. Asking for a key that is not in the table, or for the wrong type, is a slip
/// of the program and panics.
pub struct Reader<'a> {
    settings: Vec<&'a Setting>,
    resolved: BTreeMap<&'static str, Resolved>,
    mistakes: Vec<Mistake>,
    /// Settings that were already found wrong: one mistake each is enough.
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
            wrong,
        }
    }

    /// Hands out the defaults of a table.
    pub fn of_defaults(table: &'a [Setting]) -> Self {
        Self {
            settings: table.iter().collect(),
            resolved: BTreeMap::new(),
            mistakes: Vec::new(),
            wrong: BTreeSet::new(),
        }
    }

    /// The value of a setting.
    pub fn value<T: Given>(&self, key: &str) -> T {
        let setting = self.setting(key);
        if T::SECRET != setting.secret {
            slip(key, "is a secret, or its type is one, but not both");
        }
        let value = self.in_force(setting);
        let value = value.or_else(|| setting.required.then(|| setting.kind.stand_in()));
        let given = value.map_or_else(T::absent, T::given);
        given.unwrap_or_else(|| {
            slip(
                key,
                "is of another type, or neither has a default nor must be",
            )
        })
    }

    /// The value of a setting whose text something else can read: `parse` yields it, or what it
    /// expected instead.
    pub fn parsed<T, F: Holds<T>>(
        &mut self,
        key: &str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> F {
        let setting = self.setting(key);
        let default = setting.default;
        let parsed = match self.in_force(setting) {
            Some(Value::Text(text)) => match parse(&text) {
                Ok(value) => Some(value),
                Err(expected) => {
                    self.reject(key, &expected);
                    default.and_then(|text| parse(text).ok())
                }
            },
            Some(_) => slip(key, "is no text"),
            None => None,
        };
        F::hold(parsed).unwrap_or_else(|| slip(key, "has no default that can be read"))
    }

    /// Where the value came from, in words; none where there is none.
    pub fn origin(&self, key: &str) -> Option<&str> {
        let resolved = self.resolved.get(self.setting(key).key)?;
        Some(&resolved.origin)
    }

    /// Adds the mistake that the value of `key` is not what is `expected`, as checks of several
    /// settings against each other find it. Once per setting: the first is what to mend.
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

    /// Adds a mistake that belongs to no one setting.
    pub fn complain(&mut self, mistake: impl Into<String>) {
        self.mistakes.push(Mistake::new(mistake));
    }

    pub(super) fn into_mistakes(self) -> Vec<Mistake> {
        self.mistakes
    }

    fn setting(&self, key: &str) -> &'a Setting {
        let setting = self.settings.iter().find(|setting| setting.key == key);
        setting.unwrap_or_else(|| slip(key, "is not in the table"))
    }

    /// A value that is wrong gives way to the default, so that reading can go on.
    fn in_force(&self, setting: &Setting) -> Option<Value> {
        let resolved = self.resolved.get(setting.key);
        let value = resolved.and_then(|resolved| resolved.value.clone());
        value.or_else(|| setting.kind.parse(setting.default?))
    }
}

fn slip(key: &str, what: &str) -> ! {
    panic!("the setting {key} {what}")
}
