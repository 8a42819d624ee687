//! Where the receiver is, and where tokens come from.

use serde_json::json;

use crate::run_in;
use crate::stub::{Reply, Stub};

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
            _ if seen.header("authorization") == Some("Bearer granted") => {
                json!({ "items": [] }).into()
            }
            _ => Reply::of(401, json!({ "detail": "No token." })),
        }
    })
}

const LIST: [&str; 3] = ["spans", "--resource-id", "r"];

#[test]
fn scripts_have_a_client() {
    let stub = landscape();
    let url = stub.url();
    let variables = [
        ("SAMPLER_URL", url.as_str()),
        ("SAMPLER_CF_API", &url),
        ("SAMPLER_CLIENT_ID", "cli"),
        ("SAMPLER_CLIENT_SECRET", "hidden"),
    ];
    run_in(&LIST, &variables).writes(0, &[]);
    run_in(&LIST, &variables[..3]).tells(2, &["must hold the secret of cli"]);
    // Nobody else has a token.
    run_in(&LIST, &variables[..1]).tells(3, &["No token."]);
    // A secret is not sent where it can be read on the way, and never shown.
    let open = [&LIST[..], &["--cf-api", "http://api.example.com"]].concat();
    run_in(&open, &variables).tells(2, &["not an https address"]);
    let wrong = [&variables[..3], &[("SAMPLER_CLIENT_SECRET", "s3cret")]].concat();
    let ended = run_in(&LIST, &wrong);
    ended.tells(3, &["401 (invalid_client)"]);
    assert!(!ended.errors.contains("s3cret"), "{ended:?}");
}

/// A proxy would look for it on its own machine.
#[test]
fn no_proxy_is_asked_for_this_machine() {
    let stub = Stub::always(json!({ "items": [] }));
    let elsewhere = "http://127.0.0.1:9";
    let names = ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"];
    let by_name = stub.url().replace("127.0.0.1", "localhost");
    for url in [stub.url(), by_name] {
        let proxies = names.map(|name| (name, elsewhere));
        let variables = [&proxies[..], &[("SAMPLER_URL", &*url)]].concat();
        run_in(&LIST, &variables).writes(0, &["No spans."]);
    }
}
