//! Why is my job not running? Every closed gate, with its limit and use.

use crate::capacity::{QuietRule, QuietState};
use crate::engine::Engine;
use crate::engine::collections::slab::Ix;
use crate::engine::jobs::{Job, Wake};
use crate::engine::queue::{Class, KeyEntry, KeyName};
use crate::engine::workers::placement::Pick;
use crate::engine::workers::{FittingWorkers, Lack};
use crate::worker::{Package, Standing};
use crate::{JobId, JobState, Name, Now, Span, Wall};

/// Why a job does not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// Its state.
    pub state: JobState,
    /// Everything that blocks it, in the order in which it is checked. Empty for a job that runs or starts next.
    pub holds: Vec<Hold>,
    /// How many jobs of the same agent, lane and demand (or of the same session) go before it; counted up to
    /// [`Explanation::AHEAD_MAX`].
    pub ahead: u64,
}

impl Explanation {
    /// Counting stops here: other commands wait meanwhile.
    pub const AHEAD_MAX: u64 = 10_000;
}

/// One thing that blocks a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hold {
    /// The server is stopping.
    Draining,
    /// Storage is low: only what runs goes on.
    StorageLow,
    /// Its time has not come.
    NotBefore {
        /// When it comes.
        at: Wall,
    },
    /// It failed and waits before it is tried again.
    Backoff {
        /// How long still.
        remaining: Span,
    },
    /// It waits a little for others of its session to join it.
    Debounce {
        /// How long still, if none comes.
        remaining: Span,
    },
    /// Other nodes of its run go first.
    Upstream {
        /// Those that have not ended well, in the order of the run; at most [`Hold::UPSTREAM_LISTED_MAX`].
        nodes: Vec<Name>,
        /// How many there are.
        count: u32,
    },
    /// It starts when another node of its run calls it.
    Uncalled {
        /// That node.
        by: Name,
    },
    /// An earlier job of its session goes first.
    SessionOrder {
        /// The session.
        session: Name,
        /// How many jobs of the session go first.
        ahead: u64,
        /// The one that goes next.
        next: JobId,
    },
    /// Its session runs as many jobs as it may.
    SessionFull {
        /// The session.
        session: Name,
        /// Open attempts.
        used: u32,
        /// Most at once.
        limit: u32,
    },
    /// The context of its session is so full that its jobs run one by one.
    SessionThrottled {
        /// The session.
        session: Name,
        /// Tokens used.
        tokens: u64,
        /// The size of the context, in tokens.
        window: u64,
    },
    /// It ended the jobs before it, and their attempts have not ended.
    SessionStopping {
        /// The session.
        session: Name,
        /// Attempts that were asked to stop.
        runs: u32,
    },
    /// The lane is paused.
    LanePaused {
        /// The lane.
        lane: Name,
    },
    /// The lane runs as many jobs as it may.
    LaneFull {
        /// The lane.
        lane: Name,
        /// Open attempts.
        used: u32,
        /// Most at once.
        limit: u32,
    },
    /// The agent runs as many jobs in this lane as it may.
    AgentFull {
        /// The agent.
        agent: Name,
        /// Open attempts.
        used: u32,
        /// Most at once.
        limit: u32,
    },
    /// The server runs as many jobs as it may.
    ServerFull {
        /// Open attempts.
        used: u32,
        /// Most at once.
        limit: u32,
    },
    /// The tenant runs as many jobs as it may.
    TenantFull {
        /// Open attempts.
        used: u32,
        /// Most at once.
        limit: u32,
    },
    /// The kind runs as many jobs as it may.
    KindFull {
        /// The kind.
        kind: Name,
        /// Open attempts.
        used: u32,
        /// Most at once.
        limit: u32,
    },
    /// No executor offers the kind.
    NoExecutor {
        /// The kind.
        kind: Name,
    },
    /// There are workers, and none of them can take it now.
    NoWorker {
        /// The kind.
        kind: Name,
        /// What the nearest of them does not have, where none fits.
        lacks: Option<Lacks>,
        /// Workers that fit.
        fit: u32,
        /// Of these, how many have no free slot.
        full: u32,
        /// Of these, how many take nothing new.
        draining: u32,
        /// Of these, how many are lost, away or not well.
        unwell: u32,
    },
    /// Only one worker may run it, and that one has no free slot, or is not connected.
    WorkerBusy {
        /// The worker.
        worker: Name,
        /// Its standing; `None`: it is not connected and may come back.
        standing: Option<Standing>,
    },
    /// The executor of the kind is full.
    ExecutorFull {
        /// The executor.
        executor: Name,
        /// Open attempts.
        used: u32,
        /// Most at once.
        limit: u32,
    },
    /// A key of it is taken.
    KeyFull {
        /// The key's name.
        name: Name,
        /// The key's value.
        value: Name,
        /// Open attempts that hold it, and ended jobs that keep it.
        used: u32,
        /// Most at once.
        limit: u32,
        /// How many of `used` are ended jobs that keep it.
        kept: u32,
    },
    /// The machine is not quiet enough.
    NotQuiet {
        /// How quiet it is.
        state: QuietState,
        /// Up to which state the job may start.
        rule: QuietRule,
    },
    /// The machine has too few free units.
    NoUnits {
        /// What the job asks for.
        cost: u32,
        /// What is free.
        free: u32,
        /// What open attempts may hold together.
        usable: u32,
    },
    /// Units are reserved for a job that was bypassed too often.
    Reserved {
        /// That job.
        job: JobId,
    },
    /// No worker has claimed it.
    Unclaimed {
        /// Its lane.
        lane: Name,
    },
    /// Nothing is closed: other jobs of the lane go first.
    Turn,
}

