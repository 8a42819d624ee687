//! What people bring along from other command lines.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, mpsc};

use serde_json::{Value, json};

use crate::api::{Api, HOUR, World};
use crate::events::{answer, events, journal, send};
use crate::stub::{Reply, Stub};
use crate::{Ended, file, run, sampler};

pub(crate) const NOW: i64 = 1_795_352_400_000;

pub(crate) fn done(arguments: &[&str]) -> String {
    let ended = run(arguments);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    ended.output
}

/// Options of the connection stand anywhere, and come before their variables.
#[test]
fn the_connection_stands_before_or_behind_the_command() {
    let api = Api::start(World::new());
    let url = api.url();
    let ask = ["spans", "--resource-id", "postgres"];
    for arguments in [
        [&["--url", &url][..], &ask].concat(),
        [&ask[..], &["--url", &url]].concat(),
        [&["--json", "--url", &url][..], &ask].concat(),
    ] {
        let mut command = sampler(&arguments);
        let ended: Ended = command
            .env("SAMPLER_URL", "http://127.0.0.1:9")
            .output()
            .unwrap()
            .into();
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let is_json = arguments.contains(&"--json");
        assert_eq!(ended.output.starts_with('{'), is_json, "{ended:?}");
    }
    let nested = run(&[
        "--url", &url, "control", "--url", &url, "set", "--rate", "1", "--reason", "r",
    ]);
    assert_eq!(nested.code, Some(3), "it asks this receiver: {nested:?}");
    assert_eq!(api.requests().len(), 3);
    // A variable that is set is no part of what is missing, and one that is wrong is told.
    let mut command = sampler(&["span"]);
    let ended: Ended = command.env("SAMPLER_URL", &url).output().unwrap().into();
    assert!(!ended.errors.contains("--url"), "{ended:?}");
    let mut command = sampler(&ask);
    let ended: Ended = command
        .env("SAMPLER_URL", "nowhere")
        .output()
        .unwrap()
        .into();
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(
        ended.errors.contains("SAMPLER_URL is \"nowhere\""),
        "{ended:?}"
    );
}

