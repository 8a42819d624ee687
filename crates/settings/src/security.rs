//! The settings for the callers of a program and for its own credentials, and the one place that refuses
//! settings that could not be honoured.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use sampler_service::environment::Clock;
use sampler_service::oauth::discovery::is_private;
use sampler_service::oauth::http::TlsError;
use sampler_service::oauth::keys::{is_shared, shared_key_len};
use sampler_service::oauth::{
    Algorithm, Audiences, CaBundle, Client, ClientCredentials, CodeFlow, Discoverer, HttpOptions,
    Issuer, Keyring, Keys, Pace, Policy, TokenServer,
};
use sampler_service::security::{Access, Authenticator};
use secrecy::{ExposeSecret, SecretString};
use tracing::warn;
use url::Url;

use crate::load::Variables;
use crate::reader::Reader;
use crate::table::settings;

/// How long one request to the token server may take.
const TOKEN_SERVER_TIMEOUT: Duration = Duration::from_secs(5);

/// Variables by which the HTTP client finds a proxy, as curl and Node.js programs do; also in lower case.
const PROXIES: [&str; 3] = ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"];

settings! {
    /// The checks of callers, and the credentials of the program itself.
    pub struct SecuritySettings {
        /// Whether requests need a token, and requests to the upstream and to Abacus carry one.
        secured: bool = "SECURED", "false";
        /// Whether GET /healthcheck needs a token, with the scope abacus.system.read or one of Sampler. The default
        /// is the value of SECURED.
        healthcheck_secured: Option<bool> = "HEALTHCHECK_SECURED";
        /// Whether to trust any server certificate. Not for production.
        skip_ssl_validation: bool = "SKIP_SSL_VALIDATION", "false";
        /// The Cloud Foundry API that names the token server.
        auth_server: Option<Url> = "AUTH_SERVER";
        /// The Cloud Foundry API; used if AUTH_SERVER is not set.
        api: Option<Url> = "API";
        /// The OAuth client of this program, for its own requests to the upstream and to Abacus.
        client_id: Option<String> = "CLIENT_ID";
        /// The secret of the client.
        client_secret: Option<SecretString> = "CLIENT_SECRET";
        /// The key that checks tokens: a shared key for HS256, HS384 and HS512 (at least 32, 48 or 64 bytes), a public
        /// key as PEM for the others. Without it, the keys of the token server are fetched.
        jwt_key: Option<SecretString> = "JWTKEY";
        /// The only algorithm that tokens may be signed with. The default is HS256 with JWTKEY, and RS256 with fetched
        /// keys. Fetched keys are never shared keys.
        jwt_algorithm: Option<Algorithm> = "JWTALGO";
        /// The token server, if it is not the UAA of a Cloud Foundry: an issuer that serves
        /// /.well-known/openid-configuration. It overrides AUTH_SERVER.
        oidc_issuer: Option<Url> = "SAMPLER_OIDC_ISSUER";
        /// The issuer (iss) that tokens must name. The default is SAMPLER_OIDC_ISSUER, if it is set. With keys of a UAA,
        /// the default is the issuer in its /.well-known/openid-configuration.
        token_issuer: Option<String> = "SAMPLER_TOKEN_ISSUER";
        /// The accepted audiences (aud) of tokens, separated by commas; a token needs one of them. A final * matches any
        /// longer audience. For a UAA, set abacus.sampler,abacus.sampler.* here.
        token_audience: Option<Audiences> = "SAMPLER_TOKEN_AUDIENCE";
        /// The scope that this program's client requests, in place of those of a Cloud Foundry's UAA: Entra asks for
        /// one that ends in /.default.
        client_scope: Option<String> = "SAMPLER_CLIENT_SCOPE";
        /// The audience that this program's client requests, for token servers such as Auth0 that ask for one.
        client_audience: Option<String> = "SAMPLER_CLIENT_AUDIENCE";
        /// A PEM file with certificate authorities to trust for HTTPS, in addition to those of the system. It is read at
        /// the start. For the database, use tlsCAFile in DB_URI.
        ca_file: Option<CaBundle> = "SAMPLER_CA_FILE";
    }
}

impl SecuritySettings {
    /// Refuses tokens that could not be checked, and credentials that others could read.
    pub(crate) fn check(&self, reader: &mut Reader) {
        if let Some((server, setting)) = self.token_server_and_setting()
            && self.secured
            && !is_private(server.address())
        {
            reader.reject(setting, "an address with https, because SECURED is true");
        }
        if self.secured || self.is_healthcheck_secured() {
            self.check_keys(reader);
        }
    }

    /// Whether the health check needs a token. As the original has it: its manifests say `SECURED` alone.
    pub fn is_healthcheck_secured(&self) -> bool {
        self.healthcheck_secured.unwrap_or(self.secured)
    }

