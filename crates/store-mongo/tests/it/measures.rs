//! What is read of the measures of spans that decide about events.

use bson::{Bson, doc};
use sampler_domain::{Field, Measure, Measures, Quantity, Refusal};
use sampler_store::{Events, NewSpan, SpansBy, StartOutcome};
use sampler_store_testing::support::{at, id, measures, must_stop, new_span, start_event, target};
use serde_json::{Value, json};

use crate::support::store_and_spans;

fn with(name: &str, quantity: Value) -> Measures {
    let quantity = Quantity::new(quantity).unwrap();
    Measures::new(vec![Measure::new(name, quantity).unwrap()]).unwrap()
}

fn new(instance: &str, measures: &Measures) -> NewSpan {
    let mut new = new_span(start_event(Some("a"), instance, 0));
    new.span.measures = measures.clone();
    new
}

/// On one thread, all of them share one command: what is read for the largest is not read for the others.
#[tokio::test]
async fn measures_are_compared_however_much_larger_the_kept_ones_are() {
    let (store, spans) = store_and_spans("compared").await;
    let large = with("m", json!("x".repeat(490_000)));
    let integers = with("m", json!(vec![1; 1_000]));
    let none = Measures::default();
    for (instance, kept) in [
        ("large", &large),
        ("other", &large),
        ("none", &none),
        ("usual", &measures()),
        ("integers", &integers),
    ] {
        let started = store.start(new(instance, kept)).await;
        assert_eq!(started.unwrap(), StartOutcome::Opened);
    }
    for (number, kept) in [Bson::Double(1.0), Bson::Int32(1)].into_iter().enumerate() {
        let quantity = vec![kept; 1_000];
        let set = doc! { "$set": { "measured_usage.0.quantity": quantity, "measured_usage.0.note": "kept" } };
        let filter = doc! { "target.resource_instance_id": "integers" };
        let updated = spans.update_one(filter, set).await.unwrap();
        assert_eq!(updated.modified_count, 1, "{number}");
        let (same, other, small, nothing, added, usual, integers) = tokio::join!(
            store.start(new("large", &large)),
            store.start(new("other", &with("m", json!("x")))),
            store.start(new("large", &with("m", json!("x")))),
            store.start(new("other", &none)),
            store.start(new("none", &large)),
            store.start(new("usual", &measures())),
            store.start(new("integers", &integers)),
        );
        for repeated in [same, usual, integers] {
            assert!(matches!(repeated.unwrap(), StartOutcome::Repeated { .. }));
        }
        let differs = Refusal::IdTaken(vec![Field::MeasuredUsage]);
        for refused in [other, small, nothing, added] {
            assert_eq!(refused.unwrap(), StartOutcome::Refused(differs.clone()));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn spans_that_are_not_shown_have_measures_only_where_these_can_be_the_same() {
    let (store, _) = store_and_spans("looked_up").await;
    store.start(new("i", &measures())).await.unwrap();
    let counts = async |by: SpansBy| {
        let found = store.find_spans(&target("i"), &by).await.unwrap();
        let counts = found.iter().map(|span| span.measures.as_slice().len());
        counts.collect::<Vec<_>>()
    };
    let all = measures().as_slice().len();
    assert_eq!(counts(SpansBy::NotEndedBy(at(0))).await, [0]);
    let started = |measures| SpansBy::StartedBy(id("a"), measures);
    assert_eq!(counts(started(measures())).await, [all]);
    assert_eq!(counts(started(Measures::default())).await, [all]);
    must_stop(&store, Some("z"), "i", 1).await;
    assert_eq!(counts(SpansBy::NotEndedBy(at(0))).await, [0]);
    assert_eq!(counts(SpansBy::StoppedBy(id("z"))).await, [0]);
    let large = with("m", json!("x".repeat(490_000)));
    store.start(new("large", &large)).await.unwrap();
    for (asked, is_same) in [
        (&large, true),
        (&measures(), false),
        (&Measures::default(), false),
    ] {
        let by = SpansBy::StartedBy(id("a"), asked.clone());
        let found = store.find_spans(&target("large"), &by).await;
        let kept = &found.unwrap()[0].measures;
        assert_eq!((kept == &large, kept == asked), (is_same, is_same));
    }
}
