//! Where the token server is, and what it offers where.

use std::sync::{Arc, Mutex, PoisonError};

use reqwest::Client;
use serde_json::Value;
use url::Url;

use crate::http::{FetchError, fetch};

/// A token server, by what is known of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenServer {
    /// The UAA of a Cloud Foundry, whose API says where it is.
    CloudFoundry(Url),
    /// Any issuer that describes itself as `OpenID` Connect has it.
    Oidc(Url),
}

/// What a token server offers where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoints {
    /// Where tokens are given out.
    pub token: Url,
    /// Where its keys are.
    pub keys: Url,
}

impl TokenServer {
    /// Whether clients put their id and secret into the header as RFC 6749 has it, encoded. UAA
    /// takes them as they are.
    pub(crate) fn decodes_credentials(&self) -> bool {
        matches!(self, Self::Oidc(_))
    }

    /// Asks where everything is.
    pub(crate) async fn discover(&self, client: &Client) -> Result<Endpoints, FetchError> {
        match self {
            Self::CloudFoundry(api) => {
                let uaa = uaa_of(client, api).await?;
                Ok(Endpoints {
                    token: below(&uaa, "/oauth/token"),
                    keys: below(&uaa, "/token_keys"),
                })
            }
            Self::Oidc(issuer) => {
                let address = below(issuer, "/.well-known/openid-configuration");
                let document = fetch(client.get(address)).await?;
                let named = document.get("issuer").and_then(Value::as_str);
                let same = |named: &str| same_but_for_slash(named, issuer.as_str());
                if !named.is_some_and(same) {
                    return Err(FetchError::Document("describes another issuer"));
                }
                Ok(Endpoints {
                    token: address_in(&document, "/token_endpoint", issuer)?,
                    keys: address_in(&document, "/jwks_uri", issuer)?,
                })
            }
        }
    }
}

fn same_but_for_slash(one: &str, other: &str) -> bool {
    one.trim_end_matches('/') == other.trim_end_matches('/')
}

/// Older APIs name the token server at `/v2/info`, newer ones in the links of their root.
async fn uaa_of(client: &Client, api: &Url) -> Result<Url, FetchError> {
    match fetch(client.get(below(api, "/v2/info"))).await {
        Ok(document) if document.get("token_endpoint").is_some() => {
            return address_in(&document, "/token_endpoint", api);
        }
        Ok(_) | Err(FetchError::Status { .. } | FetchError::Document(_)) => {}
        Err(unreachable @ FetchError::Unreachable(_)) => return Err(unreachable),
    }
    let document = fetch(client.get(below(api, "/"))).await?;
    address_in(&document, "/links/uaa/href", api)
        .or_else(|_| address_in(&document, "/links/login/href", api))
}

/// An address out of a document of `source`. Who was asked over TLS must not lead elsewhere.
fn address_in(document: &Value, pointer: &str, source: &Url) -> Result<Url, FetchError> {
    let text = document.pointer(pointer).and_then(Value::as_str);
    let address = text.and_then(|text| Url::parse(text).ok());
    let address = address.filter(|url| url.scheme() == "https" || url.scheme() == "http");
    let address = address.ok_or(FetchError::Document("does not say where its endpoints are"))?;
    if source.scheme() == "https" && address.scheme() != "https" {
        return Err(FetchError::Document("leads from https to http"));
    }
    Ok(address)
}

/// `base` with more path, whether or not it ends in a slash.
fn below(base: &Url, path: &str) -> Url {
    let mut url = base.clone();
    url.set_path(&format!("{}{path}", base.path().trim_end_matches('/')));
    url
}

/// Finds the endpoints once, and again after they have failed.
#[derive(Clone, Debug)]
pub struct Discoverer {
    server: TokenServer,
    client: Client,
    known: Arc<Mutex<Option<Endpoints>>>,
}

impl Discoverer {
    /// Nothing is known yet, and nothing is asked before it is needed.
    pub fn new(server: TokenServer, client: Client) -> Self {
        Self {
            server,
            client,
            known: Arc::default(),
        }
    }

    /// What the server is known by.
    pub fn server(&self) -> &TokenServer {
        &self.server
    }

    /// The client it is asked with.
    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// What the server offers where.
    pub(crate) async fn endpoints(&self) -> Result<Endpoints, FetchError> {
        let known = self
            .known
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        if let Some(endpoints) = known {
            return Ok(endpoints);
        }
        let found = self.server.discover(&self.client).await?;
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = Some(found.clone());
        Ok(found)
    }

    /// Forgets the endpoints: something went wrong with them, perhaps they have moved.
    pub(crate) fn forget(&self) {
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}
