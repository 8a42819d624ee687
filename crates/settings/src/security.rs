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

use crate::{Of, SecuritySettings, Settings, UpstreamKind, Variables};

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
        let uaa = |url: &Option<Url>| url.clone().map(TokenServer::CloudFoundry);
        let known = [
            (
                "SAMPLER_OIDC_ISSUER",
                self.oidc_issuer.clone().map(TokenServer::Oidc),
            ),
            ("AUTH_SERVER", uaa(&self.auth_server)),
            ("API", uaa(&self.api)),
        ];
        known
            .into_iter()
            .find_map(|(setting, server)| Some((setting, server?)))
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
        [self.issuer().or(address), audiences].map(Option::unwrap_or_default)
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
        Ok(self.client(None, scope)?.map(ClientCredentials::new))
    }

    /// A client of the token server: its `own` id and secret, or else this program's. None if `SECURED` is false, or
    /// where the client or the token server is not known.
    pub fn client(
        &self,
        own: Option<(String, SecretString)>,
        scope: &str,
    ) -> Result<Option<Client>, TlsError> {
        let usual = || self.client_id.clone().zip(self.client_secret.clone());
        let (true, Some((id, secret))) = (self.secured, own.or_else(usual)) else {
            return Ok(None);
        };
        Ok(self.discoverer()?.map(|server| Client {
            id,
            secret,
            scope: scope.to_owned(),
            audience: self.client_audience.clone(),
            server,
        }))
    }

    /// The authenticator of the API. Only if `SECURED` is false does it need no tokens.
    pub fn authenticator(&self) -> anyhow::Result<Authenticator> {
        if self.secured {
            self.bearer()
        } else {
            Ok(Authenticator::none())
        }
    }

    /// Who may read the health and the metrics. `tokens` are those of the program's API, if it has one.
    pub fn access(&self, tokens: Option<&Authenticator>) -> anyhow::Result<Access> {
        let is_health_secured = self.is_healthcheck_secured();
        let metrics = match tokens.filter(|_| self.secured) {
            Some(tokens) => tokens.clone(),
            None if self.secured || is_health_secured => self.bearer()?,
            None => Authenticator::none(),
        };
        let health = Some(metrics.clone()).filter(|_| is_health_secured);
        let health = health.unwrap_or_else(Authenticator::none);
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
    /// Logs each weakness, once the log is there. `variables` are those of the environment.
    pub fn announce(&self, program: Of, variables: &Variables) {
        let (security, is_secured) = (&self.security, self.security.secured);
        let is_receiver = program == Of::Receiver;
        if is_receiver && !is_secured {
            warn!(
                code = "security.open",
                "SECURED is false: anybody who reaches this program may write events"
            );
        }
        if is_receiver && is_secured && security.token_audience.is_none() {
            warn!(
                code = "security.audience_unbound",
                "SAMPLER_TOKEN_AUDIENCE is not set: tokens for other services are accepted"
            );
        }
        if is_secured && security.jwt_key.is_some() && security.issuer().is_none() {
            warn!(
                code = "security.issuer_unbound",
                "JWTKEY is set without SAMPLER_TOKEN_ISSUER: tokens of any issuer are accepted"
            );
        }
        if security.skip_ssl_validation {
            warn!(
                code = "security.certificates_unchecked",
                "SKIP_SSL_VALIDATION is true: certificates of the upstream and of UAA are not checked"
            );
        }
        let upstream = &self.upstream;
        let has_own_token = upstream.kind == UpstreamKind::CloudEvents && upstream.token.is_some();
        let (setting, url) = self.destination();
        let provisioning = self.provisioning.url.as_ref();
        for (setting, url, has_token) in [
            (setting, url, is_secured || has_own_token),
            ("PROVISIONING_URL", provisioning, is_secured),
        ] {
            if has_token && url.is_some_and(|url| url.scheme() == "http") {
                warn!(
                    code = "security.abacus_http",
                    setting, "the upstream is called over http: tokens can be read on the way"
                );
            }
        }
        let is_proxy = |name: &&str| PROXIES.contains(&name.to_ascii_uppercase().as_str());
        let set = variables.iter().filter(|(_, value)| !value.is_empty());
        let proxies: Vec<&str> = set
            .map(|(name, _)| name.as_str())
            .filter(is_proxy)
            .collect();
        if !proxies.is_empty() {
            let variables = proxies.join(", ");
            warn!(
                code = "security.proxy",
                variables,
                "the upstream and the token server are called through a proxy of the environment"
            );
        }
    }
}
