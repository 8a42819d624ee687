//! `sampler target`, `login` and `logout`, and where tokens go.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use serde_json::json;
use tempfile::TempDir;

use crate::stub::{Reply, Stub};
use crate::{Ended, run_in};

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
            "POST /oauth/token" => Reply::of(401, json!({ "error": "invalid_client" })),
            "GET /healthz/live" => json!({}).into(),
            _ if seen.header("authorization") == Some("Bearer granted") => {
                json!({ "items": [] }).into()
            }
            _ => Reply::of(401, json!({ "detail": "No token." })),
        }
    })
}

fn at(home: &TempDir, arguments: &[&str], variables: &[(&str, &str)]) -> Ended {
    let home = ("XDG_CONFIG_HOME", home.path().to_str().unwrap());
    run_in(arguments, &[&[home], variables].concat())
}

const LIST: [&str; 3] = ["spans", "--resource-id", "r"];

#[test]
fn a_login_is_remembered_for_one_target_and_its_secret_is_not() {
    let (stub, home) = (landscape(), tempfile::tempdir().unwrap());
    let url = stub.url();
    let list = || at(&home, &LIST, &[]);
    at(&home, &["target"], &[]).tells(2, &[]);
    let target = at(&home, &["target", &url], &[]);
    assert_eq!(target.output, format!("{url}/\n"));
    // Nobody has logged in.
    list().tells(3, &[]);

    let login = ["login", "--cf-api", &url, "--client-id", "cli"];
    let ended = at(&home, &login, &[("SAMPLER_CLIENT_SECRET", "hidden")]);
    let expected = format!("{url}/, logged in as cli\n");
    assert_eq!(ended.output, expected, "{ended:?}");
    let path = home.path().join("sampler/config.json");
    let text = fs::read_to_string(&path).unwrap();
    assert!(!text.contains("hidden"), "{text}");
    assert!(text.contains("granted"), "{text}");
    let mode = fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    list().writes(0, &[]);
    let shown = at(&home, &["target", "--json"], &[]).json();
    let expected = json!({ "target": format!("{url}/"), "client_id": "cli" });
    assert_eq!(shown, expected);

    // The token goes nowhere else.
    let other = landscape();
    let elsewhere = other.url();
    let elsewhere = [&LIST[..], &["--url", &elsewhere]].concat();
    at(&home, &elsewhere, &[]).tells(3, &[]);
    assert_eq!(other.seen()[0].header("authorization"), None);

    fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
    let ended = list();
    ended.tells(2, &["chmod 600"]);
    assert!(!ended.errors.contains("granted"), "{ended:?}");
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();

    let ended = at(&home, &["logout", "--json"], &[]).json();
    let expected = json!({ "target": format!("{url}/"), "client_id": null });
    assert_eq!(ended, expected);
    list().tells(3, &[]);
    assert!(!fs::read_to_string(&path).unwrap().contains("granted"));
}

#[test]
fn a_wrong_secret_is_told_and_not_shown() {
    let (stub, home) = (landscape(), tempfile::tempdir().unwrap());
    let url = stub.url();
    let login = ["login", "--cf-api", &url, "--url", &url];
    let login = [&login[..], &["--client-id", "cli"]].concat();
    let ended = at(&home, &login, &[("SAMPLER_CLIENT_SECRET", "s3cret")]);
    ended.tells(2, &["401 (invalid_client)"]);
    assert!(!ended.errors.contains("s3cret"), "{ended:?}");
    let ended = at(&home, &login, &[]);
    ended.tells(2, &["must hold the secret of cli"]);
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
    at(&home, &LIST, &variables).writes(0, &[]);
    assert!(!home.path().join("sampler").exists());
    // A secret is not sent where it can be read on the way.
    let open = [&LIST[..], &["--cf-api", "http://api.example.com"]].concat();
    let open = at(&home, &open, &variables);
    open.tells(2, &["not an https address"]);
    at(&home, &LIST, &variables[..3]).tells(2, &[]);
}

#[test]
fn a_config_that_is_none_is_told_and_not_shown() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("sampler");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("config.json"), "{\"token\": \"granted\"").unwrap();
    let ended = at(&home, &["target"], &[]);
    ended.tells(2, &["config.json"]);
    assert!(!ended.errors.contains("granted"), "{ended:?}");
}