    /// Refuses settings without a key that could distinguish a good token from a bad one. A program that
    /// is set to be secure but is not must not run: better no billing than billing that anyone can write to.
    fn check_keys(&self, reader: &mut Reader) {
        let algorithm = self.algorithm();
        let Some(key) = self.jwt_key.as_ref().map(ExposeSecret::expose_secret) else {
            if self.token_server().is_none() {
                let expected = "a key, or AUTH_SERVER, API or SAMPLER_OIDC_ISSUER to fetch keys from: where SECURED or \
                                HEALTHCHECK_SECURED is true, tokens are checked";
                reader.reject("JWTKEY", expected);
            } else if is_shared(algorithm) {
                let expected = "RS256, RS384, RS512 or ES256 where JWTKEY is not set: fetched keys are never shared ones";
                reader.reject("JWTALGO", expected);
            }
            return;
        };
        if let Err(error) = Keys::configured(key, algorithm) {
            reader.reject("JWTKEY", &format!("a key for {algorithm:?}: {error}"));
        } else if key.len() < shared_key_len(algorithm) {
            let length = shared_key_len(algorithm);
            let expected = format!(
                "a shared key of at least {length} bytes for {algorithm:?} (RFC 7518, section 3.2): a shorter one may be \
                 guessed"
            );
            reader.reject("JWTKEY", &expected);
        }
    }

    /// For a program that calls others: refuses `SECURED=true` where it could not get a token.
    pub(crate) fn require_client(&self, reader: &mut Reader) {
        let expected = "a value, because SECURED is true and other systems are called with a token";
        for (name, is_set) in [
            ("CLIENT_ID", self.client_id.is_some()),
            ("CLIENT_SECRET", self.client_secret.is_some()),
            ("AUTH_SERVER", self.token_server().is_some()),
        ] {
            if self.secured && !is_set {
                reader.reject(name, expected);
            }
        }
    }

    /// Where tokens come from, if that is known.
    pub fn token_server(&self) -> Option<TokenServer> {
        self.token_server_and_setting().map(|(server, _)| server)
    }

    fn token_server_and_setting(&self) -> Option<(TokenServer, &'static str)> {
        let oidc = self.oidc_issuer.clone().map(TokenServer::Oidc);
        let of = |url: &Option<Url>| url.clone().map(TokenServer::CloudFoundry);
        [
            (oidc, "SAMPLER_OIDC_ISSUER"),
            (of(&self.auth_server), "AUTH_SERVER"),
            (of(&self.api), "API"),
        ]
        .into_iter()
        .find_map(|(server, setting)| Some((server?, setting)))
    }

    /// The one algorithm that tokens may be signed with.
    pub fn algorithm(&self) -> Algorithm {
        let usual = match self.jwt_key {
            Some(_) => Algorithm::HS256,
            None => Algorithm::RS256,
        };
        self.jwt_algorithm.unwrap_or(usual)
    }

    /// The issuer that tokens must name, where that is configured.
    pub fn issuer(&self) -> Option<String> {
        let of_oidc = self.oidc_issuer.as_ref().map(Url::to_string);
        self.token_issuer.clone().or(of_oidc)
    }

    /// What identifies this installation: the issuer of the tokens that it accepts, and their audiences.
    pub fn installation(&self) -> [String; 2] {
        let server = self.token_server();
        let address = server.map(|server| server.address().to_string());
        let audiences = self.token_audience.as_ref().map(Audiences::to_string);
        [
            self.issuer().or(address).unwrap_or_default(),
            audiences.unwrap_or_default(),
        ]
    }

    /// The terms of calls to other services over HTTP.
    pub fn http_options(&self, timeout: Duration) -> HttpOptions {
        HttpOptions {
            timeout,
            skip_ssl_validation: self.skip_ssl_validation,
            authorities: self.ca_file.clone().unwrap_or_default(),
        }
    }

    /// Finds the token server; none where it is not known.
    pub fn discoverer(&self) -> Result<Option<Discoverer>, TlsError> {
        let Some(server) = self.token_server() else {
            return Ok(None);
        };
        let client =
            sampler_service::oauth::http::client(&self.http_options(TOKEN_SERVER_TIMEOUT))?;
        let discoverer = Discoverer::new(server, client)
            .allow_http(!self.secured)
            .of_issuer(self.token_issuer.clone());
        Ok(Some(discoverer))
    }

    /// Where tokens with this scope come from; none where `SECURED` is false.
    pub fn tokens(&self, scope: &str) -> Result<Option<Arc<ClientCredentials>>, TlsError> {
        let scope = self.client_scope.as_deref().unwrap_or(scope);
        let client = self.client(None, None, scope)?;
        Ok(client.map(|(client, discoverer)| {
            let audience = self.client_audience.clone();
            ClientCredentials::new(Client { audience, ..client }, discoverer)
        }))
    }

