//! Bugs that are planted, each in one place between the driver, the store, the upstream and operators. The domain
//! itself stays as it is.

use sampler_domain::{
    Action, Again, Cause, Change, ChangeKind, Contract, Driver, Excluded, Interval,
    Planned as Plan, Processing, Remembered, SUSPENDED_DUE_AT, Span, Suspension, Terms, Timestamp,
    usage_guid,
};

use crate::laws::Law;
use crate::scenario::Scenario;
use crate::state::State;
use crate::stretch::HALF_WINDOW;
use crate::world::{ME, World};

macro_rules! planted {
    ($($name:ident, $words:literal, $scenario:literal, $law:ident;)+) => {
        /// A bug.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Planted {
            $($name),+
        }

        impl Planted {
            /// All bugs: in words, the scenario that finds it, and the law that it breaks.
            pub const ALL: &[(Self, &str, &str, Law)] =
                &[$((Self::$name, $words, $scenario, Law::$law)),+];
        }
    };
}

planted! {
    StopLeavesVersion, "a stop leaves the version", "window", WithinEnd;
    ResumeLeavesVersion, "resuming a span leaves the version", "window", EndsComplete;
    IgnoresVersion, "changes do not require the version that was read", "window", Sum;
    CutByTodaysSetting, "a correction is cut by today's setting", "dimension", OnCuts;
    CorrectionCrossesEdge, "a correction crosses a change of the setting", "dimension", OnCuts;
    TrimPassesEnd, "a trim passes the end", "window", Windows;
    TrimEntersCorrection, "a skipped correction is trimmed", "two windows", TrimsForwards;
    TrimPosts, "what a trim takes back is posted", "window", Windows;
    TrimmedAwayGoes, "a range that is trimmed away goes", "window", CountsNowhere;
    ResendForgetsBackTo, "a resend forgets the trim", "window", Sum;
    WayBackFirst, "a way back is sent before its usage", "window", Windows;
    ResendLeavesComplete, "a resend leaves the span complete", "window", CompleteIsAll;
    RefusedAgainStays, "what is refused again stays in `again`", "window", EndsSkipped;
    RefusedAgainDropsFlag, "what is refused again loses its flag", "window", ExcludedCounts;
    RefusedWayBackIsWhole, "a refused way back takes its recorded usage along",
        "window", Disjoint;
    AgainClearsFailure, "a record of `again` clears flag and failure of the plan",
        "three acts in parts", ExcludedCounts;
    CompletesWithAgain, "a span gets complete with something in `again`",
        "window", CompleteIsAll;
    CompletesAnywhere, "a stopped span gets complete wherever it is sampled to",
        "window", CompleteIsAll;
    SkipWhileProbed, "a span that is not suspended any more is skipped",
        "window", ExcludedCounts;
    SkipBeyondCorrection, "a skipped correction goes on to the end", "two windows", OnCuts;
    SkipDropsFlag, "a skip drops the flag", "window", ExcludedCounts;
    SkipLosesForeignId, "a skip loses the id of another program",
        "foreign", Windows;
    SkipPosts, "a skip posts", "window", ExcludedCounts;
    SkipBills, "what is skipped counts as billed", "window", Sum;
    AcceptanceDropsExcluded, "what was accepted and skipped is taken for recorded",
        "window", CountsNowhere;
    RejectionForgets, "a run forgets what it knows where its change is rejected",
        "window", ExcludedCounts;
    SilenceForgets, "a run forgets what it knows where the store gives no answer",
        "silence", ExcludedCounts;
    SilenceNamesNothing, "no name again after a change without an answer",
        "late", ExcludedCounts;
    SilenceNamesNoAgain, "no name again after that for what is sent again",
        "late", ExcludedCounts;
    UnnamedPlan, "a run posts a plan that names another", "window", ExcludedCounts;
    UnnamedAgain, "a run sends again what names another", "window", ExcludedCounts;
    ReplacesPlanUnflagged, "no flag where a run is replaced on a plan",
        "window", ExcludedCounts;
    ReplacesAgainUnflagged, "no flag where a run is replaced on what is sent again",
        "window", ExcludedCounts;
    SuspensionDropsFlag, "a suspension drops the flag", "window", ExcludedCounts;
    FailuresOutlivePlan, "a plan begins with the failures of the one before",
        "windows", FreshPlan;
    SuspendsWhatWaits, "a post without an answer suspends", "window", SuspendedByRefusal;
    ResumedStaysAway, "a resumed span stays out of the workers' way", "window", EndsComplete;
    IgnoresPlansOfOthers, "a run executes its own plans alone", "window", EndsComplete;
    PostsBeforePlan, "a usage is posted before its plan is made", "window", CountsNowhere;
    PostsBeforeEnd, "a worker's clock is an hour ahead", "time", NotBefore;
    StopCutsPlan, "a stop cuts the planned interval", "window", SameBytes;
    IdPerAttempt, "each attempt to post draws an id", "window", Windows;
    EntryAfterRecord, "the entry follows the record", "silence", RecordedHasEntry;
    EntryBeforeAnswer, "the entry precedes the answer", "window", EntryCounts;
    PostsWithoutLookUp, "nothing is looked up where the upstream forgets", "forgets", OneId;
    AgainWithoutLookUp, "what is sent again is not looked up",
        "horizon", OneId;
    NotThereUnnoted, "\"not there\" is not recorded", "forgets", OneId;
    AnyNotThereIsMine, "a run takes each \"not there\" for its own", "forgets", OneId;
    RightsNeverEnd, "\"not there\" is a right to post for ever", "forgets", OneId;
}

