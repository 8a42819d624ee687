//! The timeline, from a span of minutes to one of months.

use serde_json::json;

use crate::stub::{
    DAY, HOUR, Ledger, MIDNIGHT, MINUTE, SECOND, Shown, sampled, settle, span, suspended, usage,
    usage_id,
};

/// Its start, its late stop, and its usages by hours.
fn late_stop() -> Ledger {
    let (start, stop) = (
        MIDNIGHT + 9 * HOUR + 30 * MINUTE,
        MIDNIGHT + 12 * HOUR + 24 * MINUTE + 9_001,
    );
    let mut usages = sampled(0, start, MIDNIGHT + 14 * HOUR, HOUR);
    usages.extend(sampled(usages.len(), MIDNIGHT + 14 * HOUR, stop, HOUR));
    Ledger::of(span("late", start, Some(stop)), usages)
}

#[tokio::test]
async fn each_usage_of_a_late_stop_is_above_or_below_the_axis_with_its_numbers() {
    let console = late_stop().console();
    let shown = console.page("/console/spans/late", "span-late").await;
    let title = "<title>\u{2212}1\u{a0}h (-3600000 ms), accepted: 2026-11-20T14:00:00.000Z to \
                 2026-11-20T13:00:00.000Z";
    let texts = [
        ("data-test=\"timeline\"", 1),
        ("data-usage=", 7),
        ("class=\"usage forward accepted\"", 5),
        ("class=\"usage backward accepted\"", 2),
        (title, 1),
        (">hour windows<", 1),
        ("data-test=\"ledger-row\"", 7),
    ];
    shown.counts(200, &texts);
    let used = format!("value=\"{}\"", 2 * HOUR + 54 * MINUTE + 9_001);
    assert!(shown.between(PROOF, "</p>").contains(&used));
}

/// What stands before the proof on the page of a span.
const PROOF: &str = "data-test=\"proof\"";

#[tokio::test]
async fn a_ledger_of_then_says_that_the_proof_is_of_now() {
    let console = late_stop().console();
    let told = "The proof is as of now.";
    let then = "/console/spans/late?as_of=2026-11-20T12:00";
    console.get(then).await.counts(200, &[(told, 1)]);
    let now = console.get("/console/spans/late").await;
    now.counts(200, &[(told, 0)]);
}

#[tokio::test]
async fn a_day_of_minutes_is_drawn_in_few_places_and_names_each_usage() {
    let (start, end) = (MIDNIGHT - DAY, MIDNIGHT);
    let usages = sampled(0, start, end, MINUTE);
    assert_eq!(usages.len(), 1_440);
    let ledger = Ledger::of(span("minutes", start, Some(end)), usages);
    let console = ledger.console();
    let shown = console.page("/console/spans/minutes", "span-minutes").await;
    for number in [0, 700, 1_439] {
        let usage = format!("data-usage=\"{}\"", usage_id(number));
        assert_eq!(shown.count(&usage), 1, "{usage}");
    }
    let places = shown.count("<a class=\"usage");
    assert!((40..100).contains(&places), "{places}");
    let windows = ">minute windows, lines each hour<";
    shown.counts(200, &[(windows, 1), ("data-test=\"ledger-row\"", 100)]);
    // Closer, each minute stands for itself.
    let noon = start + 12 * HOUR;
    let path = format!("/console/spans/minutes?from={noon}&to={}", noon + HOUR);
    let shown = console.page(&path, "span-minutes-closer").await;
    let accepted = "class=\"usage forward accepted\"";
    shown.counts(200, &[(accepted, 60), ("data-usage=", 60)]);
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
    let console = Ledger::default().with(span, usages).console();
    let shown = console.page("/console/spans/days", "span-days").await;
    for class in ["skipped", "set_aside", "refused", "counted"] {
        let usage = format!("class=\"usage forward {class}\"");
        assert_eq!(shown.count(&usage), 1, "{class}");
    }
    shown.counts(200, &[(">day windows<", 1), ("<mapping>", 0)]);
}

#[tokio::test]
async fn a_span_without_usages_and_one_of_a_moment_are_drawn() {
    let (moment, second) = (MIDNIGHT, MIDNIGHT + SECOND);
    let brief = sampled(0, MIDNIGHT, second, MINUTE);
    let ever = i64::from(sampler_domain::Timestamp::MAX);
    let ledger = Ledger::of(span("brief", MIDNIGHT, Some(second)), brief)
        .with(span("new", MIDNIGHT + 15 * HOUR, None), Vec::new())
        .with(
            settle(span("moment", moment, Some(moment)), &[]),
            Vec::new(),
        )
        .with(span("ever", 0, Some(ever)), Vec::new());
    let console = ledger.console();
    for id in ["new", "moment", "brief", "ever"] {
        let path = format!("/console/spans/{id}");
        let shown = console.page(&path, &format!("span-{id}")).await;
        shown.counts(
            200,
            &[("data-test=\"timeline\"", 1), ("NaN", 0), ("inf%", 0)],
        );
        assert!(shown.text.len() < 100_000, "{id}: {}", shown.text.len());
    }
}

