//! Groups over writes that do as they are told.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use futures_util::future::join_all;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use super::settle::TRIES;
use super::*;

/// A write, by its number and its size.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Numbered(u32, usize);

/// How a command ends.
#[derive(Clone, Copy, Debug)]
enum End {
    /// All is done.
    Done,
    /// The answer says nothing of any of them; the first `done` are done.
    Silent { done: usize },
    /// The answer is lost.
    Lost,
    /// The answer says nothing, all is done, and nothing can be looked up.
    Blind,
    /// The command is refused as long as this write is in it.
    RefusedWith(u32),
    /// Nobody can be reached.
    Unavailable,
    /// Nobody has thought of that.
    Panic,
}

/// What the writes did, and what they are told to do.
#[derive(Debug, Default)]
struct Script {
    commands: Mutex<Vec<Vec<u32>>>,
    done: Mutex<Vec<u32>>,
    ends: Mutex<VecDeque<End>>,
    blind: AtomicBool,
}

impl Script {
    fn of(ends: impl IntoIterator<Item = End>) -> Arc<Self> {
        let ends = Mutex::new(ends.into_iter().collect());
        Arc::new(Self {
            ends,
            ..Self::default()
        })
    }

    /// The last one lasts.
    fn next(&self) -> End {
        let mut ends = self.ends.lock().unwrap();
        match ends.len() {
            0 => End::Done,
            1 => ends[0],
            _ => ends.pop_front().unwrap(),
        }
    }

    fn commands(&self) -> Vec<Vec<u32>> {
        self.commands.lock().unwrap().clone()
    }
}

/// Writes by a script; each command needs a permit.
#[derive(Debug)]
struct Scripted {
    script: Arc<Script>,
    permits: Arc<Semaphore>,
}

/// How a command fails.
#[derive(Debug, thiserror::Error)]
enum Failed {
    #[error("nobody can be reached")]
    Unreachable,
    #[error("the answer is lost")]
    Lost,
    #[error("no")]
    Refused,
    #[error("a unique index has it already")]
    Duplicate,
}

impl CommandFailure for Failed {
    fn outcome(&self) -> WriteOutcome {
        match self {
            Self::Unreachable => WriteOutcome::Unavailable,
            Self::Lost => WriteOutcome::Unknown,
            Self::Refused | Self::Duplicate => WriteOutcome::Refused,
        }
    }

    fn is_duplicate_key(&self) -> bool {
        matches!(self, Self::Duplicate)
    }
}

#[async_trait]
impl GroupWriter for Scripted {
    type Write = Numbered;
    type Answer = u32;
    type Failure = Failed;

    fn size(write: &Numbered) -> usize {
        write.1
    }

    async fn send(&self, batch: &[Arc<Numbered>], _send_by: Instant) -> CommandResult<Self> {
        let numbers: Vec<u32> = batch.iter().map(|write| write.0).collect();
        self.script.commands.lock().unwrap().push(numbers.clone());
        self.permits.acquire().await.unwrap().forget();
        let end = self.script.next();
        let does = |count: usize| {
            let mut done = self.script.done.lock().unwrap();
            done.extend(numbers.iter().take(count));
        };
        match end {
            End::Silent { done } => {
                does(done);
                Ok(numbers.iter().map(|_| WriteResult::Unresolved).collect())
            }
            End::Blind => {
                does(numbers.len());
                self.script.blind.store(true, Ordering::Relaxed);
                Ok(numbers.iter().map(|_| WriteResult::Unresolved).collect())
            }
            End::Lost => Err(Failed::Lost),
            End::RefusedWith(bad) if numbers.contains(&bad) => Err(Failed::Refused),
            End::Done | End::RefusedWith(_) => {
                does(numbers.len());
                Ok(numbers.into_iter().map(WriteResult::Settled).collect())
            }
            End::Unavailable => Err(Failed::Unreachable),
            End::Panic => panic!("on purpose"),
        }
    }