use Planted as P;

/// The span as a worker sees it.
pub(crate) fn view(scenario: &Scenario, span: &mut Span) {
    let processing = &mut span.processing;
    if scenario.has(P::UnnamedPlan)
        && let Some(planned) = &mut processing.planned
    {
        planned.by = Some(ME);
    }
    if scenario.has(P::UnnamedAgain)
        && let Some(again) = processing.again.first_mut()
    {
        again.by = Some(ME);
    }
}

/// A driver that begins with what its run keeps in mind.
pub(crate) fn new_driver(scenario: &Scenario, mut driver: Driver) -> Driver {
    let has_again = !driver.span().processing.again.is_empty();
    let is_named =
        scenario.has(P::SilenceNamesNothing) || scenario.has(P::SilenceNamesNoAgain) && has_again;
    if is_named {
        driver.on_change_made(Change {
            kind: ChangeKind::Name,
            after: driver.span().clone(),
        });
    }
    driver
}

/// What a run keeps in mind.
pub(crate) fn remembered(scenario: &Scenario, driver: Driver) -> Remembered {
    if scenario.has(P::SilenceForgets) {
        let span = driver.span().clone();
        return Driver::new(span, Remembered::default(), Timestamp::MIN).into_remembered();
    }
    driver.into_remembered()
}

pub(crate) fn contract(scenario: &Scenario, span: &Span) -> Contract {
    let is_trusted = scenario.has(P::PostsWithoutLookUp)
        || scenario.has(P::AgainWithoutLookUp) && !span.processing.again.is_empty();
    if is_trusted {
        Contract::Forever
    } else {
        scenario.contract()
    }
}

/// The clock of a worker.
pub(crate) fn clock(scenario: &Scenario, now: u8) -> Timestamp {
    let ahead = i64::from(scenario.has(P::PostsBeforeEnd)) * 2 * HALF_WINDOW;
    scenario.clock(now).plus(ahead)
}

/// What a driver does, who knows `span`.
pub(crate) fn action(
    scenario: &Scenario,
    span: &Span,
    action: Action,
    now: Timestamp,
    terms: &Terms,
) -> Action {
    let Some(planted) = scenario.planted else {
        return action;
    };
    let processing = &span.processing;
    let is_sampled = span.end == Some(span.sampled_to());
    match (planted, action) {
        (P::IgnoresPlansOfOthers, Action::Change(change))
            if change.kind == ChangeKind::Name && processing.again.is_empty() =>
        {
            Action::Done
        }
        (P::CompletesWithAgain, _)
            if is_sampled && processing.planned.is_none() && !processing.complete =>
        {
            complete(span)
        }
        (P::CompletesAnywhere, Action::Change(change))
            if change.kind == ChangeKind::Plan && span.end.is_some() =>
        {
            complete(span)
        }
        (P::AnyNotThereIsMine, Action::LookUp(delivery))
            if processing
                .planned
                .as_ref()
                .is_some_and(|it| it.posts_end_by.is_some()) =>
        {
            Action::Post {
                delivery,
                begin_before: None,
            }
        }
        (_, Action::Change(change)) => {
            let mut change = *change;
            changed(planted, span, &mut change, now, terms);
            Action::Change(Box::new(change))
        }
        (_, action) => action,
    }
}

