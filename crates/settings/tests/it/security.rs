//! Settings with which a program would not be as secure as it is told to be.

use std::io::Write;
use std::sync::{Arc, Mutex};

use sampler_service::telemetry::{self, LogFormat, LogOptions};
use tempfile::NamedTempFile;

use crate::{Variable, assert_told, environment, receiver, worker};

const SECURED: Variable<'static> = ("SECURED", "true");
const API: Variable<'static> = ("AUTH_SERVER", "https://api.example");
/// A shared key that is long enough for HS256.
const LONG: &str = "a shared key of 32 bytes, no less";

/// What is said to a receiver; nothing where it starts.
fn said(variables: &[&[Variable<'_>]]) -> String {
    receiver(&variables.concat()).err().unwrap_or_default()
}

#[test]
fn secured_without_a_usable_key_is_refused() {
    let unset = "JWTKEY is not set: expected a key, or AUTH_SERVER, API or SAMPLER_OIDC_ISSUER";
    for secured in [SECURED, ("HEALTHCHECK_SECURED", "true")] {
        assert_told(&said(&[&[secured]]), &[unset]);
        for enough in [
            API,
            ("API", "https://api.example"),
            ("SAMPLER_OIDC_ISSUER", "https://issuer.example"),
            ("JWTKEY", LONG),
        ] {
            assert_eq!(said(&[&[secured, enough]]), "", "{enough:?}");
        }
    }
    let shared = said(&[&[SECURED, API, ("JWTALGO", "HS256")]]);
    assert_told(&shared, &["JWTALGO is \"HS256\": expected RS256"]);
    let pem = "-----BEGIN PUBLIC KEY-----\nabc\n-----END PUBLIC KEY-----";
    for (key, algorithm) in [
        (pem, "HS256"),
        (pem, "RS256"),
        ("shared", "RS256"),
        ("shared", "ES256"),
    ] {
        let said = said(&[&[SECURED, API, ("JWTKEY", key), ("JWTALGO", algorithm)]]);
        assert_told(&said, &["JWTKEY is not valid: expected a key"]);
    }
    let unused = said(&[&[("JWTKEY", pem), ("JWTALGO", "HS256")]]);
    assert_eq!(unused, "");
}

#[test]
fn a_shared_key_that_is_too_short_is_refused() {
    for (algorithm, length) in [("HS256", 32), ("HS384", 48), ("HS512", 64)] {
        let (short, long) = ("x".repeat(length - 1), "x".repeat(length));
        let keys = |key: &str| said(&[&[SECURED, API, ("JWTALGO", algorithm), ("JWTKEY", key)]]);
        let refused = keys(&short);
        assert_told(&refused, &[&format!("at least {length} bytes")]);
        assert!(!refused.contains(&short));
        assert_eq!(keys(&long), "");
    }
}

#[test]
fn secured_without_a_way_to_a_token_is_refused_where_others_are_called() {
    let called = ("PROVISIONING_URL", "https://provisioning.example");
    for refused in [worker(&[SECURED]).unwrap_err(), said(&[&[SECURED, called]])] {
        for name in ["CLIENT_ID", "CLIENT_SECRET", "AUTH_SERVER"] {
            assert_told(&refused, &[&format!("  {name} is not set")]);
        }
    }
    worker(&[
        SECURED,
        API,
        ("CLIENT_ID", "sampler"),
        ("CLIENT_SECRET", "hush"),
    ])
    .unwrap();
    worker(&[]).unwrap();
}

/// As the original has it: its manifests say `SECURED` alone.
#[test]
fn a_health_check_is_secured_with_the_rest_unless_it_is_said_not_to_be() {
    for (variables, is_secured) in [
        (&[][..], false),
        (&[SECURED], true),
        (&[SECURED, ("HEALTHCHECK_SECURED", "false")], false),
        (&[("HEALTHCHECK_SECURED", "true")], true),
    ] {
        let settings = receiver(&[&[API], variables].concat()).unwrap();
        assert_eq!(
            settings.security.is_healthcheck_secured(),
            is_secured,
            "{variables:?}"
        );
    }
}

#[test]
fn a_token_server_over_http_is_refused_unless_it_is_on_this_machine() {
    let http = "http://uaa.example";
    for name in ["AUTH_SERVER", "API", "SAMPLER_OIDC_ISSUER"] {
        let refused = said(&[&[SECURED, (name, http)]]);
        assert_told(
            &refused,
            &[&format!(
                "{name} is \"{http}\": expected an address with https"
            )],
        );
        for fine in [
            "https://uaa.example",
            "http://localhost:1",
            "http://127.0.0.1:1",
            "http://[::1]:1",
        ] {
            assert_eq!(said(&[&[SECURED, (name, fine)]]), "", "{fine}");
        }
    }
    // It is looked at where it would be used.
    let issuer = ("SAMPLER_OIDC_ISSUER", "https://issuer.example");
    assert_eq!(said(&[&[SECURED, issuer, ("AUTH_SERVER", http)]]), "");
    assert_eq!(said(&[&[("AUTH_SERVER", http)]]), "");
}

#[test]
fn certificates_and_audiences_are_read_at_once() {
    let file = NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "no certificate").unwrap();
    let path = file.path().display().to_string();
    for (name, value, is_fine) in [
        ("SAMPLER_CA_FILE", path.as_str(), false),
        (
            "SAMPLER_TOKEN_AUDIENCE",
            "abacus.sampler,abacus.sampler.*",
            true,
        ),
        ("SAMPLER_TOKEN_AUDIENCE", "*", false),
        ("SAMPLER_TOKEN_AUDIENCE", ",", false),
    ] {
        let said = said(&[&[(name, value)]]);
        assert_eq!(said.is_empty(), is_fine, "{name} {value}: {said}");
    }
}

#[test]
fn half_a_client_and_short_keys_of_the_console_are_refused() {
    let half = said(&[&[("SAMPLER_CONSOLE_CLIENT_ID", "console")]]);
    assert_told(&half, &["are set together, or not at all"]);
    let key = "0123456789abcdef0123456789abcdef";
    for (keys, is_fine) in [
        (key.to_owned(), true),
        (format!("{key},{key}"), true),
        (format!("{key},x"), false),
    ] {
        let said = said(&[&[("SAMPLER_CONSOLE_KEY", &keys)]]);
        assert_eq!(said.is_empty(), is_fine, "{said}");
        assert!(!said.contains(key), "{said}");
    }
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

/// What is logged at the start with these settings and in this environment.
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
        settings.announce(&environment(variables));
    });
    let bytes = log.0.lock().unwrap().clone();
    String::from_utf8(bytes).unwrap()
}

