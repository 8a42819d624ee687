//! What an operator can say of who may call and as whom a program calls others, and the one place
//! that refuses what could not be honoured.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use sampler_oauth::verify::LEEWAY_MAX;
use sampler_oauth::{
    Algorithm, BasicCheck, CaBundle, Client, ClientCredentials, Discoverer, HttpOptions, Keyring,
    Keys, Pace, Policy, TokenServer,
};
use secrecy::{ExposeSecret, SecretString};
use url::Url;

use super::door::Door;
use crate::environment::Clock;
use crate::metrics::Readers;
use crate::settings::{HIDDEN, Kind, Reader, Setting};

/// The scope that somebody needs who wants to know how the program is.
const HEALTH_SCOPE: &str = "abacus.system.read";

/// How long one request to the token server may take.
const TOKEN_SERVER_TIMEOUT: Duration = Duration::from_secs(5);

/// Who may call, and as whom a program calls others.
pub const SECURITY: [Setting; 14] = [
    Setting::new(
        "security.secured",
        "SECURED",
        Kind::Boolean,
        "Whether requests need a token, and requests to Abacus carry one.",
    )
    .or("false"),
    Setting::new(
        "security.healthcheck_secured",
        "HEALTHCHECK_SECURED",
        Kind::Boolean,
        "Whether GET /healthcheck needs credentials. Without it they are needed where SECURED is \
         true.",
    ),
    Setting::new(
        "security.skip_ssl_validation",
        "SKIP_SSL_VALIDATION",
        Kind::Boolean,
        "Whether to trust any certificate of the systems that are called. Not for production.",
    )
    .or("false"),
    Setting::new(
        "security.auth_server",
        "AUTH_SERVER",
        Kind::Url,
        "The Cloud Foundry API that names the token server.",
    ),
    Setting::new(
        "security.api",
        "API",
        Kind::Url,
        "The Cloud Foundry API, where it is not the one that names the token server.",
    ),
    Setting::new(
        "security.client_id",
        "CLIENT_ID",
        Kind::Text,
        "The client of the token server as which the program calls others.",
    ),
    Setting::new(
        "security.client_secret",
        "CLIENT_SECRET",
        Kind::Text,
        "The secret of that client.",
    )
    .secret(),
    Setting::new(
        "security.jwt_key",
        "JWTKEY",
        Kind::Text,
        "The key that tokens are checked with: a shared one for HS256, HS384 and HS512, a public \
         one as PEM for the others. Without it the keys of the token server are fetched.",
    )
    .secret(),
    Setting::new(
        "security.jwt_algorithm",
        "JWTALGO",
        Kind::Choice(&Algorithm::NAMES),
        "The one algorithm that tokens may be signed with. Without it HS256 where JWTKEY is set, \
         and RS256 where keys are fetched, which are never shared ones.",
    ),
    Setting::new(
        "security.oidc_issuer",
        "SAMPLER_OIDC_ISSUER",
        Kind::Url,
        "The token server, where it is not the UAA of a Cloud Foundry: an issuer that describes \
         itself at /.well-known/openid-configuration. Counts before AUTH_SERVER.",
    ),
    Setting::new(
        "security.token_issuer",
        "SAMPLER_TOKEN_ISSUER",
        Kind::Text,
        "The issuer (iss) that tokens must name. Without it SAMPLER_OIDC_ISSUER, if that is set.",
    ),
    Setting::new(
        "security.token_audience",
        "SAMPLER_TOKEN_AUDIENCE",
        Kind::Text,
        "The audience (aud) that tokens must be meant for.",
    ),
    Setting::new(
        "security.token_leeway",
        "SAMPLER_TOKEN_LEEWAY",
        Kind::Duration {
            min: Duration::ZERO,
            max: LEEWAY_MAX,
        },
        "By how much the clock of the token server may differ.",
    )
    .or("10s"),
    Setting::new(
        "security.ca_file",
        "SAMPLER_CA_FILE",
        Kind::Text,
        "A file of certificates (PEM) of authorities to trust besides those of the system, for all \
         that is called over HTTPS. For the database, tlsCAFile in DB_URI does the same.",
    ),
];

