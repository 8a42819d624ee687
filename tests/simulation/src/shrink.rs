//! Shrinks a failing run: leaves out operations as long as it still fails.

use super::generate::operations;
use super::mutant::Mutant;
use super::op::{Action, Op};
use super::run::{Outcome, run_operations};
use super::setup::Setup;

/// How often a failing list is run again, at most.
const TRIES: usize = 600;

/// A failing run with as few operations as could be found.
#[derive(Clone, Debug)]
pub struct Shrunk {
    /// What happens in it.
    pub operations: Vec<String>,
    /// How many operations there were before.
    pub before: usize,
    /// What goes wrong, and the log.
    pub outcome: Outcome,
}

/// Leaves out operations of a failing seed, first in pieces, then one by one.
pub fn shrink(seed: u64, mutant: Mutant) -> Shrunk {
    let setup = Setup::new(seed, mutant);
    let mut ops = operations(&setup);
    let before = ops.len();
    let fails = |ops: &[Op]| {
        let outcome = run_operations(setup.clone(), ops.to_vec(), false);
        !outcome.violations.is_empty()
    };
    // An event is fit because of those before it; where others make it fail, any may be left out.
    let unfit = without_fitness(&ops);
    if fails(&unfit) {
        ops = unfit;
    }
    let mut tries = 0;
    let mut piece = ops.len().div_ceil(2).max(1);
    loop {
        let mut shorter = false;
        let mut from = 0;
        while from < ops.len() && tries < TRIES {
            tries += 1;
            match without(&ops, from, piece).filter(|rest| fails(rest)) {
                Some(rest) => {
                    ops = rest;
                    shorter = true;
                }
                None => from += piece,
            }
        }
        match piece {
            1 if !shorter || tries >= TRIES => break,
            1 => {}
            _ => piece = piece.div_ceil(2),
        }
    }
    Shrunk {
        operations: ops.iter().map(ToString::to_string).collect(),
        before,
        outcome: run_operations(setup, ops, true),
    }
}

fn without_fitness(ops: &[Op]) -> Vec<Op> {
    let mut ops = ops.to_vec();
    for op in &mut ops {
        if let Action::Send(sending) = &mut op.act {
            sending.must_succeed = false;
        }
    }
    ops
}

/// The list without a piece; `None` if no operation of it may be left out.
fn without(ops: &[Op], from: usize, count: usize) -> Option<Vec<Op>> {
    let until = (from + count).min(ops.len());
    let must_stay = |op: &Op| matches!(&op.act, Action::Send(sending) if sending.must_succeed);
    let piece = ops[from..until].iter().filter(|op| must_stay(op)).cloned();
    let rest: Vec<Op> = ops[..from]
        .iter()
        .cloned()
        .chain(piece)
        .chain(ops[until..].iter().cloned())
        .collect();
    (rest.len() < ops.len()).then_some(rest)
}
