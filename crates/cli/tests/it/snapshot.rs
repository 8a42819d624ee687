//! `sampler snapshot`.

use serde_json::json;

use crate::api::{HOUR, World};
use crate::events::{answer, ids};
use crate::stub::Stub;
use crate::{Ended, NOW, file};

/// An instance that stopped at two o'clock, and one that runs.
fn world() -> Stub {
    let mut world = World::new();
    world.add("gone", NOW - 50 * HOUR, 20, true);
    world.add("runs", NOW - 7 * HOUR, 7, true);
    world.page = 1;
    world.writes = Some(|seen| answer(seen, |_| 201));
    world.start()
}

fn instance(name: &str) -> String {
    let line = json!({ "organization_id": "o", "space_id": "s", "consumer_id": "c",
                       "plan_id": "large", "resource_instance_id": name });
    format!("{line}\n")
}

fn snapshot(stub: &Stub, instances: &str, arguments: &[&str]) -> Ended {
    let head = json!({ "resource_id": "postgres", "at": NOW });
    let (_folder, path) = file("now.ndjson", &format!("# now\n{head}\n\n{instances}"));
    let now = [&["snapshot"], arguments, &[path.as_str()]].concat();
    stub.run(&now)
}

#[test]
fn a_snapshot_shows_and_mends_what_differs() {
    let stub = world();
    let runs = instance("runs");
    let row = "gone  no longer runs  stop at 2026-11-22T13:00:00.000Z  span-gone";
    let counted = "1 difference among 1 instance at 2026-11-22T13:00:00.000Z.";
    for diff in [&[][..], &["diff"], &["diff", "--most", "0"]] {
        snapshot(&stub, &runs, diff).writes(1, &[row, counted]);
    }
    let asked = format!("GET /v1/spans?resource_id=postgres&from={NOW}&limit=100");
    assert_eq!(stub.whats()[0], asked);
    let shown = snapshot(&stub, &runs, &["--json"]).json();
    assert_eq!(shown["open_without_instance"][0]["span"], "span-gone");
    let few = snapshot(&stub, &runs, &["apply", "--most", "0"]);
    few.tells(1, &["nothing is sent: 1 event is more than --most 0"]);
    assert!(stub.whats().iter().all(|what| what.starts_with("GET ")));
    let applied = snapshot(&stub, &runs, &["apply", "--json"]);
    assert_eq!(applied.json()["report"]["accepted"], 1);
    let seen = stub.seen();
    let sent = seen.last().unwrap();
    let proposal = &shown["open_without_instance"][0]["proposal"];
    assert_eq!(ids(sent), [proposal["id"].as_str().unwrap()]);
    let both = runs + &instance("gone");
    let text = snapshot(&stub, &both, &[]).done();
    assert!(
        text.starts_with("Nothing differs: 2 instances at "),
        "{text}"
    );
}

/// A start is never dated at a time that is billed already.
#[test]
fn spans_of_before_are_read_where_a_start_depends_on_them() {
    let mut world = World::new();
    world.add("back", NOW - 50 * HOUR, 20, false);
    let stub = world.start();
    let since = NOW - 40 * HOUR;
    let back = instance("back").replace('}', &format!(",\"since\":{since}}}"));
    let found = snapshot(&stub, &back, &["--json"]).json();
    let proposal = &found["instance_without_span"][0]["proposal"];
    assert_eq!(proposal["timestamp"], NOW - 30 * HOUR);
    let asked = [
        format!("GET /v1/spans?resource_id=postgres&from={NOW}&limit=100"),
        format!("GET /v1/spans?resource_id=postgres&from={since}&to={NOW}&limit=100"),
    ];
    assert_eq!(stub.whats(), asked);
}

#[test]
fn a_wrong_file_is_told_with_its_line() {
    let stub = world();
    let runs = instance("runs");
    let later = runs.replace('}', &format!(",\"since\":{}}}", NOW + 1));
    let unknown = runs.replace('}', ",\"plan\":\"x\"}");
    for (instances, part) in [
        ("nope\n", "line 4: not JSON"),
        (&*format!("{runs}{runs}"), "line 5: the same target"),
        (&later, "line 4: \"since\" is after"),
        (&unknown, "line 4: unknown field `plan`"),
        ("{}\n", "line 4: missing field `organization_id`"),
    ] {
        snapshot(&stub, instances, &["apply"]).tells(2, &[part]);
    }
    for (head, part) in [
        ("", "has no head"),
        ("{\"at\":5}", "line 1: missing field `resource_id`"),
        (
            "{\"resource_id\":\"r\",\"at\":99999999999999}",
            "is in the future",
        ),
        (
            "{\"resource_id\":\"r\",\"at\":\"noon\"}",
            "neither milliseconds",
        ),
    ] {
        let (_folder, path) = file("now.ndjson", head);
        stub.run(&["snapshot", &path]).tells(2, &[part]);
    }
    stub.run(&["snapshot", "mend", "now.ndjson"])
        .tells(2, &["snapshot [diff|apply] FILE"]);
    assert_eq!(stub.whats(), [""; 0]);
}
