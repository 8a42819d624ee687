//! Settings that make a program less secure: each is logged at the start.

use tracing::warn;
use url::Url;

use super::SecuritySettings;
use crate::settings::Variables;

/// Variables by which the HTTP client finds a proxy, as curl and Node.js programs do.
const PROXIES: [&str; 6] = [
    "HTTP_PROXY",
    "http_proxy",
    "HTTPS_PROXY",
    "https_proxy",
    "ALL_PROXY",
    "all_proxy",
];

impl SecuritySettings {
    /// Logs each weakness, once the log is there. `called` are the addresses that are called with
    /// tokens, with the names of their settings.
    pub fn announce(&self, called: &[(&str, &Url)], variables: &Variables) {
        self.announce_the_way(called);
        if self.secured {
            self.announce_keys();
        }
        let proxies: Vec<&str> = PROXIES
            .iter()
            .copied()
            .filter(|name| variables.get(name).is_some())
            .collect();
        if !proxies.is_empty() {
            warn!(
                code = "security.proxy",
                variables = proxies.join(", "),
                "the upstream and the token server are called through a proxy of the environment"
            );
        }
    }

    fn announce_the_way(&self, called: &[(&str, &Url)]) {
        if self.skip_ssl_validation {
            warn!(
                code = "security.certificates_unchecked",
                "SKIP_SSL_VALIDATION is true: certificates of the upstream and of UAA are not checked"
            );
        }
        if let Some(server) = self.token_server().filter(|it| is_http(it.address())) {
            warn!(
                code = "security.token_server_http",
                address = server.address().origin().ascii_serialization(),
                "the token server is called over http: credentials can be read on the way"
            );
        }
        for (setting, _) in called.iter().filter(|(_, url)| is_http(url)) {
            warn!(
                code = "security.abacus_http",
                setting, "the upstream is called over http: tokens can be read on the way"
            );
        }
    }

    fn announce_keys(&self) {
        if self.jwt_key.is_some() && self.issuer().is_none() {
            warn!(
                code = "security.issuer_unbound",
                "JWTKEY is set without SAMPLER_TOKEN_ISSUER: tokens of any issuer are accepted"
            );
        }
    }
}

fn is_http(url: &Url) -> bool {
    url.scheme() == "http"
}
