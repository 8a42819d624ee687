//! The timeline, from a span of minutes to one of months.

use serde_json::json;

use crate::stub::{
    DAY, HOUR, Ledger, MIDNIGHT, MINUTE, SECOND, sampled, settle, span, usage, usage_id,
};

/// Its start, its late stop, and its usages by hours.
fn late_stop() -> Ledger {
    let (start, stop) = (
        MIDNIGHT + 9 * HOUR + 30 * MINUTE,
        MIDNIGHT + 12 * HOUR + 24 * MINUTE + 9_001,
    );
    let mut usages = sampled(0, start, MIDNIGHT + 14 * HOUR, HOUR);
    usages.extend(sampled(usages.len(), MIDNIGHT + 14 * HOUR, stop, HOUR));
    let mut ledger = Ledger::default();
    ledger.add(settle(span("late", start, Some(stop)), &usages), usages);
    ledger
}

#[tokio::test]
async fn each_usage_of_a_late_stop_is_above_or_below_the_axis_with_its_numbers() {
    let shown = late_stop()
        .console()
        .page("/console/spans/late", "span-late")
        .await;
    assert_eq!(shown.count("data-test=\"timeline\""), 1);
    assert_eq!(shown.count("data-usage="), 7);
    assert_eq!(shown.count("class=\"usage forward accepted\""), 5);
    assert_eq!(shown.count("class=\"usage backward accepted\""), 2);
    let title = "<title>\u{2212}1\u{a0}h (-3600000 ms), accepted: 2026-11-20T14:00:00.000Z to \
                 2026-11-20T13:00:00.000Z";
    assert_eq!(shown.count(title), 1, "{}", shown.text);
    assert_eq!(shown.count(">hour windows<"), 1);
    assert_eq!(shown.count("data-test=\"ledger-row\""), 7);
    let proof = shown.text.split("data-test=\"proof\"").nth(1).unwrap();
    let used = 2 * HOUR + 54 * MINUTE + 9_001;
    assert!(
        proof
            .split("</p>")
            .next()
            .unwrap()
            .contains(&format!("value=\"{used}\""))
    );
}

#[tokio::test]
async fn a_ledger_of_then_says_that_the_proof_is_of_now() {
    let console = late_stop().console();
    let told = "The proof is as of now.";
    let shown = console
        .get("/console/spans/late?as_of=2026-11-20T12:00")
        .await;
    assert_eq!(shown.count(told), 1, "{}", shown.text);
    assert_eq!(console.get("/console/spans/late").await.count(told), 0);
}

#[tokio::test]
async fn a_day_of_minutes_is_drawn_in_few_places_and_names_each_usage() {
    let (start, end) = (MIDNIGHT - DAY, MIDNIGHT);
    let usages = sampled(0, start, end, MINUTE);
    assert_eq!(usages.len(), 1_440);
    let mut ledger = Ledger::default();
    ledger.add(settle(span("minutes", start, Some(end)), &usages), usages);
    let console = ledger.console();
    let shown = console.page("/console/spans/minutes", "span-minutes").await;
    for number in [0, 700, 1_439] {
        assert_eq!(
            shown.count(&format!("data-usage=\"{}\"", usage_id(number))),
            1
        );
    }
    let places = shown.count("<a class=\"usage");
    assert!((40..100).contains(&places), "{places}");
    assert_eq!(shown.count(">minute windows, lines each hour<"), 1);
    assert_eq!(shown.count("data-test=\"ledger-row\""), 100);
    // Closer, each minute stands for itself.
    let noon = start + 12 * HOUR;
    let path = format!("/console/spans/minutes?from={noon}&to={}", noon + HOUR);
    let shown = console.page(&path, "span-minutes-closer").await;
    assert_eq!(shown.count("class=\"usage forward accepted\""), 60);
    assert_eq!(shown.count("data-usage="), 60);
}

