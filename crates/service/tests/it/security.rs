//! Settings with which a program would not be as secure as it is told to be.

use sampler_service::security::SecuritySettings;
use sampler_service::settings::{Reader, load};

use crate::settings::{PROGRAM, URL, file};

/// What is said to a program that has an API, and to one that calls others.
fn refused(variables: &[(&str, &str)]) -> (String, String) {
    let variables = || [URL].iter().chain(variables).copied().collect();
    let said = |check: fn(&SecuritySettings, &mut Reader<'_>)| {
        let loaded = load(&PROGRAM, ["example"], &variables(), |reader| {
            let security = SecuritySettings::read(reader);
            check(&security, reader);
            Some(())
        });
        loaded.err().map(|plan| plan.stderr).unwrap_or_default()
    };
    (
        said(SecuritySettings::require_keys),
        said(SecuritySettings::require_client),
    )
}

const SECURED: (&str, &str) = ("SECURED", "true");
const API: (&str, &str) = ("AUTH_SERVER", "https://api.example");
const OPEN_HEALTH: (&str, &str) = ("HEALTHCHECK_SECURED", "false");

#[test]
fn secured_without_a_usable_key_is_refused() {
    let keys = |more: &[(&str, &str)]| refused(&[&[SECURED], more].concat()).0;
    assert!(
        keys(&[]).contains("JWTKEY (security.jwt_key) is not set: expected a key, or AUTH_SER")
    );
    assert_eq!(keys(&[API]), "");
    assert_eq!(keys(&[("API", "https://api.example")]), "");
    assert_eq!(
        keys(&[("SAMPLER_OIDC_ISSUER", "https://issuer.example")]),
        ""
    );
    assert_eq!(keys(&[OPEN_HEALTH, ("JWTKEY", "shared")]), "");
    assert!(keys(&[API, ("JWTALGO", "HS256")]).contains("JWTALGO (security.jwt_algorithm)"));
    let pem = (
        "JWTKEY",
        "-----BEGIN PUBLIC KEY-----\nabc\n-----END PUBLIC KEY-----",
    );
    for (key, algorithm) in [
        (pem, "HS256"),
        (pem, "RS256"),
        (("JWTKEY", "shared"), "RS256"),
        (("JWTKEY", "shared"), "ES256"),
    ] {
        let said = keys(&[API, key, ("JWTALGO", algorithm)]);
        assert!(
            said.contains("JWTKEY (security.jwt_key) is <hidden>"),
            "{said}"
        );
    }
    assert_eq!(
        refused(&[pem, ("JWTALGO", "HS256")]).0,
        "",
        "it is not used"
    );
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
fn a_health_check_is_not_secured_without_a_token_server() {
    let secured = ("HEALTHCHECK_SECURED", "true");
    assert!(
        refused(&[secured])
            .0
            .contains("AUTH_SERVER (security.auth_server) is not set")
    );
    assert_eq!(refused(&[secured, API]).0, "");
}

/// As an original has it: its manifests say `SECURED` alone.
#[test]
fn a_health_check_is_secured_with_the_rest_unless_it_is_said_not_to_be() {
    let is_secured = |variables: &[(&str, &str)]| {
        let key = [("JWTKEY", "shared"), API];
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
    let said = refused(&[SECURED, ("JWTKEY", "shared")]).0;
    assert!(
        said.contains("AUTH_SERVER (security.auth_server) is not set"),
        "{said}"
    );
    assert!(said.contains("HEALTHCHECK_SECURED is false"), "{said}");
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
        assert!(
            said.contains("SAMPLER_CA_FILE (security.ca_file)"),
            "{text:?}: {said}"
        );
    }
    assert!(
        refused(&[("SAMPLER_CA_FILE", "not/there")])
            .0
            .contains("cannot be read")
    );
    assert!(
        refused(&[("SAMPLER_TOKEN_LEEWAY", "61s")])
            .0
            .contains("SAMPLER_TOKEN_LEEWAY")
    );
}