/// Who may call, and as whom a program calls others.
#[derive(Clone)]
pub struct SecuritySettings {
    /// Whether tokens are needed.
    pub secured: bool,
    /// Whether the health check needs credentials.
    pub healthcheck_secured: bool,
    /// Whether any certificate is trusted.
    pub skip_ssl_validation: bool,
    /// The Cloud Foundry API that names the token server.
    pub auth_server: Option<Url>,
    /// The Cloud Foundry API.
    pub api: Option<Url>,
    /// The client as which the program calls others.
    pub client_id: Option<String>,
    /// Its secret.
    pub client_secret: Option<SecretString>,
    /// The key that tokens are checked with.
    pub jwt_key: Option<SecretString>,
    /// How tokens must be signed, if that is said.
    pub jwt_algorithm: Option<Algorithm>,
    /// The token server, where it is no UAA.
    pub oidc_issuer: Option<Url>,
    /// Who must have issued a token.
    pub token_issuer: Option<String>,
    /// Whom a token must be meant for.
    pub token_audience: Option<String>,
    /// By how much clocks may differ.
    pub token_leeway: Duration,
    /// Whom to trust besides the system's authorities.
    pub authorities: CaBundle,
}

impl SecuritySettings {
    /// Reads the group [`SECURITY`], and refuses a health check that could not be secured.
    pub fn read(reader: &mut Reader<'_>) -> Self {
        let authorities = reader.parse_with("security.ca_file", |path| {
            CaBundle::read(Path::new(path)).map_err(|error| format!("certificates: {error}"))
        });
        let algorithm = reader.optional_text("security.jwt_algorithm");
        let named = |name: &String| Algorithm::ALL.iter().find(|(known, _)| known == name);
        let secured = reader.boolean("security.secured");
        // As an original has it: its manifests say SECURED alone.
        let healthcheck_secured = reader.optional_boolean("security.healthcheck_secured");
        let settings = Self {
            secured,
            healthcheck_secured: healthcheck_secured.unwrap_or(secured),
            skip_ssl_validation: reader.boolean("security.skip_ssl_validation"),
            auth_server: reader.optional_url("security.auth_server"),
            api: reader.optional_url("security.api"),
            client_id: reader.optional_text("security.client_id"),
            client_secret: reader.secret("security.client_secret"),
            jwt_key: reader.secret("security.jwt_key"),
            jwt_algorithm: algorithm.as_ref().and_then(named).map(|(_, it)| *it),
            oidc_issuer: reader.optional_url("security.oidc_issuer"),
            token_issuer: reader.optional_text("security.token_issuer"),
            token_audience: reader.optional_text("security.token_audience"),
            token_leeway: reader.duration("security.token_leeway"),
            authorities: authorities.unwrap_or_default(),
        };
        if settings.healthcheck_secured && settings.token_server().is_none() {
            let expected = "the address of the token server, because GET /healthcheck needs \
                            credentials: so it is where SECURED is true, unless \
                            HEALTHCHECK_SECURED is false";
            reader.reject("security.auth_server", expected);
        }
        settings
    }

