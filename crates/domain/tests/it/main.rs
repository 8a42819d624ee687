//! Properties of the state machine, of usages and of ids, over spans of any kind.

mod guid;
mod machine;
mod support;
