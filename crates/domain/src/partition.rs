//! Which worker looks after which span.
//!
//! Ownership only saves double work. That each usage counts once rests on versions and on
//! Abacus's duplicate check, never on this.

use uuid::Uuid;

use crate::Target;

/// How many partitions spans are divided into: more than there will ever be workers.
pub const PARTITIONS: u32 = 64;

/// The partition of a target. It is stored, so this function must never change.
pub fn partition_of(target: &Target) -> u32 {
    u32::try_from(hash(&target.to_bytes()) % u128::from(PARTITIONS)).expect("below PARTITIONS")
}

/// The partitions that `worker` looks after while `workers` (itself among them or not) are alive:
/// those for which it has the highest weight of all (rendezvous hashing). When a worker comes or
/// goes, only the partitions that it gets or had change hands.
pub fn partitions_of(worker: &str, workers: &[String]) -> Vec<u32> {
    let mine = |partition: &u32| {
        let own = weight(worker, *partition);
        workers
            .iter()
            .all(|other| other == worker || weight(other, *partition) < own)
    };
    (0..PARTITIONS).filter(mine).collect()
}

/// The weight of a worker for a partition; the name decides between equal hashes.
fn weight(worker: &str, partition: u32) -> (u128, &str) {
    let mut name = partition.to_be_bytes().to_vec();
    name.extend_from_slice(worker.as_bytes());
    (hash(&name), worker)
}

/// A hash that is the same on every machine and in every release: that of a UUID version 5,
/// without the bits that say so.
fn hash(bytes: &[u8]) -> u128 {
    Uuid::new_v5(&Uuid::nil(), bytes).as_u128() & 0x3fff_ffff_ffff_ffff
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workers(count: usize) -> Vec<String> {
        (0..count)
            .map(|number| format!("worker-{number}"))
            .collect()
    }

    #[test]
    fn each_partition_has_one_owner() {
        for count in 1..=9 {
            let workers = workers(count);
            let mut owned: Vec<u32> = workers
                .iter()
                .flat_map(|worker| partitions_of(worker, &workers))
                .collect();
            owned.sort_unstable();
            assert_eq!(
                owned,
                (0..PARTITIONS).collect::<Vec<_>>(),
                "{count} workers"
            );
        }
    }

    #[test]
    fn a_worker_that_goes_leaves_the_others_what_they_had() {
        let all = workers(5);
        let rest = &all[..4];
        for worker in rest {
            let before = partitions_of(worker, &all);
            let after = partitions_of(worker, rest);
            assert!(before.iter().all(|partition| after.contains(partition)));
        }
    }

    #[test]
    fn a_worker_alone_or_unknown_to_the_others_owns_its_share() {
        assert_eq!(partitions_of("a", &[]).len(), PARTITIONS as usize);
        let share = partitions_of("a", &workers(3)).len();
        assert!((4..32).contains(&share), "{share}");
    }
}
