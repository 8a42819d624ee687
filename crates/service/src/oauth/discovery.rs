//! Finds the token server and its endpoints, and reads its answers.

use std::sync::Arc;
use std::time::Duration;

use reqwest::{Client, RequestBuilder};
use serde_json::Value;
use tokio::sync::Mutex;
use tokio::time::timeout;
use url::{Host, Url};

use super::http::{describe, read_body};

/// The path of the metadata, below the address of a token server.
const METADATA: &str = "/.well-known/openid-configuration";

/// How long it may take to find the token server and get something from it.
const LIMIT: Duration = Duration::from_secs(10);

/// In bytes.
const DOCUMENT_LEN_MAX: usize = 512 * 1024;

/// A document could not be fetched. The error contains no secret and no address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FetchError {
    /// There was no answer.
    #[error("the token server cannot be reached: {0}")]
    Unreachable(String),
    /// The answer was not 200.
    #[error("the token server answered {status}{}", code.as_ref().map(|code| format!(" ({code})")).unwrap_or_default())]
    Status {
        status: u16,
        /// The error code of RFC 6749, if there is one.
        code: Option<String>,
    },
    /// The answer is not the requested document.
    #[error("the answer of the token server {0}")]
    Document(&'static str),
}

/// A token server, by the way in which it is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TokenServer {
    /// The UAA of a Cloud Foundry. The API at this address names it.
    CloudFoundry(Url),
    /// Any issuer at this address that has metadata (`OpenID` Connect).
    Oidc(Url),
}

impl TokenServer {
    pub fn address(&self) -> &Url {
        match self {
            Self::CloudFoundry(address) | Self::Oidc(address) => address,
        }
    }
}

/// Where it stands which issuer a token server says it is.
#[derive(Clone, Debug)]
pub(super) enum Issuer {
    Named(String),
    /// In the metadata at this address, which are read whenever keys are.
    Told(Url),
}

/// What a token server offers.
#[derive(Clone, Debug)]
pub(super) struct Endpoints {
    /// Grants tokens.
    pub(super) token: Url,
    /// Where people sign in, if they can.
    pub(super) authorization: Option<Url>,
    pub(super) keys: Url,
    pub(super) issuer: Issuer,
    /// Whether clients show who they are in the form (`client_secret_post`), not in a header (`client_secret_basic`).
    pub(super) takes_form: bool,
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

/// Finds the endpoints once, and again after a failure.
#[derive(Clone, Debug)]
pub struct Discoverer {
    pub(super) server: TokenServer,
    pub(super) client: Client,
    /// The issuer that the metadata of an `OpenID` provider must name, if not its address.
    issuer: Option<String>,
    known: Arc<Mutex<Option<Endpoints>>>,
}

impl Discoverer {
    pub fn new(server: TokenServer, client: Client, issuer: Option<String>) -> Self {
        Self {
            server,
            client,
            issuer,
            known: Arc::default(),
        }
    }

    /// Waits for the token server as long as it may take. If it fails, the endpoints are forgotten, because they may
    /// have moved.
    pub(super) async fn in_time<T>(
        &self,
        asking: impl Future<Output = Result<T, FetchError>>,
    ) -> Result<T, FetchError> {
        let late = |_| Err(FetchError::Unreachable("it took too long".to_owned()));
        let answered = timeout(LIMIT, asking).await.unwrap_or_else(late);
        if !matches!(
            answered,
            Ok(_)
                | Err(FetchError::Status {
                    status: 400..=403,
                    ..
                })
        ) {
            *self.known.lock().await = None;
        }
        answered
    }

    pub(super) async fn endpoints(&self) -> Result<Endpoints, FetchError> {
        let mut known = self.known.lock().await;
        if let Some(endpoints) = &*known {
            return Ok(endpoints.clone());
        }
        let found = match &self.server {
            TokenServer::CloudFoundry(api) => of_uaa(&self.uaa_of(api).await?),
            TokenServer::Oidc(address) => self.of_issuer(address).await?,
        };
        *known = Some(found.clone());
        Ok(found)
    }

    /// The issuer that the server says it is; none where it says nothing.
    pub(super) async fn issuer(&self, issuer: Issuer) -> Result<Option<String>, FetchError> {
        let metadata = match issuer {
            Issuer::Named(issuer) => return Ok(Some(issuer)),
            Issuer::Told(address) => self.get(address).await,
        };
        match metadata {
            Err(FetchError::Status { status: 404, .. }) => Ok(None),
            metadata => Ok(text_in(&metadata?, "issuer").map(str::to_owned)),
        }
    }

