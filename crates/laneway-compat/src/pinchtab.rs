//! The dialect `pinchtab`: tasks for browser tabs.
//!
//! A task is a job of the kind `tab_action` in the lane `pinchtab`. `decode.rs` parses requests as leniently as
//! the original server, `translate.rs` translates tasks and jobs, `wire.rs` has the bodies, `error.rs` every
//! error. There is one file for the handlers of each noun.

mod action;
mod batch;
mod callback;
mod config;
mod decode;
mod error;
mod import;
mod reload;
mod stats;
mod tasks;
#[cfg(test)]
mod tests;
mod time;
mod translate;
mod watcher;
mod wire;

use axum::http::Method;
use laneway_browser::Tabs;
use laneway_runtime::Scheduler;
use laneway_runtime::caller::Right;
use laneway_runtime::dialect::{Dialect, Route};
use laneway_runtime::live_config::LiveConfig;
use laneway_runtime::webhooks::Guard;

pub use callback::{FORMAT, TaskCallback};
pub use error::action_text;
pub use import::{ImportError, Imported, import};
pub use reload::{Config, reload};
pub use watcher::{ConfigWatcher, WATCH_INTERVAL};

pub use config::SECTION;

/// The name of the dialect in the configuration.
const NAME: &str = "pinchtab";

/// The lane of every task.
pub const LANE: &str = "pinchtab";

/// What every handler holds: handles and configuration. The dialect itself has no state.
#[derive(Clone)]
struct Pinchtab {
    scheduler: Scheduler,
    live: LiveConfig,
    tabs: Tabs,
    guard: Guard,
}

/// The dialect over a running scheduler.
pub fn dialect(scheduler: Scheduler, live: LiveConfig, tabs: Tabs) -> Dialect {
    let guard = Guard::live(live.subscribe());
    let pinchtab = Pinchtab { scheduler, live, tabs, guard };
    let (get, post) = (Method::GET, Method::POST);
    let (look, submit, administer) = (Right::Look, Right::Submit, Right::Administer);
    let routes = vec![
        Route::new(&pinchtab, &post, "/tasks", "submit_task", submit, tasks::submit_task),
        Route::new(&pinchtab, &get, "/tasks", "list_tasks", look, tasks::list_tasks),
        Route::new(&pinchtab, &post, "/tasks/batch", "submit_tasks", submit, batch::submit_tasks),
        // The router would match `batch` with the path above; here it is an id.
        Route::new(&pinchtab, &get, "/tasks/batch", "get_task", look, tasks::get_no_task),
        Route::new(&pinchtab, &get, "/tasks/{id}", "get_task", look, tasks::get_task),
        Route::new(&pinchtab, &post, "/tasks/{id}/cancel", "cancel_task", submit, tasks::cancel_task),
        Route::new(
            &pinchtab,
            &get,
            "/scheduler/stats",
            "get_scheduler_stats",
            look,
            stats::get_scheduler_stats,
        ),
        Route::new(
            &pinchtab,
            &post,
            "/scheduler/reload",
            "reload_scheduler",
            administer,
            reload::reload_scheduler,
        ),
        Route::new(&pinchtab, &post, "/tabs/{tabId}/action", "act_on_tab", submit, action::act_on_tab),
    ];
    Dialect { name: NAME, prefix: String::new(), routes, denied: error::denied, native: &[] }
}
