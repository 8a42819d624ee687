//! A mistake in the settings, described so that an operator can correct it.

use std::fmt;

use super::setting::Setting;

/// How many characters of a value a mistake shows.
const SHOWN_MAX: usize = 100;

/// One mistake in the settings. It never contains the value of a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake(String);

impl Mistake {
    /// A mistake that does not belong to one setting.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The mistake that `text`, which came from `origin`, is not a value of `setting`.
    pub(super) fn value(setting: &Setting, text: &str, origin: &str, expected: &str) -> Self {
        let shown = cut(&setting.shown(text));
        let shown = if setting.secret {
            shown
        } else {
            format!("{shown:?}")
        };
        Self(format!(
            "{} is {shown}, from {origin}: expected {expected}",
            name(setting)
        ))
    }

    /// The mistake that `setting` must be set and is not.
    pub(super) fn missing(setting: &Setting, expected: &str) -> Self {
        let name = name(setting);
        Self(format!("{name} is not set: expected {expected}"))
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Both names of a setting: the operator has used one of them.
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
        assert_eq!(
            Mistake::value(&setting, "a\nb", "the file some.toml", "a whole number").to_string(),
            r#"PORT (http.port) is "a\nb", from the file some.toml: expected a whole number"#,
        );
        assert_eq!(
            Mistake::missing(&setting, "a whole number").to_string(),
            "PORT (http.port) is not set: expected a whole number",
        );
    }

    #[test]
    fn hides_secrets_and_cuts_what_is_long() {
        let setting = Setting::new("a.b", "B", Kind::Text, "It.");
        let long = "x".repeat(500);
        let shown = Mistake::value(&setting, &long, "the default", "less").to_string();
        assert!(shown.len() < 200 && shown.contains("x…"), "{shown}");
        let origin = "VCAP_SERVICES (service 'db')";
        let shown = Mistake::value(&setting.secret(), "hunter2", origin, "more").to_string();
        assert_eq!(
            shown,
            "B (a.b) is <hidden>, from VCAP_SERVICES (service 'db'): expected more"
        );
    }
}
