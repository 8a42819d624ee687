//! The keys that check tokens: the configured one, or those of a token server.

use std::collections::BTreeMap;
use std::fmt;

use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyOperations, PublicKeyUse};
use jsonwebtoken::{AlgorithmFamily, DecodingKey};
use serde_json::Value;

pub use jsonwebtoken::Algorithm;

/// The algorithms that may sign tokens. One of them is configured and the token must name the same, so a public key is
/// never used as a shared one.
pub const ALGORITHMS: [Algorithm; 7] = [
    Algorithm::HS256,
    Algorithm::HS384,
    Algorithm::HS512,
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::ES256,
];

/// The most keys that are accepted from one server.
const FETCHED_MAX: usize = 64;

const PEM_START: &str = "-----BEGIN";

/// The beginning of a public key as OpenSSH writes it.
const SSH_START: &str = "ssh-";

#[derive(Clone, Default)]
pub struct Keys {
    /// One key for all tokens, whatever key they name.
    configured: Option<DecodingKey>,
    /// Keys by name (`kid`). A key without a name is for tokens that name none.
    fetched: BTreeMap<Option<String>, DecodingKey>,
    issuer: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// A key as PEM or as OpenSSH writes it is configured as a shared key, or the text is not PEM where
    /// PEM is needed. With a public key as shared key, everybody could sign tokens.
    #[error(
        "the key does not fit the algorithm: HS* needs a shared key, which does not begin with \
         -----BEGIN or ssh-, the others a public key as PEM"
    )]
    Family,
    /// The key cannot be read, is private, or is of another kind.
    #[error("the key is not a public key in PEM, of the kind that the algorithm needs")]
    Unreadable,
}

/// Whether the key that checks a token can also sign one. Such keys are never fetched.
pub fn is_shared(algorithm: Algorithm) -> bool {
    algorithm.family() == AlgorithmFamily::Hmac
}

/// The least length of a shared key, in bytes (RFC 7518, section 3.2): a shorter one could be guessed.
pub fn shared_key_len(algorithm: Algorithm) -> usize {
    match algorithm {
        Algorithm::HS256 => 32,
        Algorithm::HS384 => 48,
        Algorithm::HS512 => 64,
        _ => 0,
    }
}

impl Keys {
    /// The configured key. Line breaks of a PEM may be written as `\n`, because manifests and shells often cannot
    /// contain them.
    pub fn configured(text: &str, algorithm: Algorithm) -> Result<Self, KeyError> {
        let pem = text.replace("\\n", "\n").trim().to_owned();
        let is_pem = pem.starts_with(PEM_START);
        let is_secret = !pem.is_empty() && !is_pem && !pem.starts_with(SSH_START);
        let key = match algorithm.family() {
            AlgorithmFamily::Hmac if is_secret => Ok(DecodingKey::from_secret(text.as_bytes())),
            AlgorithmFamily::Rsa if is_pem => DecodingKey::from_rsa_pem(pem.as_bytes()),
            AlgorithmFamily::Ec if is_pem => DecodingKey::from_ec_pem(pem.as_bytes()),
            _ => return Err(KeyError::Family),
        };
        // The library would accept a private key, which then verifies no token.
        let key = key.ok().filter(|_| !pem.contains("PRIVATE KEY-----"));
        Ok(Self {
            configured: Some(key.ok_or(KeyError::Unreadable)?),
            ..Self::default()
        })
    }

    /// The keys of a token server for `algorithm` (RFC 7517). Shared keys are ignored, and so are
    /// certificates and addresses. None where the document is no list of keys.
    ///
    /// A list without such a key is valid: then no token can be verified.
    pub fn fetched(document: &Value, algorithm: Algorithm) -> Option<Self> {
        let mut keys = Self::default();
        for entry in document.get("keys")?.as_array()?.iter().take(FETCHED_MAX) {
            // An unreadable key may be for another program.
            if let Ok(jwk) = serde_json::from_value::<Jwk>(entry.clone())
                && is_usable(&jwk, algorithm)
                && let Ok(key) = DecodingKey::from_jwk(&jwk)
            {
                // The first key of a name stays, so a later one cannot replace it.
                keys.fetched.entry(jwk.common.key_id).or_insert(key);
            }
        }
        Some(keys)
    }

    /// The same keys, for tokens of this issuer only.
    #[must_use]
    pub fn of_issuer(self, issuer: impl Into<String>) -> Self {
        let issuer = Some(issuer.into());
        Self { issuer, ..self }
    }

    pub fn issuer(&self) -> Option<&str> {
        self.issuer.as_deref()
    }

    /// The key for a token that names `id`, or none.
    pub(super) fn find(&self, id: Option<&str>) -> Option<&DecodingKey> {
        match id {
            _ if self.configured.is_some() => self.configured.as_ref(),
            // A token without a key name is only valid if there is a single key.
            None if self.fetched.len() == 1 => self.fetched.values().next(),
            _ => self.fetched.get(&id.map(str::to_owned)),
        }
    }

    pub fn count(&self) -> usize {
        self.fetched.len() + usize::from(self.configured.is_some())
    }
}

/// Keys are never printed, not even public ones.
impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Keys({})", self.count())
    }
}

/// Whether the key is for `algorithm` and for no other purpose.
fn is_usable(jwk: &Jwk, algorithm: Algorithm) -> bool {
    let common = &jwk.common;
    let signs = matches!(common.public_key_use, None | Some(PublicKeyUse::Signature));
    let operations = common.key_operations.as_deref();
    let verifies = operations.is_none_or(|all| all.contains(&KeyOperations::Verify));
    let named = common.key_algorithm.map(|named| named.to_string());
    let is_of_algorithm = named.is_none_or(|named| named == format!("{algorithm:?}"));
    let is_of_family = match (algorithm.family(), &jwk.algorithm) {
        (AlgorithmFamily::Rsa, AlgorithmParameters::RSA(_)) => true,
        (AlgorithmFamily::Ec, AlgorithmParameters::EllipticCurve(curve)) => {
            curve.curve == EllipticCurve::P256
        }
        _ => false,
    };
    signs && verifies && is_of_algorithm && is_of_family
}
