//! The keys that check tokens, and the check: `jsonwebtoken` decides on signature, times and issuer.

use std::fmt;
use std::time::Duration;

use jsonwebtoken::errors::{Error, ErrorKind};
use jsonwebtoken::jwk::{Jwk, KeyOperations, PublicKeyUse};
use jsonwebtoken::{AlgorithmFamily, DecodingKey, Validation, decode, decode_header};
use sampler_domain::{ClientId, Timestamp};
use serde::Deserialize;
use serde_json::Value;

pub use jsonwebtoken::Algorithm;

/// The algorithms that may sign tokens. One of them is configured and the token must name the same, so a public key is
/// never used as a shared one.
pub const ALGORITHMS: [Algorithm; 7] = {
    use Algorithm::{ES256, HS256, HS384, HS512, RS256, RS384, RS512};
    [HS256, HS384, HS512, RS256, RS384, RS512, ES256]
};

/// By how many seconds the clocks of both sides may differ.
const LEEWAY: u64 = 10;

/// The types (`typ`) of access tokens. Tokens for other purposes, such as a logout, are signed with the same keys.
const TYPES: [&str; 3] = ["jwt", "at+jwt", "application/at+jwt"];

/// The end of the ids (`jti`) of UAA's refresh tokens. Only the token server may accept them, and they live for months.
const REFRESH_TOKEN_ID_END: &str = "-r";

/// The least length of a shared key, in bytes (RFC 7518, section 3.2): a shorter one could be guessed. 0 where the keys
/// of the algorithm are public.
pub fn shared_key_len(algorithm: Algorithm) -> usize {
    match algorithm {
        Algorithm::HS256 => 32,
        Algorithm::HS384 => 48,
        Algorithm::HS512 => 64,
        _ => 0,
    }
}

/// The conditions for a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    pub algorithm: Algorithm,
    /// The issuer that the token must name; none for that of the token server whose keys are fetched. A slash at the
    /// end does not count.
    pub issuer: Option<String>,
    pub audiences: Option<Audiences>,
}

impl Policy {
    /// What the library checks. It has no patterns for audiences.
    pub(super) fn validation(&self) -> Validation {
        let mut validation = Validation::new(self.algorithm);
        validation.leeway = LEEWAY;
        validation.validate_nbf = true;
        validation.validate_aud = false;
        if let Some(issuer) = &self.issuer {
            let issuer = issuer.trim_end_matches('/');
            validation.set_issuer(&[issuer.to_owned(), format!("{issuer}/")]);
            validation.set_required_spec_claims(&["exp", "iss"]);
        }
        validation
    }
}

/// The audiences (`aud`) that a token may be for. A final `*` matches any longer audience: UAA writes one for each
/// scope, such as `abacus.sampler.postgres` for `abacus.sampler.postgres.write`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Audiences(Vec<String>);

impl Audiences {
    /// Reads a list with commas or spaces; none if the list is empty, or accepts every token.
    pub fn parse(text: &str) -> Option<Self> {
        let parts = text.split([',', ' ']).filter(|part| !part.is_empty());
        let all: Vec<String> = parts.map(str::to_owned).collect();
        let is_fine = !all.is_empty() && all.iter().all(|one| one != "*");
        is_fine.then_some(Self(all))
    }

    fn accept(&self, audience: &str) -> bool {
        self.0.iter().any(|one| match one.strip_suffix('*') {
            Some(start) => audience.len() > start.len() && audience.starts_with(start),
            None => audience == one,
        })
    }
}

impl fmt::Display for Audiences {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(","))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claims {
    /// The client that got the token, or else its subject.
    pub client: Option<ClientId>,
    /// The user in whose name the client got the token, if the token names a user.
    pub user: Option<ClientId>,
    pub scopes: Vec<String>,
    /// When the token expires.
    pub until: Timestamp,
}

/// Why a token is not accepted. It contains nothing of the token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// It names an unknown key, or none although there are several. Newer keys may help.
    #[error("its key is not known yet")]
    UnknownKey,
    #[error("{0}")]
    Refused(&'static str),
}