impl Hold {
    /// Most nodes listed of those that a member waits for.
    pub const UPSTREAM_LISTED_MAX: usize = 16;
}

/// A placement constraint that no worker fulfils.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lacks {
    /// No worker names the kind.
    Kind,
    /// No worker has the package in that version.
    Package(Package),
    /// No worker has all the features.
    Features,
    /// No worker has all the labels.
    Labels,
    /// No worker serves its lane.
    Lane(Name),
}

impl Engine {
    /// Why a live job does not run: every closed gate. `None`: no live job of that name for this tenant.
    pub fn explain(&self, now: Now, tenant: Option<&Name>, job: JobId) -> Option<Explanation> {
        let ix = self.jobs.find(job)?;
        let entry = &self.jobs[ix];
        let owner = self.queue.tenants.key(self.queue.classes[entry.class()].tenant);
        if entry.state().is_terminal() || tenant.is_some_and(|tenant| tenant != owner) {
            return None;
        }
        if entry.has_attempt() {
            return Some(Explanation { state: entry.state(), holds: Vec::new(), ahead: 0 });
        }
        let ahead = self.ahead_in_bin(ix, Explanation::AHEAD_MAX);
        Some(Explanation { state: entry.state(), holds: self.holds_of(now, ix, ahead), ahead })
    }

    /// The first thing that blocks a live job, for lists: nothing is counted. `None`: it does not wait, or does not exist
    /// for this tenant.
    pub fn first_hold(&self, now: Now, tenant: Option<&Name>, job: JobId) -> Option<Hold> {
        let ix = self.jobs.find(job)?;
        let entry = &self.jobs[ix];
        let owner = self.queue.tenants.key(self.queue.classes[entry.class()].tenant);
        if entry.state().is_terminal() || entry.has_attempt() || tenant.is_some_and(|tenant| tenant != owner)
        {
            return None;
        }
        self.holds_of(now, ix, self.ahead_in_bin(ix, 1)).into_iter().next()
    }

    /// Every closed gate of a job that waits behind `ahead` others.
    fn holds_of(&self, now: Now, ix: Ix<Job>, ahead: u64) -> Vec<Hold> {
        let entry = &self.jobs[ix];
        let mut holds = Vec::new();
        if self.server.is_draining() {
            holds.push(Hold::Draining);
        }
        if self.server.storage_low() {
            holds.push(Hold::StorageLow);
        }
        match entry.wake() {
            Some(Wake::NotBefore(at)) => holds.push(Hold::NotBefore { at }),
            Some(Wake::Backoff(at)) => holds.push(Hold::Backoff { remaining: at.since(now.mono) }),
            Some(Wake::Debounce(at)) => holds.push(Hold::Debounce { remaining: at.since(now.mono) }),
            Some(Wake::Upstream) => {
                let mut nodes = self.workflows.upstream_of(ix);
                let count = u32::try_from(nodes.len()).unwrap_or(u32::MAX);
                nodes.truncate(Hold::UPSTREAM_LISTED_MAX);
                holds.push(Hold::Upstream { nodes, count });
            }
            Some(Wake::Called) => {
                let by = self.workflows.caller_of(ix).cloned().unwrap_or_else(|| Name::fixed("another"));
                holds.push(Hold::Uncalled { by });
            }
            None => {}
        }
        self.explain_session(ix, ahead, &mut holds);
        self.explain_lane(ix, &mut holds);
        self.explain_class(ix, &mut holds);
        self.explain_keys(ix, &mut holds);
        self.explain_needs(now, ix, &mut holds);
        if holds.is_empty() {
            holds.push(Hold::Turn);
        }
        holds
    }

