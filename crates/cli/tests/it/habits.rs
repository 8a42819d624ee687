//! What people bring along from other command lines; where the receiver is, and where tokens come from.

use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::api::{HOUR, World};
use crate::events::events;
use crate::stub::{Reply, Stub};
use crate::{NOW, file, run, run_in};

/// Options of the connection stand anywhere, and come before their variables.
#[test]
fn the_connection_stands_before_or_behind_the_command() {
    let api = World::new().start();
    let url = api.url();
    let ask = ["spans", "--resource-id", "postgres"];
    let elsewhere = [("SAMPLER_URL", "http://127.0.0.1:9")];
    for arguments in [
        [&["--url", &url][..], &ask].concat(),
        [&ask[..], &["--url", &url]].concat(),
        [&["--json", "--url", &url][..], &ask].concat(),
    ] {
        let ended = run_in(&arguments, &elsewhere);
        ended.writes(0, &[]);
        let is_json = arguments.contains(&"--json");
        assert_eq!(ended.output.starts_with('{'), is_json, "{ended:?}");
    }
    let nested = [
        "--url", &url, "control", "--url", &url, "set", "--rate", "1",
    ];
    let nested = run(&[&nested[..], &["--reason", "r"]].concat());
    nested.tells(3, &[]);
    let asked = api.whats();
    assert_eq!(asked.len(), 4, "it asks this receiver: {asked:?}");
    // A variable that is set is not part of what is missing, and one that is wrong is told.
    let ended = run_in(&["span"], &[("SAMPLER_URL", &url)]);
    assert!(!ended.errors.contains("--url"), "{ended:?}");
    let ended = run_in(&ask, &[("SAMPLER_URL", "nowhere")]);
    ended.tells(2, &["SAMPLER_URL is no address"]);
    let ended = run(&["backlog", "--url", "http://me:s3cr3t@localhost:1"]);
    ended.tells(2, &["an address must not have a user"]);
    assert!(!ended.errors.contains("s3cr3t"), "{ended:?}");
}

#[test]
fn a_plan_is_mapped_once() {
    let stub = Stub::start(|_, number| match number {
        0 => Reply::of(201, Value::Null),
        _ => Reply::problem(409, "mapping-exists", "There."),
    });
    let plan = ["mapping", "--resource-id", "r", "--plan-id", "p"];
    let plans = [
        "--metering-plan",
        "a",
        "--rating-plan",
        "b",
        "--pricing-plan",
        "c",
    ];
    let map = || stub.run(&[&plan[..], &plans].concat());
    assert_eq!(map().done(), "The plan p of r is mapped.\n");
    let again = "The plan p of r was mapped before, and stays as it is.\n";
    map().writes(1, &[again]);
    let expected = json!({ "resource_id": "r", "plan_id": "p", "metering_plan": "a",
                           "rating_plan": "b", "pricing_plan": "c" });
    assert_eq!(stub.seen()[0].json(), expected);
    assert_eq!(stub.whats()[0], "POST /v1/mappings");
}

/// What a terminal shows of a command: `script` is one.
fn on_a_terminal(stub: &Stub, command: &str) -> String {
    let program = env!("CARGO_BIN_EXE_sampler");
    let line = format!("{program} {command} --url {}", stub.url());
    let output = Command::new("script")
        .args(["-qec", &line, "/dev/null"])
        .stdin(Stdio::null())
        .output();
    String::from_utf8(output.unwrap().stdout).unwrap()
}

/// A terminal sees how much there is, how fast it goes, and what is left.
#[test]
fn a_terminal_sees_how_far_it_is() {
    let stub = Stub::keeping();
    let (_folder, path) = file("events.ndjson", &events(2_000));
    let text = on_a_terminal(&stub, &format!("events send {path} --batch 100"));
    let summary = "2000 events: 2000 accepted";
    for part in ["%  ", " events, 0 refused, ", "/s, ", " left", summary] {
        assert!(text.contains(part), "{part:?} in {text:?}");
    }
    let piped = stub.send(&path, &[]);
    assert_eq!(piped.errors, "");
}