impl From<Error> for TokenError {
    fn from(error: Error) -> Self {
        Self::Refused(match error.kind() {
            ErrorKind::ExpiredSignature => "it has expired",
            ErrorKind::ImmatureSignature => "it is not valid yet",
            ErrorKind::InvalidIssuer => "it is from another issuer",
            ErrorKind::MissingRequiredClaim(claim) if claim == "iss" => "it names no issuer",
            ErrorKind::MissingRequiredClaim(_) => "it has no expiry (exp)",
            ErrorKind::Base64(_)
            | ErrorKind::Json(_)
            | ErrorKind::Utf8(_)
            | ErrorKind::InvalidClaimFormat(_) => "it is malformed",
            _ => "its signature is wrong",
        })
    }
}

/// The claims that are read. One that occurs twice is an error.
#[derive(Deserialize)]
struct Body {
    #[serde(default)]
    aud: Value,
    #[serde(default)]
    scope: Value,
    /// The scopes of Okta and Entra.
    #[serde(default)]
    scp: Value,
    user_name: Option<String>,
    preferred_username: Option<String>,
    email: Option<String>,
    client_id: Option<String>,
    azp: Option<String>,
    sub: Option<String>,
    nonce: Option<String>,
    jti: Option<String>,
    cnf: Option<Value>,
    exp: Option<f64>,
    /// Checked by the library, which would take one that occurs twice.
    #[serde(rename = "iss")]
    _iss: Option<String>,
}

/// A claim that is one text or a list of them, or is not there.
fn texts(claim: &Value) -> Vec<&str> {
    let list = claim.as_array().into_iter().flatten();
    let one = claim.as_str();
    list.filter_map(Value::as_str).chain(one).collect()
}

/// The scopes of a claim: a list, as UAA writes them, or a text with spaces (RFC 9068).
fn scopes(claim: &Value) -> Vec<&str> {
    match claim {
        Value::String(text) => text.split(' ').filter(|scope| !scope.is_empty()).collect(),
        list => texts(list),
    }
}

/// The first of these that is a name.
fn name<const N: usize>(names: [Option<String>; N]) -> Option<ClientId> {
    let mut names = names.into_iter().flatten();
    names.find_map(|name| ClientId::new(&name))
}

fn refused<T>(why: &'static str) -> Result<T, TokenError> {
    Err(TokenError::Refused(why))
}

/// Keys, and what the tokens must say that they sign. The library prints no key.
#[derive(Clone, Debug)]
pub struct Keys {
    /// With their names (`kid`).
    all: Vec<(Option<String>, DecodingKey)>,
    issuer: Option<String>,
    validation: Validation,
    audiences: Option<Audiences>,
}

/// With a public key as shared key, everybody could sign tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the key does not fit the algorithm: HS* needs a shared key, which does not begin with -----BEGIN or ssh-, the \
     others a public key of their kind as PEM"
)]
pub struct KeyError;

impl Keys {
    fn of(all: Vec<(Option<String>, DecodingKey)>, policy: &Policy) -> Self {
        Self {
            all,
            issuer: policy.issuer.clone(),
            validation: policy.validation(),
            audiences: policy.audiences.clone(),
        }
    }

    /// The configured key. Line breaks of a PEM may be written as `\n`, for manifests and shells.
    pub fn configured(text: &str, policy: &Policy) -> Result<Self, KeyError> {
        let pem = text.replace("\\n", "\n").trim().to_owned();
        let is_public = ["-----BEGIN", "ssh-"]
            .iter()
            .any(|start| pem.starts_with(start));
        let key = match policy.algorithm.family() {
            // The library would accept a private key, which then verifies no token.
            _ if pem.is_empty() || pem.contains("PRIVATE KEY-----") => None,
            AlgorithmFamily::Hmac if is_public => None,
            AlgorithmFamily::Hmac => Some(DecodingKey::from_secret(text.as_bytes())),
            AlgorithmFamily::Rsa => DecodingKey::from_rsa_pem(pem.as_bytes()).ok(),
            _ => DecodingKey::from_ec_pem(pem.as_bytes()).ok(),
        };
        Ok(Self::of(vec![(None, key.ok_or(KeyError)?)], policy))
    }

    /// The keys of a token server (RFC 7517), without those that can sign or are for something else: perhaps none is
    /// left. `None` where the document is no list of keys.
    pub fn fetched(document: &Value, policy: &Policy) -> Option<Self> {
        let entries = document.get("keys")?.as_array()?.iter();
        let keys = entries.filter_map(|entry| {
            // An unreadable key may be for another program.
            let jwk = Jwk::deserialize(entry).ok()?;
            let key = DecodingKey::from_jwk(&jwk).ok()?;
            is_for(&jwk, &key, policy.algorithm).then_some((jwk.common.key_id, key))
        });
        Some(Self::of(keys.collect(), policy))
    }

