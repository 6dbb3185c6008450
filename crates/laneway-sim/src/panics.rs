//! Panics of the server, caught and reported like any other broken rule.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::Once;

use crate::violation::Violation;

thread_local! {
    static CATCHING: Cell<bool> = const { Cell::new(false) };
    static LAST: RefCell<String> = const { RefCell::new(String::new()) };
}

static HOOK: Once = Once::new();

/// Runs a part of the server. Its panic becomes a violation; panics elsewhere are left alone.
pub fn caught<T>(part: impl FnOnce() -> T) -> Result<T, Violation> {
    HOOK.call_once(|| {
        let usual = take_hook();
        set_hook(Box::new(move |info| {
            if CATCHING.get() {
                LAST.replace(info.to_string().replace('\n', " "));
            } else {
                usual(info);
            }
        }));
    });
    CATCHING.set(true);
    // What the server was doing is thrown away with the server, so it does not matter how it was left.
    let result = catch_unwind(AssertUnwindSafe(part));
    CATCHING.set(false);
    result.map_err(|_| Violation::new("panic", LAST.take()))
}