    async fn resolve(&self, batch: &[Arc<Numbered>]) -> Result<Vec<Resolution<u32>>, Failed> {
        if self.script.blind.load(Ordering::Relaxed) {
            return Err(Failed::Unreachable);
        }
        let done = self.script.done.lock().unwrap();
        let seen = |write: &Arc<Numbered>| done.contains(&write.0).then_some(Ok(write.0));
        Ok(batch.iter().map(seen).collect())
    }
}

type Task = JoinHandle<Result<u32, StoreError>>;

struct Company {
    group: Group<Scripted>,
    permits: Arc<Semaphore>,
}

fn company(script: &Arc<Script>, permits: usize) -> Company {
    let permits = Arc::new(Semaphore::new(permits));
    let writes = Scripted {
        script: Arc::clone(script),
        permits: Arc::clone(&permits),
    };
    let group = Group::new(writes, Duration::from_mins(1));
    Company { group, permits }
}

impl Company {
    fn submit(&self, number: u32, size: usize) -> Task {
        let group = self.group.clone();
        tokio::spawn(async move { group.submit(Arc::new(Numbered(number, size))).await })
    }

    /// Fills every permit with a command of one write, numbered from 1000.
    async fn occupied(&self, script: &Script) -> Vec<Task> {
        let mut tasks = Vec::new();
        for permit in 0..COMMANDS_IN_FLIGHT {
            tasks.push(self.submit(1_000 + u32::try_from(permit).unwrap(), 1));
            while script.commands().len() <= permit {
                tokio::task::yield_now().await;
            }
        }
        tasks
    }

    async fn until_waiting(&self, count: usize) {
        while self.group.lock().waiting.len() < count {
            tokio::task::yield_now().await;
        }
    }

    /// Submits writes while all permits are taken, then lets everything go. The commands that follow,
    /// and the answers.
    async fn together(
        &self,
        script: &Script,
        sizes: &[usize],
    ) -> (Vec<Vec<u32>>, Vec<Result<u32, StoreError>>) {
        let occupants = self.occupied(script).await;
        let numbers = 0..u32::try_from(sizes.len()).unwrap();
        let tasks: Vec<Task> = numbers
            .zip(sizes)
            .map(|(number, size)| self.submit(number, *size))
            .collect();
        self.until_waiting(tasks.len()).await;
        self.permits.add_permits(1_000);
        for occupant in occupants {
            assert!(occupant.await.unwrap().is_ok());
        }
        let answers = join_all(tasks).await.into_iter().map(Result::unwrap);
        let answers = answers.collect();
        (script.commands().split_off(COMMANDS_IN_FLIGHT), answers)
    }
}

/// An end for each of those that occupy the permits, then these.
fn then(ends: &[End]) -> Vec<End> {
    let mut all = vec![End::Done; COMMANDS_IN_FLIGHT];
    all.extend(ends);
    all
}

fn lengths(commands: &[Vec<u32>]) -> Vec<usize> {
    commands.iter().map(Vec::len).collect()
}

fn all_done(answers: &[Result<u32, StoreError>]) -> bool {
    let numbered = answers.iter().zip(0..);
    numbered
        .into_iter()
        .all(|(answer, number)| answer.as_ref().ok() == Some(&number))
}

#[test]
fn what_the_server_does_not_account_for_is_resolved() {
    let told = |matched| {
        let failed = vec![(1, Failed::Duplicate)];
        let write_results = write_results(matched, failed, 3, |index| index);
        write_results
            .iter()
            .map(|result| format!("{result:?}"))
            .collect::<Vec<_>>()
    };
    assert_eq!(told(2), ["Settled(0)", "Unresolved", "Settled(2)"]);
    assert_eq!(told(1), ["Unresolved"; 3]);
}

#[tokio::test]
async fn a_lone_write_goes_out_alone_and_at_once() {
    let script = Script::of([]);
    let company = company(&script, 2);
    for number in 0..2 {
        assert_eq!(company.submit(number, 1).await.unwrap().unwrap(), number);
    }
    assert_eq!(script.commands(), [vec![0], vec![1]]);
}