fn complete(span: &Span) -> Action {
    let mut after = span.clone();
    after.processing.complete = true;
    Action::Change(Box::new(Change {
        kind: ChangeKind::Complete,
        after,
    }))
}

/// What a worker makes of a span.
fn changed(planted: Planted, span: &Span, change: &mut Change, now: Timestamp, terms: &Terms) {
    let before = &span.processing;
    let after = &mut change.after.processing;
    let is_put_back = after.again.len() < before.again.len();
    match (planted, change.kind) {
        (
            P::CutByTodaysSetting | P::CorrectionCrossesEdge,
            ChangeKind::Plan | ChangeKind::Record,
        ) => {
            cut_otherwise(planted, &mut change.after, terms);
        }
        (P::TrimPassesEnd, ChangeKind::Trim) => {
            let trimmed = after.excluded.iter_mut();
            if let Some(range) = trimmed.rev().find(|it| it.back_to == Some(after.last.end)) {
                range.back_to = Some(range.interval.start);
                after.last.end = range.interval.start;
            }
        }
        (P::TrimEntersCorrection, ChangeKind::Plan) => trim_correction(span, change),
        (P::TrimPosts, ChangeKind::Trim) => {
            let interval = after.last;
            after.excluded.clone_from(&before.excluded);
            after.last = before.last;
            post_instead(change, interval, now);
        }
        (P::TrimmedAwayGoes, ChangeKind::Trim) => {
            after
                .excluded
                .retain(|it| it.back_to != Some(it.interval.start));
        }
        (P::RefusedAgainStays, ChangeKind::Fail) if is_put_back => {
            after.excluded.clone_from(&before.excluded);
            after.again.clone_from(&before.again);
        }
        (P::RefusedAgainDropsFlag, ChangeKind::Fail) if is_put_back => {
            unflag_excluded(after);
        }
        (P::RefusedWayBackIsWhole, ChangeKind::Fail) if is_put_back => {
            let again = &before.again[0];
            if again.is_way_back {
                after.excluded.clone_from(&before.excluded);
                after.excluded.push(again.range.clone());
            }
        }
        (P::AgainClearsFailure, ChangeKind::RecordAgain) => {
            after.failure = None;
            unflag(after);
        }
        (P::AcceptanceDropsExcluded, ChangeKind::Move) => _ = after.again.pop(),
        (P::ReplacesPlanUnflagged, ChangeKind::Name) if before.again.is_empty() => {
            let flag = before.planned.as_ref().is_some_and(|it| it.unanswered);
            after.planned.iter_mut().for_each(|it| it.unanswered = flag);
        }
        (P::ReplacesAgainUnflagged, ChangeKind::Name) if !before.again.is_empty() => {
            after.again[0].range.unanswered = before.again[0].range.unanswered;
        }
        (P::SuspensionDropsFlag, ChangeKind::Fail) if after.due_at == SUSPENDED_DUE_AT => {
            unflag(after);
        }
        (P::FailuresOutlivePlan, ChangeKind::Record) if after.planned.is_some() => {
            after.failure.clone_from(&before.failure);
        }
        _ => {}
    }
}

fn unflag(processing: &mut Processing) {
    if let Some(planned) = &mut processing.planned {
        planned.unanswered = false;
    }
}

fn unflag_excluded(processing: &mut Processing) {
    for range in &mut processing.excluded {
        range.unanswered = false;
    }
}

/// A correction is planned up to where today's setting cuts time, or over the edge between two settings.
fn cut_otherwise(bug: Planted, after: &mut Span, terms: &Terms) {
    let (Some(end), Some(planned)) = (after.end, after.processing.planned.clone()) else {
        return;
    };
    let start = planned.interval.start;
    if planned.interval.end > start {
        return;
    }
    let mut cuts = after.processing.cuts.iter().rev();
    let granularity = match cuts.find(|cut| cut.from < start) {
        Some(cut) if bug == P::CorrectionCrossesEdge => cut.granularity,
        _ => terms.policy.granularities.of(&after.target),
    };
    let boundary = granularity.boundary_before(start);
    let interval = Interval {
        start,
        end: boundary.map_or(end, |boundary| boundary.max(end)),
    };
    let guid = usage_guid(after, interval);
    if let Some(planned) = &mut after.processing.planned {
        planned.interval = interval;
        planned.usage_guid = guid;
    }
}

