//! Checks a token. The check is a pure function of the token, the keys, the time and the policy;
//! `jsonwebtoken` decides whether the signature is good.

use std::collections::BTreeSet;
use std::time::Duration;

use jsonwebtoken::dangerous::insecure_decode;
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Validation, decode, decode_header};
use sampler_domain::{ClientId, Timestamp};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::algorithm::Algorithm;
use super::audience::Audiences;
use super::discovery::same_but_for_slash;
use super::keys::Keys;

/// In bytes.
pub const TOKEN_LEN_MAX: usize = 16 * 1024;

/// By how much the clocks of both sides may differ.
const LEEWAY: Duration = Duration::from_secs(10);

/// The types (`typ`) of access tokens, in lower case. Tokens for other purposes, such as a logout, are
/// signed with the same keys.
const TYPES: [&str; 3] = ["jwt", "at+jwt", "application/at+jwt"];

/// The end of the ids (`jti`) of UAA's refresh tokens. They are signed with the same keys and have the
/// same scopes, but only the token server may accept them, and they are valid for months.
const REFRESH_TOKEN_ID_END: &str = "-r";

/// The conditions for a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    pub algorithm: Algorithm,
    /// The issuer that the token must name, if an issuer is configured; otherwise the issuer of the
    /// keys, if they have one. A slash at the end does not count.
    pub issuer: Option<String>,
    pub audiences: Option<Audiences>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claims {
    /// The client that got the token, or else its subject.
    pub client: Option<ClientId>,
    /// The user in whose name the client got the token, if the token names a user.
    pub user: Option<ClientId>,
    pub scopes: BTreeSet<String>,
}

/// Why a token is not accepted. It contains nothing of the token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// Longer than [`TOKEN_LEN_MAX`].
    #[error("it is too long")]
    TooLong,
    /// Not three parts of base64 and JSON, or with a claim that occurs twice or has the wrong type.
    #[error("it is malformed")]
    Malformed,
    #[error("it is signed with another algorithm")]
    Algorithm,
    /// It names an unknown key, or none although there are several.
    #[error("it is signed with an unknown key")]
    UnknownKey,
    #[error("its signature is wrong")]
    Signature,
    #[error("it is not an access token")]
    Type,
    #[error("it has no expiry (exp)")]
    NoEnd,
    /// It is bound to a key or a certificate of its sender, which the receiver cannot check.
    #[error("it is bound to its sender (cnf), so it is not a bearer token")]
    SenderBound,
    #[error("it has expired")]
    Expired,
    #[error("it is not valid yet")]
    NotYet,
    #[error("it is from another issuer")]
    Issuer,
    #[error("it is for another audience")]
    Audience,
    #[error("it belongs to another attempt to sign in")]
    Nonce,
}

/// The claims that are checked or read. One that occurs twice is an error.
#[derive(Deserialize)]
struct Body {
    /// In seconds, as `nbf`.
    exp: Option<f64>,
    nbf: Option<f64>,
    iss: Option<String>,
    aud: Option<OneOrMany>,
    scope: Option<OneOrMany>,
    /// The scopes of Okta and Entra.
    scp: Option<OneOrMany>,
    user_name: Option<String>,
    preferred_username: Option<String>,
    client_id: Option<String>,
    azp: Option<String>,
    sub: Option<String>,
    jti: Option<String>,
    cnf: Option<serde_json::Value>,
}

/// A claim that is one text or a list of them.
#[derive(Deserialize)]
#[serde(untagged)]
enum OneOrMany {
    One(String),
    Many(Vec<String>),
}

/// Checks `token` at `now`.
///
/// # Errors
/// The reason why it is not accepted. Only for [`TokenError::UnknownKey`] can newer keys help.
pub fn verify(
    token: &str,
    keys: &Keys,
    now: Timestamp,
    policy: &Policy,
) -> Result<Claims, TokenError> {
    let body = check(token, keys, now, policy)?;
    let scopes = body.scope.into_iter().chain(body.scp);
    Ok(Claims {
        scopes: scopes.flat_map(OneOrMany::scopes).collect(),
        client: first_name([body.client_id, body.azp, body.sub]),
        user: first_name([body.user_name, body.preferred_username]),
    })
}

/// Checks `token` at `now`, and reads its body as something else than the claims of an access token.
pub(crate) fn verified_body<T: DeserializeOwned>(
    token: &str,
    keys: &Keys,
    now: Timestamp,
    policy: &Policy,
) -> Result<T, TokenError> {
    check(token, keys, now, policy)?;
    signed_body(token, keys, policy)
}

