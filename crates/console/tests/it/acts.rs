//! What is suspended, and acts on it: each says in numbers what it will do, and asks why.

use serde_json::json;

use crate::stub::{
    CAUSE, ENDED_CAUSE, HOUR, LARGE_CAUSE, Ledger, MIDNIGHT, Shown, Visit, span, suspended, usage,
    usage_id,
};

fn some() -> Ledger {
    Ledger::default()
        .with(suspended("one/two"), Vec::new())
        .with(suspended("three"), Vec::new())
}

fn rows(shown: &Shown) -> usize {
    shown.count("data-test=\"cause-row\"")
}

#[tokio::test]
async fn causes_and_their_spans_are_shown_with_what_can_be_done() {
    let console = some().console();
    let shown = console.page("/console/suspended", "suspended").await;
    for (hook, count) in [
        ("cause-row", 1),
        ("span-row", 2),
        ("resume", 3),
        ("skip", 2),
        ("act-row", 1),
    ] {
        let hook = format!("data-test=\"{hook}\"");
        assert_eq!(shown.count(&hook), count, "{hook}");
    }
    // The id of a cause stands in the address as it is.
    assert!(CAUSE.contains('-'));
    shown.shows(&[
        "href=\"/console/spans/one%2Ftwo/skip\"",
        "2 days",
        "unprocessable &#60;plan&#62;",
        &format!("/console/suspended/{CAUSE}/resume"),
    ]);
    // A cause that is gone is asked for all the same: the answer says what there is of it.
    let other = console.get("/console/suspended?cause=c1").await;
    other.counts(200, &[("Spans of this cause", 1)]);
}

#[tokio::test]
async fn causes_that_are_not_listed_are_those_of_their_resource() {
    let mut ledger = some();
    ledger.causes = (7, 1_240);
    let console = ledger.console();
    let all = console.page("/console/suspended", "suspended-many").await;
    let of_resource = "/console/suspended?resource_id=postgres";
    let more = format!("href=\"{of_resource}\"><data value=\"1240\">1,240</data> more causes of ");
    all.counts(200, &[("data-test=\"folded\"", 1), (&more, 1)]);
    assert_eq!(rows(&all), 7);
    // The spans of a cause are shown beside the same causes.
    let shown = console.get(of_resource).await;
    let own = format!("{of_resource}&cause=c-6");
    let link = format!("href=\"{}#spans\"", own.replace('&', "&#38;"));
    shown.counts(200, &[(&link, 1)]);
    let own = console.get(&own).await;
    own.counts(
        200,
        &[("data-test=\"span-row\"", 2), ("class=\"chosen\"", 1)],
    );
    assert_eq!(rows(&own), 7);
    // A cause that is not listed has its name all the same.
    let other = format!("/console/suspended?cause={LARGE_CAUSE}");
    let other = console.get(&other).await;
    other.counts(200, &[("Spans of this cause", 0), ("Spans of 422", 1)]);
}

#[tokio::test]
async fn a_cause_is_resumed_after_its_numbers_were_seen() {
    let page = "/console/suspended/c-0/resume";
    let visit = Visit::new(some(), page).await;
    let shown = visit.console.page(page, "suspended-resume").await;
    let effect = "Resume 812 spans, 2 days behind, about 39,000 usages.";
    shown.shows(&[effect]);
    shown.counts(200, &[("data-test=\"confirm\">Resume 812 spans<", 1)]);
    // A person has sent no JSON.
    let told = [("must not be blank", 1), ("JSON", 0), (effect, 1)];
    let unexplained = visit.send(page, "reason=+").await;
    unexplained.counts(400, &told);
    unexplained.counts(400, &[("<bdi>Why?</bdi>", 1)]);
    let done = visit.send(page, "reason=Mapped+now.").await;
    done.leads_to("/console/suspended?cause=c-0");
    let gone = visit.console.get("/console/suspended/c1/resume").await;
    assert_eq!(gone.status, 404);
}

/// Also where it is not on the first page of the list.
#[tokio::test]
async fn a_cause_of_more_spans_than_are_counted_is_resumed_with_at_least_their_number() {
    let console = some().console();
    let page_of = |cause: &str| format!("/console/suspended/{cause}/resume");
    let page = page_of(LARGE_CAUSE);
    let shown = console.page(&page, "suspended-resume-large").await;
    shown.shows(&["Resume at least 100,000 spans, 2 days behind, at least 4,800,000 usages."]);
    shown.counts(200, &[(">Resume at least 100,000 spans<", 1)]);
    let ended = console.get(&page_of(ENDED_CAUSE)).await;
    assert_eq!(ended.status, 404);
    ended.shows(&["No span is suspended for this cause"]);
}

