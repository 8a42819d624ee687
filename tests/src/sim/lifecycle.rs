//! Whether a process lives.

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
    /// What it becomes, after it has passed so many more times.
    next: Option<(usize, ProcessState)>,
}

/// The life of one process. All that it does to the world goes through [`Self::pass`]: one that is
/// frozen does not come through before it thaws, one that is dead never.
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

    /// Changes the stage, unless the process is dead.
    pub(crate) fn set(&self, stage: ProcessState) {
        let mut now = self.state();
        if now.stage != ProcessState::Dead {
            now.stage = stage;
            now.next = None;
        }
        drop(now);
        self.changed.notify_waiters();
    }

    /// Changes the stage after the process has passed so many more times: in the middle of what
    /// it does, wherever that is.
    pub(crate) fn set_after(&self, checkpoints: usize, stage: ProcessState) {
        self.state().next = Some((checkpoints, stage));
    }

    pub(crate) fn stage(&self) -> ProcessState {
        self.state().stage
    }

    /// Waits until the stage is `stage`.
    pub(crate) async fn wait_for(&self, stage: ProcessState) {
        loop {
            let changed = self.changed.notified();
            if self.stage() == stage {
                return;
            }
            changed.await;
        }
    }

    /// Goes on while the process is alive.
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