#[test]
fn times_are_written_as_people_write_them() {
    let api = Api::start(World::new());
    let url = api.url();
    for (from, ms) in [
        ("2026-11-22", Some(1_795_305_600_000_i64)),
        ("2026-11-22T13:00", Some(NOW)),
        ("2026-11-22T14:00:00+01:00", Some(NOW)),
        ("yesterday", None),
        ("-2d", None),
    ] {
        let text = done(&["spans", "--resource-id", "r", "--from", from, "--url", &url]);
        assert_eq!(text, "No spans.\n");
        let asked = api.requests().pop().unwrap();
        let expected = ms.map_or("from=1".to_owned(), |ms| format!("from={ms}&"));
        assert!(asked.contains(&expected), "{from}: {asked}");
    }
    let ended = run(&["spans", "--from", "20.11.2026", "--url", &url]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(
        ended
            .errors
            .contains("is not a valid time: write 2026-11-20"),
        "{ended:?}"
    );
}

/// An instance is asked for by its name, as long as that says which span is meant.
#[test]
fn an_instance_may_stand_for_its_span() {
    let mut world = World::new();
    world.add("orders", NOW - 50 * HOUR, 20, false);
    world.add("shop", NOW - 7 * HOUR, 7, true);
    for span in &mut world.spans {
        span["target"]["resource_instance_id"] = json!(if span["id"] == "span-shop" {
            "shop"
        } else {
            "orders-db"
        });
    }
    let api = Api::start(world);
    let url = api.url();
    let text = done(&["span", "orders-db", "--url", &url]);
    assert!(
        text.starts_with("span                  span-orders\n"),
        "{text}"
    );
    for span in &mut api.world.lock().unwrap().spans {
        span["target"]["resource_instance_id"] = json!("twin");
    }
    let ended = run(&["span", "twin", "--url", &url]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert_eq!(ended.output, "");
    for part in [
        "twin is the name of an instance with 2 spans",
        "span-orders ",
        "span-shop ",
    ] {
        assert!(ended.errors.contains(part), "{part}: {ended:?}");
    }
}

#[test]
fn a_plan_is_mapped_once() {
    let stub = Stub::start(|_, number| match number {
        0 => Reply(201, Value::Null, None),
        _ => Reply(
            409,
            json!({ "type": "/problems/mapping-exists", "title": "There." }),
            None,
        ),
    });
    let url = stub.url();
    let plans = [
        "--metering-plan",
        "a",
        "--rating-plan",
        "b",
        "--pricing-plan",
        "c",
        "--url",
        &url,
    ];
    let arguments = [
        &["mapping", "--resource-id", "r", "--plan-id", "p"][..],
        &plans,
    ]
    .concat();
    assert_eq!(done(&arguments), "The plan p of r is mapped.\n");
    let again = run(&arguments);
    assert_eq!(again.code, Some(1), "{again:?}");
    assert_eq!(
        again.output,
        "The plan p of r was mapped before, and stays as it is.\n"
    );
    let expected = json!({ "resource_id": "r", "plan_id": "p", "metering_plan": "a",
                           "rating_plan": "b", "pricing_plan": "c" });
    assert_eq!(stub.seen()[0].json(), expected);
    assert_eq!(stub.whats()[0], "POST /v1/mappings");
}

#[test]
fn instances_are_listed_with_their_state() {
    let stub = Stub::start(|_, _| {
        json!({ "items": [
            { "program": "receiver", "instance": "a", "index": "0", "version": "0.1.0", "started_at": NOW,
              "seen_at": NOW, "state": "up", "failing": [], "warnings": [], "partitions": null,
              "paused_by": [], "slack": 5_270_400_000_i64 },
            { "program": "worker", "instance": "b", "index": null, "version": null, "started_at": null,
              "seen_at": NOW, "state": "stale", "failing": ["database\u{1b}"], "warnings": [],
              "partitions": 64, "paused_by": ["operator"], "slack": null,
              "upstream": "abacus at localhost" },
        ]})
        .into()
    });
    let ended = run(&["instances", "--url", &stub.url()]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.output.contains(" 1464:00:00.000"), "{ended:?}");
    assert!(
        ended.output.contains("  abacus at localhost  "),
        "{ended:?}"
    );
    let remarks = "  fails database\u{fffd}; paused by operator\n";
    assert!(ended.output.ends_with(remarks), "{ended:?}");
    assert_eq!(stub.whats(), ["GET /v1/instances"]);
}

/// Neither text nor a table of commas: that is said, and nothing is left beside the file.
#[test]
fn a_file_of_another_kind_is_known() {
    let stub = Stub::start(|seen, _| answer(seen, |_| 201));
    for (name, text, part) in [
        ("a.ndjson", "\u{0}\u{1}\u{2}", "it is not text"),
        (
            "b.csv",
            "organization_id;start;end\no;1;2\n",
            "separated by semicolons",
        ),
        (
            "c.csv",
            "organization_id\tstart\no\t1\n",
            "separated by tabs",
        ),
        ("d.csv", "PK\u{3}\u{4}", "spreadsheet"),
    ] {
        let (_folder, path) = file(name, text);
        let verified = run(&["verify", &path, "--url", &stub.url()]);
        assert_eq!(verified.code, Some(2), "{verified:?}");
        assert!(verified.errors.contains(part), "{part}: {verified:?}");
        let ended = send(&stub.url(), &path, &[]);
        assert_eq!(ended.code, Some(2), "{ended:?}");
        assert!(ended.errors.contains(part), "{part}: {ended:?}");
        assert!(!Path::new(&journal(&path)).exists(), "{name}");
    }
    // A line that cannot be read is found only as it is sent.
    let (_folder, path) = file("e.ndjson", "# fine\n");
    let mut bytes = vec![b'x'; 1 << 14];
    bytes.extend([b'\n', 0xff, b'\n']);
    bytes[0] = b'#';
    std::fs::write(&path, bytes).unwrap();
    let ended = send(&stub.url(), &path, &[]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(!Path::new(&journal(&path)).exists(), "{ended:?}");
    assert_eq!(stub.seen().len(), 0);
}

/// Ctrl-C says how far it is and how to go on, and the next command says where it goes on.
#[test]
fn an_interruption_says_how_to_go_on() {
    let (asked, was_asked) = mpsc::channel();
    let (let_go, may_go) = mpsc::channel::<()>();
    let (asked, may_go) = (Mutex::new(asked), Mutex::new(may_go));
    let stub = Stub::start(move |seen, number| {
        if number == 1 {
            asked.lock().unwrap().send(()).unwrap();
            may_go.lock().unwrap().recv().unwrap();
        }
        answer(seen, |_| 201)
    });
    let (_folder, path) = file("events.ndjson", &events(5));
    let url = stub.url();
    let mut command = sampler(&["events", "send", &path, "--batch", "2", "--url", &url]);
    let sending = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    was_asked.recv().unwrap();
    let id = sending.id().to_string();
    assert!(
        Command::new("kill")
            .args(["-INT", &id])
            .status()
            .unwrap()
            .success()
    );
    let ended: Ended = sending.wait_with_output().unwrap().into();
    let_go.send(()).unwrap();
    assert_eq!(ended.code, Some(130), "{ended:?}");
    assert_eq!(
        ended.errors,
        format!(
            "error: interrupted: 2 events of {path} are done; the same command continues from there\n"
        )
    );
    let ended = send(&url, &path, &["--batch", "2"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let note = format!("note: {path} continues behind the 2 events sent before\n");
    assert_eq!(ended.errors, note);
    assert_eq!(
        ended.output,
        "5 events: 5 accepted, 0 replayed, 0 refused.\n"
    );
}

/// A terminal sees how much there is, how fast it goes, and what is left.
#[test]
fn a_terminal_sees_how_far_it_is() {
    let stub = Stub::start(|seen, _| answer(seen, |_| 201));
    let (_folder, path) = file("events.ndjson", &events(2_000));
    // `script` is a terminal.
    let line = format!(
        "{} events send {path} --batch 100 --url {}",
        env!("CARGO_BIN_EXE_sampler"),
        stub.url()
    );
    let output = Command::new("script")
        .args(["-qec", &line, "/dev/null"])
        .stdin(Stdio::null())
        .output();
    let text = String::from_utf8_lossy(&output.unwrap().stdout).into_owned();
    for part in ["%  ", " events, 0 refused, ", "/s, ", " left"] {
        assert!(text.contains(part), "{part:?} in {text:?}");
    }
    assert!(text.contains("2000 events: 2000 accepted"), "{text:?}");
    let piped = send(&stub.url(), &path, &[]);
    assert_eq!(piped.errors, "");
}

/// What a terminal would take for commands, and marks of direction.
const COMMANDS: &str = "\u{1b}]0;x\u{7}\u{9b}31m\u{9d}0;y\u{9c}\u{202e}\u{2066}\u{200b}\u{e0041}";

/// A server that answers with commands to a terminal wherever there is a text.
fn hostile_server(kind: &'static str) -> Stub {
    Stub::start(move |seen, _| {
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
            "problem" => Reply(400, problem, None),
            "text" => Reply(500, json!(COMMANDS), None),
            _ if seen.what.contains("snapshots") => {
                let proposal = json!({
                    "type": "stop", "id": COMMANDS, "timestamp": 5, "organization_id": COMMANDS,
                    "space_id": COMMANDS, "consumer_id": COMMANDS, "resource_id": COMMANDS,
                    "plan_id": COMMANDS, "resource_instance_id": COMMANDS,
                });
                json!({ "at": 5, "checked": 1, "instance_without_span": [], "differs": [],
                        "open_without_instance": [{ "span": COMMANDS, "proposal": proposal }] })
                .into()
            }
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
        &["snapshot", "diff", &now],
        &["snapshot", "apply", &now, "--most", "0"],
    ];
    for kind in ["documents", "problem", "text"] {
        let stub = hostile_server(kind);
        let url = stub.url();
        for command in commands {
            for more in [&[][..], &["--json"]] {
                let arguments = [command, more, &["--url", &url]].concat();
                let ended = run(&arguments);
                assert_is_safe(&ended.output, &arguments);
                assert_is_safe(&ended.errors, &arguments);
            }
        }
    }
    // On a terminal, which shows both.
    let stub = hostile_server("documents");
    for command in ["audit --json", "snapshot diff FILE --json"] {
        let line = format!(
            "{} {} --url {}",
            env!("CARGO_BIN_EXE_sampler"),
            command.replace("FILE", &now),
            stub.url()
        );
        let output = Command::new("script")
            .args(["-qec", &line, "/dev/null"])
            .stdin(Stdio::null())
            .output();
        let text = String::from_utf8(output.unwrap().stdout).unwrap();
        assert!(text.contains("\\u202e"), "{text:?}");
        assert_is_safe(&text.replace('\r', ""), &[command]);
    }
}

#[track_caller]
fn assert_is_safe(text: &str, arguments: &[&str]) {
    let is_safe = text
        .chars()
        .all(|it| it == '\n' || !sampler_api::text::is_invisible(it));
    assert!(is_safe, "{arguments:?}: {text:?}");
}

/// What others write reaches a terminal as text, wherever it stands.
#[test]
fn no_text_of_others_commands_a_terminal() {
    const HOSTILE: &str = "\u{1b}]0;x\u{7}\u{9b}31m\u{202e}\u{2066}\u{200b}";
    let mut world = World::new();
    world.add("orders", NOW - 50 * HOUR, 2, true);
    for id in crate::api::IDS {
        world.spans[0]["target"][id] = json!(HOSTILE);
    }
    for name in ["state", "start_event_id"] {
        world.spans[0][name] = json!(HOSTILE);
    }
    world.spans[0]["measured_usage"][0]["measure"] = json!(HOSTILE);
    world.spans[0]["delivery"]["last_error"] =
        json!({ "at": NOW, "status": 400, "error": HOSTILE });
    let usage = &mut world.usages.get_mut("span-orders").unwrap()[0];
    for name in ["state", "error", "id"] {
        usage[name] = json!(HOSTILE);
    }
    let api = Api::start(world);
    let url = api.url();
    let mine = crate::api::events("mine", NOW - 5 * HOUR, 1, false);
    let (_folder, path) = file("events.ndjson", &mine);
    for arguments in [
        &["spans", "--resource-id", "postgres"][..],
        &["spans", "--resource-id", "postgres", "--json"],
        &["span", "span-orders"],
        &["span", "span-orders", "--json"],
        &["span", HOSTILE],
        &["stop", HOSTILE, "--dry-run"],
        &["verify", &path, "--all"],
        &["verify", &path, "--json"],
        &["events", "send", HOSTILE],
        &["spans", "--from", HOSTILE],
    ] {
        let ended = run(&[arguments, &["--url", &url]].concat());
        assert_is_safe(&ended.output, arguments);
        assert_is_safe(&ended.errors, arguments);
    }
}