#[tokio::test]
async fn two_months_of_days_with_all_that_can_become_of_a_usage() {
    let (start, end) = (MIDNIGHT - 58 * DAY - 7 * HOUR, MIDNIGHT - 2 * DAY);
    let mut usages = sampled(0, start, end, DAY);
    usages[20]["state"] = json!("skipped");
    usages[21]["state"] = json!("set_aside");
    usages[21]["error"] = json!("uncounted");
    usages[30]["state"] = json!("counted");
    let last = usages.len();
    usages.push(usage(last, end, end + DAY, "refused"));
    usages[last]["status"] = json!(422);
    usages[last]["error"] = json!("unprocessable: no <mapping> for the plan");
    let mut span = settle(span("days", start, None), &usages);
    span["state"] = json!("suspended");
    span["planned"] = json!({ "start": end, "end": end + DAY, "usage_id": usage_id(last) });
    span["delivery"] = json!({ "attempts": 3, "unanswered": false, "last_error": {
        "at": MIDNIGHT, "status": 422, "error": "unprocessable: no <mapping> for the plan" } });
    let mut ledger = Ledger::default();
    ledger.add(span, usages);
    let shown = ledger
        .console()
        .page("/console/spans/days", "span-days")
        .await;
    for (class, count) in [
        ("skipped", 1),
        ("set_aside", 1),
        ("refused", 1),
        ("counted", 1),
    ] {
        assert_eq!(
            shown.count(&format!("class=\"usage forward {class}\"")),
            count,
            "{class}"
        );
    }
    assert_eq!(shown.count(">day windows<"), 1);
    assert!(!shown.text.contains("<mapping>"));
}

#[tokio::test]
async fn a_span_without_usages_and_one_of_a_moment_are_drawn() {
    let mut ledger = Ledger::default();
    ledger.add(span("new", MIDNIGHT + 15 * HOUR, None), Vec::new());
    let moment = span("moment", MIDNIGHT, Some(MIDNIGHT));
    ledger.add(settle(moment, &[]), Vec::new());
    let brief = sampled(0, MIDNIGHT, MIDNIGHT + SECOND, MINUTE);
    ledger.add(
        settle(span("brief", MIDNIGHT, Some(MIDNIGHT + SECOND)), &brief),
        brief,
    );
    let end = i64::from(sampler_domain::Timestamp::MAX);
    ledger.add(span("ever", 0, Some(end)), Vec::new());
    let console = ledger.console();
    for id in ["new", "moment", "brief", "ever"] {
        let shown = console
            .page(&format!("/console/spans/{id}"), &format!("span-{id}"))
            .await;
        assert_eq!(shown.count("data-test=\"timeline\""), 1, "{id}");
        assert!(
            !shown.text.contains("NaN") && !shown.text.contains("inf%"),
            "{id}"
        );
        assert!(shown.text.len() < 100_000, "{id}: {}", shown.text.len());
    }
}

#[tokio::test]
async fn more_usages_than_are_drawn_are_said_and_can_be_gone_on_with() {
    let (start, end) = (MIDNIGHT - 4 * DAY, MIDNIGHT);
    let usages = sampled(0, start, end, MINUTE);
    let mut ledger = Ledger::default();
    ledger.add(settle(span("many", start, Some(end)), &usages), usages);
    let shown = ledger
        .console()
        .page("/console/spans/many", "span-many")
        .await;
    assert_eq!(shown.count("data-test=\"drawn-to\""), 1);
    // The rows name their usages, as the drawing has too many.
    assert_eq!(shown.count("data-usage="), 100);
    assert!(shown.text.len() < 300_000, "{}", shown.text.len());
}

