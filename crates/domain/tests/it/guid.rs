//! The id of a usage stands for one interval of one span, and for nothing else.

use std::collections::HashSet;

use sampler_domain::{Interval, Span, SpanId, usage_guid};

use crate::support::{id, moment, span};

fn interval(start: i64, end: i64) -> Interval {
    Interval {
        start: moment(start),
        end: moment(end),
    }
}

#[test]
fn a_guid_is_made_from_what_it_stands_for() {
    let span = span(moment(1_000));
    let mut restored = span.clone();
    restored.id = SpanId::Text("another document".into());
    restored.processing.version = 9;
    let guid = usage_guid(&span, interval(1_000, 2_000));
    assert_eq!(guid, usage_guid(&restored, interval(1_000, 2_000)));
    // Written down, because a release that made other ids would bill retries twice.
    assert_eq!(guid, "9103cac1-de0e-549e-899c-81879b837297");
}

#[test]
fn anything_different_gives_another_guid() {
    let base = span(moment(1_000));
    let changed = |change: fn(&mut Span)| {
        let mut span = base.clone();
        change(&mut span);
        span
    };
    let spans = [
        base.clone(),
        changed(|span| span.target.organization_id = id("organizations")),
        changed(|span| span.target.space_id = id("x")),
        changed(|span| span.target.consumer_id = id("x")),
        changed(|span| span.target.resource_id = id("x")),
        changed(|span| span.target.plan_id = id("x")),
        changed(|span| span.target.resource_instance_id = id("x")),
        changed(|span| {
            span.target.organization_id = id("organizations");
            span.target.space_id = id("pace");
        }),
        changed(|span| span.start = moment(999)),
        changed(|span| span.start_id = Some(id("another"))),
        changed(|span| span.start_id = None),
        changed(|span| {
            span.start_id = None;
            span.id = SpanId::new(moment(1_000), 8);
        }),
        changed(|span| {
            span.start_id = None;
            span.id = SpanId::Text(span.id.to_string());
        }),
    ];
    let intervals = [
        interval(1_000, 2_000),
        interval(2_000, 1_000),
        interval(1_000, 2_001),
        interval(999, 2_000),
    ];
    let guids: HashSet<String> = spans
        .iter()
        .flat_map(|span| intervals.map(|interval| usage_guid(span, interval)))
        .collect();
    assert_eq!(guids.len(), spans.len() * intervals.len());
}
