//! Who may do what: one row for each operation of the API.
//!
//! The router takes its gates from this table, so an operation without a row cannot be mounted. Tenants are not in it:
//! what a caller sees is always cut to its tenant, and `Reach` says which operations touch the whole server.

use laneway_core::Role;
use laneway_runtime::caller::Right;

/// What an operation asks of its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Authority {
    /// The operation: the name of its handler, and its id in the OpenAPI document.
    pub operation: &'static str,
    /// Who may.
    pub who: Who,
    /// What it touches.
    pub reach: Reach,
    /// True when it changes something: then every call leaves a line in the audit list.
    pub mutates: bool,
}

/// Who may call an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// Everybody, without a token.
    Anyone,
    /// These roles.
    Roles(&'static [Role]),
}

/// What an operation touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// What is the caller's tenant's.
    Tenant,
    /// What every tenant shares: the token must be server-wide.
    Server,
}

/// Who may look.
const READERS: Who = Who::Roles(&[Role::Admin, Role::Operator, Role::Submitter, Role::Viewer]);
/// Who may look at the whole server.
const WATCHERS: Who = Who::Roles(&[Role::Admin, Role::Operator, Role::Viewer]);
/// Who may submit, cancel and retry jobs.
const SUBMITTERS: Who = Who::Roles(&[Role::Admin, Role::Operator, Role::Submitter]);
/// Who may take and run jobs. Those who submit may, too: add-ons are often both.
const WORKERS: Who = Who::Roles(&[Role::Admin, Role::Operator, Role::Submitter, Role::Worker]);
/// Who may run the place.
const OPERATORS: Who = Who::Roles(&[Role::Admin, Role::Operator]);
/// Who may change settings and tokens.
const ADMINS: Who = Who::Roles(&[Role::Admin]);

const fn looks(operation: &'static str, who: Who, reach: Reach) -> Authority {
    Authority { operation, who, reach, mutates: false }
}

const fn changes(operation: &'static str, who: Who, reach: Reach) -> Authority {
    Authority { operation, who, reach, mutates: true }
}