#[tokio::test]
async fn more_usages_than_are_drawn_are_said_and_can_be_gone_on_with() {
    let (start, end) = (MIDNIGHT - 4 * DAY, MIDNIGHT);
    let usages = sampled(0, start, end, MINUTE);
    let console = Ledger::of(span("many", start, Some(end)), usages).console();
    let shown = console.page("/console/spans/many", "span-many").await;
    // The rows name their usages, as the drawing has too many.
    shown.counts(200, &[("data-test=\"drawn-to\"", 1), ("data-usage=", 100)]);
    assert!(shown.text.len() < 300_000, "{}", shown.text.len());
}

/// "used 0 = billed 0" is true of a span that was never billed, and says nothing about its bill.
#[tokio::test]
async fn a_span_that_waits_has_no_tick_and_says_what_is_not_billed_yet() {
    let usages = sampled(0, MIDNIGHT, MIDNIGHT + 2 * HOUR, HOUR);
    let done = span("done", MIDNIGHT, Some(MIDNIGHT + 2 * HOUR));
    let ledger = Ledger::of(done, usages).with(suspended("never"), Vec::new());
    let console = ledger.console();
    let proof = async |id: &str| {
        let shown = console.page(&format!("/console/spans/{id}"), id).await;
        shown.between(PROOF, "</p>").to_owned()
    };
    let billed = "<b>not billed yet</b> <data class=\"length\" value=\"172800000\"";
    for (id, is_settled) in [("done", true), ("never", false)] {
        let proof = proof(id).await;
        let told = [
            '\u{2713}'.to_string(),
            billed.to_owned(),
            "not billed yet".to_owned(),
        ];
        let told = told.map(|text| proof.contains(&text));
        assert_eq!(told, [is_settled, !is_settled, !is_settled], "{proof}");
    }
}

/// A dispute is about the end of a bill: the ledger begins there, and its pages lead back and forth.
#[tokio::test]
async fn the_ledger_begins_at_its_end_and_leads_in_both_directions() {
    let usages = sampled(0, MIDNIGHT - 5 * DAY, MIDNIGHT, HOUR);
    let ledger = Ledger::of(span("s", MIDNIGHT - 5 * DAY, Some(MIDNIGHT)), usages);
    let console = ledger.console();
    let rows = |shown: &Shown| -> Vec<String> {
        let rows = shown.text.split("data-test=\"ledger-row\" id=\"u-").skip(1);
        rows.map(|row| row.split('"').next().unwrap().to_owned())
            .collect()
    };
    let first = console.page("/console/spans/s", "ledger-end").await;
    assert_eq!(rows(&first).len(), 100);
    assert_eq!(rows(&first)[0], usage_id(119));
    let (previous, next) = ("data-test=\"previous\"", "data-test=\"next\"");
    first.counts(
        200,
        &[
            (previous, 0),
            ("120</data> usages accepted, the last one first", 1),
            // What the upstream has of a usage is a click away.
            ("href=\"https://abacus.example/v1/usage\"", 100),
            // What is billed of a measure stands beside it: 512 MB for five days.
            (">61.440 GB·h</data>", 1),
        ],
    );
    let second = console.get("/console/spans/s?cursor=100").await;
    assert_eq!(rows(&second).last(), Some(&usage_id(0)));
    let back = format!("href=\"/console/spans/s?cursor=0#ledger\" {previous}");
    second.counts(200, &[(&back, 1), (next, 0)]);
    let turned = console.get("/console/spans/s?order=oldest").await;
    assert_eq!(rows(&turned)[0], usage_id(0));
    let file = console.get("/console/spans/s?format=csv").await;
    let lines = file.lines_of_csv();
    assert_eq!(lines.len(), 121);
    for part in [&usage_id(0), "\"3600000\",\"accepted\",\"202\""] {
        assert!(lines[1].contains(part), "{}", lines[1]);
    }
}

#[tokio::test]
async fn a_location_that_a_browser_must_not_open_is_no_link() {
    let mut usages = sampled(0, MIDNIGHT, MIDNIGHT + 3 * HOUR, HOUR);
    usages[0]["location"] = json!("javascript:alert(1)");
    usages[1]["location"] = json!("https://u:p@abacus.example/");
    usages[2]["location"] = json!("/v1/relative");
    let console = Ledger::of(span("s", MIDNIGHT, None), usages).console();
    let shown = console.get("/console/spans/s").await;
    shown.counts(200, &[("data-test=\"document\"", 0)]);
}