fn check(token: &str, keys: &Keys, now: Timestamp, policy: &Policy) -> Result<Body, TokenError> {
    let body: Body = signed_body(token, keys, policy)?;
    check_time(&body, now)?;
    check_kind(&body)?;
    let issuer = policy.issuer.as_deref().or(keys.issuer());
    check_parties(&body, issuer, policy.audiences.as_ref())?;
    Ok(body)
}

/// The body of a token whose signature is good. Its claims are not checked: the time is an argument of
/// [`verify`], which the library does not take.
fn signed_body<T: DeserializeOwned>(
    token: &str,
    keys: &Keys,
    policy: &Policy,
) -> Result<T, TokenError> {
    if token.len() > TOKEN_LEN_MAX {
        return Err(TokenError::TooLong);
    }
    let header = decode_header(token).map_err(|_| TokenError::Malformed)?;
    let algorithm = policy.algorithm.of_library();
    if header.alg != algorithm {
        return Err(TokenError::Algorithm);
    }
    // Critical headers must be understood (RFC 7515, section 4.1.11), and this code understands none.
    if header.crit.is_some() {
        return Err(TokenError::Malformed);
    }
    let kind = header.typ.map(|typ| typ.to_ascii_lowercase());
    if kind.is_some_and(|kind| !TYPES.contains(&kind.as_str())) {
        return Err(TokenError::Type);
    }
    let key = keys
        .find(header.kid.as_deref())
        .ok_or(TokenError::UnknownKey)?;
    let mut validation = Validation::new(algorithm);
    validation.required_spec_claims.clear();
    validation.validate_exp = false;
    validation.validate_aud = false;
    let decoded = decode(token, key, &validation).map_err(|error| match error.kind() {
        ErrorKind::Base64(_) | ErrorKind::Json(_) | ErrorKind::Utf8(_) => TokenError::Malformed,
        _ => TokenError::Signature,
    })?;
    Ok(decoded.claims)
}

fn first_name<const N: usize>(names: [Option<String>; N]) -> Option<ClientId> {
    names
        .into_iter()
        .flatten()
        .find_map(|name| ClientId::new(&name))
}

/// Checks the times of a token: seconds, perhaps with decimals. Numbers in JSON are finite.
fn check_time(body: &Body, now: Timestamp) -> Result<(), TokenError> {
    let now = now.as_millis() as f64 / 1000.0;
    let leeway = LEEWAY.as_secs_f64();
    if now >= body.exp.ok_or(TokenError::NoEnd)? + leeway {
        return Err(TokenError::Expired);
    }
    match body.nbf {
        Some(from) if now + leeway < from => Err(TokenError::NotYet),
        Some(_) | None => Ok(()),
    }
}

/// Refuses a token that is bound to its sender (RFC 7800; by a certificate RFC 8705, by `DPoP`
/// RFC 9449). It needs a proof that is not checked here; without that check a thief could use it.
fn check_kind(body: &Body) -> Result<(), TokenError> {
    let id = body.jti.as_deref();
    if id.is_some_and(|id| id.ends_with(REFRESH_TOKEN_ID_END)) {
        return Err(TokenError::Type);
    }
    if body.cnf.is_some() {
        return Err(TokenError::SenderBound);
    }
    Ok(())
}

fn check_parties(
    body: &Body,
    issuer: Option<&str>,
    audiences: Option<&Audiences>,
) -> Result<(), TokenError> {
    if let Some(expected) = issuer {
        let issuer = body.iss.as_deref();
        if !issuer.is_some_and(|issuer| same_but_for_slash(issuer, expected)) {
            return Err(TokenError::Issuer);
        }
    }
    if let Some(expected) = audiences {
        let meant = match &body.aud {
            Some(OneOrMany::One(audience)) => expected.accept(audience),
            Some(OneOrMany::Many(audiences)) => audiences.iter().any(|it| expected.accept(it)),
            None => false,
        };
        if !meant {
            return Err(TokenError::Audience);
        }
    }
    Ok(())
}

/// When a token says that it expires, in seconds. To be asked of tokens that are verified.
pub fn claimed_end(token: &str) -> Option<f64> {
    #[derive(Deserialize)]
    struct End {
        exp: Option<f64>,
    }
    let token = insecure_decode::<End>(token).ok()?;
    token.claims.exp
}

impl OneOrMany {
    /// The scopes: a list, as UAA writes them, or a text with spaces (RFC 9068).
    fn scopes(self) -> Vec<String> {
        match self {
            Self::One(text) => text
                .split(' ')
                .filter(|scope| !scope.is_empty())
                .map(str::to_owned)
                .collect(),
            Self::Many(list) => list,
        }
    }
}
