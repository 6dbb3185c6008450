//! The shape of one world: who is there, which limits hold, which faults happen and how often.
//!
//! Drawn once from the seed. Everything is small on purpose: two agents and a limit of one meet each other more often
//! than a thousand agents and a limit of a hundred, and most worlds leave most faults out, so that those which are in
//! get far (swarm testing).

use std::collections::BTreeMap;

use laneway_core::settings::{
    AgentSettings, KindSettings, RunSettings, ScheduleSettings, TenantSettings, WebhookSettings,
};
use laneway_core::{
    Backoff, CapacitySettings, Dispatch, ExecutorMode, ExecutorOffer, Jitter, LaneOrder, LaneSettings,
    LostPolicy, Name, PullSettings, RetryPolicy, Settings, ShutdownPolicy, Span, WorkerSettings,
};

use crate::rng::Rng;

/// A kind that the store rejects to hold, as a database rejects a row it cannot hold.
pub const POISON_KIND: &str = "poison";

/// No world has a longer lease.
pub const LEASE_MAX: Span = Span::secs(60);

/// The shape of one world.
#[derive(Clone, Debug)]
pub struct Shape {
    /// Who owns jobs.
    pub tenants: Vec<Name>,
    /// Who asks for jobs.
    pub agents: Vec<Name>,
    /// Lanes that jobs name. The last one does not exist, so that its jobs run in `main`.
    pub lanes: Vec<Name>,
    /// Kinds that jobs name.
    pub kinds: Vec<Name>,
    /// Sessions that jobs name.
    pub sessions: Vec<Name>,
    /// Names of keys.
    pub key_names: Vec<Name>,
    /// Values of keys.
    pub key_values: Vec<Name>,
    /// The settings at the start.
    pub settings: Settings,
    /// Every executor that ever offers something, with its first offer.
    pub executors: Vec<ExecutorOffer>,
    /// How many of a hundred jobs have this or that.
    pub habits: Habits,
    /// What goes wrong, and how often.
    pub faults: Faults,
    /// How often each step is taken, in the order of [`crate::world::Step::ALL`].
    pub weights: Vec<u32>,
}

/// What jobs look like, in percent.
#[derive(Clone, Debug)]
pub struct Habits {
    /// Belongs to a session.
    pub session: u32,
    /// Of those: asks more of it than order.
    pub session_rules: u32,
    /// Of those: is of the usual tenant, kind, agent and lane.
    pub session_alike: u32,
    /// Needs keys.
    pub keys: u32,
    /// Has a time before which it does not start.
    pub not_before: u32,
    /// Has a deadline.
    pub deadline: u32,
    /// Has a queue timeout of its own.
    pub queue_timeout: u32,
    /// Has a timeout of its own.
    pub timeout: u32,
    /// Has a retry policy of its own.
    pub retry: u32,
    /// Has an idempotency key.
    pub idempotency: u32,
    /// Has a priority other than 0.
    pub priority: u32,
    /// An attempt that ends reports a failure.
    pub failing: u32,
    /// Has a callback.
    pub callback: u32,
    /// Its rejection is recorded if the queue is full.
    pub record_rejection: u32,
    /// Costs units.
    pub cost: u32,
    /// Starts only while it is quiet enough.
    pub quiet: u32,
    /// Is for a worker that holds nothing else.
    pub unique: u32,
    /// States how long it will probably run.
    pub expected: u32,
    /// Has placement constraints.
    pub wants: u32,
    /// Of workflow runs: has nodes with middlewares.
    pub chains: u32,
}

/// What goes wrong, in percent of the occasions.
#[derive(Clone, Debug)]
pub struct Faults {
    /// A commit fails and has not happened.
    pub commit_lost: u32,
    /// A commit fails and has happened all the same.
    pub commit_unknown: u32,
    /// A job is of the kind that the store rejects.
    pub poison: u32,
    /// A batch has several commands.
    pub grouped: u32,
    /// An attempt ignores that it was asked to stop.
    pub stubborn: u32,
    /// An attempt is cut off: it works on, and its reports are lost.
    pub cut: u32,
    /// The wall clock may be set at all.
    pub wall_jumps: bool,
    /// Lease, ack timeout and grace may change while the server runs.
    pub hot_spans: bool,
}

