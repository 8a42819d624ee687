//! Compares what is billed with what was done, at each millisecond of each process.

use std::collections::BTreeSet;

use sampler_verify::moment::Millis;

use super::outside::Receiver;
use super::world::{Foundation, SKEW};
use super::{MIN_AGE, Run};
use crate::feed::state::Phase;
use crate::feed::usage_event::Record;

/// A time whose events were lost before they were read.
pub(super) struct Gap {
    pub(super) from: Millis,
    pub(super) until: Millis,
}

/// What was found, in ms of all processes.
#[derive(Debug, Default)]
pub(super) struct Judged {
    pub(super) compared: i64,
    /// Billed otherwise than it ran, within bounds that are listed.
    pub(super) listed: i64,
    /// The same within a gap, where what was seen before and after it is as if nothing had happened.
    pub(super) unseen: i64,
}

pub(super) struct Oracle<'a> {
    run: &'a Run,
    /// The end of the run.
    now: Millis,
    unknown: Vec<(String, Millis, Millis)>,
}

/// Quantities of memory from times on.
type Levels = Vec<(Millis, i64)>;

fn level(levels: &Levels, at: Millis) -> i64 {
    let before = levels.partition_point(|(from, _)| *from <= at);
    before.checked_sub(1).map_or(0, |index| levels[index].1)
}

impl<'a> Oracle<'a> {
    pub(super) fn new(run: &'a Run) -> Self {
        let unknown = run.unknown().into_iter().map(|it| {
            let from = it.from.unwrap_or_default();
            (it.target.resource_instance_id, from, it.to)
        });
        let unknown = unknown.collect();
        let now = run.outside.time();
        Self { run, now, unknown }
    }

    /// Fails where anything differs without having been said.
    pub(super) fn judge(&self, world: &Foundation, receiver: &Receiver) -> Judged {
        let (now, state) = (self.now, self.run.store().state(Record::Apps));
        let mut judged = Judged::default();
        for (key, history) in &world.truth {
            let used: Levels = history
                .iter()
                .map(|(at, quantities)| {
                    let memory = quantities.as_ref().map(|it| it[0].quantity.as_i64());
                    // Without memory it runs all the same.
                    (*at, memory.map_or(0, |memory| memory.unwrap() + 1))
                })
                .collect();
            let spans = receiver.spans.get(key).into_iter().flatten();
            let mut billed = Levels::new();
            for (start, measures, end) in spans {
                billed.push((*start, measures[0]["quantity"].as_i64().unwrap() + 1));
                billed.extend(end.map(|end| (end, 0)));
            }
            self.compare(key, &used, &billed, &mut judged);
            let is_open = level(&billed, now) > 0;
            assert_eq!(is_open, world.runs.contains_key(key), "{key}");
            let phase = state.phases.get(key);
            assert_eq!(matches!(phase, Some(Phase::Started(_))), is_open, "{key}");
        }
        assert_eq!(state.tracked().count(), world.runs.len());
        judged
    }

    fn compare(&self, key: &str, used: &Levels, billed: &Levels, judged: &mut Judged) {
        let bounds: Vec<(Millis, Millis)> = self
            .unknown
            .iter()
            .filter(|(of, _, _)| of == key)
            .map(|(_, from, to)| (*from, *to))
            .collect();
        let times = used.iter().chain(billed).map(|(at, _)| *at);
        let bound_times = bounds.iter().flat_map(|(from, to)| [*from, *to]);
        let mut times: BTreeSet<Millis> = times.chain(bound_times).collect();
        times.retain(|at| *at < self.now);
        times.insert(self.now);
        let times: Vec<Millis> = times.into_iter().collect();
        for pair in times.windows(2) {
            let (from, until) = (pair[0], pair[1]);
            if from > 1_000 {
                judged.compared += until - from;
            }
            if level(used, from) == level(billed, from) {
                continue;
            }
            // A bound is as exact as the clocks are.
            let is_listed = bounds
                .iter()
                .any(|(first, last)| first - SKEW <= from && until <= last + SKEW);
            let is_unseen = self.is_unseen(key, (used, billed), (from, until));
            match (is_listed, is_unseen) {
                (true, _) => judged.listed += until - from,
                (false, true) => judged.unseen += until - from,
                (false, false) => panic!(
                    "{key} from {from} until {until}: used {used:?}, billed {billed:?}, bounds {bounds:?}"
                ),
            }
        }
    }

    /// Whether it is within changes that gaps have hidden all: before and after them it ran as it is billed.
    fn is_unseen(
        &self,
        key: &str,
        (used, billed): (&Levels, &Levels),
        (from, until): (Millis, Millis),
    ) -> bool {
        let billed_then = level(billed, from);
        let gaps = &self.run.gaps;
        let mut hidden =
            (0..gaps.len()).map(|place| (gaps[place].from, self.end_of_gap(key, place)));
        let Some((begin, end)) = hidden.find(|(begin, end)| *begin <= from && until <= end + SKEW)
        else {
            return false;
        };
        let mut times = used.iter().map(|(at, _)| *at);
        let first = times
            .rfind(|at| *at <= from && level(used, at - 1) == billed_then)
            .filter(|first| *first >= begin);
        let mut after = used.iter().filter(|(at, _)| *at >= until);
        let last = after.find(|(_, level)| *level == billed_then);
        match (first, last) {
            (Some(first), Some((last, _))) => {
                let is_between = |at: Millis| first < at && at < *last;
                *last <= end + SKEW && !billed.iter().any(|(at, _)| is_between(*at))
            }
            _ => false,
        }
    }

    /// Until when a gap hides a process: if that was left to a young event, which the next gap has hidden, until the
    /// end of the next.
    fn end_of_gap(&self, key: &str, place: usize) -> Millis {
        let world = self.run.outside.world.borrow();
        let mut end = self.run.gaps[place].until;
        for next in &self.run.gaps[place + 1..] {
            let mut rows = world.rows.iter().map(|row| &row.event);
            let is_left = rows.any(|event| {
                event.subject() == Some(key) && (end - MIN_AGE..=end).contains(&event.at)
            });
            if !is_left || next.from > end {
                break;
            }
            end = next.until;
        }
        end
    }
}