#[tokio::test]
async fn a_span_is_resumed_and_its_usage_skipped_as_they_were_seen() {
    let resumed = "Resume 1 span, 2 days behind, about 48 usages.";
    let skipped = [
        "Skip 1 usage of 1\u{a0}h: ",
        "It is not billed, unless it is sent again later.",
        "Then resume 1 span, 47 hours behind, about 47 usages.",
    ];
    let usage = usage_id(7);
    for (act, effects, field) in [
        ("resume", &[resumed][..], String::new()),
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
        let kept = [(">Mapped now.</textarea>", 1), (tag, 1)];
        let stale = send("old").await;
        stale.counts(412, &[("It has changed", 1)]);
        stale.counts(412, &kept);
        send("seen").await.leads_to("/console/spans/one%2Ftwo");
    }
}

#[tokio::test]
async fn an_act_needs_a_form_of_its_session() {
    let page = "/console/spans/three/skip";
    let mut visit = Visit::new(some(), page).await;
    visit.csrf = "x".to_owned();
    for page in [
        page,
        "/console/spans/three/resume",
        "/console/suspended/c-0/resume",
    ] {
        let refused = visit.send(page, "tag=%22seen%22&reason=Mapped+now.").await;
        assert_eq!(refused.status, 403, "{page}");
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
    let ledger = Ledger::default().with(span("open", MIDNIGHT, None), Vec::new());
    let console = ledger.console();
    for act in ["resume", "skip"] {
        let shown = console.get(&format!("/console/spans/open/{act}")).await;
        assert_eq!(shown.count("The span is not suspended"), 1, "{act}");
    }
    let span = console.get("/console/spans/open").await;
    assert_eq!(span.count("data-test=\"resume\""), 0);
}

/// A span with a usage that was skipped, one that was set aside, and others.
fn given_up() -> Ledger {
    let mut aside = usage(5, MIDNIGHT + 2 * HOUR, MIDNIGHT + HOUR, "set_aside");
    aside["error"] = json!("<b>no plan</b>");
    let usages = vec![
        usage(3, MIDNIGHT, MIDNIGHT + HOUR, "accepted"),
        usage(4, MIDNIGHT + HOUR, MIDNIGHT + 2 * HOUR, "skipped"),
        aside,
    ];
    Ledger::of(span("one/two", MIDNIGHT, None), usages)
}

/// The page that sends a usage again, whose timestamp is so many half hours after midnight.
fn resend_page(number: usize, half_hours: i64) -> String {
    let (usage, at) = (usage_id(number), MIDNIGHT + half_hours * HOUR / 2);
    format!("/console/spans/one%2Ftwo/usages/{usage}/resend?at={at}")
}

#[tokio::test]
async fn a_usage_that_was_given_up_is_sent_again_after_its_numbers_were_seen() {
    let page = resend_page(4, 3);
    let visit = Visit::new(given_up(), &page).await;
    let span = "/console/spans/one%2Ftwo";
    let ledger = visit.console.page(span, "span-given-up").await;
    ledger.counts(200, &[("data-test=\"resend\"", 2)]);
    ledger.shows(&[&format!("href=\"{page}\"")]);
    let shown = visit.console.page(&page, "span-resend").await;
    let effect = "Resend 1 usage of 1\u{a0}h: 2026-11-20 01:00:00 to 2026-11-20 02:00:00. \
                  It is billed then.";
    shown.shows(&[effect, "It was skipped.", ">Resend 1 usage<"]);
    let unexplained = visit.send(&page, "reason=+").await;
    unexplained.counts(400, &[("must not be blank", 1)]);
    let done = visit.send(&page, "reason=Mapped+now.").await;
    done.leads_to(&format!("{span}#u-{}", usage_id(4)));
}

#[tokio::test]
async fn a_resend_that_cannot_be_says_why() {
    // It takes back, and was set aside.
    let aside = resend_page(5, 3);
    let visit = Visit::new(given_up(), &aside).await;
    visit.console.get(&aside).await.shows(&[
        "It then takes back what was billed too much.",
        "The upstream has set it aside: &#60;b&#62;no plan&#60;/b&#62;.",
    ]);
    // The usage was accepted, or sent again by somebody else meanwhile.
    let accepted = resend_page(3, 1);
    for page in [&accepted, &aside] {
        let refused = visit.send(page, "reason=Mapped+now.").await;
        refused.counts(409, &[("The usage cannot be sent again", 1)]);
    }
    let shown = visit.console.get(&accepted).await;
    shown.shows(&["This one is accepted."]);
    // A time that is not a number is left out.
    let usage = "/console/spans/one%2Ftwo/usages";
    let odd = format!("{usage}/{}/resend?at=%3Cb%3E", usage_id(4));
    for (page, status) in [
        (resend_page(6, 0), 404),
        (resend_page(3, -2), 404),
        ("/console/spans/none/usages/x/resend".to_owned(), 404),
        (odd, 200),
    ] {
        assert_eq!(visit.console.get(&page).await.status, status, "{page}");
    }
    let form = "csrf=x&reason=Mapped+now.";
    let forged = visit.console.ask("POST", &aside, &[], form).await;
    assert_eq!(forged.status, 403);
}
