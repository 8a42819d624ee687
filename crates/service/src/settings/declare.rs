//! The one place where a setting is named: a declaration becomes a struct with a typed field for
//! each setting, the table of them, and how the one is read from the other.

use std::path::PathBuf;
use std::time::Duration;

use secrecy::SecretString;
use url::Url;

use super::setting::Value;

/// Declares groups of settings.
///
/// ```
/// use std::time::Duration;
/// use sampler_service::settings::Kind;
///
/// sampler_service::settings! {
///     /// How long things take.
///     pub struct TimeSettings("time") {
///         /// How long one thing may take.
///         thing: Duration = "SAMPLER_THING", Kind::time(Duration::ZERO, Duration::MAX), or("5s");
///         /// A thing with an initial.
///         initial: Option<char> = "INITIAL", Kind::Text, secret() => initial;
///     }
/// }
///
/// fn initial(text: &str) -> Result<char, String> {
///     text.chars().next().ok_or_else(|| "a letter".to_owned())
/// }
///
/// assert_eq!(TimeSettings::TABLE[0].key, "time.thing");
/// assert_eq!(TimeSettings::default().thing, Duration::from_secs(5));
/// ```
///
/// A setting's key is its section and the name of its field; the comment on it is what operators
/// read about it. Then come its environment variable, its kind, and what [`Setting`] can say more:
/// `or(default)`, `required()`, `secret()`. After `=>` stands the function that makes the value from
/// the text, where its type is not one of those that [`Given`] is known for.
///
/// A group has a `TABLE`, is `read` from a [`Reader`], and its `Default` is that of the table. It
/// is `checked by` a function of the group and the reader, if one is named after the section.
///
/// [`Given`]: crate::settings::Given
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
            pub fn read(reader: &mut $crate::settings::Reader<'_>) -> Self {
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
                Self::read(&mut $crate::settings::Reader::of_defaults(const { &Self::TABLE }))
            }
        }
    )+};
}

/// A type that a setting can have as it is, without a function that reads it.
pub trait Given: Sized {
    /// Whether only a secret can be of this type.
    const SECRET: bool = false;

    /// The value of this type; none where it is of another.
    fn given(value: Value) -> Option<Self>;

    /// The value where nothing is set; none where something must be.
    fn absent() -> Option<Self> {
        None
    }
}

/// Implements [`Given`] for types that one variant of [`Value`] can become.
macro_rules! given {
    ($($type:ty: $variant:ident($value:ident) => $given:expr;)+) => {$(
        impl Given for $type {
            fn given(value: Value) -> Option<Self> {
                match value {
                    Value::$variant($value) => $given,
                    _ => None,
                }
            }
        }
    )+};
}

given! {
    bool: Boolean(value) => Some(value);
    u8: Number(number) => number.try_into().ok();
    u16: Number(number) => number.try_into().ok();
    u32: Number(number) => number.try_into().ok();
    u64: Number(number) => Some(number);
    usize: Number(number) => number.try_into().ok();
    Duration: Duration(length) => Some(length);
    Url: Url(url) => Some(url);
    String: Text(text) => Some(text);
    PathBuf: Text(text) => Some(text.into());
}

impl Given for SecretString {
    const SECRET: bool = true;

    fn given(value: Value) -> Option<Self> {
        String::given(value).map(Self::from)
    }
}

impl<T: Given> Given for Option<T> {
    const SECRET: bool = T::SECRET;

    fn given(value: Value) -> Option<Self> {
        T::given(value).map(Some)
    }

    fn absent() -> Option<Self> {
        Some(None)
    }
}

/// A field for a `T` that a function has read: one that is always there, or one that need not be.
pub trait Holds<T>: Sized {
    /// The field with this value; none where it cannot be without.
    fn hold(value: Option<T>) -> Option<Self>;
}

impl<T> Holds<T> for T {
    fn hold(value: Option<T>) -> Option<Self> {
        value
    }
}

impl<T> Holds<T> for Option<T> {
    fn hold(value: Self) -> Option<Self> {
        Some(value)
    }
}
