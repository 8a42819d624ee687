//! Checks a token: `jsonwebtoken` decides on its signature, its times and its issuer.

use std::collections::BTreeSet;
use std::fmt;

use jsonwebtoken::dangerous::insecure_decode;
use jsonwebtoken::errors::{Error, ErrorKind};
use jsonwebtoken::{Validation, decode, decode_header};
use sampler_domain::ClientId;
use serde::Deserialize;
use serde_json::Value;

use super::keys::{Algorithm, Keys};

/// In bytes.
const TOKEN_LEN_MAX: usize = 16 * 1024;

/// By how many seconds the clocks of both sides may differ.
const LEEWAY: u64 = 10;

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
    /// Reads a list that is separated by commas or spaces; none if the list is empty, or one of its audiences would
    /// accept every token.
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
    /// It names an unknown key, or none although there are several. Newer keys may help.
    #[error("it is signed with an unknown key")]
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
pub(super) struct Body {
    #[serde(default)]
    pub(super) aud: Value,
    #[serde(default)]
    scope: Value,
    /// The scopes of Okta and Entra.
    #[serde(default)]
    scp: Value,
    pub(super) user_name: Option<String>,
    pub(super) preferred_username: Option<String>,
    pub(super) email: Option<String>,
    client_id: Option<String>,
    pub(super) azp: Option<String>,
    pub(super) sub: Option<String>,
    pub(super) nonce: Option<String>,
    jti: Option<String>,
    cnf: Option<Value>,
    /// Checked by the library, which would take one that occurs twice.
    #[serde(rename = "exp")]
    _exp: Option<f64>,
    #[serde(rename = "iss")]
    _iss: Option<String>,
}

/// A claim that is one text or a list of them, or is not there.
pub(super) fn texts(claim: &Value) -> Vec<&str> {
    match claim {
        Value::String(text) => vec![text],
        Value::Array(texts) => texts.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

/// The scopes of a claim: a list, as UAA writes them, or a text with spaces (RFC 9068).
fn scopes(claim: &Value) -> Vec<&str> {
    match claim {
        Value::String(text) => text.split(' ').filter(|scope| !scope.is_empty()).collect(),
        list => texts(list),
    }
}

/// Checks a token.
///
/// # Errors
/// The reason why it is not accepted. Only for [`TokenError::UnknownKey`] can newer keys help.
pub fn verify(token: &str, keys: &Keys, policy: &Policy) -> Result<Claims, TokenError> {
    let body = check(token, keys, policy)?;
    let first_name = |names: [Option<String>; 3]| {
        let mut names = names.into_iter().flatten();
        names.find_map(|name| ClientId::new(&name))
    };
    let scopes = [&body.scope, &body.scp].map(scopes).concat();
    Ok(Claims {
        scopes: scopes.into_iter().map(str::to_owned).collect(),
        client: first_name([body.client_id, body.azp, body.sub]),
        user: first_name([body.user_name, body.preferred_username, None]),
    })
}

/// Checks a token, and reads its claims.
pub(super) fn check(token: &str, keys: &Keys, policy: &Policy) -> Result<Body, TokenError> {
    let refused = |why| Err(TokenError::Refused(why));
    if token.len() > TOKEN_LEN_MAX {
        return refused("it is too long");
    }
    let header = decode_header(token).map_err(|_| TokenError::Refused("it is malformed"))?;
    let kind = header.typ.map(|typ| typ.to_ascii_lowercase());
    if header.alg != policy.algorithm {
        return refused("it is signed with another algorithm");
    }
    // Critical headers must be understood (RFC 7515, section 4.1.11), and this code understands none.
    if header.crit.is_some() {
        return refused("it is malformed");
    }
    if kind.is_some_and(|kind| !TYPES.contains(&kind.as_str())) {
        return refused("it is not an access token");
    }
    let key = keys.find(header.kid.as_deref());
    let key = key.ok_or(TokenError::UnknownKey)?;
    let body: Body = decode(token, key, &validation(keys, policy))?.claims;
    let is_for = |expected: &Audiences| texts(&body.aud).iter().any(|one| expected.accept(one));
    if !policy.audiences.as_ref().is_none_or(is_for) {
        return refused("it is for another audience");
    }
    let id = body.jti.as_deref();
    if id.is_some_and(|id| id.ends_with(REFRESH_TOKEN_ID_END)) {
        return refused("it is not an access token");
    }
    // It needs a proof (RFC 7800) that is not checked here; without that check a thief could use it.
    if body.cnf.is_some() {
        return refused("it is bound to its sender (cnf), so it is not a bearer token");
    }
    Ok(body)
}

/// What the library checks. It has no patterns for audiences.
fn validation(keys: &Keys, policy: &Policy) -> Validation {
    let mut validation = Validation::new(policy.algorithm);
    validation.leeway = LEEWAY;
    validation.validate_nbf = true;
    validation.validate_aud = false;
    if let Some(issuer) = policy.issuer.as_deref().or(keys.issuer()) {
        let issuer = issuer.trim_end_matches('/');
        validation.set_issuer(&[issuer.to_owned(), format!("{issuer}/")]);
        validation.set_required_spec_claims(&["exp", "iss"]);
    }
    validation
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
