//! Permissions: one row for each operation of the API.
//!
//! The router takes its gates from this table, so an operation without a row cannot be mounted. Tenants are not in
//! it: every response is limited to the caller's tenant, and `Reach` says which operations concern the whole server.

use laneway_core::Role;
use laneway_runtime::caller::Right;

/// The permission that an operation requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Authority {
    /// The operation: the name of its handler, and its id in the OpenAPI document.
    pub operation: &'static str,
    /// The callers that have it.
    pub who: Who,
    /// Whether it concerns one tenant or the whole server.
    pub reach: Reach,
    /// True when it changes something. Every request then leaves an audit entry.
    pub mutates: bool,
}

/// The callers that may call an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// Every caller, without a token.
    Anyone,
    /// These roles.
    Roles(&'static [Role]),
}

/// Whether an operation concerns one tenant or the whole server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// The caller's tenant.
    Tenant,
    /// The whole server. The token must be server-wide.
    Server,
}

/// Roles that may read.
const READERS: Who = Who::Roles(&[Role::Admin, Role::Operator, Role::Submitter, Role::Viewer]);
/// Roles that may read statistics of the whole server.
const WATCHERS: Who = Who::Roles(&[Role::Admin, Role::Operator, Role::Viewer]);
/// Roles that may submit, change, cancel and retry jobs.
const SUBMITTERS: Who = Who::Roles(&[Role::Admin, Role::Operator, Role::Submitter]);
/// Roles that may lease and run jobs. Submitters may as well: an add-on often does both.
const WORKERS: Who = Who::Roles(&[Role::Admin, Role::Operator, Role::Submitter, Role::Worker]);
/// Roles that may operate the server, and delete jobs.
const OPERATORS: Who = Who::Roles(&[Role::Admin, Role::Operator]);
/// Roles that may change settings and tokens.
const ADMINS: Who = Who::Roles(&[Role::Admin]);

const fn reads(operation: &'static str, who: Who, reach: Reach) -> Authority {
    Authority { operation, who, reach, mutates: false }
}

const fn changes(operation: &'static str, who: Who, reach: Reach) -> Authority {
    Authority { operation, who, reach, mutates: true }
}

