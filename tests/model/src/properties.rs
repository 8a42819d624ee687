//! What must hold in every state.

use std::collections::BTreeMap;

use sampler_domain::{Entry, EntryState, Granularity, Interval, Span, SpanId, Timestamp};
use sampler_store_testing::memory::StoredSpan;
use stateright::Property;

use crate::confirm::is_aside;
use crate::protocol::Protocol;
use crate::resend::{is_given_up, uncorrected};
use crate::state::{State, Worker};

/// Never two open spans of one target.
pub const ONE_OPEN_SPAN: &str = "a target has one open span at the most";
/// An event that was kept once is never kept again.
pub const KEPT_ONCE: &str = "an event is kept once at the most";
/// Never more than one usage for an interval.
pub const COUNTED_ONCE: &str = "an interval counts once at the most";
/// Never a usage for an interval that was not planned.
pub const AS_PLANNED: &str = "what counts was planned";
/// Never a plan beyond an end that was known to the store when the plan was kept.
pub const WITHIN_END: &str = "no plan passes an end that is known";
/// A stop is not forgotten by who writes down when to look next: a stopped span is due by its end,
/// unless a failure put it off.
pub const DUE_BY_END: &str = "a stopped span is due by its end";
/// What is recorded as executed counts, to the millisecond, and nothing else but what is planned.
pub const SAMPLED_COUNTS: &str = "what counts adds up to sampled_to - start";
/// What counts for a complete span adds up to its length, and does so for good.
pub const CONSERVATION: &str = "what counts for a complete span adds up to end - start";
/// What is posted again under the same id is the same.
pub const SAME_BYTES: &str = "what is posted again says the same";
/// Each recorded execution has its entry, and nothing else has but what is planned; entries, totals and
/// how far the span is sampled agree, entry by entry, with each other and with what counts.
pub const LEDGER: &str = "the ledger proves what is sampled";
/// Nothing is suspended that only waits: a suspended span was refused, as often as was decided.
pub const SUSPENDED_BY_REFUSAL: &str = "a suspended span was refused";
/// What never counted is never taken back, as far as anybody can know that it does not count.
pub const WINDOWS: &str = "no window counts less than nothing";
/// Whatever happened, once faults cease every stopped span gets complete.
pub const LIVENESS: &str = "every stopped span ends complete";

pub const MUST_HOLD: [&str; 13] = [
    ONE_OPEN_SPAN,
    KEPT_ONCE,
    COUNTED_ONCE,
    AS_PLANNED,
    WITHIN_END,
    DUE_BY_END,
    SAMPLED_COUNTS,
    CONSERVATION,
    SAME_BYTES,
    LEDGER,
    SUSPENDED_BY_REFUSAL,
    WINDOWS,
    LIVENESS,
];

/// Some run gets through all of it.
pub const ALL_REMOVED: &str = "every span can be complete and removed";
/// Some run samples beyond a late stop, and takes that back.
pub const TAKEN_BACK: &str = "usage can be taken back";
/// In some run a worker sleeps through all of it.
pub const WAKES_AFTER_REMOVAL: &str = "a worker can wake up when its span was removed";

/// In some run a span is suspended, and later complete. Only where Abacus refuses.
pub const SUSPENDED: &str = "a span can be suspended";
/// In some run a probe is accepted. Only where Abacus refuses.
pub const PROBED: &str = "a probe can be accepted";

/// In some run what is refused is given up. Only where an operator does that.
pub const SKIPPED: &str = "a usage can be skipped";

/// In some run what was given up counts in the end. Only where an operator has it sent again.
pub const RESENT: &str = "a usage that did not count can be sent again";

/// In some run what was skipped or set aside is taken back, and that is not sent.
pub const WITHHELD: &str = "what never counted can be taken back";

/// In some run it is known that a usage was set aside. Only where Abacus does that.
pub const SET_ASIDE: &str = "a usage can be set aside";

/// All that must be possible: a model in which nothing happens holds, too.
pub const MUST_HAPPEN: [&str; 3] = [ALL_REMOVED, TAKEN_BACK, WAKES_AFTER_REMOVAL];

