//! What people bring along from other command lines.

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
    ended.tells(2, &["SAMPLER_URL is \"nowhere\""]);
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

/// Neither text nor a table of commas: that is said.
#[test]
fn a_file_of_another_kind_is_known() {
    let stub = Stub::keeping();
    let (semicolons, tabs) = (
        "organization_id;start;end\no;1;2\n",
        "organization_id\tstart\no\t1\n",
    );
    for (name, text, part) in [
        ("a.ndjson", "\u{0}\u{1}\u{2}", "it is not text"),
        ("b.csv", semicolons, "commas separate columns"),
        ("c.csv", tabs, "commas separate columns"),
        ("d.csv", "PK\u{3}\u{4}", "save the sheet as CSV"),
        ("e.json", "[]", "--format ndjson or csv"),
    ] {
        let (_folder, path) = file(name, text);
        stub.run(&["verify", &path]).tells(2, &[part]);
        stub.run(&["events", "preview", &path]).tells(2, &[part]);
        stub.send(&path, &[]).tells(2, &[part]);
    }
    assert_eq!(stub.seen().len(), 0);
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

/// A server that answers with commands to a terminal wherever there is a text.
fn hostile_server(kind: &'static str) -> Stub {
    Stub::start(move |_, _| {
        let word = |name: &str| json!({ name: COMMANDS });
        let mut item = json!({
            "id": COMMANDS, "cause": COMMANDS, "at": NOW, "since": NOW, "probe_at": NOW,
            "who": COMMANDS, "act": COMMANDS, "subject": COMMANDS, "reason": COMMANDS,
            "before": word("b"), "after": word("a"), "outcome": COMMANDS, "error": COMMANDS,
            "resource_id": COMMANDS, "plan_id": COMMANDS, "spans": 1, "set_aside": 1,
        });
        item[COMMANDS] = json!(COMMANDS);
        let problem = json!({
            "type": "/problems/overloaded", "title": COMMANDS, "status": 400,
            "detail": COMMANDS, "errors": [{ "pointer": COMMANDS, "detail": COMMANDS }],
        });
        match kind {
            "problem" => Reply::of(400, problem),
            "text" => Reply::of(500, json!(COMMANDS)),
            _ => json!({ "items": [item], "rate": COMMANDS }).into(),
        }
    })
}

/// Nobody's words command a terminal: neither as JSON, nor where the terminal is one, nor in what a server
/// says is wrong.
#[test]
fn no_answer_of_a_server_commands_a_terminal() {
    let (_folder, now) = file("now.ndjson", "{\"resource_id\":\"r\",\"at\":5}\n");
    let commands = [
        &["audit"][..],
        &["suspended"],
        &["backlog"],
        &["control"],
        &["span", "s"],
        &["snapshot", &now],
    ];
    for kind in ["documents", "problem", "text"] {
        let stub = hostile_server(kind);
        for command in commands {
            for more in [&[][..], &["--json"]] {
                assert_is_safe(&stub, &[command, more].concat());
            }
        }
    }
    // On a terminal, which shows both.
    let stub = hostile_server("documents");
    let text = on_a_terminal(&stub, "audit --json");
    assert!(text.contains("\\u202e"), "{text:?}");
    assert!(is_safe(&text.replace('\r', "")), "{text:?}");
}

fn is_safe(text: &str) -> bool {
    let mut letters = text.chars();
    letters.all(|it| it == '\n' || !sampler_api::text::is_invisible(it))
}

/// Nothing that the program writes of this receiver's answer commands a terminal.
#[track_caller]
fn assert_is_safe(stub: &Stub, arguments: &[&str]) {
    let ended = stub.run(arguments);
    let is_safe = is_safe(&ended.output) && is_safe(&ended.errors);
    assert!(is_safe, "{arguments:?}: {ended:?}");
}

/// What others write reaches a terminal as text, wherever it stands.
#[test]
fn no_text_of_others_commands_a_terminal() {
    let mut world = World::new();
    world.add("orders", NOW - 50 * HOUR, 2, true);
    for id in crate::api::IDS {
        world.spans[0]["target"][id] = json!(COMMANDS);
    }
    for name in ["state", "start_event_id"] {
        world.spans[0][name] = json!(COMMANDS);
    }
    world.spans[0]["measured_usage"][0]["measure"] = json!(COMMANDS);
    world.spans[0]["delivery"]["last_error"] =
        json!({ "at": NOW, "status": 400, "error": COMMANDS });
    let usage = &mut world.usages.get_mut("span-orders").unwrap()[0];
    for name in ["state", "error", "id"] {
        usage[name] = json!(COMMANDS);
    }
    let api = world.start();
    let mine = crate::api::events("mine", NOW - 5 * HOUR, 1, false);
    let (_folder, path) = file("events.ndjson", &mine);
    for arguments in [
        &["spans", "--resource-id", "postgres"][..],
        &["spans", "--resource-id", "postgres", "--json"],
        &["span", "span-orders"],
        &["span", "span-orders", "--json"],
        &["span", COMMANDS],
        &["stop", COMMANDS],
        &["verify", &path, "--all"],
        &["verify", &path, "--json"],
        &["events", "send", COMMANDS],
        &["spans", "--from", COMMANDS],
    ] {
        assert_is_safe(&api, arguments);
    }
}
