//! The usages that a dry run foresees, each once.

use std::collections::HashMap;

use indicatif::HumanCount;
use sampler_api::{DryRun, PostedUsage};
use sampler_verify::Target;
use sampler_verify::events::{self, Columns, Event, EventKind, FileTimes, Format};
use sampler_verify::moment::Millis;
use sampler_verify::words::counted;

use super::file_event::FileEvent;
use crate::show::length_in_words;

/// The answer to an event has all usages of its span, as if no other event came. The answer to the next
/// event of the span takes its place.
#[derive(Debug, Default)]
pub(super) struct Foreseen {
    /// The sums of each span, and the place of the newest span of each target.
    spans: Vec<Sum>,
    newest: HashMap<Target, usize>,
    replayed: usize,
    /// Not all usages are known.
    is_cut: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    usages: u64,
    duration: Millis,
}

impl Foreseen {
    /// Takes the next event of the file, with its answer.
    pub(super) fn add(&mut self, event: &FileEvent, answer: &DryRun) {
        if answer.would >= 300 {
            return;
        }
        self.replayed += usize::from(answer.replayed == Some(true));
        self.is_cut |= answer.more;
        // An update is a stop and a start.
        let parts = parts_of(event);
        let usages = answer.usages.as_deref().unwrap_or_default();
        let is_update = parts.len() > 1;
        for part in &parts {
            let of_part = usages.iter().filter(|usage| {
                let is_before = is_of_before(usage, part.moment);
                !is_update || is_before == matches!(part.kind, EventKind::Stop)
            });
            self.put(part, Sum::of(of_part));
        }
    }

    fn put(&mut self, part: &Event, sum: Sum) {
        let newest = self.newest.get(&part.target).copied();
        if let (Some(place), EventKind::Stop) = (newest, &part.kind) {
            self.spans[place] = sum;
        } else {
            self.newest.insert(part.target.clone(), self.spans.len());
            self.spans.push(sum);
        }
    }

    /// The sum in a line.
    pub(super) fn words(&self, kept: usize, refused: usize) -> String {
        let events = kept + refused;
        let usages: u64 = self.spans.iter().map(|sum| sum.usages).sum();
        let durations = self.spans.iter().map(|sum| sum.duration);
        let duration = length_in_words(durations.fold(0, Millis::saturating_add));
        let (replayed, at_least) = (self.replayed, if self.is_cut { "at least " } else { "" });
        let (events, usages) = (
            counted(events, "event"),
            counted(HumanCount(usages), "usage"),
        );
        format!(
            "{events}: {kept} would be kept ({replayed} replayed), {refused} refused; {at_least}{usages} of \
             {duration} together. Nothing was kept.\n"
        )
    }
}

impl Sum {
    fn of<'a>(usages: impl Iterator<Item = &'a PostedUsage>) -> Self {
        usages.fold(Self::default(), |sum, usage| Self {
            usages: sum.usages + 1,
            duration: sum.duration.saturating_add(duration_of(usage)),
        })
    }
}

/// Whether a usage is of the span that an update ends: that has no time behind the update but what goes
/// backwards, and the new one has nothing else. A usage is dated in the middle of its interval.
fn is_of_before(usage: &PostedUsage, update: Millis) -> bool {
    duration_of(usage) < 0 || usage.end.as_millis() < update
}

/// Its measure `duration`, ms.
fn duration_of(usage: &PostedUsage) -> Millis {
    let mut measures = usage.measured_usage.iter();
    let duration = measures.find(|it| it.measure == "duration");
    duration
        .and_then(|it| it.quantity.as_i64())
        .unwrap_or_default()
}

fn parts_of(event: &FileEvent) -> Vec<Event> {
    let body = event.body.as_bytes();
    let read = events::read(
        body,
        Format::Json,
        &Columns::default(),
        FileTimes::default(),
    );
    read.unwrap_or_default()
}