pub(crate) fn all() -> Vec<Property<Protocol>> {
    vec![
        Property::always(ONE_OPEN_SPAN, |_, state: &State| has_one_open_span(state)),
        Property::always(KEPT_ONCE, |_, state: &State| {
            state.history.kept.iter().all(|times| *times <= 1)
        }),
        Property::always(COUNTED_ONCE, |_, state: &State| {
            !state.history.counted_twice && counts_intervals_once(state)
        }),
        Property::always(AS_PLANNED, |_, state: &State| {
            counts_what_was_planned(state)
        }),
        Property::always(WITHIN_END, |_, state: &State| !state.history.passed_an_end),
        Property::always(DUE_BY_END, |_, state: &State| {
            state.table.all().all(|kept| is_due_by_end(state, kept))
        }),
        Property::always(SAMPLED_COUNTS, |_, state: &State| {
            spans(state).all(|span| counts_what_is_sampled(state, span))
        }),
        Property::always(CONSERVATION, |_, state: &State| is_conserved(state)),
        Property::always(SAME_BYTES, |_, state: &State| {
            !state.history.resent_otherwise
        }),
        Property::always(LEDGER, |_, state: &State| is_proved(state)),
        Property::always(
            SUSPENDED_BY_REFUSAL,
            |protocol: &Protocol, state: &State| {
                spans(state).all(|span| is_suspended_rightly(protocol, span))
            },
        ),
        Property::always(WINDOWS, |_, state: &State| no_window_is_below_zero(state)),
        Property::always(LIVENESS, |protocol: &Protocol, state: &State| {
            protocol.ends_complete(state)
        }),
        Property::sometimes(ALL_REMOVED, |_, state: &State| {
            state.history.kept.iter().all(|times| *times == 1) && spans(state).next().is_none()
        }),
        Property::sometimes(TAKEN_BACK, |_, state: &State| {
            state.counted.iter().any(|usage| usage.duration < 0)
        }),
        Property::sometimes(SUSPENDED, |_, state: &State| {
            spans(state).any(|span| span.processing.suspended.is_some())
        }),
        Property::sometimes(PROBED, |_, state: &State| {
            state.table.causes().any(|cause| cause.resuming.is_some())
        }),
        Property::sometimes(SKIPPED, |_, state: &State| {
            let mut removed = state.history.removed.values();
            removed.any(|removed| removed.skipped != 0)
        }),
        Property::sometimes(RESENT, |_, state: &State| {
            let mut entries = state.table.entries().map(|kept| &kept.entry);
            entries.any(|entry| {
                let was_out = entry.skipped_at.is_some() || entry.set_aside_at.is_some();
                let is_over = was_out && entry.resend.is_none();
                is_over && entry.state == EntryState::Accepted
            })
        }),
        Property::sometimes(WITHHELD, |_, state: &State| {
            state.table.entries().any(|kept| kept.entry.withheld)
        }),
        Property::sometimes(SET_ASIDE, |_, state: &State| {
            let mut entries = state.table.entries().map(|kept| &kept.entry);
            entries.any(|entry| entry.state == EntryState::SetAside)
        }),
        Property::sometimes(WAKES_AFTER_REMOVAL, |_, state: &State| {
            let mut in_hand = state.workers.iter().filter_map(Worker::span);
            in_hand.any(|span| state.table.find(&span.id).is_none())
        }),
    ]
}

fn is_suspended_rightly(protocol: &Protocol, span: &Span) -> bool {
    let processing = &span.processing;
    let refusals = protocol.scenario.suspend_after.max(1);
    processing.suspended.is_none()
        || (processing.refused_at.is_some() && processing.refusals >= refusals)
}

fn spans(state: &State) -> impl Iterator<Item = &Span> {
    state.table.all().map(|kept| &kept.span)
}

fn has_one_open_span(state: &State) -> bool {
    spans(state).filter(|span| span.end.is_none()).count() <= 1
}

fn counts_intervals_once(state: &State) -> bool {
    // What counts is in the order of spans and intervals.
    let of = state.counted.iter();
    let pairs = of.clone().zip(of.skip(1));
    pairs
        .into_iter()
        .all(|(one, next)| (&one.span, one.interval) != (&next.span, next.interval))
}

fn counts_what_was_planned(state: &State) -> bool {
    state.counted.iter().all(|usage| {
        let (start, end) = usage.interval;
        let plan = (usage.span.clone(), start, end);
        state.history.planned.contains(&plan)
    })
}

fn is_due_by_end(state: &State, kept: &StoredSpan) -> bool {
    let StoredSpan { span, due_at, .. } = kept;
    let Some(end) = span.end else {
        return true;
    };
    let is_over = span.processing.complete || span.processing.attempts > 0;
    is_over || due_at.is_none_or(|due_at| due_at <= end.max(state.now))
}

/// The usage of what is planned may count already, or not yet.
fn counts_what_is_sampled(state: &State, span: &Span) -> bool {
    let planned = span.processing.planned.as_ref();
    let billed = state.billed(&span.id, planned.map(|planned| planned.interval));
    let skipped = span.processing.totals.skipped - uncorrected(state, span);
    billed + skipped + aside(state, span) == span.sampled_to().since(span.start)
}

