//! The client that reports an event.

use std::fmt;

/// The OAuth client that reported an event, as its token names it: 1 to 255 bytes without control
/// characters. A longer name is cut, because it is kept and logged.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientId(String);

impl ClientId {
    /// The greatest length, in bytes: as long as the ids of clients in UAA can be.
    pub const LEN_MAX: usize = 255;

    /// Replaces a control character.
    const REPLACEMENT: char = '?';

    /// Takes a name from a token. An empty one does not count as a name.
    pub fn new(text: &str) -> Option<Self> {
        let mut end = text.len().min(Self::LEN_MAX);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let plain = |letter: char| {
            if letter.is_control() {
                Self::REPLACEMENT
            } else {
                letter
            }
        };
        let name: String = text[..end].chars().map(plain).collect();
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
