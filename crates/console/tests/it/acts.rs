//! What is suspended, and acts on it: each says in numbers what it will do, and asks why.

use axum::body::Body;
use axum::http::Request;

use crate::stub::{
    Browser, ENDED_CAUSE, HOUR, LARGE_CAUSE, Ledger, MIDNIGHT, Shown, settle, span, suspended,
    usage, usage_id,
};

fn some() -> Ledger {
    let mut ledger = Ledger::default();
    ledger.add(suspended("one/two"), Vec::new());
    ledger.add(suspended("three"), Vec::new());
    ledger
}

/// A page with the cookie and the secret of its session.
struct Visit {
    console: Browser,
    cookie: String,
    csrf: String,
}

impl Visit {
    async fn new(ledger: Ledger, page: &str) -> Self {
        let console = ledger.console();
        let shown = console.get(page).await;
        assert_eq!(shown.status, 200, "{page}: {}", shown.text);
        let csrf = shown.text.split("name=\"csrf\" value=\"").nth(1).unwrap();
        Self {
            csrf: csrf.split('"').next().unwrap().to_owned(),
            cookie: shown
                .header("set-cookie")
                .split(';')
                .next()
                .unwrap()
                .to_owned(),
            console,
        }
    }

    async fn send(&self, page: &str, form: &str) -> Shown {
        let request = Request::post(page)
            .header("host", "127.0.0.1:7070")
            .header("cookie", &self.cookie);
        let form = format!("csrf={}&{form}", self.csrf);
        self.console
            .send(request.body(Body::from(form)).unwrap())
            .await
    }
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
        assert_eq!(
            shown.count(&format!("data-test=\"{hook}\"")),
            count,
            "{hook}"
        );
    }
    for text in [
        "href=\"/console/spans/one%2Ftwo/skip\"",
        "2 days",
        "unprocessable &#60;plan&#62;",
    ] {
        assert!(shown.text.contains(text), "{text}: {}", shown.text);
    }
    // Its id stands in the address as it is.
    let resume = crate::stub::CAUSE;
    assert!(
        resume.contains('-')
            && shown
                .text
                .contains(&format!("/console/suspended/{resume}/resume"))
    );
    // A cause that is gone is asked for all the same: the answer says what there is of it.
    let other = console.get("/console/suspended?cause=c1").await;
    assert_eq!((other.status, other.count("Spans of this cause")), (200, 1));
}

#[tokio::test]
async fn causes_that_are_not_listed_are_those_of_their_resource() {
    let mut ledger = some();
    ledger.causes = (7, 1_240);
    let console = ledger.console();
    let rows = |shown: &Shown| shown.count("data-test=\"cause-row\"");
    let all = console.page("/console/suspended", "suspended-many").await;
    assert_eq!((rows(&all), all.count("data-test=\"folded\"")), (7, 1));
    let of_resource = "/console/suspended?resource_id=postgres";
    let more = format!("href=\"{of_resource}\"><data value=\"1240\">1,240</data> more causes of ");
    assert_eq!(all.count(&more), 1, "{}", all.text);
    // The spans of a cause are shown beside the same causes.
    let shown = console.get(of_resource).await;
    let own = format!("{of_resource}&cause=c-6");
    let link = format!("href=\"{}#spans\"", own.replace('&', "&#38;"));
    assert_eq!(shown.count(&link), 1, "{}", shown.text);
    let own = console.get(&own).await;
    assert_eq!((rows(&own), own.count("data-test=\"span-row\"")), (7, 2));
    assert_eq!(own.count("class=\"chosen\""), 1);
    // A cause that is not listed has its name all the same.
    let other = format!("/console/suspended?cause={LARGE_CAUSE}");
    let other = console.get(&other).await;
    assert_eq!((other.status, other.count("Spans of this cause")), (200, 0));
    assert_eq!(other.count("Spans of 422"), 1);
}

