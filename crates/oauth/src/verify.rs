//! Checks a token. The check is a pure function of the token, the keys, the time and the policy.

use std::collections::BTreeSet;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sampler_domain::{ClientId, Timestamp};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::algorithm::Algorithm;
use crate::audience::Audiences;
use crate::discovery::same_but_for_slash;
use crate::keys::Keys;

/// In bytes.
pub const TOKEN_LEN_MAX: usize = 16 * 1024;

/// The longest leeway for clocks that differ.
pub const LEEWAY_MAX: Duration = Duration::from_mins(1);

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
    /// How far in the future it may expire.
    pub lifetime_max: Duration,
    /// By how much clocks may differ; at most [`LEEWAY_MAX`].
    pub leeway: Duration,
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
    #[error("it expires too far in the future")]
    EndTooFar,
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

/// The header. Members with a key, or the address of one, are not read (`jwk`, `jku`, `x5c`, `x5u`).
#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    typ: Option<String>,
    #[serde(default)]
    crit: Option<serde_json::Value>,
}

/// The claims. A claim that occurs twice is an error.
#[derive(Deserialize)]
struct Body {
    exp: Option<f64>,
    nbf: Option<f64>,
    iss: Option<String>,
    aud: Option<OneOrMany>,
    scope: Option<OneOrMany>,
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
    let (body, _) = check(token, keys, now, policy)?;
    Ok(Claims {
        scopes: body.scope.map(scopes).unwrap_or_default(),
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
    let (_, body) = check(token, keys, now, policy)?;
    parse(body)
}

/// Checks `token` at `now`. Returns its claims, and the part of the token that has them.
fn check<'a>(
    token: &'a str,
    keys: &Keys,
    now: Timestamp,
    policy: &Policy,
) -> Result<(Body, &'a str), TokenError> {
    if token.len() > TOKEN_LEN_MAX {
        return Err(TokenError::TooLong);
    }
    let (message, signature) = token.rsplit_once('.').ok_or(TokenError::Malformed)?;
    let (header, body) = message.split_once('.').ok_or(TokenError::Malformed)?;
    let header: Header = parse(header)?;
    check_header(&header, policy)?;
    let key = keys
        .find(header.kid.as_deref())
        .ok_or(TokenError::UnknownKey)?;
    let algorithm = policy.algorithm.of_library();
    match jsonwebtoken::crypto::verify(signature, message.as_bytes(), key, algorithm) {
        Ok(true) => {}
        Ok(false) | Err(_) => return Err(TokenError::Signature),
    }
    // The claims are read only after the signature was verified.
    let claims: Body = parse(body)?;
    check_time(&claims, now, policy)?;
    check_kind(&claims)?;
    let issuer = policy.issuer.as_deref().or(keys.issuer());
    check_parties(&claims, issuer, policy.audiences.as_ref())?;
    Ok((claims, body))
}

fn first_name<const N: usize>(names: [Option<String>; N]) -> Option<ClientId> {
    names
        .into_iter()
        .flatten()
        .find_map(|name| ClientId::new(&name))
}

fn check_header(header: &Header, policy: &Policy) -> Result<(), TokenError> {
    if header.alg != policy.algorithm.name() {
        return Err(TokenError::Algorithm);
    }
    // Critical headers must be understood (RFC 7515, section 4.1.11), and this code understands none.
    if header.crit.is_some() {
        return Err(TokenError::Malformed);
    }
    match &header.typ {
        Some(typ) if !TYPES.contains(&typ.to_ascii_lowercase().as_str()) => Err(TokenError::Type),
        Some(_) | None => Ok(()),
    }
}

/// Checks the times of a token: seconds, perhaps with decimals. Numbers in JSON are finite.
fn check_time(body: &Body, now: Timestamp, policy: &Policy) -> Result<(), TokenError> {
    let now = now.as_millis() as f64 / 1000.0;
    let leeway = policy.leeway.min(LEEWAY_MAX).as_secs_f64();
    let until = body.exp.ok_or(TokenError::NoEnd)?;
    if now >= until + leeway {
        return Err(TokenError::Expired);
    }
    if until > now + leeway + policy.lifetime_max.as_secs_f64() {
        return Err(TokenError::EndTooFar);
    }
    let has_begun = body.nbf.is_none_or(|from| now + leeway >= from);
    if has_begun {
        Ok(())
    } else {
        Err(TokenError::NotYet)
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

/// The time (`iat`, in seconds) at which a token says that it was issued. The signature is not
/// verified: the time only decides whether to wait for newer keys.
pub fn claimed_issue(token: &str) -> Option<f64> {
    #[derive(Deserialize)]
    struct Issue {
        iat: Option<f64>,
    }
    let body = token.split('.').nth(1)?;
    let issue: Issue = parse(body).ok()?;
    issue.iat
}

/// When a token says that it expires, in seconds. To be asked of tokens that are verified.
pub fn claimed_end(token: &str) -> Option<f64> {
    #[derive(Deserialize)]
    struct End {
        exp: Option<f64>,
    }
    let body = token.split('.').nth(1)?;
    let end: End = parse(body).ok()?;
    end.exp
}

/// The scopes: a list, as UAA writes them, or a text with spaces (RFC 9068).
fn scopes(claim: OneOrMany) -> BTreeSet<String> {
    match claim {
        OneOrMany::One(text) => text
            .split(' ')
            .filter(|scope| !scope.is_empty())
            .map(str::to_owned)
            .collect(),
        OneOrMany::Many(list) => list.into_iter().collect(),
    }
}

/// Parses one part of a token, which must be an object. (The library would also read a structure from
/// a list.)
fn parse<T: DeserializeOwned>(part: &str) -> Result<T, TokenError> {
    let bytes = URL_SAFE_NO_PAD
        .decode(part)
        .map_err(|_| TokenError::Malformed)?;
    if bytes.trim_ascii_start().first() != Some(&b'{') {
        return Err(TokenError::Malformed);
    }
    serde_json::from_slice(&bytes).map_err(|_| TokenError::Malformed)
}