    /// For a program with an API: refuses `SECURED=true` without a key that could tell a good
    /// token from a bad one. A program that was told to be secure and is not must not run: better
    /// no billing than billing that anyone can write to.
    pub fn require_keys(&self, reader: &mut Reader<'_>) {
        if !self.secured {
            return;
        }
        match &self.jwt_key {
            Some(key) => {
                if let Err(error) = Keys::configured(key.expose_secret(), self.algorithm()) {
                    let expected = format!("a key for {}: {error}", self.algorithm());
                    reader.reject("security.jwt_key", &expected);
                }
            }
            None if self.token_server().is_none() => {
                let expected = "a key, or AUTH_SERVER or SAMPLER_OIDC_ISSUER to fetch keys from, \
                                because SECURED is true and no token could be checked";
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

    /// For a program that calls others: refuses `SECURED=true` where it could not get a token.
    pub fn require_client(&self, reader: &mut Reader<'_>) {
        if !self.secured {
            return;
        }
        let expected = "a value, because SECURED is true and Abacus is called with a token";
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

    /// Where tokens come from, if that is known.
    fn token_server(&self) -> Option<TokenServer> {
        let oidc = self.oidc_issuer.clone().map(TokenServer::Oidc);
        let api = self.auth_server.as_ref().or(self.api.as_ref());
        oidc.or_else(|| api.cloned().map(TokenServer::CloudFoundry))
    }

    /// The one algorithm that tokens may be signed with.
    fn algorithm(&self) -> Algorithm {
        let usual = match self.jwt_key {
            Some(_) => Algorithm::Hs256,
            None => Algorithm::Rs256,
        };
        self.jwt_algorithm.unwrap_or(usual)
    }

    fn policy(&self) -> Policy {
        let of_oidc = self.oidc_issuer.as_ref().map(Url::to_string);
        Policy {
            algorithm: self.algorithm(),
            issuer: self.token_issuer.clone().or(of_oidc),
            audience: self.token_audience.clone(),
            leeway: self.token_leeway,
        }
    }

    /// How to reach others over HTTP.
    pub fn http_options(&self, timeout: Duration) -> HttpOptions {
        HttpOptions {
            timeout,
            skip_ssl_validation: self.skip_ssl_validation,
            authorities: self.authorities.clone(),
        }
    }

    fn discoverer(&self) -> anyhow::Result<Discoverer> {
        let server = self.token_server().context("no token server is known")?;
        let client = sampler_oauth::http::client(&self.http_options(TOKEN_SERVER_TIMEOUT))?;
        Ok(Discoverer::new(server, client))
    }

    /// The door of the API. It stands open where `SECURED` is false, and only then.
    ///
    /// # Errors
    /// Where [`Self::require_keys`] was not heeded, or a client cannot be set up.
    pub fn door(&self, clock: Arc<dyn Clock>) -> anyhow::Result<Door> {
        if !self.secured {
            tracing::warn!("SECURED is false: anybody who reaches this program may write events");
            return Ok(Door::open());
        }
        let algorithm = self.algorithm();
        let keyring = match &self.jwt_key {
            Some(key) => {
                let key = key.expose_secret();
                if Keys::is_short(key, algorithm) {
                    tracing::warn!("JWTKEY is shorter than RFC 7518 asks for, and may be guessed");
                }
                Keyring::configured(Keys::configured(key, algorithm)?)
            }
            None => Keyring::fetched(self.discoverer()?, algorithm, Pace::default()),
        };
        Ok(Door::guarded(keyring, self.policy(), clock))
    }

    /// Where tokens with this scope come from; none where `SECURED` is false.
    ///
    /// # Errors
    /// Where [`Self::require_client`] was not heeded, or a client cannot be set up.
    pub fn tokens(&self, scope: &'static str) -> anyhow::Result<Option<Arc<ClientCredentials>>> {
        if !self.secured {
            return Ok(None);
        }
        let client = Client {
            id: self.client_id.clone().context("no client id")?,
            secret: self.client_secret.clone().context("no client secret")?,
            scope,
        };
        Ok(Some(ClientCredentials::new(client, self.discoverer()?)))
    }

    /// What checks the credentials of those who ask for the health; none where
    /// `HEALTHCHECK_SECURED` is false.
    ///
    /// # Errors
    /// Where a client cannot be set up.
    pub fn health_check(&self) -> anyhow::Result<Option<BasicCheck>> {
        if !self.healthcheck_secured {
            return Ok(None);
        }
        Ok(Some(BasicCheck::new(self.discoverer()?, HEALTH_SCOPE)))
    }

    /// Who may read the metrics: those who may read the health, where either `SECURED` or
    /// `HEALTHCHECK_SECURED` is true.
    ///
    /// # Errors
    /// Where a client cannot be set up.
    pub fn metrics(&self) -> anyhow::Result<Readers> {
        if !self.secured && !self.healthcheck_secured {
            return Ok(Readers::Anybody);
        }
        if self.token_server().is_none() {
            tracing::warn!(
                "no token server is known that could check credentials: there is no /metrics"
            );
            return Ok(Readers::Nobody);
        }
        let check = BasicCheck::new(self.discoverer()?, HEALTH_SCOPE);
        Ok(Readers::Checked(Arc::new(check)))
    }
}

impl fmt::Debug for SecuritySettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hidden = |secret: &Option<SecretString>| secret.as_ref().map(|_| HIDDEN);
        f.debug_struct("SecuritySettings")
            .field("secured", &self.secured)
            .field("healthcheck_secured", &self.healthcheck_secured)
            .field("skip_ssl_validation", &self.skip_ssl_validation)
            .field("auth_server", &self.auth_server.as_ref().map(Url::as_str))
            .field("api", &self.api.as_ref().map(Url::as_str))
            .field("client_id", &self.client_id)
            .field("client_secret", &hidden(&self.client_secret))
            .field("jwt_key", &hidden(&self.jwt_key))
            .field("jwt_algorithm", &self.jwt_algorithm)
            .field("oidc_issuer", &self.oidc_issuer.as_ref().map(Url::as_str))
            .field("token_issuer", &self.token_issuer)
            .field("token_audience", &self.token_audience)
            .field("token_leeway", &self.token_leeway)
            .finish_non_exhaustive()
    }
}
