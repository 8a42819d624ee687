//! What people bring along from other command lines.

use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::api::{HOUR, World};
use crate::events::{events, has_journal, holding};
use crate::stub::{Reply, Stub};
use crate::{Ended, NOW, file, run, run_in, sampler};

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

#[test]
fn instances_are_listed_with_their_state() {
    let stub = Stub::always(json!({ "items": [
        { "program": "receiver", "instance": "a", "index": "0", "version": "0.1.0", "started_at": NOW,
          "seen_at": NOW, "state": "up", "failing": [], "warnings": [], "partitions": null,
          "paused_by": [], "slack": 5_270_400_000_i64 },
        { "program": "worker", "instance": "b", "index": null, "version": null, "started_at": null,
          "seen_at": NOW, "state": "stale", "failing": ["database\u{1b}"], "warnings": [],
          "partitions": 64, "paused_by": ["operator"], "slack": null,
          "upstream": "abacus at localhost" },
    ]}));
    let ended = stub.run(&["instances"]);
    ended.writes(1, &[" 1464:00:00.000", "  abacus at localhost  "]);
    let remarks = "  fails database\u{fffd}; paused by operator\n";
    assert!(ended.output.ends_with(remarks), "{ended:?}");
    assert_eq!(stub.whats(), ["GET /v1/instances"]);
}

/// Neither text nor a table of commas: that is said, and nothing is left beside the file.
#[test]
fn a_file_of_another_kind_is_known() {
    let stub = Stub::keeping();
    let (semicolons, tabs) = (
        "organization_id;start;end\no;1;2\n",
        "organization_id\tstart\no\t1\n",
    );
    for (name, text, part) in [
        ("a.ndjson", "\u{0}\u{1}\u{2}", "it is not text"),
        ("b.csv", semicolons, "separated by semicolons"),
        ("c.csv", tabs, "separated by tabs"),
        ("d.csv", "PK\u{3}\u{4}", "spreadsheet"),
    ] {
        let (_folder, path) = file(name, text);
        stub.run(&["verify", &path]).tells(2, &[part]);
        stub.send(&path, &[]).tells(2, &[part]);
        assert!(!has_journal(&path), "{name}");
    }
    // A line that cannot be read is found only as it is sent.
    let (_folder, path) = file("e.ndjson", "# fine\n");
    let mut bytes = vec![b'x'; 1 << 14];
    bytes.extend([b'\n', 0xff, b'\n']);
    bytes[0] = b'#';
    std::fs::write(&path, bytes).unwrap();
    stub.send(&path, &[]).tells(2, &[]);
    assert!(!has_journal(&path));
    assert_eq!(stub.seen().len(), 0);
}

/// Ctrl-C says how far it is and how to resume, and the next command says where it resumes.
#[test]
fn an_interruption_says_how_to_go_on() {
    let (stub, was_asked, let_go) = holding(1);
    let (_folder, path) = file("events.ndjson", &events(5));
    let url = stub.url();
    let mut command = sampler(&["events", "send", &path, "--batch", "2", "--url", &url]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let sending = command.spawn().unwrap();
    was_asked.recv().unwrap();
    let id = sending.id().to_string();
    let interrupt = Command::new("kill").args(["-INT", &id]).status();
    assert!(interrupt.unwrap().success());
    let ended: Ended = sending.wait_with_output().unwrap().into();
    let_go.send(()).unwrap();
    let told = "the same command continues from there";
    let told = format!("error: interrupted: 2 events of {path} are done; {told}\n");
    ended.tells(130, &[]);
    assert_eq!(ended.errors, told);
    let ended = stub.send(&path, &["--batch", "2"]);
    ended.writes(1, &["5 events: 4 accepted, 0 replayed, 1 refused.\n"]);
    let note = format!("note: {path} continues behind the 2 events sent before\n");
    assert_eq!(ended.errors, note);
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
            "type": "urn:sampler:problem:overloaded", "title": COMMANDS, "status": 400,
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
        &["instances"],
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
