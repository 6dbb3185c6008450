//! Every limit of the engine, with its default. All of them can change while the engine runs.
//!
//! This is the typed form that the engine holds. How settings are written in files, environment and API calls is the
//! business of `laneway-runtime`'s `config.rs`.

use std::collections::{BTreeMap, BTreeSet};

use crate::capacity::{CapacitySettings, Hours};
use crate::job::session::ChatSettings;
use crate::lease::PullSettings;
use crate::nearest::nearest;
use crate::worker::WorkerSettings;
use crate::{JobSpec, Name, Rejection, RejectionCode, RetryPolicy, Span};

/// The lane that jobs with an unknown lane run in. It always exists.
pub const MAIN_LANE: &str = "main";
/// The tenant of calls that name none.
pub const DEFAULT_TENANT: &str = "default";
/// The agent of jobs that name none.
pub const DEFAULT_AGENT: &str = "default";

/// All settings of the engine.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Most jobs that may wait (scheduled or queued) on the whole server.
    pub queued_max: u32,
    /// Most attempts that may be open on the whole server.
    pub running_max: u32,
    /// True: a job whose kind no executor offers and no setting names is rejected. False: it waits.
    pub strict_kinds: bool,
    /// How long a worker's attempt lives without a heartbeat.
    pub lease: Span,
    /// How long a worker may take to acknowledge a task.
    pub ack_timeout: Span,
    /// How long a stopped attempt may take to end before it is closed without a report.
    pub stop_grace: Span,
    /// How long an idempotency key is remembered after its job ended.
    pub idempotency_window: Span,
    /// How long events are kept.
    pub event_retention: Span,
    /// How long one attempt may run, where neither job nor kind have a value.
    pub timeout: Span,
    /// How long a job may wait, where neither job nor kind have a value.
    pub queue_timeout: Option<Span>,
    /// The retry policy, where neither job nor kind have one.
    pub retry: RetryPolicy,
    /// The longest time that a runner may request before the next attempt (see [`crate::Failure::retry_after`]).
    pub retry_after_max: Span,
    /// The lanes. `main` is added where it is missing.
    pub lanes: BTreeMap<Name, LaneSettings>,
    /// Lanes that statistics leave out until they have had a job.
    pub shown_once_used: BTreeSet<Name>,
    /// Kinds with settings of their own.
    pub kinds: BTreeMap<Name, KindSettings>,
    /// Tenants with limits of their own.
    pub tenants: BTreeMap<Name, TenantSettings>,
    /// The limits of every other tenant.
    pub tenant_default: TenantSettings,
    /// Agents with a weight of their own (in every tenant).
    pub agents: BTreeMap<Name, AgentSettings>,
    /// How many attempts may hold one key at once, by the key's name.
    pub keys: BTreeMap<Name, u32>,
    /// The same for every other key name.
    pub key_default: u32,
    /// Percent of every queue that tenants share which is divided into equal shares for the known tenants.
    pub reserved_percent: u8,
    /// Settings of schedules.
    pub schedules: ScheduleSettings,
    /// Settings of webhook deliveries.
    pub webhooks: WebhookSettings,
    /// How much the machine can take.
    pub capacity: CapacitySettings,
    /// Limits of runs.
    pub runs: RunSettings,
    /// Settings of push workers.
    pub workers: WorkerSettings,
    /// The defaults of sessions for messages of a conversation. The APIs that create the jobs read them.
    pub chat: ChatSettings,
}

/// Limits of runs. A run is admitted and canceled in one commit, so its size is limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunSettings {
    /// Most nodes of one run.
    pub nodes_max: u32,
    /// Most dependencies of one run, all nodes together.
    pub dependencies_max: u32,
    /// Most nodes that wait for one another in a row.
    pub depth_max: u32,
    /// Most bytes of the payloads of one run.
    pub payload_bytes_max: u64,
    /// Most nodes of all open runs of the server: they stay in memory until their run has ended.
    pub open_nodes_max: u32,
}

impl Default for RunSettings {
    fn default() -> RunSettings {
        RunSettings {
            nodes_max: 1_000,
            dependencies_max: 10_000,
            depth_max: 256,
            payload_bytes_max: 16 * 1024 * 1024,
            open_nodes_max: 200_000,
        }
    }
}

