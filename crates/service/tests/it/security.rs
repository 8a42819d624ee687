//! Settings with which a program would not be as secure as it is told to be.

use std::fs::File;

use sampler_service::platform::Identity;
use sampler_service::security::SecuritySettings;
use sampler_service::settings::{LogFormat, LogSettings, Reader, load};
use sampler_service::telemetry;
use serde_json::Value;

use crate::settings::{PROGRAM, URL, assert_told, file};

/// What is said to a program, and to one that also calls others.
fn refused(variables: &[(&str, &str)]) -> (String, String) {
    let variables = || [URL].iter().chain(variables).copied().collect();
    let said = |check: fn(&SecuritySettings, &mut Reader)| {
        let loaded = load(&PROGRAM, ["example"], &variables(), |reader| {
            let security = SecuritySettings::read(reader);
            check(&security, reader);
            Some(())
        });
        loaded.err().map(|plan| plan.stderr).unwrap_or_default()
    };
    (said(|_, _| {}), said(SecuritySettings::require_client))
}

const SECURED: (&str, &str) = ("SECURED", "true");
const API: (&str, &str) = ("AUTH_SERVER", "https://api.example");
/// A shared key that is long enough for HS256.
const LONG: &str = "a shared key of 32 bytes, no less";
const OPEN_HEALTH: (&str, &str) = ("HEALTHCHECK_SECURED", "false");

#[test]
fn secured_without_a_usable_key_is_refused() {
    let keys = |more: &[(&str, &str)]| refused(&[&[SECURED], more].concat()).0;
    let key = "JWTKEY (security.jwt_key) is not set: expected a key, or AUTH_SER";
    assert_told(&keys(&[]), &[key]);
    for enough in [
        &[API][..],
        &[("API", "https://api.example")],
        &[("SAMPLER_OIDC_ISSUER", "https://issuer.example")],
        &[OPEN_HEALTH, ("JWTKEY", LONG)],
    ] {
        assert_eq!(keys(enough), "", "{enough:?}");
    }
    let algorithm = keys(&[API, ("JWTALGO", "HS256")]);
    assert_told(&algorithm, &["JWTALGO (security.jwt_algorithm)"]);
    let pem = "-----BEGIN PUBLIC KEY-----\nabc\n-----END PUBLIC KEY-----";
    for (key, algorithm) in [
        (pem, "HS256"),
        (pem, "RS256"),
        ("shared", "RS256"),
        ("shared", "ES256"),
    ] {
        let said = keys(&[API, ("JWTKEY", key), ("JWTALGO", algorithm)]);
        assert_told(&said, &["JWTKEY (security.jwt_key) is <hidden>"]);
    }
    let open = refused(&[("JWTKEY", pem), ("JWTALGO", "HS256")]).0;
    assert_eq!(open, "", "it is not used");
}

#[test]
fn secured_without_a_way_to_a_token_is_refused() {
    let said = refused(&[SECURED]).1;
    for name in ["CLIENT_ID", "CLIENT_SECRET", "AUTH_SERVER"] {
        assert!(said.contains(&format!("  {name} (")), "{said}");
    }
    let client = [("CLIENT_ID", "sampler"), ("CLIENT_SECRET", "hush")];
    assert_eq!(refused(&[&[SECURED, API], &client[..]].concat()).1, "");
    assert_eq!(refused(&[]).1, "");
}

#[test]
fn a_health_check_is_not_secured_without_a_way_to_check_tokens() {
    let secured = ("HEALTHCHECK_SECURED", "true");
    let said = refused(&[secured]).0;
    assert_told(&said, &["JWTKEY (security.jwt_key) is not set"]);
    assert_eq!(refused(&[secured, API]).0, "");
    assert_eq!(refused(&[secured, ("JWTKEY", LONG)]).0, "");
}

/// As the original has it: its manifests say `SECURED` alone.
#[test]
fn a_health_check_is_secured_with_the_rest_unless_it_is_said_not_to_be() {
    let is_secured = |variables: &[(&str, &str)]| {
        let key = [("JWTKEY", LONG), API];
        let variables = || [URL].iter().chain(&key).chain(variables).copied().collect();
        let loaded = load(&PROGRAM, ["example"], &variables(), |reader| {
            Some(SecuritySettings::read(reader).is_healthcheck_secured())
        });
        loaded.ok().unwrap()
    };
    assert!(!is_secured(&[]));
    assert!(is_secured(&[SECURED]));
    assert!(!is_secured(&[SECURED, OPEN_HEALTH]));
    assert!(is_secured(&[("HEALTHCHECK_SECURED", "true")]));
}

#[test]
fn certificates_are_read_at_once() {
    for text in [
        "",
        "no certificate",
        "-----BEGIN CERTIFICATE-----\nx\n-----END CERTIFICATE-----\n",
    ] {
        let (_file, path) = file(text);
        let said = refused(&[("SAMPLER_CA_FILE", &path)]).0;
        assert_told(&said, &["SAMPLER_CA_FILE (security.ca_file)"]);
    }
    let said = refused(&[("SAMPLER_CA_FILE", "not/there")]).0;
    assert_told(&said, &["cannot be read"]);
}