#[tokio::test]
async fn what_gathers_while_all_permits_are_taken_shares_one_command() {
    let script = Script::of([]);
    let company = company(&script, 0);
    let (commands, answers) = company.together(&script, &[1; 50]).await;
    assert!(all_done(&answers), "{answers:?}");
    assert_eq!(commands, [(0..50).collect::<Vec<_>>()]);
}

#[tokio::test]
async fn many_writes_are_shared_out_evenly_among_the_permits() {
    let script = Script::of([]);
    let (commands, answers) = company(&script, 0).together(&script, &[1; 300]).await;
    assert!(all_done(&answers));
    assert_eq!(lengths(&commands), [76, 76, 76, 72]);
}

#[tokio::test]
async fn a_command_is_bounded_in_writes_and_in_bytes() {
    let script = Script::of([]);
    let (commands, answers) = company(&script, 0).together(&script, &[1; 1_100]).await;
    assert!(all_done(&answers));
    assert_eq!(lengths(&commands), [256, 256, 256, 256, 76]);

    let script = Script::of([]);
    let third = COMMAND_BYTES / 3;
    let sizes = [third, third, third, third, 3 * COMMAND_BYTES, 1];
    let (commands, answers) = company(&script, 0).together(&script, &sizes).await;
    assert!(all_done(&answers));
    assert_eq!(commands, [vec![0, 1, 2], vec![3], vec![4], vec![5]]);
}

#[tokio::test]
async fn what_is_known_of_some_is_not_asked_again() {
    let script = Script::of(then(&[End::Silent { done: 3 }, End::Done]));
    let company = company(&script, 0);
    let (commands, answers) = company.together(&script, &[1; 5]).await;
    assert!(all_done(&answers), "{answers:?}");
    assert_eq!(commands, [vec![0, 1, 2, 3, 4], vec![3, 4]]);
}

#[tokio::test]
async fn nobody_suffers_for_a_neighbour_that_is_refused() {
    let script = Script::of(then(&[End::RefusedWith(1)]));
    let company = company(&script, 0);
    let (commands, answers) = company.together(&script, &[1; 3]).await;
    assert!(matches!(answers[1], Err(StoreError::Refused(_))));
    assert!(answers[0].is_ok() && answers[2].is_ok(), "{answers:?}");
    assert_eq!(commands, [vec![0, 1, 2], vec![0], vec![1], vec![2]]);
}

fn are_unknown(answers: &[Result<u32, StoreError>]) -> bool {
    let unknown = |answer: &_| matches!(answer, Err(StoreError::Unknown(_)));
    answers.iter().all(unknown)
}

/// It may be carried out later, whatever a read says now.
#[tokio::test]
async fn a_command_without_an_answer_is_unknown_and_not_sent_again() {
    let script = Script::of(then(&[End::Lost]));
    let (commands, answers) = company(&script, 0).together(&script, &[1; 3]).await;
    assert!(are_unknown(&answers), "{answers:?}");
    assert_eq!(commands.len(), 1);
}

#[tokio::test]
async fn what_nobody_received_is_not_unknown() {
    let script = Script::of(then(&[End::Unavailable]));
    let (_, answers) = company(&script, 0).together(&script, &[1; 3]).await;
    let unavailable = |answer: &_| matches!(answer, Err(StoreError::Unavailable(_)));
    assert!(answers.iter().all(unavailable), "{answers:?}");
}

#[tokio::test]
async fn what_cannot_be_resolved_is_unknown() {
    let script = Script::of(then(&[End::Blind]));
    let (_, answers) = company(&script, 0).together(&script, &[1; 2]).await;
    assert!(are_unknown(&answers), "{answers:?}");
}

#[tokio::test]
async fn what_never_becomes_clear_ends_after_some_tries() {
    let script = Script::of(then(&[End::Silent { done: 0 }]));
    let (commands, answers) = company(&script, 0).together(&script, &[1; 2]).await;
    assert!(are_unknown(&answers), "{answers:?}");
    assert_eq!(commands, vec![vec![0, 1]; TRIES]);
}

