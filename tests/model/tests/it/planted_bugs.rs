//! A protocol that is broken in one place breaks the model. One that found none would prove
//! nothing.

use sampler_model::{
    AS_PLANNED, CONSERVATION, COUNTED_ONCE, DUE_BY_END, KEPT_ONCE, LEDGER, LIVENESS, Mutant,
    ONE_OPEN_SPAN, SAME_BYTES, SAMPLED_COUNTS, SUSPENDED_BY_REFUSAL, Scenario, WINDOWS, WITHIN_END,
    find_violations,
};

/// The model must find a way to break each of these.
fn assert_breaks(scenario: Scenario, properties: &[&'static str]) {
    let explored = find_violations(scenario, properties);
    for property in properties {
        let Some(actions) = explored.found.get(property) else {
            panic!("{} states, and it holds: {property}", explored.states);
        };
        println!("{property}: broken by {} actions", actions.len());
    }
}

#[test]
fn changes_without_the_version_are_found() {
    let broken = Scenario::update().broken(Mutant::IgnoresVersion);
    assert_breaks(broken, &[SAMPLED_COUNTS, CONSERVATION]);
}

#[test]
fn a_random_id_per_attempt_is_found() {
    let broken = Scenario::update().broken(Mutant::GuidPerAttempt);
    assert_breaks(broken, &[COUNTED_ONCE, CONSERVATION]);
}

#[test]
fn timestamps_worked_out_at_sending_are_found() {
    let broken = Scenario::update().broken(Mutant::TimestampPerAttempt);
    assert_breaks(broken, &[COUNTED_ONCE, CONSERVATION]);
}

#[test]
fn completing_without_comparing_the_end_is_found() {
    let broken = Scenario::update().broken(Mutant::CompletesWithoutComparingEnd);
    assert_breaks(broken, &[CONSERVATION]);
}

/// It costs time and a detour, not money: what is planned beyond the end is taken back.
#[test]
fn changes_without_the_end_are_found() {
    let broken = Scenario::update().broken(Mutant::IgnoresEnd);
    assert_breaks(broken, &[WITHIN_END, DUE_BY_END]);
}

#[test]
fn posting_before_the_plan_is_kept_is_found() {
    let broken = Scenario::update().broken(Mutant::PostsBeforePlanning);
    assert_breaks(broken, &[AS_PLANNED, CONSERVATION]);
}

#[test]
fn ignoring_the_plans_of_dead_workers_is_found() {
    let broken = Scenario::update().broken(Mutant::IgnoresPlansOfOthers);
    assert_breaks(broken, &[LIVENESS]);
}

#[test]
fn starts_without_unique_indexes_are_found() {
    let broken = Scenario::update().broken(Mutant::StartsWithoutIndexes);
    assert_breaks(broken, &[ONE_OPEN_SPAN, KEPT_ONCE]);
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

#[test]
fn an_entry_that_is_written_after_the_note_is_found() {
    let broken = Scenario::update().broken(Mutant::EntryAfterNote);
    assert_breaks(broken, &[LEDGER]);
}

#[test]
fn totals_in_a_change_of_their_own_are_found() {
    let broken = Scenario::update().broken(Mutant::TotalsApart);
    assert_breaks(broken, &[LEDGER]);
}

#[test]
fn entries_that_expire_before_their_span_is_complete_are_found() {
    let broken = Scenario::update().broken(Mutant::ExpiresBeforeCompletion);
    assert_breaks(broken, &[LEDGER]);
}

#[test]
fn a_resend_with_other_bytes_is_found() {
    let broken = Scenario::update().broken(Mutant::ResendsOtherBytes);
    assert_breaks(broken, &[SAME_BYTES]);
}

#[test]
fn a_resumed_span_that_stays_away_is_found() {
    let broken = Scenario::refusal().broken(Mutant::ResumedStaysAway);
    assert_breaks(broken, &[LIVENESS]);
}

/// A worker reads a suspended span that a stop has made due, sleeps, and puts it away.
#[test]
fn putting_away_what_was_resumed_is_found() {
    let broken = Scenario::refusal().broken(Mutant::PutsAwayWhatWasResumed);
    assert_breaks(broken, &[LIVENESS]);
}

#[test]
fn suspending_what_waits_is_found() {
    let broken = Scenario::refusal().broken(Mutant::SuspendsWhatWaits);
    assert_breaks(broken, &[SUSPENDED_BY_REFUSAL]);
}

#[test]
fn posting_what_is_skipped_is_found() {
    let broken = Scenario::skip().broken(Mutant::PostsWhatIsSkipped);
    assert_breaks(broken, &[LEDGER, CONSERVATION]);
}

#[test]
fn billing_what_is_skipped_is_found() {
    let broken = Scenario::skip().broken(Mutant::BillsWhatIsSkipped);
    assert_breaks(broken, &[LEDGER, CONSERVATION]);
}

#[test]
fn sending_something_else_again_is_found() {
    let broken = Scenario::resend().broken(Mutant::ResentSaysMore);
    assert_breaks(broken, &[SAMPLED_COUNTS]);
}

#[test]
fn a_mark_that_goes_before_the_totals_are_right_is_found() {
    let broken = Scenario::resend().broken(Mutant::ResentBeforeTotals);
    assert_breaks(broken, &[LEDGER]);
}

#[test]
fn totals_that_count_a_resend_twice_are_found() {
    let broken = Scenario::resend().broken(Mutant::ResentCountsTwice);
    assert_breaks(broken, &[LEDGER]);
}

#[test]
fn posting_what_takes_back_a_skipped_usage_is_found() {
    let broken = Scenario::skip().broken(Mutant::PostsWhatIsWithheld);
    assert_breaks(broken, &[WINDOWS, LEDGER]);
}

#[test]
fn posting_what_takes_back_a_usage_that_was_set_aside_is_found() {
    let broken = Scenario::aside().broken(Mutant::PostsWhatIsWithheld);
    assert_breaks(broken, &[WINDOWS, LEDGER]);
}

#[test]
fn sending_first_what_was_taken_back_is_found() {
    let broken = Scenario::resend().broken(Mutant::ResendsWithheldFirst);
    assert_breaks(broken, &[WINDOWS]);
}

#[test]
fn an_entry_that_learns_before_its_span_that_a_usage_was_set_aside_is_found() {
    let broken = Scenario::aside().broken(Mutant::SetAsideUnknownToSpan);
    assert_breaks(broken, &[WINDOWS]);
}

#[test]
fn a_resend_before_the_skip_is_noted_is_found() {
    let broken = Scenario::resend().broken(Mutant::ResendsBeforeTheNote);
    assert_breaks(broken, &[LEDGER]);
}

#[test]
fn posting_without_asking_is_found() {
    for scenario in [Scenario::forgets(), Scenario::horizon()] {
        assert_breaks(scenario.broken(Mutant::PostsWithoutAsking), &[COUNTED_ONCE]);
    }
}

/// Two workers find that a usage is not there, and both post it.
#[test]
fn posting_what_is_not_there_without_a_note_is_found() {
    let broken = Scenario::forgets().broken(Mutant::NotThereUnnoted);
    assert_breaks(broken, &[COUNTED_ONCE]);
}