    /// The client with which people sign in: their own, or else this program's. None if `SECURED`
    /// is false, or where the client or the token server is not known.
    pub fn code_flow(
        &self,
        id: Option<String>,
        secret: Option<SecretString>,
        scope: &str,
    ) -> Result<Option<CodeFlow>, TlsError> {
        let client = self.client(id, secret, scope)?;
        Ok(client.map(|(client, discoverer)| CodeFlow::new(client, discoverer)))
    }

    /// A client of the token server, by default this program's.
    fn client(
        &self,
        id: Option<String>,
        secret: Option<SecretString>,
        scope: &str,
    ) -> Result<Option<(Client, Discoverer)>, TlsError> {
        let id = id.or_else(|| self.client_id.clone());
        let secret = secret.or_else(|| self.client_secret.clone());
        let (true, Some(id), Some(secret)) = (self.secured, id, secret) else {
            return Ok(None);
        };
        let client = Client {
            id,
            secret,
            scope: scope.to_owned(),
            audience: None,
        };
        Ok(self.discoverer()?.map(|discoverer| (client, discoverer)))
    }

    /// The authenticator of the API. Only if `SECURED` is false does it need no tokens.
    pub fn authenticator(&self, clock: Arc<dyn Clock>) -> anyhow::Result<Authenticator> {
        if !self.secured {
            warn!(
                code = "security.open",
                "SECURED is false: anybody who reaches this program may write events"
            );
            return Ok(Authenticator::none());
        }
        if self.token_audience.is_none() {
            warn!(
                code = "security.audience_unbound",
                "SAMPLER_TOKEN_AUDIENCE is not set: tokens for other services are accepted"
            );
        }
        self.bearer(clock)
    }

    /// Who may read the health and the metrics. `tokens` are those of the program's API, if it has one.
    pub fn access(
        &self,
        tokens: Option<&Authenticator>,
        clock: Arc<dyn Clock>,
    ) -> anyhow::Result<Access> {
        let (api, health) = (self.secured, self.is_healthcheck_secured());
        let tokens = match tokens.filter(|_| api) {
            Some(tokens) => tokens.clone(),
            None if api || health => self.bearer(clock)?,
            None => Authenticator::none(),
        };
        let monitors = |needs_token| {
            if needs_token {
                tokens.clone()
            } else {
                Authenticator::none()
            }
        };
        Ok(Access {
            health: monitors(health),
            metrics: monitors(api || health),
        })
    }

    fn bearer(&self, clock: Arc<dyn Clock>) -> anyhow::Result<Authenticator> {
        let (algorithm, issuer) = (self.algorithm(), self.issuer());
        let keyring = if let Some(key) = &self.jwt_key {
            Keyring::configured(Keys::configured(key.expose_secret(), algorithm)?)
        } else {
            let discoverer = self.discoverer()?.context("no token server is known")?;
            let of = issuer
                .as_ref()
                .map_or(Issuer::Discovered, |_| Issuer::Configured);
            Keyring::fetched(discoverer, algorithm, of, Pace::default())
        };
        let policy = Policy {
            algorithm,
            issuer,
            audiences: self.token_audience.clone(),
        };
        Ok(Authenticator::bearer(keyring, policy, clock))
    }

    /// Logs each weakness. `called` is the address that is called with tokens, with the name of its setting.
    pub(crate) fn announce(&self, called: Option<&(&str, Url)>, variables: &Variables) {
        if self.skip_ssl_validation {
            warn!(
                code = "security.certificates_unchecked",
                "SKIP_SSL_VALIDATION is true: certificates of the upstream and of UAA are not checked"
            );
        }
        let is_http = |url: &Url| url.scheme() == "http";
        if let Some((_, setting)) = self
            .token_server_and_setting()
            .filter(|(server, _)| is_http(server.address()))
        {
            warn!(
                code = "security.token_server_http",
                setting, "the token server is called over http: credentials can be read on the way"
            );
        }
        if let Some((setting, _)) = called.filter(|(_, url)| is_http(url)) {
            warn!(
                code = "security.abacus_http",
                setting, "the upstream is called over http: tokens can be read on the way"
            );
        }
        if self.secured && self.jwt_key.is_some() && self.issuer().is_none() {
            warn!(
                code = "security.issuer_unbound",
                "JWTKEY is set without SAMPLER_TOKEN_ISSUER: tokens of any issuer are accepted"
            );
        }
        let is_proxy = |name: &str| PROXIES.contains(&name.to_ascii_uppercase().as_str());
        let set = variables
            .iter()
            .filter(|(name, value)| is_proxy(name) && !value.is_empty());
        let names: Vec<&str> = set.map(|(name, _)| name.as_str()).collect();
        if !names.is_empty() {
            warn!(
                code = "security.proxy",
                variables = names.join(", "),
                "the upstream and the token server are called through a proxy of the environment"
            );
        }
    }
}