    async fn of_issuer(&self, address: &Url) -> Result<Endpoints, FetchError> {
        let metadata = self.get(below(address, METADATA)).await?;
        let expected = self.issuer.as_deref().unwrap_or(address.as_str());
        let named = text_in(&metadata, "issuer").unwrap_or_default();
        if named.trim_end_matches('/') != expected.trim_end_matches('/') {
            return Err(FetchError::Document("describes another issuer"));
        }
        let methods = metadata["token_endpoint_auth_methods_supported"].as_array();
        let takes = |method| methods.is_some_and(|all| all.iter().any(|one| one == method));
        Ok(Endpoints {
            token: self.address_in(&metadata, "/token_endpoint")?,
            // Only who signs people in needs it.
            authorization: self.address_in(&metadata, "/authorization_endpoint").ok(),
            keys: self.address_in(&metadata, "/jwks_uri")?,
            issuer: Issuer::Named(named.to_owned()),
            // Without a word, a header is what each takes.
            takes_form: takes("client_secret_post") && !takes("client_secret_basic"),
        })
    }

    /// The address of the UAA. Older APIs name it at `/v2/info`, newer ones in the links of their root.
    async fn uaa_of(&self, api: &Url) -> Result<Url, FetchError> {
        match self.get(below(api, "/v2/info")).await {
            Ok(info) if info.get("token_endpoint").is_some() => {
                return self.address_in(&info, "/token_endpoint");
            }
            Err(error @ FetchError::Unreachable(_)) => return Err(error),
            _ => {}
        }
        let root = self.get(below(api, "/")).await?;
        self.address_in(&root, "/links/uaa/href")
            .or_else(|_| self.address_in(&root, "/links/login/href"))
    }

    /// An address in a document. It must be at least as safe as that of the server: not without TLS where that has
    /// TLS, nor on another machine without TLS where that is on this one.
    fn address_in(&self, document: &Value, pointer: &str) -> Result<Url, FetchError> {
        let named = document.pointer(pointer).and_then(Value::as_str);
        let address = named.and_then(|text| Url::parse(text).ok());
        let address =
            address.ok_or(FetchError::Document("does not say where its endpoints are"))?;
        let server = self.server.address();
        let is_safe = match (server.scheme(), address.scheme()) {
            (_, "https") => true,
            ("http", "http") => is_private(&address) || !is_private(server),
            _ => false,
        };
        is_safe
            .then_some(address)
            .ok_or(FetchError::Document("leads to http"))
    }

    pub(super) async fn get(&self, address: Url) -> Result<Value, FetchError> {
        fetch(self.client.get(address)).await
    }
}

/// What each UAA offers. Its metadata only say which issuer it is: they name addresses as a router lets it see them.
fn of_uaa(uaa: &Url) -> Endpoints {
    Endpoints {
        token: below(uaa, "/oauth/token"),
        authorization: Some(below(uaa, "/oauth/authorize")),
        keys: below(uaa, "/token_keys"),
        issuer: Issuer::Told(below(uaa, METADATA)),
        takes_form: false,
    }
}

/// `base` with a path appended, whether or not it ends in a slash.
fn below(base: &Url, path: &str) -> Url {
    let mut url = base.clone();
    url.set_path(&format!("{}{path}", base.path().trim_end_matches('/')));
    url
}

/// Sends a request for a document, and reads that.
pub(super) async fn fetch(request: RequestBuilder) -> Result<Value, FetchError> {
    let unreachable = |error| FetchError::Unreachable(describe(error));
    let response = request.send().await.map_err(unreachable)?;
    let status = response.status().as_u16();
    let body = read_body(response, DOCUMENT_LEN_MAX).await;
    let body = body.map_err(unreachable)?;
    let body = body.ok_or(FetchError::Document("is too long"))?;
    let document: Value = serde_json::from_slice(&body).unwrap_or_default();
    if status != 200 {
        // It is logged: it must look like an error code.
        let is_plain = |code: &&str| code.bytes().all(|it| it.is_ascii_lowercase() || it == b'_');
        let code = text_in(&document, "error").filter(|code| code.len() <= 40);
        let code = code.filter(is_plain).map(str::to_owned);
        return Err(FetchError::Status { status, code });
    }
    let document = document.is_object().then_some(document);
    document.ok_or(FetchError::Document("is not a JSON object"))
}

/// A member of a document, if it is a text, and not empty.
pub(super) fn text_in<'d>(document: &'d Value, name: &str) -> Option<&'d str> {
    let text = document.get(name)?.as_str()?;
    (!text.is_empty()).then_some(text)
}
