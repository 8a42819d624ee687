//! The macro that declares settings. A declaration becomes a struct with a typed field for each
//! setting, the table of these settings, and the function that reads the struct.

use std::path::PathBuf;
use std::time::Duration;

use secrecy::SecretString;
use url::Url;

use super::parse;
use super::setting::Kind;

/// Declares groups of settings; `crates/service/tests/it/settings.rs` has an example.
///
/// A setting's key is its section and the name of its field; operators read the comment on it. Then
/// come its environment variable, its kind, and further methods of [`Setting`]: `or(default)`,
/// `secret()`. If the type does not implement [`FromText`], the function after `=>` parses the text.
///
/// A group has a `TABLE`, is `read` from a [`Reader`], and its `Default` is that of the table. If
/// `checked by` follows the section, that function checks the group, and complains to the reader.
///
/// [`FromText`]: crate::settings::FromText
/// [`Reader`]: crate::settings::Reader
/// [`Setting`]: crate::settings::Setting
#[macro_export]
macro_rules! settings {
    (@read $reader:ident, $key:expr) => { $reader.value($key) };
    (@read $reader:ident, $key:expr, $parse:expr) => { $reader.parsed($key, $parse) };
    ($(
        $(#[doc = $about:literal])+
        $vis:vis struct $group:ident($section:literal $(, checked by $check:path)?) {$(
            $(#[doc = $doc:literal])+
            $field:ident: $type:ty = $env:literal, $kind:expr
                $(, $more:ident($($argument:expr),*))* $(=> $parse:expr)?;
        )+}
    )+) => {$(
        $(#[doc = $about])+
        #[derive(Clone, Debug)]
        #[allow(clippy::doc_markdown, reason = "operators read the comments as they stand")]
        $vis struct $group {$(
            $(#[doc = $doc])+
            pub $field: $type,
        )+}

        impl $group {
            /// The settings of this group, in the order of their fields.
            pub const TABLE: [$crate::settings::Setting; [$(stringify!($field)),+].len()] = [$(
                $crate::settings::Setting::new(
                    concat!($section, ".", stringify!($field)),
                    $env,
                    $kind,
                    concat!($($doc),+).trim_ascii_start(),
                )$(.$more($($argument),*))*,
            )+];

            /// Reads the group.
            pub fn read(reader: &mut $crate::settings::Reader) -> Self {
                let group = Self {$(
                    $field: $crate::settings!(
                        @read reader, concat!($section, ".", stringify!($field)) $(, $parse)?
                    ),
                )+};
                $($check(&group, reader);)?
                group
            }
        }

        impl Default for $group {
            fn default() -> Self {
                Self::read(&mut $crate::settings::Reader::new(const { &Self::TABLE }))
            }
        }
    )+};
}

/// A type that the text of a setting converts to without a parse function.
pub trait FromText: Sized {
    /// Whether the settings of this type, and no others, are secret.
    const SECRET: bool = false;

    /// The value that `text` says, which is of `kind`; `None` if no text of this kind is of this type.
    fn from_text(text: &str, kind: Kind) -> Option<Self>;

    /// The value of a setting that is not set; `None` if it must have a default.
    fn if_unset() -> Option<Self> {
        None
    }
}

macro_rules! from_text {
    ($($($type:ty),+: |$text:ident, $kind:ident| $value:expr;)+) => {$($(
        impl FromText for $type {
            fn from_text($text: &str, $kind: Kind) -> Option<Self> {
                $value
            }
        }
    )+)+};
}

from_text! {
    bool: |text, _kind| text.parse().ok();
    u8, u16, u32, usize: |text, kind| kind.number(text)?.try_into().ok();
    u64: |text, kind| kind.number(text);
    Duration: |text, kind| kind.duration(text);
    Url: |text, _kind| parse::url(text);
    String, PathBuf: |text, _kind| Some(text.into());
}

impl FromText for SecretString {
    const SECRET: bool = true;

    fn from_text(text: &str, _: Kind) -> Option<Self> {
        Some(text.into())
    }
}

impl<T: FromText> FromText for Option<T> {
    const SECRET: bool = T::SECRET;

    fn from_text(text: &str, kind: Kind) -> Option<Self> {
        T::from_text(text, kind).map(Some)
    }

    fn if_unset() -> Option<Self> {
        Some(None)
    }
}

/// The type of a field that a parse function has made a `T` for: `T`, or `Option<T>`.
pub trait FromParsed<T>: Sized {
    /// The field with this value; `None` if it needs a value and there is none.
    fn from_parsed(value: Option<T>) -> Option<Self>;
}

impl<T> FromParsed<T> for T {
    fn from_parsed(value: Option<T>) -> Option<Self> {
        value
    }
}

impl<T> FromParsed<T> for Option<T> {
    fn from_parsed(value: Self) -> Option<Self> {
        Some(value)
    }
}
