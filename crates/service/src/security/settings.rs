//! The settings for the callers of a program and for its own credentials, and the one place that
//! refuses settings that could not be honoured.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use sampler_oauth::discovery::is_private;
use sampler_oauth::{
    Algorithm, Audiences, CaBundle, Client, ClientCredentials, CodeFlow, Discoverer, HttpOptions,
    Issuer, Keyring, Keys, Pace, Policy, TokenServer,
};
use secrecy::{ExposeSecret, SecretString};
use url::Url;

use super::authenticator::Authenticator;
use super::monitors::{Access, Monitors};
use crate::environment::Clock;
use crate::settings::{Kind, Reader};

/// How long one request to the token server may take.
const TOKEN_SERVER_TIMEOUT: Duration = Duration::from_secs(5);

crate::settings! {
    /// The checks of callers, and the credentials of the program itself.
    pub struct SecuritySettings("security", checked by SecuritySettings::check) {
        /// Whether requests need a token, and requests to the upstream and to Abacus carry one.
        secured: bool = "SECURED", Kind::Boolean, or("false");
        /// Whether GET /healthcheck needs a token, with the scope abacus.system.read or one of Sampler.
        /// The default is the value of SECURED.
        healthcheck_secured: Option<bool> = "HEALTHCHECK_SECURED", Kind::Boolean;
        /// Whether to trust any server certificate. Not for production.
        skip_ssl_validation: bool = "SKIP_SSL_VALIDATION", Kind::Boolean, or("false");
        /// The Cloud Foundry API that names the token server.
        auth_server: Option<Url> = "AUTH_SERVER", Kind::Url;
        /// The Cloud Foundry API; used if AUTH_SERVER is not set.
        api: Option<Url> = "API", Kind::Url;
        /// The OAuth client of this program, for its own requests to the upstream and to Abacus.
        client_id: Option<String> = "CLIENT_ID", Kind::Text;
        /// The secret of the client.
        client_secret: Option<SecretString> = "CLIENT_SECRET", Kind::Text, secret();
        /// The key that checks tokens: a shared key for HS256, HS384 and HS512, a public key as PEM
        /// for the others. Without it, the keys of the token server are fetched.
        jwt_key: Option<SecretString> = "JWTKEY", Kind::Text, secret();
        /// The only algorithm that tokens may be signed with. The default is HS256 with JWTKEY, and
        /// RS256 with fetched keys. Fetched keys are never shared keys.
        jwt_algorithm: Option<Algorithm> = "JWTALGO", Kind::Choice(&Algorithm::NAMES) => algorithm;
        /// The token server, if it is not the UAA of a Cloud Foundry: an issuer that serves
        /// /.well-known/openid-configuration. It overrides AUTH_SERVER.
        oidc_issuer: Option<Url> = "SAMPLER_OIDC_ISSUER", Kind::Url;
        /// The issuer (iss) that tokens must name. The default is SAMPLER_OIDC_ISSUER, if it is set.
        /// With keys of a UAA, the default is the issuer in its /.well-known/openid-configuration.
        token_issuer: Option<String> = "SAMPLER_TOKEN_ISSUER", Kind::Text;
        /// The accepted audiences (aud) of tokens, separated by commas; a token needs one of them. A
        /// final * matches any longer audience. For a UAA, set abacus.sampler,abacus.sampler.* here.
        token_audience: Option<Audiences> = "SAMPLER_TOKEN_AUDIENCE", Kind::Text => audiences;
        /// The scope in requests for the program's own tokens, where the token server needs another than
        /// the default; Entra wants one that ends in /.default, for example.
        client_scope: Option<String> = "SAMPLER_CLIENT_SCOPE", Kind::Text;
        /// The audience in requests for the program's own tokens, where the token server needs one, as
        /// Auth0 does.
        client_audience: Option<String> = "SAMPLER_CLIENT_AUDIENCE", Kind::Text;
        /// A PEM file with certificate authorities to trust for HTTPS, in addition to those of the
        /// system. For the database, use tlsCAFile in DB_URI.
        ca_file: Option<CaBundle> = "SAMPLER_CA_FILE", Kind::Text => authorities;
    }
}

fn algorithm(name: &str) -> Result<Algorithm, String> {
    Algorithm::from_name(name).ok_or_else(|| Algorithm::NAMES.join(", "))
}

fn audiences(text: &str) -> Result<Audiences, String> {
    Audiences::parse(text).map_err(str::to_owned)
}

fn authorities(path: &str) -> Result<CaBundle, String> {
    CaBundle::read(Path::new(path)).map_err(|error| format!("certificates: {error}"))
}

impl SecuritySettings {
    /// Refuses tokens that could not be checked, and credentials that others could read.
    fn check(&self, reader: &mut Reader) {
        let is_private = self
            .token_server()
            .is_none_or(|server| is_private(server.address()));
        if self.secured && !is_private {
            let expected = "an address with https, because SECURED is true, and credentials and tokens \
                            could be read on the way";
            reader.reject(self.key_of_token_server(), expected);
        }
        if self.secured || self.is_healthcheck_secured() {
            self.check_keys(reader);
        }
    }

