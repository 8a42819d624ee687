//! The simulation finds planted bugs. One that found none would prove nothing.

use sampler_simulation::{FORGETFUL, Mutant, run, shrink};

/// Runs seeds until one fails; what is wrong then must be said with one of these words. `first` is the one
/// of them that found it last: it is run before the others, which most of the time need not be run.
fn assert_found(mutant: Mutant, first: u64, seeds: u64, words: &[&str]) {
    assert_found_from(0, mutant, first, seeds, words);
}

fn assert_found_from(from: u64, mutant: Mutant, first: u64, seeds: u64, words: &[&str]) {
    assert!(first < seeds, "seed {first} is not among the first {seeds}");
    for seed in std::iter::once(first).chain(0..seeds) {
        let violations = run(from + seed, mutant).violations;
        if violations.is_empty() {
            continue;
        }
        let is_meant = |text: &String| words.iter().any(|word| text.contains(word));
        if violations.iter().any(is_meant) {
            println!("{mutant:?} is found by seed {seed}: {}", violations[0]);
            return;
        }
    }
    panic!("{mutant:?} is not found by {seeds} seeds");
}

#[test]
fn totals_that_forget_a_resend_are_found() {
    assert_found(Mutant::TotalsForgetResends, 4, 100, &["adds up"]);
}

#[test]
fn posting_what_takes_back_a_usage_that_never_counted_is_found() {
    assert_found(
        Mutant::PostsWhatIsWithheld,
        20,
        300,
        &["what never counted was taken back"],
    );
}

#[test]
fn an_entry_that_learns_before_its_span_that_a_usage_was_set_aside_is_found() {
    assert_found(
        Mutant::SetAsideUnknownToSpan,
        20,
        300,
        &["what never counted was taken back"],
    );
}

#[test]
fn a_lost_answer_that_is_not_noted_is_found() {
    assert_found(
        Mutant::ForgetsLostAnswers,
        406,
        600,
        &["no undecidable case explains that"],
    );
}

#[test]
fn executing_without_the_version_is_found() {
    assert_found(
        Mutant::ExecutedIgnoresVersion,
        0,
        300,
        &["noted as executed, but not counted"],
    );
}

#[test]
fn planning_without_the_version_is_found() {
    assert_found(
        Mutant::PlanIgnoresVersion,
        11,
        300,
        &["count upstream, and"],
    );
}

#[test]
fn a_random_id_per_attempt_is_found() {
    assert_found(Mutant::GuidPerAttempt, 0, 20, &["by target"]);
}

#[test]
fn timestamps_worked_out_at_sending_are_found() {
    assert_found(
        Mutant::TimestampPerAttempt,
        0,
        20,
        &["counts for the second time"],
    );
}

#[test]
fn taking_silence_for_consent_is_found() {
    assert_found(
        Mutant::FailureCountsAsAccepted,
        0,
        20,
        &["noted as executed, but not counted"],
    );
}

#[test]
fn forgetting_spans_too_early_is_found() {
    assert_found(Mutant::RetentionUntold, 0, 300, &["is kept 2 times"]);
}

#[test]
fn answering_before_keeping_is_found() {
    assert_found(Mutant::AcceptsUnknownOutcome, 0, 20, &["is kept 0 times"]);
}

#[test]
fn completing_too_early_is_found() {
    assert_found(Mutant::CompletesBeforeEnd, 0, 20, &["count upstream, and"]);
}

#[test]
fn believing_a_refusal_after_a_lost_command_is_found() {
    assert_found(
        Mutant::TrustsRefusalAfterLostCommand,
        11,
        300,
        &["and is kept now", "and was refused now"],
    );
}

#[test]
fn a_command_that_may_come_at_any_time_is_found() {
    assert_found(
        Mutant::CommandsWithoutTimeLimit,
        27,
        300,
        &["is kept", "has it"],
    );
}

#[test]
fn a_stop_without_a_correlation_id_is_found() {
    assert_found(
        Mutant::StopsWithoutCorrelationId,
        145,
        300,
        &["is kept 2 times", "is kept now"],
    );
}

#[test]
fn one_date_that_decides_is_found() {
    assert_found(Mutant::SingleDateDecides, 3, 300, &["was set aside"]);
}

#[test]
fn retries_by_a_clock_of_its_own_are_found() {
    assert_found(
        Mutant::RetriesByOwnClock,
        26,
        300,
        &["was set aside", "not all spans get complete"],
    );
}

#[test]
fn an_entry_that_is_written_after_the_note_is_found() {
    assert_found(Mutant::EntryAfterNote, 0, 20, &["but has no entry"]);
}

#[test]
fn totals_in_a_change_of_their_own_are_found() {
    assert_found(
        Mutant::TotalsApart,
        0,
        20,
        &["are sampled, but neither billed nor skipped"],
    );
}

#[test]
fn entries_that_expire_too_early_are_found() {
    assert_found(
        Mutant::ExpiresBeforeCompletion,
        0,
        50,
        &["expired before its span is complete"],
    );
}

#[test]
fn a_resend_with_other_bytes_is_found() {
    assert_found(
        Mutant::ResendsOtherBytes,
        0,
        50,
        &["was posted again with other content"],
    );
}

#[test]
fn a_probe_for_each_span_is_found() {
    assert_found(Mutant::ProbePerSpan, 4, 100, &["of one cause are probed"]);
}

#[test]
fn a_resumed_span_that_stays_away_is_found() {
    assert_found(
        Mutant::ResumedStaysAway,
        4,
        50,
        &["not all spans get complete"],
    );
}

#[test]
fn suspending_what_waits_is_found() {
    assert_found(
        Mutant::SuspendsWhatWaits,
        2,
        20,
        &["is suspended, and was never refused"],
    );
}

#[test]
fn a_stop_that_is_kept_while_the_start_of_its_update_is_refused_is_found() {
    assert_found(
        Mutant::UpdateOverlooksEnds,
        0,
        300,
        &["was halved, and nothing came in between"],
    );
}

/// A failing run is made short enough to be read.
#[test]
fn a_failing_seed_is_made_short() {
    let seed = (0..20).find(|seed| {
        !run(*seed, Mutant::FailureCountsAsAccepted)
            .violations
            .is_empty()
    });
    let shrunk = shrink(seed.unwrap(), Mutant::FailureCountsAsAccepted);
    assert!(!shrunk.outcome.violations.is_empty());
    assert!(shrunk.operations.len() <= 3, "{:#?}", shrunk.operations);
    assert!(shrunk.before > 10);
}

#[test]
fn posting_without_asking_is_found() {
    assert_found_from(
        FORGETFUL,
        Mutant::PostsWithoutAsking,
        11,
        100,
        &["counts for the second time"],
    );
}

#[test]
fn believing_at_once_that_a_usage_is_not_there_is_found() {
    assert_found_from(
        FORGETFUL,
        Mutant::BelievesAtOnce,
        46,
        300,
        &["counts for the second time"],
    );
}

#[test]
fn an_unclear_answer_that_is_believed_is_found() {
    assert_found_from(
        FORGETFUL,
        Mutant::BelievesNoAnswer,
        163,
        300,
        &["counts for the second time"],
    );
}
