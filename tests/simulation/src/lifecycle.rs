//! The state of a process: running, frozen or dead.

use std::sync::{Mutex, MutexGuard};

use tokio::sync::Notify;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProcessState {
    Running,
    Frozen,
    Dead,
}

#[derive(Debug)]
struct State {
    stage: ProcessState,
    /// The next state, and after how many checkpoints it comes.
    next: Option<(usize, ProcessState)>,
}

/// The lifecycle of one process. Each of its effects on the world goes through
/// [`Self::checkpoint`]: a frozen process waits there until it thaws, a dead one for ever.
#[derive(Debug)]
pub(crate) struct Lifecycle {
    state: Mutex<State>,
    changed: Notify,
}

impl Lifecycle {
    pub(crate) fn new() -> Self {
        Self {
            state: Mutex::new(State {
                stage: ProcessState::Running,
                next: None,
            }),
            changed: Notify::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nobody panics with it")
    }

    /// Changes the state, unless the process is dead.
    pub(crate) fn set(&self, stage: ProcessState) {
        let mut now = self.state();
        if now.stage != ProcessState::Dead {
            now.stage = stage;
            now.next = None;
        }
        drop(now);
        self.changed.notify_waiters();
    }

    /// Changes the state after this many checkpoints, in the middle of whatever the process does.
    pub(crate) fn set_after(&self, checkpoints: usize, stage: ProcessState) {
        self.state().next = Some((checkpoints, stage));
    }

    pub(crate) fn stage(&self) -> ProcessState {
        self.state().stage
    }

    pub(crate) async fn wait_for(&self, stage: ProcessState) {
        loop {
            let changed = self.changed.notified();
            if self.stage() == stage {
                return;
            }
            changed.await;
        }
    }

    /// Returns while the process runs.
    pub(crate) async fn checkpoint(&self) {
        self.count();
        loop {
            let changed = self.changed.notified();
            match self.stage() {
                ProcessState::Running => return,
                ProcessState::Frozen => changed.await,
                ProcessState::Dead => std::future::pending().await,
            }
        }
    }

    fn count(&self) {
        let next = {
            let mut now = self.state();
            match &mut now.next {
                None => None,
                Some((0, stage)) => Some(*stage),
                Some((checkpoints, _)) => {
                    *checkpoints -= 1;
                    None
                }
            }
        };
        if let Some(stage) = next {
            self.set(stage);
        }
    }
}
