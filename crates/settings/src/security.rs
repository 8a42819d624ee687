//! The parts that check callers, and that get tokens, as the settings say; and warnings of what is weak.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use sampler_service::oauth::http::{TlsError, client};
use sampler_service::oauth::{
    Algorithm, Audiences, Client, ClientCredentials, Discoverer, HttpOptions, Keyring, Keys,
    Policy, TokenServer,
};
use sampler_service::security::{Access, Authenticator};
use secrecy::{ExposeSecret, SecretString};
use tracing::warn;
use url::Url;

use crate::{SecuritySettings, Settings, UpstreamKind, Variables};

/// How long one request to the token server may take.
const TOKEN_SERVER_TIMEOUT: Duration = Duration::from_secs(5);

/// Variables by which the HTTP client finds a proxy, as curl and Node.js programs do; also in lower case.
const PROXIES: [&str; 3] = ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"];

impl SecuritySettings {
    /// Whether the health check needs a token. As the original has it: its manifests say `SECURED` alone.
    pub fn is_healthcheck_secured(&self) -> bool {
        self.healthcheck_secured.unwrap_or(self.secured)
    }

    /// Where tokens come from, if that is known, with the name of its setting.
    pub(crate) fn token_server(&self) -> Option<(&'static str, TokenServer)> {
        let of_uaa = |url: &Option<Url>| url.clone().map(TokenServer::CloudFoundry);
        let oidc = self.oidc_issuer.clone().map(TokenServer::Oidc);
        let oidc = oidc.map(|it| ("SAMPLER_OIDC_ISSUER", it));
        oidc.or_else(|| of_uaa(&self.auth_server).map(|it| ("AUTH_SERVER", it)))
            .or_else(|| of_uaa(&self.api).map(|it| ("API", it)))
    }

    /// The one algorithm that tokens may be signed with.
    pub(crate) fn algorithm(&self) -> Algorithm {
        let usual = match self.jwt_key {
            Some(_) => Algorithm::HS256,
            None => Algorithm::RS256,
        };
        self.jwt_algorithm.unwrap_or(usual)
    }

    /// The issuer that tokens must name, where that is configured.
    fn issuer(&self) -> Option<String> {
        let of_oidc = self.oidc_issuer.as_ref().map(Url::to_string);
        self.token_issuer.clone().or(of_oidc)
    }