    /// Whether the health check needs a token. As the original has it: its manifests say `SECURED` alone.
    pub fn is_healthcheck_secured(&self) -> bool {
        self.healthcheck_secured.unwrap_or(self.secured)
    }

    pub fn authorities(&self) -> CaBundle {
        self.ca_file.clone().unwrap_or_default()
    }

    /// Refuses settings without a key that could distinguish a good token from a bad one. A program that
    /// is set to be secure but is not must not run: better no billing than billing that anyone can write to.
    fn check_keys(&self, reader: &mut Reader) {
        match &self.jwt_key {
            Some(key) => {
                if let Err(expected) = self.check_key(key.expose_secret()) {
                    reader.reject("security.jwt_key", &expected);
                }
            }
            None if self.token_server().is_none() => {
                let expected = "a key, or AUTH_SERVER, API or SAMPLER_OIDC_ISSUER to fetch keys from: \
                                where SECURED or HEALTHCHECK_SECURED is true, tokens are checked";
                reader.reject("security.jwt_key", expected);
            }
            None if self.algorithm().is_shared() => {
                let expected = "RS256, RS384, RS512 or ES256 where JWTKEY is not set: fetched keys \
                                are never shared ones";
                reader.reject("security.jwt_algorithm", expected);
            }
            None => {}
        }
    }

    fn check_key(&self, key: &str) -> Result<(), String> {
        let algorithm = self.algorithm();
        Keys::configured(key, algorithm)
            .map_err(|error| format!("a key for {algorithm}: {error}"))?;
        if Keys::is_short(key, algorithm) {
            let length = algorithm.shared_key_len();
            return Err(format!(
                "a shared key of at least {length} bytes for {algorithm} (RFC 7518, section 3.2); \
                 a shorter one may be guessed"
            ));
        }
        Ok(())
    }

    /// For a program that calls others: refuses `SECURED=true` where it could not get a token.
    pub fn require_client(&self, reader: &mut Reader) {
        if !self.secured {
            return;
        }
        let expected = "a value, because SECURED is true and other systems are called with a token";
        if self.client_id.is_none() {
            reader.reject("security.client_id", expected);
        }
        if self.client_secret.is_none() {
            reader.reject("security.client_secret", expected);
        }
        if self.token_server().is_none() {
            reader.reject("security.auth_server", expected);
        }
    }

    /// For a program with an API: notes whose requests it takes.
    pub fn note_callers(&self, reader: &mut Reader) {
        let source = reader.source("security.secured");
        let text = match (self.secured, &self.jwt_key, self.token_server()) {
            (false, ..) => format!(
                "no tokens: everybody who reaches it may send events; SECURED is false{source}"
            ),
            (true, Some(_), _) => "tokens are checked with the key in JWTKEY".to_owned(),
            (true, None, server) => {
                let address = server.map(|server| server.address().to_string());
                format!(
                    "tokens are checked with keys of the token server of {}",
                    address.unwrap_or_default()
                )
            }
        };
        reader.note("callers", text);
        if self.secured && self.token_audience.is_none() {
            let text = "not checked: tokens for other services are accepted, because \
                        SAMPLER_TOKEN_AUDIENCE is not set";
            reader.note("audience", text);
        }
    }

    /// For a program that calls others: notes with which credentials.
    pub fn note_client(&self, reader: &mut Reader) {
        let text = match &self.client_id {
            Some(id) if self.secured => format!("as the client {id}, with tokens"),
            _ => "no tokens: SECURED is false".to_owned(),
        };
        self.note_calls(&text, reader);
    }

    /// The same, with credentials that are not those of this program's client.
    pub fn note_calls(&self, credentials: &str, reader: &mut Reader) {
        reader.note("calls", credentials);
        if self.skip_ssl_validation {
            reader.note(
                "TLS",
                "any certificate is trusted: SKIP_SSL_VALIDATION is true",
            );
        }
    }

    /// Whether it is known where tokens come from.
    pub fn has_token_server(&self) -> bool {
        self.token_server().is_some()
    }

    /// Where tokens come from, if that is known.
    pub(super) fn token_server(&self) -> Option<TokenServer> {
        let oidc = self.oidc_issuer.clone().map(TokenServer::Oidc);
        let api = self.auth_server.as_ref().or(self.api.as_ref());
        oidc.or_else(|| api.cloned().map(TokenServer::CloudFoundry))
    }

