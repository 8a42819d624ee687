//! Checks a token. The check is a pure function of the token, the keys, the time and the policy;
//! `jsonwebtoken` decides whether the signature is good.

use std::collections::BTreeSet;
use std::fmt;
use std::slice;
use std::time::Duration;

use jsonwebtoken::dangerous::insecure_decode;
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Validation, decode, decode_header};
use sampler_domain::{ClientId, Timestamp};
use serde::Deserialize;

use super::discovery::same_but_for_slash;
use super::keys::{Algorithm, Keys};

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

/// The audiences (`aud`) that a token may be for. UAA writes one for each scope, without the scope's last part: a
/// token with `abacus.sampler.postgres.write` is for `abacus.sampler.postgres`. So a final `*` matches any longer
/// audience.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Audiences(Vec<String>);

impl Audiences {
    /// Reads a list that is separated by commas or spaces.
    ///
    /// # Errors
    /// If the list is empty, or one of its audiences would accept every token.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let parts = text.split([',', ' ']).filter(|part| !part.is_empty());
        let all: Vec<String> = parts.map(str::to_owned).collect();
        if all.is_empty() {
            return Err("an audience, or several with commas in between");
        }
        if all.iter().any(|one| one == "*") {
            return Err("audiences, each with something before the *");
        }
        Ok(Self(all))
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
pub(super) struct Body {
    /// In seconds, as `nbf`.
    exp: Option<f64>,
    nbf: Option<f64>,
    iss: Option<String>,
    #[serde(default)]
    pub(super) aud: Texts,
    #[serde(default)]
    scope: Texts,
    /// The scopes of Okta and Entra.
    #[serde(default)]
    scp: Texts,
    pub(super) user_name: Option<String>,
    pub(super) preferred_username: Option<String>,
    pub(super) email: Option<String>,
    client_id: Option<String>,
    pub(super) azp: Option<String>,
    pub(super) sub: Option<String>,
    pub(super) nonce: Option<String>,
    jti: Option<String>,
    cnf: Option<serde_json::Value>,
}

/// A claim that is one text or a list of them, or is not there.
#[derive(Default, Deserialize)]
#[serde(untagged)]
pub(super) enum Texts {
    One(String),
    Many(Vec<String>),
    #[default]
    None,
}

impl Texts {
    pub(super) fn all(&self) -> &[String] {
        match self {
            Self::One(text) => slice::from_ref(text),
            Self::Many(texts) => texts,
            Self::None => &[],
        }
    }

    /// The scopes: a list, as UAA writes them, or a text with spaces (RFC 9068).
    fn scopes(&self) -> Vec<&str> {
        match self {
            Self::One(text) => text.split(' ').filter(|scope| !scope.is_empty()).collect(),
            _ => self.all().iter().map(String::as_str).collect(),
        }
    }
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
    let scopes = [&body.scope, &body.scp].map(Texts::scopes).concat();
    Ok(Claims {
        scopes: scopes.into_iter().map(str::to_owned).collect(),
        client: first_name([body.client_id, body.azp, body.sub]),
        user: first_name([body.user_name, body.preferred_username]),
    })
}

/// Checks a token, and reads its claims.
pub(super) fn check(
    token: &str,
    keys: &Keys,
    now: Timestamp,
    policy: &Policy,
) -> Result<Body, TokenError> {
    let body = signed_body(token, keys, policy)?;
    check_time(&body, now)?;
    check_kind(&body)?;
    let issuer = policy.issuer.as_deref().or(keys.issuer());
    let is_of = |expected| {
        body.iss
            .as_deref()
            .is_some_and(|it| same_but_for_slash(it, expected))
    };
    if !issuer.is_none_or(is_of) {
        return Err(TokenError::Issuer);
    }
    let is_for = |expected: &Audiences| body.aud.all().iter().any(|one| expected.accept(one));
    if !policy.audiences.as_ref().is_none_or(is_for) {
        return Err(TokenError::Audience);
    }
    Ok(body)
}

/// The body of a token whose signature is good. Its claims are not checked: the time is an argument of
/// [`verify`], which the library does not take.
fn signed_body(token: &str, keys: &Keys, policy: &Policy) -> Result<Body, TokenError> {
    if token.len() > TOKEN_LEN_MAX {
        return Err(TokenError::TooLong);
    }
    let header = decode_header(token).map_err(|_| TokenError::Malformed)?;
    let algorithm = policy.algorithm;
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

/// When a token says that it expires, in seconds. To be asked of tokens that are verified.
pub fn claimed_end(token: &str) -> Option<f64> {
    #[derive(Deserialize)]
    struct End {
        exp: Option<f64>,
    }
    let token = insecure_decode::<End>(token).ok()?;
    token.claims.exp
}