/// THE table.
pub static TABLE: [Authority; 85] = [
    looks("get_index", Who::Anyone, Reach::Tenant),
    looks("get_livez", Who::Anyone, Reach::Tenant),
    looks("get_readyz", Who::Anyone, Reach::Tenant),
    looks("get_health", Who::Anyone, Reach::Tenant),
    looks("get_openapi", Who::Anyone, Reach::Tenant),
    looks("get_metrics", WATCHERS, Reach::Server),
    changes("submit_job", SUBMITTERS, Reach::Tenant),
    changes("submit_batch", SUBMITTERS, Reach::Tenant),
    looks("list_jobs", READERS, Reach::Tenant),
    looks("get_job", READERS, Reach::Tenant),
    looks("get_job_payload", READERS, Reach::Tenant),
    changes("cancel_job", SUBMITTERS, Reach::Tenant),
    changes("retry_job", SUBMITTERS, Reach::Tenant),
    looks("explain_job", READERS, Reach::Tenant),
    looks("list_job_logs", READERS, Reach::Tenant),
    looks("list_job_artifacts", READERS, Reach::Tenant),
    looks("get_artifact", READERS, Reach::Tenant),
    looks("list_job_events", READERS, Reach::Tenant),
    looks("list_attempts", READERS, Reach::Tenant),
    changes("submit_run", SUBMITTERS, Reach::Tenant),
    looks("list_runs", READERS, Reach::Tenant),
    looks("get_run", READERS, Reach::Tenant),
    changes("cancel_run", SUBMITTERS, Reach::Tenant),
    looks("list_deliveries", READERS, Reach::Tenant),
    looks("get_delivery", READERS, Reach::Tenant),
    changes("replay_delivery", SUBMITTERS, Reach::Tenant),
    looks("stream_events", READERS, Reach::Tenant),
    looks("get_stats", READERS, Reach::Tenant),
    looks("list_lanes", READERS, Reach::Tenant),
    looks("get_lane", READERS, Reach::Tenant),
    changes("put_lane", OPERATORS, Reach::Server),
    changes("delete_lane", OPERATORS, Reach::Server),
    changes("pause_lane", OPERATORS, Reach::Server),
    changes("resume_lane", OPERATORS, Reach::Server),
    looks("list_instances", OPERATORS, Reach::Server),
    looks("get_instance", OPERATORS, Reach::Server),
    changes("put_instance", ADMINS, Reach::Server),
    changes("delete_instance", ADMINS, Reach::Server),
    looks("list_leases", READERS, Reach::Tenant),
    // Workers speak often, and what they say is in the jobs' trails: it leaves no lines in the audit list.
    looks("request_lease", WORKERS, Reach::Tenant),
    looks("get_lease", Who::Roles(&Role::ALL), Reach::Tenant),
    looks("beat_lease", WORKERS, Reach::Tenant),
    looks("report_lease", WORKERS, Reach::Tenant),
    looks("release_lease", WORKERS, Reach::Tenant),
    changes("revoke_lease", SUBMITTERS, Reach::Tenant),
    looks("get_capacity", READERS, Reach::Tenant),
    looks("list_sessions", READERS, Reach::Tenant),
    looks("get_session", READERS, Reach::Tenant),
    changes("stop_session", SUBMITTERS, Reach::Tenant),
    changes("stop_whole_session", SUBMITTERS, Reach::Tenant),
    changes("reset_session", SUBMITTERS, Reach::Tenant),
    changes("reset_all_sessions", OPERATORS, Reach::Tenant),
    changes("report_session_usage", SUBMITTERS, Reach::Tenant),
    looks("list_schedules", READERS, Reach::Tenant),
    changes("create_schedule", SUBMITTERS, Reach::Tenant),
    looks("preview_schedule", READERS, Reach::Tenant),
    looks("list_all_schedule_firings", READERS, Reach::Tenant),
    looks("get_schedule", READERS, Reach::Tenant),
    changes("update_schedule", SUBMITTERS, Reach::Tenant),
    changes("delete_schedule", SUBMITTERS, Reach::Tenant),
    changes("pause_schedule", SUBMITTERS, Reach::Tenant),
    changes("resume_schedule", SUBMITTERS, Reach::Tenant),
    changes("fire_schedule", SUBMITTERS, Reach::Tenant),
    looks("list_schedule_firings", READERS, Reach::Tenant),
    looks("get_drain", OPERATORS, Reach::Server),
    changes("begin_drain", OPERATORS, Reach::Server),
    changes("end_drain", OPERATORS, Reach::Server),
    looks("get_config", OPERATORS, Reach::Server),
    changes("patch_config", ADMINS, Reach::Server),
    changes("reload_config", ADMINS, Reach::Server),
    looks("list_audit", OPERATORS, Reach::Tenant),
    looks("list_tokens", ADMINS, Reach::Tenant),
    changes("create_token", ADMINS, Reach::Tenant),
    looks("get_token", ADMINS, Reach::Tenant),
    changes("revoke_token", ADMINS, Reach::Tenant),
    changes("rotate_token", ADMINS, Reach::Tenant),
    looks("get_caller", Who::Roles(&Role::ALL), Reach::Tenant),
    looks("list_workers", READERS, Reach::Tenant),
    looks("get_worker", READERS, Reach::Tenant),
    changes("drain_worker", OPERATORS, Reach::Tenant),
    changes("rebind_worker", OPERATORS, Reach::Tenant),
    changes("change_worker_packages", OPERATORS, Reach::Tenant),
    looks("get_schema", Who::Anyone, Reach::Tenant),
    // Who they are is said in the first frame.
    looks("connect_worker", Who::Anyone, Reach::Tenant),
    looks("connect_v1_worker", Who::Anyone, Reach::Tenant),
];

/// The row of an operation.
pub fn of(operation: &str) -> Option<&'static Authority> {
    TABLE.iter().find(|row| row.operation == operation)
}

impl Authority {
    /// What a route of a dialect asks of its caller.
    pub fn of_dialect(operation: &'static str, right: Right) -> Authority {
        match right {
            Right::Converse => looks(operation, Who::Anyone, Reach::Tenant),
            Right::Look => looks(operation, READERS, Reach::Tenant),
            Right::Submit => changes(operation, SUBMITTERS, Reach::Tenant),
            Right::Operate => changes(operation, OPERATORS, Reach::Tenant),
            // Workers speak often, and what they say is in the jobs' trails: it leaves no lines in the audit list.
            Right::Work | Right::Report => looks(operation, WORKERS, Reach::Tenant),
            Right::Administer => changes(operation, ADMINS, Reach::Server),
        }
    }

    /// May a caller with this role and this reach?
    pub fn allows(&self, role: Role, server_wide: bool) -> bool {
        let role_fits = match self.who {
            Who::Anyone => true,
            Who::Roles(roles) => roles.contains(&role),
        };
        role_fits && (server_wide || self.reach == Reach::Tenant)
    }
}