    /// What identifies this installation: the issuer of the tokens that it accepts, and their audiences.
    pub fn installation(&self) -> [String; 2] {
        let server = self.token_server();
        let address = server.map(|(_, server)| server.address().to_string());
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
    fn discoverer(&self) -> Result<Option<Discoverer>, TlsError> {
        let Some((_, server)) = self.token_server() else {
            return Ok(None);
        };
        let client = client(&self.http_options(TOKEN_SERVER_TIMEOUT))?;
        let issuer = self.token_issuer.clone();
        Ok(Some(Discoverer::new(server, client, issuer)))
    }

    /// Where tokens with this scope come from; none where `SECURED` is false.
    pub fn tokens(&self, scope: &str) -> Result<Option<Arc<ClientCredentials>>, TlsError> {
        let scope = self.client_scope.as_deref().unwrap_or(scope);
        let client = self.client(None, None, scope)?;
        Ok(client.map(|client| {
            let audience = self.client_audience.clone();
            ClientCredentials::new(Client { audience, ..client })
        }))
    }

    /// A client of the token server, by default this program's. None if `SECURED` is false, or where the client or the
    /// token server is not known.
    pub fn client(
        &self,
        id: Option<String>,
        secret: Option<SecretString>,
        scope: &str,
    ) -> Result<Option<Client>, TlsError> {
        let id = id.or_else(|| self.client_id.clone());
        let secret = secret.or_else(|| self.client_secret.clone());
        let (true, Some(id), Some(secret)) = (self.secured, id, secret) else {
            return Ok(None);
        };
        Ok(self.discoverer()?.map(|server| Client {
            id,
            secret,
            scope: scope.to_owned(),
            audience: None,
            server,
        }))
    }

    /// The authenticator of the API. Only if `SECURED` is false does it need no tokens.
    pub fn authenticator(&self) -> anyhow::Result<Authenticator> {
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
        self.bearer()
    }

    /// Who may read the health and the metrics. `tokens` are those of the program's API, if it has one.
    pub fn access(&self, tokens: Option<&Authenticator>) -> anyhow::Result<Access> {
        let is_health_open = !self.is_healthcheck_secured();
        let metrics = match tokens.filter(|_| self.secured) {
            Some(tokens) => tokens.clone(),
            None if self.secured || !is_health_open => self.bearer()?,
            None => Authenticator::none(),
        };
        let health = if is_health_open {
            Authenticator::none()
        } else {
            metrics.clone()
        };
        Ok(Access { health, metrics })
    }

    /// What the tokens of callers must be.
    pub(crate) fn policy(&self) -> Policy {
        Policy {
            algorithm: self.algorithm(),
            issuer: self.issuer(),
            audiences: self.token_audience.clone(),
        }
    }

    fn bearer(&self) -> anyhow::Result<Authenticator> {
        let policy = self.policy();
        let keyring = if let Some(key) = &self.jwt_key {
            Keyring::configured(Keys::configured(key.expose_secret(), &policy)?)
        } else {
            let server = self.discoverer()?.context("no token server is known")?;
            Keyring::fetched(server, policy)
        };
        Ok(Authenticator::bearer(keyring))
    }
}

impl Settings {
    /// Logs what a person should check, once the log is there: each weakness. `variables` are those of the environment.
    pub fn announce(&self, variables: &Variables) {
        let security = &self.security;
        let is_http = |url: &Url| url.scheme() == "http";
        if security.skip_ssl_validation {
            warn!(
                code = "security.certificates_unchecked",
                "SKIP_SSL_VALIDATION is true: certificates of the upstream and of UAA are not checked"
            );
        }
        if let Some((setting, server)) = security.token_server()
            && is_http(server.address())
        {
            warn!(
                code = "security.token_server_http",
                setting, "the token server is called over http: credentials can be read on the way"
            );
        }
        for (setting, url) in self.called_with_tokens() {
            if is_http(url) {
                warn!(
                    code = "security.abacus_http",
                    setting, "the upstream is called over http: tokens can be read on the way"
                );
            }
        }
        if security.secured && security.jwt_key.is_some() && security.issuer().is_none() {
            warn!(
                code = "security.issuer_unbound",
                "JWTKEY is set without SAMPLER_TOKEN_ISSUER: tokens of any issuer are accepted"
            );
        }
        let is_proxy = |name: &str| PROXIES.contains(&name.to_ascii_uppercase().as_str());
        let set = variables.iter().filter(|(_, value)| !value.is_empty());
        let names = set.map(|(name, _)| name.as_str());
        let names: Vec<&str> = names.filter(|name| is_proxy(name)).collect();
        if !names.is_empty() {
            warn!(
                code = "security.proxy",
                variables = names.join(", "),
                "the upstream and the token server are called through a proxy of the environment"
            );
        }
    }

    /// The addresses to which tokens are sent, with the names of their settings.
    fn called_with_tokens(&self) -> impl Iterator<Item = (&'static str, &Url)> {
        let secured = self.security.secured;
        let is_events = self.upstream.kind == UpstreamKind::CloudEvents;
        let has_token = secured || (is_events && self.upstream.token.is_some());
        let (setting, url) = self.destination();
        let provisioning = self.provisioning.url.as_ref().filter(|_| secured);
        let provisioning = provisioning.map(|url| ("PROVISIONING_URL", url));
        let upstream = url.filter(|_| has_token).map(|url| (setting, url));
        upstream.into_iter().chain(provisioning)
    }
}