/// The limits and defaults of schedules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduleSettings {
    /// Most schedules on the whole server.
    pub schedules_max: u32,
    /// Most schedules of one tenant.
    pub schedules_per_tenant_max: u32,
    /// Most bytes of payloads and notes of all schedules: they stay in memory.
    pub bytes_max: u64,
    /// The time zone of expressions that name none. An IANA name.
    pub zone: Name,
    /// A slot that is processed later than this was missed.
    pub late_max: Span,
    /// How long one attempt may run, where neither template nor kind have a value.
    pub timeout: Span,
    /// The retry policy, where neither template nor kind have one.
    pub retry: RetryPolicy,
    /// How long the row of a slot is kept. It is a second safeguard: a schedule never goes back to an earlier slot
    /// anyway.
    pub slot_retention: Span,
    /// How long entries of the firing log are kept.
    pub firing_log_retention: Span,
    /// Most entries of the firing log that are kept of one schedule.
    pub firing_log_max: u32,
}

/// Settings of webhook deliveries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookSettings {
    /// Most deliveries that wait; further ones are dropped, and that is recorded. One tenant leaves an eighth to others.
    pub pending_max: u32,
    /// Most of these of one tenant.
    pub pending_per_tenant_max: u32,
    /// Most deliveries that are handed to the sender at once. More than it sends at once, so that it can choose among
    /// hosts.
    pub open_max: u32,
    /// Most of these of one tenant to one host. A host that does not answer keeps no more than these from others.
    pub open_per_host_max: u32,
    /// How long to wait after each failed try; there is one try more than there are waits.
    pub retries: Vec<Span>,
}

impl Default for WebhookSettings {
    fn default() -> WebhookSettings {
        WebhookSettings {
            pending_max: 100_000,
            pending_per_tenant_max: 100_000,
            open_max: 1_024,
            open_per_host_max: 8,
            retries: vec![Span::secs(5), Span::secs(30), Span::mins(2), Span::mins(10), Span::hours(1)],
        }
    }
}

/// A lane: a named pool, and the carrier of limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneSettings {
    /// Most jobs that may wait in the lane.
    pub queued_max: u32,
    /// Most jobs of one agent that may wait in the lane.
    pub queued_per_agent_max: u32,
    /// Most attempts that may be open in the lane.
    pub running_max: u32,
    /// Most attempts of one agent that may be open in the lane.
    pub running_per_agent_max: u32,
    /// The order between its jobs.
    pub order: LaneOrder,
    /// One level of priority is worth this much waiting time. `None`: priority always goes before age.
    pub aging_step: Option<Span>,
    /// True: nothing starts in the lane.
    pub paused: bool,
    /// How long ended jobs are kept.
    pub retention: Span,
    /// What happens to waiting jobs when the server stops.
    pub on_shutdown: ShutdownPolicy,
    /// The settings for pull workers.
    pub pull: PullSettings,
}

/// The order between the jobs of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaneOrder {
    /// The agent with the fewest open attempts for its weight, then the one served longest ago; its best job.
    Fair,
    /// The best job of any agent.
    Priority,
}

/// What happens to waiting jobs when the server stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShutdownPolicy {
    /// They are still there after the next start.
    Keep,
    /// They are canceled.
    Cancel,
}

/// The defaults of a kind for its jobs.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct KindSettings {
    /// Most attempts of the kind that may be open.
    pub running_max: Option<u32>,
    /// How long one attempt may run.
    pub timeout: Option<Span>,
    /// How long a job may wait.
    pub queue_timeout: Option<Span>,
    /// What happens after failures and losses.
    pub retry: Option<RetryPolicy>,
}

/// The limits of a tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TenantSettings {
    /// Most of its jobs that may wait.
    pub queued_max: u32,
    /// Most of its attempts that may be open.
    pub running_max: u32,
}

/// The settings of an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentSettings {
    /// Its share of a lane's open attempts, against 1 for others. At least 1.
    pub weight: u32,
    /// The only hours in which its jobs start, where the jobs have none.
    pub hours: Option<Hours>,
}

