//! The keys that tokens are checked with: the configured one, or those of a token server.

use std::collections::BTreeMap;
use std::fmt;

use aws_lc_rs::rsa::PublicKey;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED, ParsedPublicKey, RsaPublicKeyComponents};
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, PublicKeyUse};
use jsonwebtoken::{DecodingKey, DecodingKeyKind};
use serde_json::Value;

use crate::algorithm::{Algorithm, Family};

/// The most keys that are taken from one server; more are a mistake, or an attack.
const FETCHED_MAX: usize = 64;

/// The length of RSA moduli that are believed, in bytes: 2048 to 8192 bits.
const MODULUS_LEN: std::ops::RangeInclusive<usize> = 256..=1024;

/// What begins a key that is written as PEM.
const PEM_START: &str = "-----BEGIN";

/// Keys for one algorithm.
#[derive(Clone)]
pub struct Keys(Kind);

#[derive(Clone)]
enum Kind {
    /// For all tokens, whatever key they name.
    Configured(DecodingKey),
    /// By their names (`kid`); one without a name is for tokens that name none.
    Fetched(BTreeMap<Option<String>, DecodingKey>),
}

/// A key cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// A shared key was given as PEM, or what should be PEM is none. Taken as a shared key, a
    /// public one would let in whoever has read it.
    #[error(
        "the key does not fit the algorithm: HS* needs a shared key, the others a public one as PEM"
    )]
    Family,
    /// It cannot be read, or is a private one, or of another kind.
    #[error("the key is no public key of the kind that the algorithm needs, as PEM")]
    Unreadable,
    /// An RSA key of less than 2048 bits, or of more than 8192.
    #[error("the RSA key does not have 2048 to 8192 bits")]
    Length,
    /// The answer of the token server is no list of keys.
    #[error("the answer of the token server is no list of keys")]
    NoList,
    /// None of the keys of the token server is of the kind that is needed.
    #[error("the token server has no key for the algorithm")]
    NoneFits,
}

impl Keys {
    /// The one key that was configured. Line breaks of a PEM may be written as `\n`.
    ///
    /// # Errors
    /// Where it cannot be used with `algorithm`.
    pub fn configured(text: &str, algorithm: Algorithm) -> Result<Self, KeyError> {
        let is_pem = text.trim_start().starts_with(PEM_START);
        let key = match (algorithm.family(), is_pem) {
            (Family::Shared, false) if !text.is_empty() => {
                DecodingKey::from_secret(text.as_bytes())
            }
            (Family::Rsa, true) => rsa_from_pem(&with_line_breaks(text))?,
            (Family::P256, true) => p256_from_pem(&with_line_breaks(text))?,
            (Family::Shared | Family::Rsa | Family::P256, _) => return Err(KeyError::Family),
        };
        Ok(Self(Kind::Configured(key)))
    }

    /// Whether a shared key is shorter than RFC 7518 wants it, and could be guessed.
    pub fn is_short(text: &str, algorithm: Algorithm) -> bool {
        text.len() < algorithm.shared_key_len()
    }

    /// The keys of a token server that are for `algorithm` (RFC 7517). Shared keys are never taken
    /// from there, nor anything but the key itself: no certificates, no addresses.
    ///
    /// # Errors
    /// Where there is none, or no list of keys at all.
    pub fn fetched(document: &Value, algorithm: Algorithm) -> Result<Self, KeyError> {
        let list = document.get("keys").and_then(Value::as_array);
        let mut keys = BTreeMap::new();
        for entry in list.ok_or(KeyError::NoList)?.iter().take(FETCHED_MAX) {
            // What cannot be read may be for somebody else.
            let Ok(jwk) = serde_json::from_value::<Jwk>(entry.clone()) else {
                continue;
            };
            if let Some(key) = usable(&jwk, algorithm) {
                // The first of a name stays: nobody can take its place by adding another.
                keys.entry(jwk.common.key_id).or_insert(key);
            }
        }
        if keys.is_empty() {
            return Err(KeyError::NoneFits);
        }
        Ok(Self(Kind::Fetched(keys)))
    }

    /// The key for a token that names `id`, or none.
    pub(crate) fn find(&self, id: Option<&str>) -> Option<&DecodingKey> {
        match (&self.0, id) {
            (Kind::Configured(key), _) => Some(key),
            (Kind::Fetched(keys), Some(id)) => keys.get(&Some(id.to_owned())),
            // Without a name there must be no choice.
            (Kind::Fetched(keys), None) => match keys.len() {
                1 => keys.values().next(),
                _ => keys.get(&None),
            },
        }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        match &self.0 {
            Kind::Configured(_) => 1,
            Kind::Fetched(keys) => keys.len(),
        }
    }
}

/// Keys are nobody's business, not even public ones.
impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Keys({})", self.count())
    }
}

/// Manifests and shells often cannot hold a line break.
fn with_line_breaks(text: &str) -> String {
    text.trim().replace("\\n", "\n")
}

fn rsa_from_pem(pem: &str) -> Result<DecodingKey, KeyError> {
    let key = DecodingKey::from_rsa_pem(pem.as_bytes()).map_err(|_| KeyError::Unreadable)?;
    let der = key.try_get_as_bytes().map_err(|_| KeyError::Unreadable)?;
    // The library would take the private half as well, and then believe no token.
    let public = PublicKey::from_der(der).map_err(|_| KeyError::Unreadable)?;
    let RsaPublicKeyComponents { n, e } = RsaPublicKeyComponents::<Vec<u8>>::from(&public);
    if !MODULUS_LEN.contains(&n.len()) {
        return Err(KeyError::Length);
    }
    Ok(DecodingKey::from_rsa_raw_components(&n, &e))
}

fn p256_from_pem(pem: &str) -> Result<DecodingKey, KeyError> {
    let key = DecodingKey::from_ec_pem(pem.as_bytes()).map_err(|_| KeyError::Unreadable)?;
    if is_on_p256(&key) {
        Ok(key)
    } else {
        Err(KeyError::Unreadable)
    }
}

fn is_on_p256(key: &DecodingKey) -> bool {
    let point = key.try_get_as_bytes().unwrap_or_default();
    ParsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).is_ok()
}

/// The key, if it is one for `algorithm` and not meant for anything else.
fn usable(jwk: &Jwk, algorithm: Algorithm) -> Option<DecodingKey> {
    let common = &jwk.common;
    let signs = matches!(common.public_key_use, None | Some(PublicKeyUse::Signature));
    let names_it = |named: jsonwebtoken::jwk::KeyAlgorithm| named.to_string() == algorithm.name();
    if !signs || !common.key_algorithm.is_none_or(names_it) {
        return None;
    }
    let key = DecodingKey::from_jwk(jwk).ok()?;
    let fits = match (algorithm.family(), &jwk.algorithm, key.kind()) {
        (
            Family::Rsa,
            AlgorithmParameters::RSA(_),
            DecodingKeyKind::RsaModulusExponent { n, .. },
        ) => {
            let zeros = n.iter().take_while(|byte| **byte == 0).count();
            MODULUS_LEN.contains(&(n.len() - zeros))
        }
        (Family::P256, AlgorithmParameters::EllipticCurve(curve), _) => {
            curve.curve == EllipticCurve::P256 && is_on_p256(&key)
        }
        _ => false,
    };
    fits.then_some(key)
}