#[tokio::test]
async fn a_cause_is_resumed_after_its_numbers_were_seen() {
    let page = "/console/suspended/c-0/resume";
    let visit = Visit::new(some(), page).await;
    let shown = visit.console.page(page, "suspended-resume").await;
    let effect = "Resume 812 spans, 2 days behind, about 39,000 usages.";
    assert!(shown.text.contains(effect), "{}", shown.text);
    assert_eq!(shown.count("data-test=\"confirm\">Resume 812 spans<"), 1);
    let unexplained = visit.send(page, "reason=+").await;
    assert_eq!(
        (unexplained.status, unexplained.count("must not be blank")),
        (400, 1)
    );
    // A person has sent no JSON.
    let told = (
        unexplained.count("JSON"),
        unexplained.count("<bdi>Why?</bdi>"),
    );
    assert_eq!(told, (0, 1), "{}", unexplained.text);
    assert_eq!(unexplained.count(effect), 1);
    let done = visit.send(page, "reason=Mapped+now.").await;
    let expected = (303, "/console/suspended?cause=c-0");
    assert_eq!((done.status, done.header("location")), expected);
    let gone = visit
        .console
        .get("/console/suspended/c1/resume")
        .await
        .status;
    assert_eq!(gone, 404);
}

/// Also where it is not on the first page of the list.
#[tokio::test]
async fn a_cause_of_more_spans_than_are_counted_is_resumed_with_at_least_their_number() {
    let console = some().console();
    let page_of = |cause: &str| format!("/console/suspended/{cause}/resume");
    let page = page_of(LARGE_CAUSE);
    let shown = console.page(&page, "suspended-resume-large").await;
    let effect = "Resume at least 100,000 spans, 2 days behind, at least 4,800,000 usages.";
    assert!(shown.text.contains(effect), "{}", shown.text);
    assert_eq!(shown.count(">Resume at least 100,000 spans<"), 1);
    let ended = console.get(&page_of(ENDED_CAUSE)).await;
    let told = ended.count("No span is suspended for this cause");
    assert_eq!((ended.status, told > 0), (404, true));
}

