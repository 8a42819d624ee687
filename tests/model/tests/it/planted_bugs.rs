//! A protocol that is broken in one place breaks the model. One that found none would prove
//! nothing.

use sampler_model::{
    AS_PLANNED, CONSERVATION, COUNTED_ONCE, DUE_BY_END, KEPT_ONCE, LEDGER, LIVENESS, Mutant,
    ONE_OPEN_SPAN, Protocol, SAME_BYTES, SAMPLED_COUNTS, SUSPENDED_BY_REFUSAL, Scenario, WINDOWS,
    WITHIN_END, find_violations,
};

/// The model must find a way to break each of these.
fn assert_breaks(scenario: Scenario, properties: &[&'static str]) {
    let explored = find_violations(Protocol::new(scenario), properties);
    for property in properties {
        let Some(actions) = explored.found.get(property) else {
            panic!("{} states, and it holds: {property}", explored.states);
        };
        println!("{property}: broken by {} actions", actions.len());
    }
}

/// Tests by name: the scenario, what is broken in it, and what the model must find broken by that.
macro_rules! find {
    ($($(#[$why:meta])* $name:ident: $scenario:ident, $mutant:ident, [$($property:ident),+];)+) => {$(
        $(#[$why])*
        #[test]
        fn $name() {
            let broken = Scenario::$scenario().broken(Mutant::$mutant);
            assert_breaks(broken, &[$($property),+]);
        }
    )+};
}

find! {
    changes_without_the_version_are_found: update, IgnoresVersion, [SAMPLED_COUNTS, CONSERVATION];
    a_random_id_per_attempt_is_found: update, GuidPerAttempt, [COUNTED_ONCE, CONSERVATION];
    timestamps_worked_out_at_sending_are_found:
        update, TimestampPerAttempt, [COUNTED_ONCE, CONSERVATION];
    completing_without_comparing_the_end_is_found:
        update, CompletesWithoutComparingEnd, [CONSERVATION];
    /// It costs time and a detour, not money: what is planned beyond the end is taken back.
    changes_without_the_end_are_found: update, IgnoresEnd, [WITHIN_END, DUE_BY_END];
    posting_before_the_plan_is_kept_is_found:
        update, PostsBeforePlanning, [AS_PLANNED, CONSERVATION];
    ignoring_the_plans_of_dead_workers_is_found: update, IgnoresPlansOfOthers, [LIVENESS];
    starts_without_unique_indexes_are_found:
        update, StartsWithoutIndexes, [ONE_OPEN_SPAN, KEPT_ONCE];
    an_entry_that_is_written_after_the_note_is_found: update, EntryAfterNote, [LEDGER];
    totals_in_a_change_of_their_own_are_found: update, TotalsApart, [LEDGER];
    entries_that_expire_before_their_span_is_complete_are_found:
        update, ExpiresBeforeCompletion, [LEDGER];
    a_resend_with_other_bytes_is_found: update, ResendsOtherBytes, [SAME_BYTES];
    a_resumed_span_that_stays_away_is_found: refusal, ResumedStaysAway, [LIVENESS];
    /// A worker reads a suspended span that a stop has made due, sleeps, and puts it away.
    putting_away_what_was_resumed_is_found: refusal, PutsAwayWhatWasResumed, [LIVENESS];
    suspending_what_waits_is_found: refusal, SuspendsWhatWaits, [SUSPENDED_BY_REFUSAL];
    posting_what_is_skipped_is_found: skip, PostsWhatIsSkipped, [LEDGER, CONSERVATION];
    billing_what_is_skipped_is_found: skip, BillsWhatIsSkipped, [LEDGER, CONSERVATION];
    sending_something_else_again_is_found: resend, ResentSaysMore, [SAMPLED_COUNTS];
    a_mark_that_goes_before_the_totals_are_right_is_found: resend, ResentBeforeTotals, [LEDGER];
    totals_that_count_a_resend_twice_are_found: resend, ResentCountsTwice, [LEDGER];
    posting_what_takes_back_a_skipped_usage_is_found: skip, PostsWhatIsWithheld, [WINDOWS, LEDGER];
    posting_what_takes_back_a_usage_that_was_set_aside_is_found:
        aside, PostsWhatIsWithheld, [WINDOWS, LEDGER];
    sending_first_what_was_taken_back_is_found: resend, ResendsWithheldFirst, [WINDOWS];
    an_entry_that_learns_before_its_span_that_a_usage_was_set_aside_is_found:
        aside, SetAsideUnknownToSpan, [WINDOWS];
    a_resend_before_the_skip_is_noted_is_found: resend, ResendsBeforeTheNote, [LEDGER];
    posting_without_asking_what_is_never_remembered_is_found:
        forgets, PostsWithoutAsking, [COUNTED_ONCE];
    posting_without_asking_what_was_forgotten_is_found: horizon, PostsWithoutAsking, [COUNTED_ONCE];
    /// Two workers find that a usage is not there, and both post it.
    posting_what_is_not_there_without_a_note_is_found: forgets, NotThereUnnoted, [COUNTED_ONCE];
}

/// A repeat is admitted after the span that it would be recognised by was removed.
#[test]
fn a_retention_below_the_slack_is_found() {
    let mut broken = Scenario::update();
    broken.request_limit = 0;
    broken.retention = broken.slack.past - 10_000;
    assert_breaks(broken, &[KEPT_ONCE]);
}

/// The same, where a receiver looks at the clock in time and calls the store later: the retention
/// must be longer than the slack by what a receiver may take.
#[test]
fn a_retention_that_is_just_the_slack_is_found() {
    let mut broken = Scenario::update();
    broken.retention = broken.slack.past;
    assert_breaks(broken, &[KEPT_ONCE]);
}
