//! Enums whose variants have names in documents and answers.

/// Gives an enum the lists of its variants, `ALL`, and of their names, `NAMES`; `name` and `from_name` lead
/// from one to the other.
#[macro_export]
macro_rules! named {
    ($vis:vis $type:ident: $($variant:ident = $name:literal),+) => {
        impl $type {
            $vis const ALL: [Self; [$($name),+].len()] = [$(Self::$variant),+];

            $vis const NAMES: [&str; Self::ALL.len()] = [$($name),+];

            $vis const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }

            $vis fn from_name(name: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|it| it.name() == name)
            }
        }
    };
}
