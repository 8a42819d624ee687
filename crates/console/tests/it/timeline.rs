//! The timeline, from a span of minutes to one of months.

use sampler_api::{LastError, Plan};

use crate::stub::{
    DAY, HOUR, Ledger, MIDNIGHT, MINUTE, SECOND, Shown, at, excluded, sampled, span, suspended,
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
    let title = "<title>\u{2212}1\u{a0}h (-3600000 ms), accepted 202: 2026-11-20T13:00:00.000Z \
                 \u{2013} 2026-11-20T14:00:00.000Z</title>";
    let texts = [
        ("data-test=\"timeline\"", 1),
        ("data-usage=", 7),
        ("class=\"usage forward accepted\"", 5),
        ("class=\"usage backward accepted\"", 2),
        (title, 1),
        ("data-test=\"ledger-row\"", 7),
    ];
    shown.counts(200, &texts);
    let used = format!("value=\"{}\"", 2 * HOUR + 54 * MINUTE + 9_001);
    assert!(shown.between(PROOF, "</p>").contains(&used));
}

/// What stands before the proof on the page of a span.
const PROOF: &str = "data-test=\"proof\"";

#[tokio::test]
async fn a_day_of_minutes_is_drawn_in_few_places_and_leads_to_a_closer_view() {
    let (start, end) = (MIDNIGHT - DAY, MIDNIGHT);
    let usages = sampled(0, start, end, MINUTE);
    assert_eq!(usages.len(), 1_440);
    let ledger = Ledger::of(span("minutes", start, Some(end)), usages);
    let console = ledger.console();
    let shown = console.page("/console/spans/minutes", "span-minutes").await;
    let places = shown.count("<a class=\"usage");
    assert!((60..100).contains(&places), "{places}");
    shown.counts(
        200,
        &[("data-usage=", 0), ("data-test=\"ledger-row\"", 100)],
    );
    shown.shows(&["15\u{a0}min (900000 ms), 15 usages", "href=\"?from="]);
    // Closer, each minute stands for itself.
    let noon = start + 12 * HOUR;
    let path = format!("/console/spans/minutes?from={noon}&to={}", noon + HOUR);
    let shown = console.page(&path, "span-minutes-closer").await;
    let accepted = "class=\"usage forward accepted\"";
    shown.counts(
        200,
        &[(accepted, 60), ("data-usage=", 60), (">whole span<", 1)],
    );
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
    usages.retain(|usage| {
        let start = usage.interval.start.as_millis();
        start != first && start != second
    });
    let error = "unprocessable: no <mapping> for the plan";
    let mut span = span("days", start, None);
    (span.state, span.sampled_to) = ("suspended".to_owned(), at(end));
    span.planned = Some(Plan {
        start: at(end),
        end: at(end + DAY),
        usage_id: usage_id(99),
    });
    span.delivery.attempts = 3;
    span.delivery.last_error = Some(LastError {
        at: at(MIDNIGHT),
        status: Some(422),
        error: error.to_owned(),
    });
    // Of the second, nothing is left: a late stop has taken all of it back.
    let gone = sampler_api::Excluded {
        back_to: Some(at(end - DAY)),
        ..excluded(end - DAY, end)
    };
    let skipped = sampler_api::Excluded {
        unanswered: true,
        error: Some(error.to_owned()),
        ..excluded(first, first + DAY)
    };
    span.excluded = vec![skipped, gone];
    span.again = vec![excluded(second, second + DAY)];
    (span.proof.skipped, span.proof.unanswered) = (2 * DAY, DAY);
    let console = Ledger::default().with(span, usages).console();
    let shown = console.page("/console/spans/days", "span-days").await;
    for class in ["skipped", "again", "refused"] {
        let usage = format!("class=\"usage forward {class}\"");
        assert_eq!(shown.count(&usage), 1, "{class}");
    }
    for (hook, count) in [
        ("resume", 1),
        ("skip", 1),
        ("resend", 2),
        ("excluded-row", 3),
        ("unanswered", 1),
    ] {
        let hook = format!("data-test=\"{hook}\"");
        shown.counts(200, &[(&hook, count), ("<mapping>", 0)]);
    }
    shown.counts(
        200,
        &[(">a post had no answer<", 1), (">taken back to 2026-", 1)],
    );
}

