//! The dialect `browser_manager`: browser profiles on one machine, and the jobs that start, drive and close their browsers.
//!
//! A request with a side effect is a job of one of the kinds of `laneway-browser`, which knows their lane, keys and limits.
//! `decode.rs` reads requests, `submit.rs` enqueues jobs, `translate.rs` translates them back, `wire.rs` has the objects,
//! `error.rs` every error and the envelope of every answer. There is one file for the handlers of each noun.

mod callback;
mod config;
mod decode;
mod env;
mod error;
mod health;
mod jobs;
mod logs;
mod profiles;
mod settings;
mod socket;
mod stream;
mod submit;
mod tasks;
#[cfg(test)]
mod tests;
mod translate;
mod wire;

use axum::handler::Handler;
use axum::http::Method;
use axum::middleware::from_fn;
use laneway_browser::Browsers;
use laneway_core::{Mono, Span};
use laneway_runtime::caller::Right;
use laneway_runtime::dialect::{Answering, Dialect, Route};
use laneway_runtime::live_config::LiveConfig;
use laneway_runtime::webhooks::Guard;
use laneway_runtime::{Caller, Scheduler, Share, Shares};

use error::{Code, Problem, envelope};

pub use callback::{FORMAT, JobCallback};
pub use config::SECTION;

/// The name of the dialect in the configuration.
const NAME: &str = "browser_manager";
/// The lane of its jobs.
const LANE: &str = laneway_browser::kinds::LANE;
/// The key that an open browser holds.
const BROWSER_KEY: &str = laneway_browser::kinds::BROWSER_KEY;
/// The key that a job for a profile holds.
const PROFILE_KEY: &str = laneway_browser::kinds::PROFILE_KEY;
/// The kinds of its jobs.
const KINDS: [&str; 10] = laneway_browser::kinds::KINDS;

/// What every handler holds: handles and limits. The dialect itself has no state.
#[derive(Clone)]
struct BrowserManager {
    scheduler: Scheduler,
    live: LiveConfig,
    browsers: Browsers,
    guard: Guard,
    /// The limit on streams and sockets.
    listeners: Shares,
    /// When the agent started.
    started: Mono,
}

impl BrowserManager {
    /// A share for a stream or a socket.
    fn listener(&self, caller: &Caller) -> Result<Share, Problem> {
        self.listeners.take(caller).map_err(|none| {
            Problem::new(Code::RateLimited, format!("too many streams and sockets: {none}"))
                .retry_after(Span::secs(5))
        })
    }
}

/// The dialect over a running scheduler.
pub fn dialect(scheduler: Scheduler, live: LiveConfig, browsers: Browsers) -> Dialect {
    let streams = &live.current().streams;
    let listeners = Shares::new(streams.max, "streams.max", streams);
    let guard = Guard::live(live.subscribe());
    let started = scheduler.now().mono;
    let browser_manager = BrowserManager { scheduler, live, browsers, guard, listeners, started };
    let mut add = Adder { browser_manager: &browser_manager, routes: Vec::new() };
    add_env(&mut add);
    add_jobs(&mut add);
    let routes = add.routes;
    // Files of jobs are downloaded from the native path.
    Dialect { name: NAME, prefix: String::new(), routes, denied: error::denied, native: &["get_artifact"] }
}

fn add_env(add: &mut Adder<'_>) {
    let (submit, operate) = (Right::Submit, Right::Operate);
    add.post("/api/env/start", "start_env", submit, env::start_env);
    add.post("/api/env/close", "close_env", submit, env::close_env);
    add.post("/api/env/closeAll", "close_all_envs", submit, env::close_all_envs);
    add.post("/api/env/removeLocalCache", "remove_local_cache", submit, env::remove_local_cache);
    add.post("/api/env/cache/cleanCloud", "clean_cloud_cache", submit, env::clean_cloud_cache);
    add.post("/api/env/clone", "clone_env", submit, env::clone_env);
    add.post("/api/env/create/quick", "create_env", submit, profiles::create_env);
    add.post("/api/env/removeToRecycleBin/batch", "recycle_envs", submit, profiles::recycle_envs);
    add.post("/api/profiles/{id}/restore", "restore_profile", submit, profiles::restore_profile);
    add.get("/api/env/list", "list_envs", profiles::list_envs);
    add.post("/api/script/run", "run_script", submit, tasks::run_script);
    add.post("/api/proxy/test", "test_proxy", submit, tasks::test_proxy);
    add.post("/api/recycleBin/cleanup", "clean_recycle_bin", submit, tasks::clean_recycle_bin);
    add.post("/api/db/migrate", "migrate_db", operate, tasks::migrate_db);
}

fn add_jobs(add: &mut Adder<'_>) {
    add.get("/api/jobs", "list_manager_jobs", jobs::list_jobs);
    add.get("/api/jobs/{jobId}", "get_manager_job", jobs::get_job);
    add.post("/api/jobs/{jobId}/cancel", "cancel_manager_job", Right::Submit, jobs::cancel_job);
    add.get("/api/jobs/{jobId}/logs", "get_manager_job_logs", logs::get_logs);
    add.get("/api/jobs/{jobId}/artifacts", "list_manager_job_artifacts", jobs::list_artifacts);
    add.get("/api/logs/stream", "stream_manager_logs", stream::stream_logs);
    add.get("/ws/jobs/{jobId}", "follow_manager_job", socket::follow_job);
    add.get("/api/settings", "get_manager_settings", settings::get_settings);
    add.post("/api/settings", "change_manager_settings", Right::Administer, settings::change_settings);
    // On the main port the native API has this path.
    let health = add.route(&Method::GET, "/health", "get_manager_health", Right::Anyone, health::get_health);
    add.routes.push(health.giving_way());
}

/// Adds routes.
struct Adder<'a> {
    browser_manager: &'a BrowserManager,
    routes: Vec<Route>,
}

impl Adder<'_> {
    fn get<T: 'static>(
        &mut self,
        path: &'static str,
        operation: &'static str,
        handler: impl Handler<T, BrowserManager, Future = Answering>,
    ) {
        let route = self.route(&Method::GET, path, operation, Right::Look, handler);
        self.routes.push(route);
    }

    fn post<T: 'static>(
        &mut self,
        path: &'static str,
        operation: &'static str,
        right: Right,
        handler: impl Handler<T, BrowserManager, Future = Answering>,
    ) {
        let route = self.route(&Method::POST, path, operation, right, handler);
        self.routes.push(route);
    }

    /// A route whose answers get the envelope.
    fn route<T: 'static>(
        &self,
        method: &Method,
        path: &'static str,
        operation: &'static str,
        right: Right,
        handler: impl Handler<T, BrowserManager, Future = Answering>,
    ) -> Route {
        let route = Route::new(self.browser_manager, method, path, operation, right, handler);
        let handler = route.handler.clone().route_layer(from_fn(envelope));
        Route { handler, ..route }
    }
}
