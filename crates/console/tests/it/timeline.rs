//! The timeline, from a span of minutes to one of months.

use serde_json::json;

use crate::stub::{
    DAY, HOUR, Ledger, MIDNIGHT, MINUTE, SECOND, Shown, excluded, sampled, span, suspended,
    usage_id, with,
};

/// What stands before the proof on the page of a span.
const PROOF: &str = "data-test=\"proof\"";

#[tokio::test]
async fn each_usage_of_a_late_stop_is_above_or_below_the_axis_with_its_numbers() {
    let start = MIDNIGHT + 9 * HOUR + 30 * MINUTE;
    let stop = MIDNIGHT + 12 * HOUR + 24 * MINUTE + 9_001;
    let mut usages = sampled(0, start, MIDNIGHT + 14 * HOUR, HOUR);
    usages.extend(sampled(5, MIDNIGHT + 14 * HOUR, stop, HOUR));
    let console = Ledger::of(span("late", start, Some(stop)), usages).console();
    let shown = console.get("/console/spans/late").await;
    let title = "<title>\u{2212}1\u{a0}h (-3600000 ms), accepted 202: 2026-11-20T13:00:00.000Z \
                 \u{2013} 2026-11-20T14:00:00.000Z</title>";
    let texts = [
        ("data-test=\"timeline\"", 1),
        ("data-usage=", 7),
        ("class=\"usage forward accepted\"", 5),
        ("class=\"usage backward accepted\"", 2),
        (title, 1),
        ("data-test=\"ledger-row\"", 7),
        // A label has room for all of it, or is left out: the last one has 35 minutes.
        (">1\u{a0}h \u{25b8}</text>", 4),
        ("class=\"bar-label\"", 6),
    ];
    shown.counts(200, &texts);
    let used = format!("value=\"{}\"", 2 * HOUR + 54 * MINUTE + 9_001);
    assert!(shown.between(PROOF, "</p>").contains(&used));
}

#[tokio::test]
async fn a_day_of_minutes_is_drawn_in_few_places_and_leads_to_a_closer_view() {
    let (start, end) = (MIDNIGHT - DAY, MIDNIGHT);
    let usages = sampled(0, start, end, MINUTE);
    assert_eq!(usages.len(), 1_440);
    let console = Ledger::of(span("minutes", start, Some(end)), usages).console();
    let shown = console.get("/console/spans/minutes").await;
    let places = shown.count("<a class=\"usage");
    assert!((60..100).contains(&places), "{places}");
    let rows = "data-test=\"ledger-row\"";
    shown.counts(200, &[("data-usage=", 0), (rows, 100)]);
    shown.shows(&["15\u{a0}min (900000 ms), 15 usages", "href=\"?from="]);
    // Closer, each minute stands for itself.
    let noon = start + 12 * HOUR;
    let path = format!("/console/spans/minutes?from={noon}&to={}", noon + HOUR);
    let shown = console.get(&path).await;
    let accepted = "class=\"usage forward accepted\"";
    let texts = [(accepted, 60), ("data-usage=", 60), (">whole span<", 1)];
    shown.counts(200, &texts);
}

/// Also where all of them are taken back, and their lengths differ.
#[tokio::test]
async fn there_are_never_more_than_200_bars() {
    for window in [SECOND, MINUTE, 17 * MINUTE, HOUR] {
        let (start, end) = (MIDNIGHT - 50 * window, MIDNIGHT + 700 * window + window / 3);
        let mut usages = sampled(0, start, end, window);
        usages.extend(sampled(usages.len(), end, start, 7 * window));
        let ledger = Ledger::of(span("s", start, Some(start)), usages);
        let shown = ledger.console().get("/console/spans/s").await;
        let bars = shown.count("<a class=\"usage");
        assert!((120..=200).contains(&bars), "{bars}");
    }
}