/// A ledger that says something else is told, but where a post had no answer.
#[tokio::test]
async fn a_ledger_that_differs_is_told() {
    let usages = sampled(0, MIDNIGHT, MIDNIGHT + 2 * HOUR, HOUR);
    let ledger = |unanswered: i64| {
        let done = span("s", MIDNIGHT, Some(MIDNIGHT + 2 * HOUR));
        let mut ledger = Ledger::of(done, usages.clone());
        let (span, _) = ledger.spans.get_mut("s").unwrap();
        (span.proof.difference, span.proof.unanswered) = (Some(HOUR), unanswered);
        ledger
    };
    for (unanswered, is_broken) in [(0, true), (HOUR, false)] {
        let shown = ledger(unanswered).console().get("/console/spans/s").await;
        let broken = usize::from(is_broken);
        shown.counts(
            200,
            &[("class=\"proof broken\"", broken), ("\u{2717}", broken)],
        );
    }
}

#[tokio::test]
async fn a_span_without_usages_and_one_of_a_moment_are_drawn() {
    let (moment, second) = (MIDNIGHT, MIDNIGHT + SECOND);
    let brief = sampled(0, MIDNIGHT, second, MINUTE);
    let ever = i64::from(sampler_domain::Timestamp::MAX);
    let ledger = Ledger::of(span("brief", MIDNIGHT, Some(second)), brief)
        .with(span("new", MIDNIGHT + 15 * HOUR, None), Vec::new())
        .with(span("moment", moment, Some(moment)), Vec::new())
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
    shown.counts(200, &[("data-test=\"drawn-to\"", 1), ("data-usage=", 0)]);
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
    let billed = "not billed yet <data class=\"length\" value=\"172800000\"";
    for (id, is_settled) in [("done", true), ("never", false)] {
        let proof = proof(id).await;
        let told = ["\u{2713}", billed, "not billed yet"].map(|text| proof.contains(text));
        assert_eq!(told, [is_settled, !is_settled, !is_settled], "{proof}");
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
    let first = console.page("/console/spans/s", "ledger-end").await;
    assert_eq!(
        (rows(&first).len(), &rows(&first)[0]),
        (100, &usage_id(119))
    );
    first.counts(
        200,
        &[
            ("href=\"?cursor=100#ledger\"", 1),
            ("120 accepted usages", 1),
            // What the upstream has of a usage is a click away.
            ("href=\"https://abacus.example/v1/usage\"", 100),
            // What is billed of a measure stands beside it: 512 MB for five days.
            ("<span class=\"faint\">billed 61.440 GB·h</span>", 1),
        ],
    );
    let second = console.get("/console/spans/s?cursor=100").await;
    assert_eq!(rows(&second).last(), Some(&usage_id(0)));
    second.counts(200, &[("data-test=\"next\"", 0)]);
    let turned = console.get("/console/spans/s?order=oldest").await;
    assert_eq!(rows(&turned)[0], usage_id(0));
    let file = console.get("/console/spans/s?format=csv").await;
    let lines = file.lines_of_csv();
    assert_eq!(lines.len(), 121);
    for part in [&usage_id(0), "\"3600000\",\"202\""] {
        assert!(lines[1].contains(part), "{}", lines[1]);
    }
}

#[tokio::test]
async fn a_location_that_a_browser_must_not_open_is_no_link() {
    let mut usages = sampled(0, MIDNIGHT, MIDNIGHT + 3 * HOUR, HOUR);
    usages[0].location = Some("javascript:alert(1)".to_owned());
    usages[1].location = Some("https://u:p@abacus.example/".to_owned());
    usages[2].location = Some("/v1/relative".to_owned());
    let console = Ledger::of(span("s", MIDNIGHT, None), usages).console();
    let shown = console.get("/console/spans/s").await;
    shown.counts(200, &[("data-test=\"document\"", 0)]);
}