impl Settings {
    /// Fills in the fields that a spec leaves open: from the settings of its kind, then from those of the server.
    pub fn fill_in_defaults(&self, spec: &mut JobSpec, kind: Option<&KindSettings>) {
        spec.timeout = spec.timeout.or(kind.and_then(|kind| kind.timeout)).or(Some(self.timeout));
        spec.queue_timeout =
            spec.queue_timeout.or(kind.and_then(|kind| kind.queue_timeout)).or(self.queue_timeout);
        if spec.retry.is_none() {
            let policy = kind.and_then(|kind| kind.retry.as_ref()).unwrap_or(&self.retry);
            spec.retry = Some(policy.clone());
        }
        if spec.capacity.hours.is_none() && !self.agents.is_empty() {
            spec.capacity.hours = self.agents.get(&spec.agent).and_then(|agent| agent.hours.clone());
        }
    }

    /// Is there such a lane? If not, the rejection names the nearest one.
    pub fn check_lane(&self, lane: &Name) -> Result<(), Rejection> {
        if self.lanes.contains_key(lane) || lane.as_str() == MAIN_LANE {
            return Ok(());
        }
        let remedy = match nearest(lane.as_str(), self.lanes.keys().map(Name::as_str)) {
            Some(near) => format!("did you mean {near:?}?"),
            None => format!("create it with PUT /v1/lanes/{lane}, or list all lanes with GET /v1/lanes"),
        };
        let message = format!("lane: there is no lane {:?}; {remedy}", lane.as_str());
        Err(Rejection::new(RejectionCode::UnknownLane, message))
    }

    /// The limits of a tenant.
    pub(crate) fn tenant_limits(&self, tenant: &Name) -> TenantSettings {
        *self.tenants.get(tenant).unwrap_or(&self.tenant_default)
    }

    /// The weight of an agent.
    pub(crate) fn weight_of(&self, agent: &Name) -> u32 {
        self.agents.get(agent).map_or(1, |agent| agent.weight.clamp(1, 1_000))
    }

    /// How many attempts may hold a key of that name at once.
    pub(crate) fn key_limit(&self, name: &Name) -> u32 {
        self.keys.get(name).copied().unwrap_or(self.key_default)
    }
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            queued_max: 1_000_000,
            running_max: 1_024,
            strict_kinds: false,
            lease: Span::secs(30),
            ack_timeout: Span::secs(5),
            stop_grace: Span::secs(10),
            idempotency_window: Span::hours(24),
            event_retention: Span::hours(7 * 24),
            timeout: Span::mins(10),
            queue_timeout: None,
            retry: RetryPolicy::default(),
            retry_after_max: Span::hours(1),
            shown_once_used: BTreeSet::new(),
            lanes: BTreeMap::from([(Name::fixed(MAIN_LANE), LaneSettings::default())]),
            kinds: BTreeMap::new(),
            tenants: BTreeMap::new(),
            tenant_default: TenantSettings { queued_max: 1_000_000, running_max: 1_024 },
            agents: BTreeMap::new(),
            keys: BTreeMap::new(),
            key_default: 1,
            reserved_percent: 50,
            webhooks: WebhookSettings::default(),
            schedules: ScheduleSettings::default(),
            capacity: CapacitySettings::default(),
            runs: RunSettings::default(),
            workers: WorkerSettings::default(),
            chat: ChatSettings::default(),
        }
    }
}

impl Default for ScheduleSettings {
    fn default() -> ScheduleSettings {
        ScheduleSettings {
            schedules_max: 10_000,
            schedules_per_tenant_max: 1_000,
            bytes_max: 64 * 1024 * 1024,
            zone: Name::fixed("UTC"),
            late_max: Span::secs(60),
            timeout: Span::mins(10),
            retry: RetryPolicy::CRON,
            slot_retention: Span::hours(24),
            firing_log_retention: Span::hours(30 * 24),
            firing_log_max: 10_000,
        }
    }
}

impl Default for LaneSettings {
    fn default() -> LaneSettings {
        LaneSettings {
            queued_max: 1_000_000,
            queued_per_agent_max: 1_000_000,
            running_max: 256,
            running_per_agent_max: 256,
            order: LaneOrder::Fair,
            aging_step: Some(Span::secs(60)),
            paused: false,
            retention: Span::hours(7 * 24),
            on_shutdown: ShutdownPolicy::Keep,
            pull: PullSettings::default(),
        }
    }
}
