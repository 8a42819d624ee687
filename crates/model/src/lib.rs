//! The model of the protocol.

mod properties;
mod protocol;
mod receiver;
mod scenario;
mod state;
mod worker;

pub use properties::{
    ALL_REMOVED, AS_PLANNED, CONSERVATION, COUNTED_ONCE, KEPT_ONCE, LIVENESS, ONE_OPEN_SPAN,
    SAMPLED_COUNTS, TAKEN_BACK, WITHIN_END,
};
pub use protocol::{Action, Protocol};
pub use receiver::Request;
pub use scenario::{Event, Mutant, Scenario, at, start, stop};
pub use state::{Change, History, Memory, Message, Provider, State, Worker};
