//! Reading typed values without stopping at the first mistake.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::Setting;
use crate::value::Value;

/// How many characters of a wrong value a mistake shows: it may be a whole file by accident.
const SHOWN_MAX: usize = 100;

/// Returns the values of settings by their names, and collects mistakes.
///
/// It always returns a value, so that all settings are read and every mistake is found: for a value that is
/// wrong the default. A name that is not in the table is an error of the program: it panics.
pub struct Reader {
    settings: BTreeMap<&'static str, Setting>,
    /// What was set.
    texts: BTreeMap<&'static str, String>,
    /// Settings that have a mistake already: one for each is enough.
    wrong: BTreeSet<&'static str>,
    pub(crate) mistakes: Vec<String>,
}

impl Reader {
    /// Returns the defaults of settings; `defaults` are those that differ from their own.
    pub(crate) fn of_defaults(
        groups: &[&[Setting]],
        defaults: &[(&'static str, &'static str)],
    ) -> Self {
        let settings = groups.iter().copied().flatten();
        let mut settings: BTreeMap<_, _> = settings.map(|it| (it.name, *it)).collect();
        for (name, default) in defaults {
            settings
                .entry(name)
                .and_modify(|it| it.default = Some(default));
        }
        Self {
            settings,
            texts: BTreeMap::new(),
            wrong: BTreeSet::new(),
            mistakes: Vec::new(),
        }
    }

    /// Sets a value, over one that was set before. A setting of the other program and an empty text do not count.
    pub(crate) fn set(&mut self, name: &str, text: &str) {
        if let Some(setting) = self.settings.get(name).filter(|_| !text.is_empty()) {
            self.texts.insert(setting.name, text.to_owned());
        }
    }

    /// The value of a setting; its default after a mistake.
    pub(crate) fn value<T: Value>(&mut self, name: &str) -> T {
        self.checked(name, |_| true)
    }

    /// The value of a setting with a range.
    pub(crate) fn in_range<T: Value + PartialOrd>(&mut self, name: &str) -> T {
        let range = self.setting(name).range.expect("a range");
        let [min, max] = [range.0, range.1].map(|limit| T::parse(limit).expect("a valid limit"));
        self.checked(name, |value| (min..=max).contains(value))
    }

    fn checked<T: Value>(&mut self, name: &str, is_fine: impl FnOnce(&T) -> bool) -> T {
        let setting = self.setting(name);
        match self.texts.get(name).map(|text| T::parse(text)) {
            Some(Some(value)) if is_fine(&value) => return value,
            Some(_) => self.miss(name),
            None => {}
        }
        let default = setting.default.map_or(T::UNSET, T::parse);
        default.unwrap_or_else(|| panic!("the setting {name} has no default that is valid"))
    }

    /// Adds the mistake that the value of a setting is not what is `expected`.
    pub(crate) fn reject(&mut self, name: &str, expected: &str) {
        let setting = self.setting(name);
        if self.wrong.insert(setting.name) {
            let given = match self.texts.get(setting.name) {
                Some(_) if setting.is_secret => "not valid".to_owned(),
                Some(text) => format!("{:?}", text.chars().take(SHOWN_MAX).collect::<String>()),
                None => "not set".to_owned(),
            };
            self.complain(format!("{name} is {given}: expected {expected}"));
        }
    }

    /// Adds the mistake that a setting is wrong, or is needed and not set.
    pub(crate) fn miss(&mut self, name: &str) {
        let expected = self.setting(name).expected();
        self.reject(name, &expected);
    }

    /// Adds the mistake that one setting must be less than another one, unless it is.
    pub(crate) fn less(&mut self, one: (&str, Duration), other: (&str, Duration), why: &str) {
        if one.1 >= other.1 {
            let [one, other] = [one.0, other.0].map(|name| {
                let shown = self.shown(&self.setting(name));
                format!("{name} ({shown})")
            });
            self.complain(format!("{one} must be less than {other}: {why}"));
        }
    }

    /// Adds a mistake that does not belong to one setting. It must not hold a secret.
    pub(crate) fn complain(&mut self, mistake: impl Into<String>) {
        self.mistakes.push(mistake.into());
    }

    /// All settings with their values, as they may be shown.
    pub(crate) fn values(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let settings = self.settings.values();
        settings.map(|setting| (setting.name, self.shown(setting)))
    }

    fn shown<'r>(&'r self, setting: &Setting) -> &'r str {
        let set = self.texts.get(setting.name).map(String::as_str);
        match set.or(setting.default) {
            Some(_) if setting.is_secret => "<hidden>",
            other => other.unwrap_or("not set"),
        }
    }

    pub(crate) fn setting(&self, name: &str) -> Setting {
        let setting = self.settings.get(name).copied();
        setting.unwrap_or_else(|| panic!("{name} is no setting of this program"))
    }
}