impl Shape {
    /// Draws a shape.
    pub fn draw(rng: &mut Rng) -> Shape {
        let tenants = names("tenant", rng.small(1, 3));
        let agents = names("agent", rng.small(2, 4));
        let mut lanes = vec![Name::fixed("main")];
        lanes.extend(names("lane", rng.small(0, 2)));
        let kinds = names("kind", rng.small(1, 4));
        let executors = draw_executors(rng, &kinds);
        let settings = draw_settings(rng, &tenants, &agents, &lanes, &kinds);
        lanes.push(Name::fixed("nowhere"));
        Shape {
            tenants,
            agents,
            lanes,
            kinds,
            sessions: names("session", rng.small(1, 3)),
            key_names: names("key", 2),
            key_values: names("value", rng.small(1, 2)),
            settings,
            executors,
            habits: draw_habits(rng),
            faults: draw_faults(rng),
            weights: draw_weights(rng),
        }
    }

    /// The lanes that exist.
    pub fn real_lanes(&self) -> &[Name] {
        &self.lanes[..self.lanes.len() - 1]
    }
}

fn names(stem: &str, count: u32) -> Vec<Name> {
    (1..=count).map(|n| Name::new(&format!("{stem}{n}")).expect("a stem and a number are a name")).collect()
}

fn draw_executors(rng: &mut Rng, kinds: &[Name]) -> Vec<ExecutorOffer> {
    let count = rng.small(1, 2).min(kinds.len() as u32);
    let mut executors: Vec<ExecutorOffer> = names("executor", count)
        .into_iter()
        .map(|executor| {
            let mode = if rng.chance(50) { ExecutorMode::Attached } else { ExecutorMode::Leased };
            ExecutorOffer { executor, mode, kinds: Vec::new(), slots: rng.small(1, 3) }
        })
        .collect();
    // In some worlds most kinds are left to workers, and in some nearly all.
    let offered = match rng.below(10) {
        0..=2 => 5,
        3..=5 => 30,
        _ => 92,
    };
    for kind in kinds {
        // Now and then no executor offers a kind at the start.
        if rng.chance(offered) {
            let at = rng.below(executors.len() as u64) as usize;
            executors[at].kinds.push(kind.clone());
        }
    }
    executors
}

fn draw_settings(
    rng: &mut Rng,
    tenants: &[Name],
    agents: &[Name],
    lanes: &[Name],
    kinds: &[Name],
) -> Settings {
    let mut settings = Settings {
        retry_after_max: Span::mins(5),
        shown_once_used: Default::default(),
        queued_max: if rng.chance(70) { 1_000 } else { rng.small(3, 12) },
        running_max: if rng.chance(60) { 64 } else { rng.small(1, 4) },
        strict_kinds: rng.chance(10),
        lease: draw_lease(rng),
        ack_timeout: Span(rng.between(1, 10) * 1_000),
        stop_grace: Span(rng.between(1, 20) * 1_000),
        idempotency_window: if rng.chance(50) { Span::hours(24) } else { Span::mins(rng.between(1, 60)) },
        event_retention: if rng.chance(50) { Span::hours(7 * 24) } else { Span::hours(rng.between(1, 48)) },
        timeout: Span(rng.between(2, 120) * 1_000),
        queue_timeout: rng.chance(20).then(|| Span(rng.between(1, 120) * 1_000)),
        retry: draw_retry(rng),
        lanes: lanes.iter().map(|lane| (lane.clone(), draw_lane(rng))).collect(),
        kinds: BTreeMap::new(),
        tenants: BTreeMap::new(),
        tenant_default: draw_tenant(rng),
        agents: BTreeMap::new(),
        keys: BTreeMap::new(),
        key_default: rng.small(1, 2),
        reserved_percent: if rng.chance(50) { 50 } else { rng.small(0, 100) as u8 },
        schedules: ScheduleSettings {
            schedules_max: rng.small(1, 4),
            schedules_per_tenant_max: rng.small(1, 4),
            late_max: Span(rng.between(1, 60) * 1_000),
            retry: draw_retry(rng),
            ..ScheduleSettings::default()
        },
        webhooks: draw_webhooks(rng),
        capacity: draw_capacity(rng),
        runs: RunSettings::default(),
        workers: WorkerSettings {
            rejections_max: rng.small(1, 5),
            affinities_per_tenant_max: rng.small(1, 4),
            ..WorkerSettings::default()
        },
        chat: Default::default(),
    };
    for kind in kinds {
        if rng.chance(60) {
            settings.kinds.insert(kind.clone(), draw_kind(rng));
        }
    }
    for tenant in tenants {
        if rng.chance(30) {
            settings.tenants.insert(tenant.clone(), draw_tenant(rng));
        }
    }
    for agent in agents {
        if rng.chance(30) {
            settings.agents.insert(agent.clone(), AgentSettings { weight: rng.small(1, 4), hours: None });
        }
    }
    if rng.chance(50) {
        settings.keys.insert(Name::fixed("key1"), rng.small(1, 2));
    }
    settings
}

