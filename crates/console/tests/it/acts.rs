//! What is suspended, and actions: each says what it will do, and asks why.

use sampler_api::Cause;
use serde_json::json;

use crate::stub::{DAY, HOUR, Ledger, MIDNIGHT, NOW, Visit, excluded, span, suspended, with};

fn some() -> Ledger {
    let ledger = Ledger::default().suspended_by(&[812, 9]);
    ledger
        .with(suspended("one/two"), Vec::new())
        .with(suspended("three"), Vec::new())
}

#[tokio::test]
async fn causes_and_their_spans_are_shown_with_what_can_be_done() {
    let console = some().console();
    let shown = console.get("/console/suspended").await;
    let hooks = ["cause-row", "span-row", "resume-cause", "resume", "skip"];
    for hook in hooks.map(|hook| format!("data-test=\"{hook}\"")) {
        assert_eq!(shown.count(&hook), 2, "{hook}");
    }
    shown.shows(&[
        "href=\"../console/spans/one%2Ftwo/skip\"",
        "href=\"../console/suspended/c-0/resume\"",
        "href=\"../console/suspended?cause=c-0#spans\">812 spans<",
        "unprocessable &#60;plan&#62;",
        ">2\u{a0}d</data>",
    ]);
    let resource = "href=\"../console/suspended?resource_id=postgres\"";
    for (path, texts) in [
        ("", [(resource, 2), ("data-test=\"all-resources\"", 0)]),
        (
            "?resource_id=postgres",
            [(resource, 2), ("data-test=\"all-resources\"", 1)],
        ),
        // A cause that is gone is asked for all the same.
        (
            "?cause=none",
            [("Spans of this cause", 1), ("data-test=\"span-row\"", 2)],
        ),
    ] {
        let shown = console.get(&format!("/console/suspended{path}")).await;
        shown.counts(200, &texts);
    }
    let nothing = Ledger::default().console();
    let nothing = nothing.get("/console/suspended").await;
    nothing.counts(200, &[("No span is suspended.", 1)]);
}

#[tokio::test]
async fn a_cause_is_resumed_after_the_number_of_its_spans_was_seen() {
    let page = "/console/suspended/c-0/resume";
    let visit = Visit::new(some(), page).await;
    let shown = visit.console.get(page).await;
    shown.counts(200, &[("Resume 812 spans.", 1)]);
    // A person has sent no JSON.
    let unexplained = visit.send(page, "reason=+").await;
    let told = "<bdi>Reason</bdi>: It must not be blank.";
    unexplained.counts(400, &[(told, 1), ("JSON", 0)]);
    let done = visit.send(page, "reason=Mapped+now.").await;
    done.leads_to("../../../console/suspended?cause=c-0");
    let gone = visit.console.get("/console/suspended/none/resume").await;
    assert_eq!(gone.status, 404);
    // No more are counted, so there may be more.
    let large = Ledger::default().suspended_by(&[Cause::COUNTED_MAX]);
    let large = large.console().get(page).await;
    large.counts(200, &[("Resume at least 100,000 spans.", 1)]);
}

#[tokio::test]
async fn a_span_is_resumed_and_its_usage_skipped_as_they_were_seen() {
    let skipped = [
        "Skip 1 usage of 1\u{a0}h: ",
        "The usage is not billed, unless it is sent again later.",
        "With a later time in the field, everything up to that time is skipped",
        "title=\"2026-11-18T15:10:00.000Z",
        "title=\"2026-11-18T16:10:00.000Z",
        "name=\"until\" value=\"\"",
    ];
    for (act, effects, field) in [
        ("resume", &["Resume 1 span."][..], ""),
        ("skip", &skipped, ""),
        ("skip", &skipped, "until=2026-11-20&"),
    ] {
        let page = format!("/console/spans/one%2Ftwo/{act}");
        let visit = Visit::new(some(), &page).await;
        let send = async |tag: &str| {
            let form = format!("{field}tag=%22{tag}%22&reason=Mapped+now.");
            visit.send(&page, &form).await
        };
        let shown = visit.console.get(&page).await;
        shown.shows(effects);
        let tag = "name=\"tag\" value=\"&#34;seen&#34;\"";
        shown.counts(200, &[(tag, 1)]);
        // The reason is not lost, and the tag is that of the span as it is now.
        let stale = send("old").await;
        let kept = (">Mapped now.</textarea>", 1);
        stale.counts(412, &[("It has changed", 1), kept, (tag, 1)]);
        send("seen")
            .await
            .leads_to("../../../console/spans/one%2Ftwo");
    }
}

