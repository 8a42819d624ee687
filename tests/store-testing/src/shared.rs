//! Values that many states of the model have in common.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, OnceLock};

/// A value that states share until one of them changes it. It is hashed once, not in each of them: most
/// steps leave most of a state as it was, and states are told apart by their hashes.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Shared<T>(Arc<Hashed<T>>);

#[derive(Debug, Default)]
struct Hashed<T> {
    value: T,
    /// Of the value as it is, once somebody has asked for it.
    hash: OnceLock<u64>,
}

impl<T> Shared<T> {
    pub fn new(value: T) -> Self {
        let hash = OnceLock::new();
        Self(Arc::new(Hashed { value, hash }))
    }
}

impl<T: Clone> Shared<T> {
    /// The value, to be changed for this state alone.
    pub fn make_mut(&mut self) -> &mut T {
        let hashed = Arc::make_mut(&mut self.0);
        hashed.hash = OnceLock::new();
        &mut hashed.value
    }
}

impl<T> Deref for Shared<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0.value
    }
}

impl<T: Clone> DerefMut for Shared<T> {
    fn deref_mut(&mut self) -> &mut T {
        self.make_mut()
    }
}

impl<T: Hash> Hash for Shared<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let hash = self.0.hash.get_or_init(|| hash_of(&self.0.value));
        state.write_u64(*hash);
    }
}

/// What a value is told apart by.
pub fn hash_of(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

impl<T: Clone> Clone for Hashed<T> {
    /// A value that is cloned is about to be changed.
    fn clone(&self) -> Self {
        Self {
            value: self.value.clone(),
            hash: OnceLock::new(),
        }
    }
}

impl<T: PartialEq> PartialEq for Hashed<T> {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl<T: Eq> Eq for Hashed<T> {}

impl<T: PartialOrd> PartialOrd for Hashed<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        self.value.partial_cmp(&other.value)
    }
}

impl<T: Ord> Ord for Hashed<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.value.cmp(&other.value)
    }
}