    fn key_of_token_server(&self) -> &'static str {
        match (&self.oidc_issuer, &self.auth_server) {
            (Some(_), _) => "security.oidc_issuer",
            (None, Some(_)) => "security.auth_server",
            (None, None) => "security.api",
        }
    }

    /// The one algorithm that tokens may be signed with.
    pub(super) fn algorithm(&self) -> Algorithm {
        let usual = match self.jwt_key {
            Some(_) => Algorithm::Hs256,
            None => Algorithm::Rs256,
        };
        self.jwt_algorithm.unwrap_or(usual)
    }

    fn policy(&self) -> Policy {
        Policy {
            algorithm: self.algorithm(),
            issuer: self.issuer(),
            audiences: self.token_audience.clone(),
        }
    }

    /// The issuer that tokens must name, where that is configured.
    pub(super) fn issuer(&self) -> Option<String> {
        let of_oidc = self.oidc_issuer.as_ref().map(Url::to_string);
        self.token_issuer.clone().or(of_oidc)
    }

    /// What identifies this installation: the issuer of the tokens that it accepts, and their
    /// audiences.
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
            authorities: self.authorities(),
        }
    }

    fn discoverer(&self) -> anyhow::Result<Discoverer> {
        let server = self.token_server().context("no token server is known")?;
        let client = sampler_oauth::http::client(&self.http_options(TOKEN_SERVER_TIMEOUT))?;
        Ok(Discoverer::new(server, client)
            .allow_http(!self.secured)
            .of_issuer(self.token_issuer.clone()))
    }

    /// The authenticator of the API. Only if `SECURED` is false does it need no tokens.
    ///
    /// # Errors
    /// If mistakes were not heeded, or a client cannot be set up.
    pub fn authenticator(&self, clock: Arc<dyn Clock>) -> anyhow::Result<Authenticator> {
        if !self.secured {
            tracing::warn!(
                code = "security.open",
                "SECURED is false: anybody who reaches this program may write events"
            );
            return Ok(Authenticator::none());
        }
        if self.token_audience.is_none() {
            tracing::warn!(
                code = "security.audience_unbound",
                "SAMPLER_TOKEN_AUDIENCE is not set: tokens for other services are accepted"
            );
        }
        self.bearer(clock)
    }

    fn bearer(&self, clock: Arc<dyn Clock>) -> anyhow::Result<Authenticator> {
        let algorithm = self.algorithm();
        let keyring = match &self.jwt_key {
            Some(key) => Keyring::configured(Keys::configured(key.expose_secret(), algorithm)?),
            None => self.fetched_keys(algorithm)?,
        };
        Ok(Authenticator::bearer(keyring, self.policy(), clock))
    }

    fn fetched_keys(&self, algorithm: Algorithm) -> anyhow::Result<Arc<Keyring>> {
        let issuer = match self.issuer() {
            Some(_) => Issuer::Configured,
            None => Issuer::Discovered,
        };
        let discoverer = self.discoverer()?;
        Ok(Keyring::fetched(
            discoverer,
            algorithm,
            issuer,
            Pace::default(),
        ))
    }

    /// Where tokens with this scope come from, unless another is set; none where `SECURED` is false.
    ///
    /// # Errors
    /// If [`Self::require_client`] was not heeded, or a client cannot be set up.
    pub fn tokens(&self, scope: &'static str) -> anyhow::Result<Option<Arc<ClientCredentials>>> {
        if !self.secured {
            return Ok(None);
        }
        let client = Client {
            id: self.client_id.clone().context("no client id")?,
            secret: self.client_secret.clone().context("no client secret")?,
            scope: self.client_scope.clone().unwrap_or(scope.to_owned()),
            audience: self.client_audience.clone(),
        };
        Ok(Some(ClientCredentials::new(client, self.discoverer()?)))
    }

    /// The client with which people sign in: their own, or else this program's. None if `SECURED`
    /// is false, or where the client or the token server is not known.
    pub fn code_flow(
        &self,
        id: Option<String>,
        secret: Option<SecretString>,
        scope: &'static str,
    ) -> anyhow::Result<Option<CodeFlow>> {
        let (Some(id), Some(secret)) = (
            id.or_else(|| self.client_id.clone()),
            secret.or_else(|| self.client_secret.clone()),
        ) else {
            return Ok(None);
        };
        if !self.secured || !self.has_token_server() {
            return Ok(None);
        }
        let client = Client {
            id,
            secret,
            scope: scope.to_owned(),
            audience: None,
        };
        Ok(Some(CodeFlow::new(client, self.discoverer()?)))
    }

    /// Who may read the health and the metrics. `tokens` are those of the program's API, if it has one.
    ///
    /// # Errors
    /// If mistakes were not heeded, or a client cannot be set up.
    pub fn access(
        &self,
        tokens: Option<&Authenticator>,
        clock: Arc<dyn Clock>,
    ) -> anyhow::Result<Access> {
        if !self.secured && !self.is_healthcheck_secured() {
            return Ok(Access {
                health: Monitors::Anybody,
                metrics: Monitors::Anybody,
            });
        }
        let tokens = match tokens.filter(|_| self.secured) {
            Some(tokens) => tokens.clone(),
            None => self.bearer(clock)?,
        };
        let metrics = Monitors::WithToken(tokens);
        let health = if self.is_healthcheck_secured() {
            metrics.clone()
        } else {
            Monitors::Anybody
        };
        Ok(Access { health, metrics })
    }
}