/// Instead of the plan, the correction that was skipped last is trimmed.
fn trim_correction(span: &Span, change: &mut Change) {
    let sampled_to = span.sampled_to();
    let mut after = span.clone();
    let processing = &mut after.processing;
    let mut skipped = processing.excluded.iter_mut().filter(|it| !it.leads_on());
    let skipped = skipped.find(|it| it.interval.end == sampled_to);
    if let (Some(range), Some(end)) = (skipped, span.end) {
        range.back_to = Some(end);
        processing.last = Interval {
            start: sampled_to,
            end,
        };
        change.kind = ChangeKind::Trim;
        change.after = after;
    }
}

/// The change plans this interval.
fn post_instead(change: &mut Change, interval: Interval, now: Timestamp) {
    let guid = usage_guid(&change.after, interval);
    change.kind = ChangeKind::Plan;
    change.after.processing.planned = Some(Plan {
        interval,
        usage_guid: guid,
        planned_at: now,
        by: Some(ME),
        unanswered: false,
        posts_end_by: None,
    });
}

/// The span after its stop.
pub(crate) fn stopped(scenario: &Scenario, span: &mut Span) {
    if scenario.has(P::StopCutsPlan)
        && let (Some(end), Some(planned)) = (span.end, &mut span.processing.planned)
        && planned.interval.start < end
        && end < planned.interval.end
    {
        planned.interval.end = end;
    }
}

/// The span that an operator takes for suspended.
pub(crate) fn skippable(scenario: &Scenario, span: &Span) -> Span {
    let mut span = span.clone();
    if scenario.has(P::SkipWhileProbed)
        && let Some(failure) = &mut span.processing.failure
    {
        let cause = Cause::of(&span.target, None, &failure.error).id();
        let since = Timestamp::MIN;
        failure.suspension = Some(Suspension { cause, since });
    }
    span
}

/// What an operator makes of a span.
pub(crate) fn acted(scenario: &Scenario, kind: ChangeKind, mut span: Span) -> Span {
    let Some(planted) = scenario.planted else {
        return span;
    };
    let end = span.end;
    let sampled_to = span.sampled_to();
    let processing = &mut span.processing;
    match (planted, kind) {
        (P::ResumedStaysAway, ChangeKind::Resume) => processing.due_at = SUSPENDED_DUE_AT,
        (P::ResendForgetsBackTo, ChangeKind::Resend) => {
            processing
                .again
                .iter_mut()
                .for_each(|it| it.range.back_to = None);
        }
        (P::WayBackFirst, ChangeKind::Resend) => {
            let again = std::mem::take(&mut processing.again);
            processing.again = again.into_iter().flat_map(way_back_first).collect();
        }
        (P::ResendLeavesComplete, ChangeKind::Resend) => {
            processing.complete = end == Some(sampled_to) && processing.planned.is_none();
        }
        (P::SkipBeyondCorrection, ChangeKind::Skip) => {
            let mut skipped = processing.excluded.iter_mut().filter(|it| !it.leads_on());
            if let (Some(range), Some(end)) = (skipped.next(), end) {
                range.interval.end = end;
                processing.last.end = end;
            }
        }
        (P::SkipDropsFlag, ChangeKind::Skip) => {
            unflag_excluded(processing);
        }
        (P::SkipLosesForeignId, ChangeKind::Skip) => {
            processing
                .excluded
                .iter_mut()
                .for_each(|it| it.usage_guid = None);
        }
        (P::SkipBills, ChangeKind::Skip) => processing.excluded.clear(),
        _ => {}
    }
    span
}

fn way_back_first(again: Again) -> Vec<Again> {
    let Some(interval) = again.range.way_back() else {
        return vec![again];
    };
    let part = |interval| Again {
        range: Excluded {
            interval,
            back_to: None,
            ..again.range.clone()
        },
        ..again.clone()
    };
    vec![part(interval), part(again.range.interval)]
}

/// What a skip does besides.
pub(crate) fn skipped(world: &mut World, before: &State, after: &mut State) {
    let planned = world.facts(before.span).planned;
    if let Some(usage) = planned.filter(|_| world.scenario.has(P::SkipPosts)) {
        world.count(after, usage);
    }
}