/// Few at once, few tries, and now and then a short queue.
fn draw_webhooks(rng: &mut Rng) -> WebhookSettings {
    WebhookSettings {
        pending_max: if rng.chance(85) { 1_000 } else { rng.small(0, 3) },
        pending_per_tenant_max: if rng.chance(85) { 1_000 } else { rng.small(0, 3) },
        open_max: rng.small(1, 3),
        open_per_host_max: rng.small(1, 2),
        retries: (0..rng.below(4)).map(|_| Span(rng.between(1, 60) * 1_000)).collect(),
    }
}

/// A lane with small limits.
pub fn draw_lane(rng: &mut Rng) -> LaneSettings {
    let tight = rng.chance(35);
    LaneSettings {
        queued_max: if tight { cap(rng, 5) } else { rng.small(4, 30) },
        queued_per_agent_max: if tight { cap(rng, 5) } else { 100 },
        running_max: rng.small(1, 3),
        running_per_agent_max: if rng.chance(50) { rng.small(1, 2) } else { 100 },
        order: if rng.chance(65) { LaneOrder::Fair } else { LaneOrder::Priority },
        aging_step: rng.chance(70).then(|| Span(rng.between(0, 60) * 1_000)),
        paused: rng.chance(3),
        retention: if rng.chance(40) { Span::mins(rng.between(1, 30)) } else { Span::hours(7 * 24) },
        on_shutdown: if rng.chance(70) { ShutdownPolicy::Keep } else { ShutdownPolicy::Cancel },
        pull: draw_pull(rng),
    }
}

/// How workers are treated; in most lanes they do not ask.
pub fn draw_pull(rng: &mut Rng) -> PullSettings {
    let dispatch = match rng.below(10) {
        0 | 1 => Dispatch::Reserve,
        2 | 3 => Dispatch::Claim,
        _ => Dispatch::Push,
    };
    PullSettings {
        dispatch,
        lease: rng.chance(50).then(|| draw_lease(rng)),
        reservation_timeout: Span(rng.between(1, 30) * 1_000),
        on_lease_lost: if rng.chance(50) { LostPolicy::Requeue } else { LostPolicy::Fail },
    }
}

/// A machine of a hundred units, more or less, and few bypasses. When a deadline is near never changes in a world.
pub fn draw_capacity(rng: &mut Rng) -> CapacitySettings {
    CapacitySettings {
        total: if rng.chance(80) { 100 } else { rng.small(30, 100) },
        reserve: rng.small(0, 5),
        headroom_pct: rng.small(0, 10) as u8,
        measured: rng.chance(75),
        failclosed_busy: rng.small(5, 10) as u8,
        stale_after: Span(rng.between(5, 60) * 1_000),
        bypasses_max: rng.small(1, 3) as u8,
        near_deadline: Span::secs(20),
        sample_every: Span::secs(2),
    }
}