#[tokio::test]
async fn a_span_is_resumed_and_its_usage_skipped_as_they_were_seen() {
    for (act, effects, field) in [
        (
            "resume",
            vec!["Resume 1 span, 2 days behind, about 48 usages."],
            String::new(),
        ),
        (
            "skip",
            vec![
                "Skip 1 usage of 1\u{a0}h: ",
                "It is not billed, unless it is sent again later.",
                "Then resume 1 span, 47 hours behind, about 47 usages.",
            ],
            format!("usage_id={}&", usage_id(7)),
        ),
    ] {
        let page = format!("/console/spans/one%2Ftwo/{act}");
        let visit = Visit::new(some(), &page).await;
        let shown = visit.console.page(&page, &format!("span-{act}")).await;
        for effect in &effects {
            assert!(shown.text.contains(effect), "{effect}: {}", shown.text);
        }
        assert_eq!(shown.count("name=\"tag\" value=\"&#34;seen&#34;\""), 1);
        assert_eq!(shown.count(&usage_id(7)), 1);
        let stale = visit
            .send(&page, &format!("{field}tag=%22old%22&reason=Mapped+now."))
            .await;
        assert_eq!((stale.status, stale.count("It has changed")), (412, 1));
        // The reason is not lost, and the tag is that of the span as it is now.
        assert_eq!(stale.count(">Mapped now.</textarea>"), 1);
        assert_eq!(stale.count("value=\"&#34;seen&#34;\""), 1);
        let done = visit
            .send(&page, &format!("{field}tag=%22seen%22&reason=Mapped+now."))
            .await;
        let expected = (303, "/console/spans/one%2Ftwo");
        assert_eq!((done.status, done.header("location")), expected);
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
    // 1,000 characters of four bytes each fit.
    let reason = format!("reason={}", "%F0%9F%98%80".repeat(1_000));
    let refused = visit.send(page, &reason).await;
    assert_eq!(refused.status, 400, "{}", refused.text);
    assert_eq!(
        refused.count(&"\u{1f600}".repeat(1_000)),
        1,
        "it is not lost"
    );
    let reason = format!("reason={}", "x".repeat(40_000));
    let longer = visit.send(page, &reason).await;
    assert_eq!((longer.status, longer.count("Nothing was done")), (413, 1));
}

#[tokio::test]
async fn a_span_that_is_not_suspended_says_so() {
    let mut ledger = Ledger::default();
    ledger.add(span("open", MIDNIGHT, None), Vec::new());
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
    aside["error"] = serde_json::json!("<b>no plan</b>");
    let usages = vec![
        usage(3, MIDNIGHT, MIDNIGHT + HOUR, "accepted"),
        usage(4, MIDNIGHT + HOUR, MIDNIGHT + 2 * HOUR, "skipped"),
        aside,
    ];
    let mut ledger = Ledger::default();
    ledger.add(settle(span("one/two", MIDNIGHT, None), &usages), usages);
    ledger
}

/// The page that sends a usage again.
fn resend_page(number: usize, at: i64) -> String {
    let usage = usage_id(number);
    format!("/console/spans/one%2Ftwo/usages/{usage}/resend?at={at}")
}

#[tokio::test]
async fn a_usage_that_was_given_up_is_sent_again_after_its_numbers_were_seen() {
    let page = resend_page(4, MIDNIGHT + HOUR + HOUR / 2);
    let visit = Visit::new(given_up(), &page).await;
    let ledger = visit
        .console
        .page("/console/spans/one%2Ftwo", "span-given-up");
    let ledger = ledger.await;
    assert_eq!(ledger.count("data-test=\"resend\""), 2, "{}", ledger.text);
    assert!(
        ledger.text.contains(&format!("href=\"{page}\"")),
        "{}",
        ledger.text
    );
    let shown = visit.console.page(&page, "span-resend").await;
    let effect = "Resend 1 usage of 1\u{a0}h: 2026-11-20 01:00:00 to 2026-11-20 02:00:00. \
                  It is billed then.";
    for text in [effect, "It was skipped.", ">Resend 1 usage<"] {
        assert!(shown.text.contains(text), "{text}: {}", shown.text);
    }
    let unexplained = visit.send(&page, "reason=+").await;
    assert_eq!(
        (unexplained.status, unexplained.count("must not be blank")),
        (400, 1)
    );
    let done = visit.send(&page, "reason=Mapped+now.").await;
    let back = format!("/console/spans/one%2Ftwo#u-{}", usage_id(4));
    assert_eq!((done.status, done.header("location")), (303, &*back));
}

#[tokio::test]
async fn a_resend_that_cannot_be_says_why() {
    // It takes back, and was set aside.
    let aside = resend_page(5, MIDNIGHT + HOUR + HOUR / 2);
    let visit = Visit::new(given_up(), &aside).await;
    let shown = visit.console.get(&aside).await;
    for text in [
        "It then takes back what was billed too much.",
        "The upstream has set it aside: &#60;b&#62;no plan&#60;/b&#62;.",
    ] {
        assert!(shown.text.contains(text), "{text}: {}", shown.text);
    }
    // The usage was accepted, or sent again by somebody else meanwhile.
    for number in [3, 5] {
        let page = resend_page(
            number,
            MIDNIGHT + HOUR / 2 + if number == 5 { HOUR } else { 0 },
        );
        let refused = visit.send(&page, "reason=Mapped+now.").await;
        assert_eq!(refused.status, 409, "{}", refused.text);
        assert_eq!(refused.count("The usage cannot be sent again"), 1);
    }
    let accepted = visit
        .console
        .get(&resend_page(3, MIDNIGHT + HOUR / 2))
        .await;
    assert!(
        accepted.text.contains("This one is accepted."),
        "{}",
        accepted.text
    );
    for page in [
        resend_page(6, MIDNIGHT),
        resend_page(3, MIDNIGHT - HOUR),
        "/console/spans/none/usages/x/resend".to_owned(),
    ] {
        assert_eq!(visit.console.get(&page).await.status, 404, "{page}");
    }
    // A time that is not a number is left out.
    let odd = format!(
        "/console/spans/one%2Ftwo/usages/{}/resend?at=%3Cb%3E",
        usage_id(4)
    );
    assert_eq!(visit.console.get(&odd).await.status, 200);
    let forged = Request::post(&aside).body(Body::from("csrf=x&reason=Mapped+now."));
    assert_eq!(visit.console.send(forged.unwrap()).await.status, 403);
}
