//! Which field of a request is meant.

use std::fmt::{self, Write as _};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// The characters that are percent-encoded in the fragment of a URI.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b'!')
    .remove(b'$')
    .remove(b'&')
    .remove(b'\'')
    .remove(b'(')
    .remove(b')')
    .remove(b'*')
    .remove(b'+')
    .remove(b',')
    .remove(b';')
    .remove(b'=')
    .remove(b':')
    .remove(b'@')
    .remove(b'?');

/// The longest name that is written out, in characters: names of unknown fields are the client's.
const NAME_MAX: usize = 100;

/// A JSON Pointer (RFC 6901) as a URI fragment, the form that RFC 9457 shows:
/// `#/measured_usage/0/quantity`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pointer(String);

impl Pointer {
    /// The whole document.
    pub fn root() -> Self {
        Self("#".to_owned())
    }

    /// The member `name` of this object. A very long name is cut.
    #[must_use]
    pub fn field(mut self, name: &str) -> Self {
        let cut: String = name.chars().take(NAME_MAX).collect();
        let escaped = cut.replace('~', "~0").replace('/', "~1");
        let _ = write!(self.0, "/{}", utf8_percent_encode(&escaped, ENCODED));
        self
    }

    /// The element at `index` of this list, the first being 0.
    #[must_use]
    pub fn index(mut self, index: usize) -> Self {
        let _ = write!(self.0, "/{index}");
        self
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Pointer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<Pointer> for String {
    fn from(pointer: Pointer) -> Self {
        pointer.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn walks_down_from_the_root() {
        assert_eq!(Pointer::root().as_str(), "#");
        let pointer = Pointer::root()
            .field("measured_usage")
            .index(12)
            .field("measure");
        assert_eq!(pointer.to_string(), "#/measured_usage/12/measure");
    }

    #[test]
    fn escapes_what_has_a_meaning() {
        let field = |name: &str| Pointer::root().field(name).0;
        assert_eq!(field("a/b~c"), "#/a~1b~0c");
        assert_eq!(field("a b%\"^|#\\"), "#/a%20b%25%22%5E%7C%23%5C");
        assert_eq!(field("größe"), "#/gr%C3%B6%C3%9Fe");
        assert_eq!(field(""), "#/");
    }

    #[test]
    fn cuts_long_names() {
        let pointer = Pointer::root().field(&"x".repeat(10_000));
        assert_eq!(pointer.as_str().len(), 2 + NAME_MAX);
    }
}
