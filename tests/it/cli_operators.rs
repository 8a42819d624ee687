//! The command line as an operator uses it, against the real programs: suspended spans, the acts that
//! end them, and their trail.

use sampler_testkit::abacus::Fault;
use sampler_testkit::{now_millis, wait_until};
use serde_json::{Value, json};

use crate::cli::{Cli, event, words, write};
use crate::landscape::{HOUR, Landscape, PATIENCE};

async fn span_of(cli: &Cli, instance: &str) -> String {
    let query = ["spans", "--resource-instance-id", instance];
    let spans = cli.json(0, &query).await;
    spans["items"][0]["id"].as_str().unwrap().to_owned()
}

async fn state(cli: &Cli, span: &str) -> String {
    let shown = cli.json(0, &["span", span]).await;
    let shown = shown.get("span").unwrap_or(&shown);
    shown["state"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_ends_what_abacus_refuses() {
    let world = Landscape::new("cli-operator").await;
    world.abacus.fault(Fault::status(400));
    let receiver = world.ready_receiver().await;
    let cli = Cli::of(&receiver).await;
    let folder = tempfile::tempdir().unwrap();
    // Half an hour within an hour: one usage each.
    let began = (now_millis() / HOUR - 5) * HOUR;
    let instances = ["one", "two", "three"];
    let events: Vec<Value> = instances
        .into_iter()
        .flat_map(|name| {
            [
                event("start", name, began),
                event("stop", name, began + HOUR / 2),
            ]
        })
        .collect();
    let file = write(&folder.path().join("events.ndjson"), &events);
    cli.run(0, &["events", "send", &file]).await;
    let worker = world.worker().env("SAMPLER_SUSPEND_AFTER", "1");
    let worker = worker.start().await.unwrap();

    wait_until("three spans are suspended", PATIENCE, async || {
        let causes = cli.json(0, &["suspended"]).await;
        causes["items"][0]["spans"] == 3
    })
    .await;
    let causes = cli.json(0, &["suspended"]).await;
    let cause = causes["items"][0]["cause"].as_str().unwrap();
    let head = ["cause", "since"];
    let row = [cause, " 400 ", " postgres ", " 3 "];
    cli.says(&["suspended"], &[&head[..], &row].concat()).await;
    let of_cause = cli.json(0, &["spans", "--cause", cause]).await;
    assert_eq!(of_cause["items"].as_array().unwrap().len(), 3);
    let parts = ["due ", "suspended ", "rate "];
    cli.says(&["backlog"], &parts).await;
    let backlog = cli.json(0, &["backlog"]).await;
    assert!(backlog["due"].is_u64(), "{backlog:#}");

    // An act without a reason is none, and one on what is not there says so.
    let (one, two) = (span_of(&cli, "one").await, span_of(&cli, "two").await);
    let (nobody, no_cause) = (
        "there is no span with the id nobody",
        "resume --cause 00000000-0000-5000-8000-000000000000 --reason because",
    );
    let no_boundary = format!(
        "skip {one} --until {} --reason because",
        began + HOUR / 2 + 1
    );
    let nothing = format!("resend {one} --reason because");
    for (code, line, part) in [
        (2, &*format!("resume --span {one}"), "--reason"),
        (2, "resume --reason because", "--cause"),
        (2, &format!("resume --span {one} --reason "), "[#/reason: "),
        (2, no_cause, "cause"),
        (2, "resume --span nobody --reason because", nobody),
        (
            2,
            &no_boundary,
            "The span cannot be skipped up to this time.",
        ),
        (3, &nothing, "/resend is answered 409 Conflict: "),
    ] {
        cli.complains(code, &words(line), part).await;
    }

    // One usage is given up; the span continues, and is complete.
    let reason = "Billed by hand.";
    let said = cli.run(0, &["skip", &one, "--reason", reason]).await;
    assert!(said.starts_with(&format!("The span {one} is ")), "{said}");
    wait_until("the span is complete", PATIENCE, async || {
        state(&cli, &one).await == "complete"
    })
    .await;
    let parts = ["skipped 0:30:00.000", "difference 0 ms"];
    cli.says(&["span", &one], &parts).await;

    // Another one is tried again, and refused again.
    let resume = ["resume", "--span", &two, "--reason", "The plan is mapped."];
    let posts = world.abacus.post_count();
    let said = cli.run(0, &resume).await;
    assert!(said.starts_with(&format!("The span {two} is ")), "{said}");
    wait_until("it is refused again", PATIENCE, async || {
        world.abacus.post_count() > posts && state(&cli, &two).await == "suspended"
    })
    .await;
    // Now Abacus accepts them.
    world.abacus.clear_faults();
    let said = cli
        .run(0, &["resume", "--cause", cause, "--reason", "All of them."])
        .await;
    assert_eq!(said, "2 spans resumed.\n");
    world.until_complete(3).await;
    // The proofs are what the usages say, also where one was skipped.
    let verified = cli.json(0, &["verify", &file]).await;
    let totals = &verified["totals"];
    assert_eq!(
        (&totals["wrong"], &totals["duration"]["skipped"]),
        (&json!(0), &json!(HOUR / 2)),
        "{verified:#}"
    );
    let expected = format!("/v1/spans/{two}/resume is answered 409 Conflict: ");
    cli.complains(3, &resume, &expected).await;

    let trail = cli.json(0, &["audit", "--span", &one]).await;
    let acts = trail["items"].as_array().unwrap();
    let done: Vec<_> = acts.iter().filter(|act| act["outcome"] == "done").collect();
    assert_eq!(done.len(), 1, "{trail:#}");
    assert_eq!(
        (&done[0]["act"], &done[0]["reason"]),
        (&json!("span.skip"), &json!(reason))
    );
    let parts = ["span.skip", "span.resume", reason, "The plan is mapped."];
    cli.says(&["audit", "--limit", "50"], &parts).await;
    assert_eq!(world.billed("one"), 0);
    assert_eq!(world.billed("two"), i128::from(HOUR / 2));
    drop(worker);
}

/// Abacus counts the first post, whose answer is lost, and refuses the usage from then on. An operator who
/// skips it, and would bill it by hand, is told so in each place.
#[tokio::test(flavor = "multi_thread")]
async fn what_abacus_may_count_although_it_is_skipped_is_told() {
    let world = Landscape::new("cli-unanswered").await;
    world.abacus.fault(Fault::lose_answer().times(1));
    world.abacus.fault(Fault::status(400));
    let receiver = world.ready_receiver().await;
    let cli = Cli::of(&receiver).await;
    let folder = tempfile::tempdir().unwrap();
    let began = (now_millis() / HOUR - 5) * HOUR;
    let events = [
        event("start", "lost", began),
        event("stop", "lost", began + HOUR / 2),
    ];
    let file = write(&folder.path().join("events.ndjson"), &events);
    cli.run(0, &["events", "send", &file]).await;
    let worker = world.worker().env("SAMPLER_SUSPEND_AFTER", "1");
    let worker = worker.start().await.unwrap();
    wait_until("the span is suspended", PATIENCE, async || {
        let causes = cli.json(0, &["suspended"]).await;
        causes["items"][0]["spans"] == 1
    })
    .await;
    assert_eq!(world.billed("lost"), i128::from(HOUR / 2));

    let span = span_of(&cli, "lost").await;
    let doubt = "a post of the planned usage had no answer: the upstream may count it";
    cli.says(&["span", &span], &[doubt]).await;
    let skip = ["skip", &span, "--reason", "Billed by hand."];
    cli.run(0, &skip).await;
    wait_until("the span is complete", PATIENCE, async || {
        state(&cli, &span).await == "complete"
    })
    .await;
    let trail = cli.json(0, &["audit", "--span", &span]).await;
    let act = &trail["items"][0];
    assert_eq!(act["before"]["planned"]["unanswered"], true, "{trail:#}");
    assert_eq!(act["after"]["ranges"][0]["duration"], HOUR / 2, "{trail:#}");
    let shown = cli.json(0, &["span", &span]).await;
    assert_eq!(shown["span"]["proof"]["skipped"], HOUR / 2, "{shown:#}");
    assert_eq!(shown["span"]["proof"]["unanswered"], HOUR / 2, "{shown:#}");
    let excluded = &shown["span"]["excluded"][0];
    assert_eq!(excluded["unanswered"], true, "{shown:#}");
    assert_eq!(shown["usages"], json!([]), "{shown:#}");
    let doubt = "(the upstream may count 0:30:00.000 of it: a post had no answer)";
    cli.says(&["span", &span], &[doubt, " true "]).await;

    // The verifier reads both sums, compares them, and tells what is in doubt.
    let verified = cli.json(0, &["verify", &file]).await;
    let duration = &verified["totals"]["duration"];
    assert_eq!(
        (&duration["skipped"], &duration["unanswered"]),
        (&json!(HOUR / 2), &json!(HOUR / 2)),
        "{verified:#}"
    );
    let findings = verified["spans"][0]["findings"].as_array().unwrap();
    let mut kinds = findings.iter().map(|finding| &finding["kind"]);
    assert!(kinds.any(|kind| kind == "unanswered"), "{verified:#}");
    let text = cli.run(0, &["verify", &file]).await;
    let text = text.split_whitespace().collect::<Vec<&str>>().join(" ");
    let advice = "The upstream may count 0:30:00.000 of what was skipped";
    assert!(text.contains(advice), "{text}");

    // Abacus recognises the repeat, which settles it.
    world.abacus.clear_faults();
    let resend = ["resend", &span, "--reason", "Abacus counts it."];
    cli.run(0, &resend).await;
    wait_until("it is settled", PATIENCE, async || {
        let shown = cli.json(0, &["span", &span]).await;
        let proof = &shown["span"]["proof"];
        proof["billed"] == HOUR / 2 && proof["skipped"] == 0 && proof["unanswered"] == 0
    })
    .await;
    assert_eq!(world.billed("lost"), i128::from(HOUR / 2));
    let verified = cli.json(0, &["verify", &file]).await;
    assert_eq!(verified["totals"]["noted"], 0, "{verified:#}");
    drop(worker);
}
