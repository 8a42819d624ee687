//! Spans as the original Sampler leaves them.

use sampler_domain::{EventId, Interval, Planned, Span, SpanId, StartEvent, Usage};

use super::op::Original;
use super::world::{World, measures, target};

impl World {
    /// Writes a span as the original Sampler does, unless its target has an open one: it would have
    /// refused it, too. Abacus has counted what the original had sampled.
    pub(crate) fn write_original(&self, original: &Original) -> Option<SpanId> {
        let target = target(original.target);
        let is_open = |span: &Span| span.target == target && span.end.is_none();
        let open = self.store.all().iter().any(|kept| is_open(&kept.span));
        if original.end.is_none() && open {
            return None;
        }
        let span = self.span_of(original);
        self.log("original", || format!("leaves {span:?}"));
        self.store.insert_original(span.clone());
        self.truth.facts().originals.insert(span.id.clone());
        self.note_opened(&span, span.sampled_to().since(span.start));
        let name = format!("original-{}", original.number);
        self.note_kept(name.clone(), self.now(), &span, false);
        let planned = span.processing.planned.as_ref();
        if let (Some(planned), Some(closing)) = (planned, self.setup.closing)
            && planned.interval.end > closing.quiet_from()
        {
            self.truth.facts().late_plans.insert(span.id.clone());
        }
        if span.end.is_some() {
            self.note_kept(name, self.now(), &span, true);
        }
        if let (Some((_, true)), Some(planned)) = (original.planned, &span.processing.planned)
            && !planned.interval.is_empty()
            // The original posts to Abacus alone.
            && self.setup.memory.is_none()
        {
            self.take(&Usage::new(&span, planned));
        }
        Some(span.id)
    }

    fn span_of(&self, original: &Original) -> Span {
        let text = |what: &str| format!("original-{what}-{}", original.number);
        let id = SpanId::new(self.now(), original.number);
        let event = StartEvent {
            id: original.with_id.then(|| EventId::from_store(text("start"))),
            timestamp: original.start,
            target: target(original.target),
            measures: measures(1),
        };
        let mut span = Span::open(id, event);
        span.end = original.end;
        span.end_id = original.end.map(|_| EventId::from_store(text("stop")));
        span.processing.version = 3;
        span.processing.last.end = original.sampled_to;
        span.processing.planned = original.planned.map(|(end, _)| Planned {
            interval: Interval {
                start: original.sampled_to,
                end,
            },
            usage_guid: text("guid"),
            planned_at: original.sampled_to,
            granularity: None,
            posts_end_by: None,
            withheld: None,
        });
        span
    }
}
