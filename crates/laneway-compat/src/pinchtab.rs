//! The dialect `pinchtab`: tasks for browser tabs.
//!
//! A task is a job of the kind `tab_action` in the lane `pinchtab`. `decode.rs` parses requests as leniently as
//! the original server, `translate.rs` translates tasks and jobs, `wire.rs` has the bodies, `error.rs` every
//! error. There is one file for the handlers of each noun.

mod action;
mod batch;
mod callback;
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

use axum::handler::Handler;
use axum::http::Method;
use axum::routing::{MethodFilter, on};
use laneway_runtime::caller::Right;
use laneway_runtime::live_config::LiveConfig;
use laneway_runtime::webhooks::Guard;
use laneway_runtime::{Scheduler, Tabs};

use crate::dialect::{Dialect, Route};

pub use callback::{FORMAT, TaskCallback};
pub use import::{ImportError, Imported, import};
pub use reload::{Config, reload};
pub use watcher::{ConfigWatcher, WATCH_INTERVAL};

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
        route(&pinchtab, &post, "/tasks", "submit_task", submit, tasks::submit_task),
        route(&pinchtab, &get, "/tasks", "list_tasks", look, tasks::list_tasks),
        route(&pinchtab, &post, "/tasks/batch", "submit_tasks", submit, batch::submit_tasks),
        // The router would match `batch` with the path above; here it is an id.
        route(&pinchtab, &get, "/tasks/batch", "get_task", look, tasks::get_no_task),
        route(&pinchtab, &get, "/tasks/{id}", "get_task", look, tasks::get_task),
        route(&pinchtab, &post, "/tasks/{id}/cancel", "cancel_task", submit, tasks::cancel_task),
        route(&pinchtab, &get, "/scheduler/stats", "get_scheduler_stats", look, stats::get_scheduler_stats),
        route(
            &pinchtab,
            &post,
            "/scheduler/reload",
            "reload_scheduler",
            administer,
            reload::reload_scheduler,
        ),
        route(&pinchtab, &post, "/tabs/{tabId}/action", "act_on_tab", submit, action::act_on_tab),
    ];
    Dialect { name: "pinchtab", routes, denied: error::denied, native: &[] }
}

fn route<T: 'static>(
    pinchtab: &Pinchtab,
    method: &Method,
    path: &'static str,
    operation: &'static str,
    right: Right,
    handler: impl Handler<T, Pinchtab>,
) -> Route {
    let filter = MethodFilter::try_from(method.clone()).expect("routes use common methods");
    let handler = on(filter, handler).with_state(pinchtab.clone());
    Route { method: method.clone(), path, operation, right, handler }
}
