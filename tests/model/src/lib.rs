//! The model of the protocol: all that can happen to one target, in every order.
//!
//! [Stateright](https://docs.rs/stateright) goes through every state that a [`Scenario`] can come
//! to, and looks in each whether what must hold does hold. The simulation draws some orders of
//! events and runs the real programs in them; the model runs only their rules, but leaves no order
//! out.
//!
//! # What is real
//!
//! - What a worker does is what the [`Driver`](sampler_domain::Driver) asks for, the same machine
//!   that the worker carries out; the intervals, ids and usages are those of `sampler_domain`.
//! - What is kept changes by the rules of the store in memory
//!   ([`Table`](sampler_store_testing::memory::Table)), which passes the same contract suite as MongoDB.
//! - What a start or a stop does is decided by [`intake`](sampler_domain::intake), which receiver and store
//!   call, too. Only the order of a receiver's steps is written again: it reads the clock, then calls the
//!   store once.
//!
//! # What can happen
//!
//! - Requests and answers are lost, repeated and reordered: whatever the provider has sent may be
//!   taken to the store at any later time by any receiver, once, never or again and again.
//! - A receiver reads the clock, sleeps, and calls the store later, though not later than
//!   [`Scenario::request_limit`]. There are as many receivers as there are requests.
//! - Each worker is between two steps at any time: it has read, or decided on a change, or posted.
//!   There it may die, and lose its memory; or sleep while all others go on, and wake up with what
//!   it read long ago, for its memory is a part of the state.
//! - A change that is answered, and whose answer is lost, is a worker that dies after it.
//! - A usage that was posted arrives at any later time or never, whether its worker still waits for
//!   it or not. Abacus counts it unless `dedup_id` and timestamps are those of one that counts.
//! - A worker that hears an answer asks for the entry in the ledger, and only then for the change that
//!   records the execution; it may die or sleep before it hears the answer, and between the two.
//! - Abacus refuses usages. Then the worker keeps the cause and suspends the span; one span of the
//!   cause is tried again at any time, and once it is accepted, and the worker has recorded that, the
//!   others go on. A cause without spans is removed at any time.
//! - An operator gives up the usage of a suspended span that no worker has in hand, and later has it
//!   sent again. One worker does that in four steps; it may die or sleep between two of them, while the
//!   span continues, is complete or removed. Abacus may refuse it.
//! - Abacus sets a usage aside that it has accepted. One worker learns that, and records it on the span and
//!   then on the entry; it may die or sleep in between. A usage that is sent again counts.
//! - The clock advances at any time; complete spans are removed once their retention is over.
//!
//! # Liveness
//!
//! Stateright has `eventually`, but it does not see a run that goes round in circles, nor one that
//! joins another, and it knows no fairness: workers that die for ever never complete anything. So
//! liveness is an invariant here ([`LIVENESS`]). In every state, if faults cease and no more events
//! come, one fair run is worked out from there: what is on its way arrives, the workers go on with
//! what they remember, and then read what is due until nothing is. Every span with an end must be
//! complete by then. So no state is a dead end, and none waits for a particular worker.
//!
//! # What is bounded
//!
//! One target, at most two spans of up to three intervals by the minute, at most five moments of
//! one clock that all share, and two workers with one span in hand each. In MongoDB a start looks
//! for an overlap before it inserts; here both is one step. Changes of
//! the policy are left to the simulation. States are told apart by 64-bit hashes.

mod confirm;
mod explore;
mod liveness;
mod properties;
mod protocol;
mod receiver;
mod resend;
mod scenario;
mod state;
mod worker;

pub use confirm::Confirmer;
pub use explore::{Explored, explore, find_violations};
pub use properties::{
    ALL_REMOVED, AS_PLANNED, CONSERVATION, COUNTED_ONCE, DUE_BY_END, KEPT_ONCE, LEDGER, LIVENESS,
    MUST_HAPPEN, MUST_HOLD, ONE_OPEN_SPAN, PROBED, RESENT, SAME_BYTES, SAMPLED_COUNTS, SET_ASIDE,
    SKIPPED, SUSPENDED, SUSPENDED_BY_REFUSAL, TAKEN_BACK, WAKES_AFTER_REMOVAL, WINDOWS, WITHHELD,
    WITHIN_END,
};
pub use protocol::{Action, Protocol};
pub use receiver::Request;
pub use resend::Resender;
pub use scenario::{Event, Mutant, Scenario, at, start, stop};
pub use state::{History, Message, Provider, Removed, State, Worker};
