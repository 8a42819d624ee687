//! Settings with which a program would not be as secure as it is told to be.

use std::io::Write;
use std::sync::{Arc, Mutex};

use sampler_service::telemetry::{self, LogFormat, LogOptions};
use sampler_settings::Of;

use crate::{COLLECTOR, Variable, assert_each, assert_told, environment, file, receiver, worker};

const SECURED: Variable<'static> = ("SECURED", "true");
const HEALTH: Variable<'static> = ("HEALTHCHECK_SECURED", "true");
const SERVER: Variable<'static> = ("AUTH_SERVER", "https://api.example");
/// A shared key that is long enough for HS256.
const KEY: Variable<'static> = ("JWTKEY", "a shared key of 32 bytes, no less");
const PEM: &str = "-----BEGIN PUBLIC KEY-----\nabc\n-----END PUBLIC KEY-----";

#[test]
fn what_checks_tokens_must_be_known_and_fit() {
    let unset = "JWTKEY is not set: expected a key, or AUTH_SERVER, API or SAMPLER_OIDC_ISSUER";
    let no_key = "JWTKEY is not valid: expected a key for";
    let shared = "JWTALGO is \"HS256\": expected RS256";
    let (hs256, rs256) = (("JWTALGO", "HS256"), ("JWTALGO", "RS256"));
    let (pem, es256) = (("JWTKEY", PEM), ("JWTALGO", "ES256"));
    assert_each(
        Of::Receiver,
        &[
            (&[SECURED], unset),
            (&[HEALTH], unset),
            (&[SECURED, ("HEALTHCHECK_SECURED", "false")], unset),
            (&[SECURED, SERVER], ""),
            (&[HEALTH, SERVER], ""),
            (&[SECURED, ("API", "https://api.example")], ""),
            (
                &[SECURED, ("SAMPLER_OIDC_ISSUER", "https://issuer.example")],
                "",
            ),
            (&[SECURED, KEY], ""),
            (&[SECURED, SERVER, hs256], shared),
            (&[SECURED, pem], no_key),
            (&[SECURED, pem, rs256], no_key),
            (&[SECURED, KEY, rs256], no_key),
            (&[SECURED, KEY, es256], no_key),
            (&[pem, hs256], ""),
        ],
    );
    for (algorithm, length) in [("HS256", 32), ("HS384", 48), ("HS512", 64)] {
        let (short, long) = ("s3cr3t".repeat(11), "x".repeat(length));
        let (short, algorithm) = (&short[..length - 1], ("JWTALGO", algorithm));
        let told = format!("JWTKEY is not valid: expected a shared key of at least {length} bytes");
        assert_each(
            Of::Receiver,
            &[
                (&[SECURED, algorithm, ("JWTKEY", short)], &told),
                (&[SECURED, algorithm, ("JWTKEY", &long)], ""),
            ],
        );
    }
}

#[test]
fn secured_without_a_way_to_a_token_is_refused_where_others_are_called() {
    let called = ("PROVISIONING_URL", "https://provisioning.example");
    let client = [("CLIENT_ID", "sampler"), ("CLIENT_SECRET", "hush")];
    for refused in [worker(&[SECURED]), receiver(&[SECURED, called])] {
        let names = ["CLIENT_ID", "CLIENT_SECRET", "AUTH_SERVER"];
        let told = names.map(|name| format!("  {name} is not set"));
        assert_told(&refused.unwrap_err(), &told.each_ref().map(String::as_str));
    }
    let complete = [COLLECTOR, SECURED, SERVER, client[0], client[1]];
    assert_each(Of::Worker, &[(&complete, "")]);
}

/// As the original has it: its manifests say `SECURED` alone.
#[test]
fn a_health_check_is_secured_with_the_rest_unless_it_is_said_not_to_be() {
    for (variables, is_secured) in [
        (&[SERVER][..], false),
        (&[SERVER, SECURED], true),
        (&[SERVER, SECURED, ("HEALTHCHECK_SECURED", "false")], false),
        (&[SERVER, HEALTH], true),
    ] {
        let security = receiver(variables).unwrap().security;
        assert_eq!(
            security.is_healthcheck_secured(),
            is_secured,
            "{variables:?}"
        );
    }
}