#[tokio::test]
async fn two_months_of_days_with_all_that_can_become_of_them() {
    let (start, end) = (MIDNIGHT - 58 * DAY - 7 * HOUR, MIDNIGHT - 2 * DAY);
    let mut usages = sampled(0, start, end, DAY);
    let [first, second] = [20, 30].map(|place| usages[place].interval.start.as_millis());
    usages.retain(|usage| ![first, second].contains(&usage.interval.start.as_millis()));
    let error = "unprocessable: no <mapping> for the plan";
    let skipped = json!({ "unanswered": true, "error": error });
    let span = with(
        span("days", start, None),
        json!({
            "state": "suspended", "sampled_to": end,
            "planned": { "start": end, "end": end + DAY, "usage_id": usage_id(99) },
            "delivery": { "attempts": 3, "last_error": { "at": MIDNIGHT, "status": 422, "error": error } },
            // Of the second, nothing is left: a late stop has taken all of it back.
            "excluded": [
                with(excluded(first, first + DAY), skipped),
                with(excluded(end - DAY, end), json!({ "back_to": end - DAY })),
            ],
            "again": [excluded(second, second + DAY)],
            "proof": { "skipped": 2 * DAY, "unanswered": DAY },
        }),
    );
    let console = Ledger::default().with(span, usages).console();
    let shown = console.get("/console/spans/days").await;
    for (text, count) in [
        ("class=\"usage forward skipped\"", 1),
        ("class=\"usage forward again\"", 1),
        ("class=\"usage forward refused\"", 1),
        ("data-test=\"resume\"", 1),
        ("data-test=\"skip\"", 1),
        ("data-test=\"resend\"", 2),
        ("data-test=\"excluded-row\"", 3),
        ("data-test=\"unanswered\"", 1),
        ("<mapping>", 0),
        (">a post had no answer<", 1),
        (">taken back to 2026-", 1),
    ] {
        shown.counts(200, &[(text, count)]);
    }
}

#[tokio::test]
async fn a_span_without_usages_one_of_a_moment_and_one_of_all_time_are_drawn() {
    let second = MIDNIGHT + SECOND;
    let brief = sampled(0, MIDNIGHT, second, MINUTE);
    let ever = i64::from(sampler_domain::Timestamp::MAX);
    let ledger = Ledger::of(span("brief", MIDNIGHT, Some(second)), brief)
        .with(span("new", MIDNIGHT + 15 * HOUR, None), Vec::new())
        .with(span("moment", MIDNIGHT, Some(MIDNIGHT)), Vec::new())
        .with(span("ever", 0, Some(ever)), Vec::new());
    let console = ledger.console();
    for id in ["new", "moment", "brief", "ever"] {
        let path = format!("/console/spans/{id}");
        let shown = console.get(&path).await;
        let drawn = "data-test=\"timeline\"";
        shown.counts(200, &[(drawn, 1), ("NaN", 0), ("inf%", 0)]);
        assert!(shown.text.len() < 100_000, "{id}: {}", shown.text.len());
    }
}

#[tokio::test]
async fn more_usages_than_are_drawn_are_said_and_can_be_gone_on_with() {
    let (start, end) = (MIDNIGHT - 4 * DAY, MIDNIGHT);
    let usages = sampled(0, start, end, MINUTE);
    let console = Ledger::of(span("many", start, Some(end)), usages).console();
    let shown = console.get("/console/spans/many").await;
    shown.counts(200, &[("data-test=\"drawn-to\"", 1), ("data-usage=", 0)]);
    assert!(shown.text.len() < 300_000, "{}", shown.text.len());
}

