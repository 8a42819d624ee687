//! Identifiers that providers choose.

use std::fmt;

use serde::{Deserialize, Serialize};

/// An identifier as a provider writes it: 1 to 1,024 bytes of UTF-8 without control characters.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Id(String);

/// The `id` of an event, by which a repeat is recognised (section 3 of the paper).
pub type EventId = Id;

/// Why a text is not an [`Id`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    #[error("must not be empty")]
    Empty,
    /// The text is longer than [`Id::LEN_MAX`]; holds its length in bytes.
    #[error("must be at most {max} bytes long, but is {0}", max = Id::LEN_MAX)]
    TooLong(usize),
    /// The text holds a control character.
    #[error("must not contain control characters")]
    ControlCharacter,
}

/// Stands between `source` and `id` of a CloudEvent: the separator of units of ASCII.
const JOINT: char = '\u{1f}';

impl Id {
    /// The greatest length, in bytes.
    pub const LEN_MAX: usize = 1024;

    /// Takes a provider's text.
    pub fn new(text: impl Into<String>) -> Result<Self, IdError> {
        let text = text.into();
        match text.len() {
            0 => Err(IdError::Empty),
            length if length > Self::LEN_MAX => Err(IdError::TooLong(length)),
            _ if has_control(&text) => Err(IdError::ControlCharacter),
            _ => Ok(Self(text)),
        }
    }

    /// The id of an event that its `source` distinguishes from the events of other sources. No id that a
    /// provider writes can be the same: it has no control character.
    pub fn joined(source: &Self, id: &Self) -> Result<Self, IdError> {
        let text = format!("{source}{JOINT}{id}");
        match text.len() {
            length if length > Self::LEN_MAX => Err(IdError::TooLong(length)),
            _ => Ok(Self(text)),
        }
    }

    /// Takes a text that is already in the store, whatever it is.
    ///
    /// The original Sampler accepted empty and endless ids. Their spans must be sampled as well;
    /// the upstream decides about their usages.
    pub fn from_store(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Whether a text has a control character. Nearly all ids are ASCII, whose bytes are compared many at
/// once, without a branch for each.
fn has_control(text: &str) -> bool {
    if text.is_ascii() {
        text.bytes()
            .fold(false, |has, byte| has | byte.is_ascii_control())
    } else {
        text.chars().any(char::is_control)
    }
}

impl TryFrom<String> for Id {
    type Error = IdError;
    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::new(text)
    }
}

impl From<Id> for String {
    fn from(id: Id) -> Self {
        id.0
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// The OAuth client that reported an event, as its token names it: 1 to 255 bytes without control
/// characters. A longer name is cut, because it is kept and logged.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(String);

impl ClientId {
    /// The greatest length, in bytes: as long as the ids of clients in UAA can be.
    pub const LEN_MAX: usize = 255;

    /// Replaces a control character.
    const REPLACEMENT: &str = "?";

    /// Takes a name from a token. An empty one does not count as a name.
    pub fn new(text: &str) -> Option<Self> {
        let mut end = text.len().min(Self::LEN_MAX);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let name = text[..end].replace(char::is_control, Self::REPLACEMENT);
        (!name.is_empty()).then_some(Self(name))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ClientId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_1_to_1024_bytes() {
        assert_eq!(Id::new(""), Err(IdError::Empty));
        assert!(Id::new("x").is_ok());
        assert!(Id::new("é".repeat(512)).is_ok());
        assert_eq!(Id::new("é".repeat(512) + "x"), Err(IdError::TooLong(1025)));
    }

    #[test]
    fn refuses_control_characters() {
        for text in ["a\0", "\n", "a\u{7f}b", "\u{85}"] {
            assert_eq!(Id::new(text), Err(IdError::ControlCharacter), "{text:?}");
        }
        assert!(Id::new("space and ünïcode 🎈").is_ok());
    }

    #[test]
    fn a_joined_id_is_no_id_that_a_provider_can_write() {
        let id = |text: &str| Id::new(text).unwrap();
        let joined = Id::joined(&id("/a"), &id("b")).unwrap();
        assert_eq!(joined.as_str(), "/a\u{1f}b");
        assert!(Id::new(joined.as_str()).is_err());
        let long = id(&"x".repeat(1_000));
        assert!(Id::joined(&long, &id(&"y".repeat(23))).is_ok());
        let too_long = Id::joined(&long, &id(&"y".repeat(24)));
        assert_eq!(too_long, Err(IdError::TooLong(1_025)));
    }

    #[test]
    fn serde_goes_through_the_check() {
        assert!(serde_json::from_str::<Id>(r#""ok""#).is_ok());
        assert!(serde_json::from_str::<Id>(r#""""#).is_err());
        assert!(serde_json::from_str::<Id>(r#""\u0001""#).is_err());
    }

    #[test]
    fn a_name_is_kept_as_it_is_cut_and_free_of_control_characters() {
        let name = |text: &str| ClientId::new(text).map(|id| id.as_str().to_owned());
        assert_eq!(name("broker").as_deref(), Some("broker"));
        assert_eq!(name(""), None);
        assert_eq!(name("a\n{\"b\u{85}").as_deref(), Some("a?{\"b?"));
        assert_eq!(name(&"x".repeat(9_000)).map(|name| name.len()), Some(255));
        // 255 is in the middle of a letter of two bytes.
        assert_eq!(name(&"é".repeat(200)).map(|name| name.len()), Some(254));
    }
}