#[test]
fn a_token_server_over_http_is_refused_unless_it_is_on_this_machine() {
    let http = "http://uaa.example";
    for name in ["AUTH_SERVER", "API", "SAMPLER_OIDC_ISSUER"] {
        let told = format!("{name} is \"{http}\": expected an address with https");
        assert_each(
            Of::Receiver,
            &[
                (&[SECURED, (name, http)], &told),
                (&[HEALTH, (name, http)], &told),
                (&[(name, http)], ""),
                (&[SECURED, (name, "https://uaa.example")], ""),
                (&[SECURED, (name, "http://localhost:1")], ""),
                (&[SECURED, (name, "http://127.0.0.1:1")], ""),
                (&[SECURED, (name, "http://[::1]:1")], ""),
            ],
        );
    }
    // The one that would be used is looked at.
    let issuer = ("SAMPLER_OIDC_ISSUER", "https://issuer.example");
    assert_each(
        Of::Receiver,
        &[(&[SECURED, issuer, ("AUTH_SERVER", http)], "")],
    );
}

#[test]
fn certificates_audiences_and_the_console_are_checked_at_once() {
    let (_file, path) = file("no certificate");
    let key = "0123456789abcdef0123456789s3cr3t";
    let (keys, short) = (format!("{key},{key}"), format!("{key},x"));
    assert_each(
        Of::Receiver,
        &[
            (
                &[("SAMPLER_CA_FILE", &path)],
                "expected a file of certificates",
            ),
            (
                &[("SAMPLER_TOKEN_AUDIENCE", "abacus.sampler,abacus.sampler.*")],
                "",
            ),
            (&[("SAMPLER_TOKEN_AUDIENCE", "*")], "expected audiences"),
            (&[("SAMPLER_TOKEN_AUDIENCE", ",")], "expected audiences"),
            (
                &[("SAMPLER_CONSOLE_CLIENT_ID", "console")],
                "SAMPLER_CONSOLE_CLIENT_SECRET is not set",
            ),
            (
                &[("SAMPLER_CONSOLE_CLIENT_SECRET", "s3cr3t")],
                "SAMPLER_CONSOLE_CLIENT_ID is not set",
            ),
            (&[("SAMPLER_CONSOLE_KEY", key)], ""),
            (&[("SAMPLER_CONSOLE_KEY", &keys)], ""),
            (
                &[("SAMPLER_CONSOLE_KEY", &short)],
                "SAMPLER_CONSOLE_KEY is not valid",
            ),
        ],
    );
}

/// A log that can be read.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// What is logged at the start of a receiver with these settings and in this environment.
fn announced(settings: &[Variable<'_>], variables: &[Variable<'_>]) -> String {
    let settings = receiver(settings).unwrap();
    let log = Log::default();
    let writer = log.clone();
    let options = LogOptions {
        format: LogFormat::Text,
        level: "info".to_owned(),
    };
    let subscriber = telemetry::subscriber(&options, None, move || writer.clone()).unwrap();
    tracing::subscriber::with_default(subscriber, || {
        settings.announce(Of::Receiver, &environment(variables));
    });
    let bytes = log.0.lock().unwrap().clone();
    String::from_utf8(bytes).unwrap()
}

#[test]
fn what_weakens_security_is_told_at_the_start() {
    let issuer = ("SAMPLER_TOKEN_ISSUER", "https://uaa.example/oauth/token");
    let audience = ("SAMPLER_TOKEN_AUDIENCE", "abacus.sampler");
    let (id, secret) = (("CLIENT_ID", "sampler"), ("CLIENT_SECRET", "hush"));
    let called = ("PROVISIONING_URL", "http://provisioning.example");
    let (open, unbound) = ("security.open", "security.audience_unbound");
    for (settings, codes) in [
        (&[][..], &[open][..]),
        (&[SERVER, called], &[open]),
        (
            &[("SKIP_SSL_VALIDATION", "true")],
            &[open, "security.certificates_unchecked"],
        ),
        (&[SECURED, SERVER], &[unbound]),
        (
            &[SECURED, SERVER, id, secret, called],
            &[unbound, "security.abacus_http"],
        ),
        (&[SECURED, audience, KEY], &["security.issuer_unbound"]),
        (&[SECURED, audience, KEY, issuer], &[]),
    ] {
        let log = announced(settings, &[("NO_PROXY", "x"), ("HTTP_PROXY", "")]);
        assert_told(&log, codes);
        assert_eq!(log.lines().count(), codes.len(), "{settings:?}: {log}");
    }
    for name in ["HTTP_PROXY", "https_proxy", "ALL_PROXY"] {
        let proxy = (name, "http://me:s3cr3t@proxy:3128");
        let log = announced(&[SECURED, audience, SERVER], &[proxy]);
        assert_told(&log, &["security.proxy", name]);
        assert_eq!(log.lines().count(), 1, "{log}");
        assert!(!log.contains("s3cr3t"), "{log}");
    }
}
