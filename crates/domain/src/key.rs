//! The key of a target: 16 bytes in place of its six ids, wherever spans are found by their target.

use std::fmt;

use sha2::{Digest, Sha256};

use crate::Target;
use crate::partition::PARTITIONS;

/// What is hashed before the ids of a target. The number is the version of what follows it.
const OF_TARGET: &[u8] = b"sampler.target.1";

const BYTES: usize = 16;

/// The bits of a key behind those of its partition, within its first byte.
const BITS_BEHIND: u32 = u8::BITS - PARTITIONS.trailing_zeros();

/// The key of a target: the first 16 bytes of a SHA-256, so nobody can choose ids of two targets that
/// share one. Its first six bits are the partition.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key([u8; BYTES]);

impl Key {
    /// The key of a target. Keys are stored, so this function must never change.
    pub fn of(target: &Target) -> Self {
        Self::hash(OF_TARGET, &target.to_bytes())
    }

    pub fn from_bytes(bytes: [u8; BYTES]) -> Self {
        Self(bytes)
    }

    pub fn bytes(&self) -> &[u8; BYTES] {
        &self.0
    }

    pub fn partition(&self) -> u32 {
        u32::from(self.0[0] >> BITS_BEHIND)
    }

    fn hash(domain: &[u8], bytes: &[u8]) -> Self {
        let digest = Sha256::new()
            .chain_update(domain)
            .chain_update(bytes)
            .finalize();
        Self(*digest.first_chunk().expect("32 bytes"))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VECTORS: [([&str; 6], &str, u32); 5] = [
        (
            [
                "org",
                "space",
                "consumer",
                "postgres",
                "small",
                "instance-0",
            ],
            "79d8e140c0f048a0eeee3dafb400999c",
            30,
        ),
        (
            [
                "org",
                "space",
                "consumer",
                "postgres",
                "small",
                "instance-1",
            ],
            "cd496b6cb1e893a37061df187324a75f",
            51,
        ),
        (
            [
                "org",
                "space",
                "consumer",
                "postgres",
                "small",
                "instance-2",
            ],
            "e2cc79e6b10fd19b90c59ca9013de07f",
            56,
        ),
        (
            ["ö", "ö", "ö", "ö", "ö", "ö"],
            "c4ea19b1f54c5e025e785081ed169539",
            49,
        ),
        (
            ["", "", "", "", "", ""],
            "e5c062f6a51f22112a76d9ade2007f23",
            57,
        ),
    ];

    fn key(fields: [&str; 6]) -> Key {
        Key::of(&Target::from_store(fields))
    }

    /// Worked out with another program, `hashlib` of Python: what is stored must be found again.
    #[test]
    fn the_key_of_a_target_never_changes() {
        for (fields, expected, partition) in VECTORS {
            let key = key(fields);
            assert_eq!(
                (format!("{key:?}").as_str(), key.partition()),
                (expected, partition)
            );
        }
    }

    #[test]
    fn ids_that_begin_and_end_elsewhere_have_another_key() {
        let one = key(["ab", "c", "d", "e", "f", "g"]);
        assert_ne!(one, key(["a", "bc", "d", "e", "f", "g"]));
        assert_ne!(one, key(["c", "ab", "d", "e", "f", "g"]));
    }
}
