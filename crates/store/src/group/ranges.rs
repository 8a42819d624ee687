//! One group for each shard range.

use std::sync::Arc;
use std::time::Duration;

use super::{Group, GroupMetrics, GroupWriter};
use crate::StoreError;

/// Groups of writes of one kind, one for each shard range. Each has permits and a queue of its own. So
/// a shard that is slow or unavailable delays only its own writes, and a command goes to one shard.
#[derive(Debug)]
pub struct GroupPerRange<W: GroupWriter> {
    groups: Arc<[Group<W>]>,
}

impl<W: GroupWriter> Clone for GroupPerRange<W> {
    fn clone(&self) -> Self {
        Self {
            groups: Arc::clone(&self.groups),
        }
    }
}

impl<W: GroupWriter> GroupPerRange<W> {
    /// A group for each of the `writers`. Callers wait at most for `time_limit`.
    pub fn new(writers: impl IntoIterator<Item = W>, time_limit: Duration) -> Self {
        Self::measured(writers, time_limit, &GroupMetrics::default())
    }

    /// The same, whose commands are measured.
    pub fn measured(
        writers: impl IntoIterator<Item = W>,
        time_limit: Duration,
        metrics: &GroupMetrics,
    ) -> Self {
        Self {
            groups: writers
                .into_iter()
                .map(|writer| Group::measured(writer, time_limit, metrics.clone()))
                .collect(),
        }
    }

    pub fn count(&self) -> usize {
        self.groups.len()
    }

    /// Sends a write to its range ([`Group::submit`]). A range that does not exist counts as the last
    /// one.
    pub async fn submit(
        &self,
        range: usize,
        write: Arc<W::Write>,
    ) -> Result<W::Answer, StoreError> {
        let last = self.groups.len().saturating_sub(1);
        match self.groups.get(range.min(last)) {
            Some(group) => group.submit(write).await,
            None => Err(StoreError::Overloaded),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use async_trait::async_trait;
    use futures_util::future::join_all;
    use tokio::time::Instant;

    use super::super::*;
    use super::*;

    /// How long a command takes at a shard that is well.
    const COMMAND: Duration = Duration::from_millis(10);
    const SHARDS: usize = 4;
    const WRITES: u32 = 2_000;

    /// A stand-in for a shard: each command takes its time, or, where the shard is frozen, never ends.
    #[derive(Debug)]
    struct Shard {
        is_frozen: bool,
        commands: Arc<Mutex<Vec<Vec<u32>>>>,
    }

    #[derive(Debug, thiserror::Error)]
    #[error("there is none")]
    struct NoFailure;

    impl CommandFailure for NoFailure {
        fn outcome(&self) -> WriteOutcome {
            WriteOutcome::Unknown
        }

        fn is_duplicate_key(&self) -> bool {
            false
        }

        fn may_still_execute(&self) -> bool {
            true
        }
    }

    #[async_trait]
    impl GroupWriter for Shard {
        type Write = u32;
        type Answer = u32;
        type Failure = NoFailure;

        fn size(_: &u32) -> usize {
            500
        }

        fn execution_limit(&self) -> Duration {
            Duration::from_secs(10)
        }

        fn outlasts_late_commands(_: &u32) -> bool {
            true
        }

        async fn send(&self, batch: &[Arc<u32>], _send_by: Instant) -> CommandResult<Self> {
            let numbers: Vec<u32> = batch.iter().map(|number| **number).collect();
            self.commands.lock().unwrap().push(numbers.clone());
            if self.is_frozen {
                std::future::pending::<()>().await;
            }
            tokio::time::sleep(COMMAND).await;
            Ok(numbers.into_iter().map(WriteResult::Settled).collect())
        }

        async fn resolve(&self, _: &[Arc<u32>]) -> Result<Vec<Resolution<u32>>, NoFailure> {
            Err(NoFailure)
        }
    }

    type Commands = Vec<Arc<Mutex<Vec<Vec<u32>>>>>;

    fn shards(frozen: Option<usize>) -> (GroupPerRange<Shard>, Commands) {
        let commands: Commands = (0..SHARDS).map(|_| Arc::default()).collect();
        let shard = |(number, commands): (usize, &Arc<Mutex<_>>)| Shard {
            is_frozen: frozen == Some(number),
            commands: Arc::clone(commands),
        };
        let writes = commands.iter().enumerate().map(shard);
        (
            GroupPerRange::new(writes, Duration::from_secs(11)),
            commands,
        )
    }

    fn range_of(number: u32) -> usize {
        number as usize % SHARDS
    }

    /// How long it takes until all writes of the shards that are not `excepted` are answered.
    async fn time_of_all_but(ranges: &GroupPerRange<Shard>, excepted: usize) -> Duration {
        let began = Instant::now();
        let writes = (0..WRITES).map(|number| {
            let ranges = ranges.clone();
            tokio::spawn(async move {
                let answer = ranges.submit(range_of(number), Arc::new(number)).await;
                (number, answer)
            })
        });
        let (awaited, others): (Vec<_>, Vec<_>) = writes
            .zip(0..)
            .map(|(task, number)| (range_of(number) != excepted, task))
            .partition(|(is_awaited, _)| *is_awaited);
        for answer in join_all(awaited.into_iter().map(|(_, task)| task)).await {
            let (number, answer) = answer.unwrap();
            assert_eq!(answer.unwrap(), number);
        }
        let elapsed = began.elapsed();
        for (_, task) in others {
            task.abort();
        }
        elapsed
    }

    #[tokio::test(start_paused = true)]
    async fn a_frozen_shard_holds_up_no_event_of_the_others() {
        let (well, _) = shards(None);
        let usual = time_of_all_but(&well, 2).await;
        let (ranges, commands) = shards(Some(2));
        let beside_frozen = time_of_all_but(&ranges, 2).await;
        assert_eq!(beside_frozen, usual);
        // All in one group, they wait for it.
        let (one, _) = shards(Some(0));
        let all = async |range: usize| one.submit(range, Arc::new(1)).await;
        let held_up = join_all((0..32).map(|_| all(0))).await;
        assert!(held_up.iter().all(Result::is_err));
        let sent = commands[2].lock().unwrap().len();
        assert_eq!(sent, COMMANDS_IN_FLIGHT, "no more than its own permits");
    }

    #[tokio::test(start_paused = true)]
    async fn a_command_touches_one_range() {
        let (ranges, commands) = shards(None);
        time_of_all_but(&ranges, SHARDS).await;
        for (range, commands) in commands.iter().enumerate() {
            let numbers = commands.lock().unwrap().concat();
            assert_eq!(numbers.len(), WRITES as usize / SHARDS);
            assert!(numbers.iter().all(|number| range_of(*number) == range));
        }
    }
}