#[test]
fn a_shared_key_that_is_too_short_is_refused() {
    for (algorithm, length) in [("HS256", 32), ("HS384", 48), ("HS512", 64)] {
        let (short, long) = ("x".repeat(length - 1), "x".repeat(length));
        let keys = |key: &str| {
            let key = [SECURED, API, ("JWTALGO", algorithm), ("JWTKEY", key)];
            refused(&key).0
        };
        let said = keys(&short);
        let hidden = "JWTKEY (security.jwt_key) is <hidden>";
        let least = format!("at least {length} bytes");
        assert_told(&said, &[hidden, &least]);
        assert!(!said.contains(&short));
        assert_eq!(keys(&long), "");
        let open = [("JWTALGO", algorithm), ("JWTKEY", short.as_str())];
        assert_eq!(refused(&open).0, "", "it is not used");
    }
}

#[test]
fn a_token_server_over_http_is_refused() {
    let http = "http://uaa.example";
    for name in ["AUTH_SERVER", "API", "SAMPLER_OIDC_ISSUER"] {
        let said = |address| refused(&[SECURED, (name, address)]).0;
        assert_told(&said(http), &[&format!("{name} (security."), "https"]);
        assert_eq!(said("https://uaa.example"), "");
        // Nobody reads along on the way from a machine to itself.
        for here in ["http://localhost:1", "http://127.0.0.1:1", "http://[::1]:1"] {
            assert_eq!(said(here), "", "{here}");
        }
    }
    // It is looked at where it would be used.
    let both = [
        ("SAMPLER_OIDC_ISSUER", "https://issuer.example"),
        ("AUTH_SERVER", http),
    ];
    assert_eq!(refused(&[&[SECURED], &both[..]].concat()).0, "");
    assert_eq!(refused(&[("AUTH_SERVER", http)]).0, "");
}

#[test]
fn audiences_that_accept_every_token_are_refused() {
    let audiences = "abacus.sampler,abacus.sampler.*";
    for (name, value, right) in [
        ("SAMPLER_TOKEN_AUDIENCE", audiences, true),
        ("SAMPLER_TOKEN_AUDIENCE", "*", false),
        ("SAMPLER_TOKEN_AUDIENCE", ",", false),
    ] {
        let said = refused(&[(name, value)]).0;
        assert_eq!(said.is_empty(), right, "{name}={value}: {said}");
        assert!(right || said.contains(name), "{said}");
    }
}

/// What is logged at the start with these settings and in this environment.
fn announced(settings: &[(&str, &str)], environment: &[(&str, &str)]) -> Vec<Value> {
    let variables = || [URL].iter().chain(settings).copied().collect();
    let security = load(&PROGRAM, ["example"], &variables(), |reader| {
        Some(SecuritySettings::read(reader))
    });
    let security = security.unwrap_or_else(|plan| panic!("{}", plan.stderr));
    let (_file, path) = file("");
    let log = File::create(&path).unwrap();
    let level = "warn".to_owned();
    let format = LogFormat::Json;
    let identity = Identity::default();
    let subscriber =
        telemetry::subscriber(&LogSettings { format, level }, &identity, false, log).unwrap();
    tracing::subscriber::with_default(subscriber, || {
        let collector = "http://collector.example".parse().unwrap();
        let provisioning = "https://provisioning.example".parse().unwrap();
        let called = [
            ("COLLECTOR_URL", &collector),
            ("PROVISIONING_URL", &provisioning),
        ];
        let called: &[_] = if security.secured { &called } else { &[] };
        security.announce(called, &environment.iter().copied().collect());
    });
    let text = std::fs::read_to_string(&path).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn what_weakens_security_is_told_at_the_start() {
    let issuer = ("SAMPLER_TOKEN_ISSUER", "https://uaa.example/oauth/token");
    let key = ("JWTKEY", LONG);
    let abacus = "security.abacus_http";
    for (settings, codes) in [
        (&[][..], &[][..]),
        (&[API], &[]),
        (
            &[("SKIP_SSL_VALIDATION", "true")],
            &["security.certificates_unchecked"],
        ),
        (
            &[("AUTH_SERVER", "http://uaa.example")],
            &["security.token_server_http"],
        ),
        (
            &[("AUTH_SERVER", "http://localhost:8080")],
            &["security.token_server_http"],
        ),
        // With tokens, what they are sent to over http is told as well.
        (&[SECURED, API], &[abacus]),
        (&[SECURED, API, key], &[abacus, "security.issuer_unbound"]),
        (&[SECURED, API, key, issuer], &[abacus]),
    ] {
        let lines = announced(settings, &[]);
        let told: Vec<_> = lines.iter().map(|line| line["code"].as_str()).collect();
        let codes: Vec<_> = codes.iter().copied().map(Some).collect();
        assert_eq!(told, codes, "{settings:?}");
    }
    for name in ["HTTP_PROXY", "https_proxy", "ALL_PROXY"] {
        let proxy = [(name, "http://me:s3cr3t@proxy:3128"), ("NO_PROXY", "x")];
        let lines = announced(&[], &proxy);
        let [line] = lines.as_slice() else {
            panic!("{lines:?}")
        };
        assert_eq!(line["code"], "security.proxy");
        assert_eq!(line["variables"], name);
        assert!(!line.to_string().contains("s3cr3t"), "{line}");
    }
    let none = announced(&[], &[("NO_PROXY", "x"), ("HTTP_PROXY", "")]);
    assert!(none.is_empty(), "{none:?}");
}