/// A limit that is now and then zero: a closed door is worth a visit, but nothing happens behind it.
pub fn cap(rng: &mut Rng, most: u32) -> u32 {
    if rng.chance(6) { 0 } else { rng.small(1, most) }
}

/// A lease of some seconds.
pub fn draw_lease(rng: &mut Rng) -> Span {
    Span(rng.between(5_000, LEASE_MAX.0))
}

/// A tenant, mostly without limits that bite.
pub fn draw_tenant(rng: &mut Rng) -> TenantSettings {
    TenantSettings {
        queued_max: if rng.chance(70) { 1_000 } else { cap(rng, 8) },
        running_max: if rng.chance(60) { 64 } else { rng.small(1, 3) },
    }
}

/// A kind, mostly with a limit.
pub fn draw_kind(rng: &mut Rng) -> KindSettings {
    KindSettings {
        running_max: rng.chance(70).then(|| rng.small(1, 2)),
        timeout: rng.chance(40).then(|| Span(rng.between(1, 60) * 1_000)),
        queue_timeout: rng.chance(15).then(|| Span(rng.between(1, 60) * 1_000)),
        retry: rng.chance(40).then(|| draw_retry(rng)),
    }
}

/// A retry policy with few retries.
pub fn draw_retry(rng: &mut Rng) -> RetryPolicy {
    let base = Span(rng.between(0, 8) * 500);
    let jitter = match rng.below(3) {
        0 => Jitter::None,
        1 => Jitter::Add(Span(rng.between(0, 2_000))),
        _ => Jitter::Percent(rng.between(0, 50) as u8),
    };
    let backoff = Backoff { base, factor: rng.small(1, 3), max: Span(rng.between(1, 30) * 1_000), jitter };
    RetryPolicy { retries_max: rng.small(0, 3), losses_max: rng.small(0, 3), backoff }
}

fn draw_habits(rng: &mut Rng) -> Habits {
    // Some worlds are conversations: nearly every job has a session, and jobs come fast.
    let talks = rng.chance(35);
    let (session, session_rules, session_alike) = match talks {
        true => (rng.small(60, 95), rng.small(50, 95), rng.small(70, 100)),
        false => (if rng.chance(60) { rng.small(1, 80) } else { 0 }, rng.small(0, 60), rng.small(0, 60)),
    };
    let mut some = |often: u32, percent: u32| if rng.chance(often) { rng.small(1, percent) } else { 0 };
    Habits {
        session,
        session_rules,
        session_alike,
        keys: some(50, 70),
        not_before: some(40, 40),
        deadline: some(40, 40),
        queue_timeout: some(30, 50),
        timeout: some(30, 50),
        retry: some(40, 60),
        idempotency: some(50, 60),
        priority: some(70, 80),
        failing: some(80, 70),
        callback: some(60, 70),
        record_rejection: some(50, 60),
        cost: some(60, 80),
        quiet: some(40, 50),
        unique: some(25, 30),
        expected: some(40, 60),
        wants: some(60, 70),
        chains: some(35, 90),
    }
}

fn draw_faults(rng: &mut Rng) -> Faults {
    let mut some = |often: u32, percent: u32| if rng.chance(often) { rng.small(1, percent) } else { 0 };
    let (commit_lost, commit_unknown) = (some(40, 3), some(40, 3));
    let poison = some(25, 10);
    let grouped = some(60, 60);
    let (stubborn, cut) = (some(40, 50), some(40, 30));
    Faults {
        commit_lost,
        commit_unknown,
        poison,
        grouped,
        stubborn,
        cut,
        wall_jumps: rng.chance(40),
        hot_spans: rng.chance(15),
    }
}

fn draw_weights(rng: &mut Rng) -> Vec<u32> {
    crate::world::Step::ALL
        .iter()
        .map(|step| {
            let usual = step.weight();
            match rng.below(6) {
                // Now and then a step never happens, or happens all the time.
                0 if step.may_be_left_out() => 0,
                1 => usual * 3,
                2 => usual.div_ceil(3),
                _ => usual,
            }
        })
        .collect()
}