    pub fn count(&self) -> usize {
        self.all.len()
    }

    /// The issuer that tokens must name.
    pub(super) fn issuer(&self) -> Option<String> {
        self.issuer.clone()
    }

    /// The key for a token that names `id`. Where there is a single key, either may be without a name.
    fn find(&self, id: Option<&str>) -> Result<&DecodingKey, TokenError> {
        let found = match self.all.as_slice() {
            [only] if only.0.is_none() || id.is_none() => Some(only),
            all => all.iter().find(|(name, _)| name.as_deref() == id),
        };
        found.map(|(_, key)| key).ok_or(TokenError::UnknownKey)
    }

    /// Checks an access token.
    pub fn verify(&self, token: &str) -> Result<Claims, TokenError> {
        let body = self.check(token)?;
        let is_for = |expected: &Audiences| texts(&body.aud).iter().any(|one| expected.accept(one));
        if !self.audiences.as_ref().is_none_or(is_for) {
            return refused("it is for another audience");
        }
        let scopes = [&body.scope, &body.scp].map(scopes).concat();
        let end = Duration::try_from_secs_f64(body.exp.unwrap_or_default()).unwrap_or_default();
        let end = i64::try_from(end.as_millis()).unwrap_or(i64::MAX);
        Ok(Claims {
            scopes: scopes.into_iter().map(str::to_owned).collect(),
            client: name([body.client_id, body.azp, body.sub]),
            user: name([body.user_name, body.preferred_username]),
            until: Timestamp::clamped(end),
        })
    }

    /// The name of the person that an ID token is about (`OpenID` Connect Core, section 3.1.3.7), if that was made for
    /// this client and this attempt to sign in.
    pub fn person(&self, token: &str, client: &str, nonce: &str) -> Result<ClientId, TokenError> {
        let body = self.check(token)?;
        let audiences = texts(&body.aud);
        let is_party = match &body.azp {
            Some(party) => party == client,
            None => audiences.len() == 1,
        };
        if !audiences.contains(&client) || !is_party {
            return refused("it is for another audience");
        }
        if body.nonce.as_deref() != Some(nonce) {
            return refused("it belongs to another attempt to sign in");
        }
        let name = name([
            body.user_name,
            body.preferred_username,
            body.email,
            body.sub,
        ]);
        name.ok_or(TokenError::Refused("it names nobody"))
    }

    /// Checks what all tokens must be, and reads the claims of this one.
    fn check(&self, token: &str) -> Result<Body, TokenError> {
        let header = decode_header(token).map_err(|_| TokenError::Refused("it is malformed"))?;
        if !self.validation.algorithms.contains(&header.alg) {
            return refused("it is signed with another algorithm");
        }
        // Critical headers must be understood (RFC 7515, section 4.1.11), and this code understands none.
        if header.crit.is_some() {
            return refused("it is malformed");
        }
        let is_known = |kind: String| TYPES.iter().any(|known| kind.eq_ignore_ascii_case(known));
        if !header.typ.is_none_or(is_known) {
            return refused("it is not an access token");
        }
        let key = self.find(header.kid.as_deref())?;
        let body: Body = decode(token, key, &self.validation)?.claims;
        let is_of_refresh = |id: &str| id.ends_with(REFRESH_TOKEN_ID_END);
        if body.jti.as_deref().is_some_and(is_of_refresh) {
            return refused("it is not an access token");
        }
        // It needs a proof (RFC 7800) that is not checked here; without that check a thief could use it.
        if body.cnf.is_some() {
            return refused("it is bound to its sender (cnf), so it is not a bearer token");
        }
        Ok(body)
    }
}

/// Whether the key checks signatures of `algorithm`, and may be known to all.
fn is_for(jwk: &Jwk, key: &DecodingKey, algorithm: Algorithm) -> bool {
    let common = &jwk.common;
    let signs = matches!(common.public_key_use, None | Some(PublicKeyUse::Signature));
    let operations = common.key_operations.as_deref();
    let verifies = operations.is_none_or(|all| all.contains(&KeyOperations::Verify));
    let named = common.key_algorithm;
    let is_of_algorithm = named.is_none_or(|named| named == algorithm.into());
    let is_public = key.family() != AlgorithmFamily::Hmac && key.family() == algorithm.family();
    signs && verifies && is_of_algorithm && is_public
}