/// What a terminal would take for commands, and marks of direction.
const COMMANDS: &str = "\u{1b}]0;x\u{7}\u{9b}31m\u{9d}0;y\u{9c}\u{202e}\u{2066}\u{200b}\u{e0041}";

/// A server whose texts are all commands to a terminal.
fn hostile_server(kind: &'static str) -> Stub {
    let mut world = World::new();
    world.add("orders", NOW - 50 * HOUR, 2, true);
    let mut span = world.spans.remove(0);
    let usage = world.usages.remove("span-orders").unwrap().remove(0);
    span["delivery"]["last_error"] = json!({ "at": NOW, "status": 400, "error": "" });
    let act =
        json!({ "at": NOW, "who": "", "act": "", "subject": "", "outcome": "", "reason": "" });
    Stub::start(move |seen, _| {
        let error = json!({ "pointer": "", "detail": "" });
        let problem = json!({ "type": "", "title": "", "detail": "", "errors": [error] });
        let answer = match (kind, seen.what.as_str()) {
            ("problem", _) => return Reply::of(400, hostile(problem)),
            ("text", _) => return Reply::of(500, json!(COMMANDS)),
            (_, what) if what.contains("/usages") => json!({ "items": [usage] }),
            (_, what) if what.contains("/v1/spans?") => json!({ "items": [span] }),
            (_, what) if what.contains("/v1/spans/") => span.clone(),
            _ => json!({ "items": [act], "rate": "", "": "" }),
        };
        hostile(answer).into()
    })
}

/// A document with commands in place of all its texts, and of names that are empty.
fn hostile(document: Value) -> Value {
    match document {
        Value::String(_) => json!(COMMANDS),
        Value::Array(items) => items.into_iter().map(hostile).collect(),
        Value::Object(members) => {
            let name = |name: String| {
                if name.is_empty() {
                    COMMANDS.to_owned()
                } else {
                    name
                }
            };
            members
                .into_iter()
                .map(|(it, value)| (name(it), hostile(value)))
                .collect()
        }
        other => other,
    }
}

fn is_safe(text: &str) -> bool {
    let mut letters = text.chars();
    letters.all(|it| it == '\n' || !sampler_api::text::is_invisible(it))
}

/// Nobody's words command a terminal, wherever they stand: neither as JSON, nor where the terminal is one, nor in what
/// a server or a command line says is wrong.
#[test]
fn no_text_of_others_commands_a_terminal() {
    let (_folder, now) = file("now.ndjson", "{\"resource_id\":\"r\",\"at\":5}\n");
    let mine = crate::api::events("mine", NOW - 5 * HOUR, 1, false);
    let (_folder2, path) = file("events.ndjson", &mine);
    for kind in ["documents", "problem", "text"] {
        let stub = hostile_server(kind);
        for arguments in [
            &["audit"][..],
            &["suspended"],
            &["backlog"],
            &["control"],
            &["span", "s"],
            &["span", COMMANDS],
            &["spans", "--resource-id", "postgres"],
            &["stop", "s"],
            &["snapshot", &now],
            &["verify", &path, "--all"],
            &["events", "send", COMMANDS],
            &["spans", "--from", COMMANDS],
        ] {
            for more in [&[][..], &["--json"]] {
                let ended = stub.run(&[arguments, more].concat());
                let is_safe = is_safe(&ended.output) && is_safe(&ended.errors);
                assert!(is_safe, "{arguments:?}: {ended:?}");
            }
        }
    }
    // On a terminal, which shows both.
    let text = on_a_terminal(&hostile_server("documents"), "audit --json");
    assert!(text.contains("\\u202e"), "{text:?}");
    assert!(is_safe(&text.replace('\r', "")), "{text:?}");
}

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
