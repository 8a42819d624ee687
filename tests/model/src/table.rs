//! Values with numbers, so that states are small and each step of the driver is worked out once.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, Hash};
use std::rc::Rc;

use foldhash::quality::FixedState;

use crate::state::Number;

/// Each value has the number of its place.
#[derive(Debug)]
pub(crate) struct Table<T> {
    all: Vec<Rc<T>>,
    numbers: HashMap<Rc<T>, Number>,
}

impl<T: Eq + Hash> Table<T> {
    pub(crate) fn number(&mut self, value: T) -> Number {
        if let Some(number) = self.numbers.get(&value) {
            return *number;
        }
        let number = self.all.len() as Number;
        let value = Rc::new(value);
        self.all.push(value.clone());
        self.numbers.insert(value, number);
        number
    }

    pub(crate) fn get(&self, number: Number) -> Rc<T> {
        self.all[number as usize].clone()
    }
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self {
            all: Vec::new(),
            numbers: HashMap::new(),
        }
    }
}

/// A map whose keys are a few numbers.
pub(crate) type Map<K, V> = HashMap<K, V, FixedState>;

/// What states are told apart by.
pub(crate) type Marks = HashSet<u64, FixedState>;

pub(crate) fn mark_of(value: &impl Hash) -> u64 {
    FixedState::default().hash_one(value)
}
