//! Finds the token server and its endpoints.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use reqwest::Client;
use serde_json::Value;
use url::{Host, Url};

use super::http::{FetchError, fetch, text_in};

/// The path of the discovery document, below the address of a token server.
const DESCRIPTION: &str = "/.well-known/openid-configuration";

/// A token server, by the way in which it is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenServer {
    /// The UAA of a Cloud Foundry. The API at this address names it.
    CloudFoundry(Url),
    /// Any issuer at this address that has a discovery document (`OpenID` Connect).
    Oidc(Url),
}

/// What a token server offers.
#[derive(Clone, Debug)]
pub(super) struct Endpoints {
    /// Grants tokens.
    pub(super) token: Url,
    /// Where people sign in, if they can.
    pub(super) authorization: Option<Url>,
    pub(super) keys: Url,
    /// How clients show who they are at `token`.
    pub(super) method: ClientMethod,
    /// Names the issuer.
    description: Url,
}

/// How a client shows its id and secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClientMethod {
    /// In a header, as UAA expects them: without encoding.
    BasicUnencoded,
    /// In a header, encoded as RFC 6749 says (section 2.3.1; `client_secret_basic`).
    Basic,
    /// In the form (`client_secret_post`).
    Post,
}

impl ClientMethod {
    /// The method that the metadata of an issuer ask for. Without a word, a header is what each takes.
    fn of(metadata: &Value) -> Self {
        let named = metadata["token_endpoint_auth_methods_supported"].as_array();
        let takes = |method| named.is_some_and(|all| all.iter().any(|one| one == method));
        if takes("client_secret_post") && !takes("client_secret_basic") {
            Self::Post
        } else {
            Self::Basic
        }
    }
}

impl TokenServer {
    pub fn address(&self) -> &Url {
        match self {
            Self::CloudFoundry(address) | Self::Oidc(address) => address,
        }
    }
}

fn same_but_for_slash(one: &str, other: &str) -> bool {
    one.trim_end_matches('/') == other.trim_end_matches('/')
}

/// Whether requests to this address cannot be read on the way: they use TLS, or stay on this machine.
pub fn is_private(address: &Url) -> bool {
    let is_here = match address.host() {
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => ip.is_loopback(),
        None => false,
    };
    address.scheme() == "https" || is_here
}

/// `base` with a path appended, whether or not it ends in a slash.
fn below(base: &Url, path: &str) -> Url {
    let mut url = base.clone();
    url.set_path(&format!("{}{path}", base.path().trim_end_matches('/')));
    url
}

/// Finds the endpoints once, and again after a failure.
#[derive(Clone, Debug)]
pub struct Discoverer {
    server: TokenServer,
    client: Client,
    http_allowed: bool,
    /// The issuer that the metadata of an `OpenID` provider must name, if not its address.
    issuer: Option<String>,
    known: Arc<Mutex<Option<Endpoints>>>,
}

impl Discoverer {
    pub fn new(server: TokenServer, client: Client) -> Self {
        Self {
            server,
            client,
            http_allowed: false,
            issuer: None,
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

    /// The issuer that the metadata of the server must name, where it is not the server's address.
    #[must_use]
    pub fn of_issuer(self, issuer: Option<String>) -> Self {
        Self { issuer, ..self }
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    fn known(&self) -> MutexGuard<'_, Option<Endpoints>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) async fn endpoints(&self) -> Result<Endpoints, FetchError> {
        let known = self.known().clone();
        if let Some(endpoints) = known {
            return Ok(endpoints);
        }
        let found = match &self.server {
            TokenServer::CloudFoundry(api) => {
                let uaa = self.uaa_of(api).await?;
                Endpoints {
                    token: below(&uaa, "/oauth/token"),
                    authorization: Some(below(&uaa, "/oauth/authorize")),
                    keys: below(&uaa, "/token_keys"),
                    method: ClientMethod::BasicUnencoded,
                    description: below(&uaa, DESCRIPTION),
                }
            }
            TokenServer::Oidc(address) => self.of_issuer_at(address).await?,
        };
        *self.known() = Some(found.clone());
        Ok(found)
    }

    /// Forgets the endpoints after a failure, because they may have moved.
    pub(super) fn forget(&self) {
        *self.known() = None;
    }

    /// The issuer that the server names; `None` if it names none.
    pub(super) async fn issuer(&self) -> Result<Option<String>, FetchError> {
        let endpoints = self.endpoints().await?;
        match fetch(self.client.get(endpoints.description)).await {
            Ok(document) => {
                let named = text_in(&document, "issuer").filter(|issuer| !issuer.is_empty());
                Ok(named.map(str::to_owned))
            }
            Err(FetchError::Status { status, .. }) if [404, 405, 410].contains(&status) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn of_issuer_at(&self, address: &Url) -> Result<Endpoints, FetchError> {
        let description = below(address, DESCRIPTION);
        let document = fetch(self.client.get(description.clone())).await?;
        let expected = self.issuer.as_deref().unwrap_or(address.as_str());
        let named = text_in(&document, "issuer");
        if !named.is_some_and(|named| same_but_for_slash(named, expected)) {
            return Err(FetchError::Document("describes another issuer"));
        }
        Ok(Endpoints {
            token: self.address_in(&document, "/token_endpoint")?,
            // Only who signs people in needs it.
            authorization: self.address_in(&document, "/authorization_endpoint").ok(),
            keys: self.address_in(&document, "/jwks_uri")?,
            method: ClientMethod::of(&document),
            description,
        })
    }

    /// The address of the UAA. Older APIs name it at `/v2/info`, newer ones in the links of their root.
    async fn uaa_of(&self, api: &Url) -> Result<Url, FetchError> {
        match fetch(self.client.get(below(api, "/v2/info"))).await {
            Ok(document) if document.get("token_endpoint").is_some() => {
                return self.address_in(&document, "/token_endpoint");
            }
            Err(unreachable @ FetchError::Unreachable(_)) => return Err(unreachable),
            Ok(_) | Err(_) => {}
        }
        let document = fetch(self.client.get(below(api, "/"))).await?;
        self.address_in(&document, "/links/uaa/href")
            .or_else(|_| self.address_in(&document, "/links/login/href"))
    }

    /// An address in a document. A server that is reached over TLS must not name an address without
    /// TLS, and a server on this machine must not name one of another machine without TLS.
    fn address_in(&self, document: &Value, pointer: &str) -> Result<Url, FetchError> {
        let named = document.pointer(pointer).and_then(Value::as_str);
        let address = named
            .and_then(|text| Url::parse(text).ok())
            .filter(|url| url.scheme() == "https" || url.scheme() == "http")
            .ok_or(FetchError::Document("does not say where its endpoints are"))?;
        if self.server.address().scheme() == "https" && address.scheme() != "https" {
            return Err(FetchError::Document("leads from https to http"));
        }
        if !self.http_allowed && !is_private(&address) {
            return Err(FetchError::Document("leads to http"));
        }
        Ok(address)
    }
}