    /// How many jobs of its bin go before it, counted up to `max`.
    fn ahead_in_bin(&self, job: Ix<Job>, max: u64) -> u64 {
        let Some(bin) = self.jobs[job].bin() else { return 0 };
        let before = self.queue.bins[bin].jobs.iter().take_while(|(_, other)| *other != job);
        before.take(max as usize).count() as u64
    }

    fn explain_session(&self, job: Ix<Job>, ahead: u64, holds: &mut Vec<Hold>) {
        let entry = &self.jobs[job];
        let Some(of) = entry.session() else { return };
        let session = self.sessions.key_of(of).clone();
        if let Some(bin) = entry.bin().filter(|_| ahead > 0) {
            let (_, next) = self.queue.bins[bin].jobs.first().expect("another job is ahead");
            let next = self.jobs[next].id();
            holds.push(Hold::SessionOrder { session: session.clone(), ahead, next });
        }
        let used = self.sessions.open_count(of);
        let limit = self.sessions.max_concurrent(entry);
        if used >= limit {
            holds.push(Hold::SessionFull { session: session.clone(), used, limit });
        }
        if let Some((tokens, window)) = self.sessions.usage_of(of)
            && used >= limit
            && limit < entry.session_max()
        {
            holds.push(Hold::SessionThrottled { session: session.clone(), tokens, window });
        }
        let runs = u32::try_from(self.sessions.still_stopping(&self.jobs, entry)).unwrap_or(u32::MAX);
        if runs > 0 {
            holds.push(Hold::SessionStopping { session, runs });
        }
    }

    fn explain_lane(&self, job: Ix<Job>, holds: &mut Vec<Hold>) {
        let agent_queue = &self.queue.agent_queues[self.jobs[job].agent_queue()];
        let lane = &self.queue.lanes[agent_queue.lane];
        let settings = &lane.settings;
        let sharers = self.workflows.slot_sharers(&self.jobs, &self.queue, job);
        let shared = sharers.shared(&self.jobs, &self.queue, job);
        if settings.paused {
            holds.push(Hold::LanePaused { lane: lane.name.clone() });
        }
        if !shared.any && self.queue.open >= self.settings.running_max {
            holds.push(Hold::ServerFull { used: self.queue.open, limit: self.settings.running_max });
        }
        if !shared.lane && lane.open >= settings.running_max {
            holds.push(Hold::LaneFull {
                lane: lane.name.clone(),
                used: lane.open,
                limit: settings.running_max,
            });
        }
        if !shared.agent && agent_queue.open >= settings.running_per_agent_max {
            let agent = self.queue.agent_queues.key(self.jobs[job].agent_queue()).2.clone();
            holds.push(Hold::AgentFull {
                agent,
                used: agent_queue.open,
                limit: settings.running_per_agent_max,
            });
        }
    }

    fn explain_class(&self, job: Ix<Job>, holds: &mut Vec<Hold>) {
        let class = &self.queue.classes[self.jobs[job].class()];
        let (tenant, kind) = (&self.queue.tenants[class.tenant], &self.queue.kinds[class.own_kind()]);
        let kind_name = self.queue.kinds.key(class.own_kind());
        let sharers = self.workflows.slot_sharers(&self.jobs, &self.queue, job);
        let shared = sharers.shared(&self.jobs, &self.queue, job);
        if !shared.any && !tenant.gate.is_open() {
            holds.push(Hold::TenantFull { used: tenant.gate.used, limit: tenant.gate.limit });
        }
        if !shared.kind && !kind.gate.is_open() {
            holds.push(Hold::KindFull {
                kind: kind_name.clone(),
                used: kind.gate.used,
                limit: kind.gate.limit,
            });
        }
        if self.queue.is_pull(class.demand) {
            return;
        }
        let Some(executor) = kind.executor.filter(|_| class.placement.is_none()) else {
            return self.explain_workers(job, holds);
        };
        let gate = &self.queue.executors[executor].gate;
        if !gate.is_open() {
            let executor = self.queue.executors.key(executor).clone();
            holds.push(Hold::ExecutorFull { executor, used: gate.used, limit: gate.limit });
        }
    }