/// "used 0 = billed 0" is true of a span that was never billed, and says nothing about its bill. A ledger that
/// says something else is told, but where a post had no answer.
#[tokio::test]
async fn the_proof_has_a_tick_where_all_is_billed_and_a_cross_where_the_ledger_differs() {
    let usages = sampled(0, MIDNIGHT, MIDNIGHT + 2 * HOUR, HOUR);
    let mut ledger = Ledger::default().with(suspended("never"), Vec::new());
    for (id, difference, unanswered) in
        [("done", 0, 0), ("broken", HOUR, 0), ("unsure", HOUR, HOUR)]
    {
        let done = span(id, MIDNIGHT, Some(MIDNIGHT + 2 * HOUR));
        let Ledger { spans, .. } = Ledger::of(done, usages.clone());
        let proof = json!({ "proof": { "difference": difference, "unanswered": unanswered } });
        for (span, usages) in spans.into_values() {
            ledger = ledger.with(with(span, proof.clone()), usages);
        }
    }
    let console = ledger.console();
    let open = "not billed yet <data class=\"length\" value=\"172800000\"";
    for (id, has_tick, has_cross, is_open) in [
        ("done", true, false, false),
        ("never", false, false, true),
        ("broken", false, true, false),
        ("unsure", false, false, false),
    ] {
        let shown = console.get(&format!("/console/spans/{id}")).await;
        let proof = shown.between(PROOF, "</p>");
        let told =
            ["\u{2713}", "\u{2717}", open, "not billed yet"].map(|text| proof.contains(text));
        assert_eq!(told, [has_tick, has_cross, is_open, is_open], "{proof}");
        shown.counts(200, &[("class=\"proof broken\"", usize::from(has_cross))]);
    }
}

/// A dispute is about the end of a bill: the ledger begins there.
#[tokio::test]
async fn the_ledger_begins_at_its_end_and_can_be_turned() {
    let usages = sampled(0, MIDNIGHT - 5 * DAY, MIDNIGHT, HOUR);
    let ledger = Ledger::of(span("s", MIDNIGHT - 5 * DAY, Some(MIDNIGHT)), usages);
    let console = ledger.console();
    let rows = |shown: &Shown| -> Vec<String> {
        let rows = shown.text.split("data-test=\"ledger-row\" id=\"u-").skip(1);
        rows.map(|row| row.split('"').next().unwrap().to_owned())
            .collect()
    };
    let first = console.get("/console/spans/s").await;
    let shown = rows(&first);
    assert_eq!((shown.len(), &shown[0]), (100, &usage_id(119)));
    let texts = [
        ("href=\"?cursor=100#ledger\"", 1),
        ("href=\"?order=oldest#ledger\"", 1),
        ("120 accepted usages", 1),
        // What the upstream has of a usage is a click away.
        ("href=\"https://abacus.example/v1/usage\"", 100),
        // What is billed of a measure stands beside it: 512 MB for five days.
        ("<span class=\"faint\">billed 61.440 GB·h</span>", 1),
    ];
    first.counts(200, &texts);
    let second = console.get("/console/spans/s?cursor=100").await;
    assert_eq!(rows(&second).last(), Some(&usage_id(0)));
    second.counts(200, &[("data-test=\"next\"", 0)]);
    let turned = console.get("/console/spans/s?order=oldest").await;
    assert_eq!(rows(&turned)[0], usage_id(0));
    turned.counts(200, &[("href=\"?#ledger\"", 1)]);
    let file = console.get("/console/spans/s?format=csv").await;
    let lines = file.lines_of_csv();
    let head =
        "\"usage\",\"start\",\"end\",\"duration_ms\",\"status\",\"accepted_at\",\"location\"";
    let row = format!(
        "\"{}\",\"2026-11-15T00:00:00.000Z\",\"2026-11-15T01:00:00.000Z\",\"3600000\",\"202\",\
         \"2026-11-15T01:00:00.064Z\",\"https://abacus.example/v1/usage\"",
        usage_id(0)
    );
    assert_eq!((lines.len(), lines[0], lines[1]), (121, head, row.as_str()));
}

#[tokio::test]
async fn a_location_that_a_browser_must_not_open_is_no_link() {
    let locations = [
        "javascript:alert(1)",
        "https://u:p@abacus.example/",
        "/v1/relative",
    ];
    let usages = sampled(0, MIDNIGHT, MIDNIGHT + 3 * HOUR, HOUR).into_iter();
    let usages = usages.zip(locations);
    let usages = usages.map(|(usage, location)| with(usage, json!({ "location": location })));
    let console = Ledger::of(span("s", MIDNIGHT, None), usages.collect()).console();
    let shown = console.get("/console/spans/s").await;
    shown.counts(200, &[("data-test=\"document\"", 0)]);
}