/// The table.
pub static TABLE: [Authority; 104] = [
    reads("get_index", Who::Anyone, Reach::Tenant),
    reads("get_livez", Who::Anyone, Reach::Tenant),
    reads("get_readyz", Who::Anyone, Reach::Tenant),
    reads("get_health", Who::Anyone, Reach::Tenant),
    reads("get_openapi", Who::Anyone, Reach::Tenant),
    reads("get_metrics", WATCHERS, Reach::Server),
    changes("submit_job", SUBMITTERS, Reach::Tenant),
    changes("submit_batch", SUBMITTERS, Reach::Tenant),
    reads("list_jobs", READERS, Reach::Tenant),
    changes("start_bulk", SUBMITTERS, Reach::Tenant),
    reads("list_operations", READERS, Reach::Tenant),
    reads("get_operation", READERS, Reach::Tenant),
    changes("cancel_operation", SUBMITTERS, Reach::Tenant),
    reads("count_jobs", READERS, Reach::Tenant),
    reads("get_job", READERS, Reach::Tenant),
    reads("get_job_payload", READERS, Reach::Tenant),
    changes("update_job", SUBMITTERS, Reach::Tenant),
    changes("delete_job", OPERATORS, Reach::Tenant),
    changes("cancel_job", SUBMITTERS, Reach::Tenant),
    changes("retry_job", SUBMITTERS, Reach::Tenant),
    reads("explain_job", READERS, Reach::Tenant),
    reads("list_job_logs", READERS, Reach::Tenant),
    reads("list_job_artifacts", READERS, Reach::Tenant),
    reads("get_artifact", READERS, Reach::Tenant),
    reads("list_job_events", READERS, Reach::Tenant),
    reads("list_attempts", READERS, Reach::Tenant),
    changes("submit_run", SUBMITTERS, Reach::Tenant),
    reads("list_runs", READERS, Reach::Tenant),
    reads("get_run", READERS, Reach::Tenant),
    changes("cancel_run", SUBMITTERS, Reach::Tenant),
    reads("list_deliveries", READERS, Reach::Tenant),
    reads("get_delivery", READERS, Reach::Tenant),
    changes("replay_delivery", SUBMITTERS, Reach::Tenant),
    reads("stream_events", READERS, Reach::Tenant),
    reads("get_stats", READERS, Reach::Tenant),
    reads("get_stats_history", READERS, Reach::Tenant),
    reads("list_lanes", READERS, Reach::Tenant),
    reads("get_lane", READERS, Reach::Tenant),
    changes("put_lane", OPERATORS, Reach::Server),
    changes("delete_lane", OPERATORS, Reach::Server),
    changes("pause_lane", OPERATORS, Reach::Server),
    changes("resume_lane", OPERATORS, Reach::Server),
    reads("list_instances", OPERATORS, Reach::Server),
    reads("get_instance", OPERATORS, Reach::Server),
    changes("put_instance", ADMINS, Reach::Server),
    changes("delete_instance", ADMINS, Reach::Server),
    reads("list_profiles", READERS, Reach::Tenant),
    changes("create_profile", SUBMITTERS, Reach::Tenant),
    reads("get_profile", READERS, Reach::Tenant),
    changes("update_profile", SUBMITTERS, Reach::Tenant),
    changes("delete_profile", SUBMITTERS, Reach::Tenant),
    changes("trash_profile", SUBMITTERS, Reach::Tenant),
    changes("restore_profile", SUBMITTERS, Reach::Tenant),
    reads("list_browsers", READERS, Reach::Tenant),
    reads("list_browser_tabs", READERS, Reach::Tenant),
    changes("start_browser", SUBMITTERS, Reach::Tenant),
    changes("stop_browser", SUBMITTERS, Reach::Tenant),
    reads("list_leases", READERS, Reach::Tenant),
    // Reports of workers are frequent and are in the event log, so they leave no audit entries.
    reads("request_lease", WORKERS, Reach::Tenant),
    reads("get_lease", Who::Roles(&Role::ALL), Reach::Tenant),
    reads("beat_lease", WORKERS, Reach::Tenant),
    reads("report_lease", WORKERS, Reach::Tenant),
    reads("release_lease", WORKERS, Reach::Tenant),
    changes("revoke_lease", SUBMITTERS, Reach::Tenant),
    reads("get_capacity", READERS, Reach::Tenant),
    reads("list_sessions", READERS, Reach::Tenant),
    reads("get_session", READERS, Reach::Tenant),
    changes("stop_session", SUBMITTERS, Reach::Tenant),
    changes("stop_whole_session", SUBMITTERS, Reach::Tenant),
    changes("reset_session", SUBMITTERS, Reach::Tenant),
    changes("reset_all_sessions", OPERATORS, Reach::Tenant),
    changes("report_session_usage", SUBMITTERS, Reach::Tenant),
    reads("list_schedules", READERS, Reach::Tenant),
    changes("create_schedule", SUBMITTERS, Reach::Tenant),
    reads("preview_schedule", READERS, Reach::Tenant),
    reads("list_all_schedule_firings", READERS, Reach::Tenant),
    reads("get_schedule", READERS, Reach::Tenant),
    changes("update_schedule", SUBMITTERS, Reach::Tenant),
    changes("delete_schedule", SUBMITTERS, Reach::Tenant),
    changes("pause_schedule", SUBMITTERS, Reach::Tenant),
    changes("resume_schedule", SUBMITTERS, Reach::Tenant),
    changes("fire_schedule", SUBMITTERS, Reach::Tenant),
    reads("list_schedule_firings", READERS, Reach::Tenant),
    reads("get_drain", OPERATORS, Reach::Server),
    changes("begin_drain", OPERATORS, Reach::Server),
    changes("end_drain", OPERATORS, Reach::Server),
    reads("get_config", OPERATORS, Reach::Server),
    changes("patch_config", ADMINS, Reach::Server),
    changes("reload_config", ADMINS, Reach::Server),
    reads("list_audit", OPERATORS, Reach::Tenant),
    reads("list_tokens", ADMINS, Reach::Tenant),
    changes("create_token", ADMINS, Reach::Tenant),
    reads("get_token", ADMINS, Reach::Tenant),
    changes("revoke_token", ADMINS, Reach::Tenant),
    changes("rotate_token", ADMINS, Reach::Tenant),
    reads("get_caller", Who::Roles(&Role::ALL), Reach::Tenant),
    reads("list_workers", READERS, Reach::Tenant),
    reads("get_worker", READERS, Reach::Tenant),
    changes("drain_worker", OPERATORS, Reach::Tenant),
    changes("rebind_worker", OPERATORS, Reach::Tenant),
    changes("change_worker_packages", OPERATORS, Reach::Tenant),
    reads("get_schema", Who::Anyone, Reach::Tenant),
    // The first frame authenticates the worker.
    reads("connect_worker", Who::Anyone, Reach::Tenant),
    reads("connect_v1_worker", Who::Anyone, Reach::Tenant),
];

/// The row of an operation.
pub fn of(operation: &str) -> Option<&'static Authority> {
    TABLE.iter().find(|row| row.operation == operation)
}

impl Authority {
    /// The permission that a route of a dialect requires.
    pub fn of_dialect(operation: &'static str, right: Right) -> Authority {
        match right {
            Right::Anyone | Right::Converse => reads(operation, Who::Anyone, Reach::Tenant),
            Right::Look => reads(operation, READERS, Reach::Tenant),
            Right::Submit => changes(operation, SUBMITTERS, Reach::Tenant),
            Right::Operate => changes(operation, OPERATORS, Reach::Tenant),
            // Reports of workers are frequent and are in the event log, so they leave no audit entries.
            Right::Work | Right::Report => reads(operation, WORKERS, Reach::Tenant),
            Right::Administer => changes(operation, ADMINS, Reach::Server),
        }
    }

    /// Whether a caller with this role and this reach may call it.
    pub fn allows(&self, role: Role, server_wide: bool) -> bool {
        let role_fits = match self.who {
            Who::Anyone => true,
            Who::Roles(roles) => roles.contains(&role),
        };
        role_fits && (server_wide || self.reach == Reach::Tenant)
    }
}