/// "used 0 = billed 0" is true of a span that was never billed, and says nothing about its bill.
#[tokio::test]
async fn a_span_that_waits_has_no_tick_and_says_what_is_not_billed_yet() {
    let mut ledger = Ledger::default();
    let usages = sampled(0, MIDNIGHT, MIDNIGHT + 2 * HOUR, HOUR);
    let done = span("done", MIDNIGHT, Some(MIDNIGHT + 2 * HOUR));
    ledger.add(settle(done, &usages), usages);
    ledger.add(crate::stub::suspended("never"), Vec::new());
    let console = ledger.console();
    let proof = async |id: &str| {
        let shown = console.page(&format!("/console/spans/{id}"), id).await;
        let proof = shown.text.split("data-test=\"proof\"").nth(1).unwrap();
        proof.split("</p>").next().unwrap().to_owned()
    };
    let settled = proof("done").await;
    assert!(
        settled.contains('\u{2713}') && !settled.contains("not billed yet"),
        "{settled}"
    );
    let waits = proof("never").await;
    assert!(!waits.contains('\u{2713}'), "{waits}");
    assert!(
        waits.contains("<b>not billed yet</b> <data class=\"length\" value=\"172800000\""),
        "{waits}"
    );
}

/// A dispute is about the end of a bill: the ledger begins there, and its pages lead back and forth.
#[tokio::test]
async fn the_ledger_begins_at_its_end_and_leads_in_both_directions() {
    let usages = sampled(0, MIDNIGHT - 5 * DAY, MIDNIGHT, HOUR);
    let mut ledger = Ledger::default();
    ledger.add(
        settle(span("s", MIDNIGHT - 5 * DAY, Some(MIDNIGHT)), &usages),
        usages,
    );
    let console = ledger.console();
    let rows = |shown: &crate::stub::Shown| -> Vec<String> {
        let rows = shown.text.split("data-test=\"ledger-row\" id=\"u-").skip(1);
        rows.map(|row| row.split('"').next().unwrap().to_owned())
            .collect()
    };
    let first = console.page("/console/spans/s", "ledger-end").await;
    assert_eq!(rows(&first).len(), 100);
    assert_eq!(rows(&first)[0], usage_id(119));
    assert_eq!(first.count("data-test=\"previous\""), 0);
    assert_eq!(
        first.count("120</data> usages accepted, the last one first"),
        1
    );
    let second = console.get("/console/spans/s?cursor=100").await;
    assert_eq!(rows(&second).last(), Some(&usage_id(0)));
    assert_eq!(
        second.count("href=\"/console/spans/s?cursor=0#ledger\" data-test=\"previous\""),
        1
    );
    assert_eq!(second.count("data-test=\"next\""), 0);
    let turned = console.get("/console/spans/s?order=oldest").await;
    assert_eq!(rows(&turned)[0], usage_id(0));
    // What the upstream has of a usage is a click away.
    assert_eq!(first.count("href=\"https://abacus.example/v1/usage\""), 100);
    // What is billed of a measure stands beside it: 512 MB for five days.
    assert_eq!(first.count(">61.440 GB·h</data>"), 1, "{}", first.text);
    let file = console.get("/console/spans/s?format=csv").await;
    let lines: Vec<&str> = file.text.lines().collect();
    assert_eq!(
        (lines.len(), file.header("content-type")),
        (121, "text/csv; charset=utf-8")
    );
    assert!(
        lines[1].contains(&usage_id(0)) && lines[1].contains("\"3600000\",\"accepted\",\"202\""),
        "{}",
        lines[1]
    );
}

#[tokio::test]
async fn a_location_that_a_browser_must_not_open_is_no_link() {
    let mut ledger = Ledger::default();
    let mut usages = sampled(0, MIDNIGHT, MIDNIGHT + 3 * HOUR, HOUR);
    usages[0]["location"] = json!("javascript:alert(1)");
    usages[1]["location"] = json!("https://u:p@abacus.example/");
    usages[2]["location"] = json!("/v1/relative");
    ledger.add(settle(span("s", MIDNIGHT, None), &usages), usages);
    let shown = ledger.console().get("/console/spans/s").await;
    assert_eq!(shown.count("data-test=\"document\""), 0, "{}", shown.text);
}
