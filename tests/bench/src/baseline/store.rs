//! The receiver's own store, without HTTP: all that must be looked for before an insert, and the
//! inserts. It does what a receiver does, but for requests, JSON and turns.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use futures_util::future::try_join_all;
use sampler_domain::{
    Id, Measure, Measures, Quantity, Span, SpanId, StartEvent, Target, Timestamp,
};
use sampler_store::{Arrival, Events, NewSpan, StartOutcome};
use sampler_store_mongo::MongoStore;
use sampler_testkit::build::Kind;
use serde_json::Value;

use crate::event::{Event, START_ID, Times, target};
use crate::load::Sender;
use crate::mongo::Spans;
use crate::template::Template;

/// How many senders there are.
pub(crate) const SENDERS: usize = 4;

/// Starts many spans at once.
#[derive(Clone, Debug)]
pub(crate) struct StoreCalls {
    store: Arc<MongoStore>,
    times: Times,
    target: Arc<[Template; 6]>,
    id: Arc<Template>,
    measures: Measures,
    batch: usize,
}

impl StoreCalls {
    /// As many senders as serve best, each of so many events at a time.
    pub(crate) fn senders(spans: &Spans, batch: usize, times: Times) -> Result<Vec<Self>> {
        let template = |text: &str| Template::new(text.as_bytes().to_vec());
        let mut fields = target().map(|(_, text)| template(text));
        let memory = Measure::new("memory", Quantity::new(Value::from(512))?)?;
        let sender = Self {
            store: Arc::clone(&spans.store),
            times,
            target: Arc::new(std::array::from_fn(|_| {
                fields.next().unwrap_or_else(|| template(""))
            })),
            id: Arc::new(template(START_ID)),
            measures: Measures::from_store(vec![memory]),
            batch,
        };
        Ok(vec![sender; SENDERS])
    }

    async fn start(&self, event: &Event) -> Result<()> {
        ensure!(event.kind == Kind::Start, "these are starts");
        let values = self.times.values(event.number);
        let text = |template: &Template| String::from_utf8(template.filled(&values));
        let id = |template: &Template| text(template).map(Id::from_store);
        let [organization, space, consumer, resource, plan, instance] = &*self.target;
        let event = StartEvent {
            id: Some(Id::new(text(&self.id)?)?),
            timestamp: Timestamp::new(values.start)?,
            target: Target {
                organization_id: id(organization)?,
                space_id: id(space)?,
                consumer_id: id(consumer)?,
                resource_id: id(resource)?,
                plan_id: id(plan)?,
                resource_instance_id: id(instance)?,
            },
            measures: self.measures.clone(),
        };
        let now = Timestamp::new(values.now)?;
        let new = NewSpan {
            span: Span::open(SpanId::new(now, values.number), event),
            due_at: Timestamp::new(values.due_at)?,
            now,
            may_overlap: false,
            arrival: Arrival::InBatch,
        };
        let outcome = self.store.start(new).await.context("a start")?;
        ensure!(outcome == StartOutcome::Opened, "a start was {outcome:?}");
        Ok(())
    }
}

impl Sender for StoreCalls {
    fn batch(&self) -> usize {
        self.batch
    }

    async fn send(&mut self, events: &[Event]) -> Result<()> {
        let starts = events.iter().map(|event| self.start(event));
        try_join_all(starts).await.map(drop)
    }
}
