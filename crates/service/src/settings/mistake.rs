//! What is wrong with a setting, in words an operator can act on.

use std::fmt;

use super::setting::Setting;

/// The longest piece of a value that a mistake shows, in characters.
const SHOWN_MAX: usize = 100;

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The table of the program.
    Default,
    /// The file of this name.
    File(String),
    /// The environment variable of this name.
    Environment(String),
    /// A service that the platform has bound.
    Binding {
        /// The environment variable that led to it.
        origin: &'static str,
        /// The name of the binding.
        name: String,
    },
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("the default"),
            Self::File(path) => write!(f, "the file {path}"),
            Self::Environment(name) => write!(f, "the environment variable {name}"),
            Self::Binding { origin, name } => write!(f, "{origin} (service '{name}')"),
        }
    }
}

/// One thing that is wrong with the settings. It never holds the value of a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake(String);

impl Mistake {
    /// A mistake that belongs to no one value.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// `text`, which came from `source`, is not what `setting` takes.
    pub(super) fn value(setting: &Setting, text: &str, source: &Source, expected: &str) -> Self {
        let shown = cut(&setting.shown(text));
        let shown = if setting.secret {
            shown
        } else {
            format!("{shown:?}")
        };
        Self(format!(
            "{} is {shown}, from {source}: expected {expected}",
            name(setting)
        ))
    }

    /// `setting` must be set and is not.
    pub(super) fn missing(setting: &Setting) -> Self {
        Self(format!(
            "{} is not set: expected {}",
            name(setting),
            setting.kind
        ))
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Both names of a setting: one of them is the one that was written.
fn name(setting: &Setting) -> String {
    format!("{} ({})", setting.env, setting.key)
}

/// A value can be a whole file by accident; its beginning is enough to recognise it.
fn cut(text: &str) -> String {
    match text.char_indices().nth(SHOWN_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::setting::Kind;
    use super::*;

    #[test]
    fn names_the_setting_the_value_its_origin_and_what_is_expected() {
        let setting = Setting::new("http.port", "PORT", Kind::Integer { min: 1, max: 9 }, "It.");
        let source = Source::File("some.toml".to_owned());
        assert_eq!(
            Mistake::value(&setting, "a\nb", &source, "a whole number").to_string(),
            r#"PORT (http.port) is "a\nb", from the file some.toml: expected a whole number"#,
        );
        assert_eq!(
            Mistake::missing(&setting).to_string(),
            "PORT (http.port) is not set: expected a whole number from 1 to 9",
        );
    }

    #[test]
    fn hides_secrets_and_cuts_what_is_long() {
        let setting = Setting::new("a.b", "B", Kind::Text, "It.");
        let long = "x".repeat(500);
        let shown = Mistake::value(&setting, &long, &Source::Default, "less").to_string();
        assert!(shown.len() < 200 && shown.contains("x…"), "{shown}");
        let source = Source::Binding {
            origin: "VCAP_SERVICES",
            name: "db".to_owned(),
        };
        let shown = Mistake::value(&setting.secret(), "hunter2", &source, "more").to_string();
        assert_eq!(
            shown,
            "B (a.b) is <hidden>, from VCAP_SERVICES (service 'db'): expected more"
        );
    }
}
