//! The algorithms that sign tokens.

use std::fmt;

/// An algorithm that signs tokens. `none` is not among them. The algorithm is configured and the token
/// must name the same, so a public key is never used as a shared one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    Hs256,
    Hs384,
    Hs512,
    Rs256,
    Rs384,
    Rs512,
    Es256,
}

/// The kind of key that an algorithm needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    /// A key that both sides know.
    Shared,
    Rsa,
    /// The elliptic curve P-256.
    P256,
}

impl Algorithm {
    /// All algorithms, by their names in settings and tokens.
    pub const ALL: [(&'static str, Self); 7] = [
        ("HS256", Self::Hs256),
        ("HS384", Self::Hs384),
        ("HS512", Self::Hs512),
        ("RS256", Self::Rs256),
        ("RS384", Self::Rs384),
        ("RS512", Self::Rs512),
        ("ES256", Self::Es256),
    ];

    pub const NAMES: [&'static str; 7] = [
        "HS256", "HS384", "HS512", "RS256", "RS384", "RS512", "ES256",
    ];

    /// The name in tokens.
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    /// Whether the key that checks a token can also sign one. Such keys are never fetched.
    pub fn is_shared(self) -> bool {
        self.family() == Family::Shared
    }

    /// The least length of a shared key, in bytes (RFC 7518, section 3.2).
    pub fn shared_key_len(self) -> usize {
        match self {
            Self::Hs256 => 32,
            Self::Hs384 => 48,
            Self::Hs512 => 64,
            Self::Rs256 | Self::Rs384 | Self::Rs512 | Self::Es256 => 0,
        }
    }

    pub(crate) fn family(self) -> Family {
        match self {
            Self::Hs256 | Self::Hs384 | Self::Hs512 => Family::Shared,
            Self::Rs256 | Self::Rs384 | Self::Rs512 => Family::Rsa,
            Self::Es256 => Family::P256,
        }
    }

    /// The same algorithm in the library that checks signatures.
    pub(crate) fn of_library(self) -> jsonwebtoken::Algorithm {
        use jsonwebtoken::Algorithm as Theirs;
        match self {
            Self::Hs256 => Theirs::HS256,
            Self::Hs384 => Theirs::HS384,
            Self::Hs512 => Theirs::HS512,
            Self::Rs256 => Theirs::RS256,
            Self::Rs384 => Theirs::RS384,
            Self::Rs512 => Theirs::RS512,
            Self::Es256 => Theirs::ES256,
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_belong_to_their_algorithms() {
        for ((name, algorithm), also) in Algorithm::ALL.into_iter().zip(Algorithm::NAMES) {
            assert_eq!((algorithm.name(), also), (name, name));
            assert_eq!(format!("{:?}", algorithm.of_library()), name);
        }
    }
}
