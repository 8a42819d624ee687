//! Whether a token may be believed: a pure function of the token, the keys, the moment and what
//! was agreed on.

use std::collections::BTreeSet;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sampler_domain::{ClientId, Timestamp};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::algorithm::Algorithm;
use crate::audience::Audiences;
use crate::keys::Keys;

/// The longest token that is looked at, in bytes.
pub const TOKEN_LEN_MAX: usize = 16 * 1024;

/// The longest leeway for clocks that differ.
pub const LEEWAY_MAX: Duration = Duration::from_mins(1);

/// Types that an access token may give itself, in lower case. Those for other purposes, such as
/// a logout, are signed with the same keys.
const TYPES: [&str; 3] = ["jwt", "at+jwt", "application/at+jwt"];

/// How UAA ends the ids of its refresh tokens. They are signed with the same keys and hold the
/// same scopes, but are for the token server alone, and live for months.
const REFRESH_TOKEN_ID_END: &str = "-r";

/// What a token must be to be believed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// How it must be signed.
    pub algorithm: Algorithm,
    /// The issuer that it must name, if that is configured; otherwise that of the keys, if they
    /// have one. A slash at the end does not count.
    pub issuer: Option<String>,
    /// For whom it must be meant, if that is configured.
    pub audiences: Option<Audiences>,
    /// For how long from now it may be valid at the most.
    pub lifetime_max: Duration,
    /// By how much clocks may differ; never more than [`LEEWAY_MAX`] counts.
    pub leeway: Duration,
}

/// The claims of a valid token.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claims {
    /// The client that it was given to, or else its subject.
    pub client: Option<ClientId>,
    /// What it allows.
    pub scopes: BTreeSet<String>,
}

/// Why a token is not accepted. It contains nothing of the token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// Longer than [`TOKEN_LEN_MAX`].
    #[error("it is too long")]
    TooLong,
    /// Not three parts of base64 and JSON, or with a claim twice or of the wrong type.
    #[error("it is malformed")]
    Malformed,
    /// Signed with another algorithm than the policy's.
    #[error("it is signed with another algorithm")]
    Algorithm,
    /// It names a key that is not known, or none where there are several.
    #[error("it is signed with an unknown key")]
    UnknownKey,
    /// The signature is not that of the key.
    #[error("its signature is wrong")]
    Signature,
    /// It is not an access token.
    #[error("it is not an access token")]
    Type,
    /// It has no `exp`.
    #[error("it has no expiry (exp)")]
    NoEnd,
    /// It expires later than the policy allows.
    #[error("it expires too far in the future")]
    EndTooFar,
    /// It is bound to a key or a certificate of its sender, which the receiver cannot check.
    #[error("it is bound to its sender (cnf), so it is not a bearer token")]
    SenderBound,
    /// It has expired.
    #[error("it has expired")]
    Expired,
    /// It is not valid yet.
    #[error("it is not valid yet")]
    NotYet,
    /// It has another issuer.
    #[error("it is from another issuer")]
    Issuer,
    /// It has another audience.
    #[error("it is for another audience")]
    Audience,
}

/// What is read of a header. All that could bring a key along (`jwk`, `jku`, `x5c`, `x5u`) is not.
#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    typ: Option<String>,
    #[serde(default)]
    crit: Option<serde_json::Value>,
}

/// What is read of the claims. A claim that is there twice is an error of the reader.
#[derive(Deserialize)]
struct Body {
    exp: Option<f64>,
    nbf: Option<f64>,
    iss: Option<String>,
    aud: Option<OneOrMany>,
    scope: Option<OneOrMany>,
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

/// Decides whether `token` may be believed `now`.
///
/// # Errors
/// Why not. [`TokenError::UnknownKey`] may be mended by newer keys; nothing else may.
pub fn verify(
    token: &str,
    keys: &Keys,
    now: Timestamp,
    policy: &Policy,
) -> Result<Claims, TokenError> {
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
    // Only what is signed is looked into.
    let body: Body = parse(body)?;
    check_time(&body, now, policy)?;
    check_kind(&body)?;
    let issuer = policy.issuer.as_deref().or(keys.issuer());
    check_parties(&body, issuer, policy.audiences.as_ref())?;
    let named = [body.client_id, body.azp, body.sub];
    Ok(Claims {
        scopes: body.scope.map(scopes).unwrap_or_default(),
        client: named
            .into_iter()
            .flatten()
            .find_map(|name| ClientId::new(&name)),
    })
}

fn check_header(header: &Header, policy: &Policy) -> Result<(), TokenError> {
    if header.alg != policy.algorithm.name() {
        return Err(TokenError::Algorithm);
    }
    // What is critical must be understood, and nothing is (RFC 7515, section 4.1.11).
    if header.crit.is_some() {
        return Err(TokenError::Malformed);
    }
    match &header.typ {
        Some(typ) if !TYPES.contains(&typ.to_ascii_lowercase().as_str()) => Err(TokenError::Type),
        Some(_) | None => Ok(()),
    }
}

/// Moments of tokens are seconds, perhaps with decimals; JSON knows no infinite ones.
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

/// A token that is bound to its sender (RFC 7800; by a certificate RFC 8705, by `DPoP` RFC 9449) is
/// worthless without the proof that is not looked at here: taken as a bearer token, it would serve
/// whoever has stolen it.
fn check_kind(body: &Body) -> Result<(), TokenError> {
    let is_refresh_token = |id: &String| id.ends_with(REFRESH_TOKEN_ID_END);
    if body.jti.as_ref().is_some_and(is_refresh_token) {
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
        let same = |issuer: &String| issuer.trim_end_matches('/') == expected.trim_end_matches('/');
        if !body.iss.as_ref().is_some_and(same) {
            return Err(TokenError::Issuer);
        }
    }
    if let Some(expected) = audiences {
        let meant = match &body.aud {
            Some(OneOrMany::One(audience)) => expected.take(audience),
            Some(OneOrMany::Many(audiences)) => audiences.iter().any(|it| expected.take(it)),
            None => false,
        };
        if !meant {
            return Err(TokenError::Audience);
        }
    }
    Ok(())
}

/// When a token says that it was issued, in seconds. Nothing of this is signed as far as anybody
/// knows: it only decides whether newer keys are waited for.
pub fn claimed_issue(token: &str) -> Option<f64> {
    #[derive(Deserialize)]
    struct Issue {
        iat: Option<f64>,
    }
    let body = token.split('.').nth(1)?;
    let issue: Issue = parse(body).ok()?;
    issue.iat
}

/// A list as UAA writes it, or a text with spaces in between as RFC 9068 has it.
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

/// Reads one part of a token. Only an object will do: the library would fill a structure from a
/// list as well.
fn parse<T: DeserializeOwned>(part: &str) -> Result<T, TokenError> {
    let bytes = URL_SAFE_NO_PAD
        .decode(part)
        .map_err(|_| TokenError::Malformed)?;
    if bytes.trim_ascii_start().first() != Some(&b'{') {
        return Err(TokenError::Malformed);
    }
    serde_json::from_slice(&bytes).map_err(|_| TokenError::Malformed)
}
