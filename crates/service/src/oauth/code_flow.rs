//! Signs people in: authorization code with PKCE (RFC 6749, section 4.1; RFC 7636), and who they are
//! by `OpenID` Connect.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use url::Url;

use super::credentials::{Client, in_time, post};
use super::discovery::Discoverer;
use super::http::{FetchError, text_in};
use super::keys::Keys;
use super::verify::{Policy, TokenError, check, texts};

/// The secrets of one attempt to sign in. Nobody else may know or guess them.
#[derive(Serialize, Deserialize)]
pub struct Attempt {
    /// Returns with the code, so that the code belongs to this browser.
    pub state: String,
    /// Returns in the ID token, so that the token belongs to this attempt.
    pub nonce: String,
    /// Proves that the code is redeemed by the program that asked for it (PKCE).
    pub verifier: String,
    /// Where the token server sends the browser back to.
    pub redirect: String,
}

/// The tokens that a code was redeemed for.
#[derive(Debug)]
pub struct Tokens {
    /// Says what may be done.
    pub access: SecretString,
    /// Says who it is.
    pub id: SecretString,
}

/// Signs people in, as one client of the token server.
#[derive(Clone, Debug)]
pub struct CodeFlow {
    client: Client,
    discoverer: Discoverer,
}

impl CodeFlow {
    /// A flow for this client. Its scope is what people are asked to grant.
    pub fn new(client: Client, discoverer: Discoverer) -> Self {
        Self { client, discoverer }
    }

    pub fn client_id(&self) -> &str {
        &self.client.id
    }

    /// Where the browser is sent, so that a person signs in.
    pub async fn authorization(&self, attempt: &Attempt) -> Result<Url, FetchError> {
        let endpoints = in_time(self.discoverer.endpoints()).await?;

        let mut page = endpoints
            .authorization
            .ok_or(FetchError::Document("names no page to sign in"))?;
        let challenge = Sha256::digest(attempt.verifier.as_bytes());
        page.query_pairs_mut()
            .append_pair("response_type", "code")
            .append_pair("client_id", &self.client.id)
            .append_pair("redirect_uri", &attempt.redirect)
            .append_pair("scope", &self.client.scope)
            .append_pair("state", &attempt.state)
            .append_pair("nonce", &attempt.nonce)
            .append_pair("code_challenge", &URL_SAFE_NO_PAD.encode(challenge))
            .append_pair("code_challenge_method", "S256");
        Ok(page)
    }

    /// Redeems a code.
    pub async fn redeem(&self, code: &str, attempt: &Attempt) -> Result<Tokens, FetchError> {
        let form = vec![
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", &attempt.redirect),
            ("code_verifier", &attempt.verifier),
        ];
        let document = in_time(post(&self.discoverer, &self.client, form)).await?;
        Ok(Tokens {
            access: token_in(&document, "access_token")?,
            id: token_in(&document, "id_token")?,
        })
    }
}

fn token_in(document: &Value, name: &str) -> Result<SecretString, FetchError> {
    text_in(document, name)
        .filter(|token| !token.is_empty())
        .map(SecretString::from)
        .ok_or(FetchError::Document("holds no access token and ID token"))
}

/// The name of the person that an ID token is about (`OpenID` Connect Core, section 3.1.3.7).
///
/// # Errors
/// The reason why it is not accepted: it is not a token of the issuer, or one for another client or
/// attempt.
pub fn person(
    token: &str,
    keys: &Keys,
    policy: &Policy,
    client: &str,
    nonce: &str,
) -> Result<String, TokenError> {
    // Its audience is the client, whatever that of access tokens is.
    let policy = Policy {
        audiences: None,
        ..policy.clone()
    };
    let body = check(token, keys, &policy)?;
    let audiences = texts(&body.aud);
    let is_party = match &body.azp {
        Some(party) => party == client,
        None => audiences.len() == 1,
    };
    if !audiences.contains(&client) || !is_party {
        return Err(TokenError::Refused("it is for another audience"));
    }
    if body.nonce.as_deref() != Some(nonce) {
        return Err(TokenError::Refused(
            "it belongs to another attempt to sign in",
        ));
    }
    let names = [
        body.user_name,
        body.preferred_username,
        body.email,
        body.sub,
    ];
    let name = names.into_iter().flatten().next();
    name.filter(|name| !name.is_empty())
        .ok_or(TokenError::Refused("it names nobody"))
}
