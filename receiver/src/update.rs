//! Updates: the previous span stops and the new one starts at the same time, under one id.
//!
//! An update is a stop and a start, each kept as if it came alone. Both are checked before the first is
//! kept. The stop comes first: two spans of one target cannot be open together, and while the start is
//! missing, too little is billed, not too much. A repeat of the update finds the half that is kept.

use sampler_domain::{
    NotEnded, Span, StartDecision, StartEvent, StopDecision, StopEvent, Target, Timestamp,
    UpdateEvent,
};
use sampler_service::problem::Problem;
use sampler_service::security::Grant;
use sampler_store::{Arrival, SpansBy};

use crate::Receiver;
use crate::decision::{of_halved, refused};
use crate::events::Kept;

/// What is kept for the targets of an update.
struct Seen {
    /// The open span of the previous target.
    open: Option<Span>,
    /// The spans of the new target that are in the way of the start.
    others: NotEnded,
    /// The span that was stopped under the id.
    stopped: Option<Span>,
    /// The span that was started under the id.
    started: Option<Span>,
}

impl Receiver {
    /// Keeps both halves of an update, or says why not.
    pub(crate) async fn update(
        &self,
        event: UpdateEvent,
        grant: &Grant,
        now: Timestamp,
        arrival: Arrival,
    ) -> Result<Kept, Problem> {
        let (stop, start, rules) = (event.stop(), event.start(), self.rules());
        let seen = self.look(&stop, &start).await?;
        let by_id = seen.stopped.as_ref();
        let stopping = rules.admit_stop(&stop, by_id, seen.open.as_ref(), now);
        let has_stop = match stopping.map_err(refused)? {
            StopDecision::Repeated(_) => true,
            StopDecision::End(_) => false,
        };
        let starting = rules.admit_start(&start, seen.started.as_ref(), seen.others, now);
        let started = match starting {
            Ok(StartDecision::Repeated(span)) => Some(span.id.clone()),
            Ok(StartDecision::Open) => None,
            Err(refusal) if has_stop => {
                return Err(of_halved(refused(refusal)));
            }
            Err(refusal) => return Err(refused(refusal)),
        };
        let was_stopped = has_stop || self.stop(stop, grant, arrival).await?.is_replayed;
        if started.is_some() {
            return Ok(Kept {
                is_replayed: was_stopped,
                started,
            });
        }
        let span = self.new_span(start, grant, now);
        let opened = self.open_span(span, now, arrival).await;
        let opened = opened.map_err(of_halved)?;
        Ok(Kept {
            is_replayed: was_stopped && opened.is_replayed,
            ..opened
        })
    }

    /// Reads what may be in the way first, and the halves that are kept after that: a half that another
    /// request with the same update keeps in between is in nobody's way.
    async fn look(&self, stop: &StopEvent, start: &StartEvent) -> Result<Seen, Problem> {
        let previous = self.find_not_ended(&stop.target, stop.timestamp).await?;
        let others = self.find_not_ended(&start.target, start.timestamp).await?;
        let by_id = SpansBy::start(start);
        let started = self.find_by_id(&start.target, by_id).await?;
        let by_id = stop.id.clone().map(SpansBy::StoppedBy);
        let stopped = self.find_by_id(&stop.target, by_id).await?;
        let is = |one: Option<&Span>, other: &Span| one.is_some_and(|it| it.id == other.id);
        // The update does not end the span that it has started itself.
        let mut open = previous.into_iter().filter(|span| span.end.is_none());
        let open = open.find(|span| !is(started.as_ref(), span));
        let ended = stopped.as_ref().or(open.as_ref());
        let others = others.iter().filter(|span| !is(ended, span));
        let others = NotEnded::by(start.timestamp, others.map(|span| span.end));
        Ok(Seen {
            open,
            others,
            stopped,
            started,
        })
    }

    async fn find_not_ended(&self, target: &Target, by: Timestamp) -> Result<Vec<Span>, Problem> {
        self.find_spans(target, &SpansBy::NotEndedBy(by)).await
    }

    /// The span of the target that was started or stopped by the event with this id, if it has one.
    async fn find_by_id(
        &self,
        target: &Target,
        by_id: Option<SpansBy>,
    ) -> Result<Option<Span>, Problem> {
        let Some(by) = by_id else {
            return Ok(None);
        };
        Ok(self.find_spans(target, &by).await?.into_iter().next())
    }
}
