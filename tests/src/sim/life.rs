//! Whether a process lives.

use std::sync::{Mutex, MutexGuard};

use tokio::sync::Notify;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Alive,
    Frozen,
    Dead,
}

#[derive(Debug)]
struct State {
    stage: Stage,
    /// What it becomes, after it has passed so many more times.
    next: Option<(usize, Stage)>,
}

/// The life of one process. All that it does to the world goes through [`Self::pass`]: one that is
/// frozen does not come through before it thaws, one that is dead never.
#[derive(Debug)]
pub(crate) struct Life {
    state: Mutex<State>,
    changed: Notify,
}

impl Life {
    pub(crate) fn new() -> Self {
        Self {
            state: Mutex::new(State {
                stage: Stage::Alive,
                next: None,
            }),
            changed: Notify::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nobody panics with it")
    }

    /// Changes the stage, unless the process is dead.
    pub(crate) fn set(&self, stage: Stage) {
        let mut now = self.state();
        if now.stage != Stage::Dead {
            now.stage = stage;
            now.next = None;
        }
        drop(now);
        self.changed.notify_waiters();
    }

    /// Changes the stage after the process has passed so many more times: in the middle of what
    /// it does, wherever that is.
    pub(crate) fn set_after(&self, passes: usize, stage: Stage) {
        self.state().next = Some((passes, stage));
    }

    pub(crate) fn stage(&self) -> Stage {
        self.state().stage
    }

    /// Waits until the stage is `stage`.
    pub(crate) async fn is(&self, stage: Stage) {
        loop {
            let changed = self.changed.notified();
            if self.stage() == stage {
                return;
            }
            changed.await;
        }
    }

    /// Goes on while the process is alive.
    pub(crate) async fn pass(&self) {
        self.count();
        loop {
            let changed = self.changed.notified();
            match self.stage() {
                Stage::Alive => return,
                Stage::Frozen => changed.await,
                Stage::Dead => std::future::pending().await,
            }
        }
    }

    fn count(&self) {
        let next = {
            let mut now = self.state();
            match &mut now.next {
                None => None,
                Some((0, stage)) => Some(*stage),
                Some((passes, _)) => {
                    *passes -= 1;
                    None
                }
            }
        };
        if let Some(stage) = next {
            self.set(stage);
        }
    }
}