#[tokio::test]
async fn what_nobody_waits_for_is_not_tried_again() {
    let ends = [End::Silent { done: 0 }, End::Silent { done: 0 }, End::Done];
    let script = Script::of(then(&ends));
    let company = company(&script, 0);
    let occupants = company.occupied(&script).await;
    let (gone, stays) = (company.submit(0, 1), company.submit(1, 1));
    company.until_waiting(2).await;
    company.permits.add_permits(COMMANDS_IN_FLIGHT);
    while script.commands().len() == COMMANDS_IN_FLIGHT {
        tokio::task::yield_now().await;
    }
    gone.abort();
    assert!(gone.await.unwrap_err().is_cancelled());
    company.permits.add_permits(10);
    assert_eq!(stays.await.unwrap().unwrap(), 1);
    assert_eq!(
        script.commands()[COMMANDS_IN_FLIGHT..],
        [vec![0, 1], vec![1], vec![1]]
    );
    drop(occupants);
}

#[tokio::test]
async fn there_is_an_end_to_what_may_wait() {
    let script = Script::of([]);
    let company = company(&script, 0);
    let occupants = company.occupied(&script).await;
    let tasks: Vec<Task> = (0..u32::try_from(QUEUE).unwrap())
        .map(|number| company.submit(number, 1))
        .collect();
    company.until_waiting(QUEUE).await;
    let full = company.submit(1_000_000, 1).await.unwrap();
    assert!(matches!(full, Err(StoreError::Overloaded)), "{full:?}");
    company.permits.add_permits(QUEUE);
    let answers: Vec<_> = join_all(tasks)
        .await
        .into_iter()
        .map(Result::unwrap)
        .collect();
    assert!(all_done(&answers));
    drop(occupants);
}

/// Its caller has not gone away, because nothing of the program ran.
#[tokio::test(start_paused = true)]
async fn what_waited_while_the_program_was_frozen_does_not_go_out() {
    let script = Script::of([]);
    let company = company(&script, 10);
    let (caller, answer) = oneshot::channel();
    let frozen = Waiting {
        write: Arc::new(Numbered(0, 1)),
        caller,
        until: Instant::now(),
        span: Span::none(),
    };
    assert!(company.group.join(frozen));
    assert!(answer.await.is_err(), "nobody tells the outcome");
    assert_eq!(company.submit(1, 1).await.unwrap().unwrap(), 1);
    assert_eq!(script.commands(), [vec![1]]);
}

/// A link that swallows an answer.
#[tokio::test(start_paused = true)]
async fn a_command_that_never_ends_keeps_no_permit() {
    let script = Script::of([]);
    let company = company(&script, 0);
    let occupants = company.occupied(&script).await;
    for occupant in occupants {
        let answer = occupant.await.unwrap();
        assert!(matches!(answer, Err(StoreError::Unknown(_))), "{answer:?}");
    }
    company.permits.add_permits(COMMANDS_IN_FLIGHT + 1);
    assert_eq!(company.submit(0, 1).await.unwrap().unwrap(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_command_that_panics_keeps_no_permit() {
    let script = Script::of(
        [End::Panic; COMMANDS_IN_FLIGHT]
            .into_iter()
            .chain([End::Done]),
    );
    let company = company(&script, 0);
    let occupants = company.occupied(&script).await;
    company.permits.add_permits(COMMANDS_IN_FLIGHT + 1);
    for occupant in occupants {
        let answer = occupant.await.unwrap();
        assert!(matches!(answer, Err(StoreError::Unknown(_))), "{answer:?}");
    }
    assert_eq!(company.submit(0, 1).await.unwrap().unwrap(), 0);
}

#[tokio::test]
async fn a_caller_that_goes_away_takes_nobody_along() {
    let script = Script::of([]);
    let company = company(&script, 0);
    let occupants = company.occupied(&script).await;
    let gone = company.submit(0, 1);
    let stays = company.submit(1, 1);
    company.until_waiting(2).await;
    gone.abort();
    assert!(gone.await.unwrap_err().is_cancelled());
    company.permits.add_permits(10);
    assert_eq!(stays.await.unwrap().unwrap(), 1);
    // It had not gone out yet, so it need not.
    assert_eq!(script.commands().last().unwrap(), &[1]);
    drop(occupants);
}
