//! What the programs do to be sure whom they talk to: the settings of it, and the one place that
//! refuses those which cannot be honoured yet.

use std::fmt;

use secrecy::SecretString;
use url::Url;

use crate::settings::{Kind, Reader, Setting};

/// Who may call, and as whom a program calls others.
pub const SECURITY: [Setting; 9] = [
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
        "Whether GET /healthcheck needs credentials.",
    )
    .or("false"),
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
        "The key that tokens are checked with: a shared one for HS256, a public one as PEM for \
         RS256. Without it the keys of the token server are fetched.",
    )
    .secret(),
    Setting::new(
        "security.jwt_algorithm",
        "JWTALGO",
        Kind::Choice(&["HS256", "RS256"]),
        "The one algorithm that tokens may be signed with.",
    )
    .or("HS256"),
];

/// How tokens are signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JwtAlgorithm {
    /// With a shared key.
    Hs256,
    /// With the private half of a pair of keys.
    Rs256,
}

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
    /// How tokens must be signed.
    pub jwt_algorithm: JwtAlgorithm,
}

impl SecuritySettings {
    /// Reads the group [`SECURITY`], and refuses what cannot be honoured.
    pub fn read(reader: &mut Reader<'_>) -> Self {
        let algorithms = [
            ("HS256", JwtAlgorithm::Hs256),
            ("RS256", JwtAlgorithm::Rs256),
        ];
        let settings = Self {
            secured: reader.boolean("security.secured"),
            healthcheck_secured: reader.boolean("security.healthcheck_secured"),
            skip_ssl_validation: reader.boolean("security.skip_ssl_validation"),
            auth_server: reader.optional_url("security.auth_server"),
            api: reader.optional_url("security.api"),
            client_id: reader.optional_text("security.client_id"),
            client_secret: reader.secret("security.client_secret"),
            jwt_key: reader.secret("security.jwt_key"),
            jwt_algorithm: reader.choice("security.jwt_algorithm", &algorithms),
        };
        settings.refuse_what_cannot_be_honoured(reader);
        settings
    }

    /// A program that was told to be secure and is not must not run: better no billing than
    /// billing that anyone can write to.
    fn refuse_what_cannot_be_honoured(&self, reader: &mut Reader<'_>) {
        let expected = "false: true cannot be honoured yet, refusing to start";
        if self.secured {
            reader.reject("security.secured", expected);
        }
        if self.healthcheck_secured {
            reader.reject("security.healthcheck_secured", expected);
        }
    }
}

impl fmt::Debug for SecuritySettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hidden =
            |secret: &Option<SecretString>| secret.as_ref().map(|_| crate::settings::HIDDEN);
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
            .finish()
    }
}