/// What was entered is not lost, however wrong.
#[tokio::test]
async fn a_wrong_time_of_a_skip_is_told_in_the_form() {
    let page = "/console/spans/three/skip";
    let visit = Visit::new(some(), page).await;
    for (given, shown, told) in [
        ("2027-01-01", "2027-01-01T00:00", "It is wrong."),
        ("soon", "soon", "Enter a time like 2026-11-20T14:00."),
    ] {
        let form = format!("until={given}&tag=%22seen%22&reason=Mapped+now.");
        let answer = visit.send(page, &form).await;
        let told = format!("<bdi>Until, UTC</bdi>: {told}");
        let value = format!("name=\"until\" value=\"{shown}\"");
        answer.counts(400, &[(&told, 1), (&value, 1)]);
    }
}

#[tokio::test]
async fn a_skip_of_a_usage_that_may_count_says_so() {
    let late = json!({
        "delivery": { "unanswered": true },
        "planned": { "start": NOW - DAY, "end": NOW - 2 * DAY },
    });
    let late = with(suspended("late"), late);
    let console = some().with(late, Vec::new()).console();
    let shown = console.get("/console/spans/late/skip").await;
    shown.shows(&["That stays billed", "the upstream may count the usage"]);
}

#[tokio::test]
async fn what_is_excluded_is_sent_again() {
    let mut span = span("a/b", MIDNIGHT - DAY, None);
    span.excluded = vec![excluded(MIDNIGHT - DAY, MIDNIGHT - DAY + HOUR)];
    let ledger = Ledger::default().with(span, Vec::new());
    let range = format!("?from={}&to={}", MIDNIGHT - DAY, MIDNIGHT - DAY + HOUR);
    let shown = ledger.clone().console().get("/console/spans/a%2Fb").await;
    shown.shows(&[&format!(
        "/spans/a%2Fb/resend{}",
        range.replace('&', "&#38;")
    )]);
    let page = "/console/spans/a%2Fb/resend";
    let visit = Visit::new(ledger, page).await;
    let shown = visit.console.get(&format!("{page}{range}")).await;
    shown.shows(&[
        "Post what is excluded within these times",
        "name=\"from\" value=\"2026-11-19T00:00\"",
        "name=\"to\" value=\"2026-11-19T01:00\"",
    ]);
    let times = "from=2026-11-19T00:00&to=2026-11-19T01:00&tag=%22seen%22";
    let unexplained = visit.send(page, &format!("{times}&reason=+")).await;
    unexplained.counts(
        400,
        &[("must not be blank", 1), ("value=\"2026-11-19T01:00\"", 1)],
    );
    let done = visit
        .send(page, &format!("{times}&reason=Mapped+now."))
        .await;
    done.leads_to("../../../console/spans/a%2Fb");
    assert_eq!(
        visit.console.get("/console/spans/none/resend").await.status,
        404
    );
}

#[tokio::test]
async fn a_form_that_is_too_long_is_not_read_to_its_end() {
    let page = "/console/suspended/c-0/resume";
    let visit = Visit::new(some(), page).await;
    // 1,000 characters of four bytes each fit, and are not lost.
    let reason = format!("reason={}", "%F0%9F%98%80".repeat(1_000));
    let refused = visit.send(page, &reason).await;
    refused.counts(400, &[(&"\u{1f600}".repeat(1_000), 1)]);
    let reason = format!("reason={}", "x".repeat(40_000));
    let longer = visit.send(page, &reason).await;
    longer.counts(413, &[("Nothing was done", 1)]);
}

#[tokio::test]
async fn a_span_that_is_not_suspended_says_so() {
    let open = span("open", MIDNIGHT, None);
    let console = Ledger::default().with(open, Vec::new()).console();
    for act in ["resume", "skip"] {
        let page = console.get(&format!("/console/spans/open/{act}")).await;
        page.counts(200, &[("The span is not suspended.", 1)]);
    }
    let span = console.get("/console/spans/open").await;
    assert_eq!(span.count("data-test=\"resume\""), 0);
}