    /// True when no handler, target or worker offers what the jobs of a class need: they wait until one does.
    pub(in crate::engine) fn is_unserved(&self, class: Ix<Class>) -> bool {
        let of = &self.queue.classes[class];
        if self.queue.is_pull(of.demand)
            || (self.queue.kinds[of.own_kind()].executor.is_some() && of.placement.is_none())
        {
            return false;
        }
        self.workers.none_fits(&self.queue, class)
    }

    /// Why no worker takes it.
    fn explain_workers(&self, job: Ix<Job>, holds: &mut Vec<Hold>) {
        let class = &self.queue.classes[self.jobs[job].class()];
        let kind = self.queue.kinds.key(class.own_kind());
        match self.pick(job) {
            Pick::Worker(_) | Pick::Missing => return,
            Pick::Later { worker, .. } => {
                let standing = self.workers.standing_of(worker);
                let worker = self.workers.name_of(worker).clone();
                return holds.push(Hold::WorkerBusy { worker, standing });
            }
            Pick::None => {}
        }
        let of = self.jobs[job].class();
        let Some(fitting) = self.workers.fitting(&self.queue, of) else {
            return holds.push(Hold::NoExecutor { kind: kind.clone() });
        };
        let FittingWorkers { nearest, fit, full, draining, unwell } = fitting;
        let package =
            || self.workers.placement_of(&self.queue, of).and_then(|placement| placement.package().cloned());
        let lacks = nearest.filter(|_| fit == 0).map(|lack| match (lack, package()) {
            (Lack::Package, Some(package)) => Lacks::Package(package),
            (Lack::Feature, _) => Lacks::Features,
            (Lack::Label, _) => Lacks::Labels,
            (Lack::Lane, _) => Lacks::Lane(self.queue.lanes[class.own_lane()].name.clone()),
            _ => Lacks::Kind,
        });
        holds.push(Hold::NoWorker { kind: kind.clone(), lacks, fit, full, draining, unwell });
    }

    fn explain_needs(&self, now: Now, job: Ix<Job>, holds: &mut Vec<Hold>) {
        let Some(demand) = self.queue.demand_of(&self.jobs[job]) else { return };
        let capacity = self.capacity.free(now, &self.settings.capacity);
        if let Some(rule) = demand.rule.filter(|_| !capacity.is_quiet_for(demand)) {
            holds.push(Hold::NotQuiet { state: capacity.quiet(), rule });
        }
        if demand.cost > capacity.units() {
            let (free, usable) = (capacity.units(), capacity.usable());
            holds.push(Hold::NoUnits { cost: demand.cost, free, usable });
        } else if demand.cost > 0
            && let Some((due, cost)) = self.first_in_line(now, &capacity)
            && due != job
            && cost > capacity.units()
        {
            holds.push(Hold::Reserved { job: self.jobs[due].id() });
        }
        if self.queue.waits_for_claim(&self.jobs[job]) && holds.is_empty() {
            let lane = self.queue.agent_queues[self.jobs[job].agent_queue()].lane;
            holds.push(Hold::Unclaimed { lane: self.queue.lanes[lane].name.clone() });
        }
    }

    fn explain_keys(&self, job: Ix<Job>, holds: &mut Vec<Hold>) {
        let keys = self.queue.keys_of(&self.jobs[job]);
        if keys.is_empty() {
            return;
        }
        let sharers = self.workflows.slot_sharers(&self.jobs, &self.queue, job);
        for &key in keys {
            let KeyEntry { gate, kept, .. } = &self.queue.keys[key];
            if !gate.is_open() && !sharers.hold_key(&self.jobs, &self.queue, key) {
                let KeyName::Named(_, name, value) = self.queue.keys.key(key).clone() else { continue };
                let (used, limit, kept) = (gate.used, gate.limit, *kept);
                holds.push(Hold::KeyFull { name, value, used, limit, kept });
            }
        }
    }
}
