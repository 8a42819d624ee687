//! Commands whose answer is lost or comes late.

use std::sync::atomic::Ordering;

use super::{End, LATE, REFUSED, Script, all_done, company, then};
use crate::StoreError;
use crate::group::COMMANDS_IN_FLIGHT;
use crate::group::settle::TRIES;

#[tokio::test]
async fn a_lost_answer_is_resolved_and_what_was_not_done_is_done() {
    let ends = [End::Lost { done: 2 }, End::Lost { done: 0 }, End::Done];
    let script = Script::of(then(&ends));
    let company = company(&script, 0);
    let (commands, answers) = company.together(&script, &[1; 4]).await;
    assert!(all_done(&answers), "{answers:?}");
    assert_eq!(commands, [vec![0, 1, 2, 3], vec![2, 3], vec![2, 3]]);
}

#[tokio::test]
async fn what_nobody_received_is_told_from_what_may_have_been_done() {
    let script = Script::of(then(&[End::Unavailable]));
    let (_, answers) = company(&script, 0).together(&script, &[1; 3]).await;
    let unavailable = |answer: &_| matches!(answer, Err(StoreError::Unavailable(_)));
    assert!(answers.iter().all(unavailable), "{answers:?}");

    // The first command may have got through, whatever becomes of the second.
    let script = Script::of(then(&[End::Lost { done: 0 }, End::Unavailable]));
    let (_, answers) = company(&script, 0).together(&script, &[1; 3]).await;
    let unknown = |answer: &_| matches!(answer, Err(StoreError::Unknown(_)));
    assert!(answers.iter().all(unknown), "{answers:?}");
}

/// Where a command has gone out, nobody is told that nothing was changed, or that it was refused.
#[tokio::test]
async fn what_cannot_be_resolved_is_unknown() {
    let ends: [&[End]; 3] = [
        &[End::Blind],
        &[End::Lost { done: 0 }, End::RefusedWith(0)],
        &[End::Lost { done: 0 }, End::RefusedWith(0), End::Unavailable],
    ];
    for ends in ends {
        let script = Script::of(then(ends));
        let (_, answers) = company(&script, 0).together(&script, &[1; 2]).await;
        let unknown = matches!(answers[0], Err(StoreError::Unknown(_)));
        assert!(unknown, "{ends:?}: {answers:?}");
    }
}

#[tokio::test]
async fn what_never_becomes_clear_ends_after_some_tries() {
    let script = Script::of(then(&[End::Silent { done: 0 }]));
    let (commands, answers) = company(&script, 0).together(&script, &[1; 2]).await;
    let unknown = |answer: &_| matches!(answer, Err(StoreError::Unknown(_)));
    assert!(answers.iter().all(unknown), "{answers:?}");
    assert_eq!(commands, vec![vec![0, 1]; TRIES]);
}

/// The answers to two writes that `resolve` refuses if it does not find them done.
async fn refused_when_resolved(ends: &[End]) -> Vec<Result<u32, StoreError>> {
    let script = Script::of(then(ends));
    script.refuses.store(true, Ordering::Relaxed);
    company(&script, 0).together(&script, &[1; 2]).await.1
}

fn are_unknown(answers: &[Result<u32, StoreError>]) -> bool {
    let unknown = |answer: &_| matches!(answer, Err(StoreError::Unknown(_)));
    answers.iter().all(unknown)
}

/// The server continues with a command whose answer is lost: what is refused now may be kept later.
#[tokio::test(start_paused = true)]
async fn nothing_is_refused_while_an_earlier_command_may_still_be_carried_out() {
    let answers = refused_when_resolved(&[End::Late]).await;
    assert!(are_unknown(&answers), "{answers:?}");

    let answers = refused_when_resolved(&[End::Lost { done: 1 }]).await;
    assert_eq!(answers[0].as_ref().ok(), Some(&0), "what is kept is kept");
    assert!(are_unknown(&answers[1..]), "{answers:?}");

    // Refused by the command itself, which came after the one that was lost.
    let script = Script::of(then(&[End::Lost { done: 0 }, End::EachRefused]));
    let (_, answers) = company(&script, 0).together(&script, &[1; 2]).await;
    assert!(are_unknown(&answers), "{answers:?}");
}

#[tokio::test(start_paused = true)]
async fn what_was_asked_after_the_last_moment_of_a_late_command_may_refuse() {
    for (slow, refused) in [(LATE / 2, false), (LATE * 2, true)] {
        let script = Script::of(then(&[End::Lost { done: 0 }, End::Slow(slow)]));
        let company = company(&script, 0);
        let occupants = company.occupied(&script).await;
        let task = company.submit(0, 1);
        company.until_waiting(1).await;
        company.permits.add_permits(COMMANDS_IN_FLIGHT + 1);
        // The first `resolve` finds nothing and refuses nothing, so that it is tried again.
        while script.commands().len() < COMMANDS_IN_FLIGHT + 2 {
            tokio::task::yield_now().await;
        }
        script.refuses.store(true, Ordering::Relaxed);
        company.permits.add_permits(1);
        let answer = task.await.unwrap();
        assert_eq!(
            answer.as_ref().ok() == Some(&REFUSED),
            refused,
            "{answer:?}"
        );
        assert_eq!(are_unknown(&[answer]), !refused);
        drop(occupants);
    }
}

#[tokio::test(start_paused = true)]
async fn a_command_that_the_server_gave_up_leaves_refusals_as_they_are() {
    let answers = refused_when_resolved(&[End::GivenUp]).await;
    let refused = |answer: &Result<u32, StoreError>| answer.as_ref().ok() == Some(&REFUSED);
    assert!(answers.iter().all(refused), "{answers:?}");
}
