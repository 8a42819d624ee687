//! What is suspended, and actions: each says what it will do, and asks why.

use sampler_api::Cause;

use crate::stub::{Ledger, MIDNIGHT, Visit, cause, span, suspended, usage_id};

fn some() -> Ledger {
    let ledger = Ledger {
        causes: vec![cause("c-0", 812), cause("c-1", 9)],
        ..Ledger::default()
    };
    ledger
        .with(suspended("one/two"), Vec::new())
        .with(suspended("three"), Vec::new())
}

#[tokio::test]
async fn causes_and_their_spans_are_shown_with_what_can_be_done() {
    let console = some().console();
    let shown = console.page("/console/suspended", "suspended").await;
    for (hook, count) in [
        ("cause-row", 2),
        ("span-row", 2),
        ("resume-cause", 2),
        ("resume", 2),
        ("skip", 2),
    ] {
        let hook = format!("data-test=\"{hook}\"");
        assert_eq!(shown.count(&hook), count, "{hook}");
    }
    shown.shows(&[
        "href=\"../console/spans/one%2Ftwo/skip\"",
        "href=\"../console/suspended/c-0/resume\"",
        "href=\"../console/suspended?cause=c-0#spans\">812 spans<",
        "unprocessable &#60;plan&#62;",
        ">2\u{a0}d</data>",
    ]);
    // A cause that is gone is asked for all the same.
    let other = console.get("/console/suspended?cause=none").await;
    other.counts(200, &[("Spans of this cause", 1)]);
    let nothing = Ledger::default().console();
    let nothing = nothing.get("/console/suspended").await;
    nothing.counts(200, &[("No span is suspended.", 1)]);
}

#[tokio::test]
async fn causes_that_are_not_listed_are_those_of_their_resource() {
    let folded = Cause {
        more: 1_240,
        ..cause("c-0", 812)
    };
    let ledger = Ledger {
        causes: vec![folded],
        ..some()
    };
    let console = ledger.console();
    let more = "href=\"../console/suspended?resource_id=postgres\">and 1240 more of its causes<";
    let all = console.get("/console/suspended").await;
    all.counts(200, &[(more, 1), ("data-test=\"all-resources\"", 0)]);
    let of_resource = console.get("/console/suspended?resource_id=postgres").await;
    of_resource.counts(200, &[("data-test=\"all-resources\"", 1)]);
}

#[tokio::test]
async fn a_cause_is_resumed_after_the_number_of_its_spans_was_seen() {
    let page = "/console/suspended/c-0/resume";
    let visit = Visit::new(some(), page).await;
    let shown = visit.console.page(page, "suspended-resume").await;
    shown.counts(200, &[("Resume 812 spans.", 1), (">Resume 812 spans<", 1)]);
    // A person has sent no JSON.
    let unexplained = visit.send(page, "reason=+").await;
    let told = "<bdi>Reason</bdi>: It must not be blank.";
    unexplained.counts(400, &[(told, 1), ("JSON", 0)]);
    let done = visit.send(page, "reason=Mapped+now.").await;
    done.leads_to("../../../console/suspended?cause=c-0");
    let gone = visit.console.get("/console/suspended/none/resume").await;
    assert_eq!(gone.status, 404);
    // No more are counted, so there may be more.
    let ledger = Ledger {
        causes: vec![cause("c-0", Cause::COUNTED_MAX)],
        ..some()
    };
    let large = ledger.console().get(page).await;
    large.counts(200, &[("Resume at least 100,000 spans.", 1)]);
}

#[tokio::test]
async fn a_span_is_resumed_and_its_usage_skipped_as_they_were_seen() {
    let skipped = [
        "Skip 1 usage of 1\u{a0}h: 2026-11-18 15:10:00 to 2026-11-18 16:10:00. ",
        "The usage is not billed, unless it is sent again later.",
    ];
    let usage = usage_id(7);
    for (act, effects, field) in [
        ("resume", &["Resume 1 span."][..], String::new()),
        ("skip", &skipped, format!("usage_id={usage}&")),
    ] {
        let page = format!("/console/spans/one%2Ftwo/{act}");
        let visit = Visit::new(some(), &page).await;
        let send = async |tag: &str| {
            let form = format!("{field}tag=%22{tag}%22&reason=Mapped+now.");
            visit.send(&page, &form).await
        };
        let shown = visit.console.page(&page, &format!("span-{act}")).await;
        shown.shows(effects);
        let tag = "name=\"tag\" value=\"&#34;seen&#34;\"";
        shown.counts(200, &[(tag, 1), (&usage, 1)]);
        // The reason is not lost, and the tag is that of the span as it is now.
        let stale = send("old").await;
        let kept = (">Mapped now.</textarea>", 1);
        stale.counts(412, &[("It has changed", 1), kept, (tag, 1)]);
        send("seen")
            .await
            .leads_to("../../../console/spans/one%2Ftwo");
    }
}

#[tokio::test]
async fn a_skip_of_a_usage_that_may_count_says_so() {
    let mut late = suspended("late");
    late.delivery.unanswered = true;
    if let Some(plan) = &mut late.planned {
        std::mem::swap(&mut plan.start, &mut plan.end);
    }
    let console = some().with(late, Vec::new()).console();
    let shown = console.get("/console/spans/late/skip").await;
    shown.shows(&["That stays billed", "the upstream may count the usage"]);
}

#[tokio::test]
async fn a_usage_is_sent_again() {
    let page = |number| {
        let usage = usage_id(number);
        format!("/console/spans/one%2Ftwo/usages/{usage}/resend")
    };
    let visit = Visit::new(some(), &page(4)).await;
    let shown = visit.console.page(&page(4), "span-resend").await;
    shown.shows(&["Post 1 usage to the upstream again", &usage_id(4)]);
    let unexplained = visit.send(&page(4), "reason=+").await;
    unexplained.counts(400, &[("must not be blank", 1)]);
    let done = visit.send(&page(4), "reason=Mapped+now.").await;
    done.leads_to("../../../../../console/spans/one%2Ftwo");
    let refused = visit.send(&page(5), "reason=Mapped+now.").await;
    refused.counts(409, &[("The usage cannot be sent again", 1)]);
    let gone = "/console/spans/none/usages/x/resend";
    assert_eq!(visit.console.get(gone).await.status, 404);
}

#[tokio::test]
async fn an_action_needs_a_form_of_its_session() {
    let page = "/console/spans/three/skip";
    let mut visit = Visit::new(some(), page).await;
    visit.csrf = "x".to_owned();
    for page in [
        page,
        "/console/spans/three/resume",
        "/console/spans/three/usages/x/resend",
        "/console/suspended/c-0/resume",
    ] {
        let refused = visit.send(page, "tag=%22seen%22&reason=Mapped+now.").await;
        refused.counts(403, &[("Nothing was done.", 1)]);
    }
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
        page.counts(200, &[("<strong>The span is not suspended</strong>", 1)]);
    }
    let span = console.get("/console/spans/open").await;
    assert_eq!(span.count("data-test=\"resume\""), 0);
}