#[test]
fn what_weakens_security_is_told_at_the_start() {
    let issuer = ("SAMPLER_TOKEN_ISSUER", "https://uaa.example/oauth/token");
    let key = ("JWTKEY", LONG);
    let client = [("CLIENT_ID", "sampler"), ("CLIENT_SECRET", "hush")];
    let called = [
        SECURED,
        API,
        client[0],
        client[1],
        ("PROVISIONING_URL", "http://provisioning.example"),
    ];
    for (settings, codes) in [
        (&[][..], &[][..]),
        (&[API], &[]),
        (&[called[4]], &[]),
        (
            &[("SKIP_SSL_VALIDATION", "true")],
            &["security.certificates_unchecked"],
        ),
        (
            &[("AUTH_SERVER", "http://uaa.example")],
            &["security.token_server_http"],
        ),
        (&called, &["security.abacus_http"]),
        (&[SECURED, API, key], &["security.issuer_unbound"]),
        (&[SECURED, API, key, issuer], &[]),
    ] {
        let log = announced(settings, &[]);
        assert_told(&log, codes);
        assert_eq!(log.lines().count(), codes.len(), "{settings:?}: {log}");
    }
    for name in ["HTTP_PROXY", "https_proxy", "ALL_PROXY"] {
        let log = announced(
            &[],
            &[(name, "http://me:s3cr3t@proxy:3128"), ("NO_PROXY", "x")],
        );
        assert_told(&log, &["security.proxy", name]);
        assert_eq!(log.lines().count(), 1, "{log}");
        assert!(!log.contains("s3cr3t"), "{log}");
    }
    assert_eq!(announced(&[], &[("NO_PROXY", "x"), ("HTTP_PROXY", "")]), "");
}
