//! Where the token server is, and what it offers where.

use std::sync::{Arc, Mutex, PoisonError};

use reqwest::Client;
use serde_json::Value;
use url::{Host, Url};

use crate::http::{FetchError, fetch};

/// Where a token server describes itself, below its address.
const DESCRIPTION: &str = "/.well-known/openid-configuration";

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
    /// Where it says which issuer it is.
    description: Url,
}

impl TokenServer {
    /// Whether clients put their id and secret into the header as RFC 6749 has it, encoded. UAA
    /// takes them as they are.
    pub(crate) fn decodes_credentials(&self) -> bool {
        matches!(self, Self::Oidc(_))
    }

    /// The address that it is known by.
    pub fn address(&self) -> &Url {
        match self {
            Self::CloudFoundry(address) | Self::Oidc(address) => address,
        }
    }

    /// Asks where everything is.
    async fn discover(&self, client: &Client, http_allowed: bool) -> Result<Endpoints, FetchError> {
        let source = Source {
            address: self.address(),
            http_allowed,
        };
        match self {
            Self::CloudFoundry(_) => {
                let uaa = uaa_of(client, &source).await?;
                Ok(Endpoints {
                    token: below(&uaa, "/oauth/token"),
                    keys: below(&uaa, "/token_keys"),
                    description: below(&uaa, DESCRIPTION),
                })
            }
            Self::Oidc(issuer) => {
                let description = below(issuer, DESCRIPTION);
                let document = fetch(client.get(description.clone())).await?;
                let named = document.get("issuer").and_then(Value::as_str);
                let same = |named: &str| same_but_for_slash(named, issuer.as_str());
                if !named.is_some_and(same) {
                    return Err(FetchError::Document("describes another issuer"));
                }
                Ok(Endpoints {
                    token: source.address_in(&document, "/token_endpoint")?,
                    keys: source.address_in(&document, "/jwks_uri")?,
                    description,
                })
            }
        }
    }
}

fn same_but_for_slash(one: &str, other: &str) -> bool {
    one.trim_end_matches('/') == other.trim_end_matches('/')
}

/// Older APIs name the token server at `/v2/info`, newer ones in the links of their root.
async fn uaa_of(client: &Client, source: &Source<'_>) -> Result<Url, FetchError> {
    match fetch(client.get(below(source.address, "/v2/info"))).await {
        Ok(document) if document.get("token_endpoint").is_some() => {
            return source.address_in(&document, "/token_endpoint");
        }
        Ok(_) | Err(FetchError::Status { .. } | FetchError::Document(_)) => {}
        Err(unreachable @ FetchError::Unreachable(_)) => return Err(unreachable),
    }
    let document = fetch(client.get(below(source.address, "/"))).await?;
    source
        .address_in(&document, "/links/uaa/href")
        .or_else(|_| source.address_in(&document, "/links/login/href"))
}

/// Who says where something is.
struct Source<'a> {
    address: &'a Url,
    http_allowed: bool,
}

impl Source<'_> {
    /// An address out of a document. A server that was asked over TLS must not lead elsewhere, and
    /// one on this machine must not lead out of it without TLS.
    fn address_in(&self, document: &Value, pointer: &str) -> Result<Url, FetchError> {
        let text = document.pointer(pointer).and_then(Value::as_str);
        let address = text.and_then(|text| Url::parse(text).ok());
        let address = address.filter(|url| url.scheme() == "https" || url.scheme() == "http");
        let address =
            address.ok_or(FetchError::Document("does not say where its endpoints are"))?;
        if self.address.scheme() == "https" && address.scheme() != "https" {
            return Err(FetchError::Document("leads from https to http"));
        }
        if !self.http_allowed && !is_private(&address) {
            return Err(FetchError::Document("leads to http"));
        }
        Ok(address)
    }
}

/// Whether nobody on the way can read what is sent there: over TLS, or to this very machine.
pub fn is_private(address: &Url) -> bool {
    let is_here = match address.host() {
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => ip.is_loopback(),
        None => false,
    };
    address.scheme() == "https" || is_here
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
    http_allowed: bool,
    known: Arc<Mutex<Option<Endpoints>>>,
}

impl Discoverer {
    /// Nothing is known yet, and nothing is asked before it is needed.
    pub fn new(server: TokenServer, client: Client) -> Self {
        Self {
            server,
            client,
            http_allowed: false,
            known: Arc::default(),
        }
    }

    /// Whether the server may name addresses that are reached without TLS.
    #[must_use]
    pub fn allow_http(self, http_allowed: bool) -> Self {
        Self {
            http_allowed,
            ..self
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
        let found = self
            .server
            .discover(&self.client, self.http_allowed)
            .await?;
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = Some(found.clone());
        Ok(found)
    }

    /// The issuer that the server says it is; none where it does not say.
    pub(crate) async fn issuer(&self) -> Result<Option<String>, FetchError> {
        let endpoints = self.endpoints().await?;
        match fetch(self.client.get(endpoints.description)).await {
            Ok(document) => {
                let issuer = document.get("issuer").and_then(Value::as_str);
                Ok(issuer
                    .filter(|issuer| !issuer.is_empty())
                    .map(str::to_owned))
            }
            Err(FetchError::Status {
                status: 404 | 405 | 410,
                ..
            }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Forgets the endpoints: something went wrong with them, perhaps they have moved.
    pub(crate) fn forget(&self) {
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}
