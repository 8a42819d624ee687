//! The algorithms that sign tokens.

use std::fmt;

use sampler_domain::named;

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

// The names are those in settings and in tokens.
named! {
    pub Algorithm: Hs256 = "HS256", Hs384 = "HS384", Hs512 = "HS512",
        Rs256 = "RS256", Rs384 = "RS384", Rs512 = "RS512", Es256 = "ES256"
}

impl Algorithm {
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
        for algorithm in Algorithm::ALL {
            assert_eq!(format!("{:?}", algorithm.of_library()), algorithm.name());
        }
    }
}
