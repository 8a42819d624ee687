//! `sampler target`, `login` and `logout`, and where tokens go.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::stub::{Reply, Stub};
use crate::{Ended, sampler};

/// A Cloud Foundry API and its UAA, which grants one token, and a receiver that takes it.
fn landscape() -> Stub {
    Stub::start(|seen, _| {
        let host = seen.header("host").unwrap();
        match seen.what.as_str() {
            "GET /v2/info" => json!({ "token_endpoint": format!("http://{host}") }).into(),
            "POST /oauth/token"
                if seen.header("authorization") == Some("Basic Y2xpOmhpZGRlbg==") =>
            {
                json!({ "access_token": "granted", "token_type": "bearer", "expires_in": 600 })
                    .into()
            }
            "POST /oauth/token" => Reply(401, json!({ "error": "invalid_client" }), None),
            "GET /healthz/live" => json!({}).into(),
            _ if seen.header("authorization") == Some("Bearer granted") => {
                json!({ "items": [] }).into()
            }
            _ => Reply(401, json!({ "detail": "No token." }), None),
        }
    })
}

fn at(home: &TempDir, arguments: &[&str], variables: &[(&str, &str)]) -> Ended {
    let mut command = sampler(arguments);
    command
        .env("XDG_CONFIG_HOME", home.path())
        .envs(variables.iter().copied());
    command.output().unwrap().into()
}

#[test]
fn a_login_is_remembered_for_one_target_and_its_secret_is_not() {
    let (stub, home) = (landscape(), tempfile::tempdir().unwrap());
    let url = stub.url();
    let list = ["spans", "--resource-id", "r"];
    assert_eq!(at(&home, &["target"], &[]).code, Some(2));
    assert_eq!(
        at(&home, &["target", &url], &[]).output,
        format!("{url}/\n")
    );
    assert_eq!(at(&home, &list, &[]).code, Some(3), "nobody has logged in");

    let login = ["login", "--cf-api", &url, "--client-id", "cli"];
    let ended = at(&home, &login, &[("SAMPLER_CLIENT_SECRET", "hidden")]);
    assert_eq!(
        ended.output,
        format!("{url}/, logged in as cli\n"),
        "{ended:?}"
    );
    let path = home.path().join("sampler/config.json");
    let text = fs::read_to_string(&path).unwrap();
    assert!(
        !text.contains("hidden") && text.contains("granted"),
        "{text}"
    );
    assert_eq!(
        fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        0o600
    );
    assert_eq!(at(&home, &list, &[]).code, Some(0));
    let shown = at(&home, &["target", "--json"], &[]).output;
    let expected = json!({ "target": format!("{url}/"), "client_id": "cli" });
    assert_eq!(serde_json::from_str::<Value>(&shown).unwrap(), expected);

    // The token goes nowhere else.
    let other = landscape();
    let elsewhere = at(&home, &[&list[..], &["--url", &other.url()]].concat(), &[]);
    assert_eq!(elsewhere.code, Some(3));
    assert_eq!(other.seen()[0].header("authorization"), None);

    fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
    let ended = at(&home, &list, &[]);
    assert_eq!(ended.code, Some(2));
    assert!(
        ended.errors.contains("chmod 600") && !ended.errors.contains("granted"),
        "{ended:?}"
    );
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();

    let ended = at(&home, &["logout", "--json"], &[]);
    let expected = json!({ "target": format!("{url}/"), "client_id": null });
    assert_eq!(
        serde_json::from_str::<Value>(&ended.output).unwrap(),
        expected
    );
    assert_eq!(at(&home, &list, &[]).code, Some(3));
    assert!(!fs::read_to_string(&path).unwrap().contains("granted"));
}

#[test]
fn a_wrong_secret_is_told_and_not_shown() {
    let (stub, home) = (landscape(), tempfile::tempdir().unwrap());
    let url = stub.url();
    let login = [
        "login",
        "--cf-api",
        &url,
        "--client-id",
        "cli",
        "--url",
        &url,
    ];
    let ended = at(&home, &login, &[("SAMPLER_CLIENT_SECRET", "s3cret")]);
    assert_eq!(ended.code, Some(2));
    assert!(ended.errors.contains("401 (invalid_client)"), "{ended:?}");
    assert!(!ended.errors.contains("s3cret"), "{ended:?}");
    let ended = at(&home, &login, &[]);
    assert!(
        ended.errors.contains("must hold the secret of cli"),
        "{ended:?}"
    );
    assert!(!home.path().join("sampler").exists());
}

#[test]
fn scripts_need_no_login() {
    let (stub, home) = (landscape(), tempfile::tempdir().unwrap());
    let url = stub.url();
    let variables = [
        ("SAMPLER_URL", url.as_str()),
        ("SAMPLER_CF_API", &url),
        ("SAMPLER_CLIENT_ID", "cli"),
        ("SAMPLER_CLIENT_SECRET", "hidden"),
    ];
    let list = ["spans", "--resource-id", "r"];
    let ended = at(&home, &list, &variables);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(!home.path().join("sampler").exists());
    // A secret is not sent where it can be read on the way.
    let open = at(
        &home,
        &[&list[..], &["--cf-api", "http://api.example.com"]].concat(),
        &variables,
    );
    assert_eq!(open.code, Some(2));
    assert!(open.errors.contains("not an https address"), "{open:?}");
    assert_eq!(at(&home, &list, &variables[..3]).code, Some(2));
}

#[test]
fn a_config_that_is_none_is_told_and_not_shown() {
    let home = tempfile::tempdir().unwrap();
    fs::create_dir(home.path().join("sampler")).unwrap();
    fs::write(
        home.path().join("sampler/config.json"),
        "{\"token\": \"granted\"",
    )
    .unwrap();
    let ended = at(&home, &["target"], &[]);
    assert_eq!(ended.code, Some(2));
    assert!(
        ended.errors.contains("config.json") && !ended.errors.contains("granted"),
        "{ended:?}"
    );
}
