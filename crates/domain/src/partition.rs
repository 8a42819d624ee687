//! Which worker owns which partition of the spans.
//!
//! Ownership only saves double work. That each usage counts once rests on versions and on
//! the upstream's duplicate check, never on this.

use sha1::{Digest, Sha1};
use uuid::Uuid;

use crate::{Key, Target};

/// How many partitions spans are divided into: more than there will ever be workers.
pub const PARTITIONS: u32 = 64;

/// The partition of a target: that of its key. Partitions are stored, so this function must never
/// change.
pub fn partition_of(target: &Target) -> u32 {
    Key::of(target).partition()
}

/// The partitions that `worker` owns while `workers` (with or without itself) are alive:
/// those for which it has the highest weight of all (rendezvous hashing). When a worker comes or
/// goes, only the partitions that it gets or had change hands.
pub fn partitions_of(worker: &str, workers: &[String]) -> Vec<u32> {
    let mine = (0..PARTITIONS).filter(|partition| {
        let own = weight(worker, *partition);
        workers
            .iter()
            .all(|other| other == worker || weight(other, *partition) < own)
    });
    mine.collect()
}

/// The weight of a worker for a partition; the name decides between equal hashes.
fn weight(worker: &str, partition: u32) -> (u128, &str) {
    let mut name = partition.to_be_bytes().to_vec();
    name.extend_from_slice(worker.as_bytes());
    (hash(&name), worker)
}

/// A hash that is the same on every machine and in every release: that of a UUID version 5 in the
/// empty namespace, without the bits that say so.
pub(crate) fn hash(bytes: &[u8]) -> u128 {
    let digest = Sha1::new()
        .chain_update(Uuid::nil())
        .chain_update(bytes)
        .finalize();
    let first = digest.first_chunk().expect("20 bytes");
    u128::from_be_bytes(*first) & 0x3fff_ffff_ffff_ffff
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
