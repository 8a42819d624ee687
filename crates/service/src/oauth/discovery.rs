//! Finds the token server and its endpoints.

use std::sync::{Arc, Mutex, PoisonError};

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

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoints {
    /// Grants tokens.
    pub token: Url,
    /// Where people sign in, if they can.
    pub authorization: Option<Url>,
    pub keys: Url,
    /// How clients show who they are at `token`.
    pub(crate) method: ClientMethod,
    /// Names the issuer.
    description: Url,
}

/// How a client shows its id and secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClientMethod {
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
        let named = metadata.get("token_endpoint_auth_methods_supported");
        let named = named.and_then(Value::as_array);
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

    async fn discover(&self, discoverer: &Discoverer) -> Result<Endpoints, FetchError> {
        let client = &discoverer.client;
        let source = Source {
            address: self.address(),
            http_allowed: discoverer.http_allowed,
        };
        match self {
            Self::CloudFoundry(_) => {
                let uaa = uaa_of(client, &source).await?;
                Ok(Endpoints {
                    token: below(&uaa, "/oauth/token"),
                    authorization: Some(below(&uaa, "/oauth/authorize")),
                    keys: below(&uaa, "/token_keys"),
                    method: ClientMethod::BasicUnencoded,
                    description: below(&uaa, DESCRIPTION),
                })
            }
            Self::Oidc(address) => {
                let description = below(address, DESCRIPTION);
                let document = fetch(client.get(description.clone())).await?;
                let expected = discoverer.issuer.as_deref().unwrap_or(address.as_str());
                let named = text_in(&document, "issuer");
                if !named.is_some_and(|named| same_but_for_slash(named, expected)) {
                    return Err(FetchError::Document("describes another issuer"));
                }
                Ok(Endpoints {
                    token: source.address_in(&document, "/token_endpoint")?,
                    // Only who signs people in needs it.
                    authorization: source.address_in(&document, "/authorization_endpoint").ok(),
                    keys: source.address_in(&document, "/jwks_uri")?,
                    method: ClientMethod::of(&document),
                    description,
                })
            }
        }
    }
}

pub(crate) fn same_but_for_slash(one: &str, other: &str) -> bool {
    one.trim_end_matches('/') == other.trim_end_matches('/')
}

/// The address of the UAA. Older APIs name it at `/v2/info`, newer ones in the links of their root.
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

/// The server whose document names an address.
struct Source<'a> {
    address: &'a Url,
    http_allowed: bool,
}

impl Source<'_> {
    /// An address in a document. A server that is reached over TLS must not name an address without
    /// TLS, and a server on this machine must not name one of another machine without TLS.
    fn address_in(&self, document: &Value, pointer: &str) -> Result<Url, FetchError> {
        let address = document
            .pointer(pointer)
            .and_then(Value::as_str)
            .and_then(|text| Url::parse(text).ok())
            .filter(|url| url.scheme() == "https" || url.scheme() == "http")
            .ok_or(FetchError::Document("does not say where its endpoints are"))?;
        if self.address.scheme() == "https" && address.scheme() != "https" {
            return Err(FetchError::Document("leads from https to http"));
        }
        if !self.http_allowed && !is_private(&address) {
            return Err(FetchError::Document("leads to http"));
        }
        Ok(address)
    }
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

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    pub(crate) async fn endpoints(&self) -> Result<Endpoints, FetchError> {
        let known = self
            .known
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        if let Some(endpoints) = known {
            return Ok(endpoints);
        }
        let found = self.server.discover(self).await?;
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = Some(found.clone());
        Ok(found)
    }

    /// The issuer that the server names; `None` if it names none.
    pub(crate) async fn issuer(&self) -> Result<Option<String>, FetchError> {
        let endpoints = self.endpoints().await?;
        match fetch(self.client.get(endpoints.description)).await {
            Ok(document) => Ok(text_in(&document, "issuer")
                .filter(|issuer| !issuer.is_empty())
                .map(str::to_owned)),
            Err(FetchError::Status {
                status: 404 | 405 | 410,
                ..
            }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Forgets the endpoints after a failure, because they may have moved.
    pub(crate) fn forget(&self) {
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}
