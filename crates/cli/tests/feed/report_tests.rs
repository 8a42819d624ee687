use sampler_verify::Target;
use serde_json::json;

use super::super::state::{Change, Phase};
use super::*;
use crate::event::Event;

#[test]
fn the_lag_is_that_of_the_list_that_is_behind() {
    let report = Report::default();
    report.has_read(Record::Apps, 90_000);
    report.has_read(Record::Services, 40_000);
    assert_eq!(report.lag_seconds(100_999), 60);
    assert_eq!(report.lag_seconds(39_000), 0);
    report.has_read(Record::Services, 95_000);
    assert_eq!(report.lag_seconds(100_999), 10);
}

/// The text of metrics is that of Prometheus, whatever the platform names.
#[test]
fn what_follows_is_counted_by_the_names_of_the_platform() {
    let of = |state: Option<&str>, kind: &'static str| {
        let event = Event::new(kind, Target::default(), 0);
        Change {
            state: state.map(str::to_owned),
            ..Change::posting("i".to_owned(), event, Phase::Ended(0), Vec::new())
        }
    };
    let ignored = Change {
        state: Some("a\"b\\c\nd".to_owned()),
        ..Change::default()
    };
    let changes = vec![
        of(Some("STARTED"), "start"),
        of(None, "stop"),
        ignored,
        Change::default(),
    ];
    let report = Report::default();
    let step = Step {
        record: Record::Apps,
        cursor: None,
        changes,
    };
    report.count(&step, &Refused::new());
    report.has_read(Record::Apps, 1_000);
    let text = report.metrics(5_000);
    let values: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(
        values,
        [
            "sampler_feed_events_total{kind=\"STARTED\",outcome=\"started\"} 1",
            "sampler_feed_events_total{kind=\"a\\\"b\\\\c\u{fffd}d\",outcome=\"ignored\"} 1",
            "sampler_feed_events_total{kind=\"snapshot\",outcome=\"stopped\"} 1",
            "sampler_feed_lag_seconds 4",
        ]
    );
    let document = report.document(&[]);
    assert_eq!(
        (&document["read"], &document["stopped"]),
        (&json!(2), &json!(0))
    );
}
