//! Values with numbers, so that states are small and each step of the driver is worked out once.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::rc::Rc;

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
pub(crate) type Map<K, V> = HashMap<K, V, BuildHasherDefault<Mixer>>;

/// Hashes small values fast and well.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Mixer(u64);

impl Hasher for Mixer {
    fn finish(&self) -> u64 {
        fold(self.0, 0x9E37_79B9_7F4A_7C15)
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u8(&mut self, number: u8) {
        self.write_u64(number.into());
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(number.into());
    }

    fn write_u64(&mut self, number: u64) {
        let mixed = fold(
            self.0 ^ number ^ 0xA076_1D64_78BD_642F,
            0xE703_7ED1_A0B4_28DB,
        );
        self.0 = mixed.wrapping_add(0x8EBC_6AF0_9C88_C6E3);
    }

    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }
}

fn fold(left: u64, right: u64) -> u64 {
    let product = u128::from(left) * u128::from(right);
    (product >> 64) as u64 ^ product as u64
}

pub(crate) fn hash_of(value: &impl Hash) -> u64 {
    let mut mixer = Mixer::default();
    value.hash(&mut mixer);
    mixer.finish()
}