fn is_conserved(state: &State) -> bool {
    let complete = spans(state).filter(|span| span.processing.complete);
    let mut complete = complete.map(|span| {
        let length = span.end.map(|end| end.since(span.start));
        let skipped = span.processing.totals.skipped - uncorrected(state, span);
        let counts = state.billed(&span.id, None) + skipped + aside(state, span);
        (length, Some(counts))
    });
    let kept = complete.all(|(length, counts)| length == counts);
    let mut removed = state.history.removed.iter();
    kept && removed.all(|(id, removed)| {
        let entries = state.table.entries_of(id, None).into_iter();
        let skipped = entries.filter(|entry| !counts(state, entry));
        let skipped: i64 = skipped.map(|entry| entry.interval.duration()).sum();
        removed.length == state.billed(id, None) + skipped
    })
}

/// What the totals of a span count as billed, and Abacus has set aside, or would have to if it had been
/// sent, ms.
fn aside(state: &State, span: &Span) -> i64 {
    let planned = span.processing.planned.as_ref();
    let planned = planned.map(|planned| &planned.usage_guid);
    let entries = state.table.entries_of(&span.id, None).into_iter();
    let aside = entries.filter(|entry| {
        let is_withheld = entry.set_aside_at.is_some() && entry.accepted_at.is_none();
        Some(&entry.usage_guid) != planned
            && !counts(state, entry)
            && (is_aside(state, entry) || is_withheld)
    });
    aside.map(|entry| entry.interval.duration()).sum()
}

/// What counts in each window of each span. Where something was taken back of which nobody could know that
/// it was set aside, that is excused.
fn no_window_is_below_zero(state: &State) -> bool {
    let mut windows: BTreeMap<(&SpanId, Timestamp), (i64, bool)> = BTreeMap::new();
    for usage in &state.counted {
        let (start, end) = usage.interval;
        let window = Granularity::Minute.window_of(Interval { start, end }.midpoint());
        let of_window = windows.entry((&usage.span, window)).or_default();
        let plan = (usage.span.clone(), start, end);
        of_window.0 += usage.duration;
        of_window.1 |= state.history.blind.contains(&plan);
    }
    let mut windows = windows.values();
    windows.all(|(sum, is_excused)| *sum >= 0 || *is_excused)
}

fn is_proved(state: &State) -> bool {
    let mut removed = state.history.removed.iter();
    let outlive = removed.all(|(id, removed)| {
        let entries = state.table.entries_of(id, None);
        let lengths = entries.iter().map(|entry| entry.interval.duration());
        lengths.sum::<i64>() == removed.length && entries.iter().all(|entry| says(state, entry))
    });
    outlive && spans(state).all(|span| is_span_proved(state, span))
}

/// The entries lead from the start to where sampling stands, one after the other. That of the planned
/// interval may be there already.
fn is_span_proved(state: &State, span: &Span) -> bool {
    let planned = span.processing.planned.as_ref();
    let planned = planned.map(|planned| &planned.usage_guid);
    let (mut reached, mut billed, mut skipped, mut usages) = (span.start, 0, 0, 0);
    for entry in state.table.entries_of(&span.id, None) {
        if !says(state, entry) {
            return false;
        }
        if Some(&entry.usage_guid) == planned {
            continue;
        }
        if entry.interval.start != reached {
            return false;
        }
        reached = entry.interval.end;
        if is_given_up(Some(span), entry) {
            skipped += entry.interval.duration();
        } else {
            billed += entry.interval.duration();
            usages += 1;
        }
    }
    let totals = &span.processing.totals;
    reached == span.sampled_to()
        && totals.billed == billed
        && totals.skipped == skipped
        && totals.usages == usages
        && span.difference() == 0
}

/// Whether an entry says what is: what is given up or set aside does not count, unless it is being sent
/// again, and all else does, or nobody knows yet that it was set aside.
fn says(state: &State, entry: &Entry) -> bool {
    match entry.state {
        EntryState::Skipped | EntryState::SetAside => {
            entry.resend.is_some() || !counts(state, entry)
        }
        _ => counts(state, entry) || is_aside(state, entry),
    }
}

/// Whether Abacus counts what an entry says.
fn counts(state: &State, entry: &Entry) -> bool {
    let says = (entry.interval.start, entry.interval.end);
    state.counted.iter().any(|usage| {
        usage.dedup_id == entry.usage_guid && usage.span == entry.span && usage.interval == says
    })
}
