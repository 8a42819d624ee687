//! Panics in tasks count as violations.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

thread_local! {
    /// Panics of this thread, while they are caught.
    static CAUGHT: RefCell<Option<Vec<String>>> = const { RefCell::new(None) };
}

/// Runs a function; returns its result, if it has one, and all panics in it.
pub(crate) fn catch_panics<T>(run: impl FnOnce() -> T) -> (Option<T>, Vec<String>) {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let previous = take_hook();
        set_hook(Box::new(move |info| {
            let noted = CAUGHT.with_borrow_mut(|caught| {
                let noted = caught.as_mut().map(|list| list.push(info.to_string()));
                noted.is_some()
            });
            if !noted {
                previous(info);
            }
        }));
    });
    CAUGHT.set(Some(Vec::new()));
    let result = catch_unwind(AssertUnwindSafe(run));
    let caught = CAUGHT.take().unwrap_or_default();
    (result.ok(), caught)
}
