//! The naive reference scheduler: finds the next job by looking at everything, every time.
//!
//! It knows nothing of gates, bins and heads. It reads the ledger's plain lists, recounts every limit from the open
//! attempts, and applies the documented order literally. The engine must agree with it on every attempt it opens,
//! in order (I23), and must have left nothing eligible behind when it rests (I24c).

mod units;
pub mod workers;

use std::collections::{BTreeMap, BTreeSet};

use laneway_core::settings::TenantSettings;
use laneway_core::{
    ExecutorOffer, JobRow, JobSpec, JobState, LaneOrder, LaneSettings, LoadReading, Name, Seq, SessionMode,
    Settings,
};

use crate::clock::Moment;
use crate::ledger::{Entry, Ledger};
pub use units::{Capacity, Demand};
use workers::{WorkerPool, pin_expiry, wants_worker};

/// The reference. The checker sets its settings and executors from the commands that the engine got.
#[derive(Debug, Clone)]
pub struct Reference {
    /// The settings in force.
    pub settings: Settings,
    /// Lanes that settings named earlier, while the engine lives.
    old_lanes: BTreeMap<Name, LaneSettings>,
    /// Lanes that the engine remembers, in the order of their slots in memory.
    lane_slots: Vec<Name>,
    /// Lanes that new jobs may come to.
    taking_jobs: BTreeSet<Name>,
    /// What the executors offer.
    pub executors: Vec<ExecutorOffer>,
    /// True once the server stops.
    pub draining: bool,
    /// Storage is low: nothing starts.
    pub storage_low: bool,
    /// How many attempts it has seen open since the engine was built.
    starts: u64,
    /// When a lane was last served, as a count of starts.
    lane_served: BTreeMap<Name, u64>,
    /// When an agent was last served in a lane.
    agent_served: BTreeMap<Party, u64>,
    /// The last reading of the machine, and when it was taken.
    pub reading: Option<(u64, LoadReading)>,
    /// How often a job was bypassed.
    bypassed: BTreeMap<Seq, u32>,
    /// Jobs that were bypassed too often.
    due: BTreeSet<Seq>,
    /// The push workers.
    pub workers: WorkerPool,
}

/// An agent of a tenant in a lane: what a fair lane shares among.
type Party = (Name, Name, Name);

/// The order of jobs in a lane: smallest first.
type Rank = (i128, u64, u64);

fn party(entry: &Entry) -> Party {
    (entry.lane.clone(), entry.row.spec.tenant.clone(), entry.row.spec.agent.clone())
}

/// Are both of one agent in one lane?
pub fn same_party(a: &Entry, b: &Entry) -> bool {
    let (one, other) = (&a.row.spec, &b.row.spec);
    a.lane == b.lane && one.agent == other.agent && one.tenant == other.tenant
}

impl Reference {
    /// For an engine that was just built with these settings and no executors.
    pub fn new(settings: Settings) -> Reference {
        let lanes: Vec<Name> = settings.lanes.keys().cloned().collect();
        Reference {
            settings,
            old_lanes: BTreeMap::new(),
            taking_jobs: lanes.iter().cloned().collect(),
            lane_slots: lanes,
            executors: Vec::new(),
            draining: false,
            storage_low: false,
            starts: 0,
            lane_served: BTreeMap::new(),
            agent_served: BTreeMap::new(),
            reading: None,
            bypassed: BTreeMap::new(),
            due: BTreeSet::new(),
            workers: WorkerPool::default(),
        }
    }

    /// How many attempts it has seen open since the engine was built.
    pub fn starts(&self) -> u64 {
        self.starts
    }

    /// The engine was built anew in the same process: who was served when is forgotten.
    pub fn rebuilt(&mut self) {
        self.old_lanes.clear();
        self.lane_slots = self.settings.lanes.keys().cloned().collect();
        self.taking_jobs = self.lane_slots.iter().cloned().collect();
        self.starts = 0;
        self.lane_served.clear();
        self.agent_served.clear();
        self.bypassed.clear();
        self.due.clear();
    }

    /// The engine took up these jobs from the store: their agents have not been served yet.
    pub fn takes_up(&mut self, ledger: &Ledger) {
        for entry in ledger.open().chain(ledger.waiting()) {
            self.agent_served.entry(party(entry)).or_insert(0);
        }
    }

    /// A job was admitted: an agent that is new enters at the end of the round that goes on.
    pub fn admitted(&mut self, entry: &Entry) {
        self.agent_served.entry(party(entry)).or_insert(self.starts.saturating_sub(1));
    }

    /// An executor appears or changes its offer.
    pub fn offer(&mut self, offer: &ExecutorOffer) {
        self.withdraw(&offer.executor);
        self.executors.push(offer.clone());
    }

    /// An executor is gone.
    pub fn withdraw(&mut self, executor: &Name) {
        self.executors.retain(|known| known.executor != *executor);
    }

    /// The job that must start next, or `None` when nothing may.
    pub fn choice(&mut self, ledger: &Ledger, moment: Moment) -> Option<Seq> {
        if self.storage_low {
            return None;
        }
        let capacity = self.capacity(ledger, moment);
        if let Some((due, cost)) = capacity.next_in_line
            && cost <= capacity.free
            && !self.draining
        {
            return Some(due);
        }
        let started: Vec<&Entry> = ledger.waiting().filter(|entry| !self.waits_for_a_claim(entry)).collect();
        // A node that a running caller has called goes first.
        let mut called = started.iter().filter(|entry| ledger.chain_has_slot(entry, &|_| true));
        if let Some(called) = called.find(|entry| self.may_start(ledger, moment, entry, &capacity, true)) {
            return Some(called.row.seq);
        }
        let eligible: Vec<&Entry> =
            started.into_iter().filter(|entry| self.is_eligible(ledger, moment, entry, &capacity)).collect();
        let lane = self.next_lane(ledger, &eligible)?;
        let here = eligible.into_iter().filter(|entry| entry.lane == lane);
        self.first_in_lane(ledger, &lane, here)
    }

    /// The next job of one lane.
    fn first_in_lane<'a>(
        &self,
        ledger: &Ledger,
        lane: &Name,
        jobs: impl Iterator<Item = &'a Entry>,
    ) -> Option<Seq> {
        let settings = self.lane(lane)?;
        let best = match settings.order {
            LaneOrder::Priority => jobs.min_by_key(|entry| rank(settings, entry)),
            LaneOrder::Fair => jobs.min_by(|a, b| self.fair_order(ledger, settings, a, b)),
        };
        best.map(|entry| entry.row.seq)
    }

    /// Takes note that an attempt of this job opened.
    pub fn opened(&mut self, entry: &Entry, moment: Moment) {
        self.forget_bypassed(entry.row.seq);
        self.starts += 1;
        self.lane_served.insert(entry.lane.clone(), self.starts);
        self.agent_served.insert(party(entry), self.starts);
        let open = entry.open.as_ref().filter(|open| open.executor.as_str() == workers::WORKERS);
        if let Some(holder) = open.and_then(|open| open.holder.as_ref()) {
            self.workers.opened(
                &self.settings,
                &entry.row.spec,
                &holder.worker,
                self.starts,
                moment.now.wall,
            );
        }
    }

    /// May an attempt of this job open now?
    pub fn is_eligible(&self, ledger: &Ledger, moment: Moment, entry: &Entry, capacity: &Capacity) -> bool {
        self.may_start(ledger, moment, entry, capacity, false)
    }

    /// The same; `shared`: it may use the slots of its chain.
    fn may_start(
        &self,
        ledger: &Ledger,
        moment: Moment,
        entry: &Entry,
        capacity: &Capacity,
        shared: bool,
    ) -> bool {
        !is_overdue(moment, entry)
            && (self.demand(entry).pull || pin_expiry(&entry.row.spec).is_none_or(|at| at > moment.now.wall))
            && capacity.has_units_for(self.demand(entry).cost)
            && self.has_slots(ledger, entry, capacity, shared)
    }

    /// Is everything open that the job needs, units and its own times left out?
    fn is_open_but_for_units(&self, ledger: &Ledger, entry: &Entry, capacity: &Capacity) -> bool {
        self.has_slots(ledger, entry, capacity, false)
    }

    fn has_slots(&self, ledger: &Ledger, entry: &Entry, capacity: &Capacity, shared: bool) -> bool {
        let spec = &entry.row.spec;
        if entry.state != JobState::Queued || self.draining || self.storage_low {
            return false;
        }
        let Some(lane) = self.lane(&entry.lane) else { return false };
        if !capacity.is_quiet_for(self.demand(entry).rule) {
            return false;
        }
        let executor = self.executors.iter().find(|executor| executor.kinds.contains(&spec.kind));
        let executor = executor.filter(|_| !wants_worker(spec));
        let has_slot = |executor: &ExecutorOffer| {
            let here =
                |other: &&Entry| other.open.as_ref().is_some_and(|open| open.executor == executor.executor);
            (ledger.open().filter(here).count() as u32) < executor.slots
        };
        let is_open = |limit: u32, counts: &dyn Fn(&Entry) -> bool| {
            ledger.executors(counts) < limit || (shared && ledger.chain_has_slot(entry, counts))
        };
        let tenant_max = self.tenant(&spec.tenant).running_max;
        let kind_max =
            self.settings.kinds.get(&spec.kind).and_then(|kind| kind.running_max).unwrap_or(u32::MAX);
        !lane.paused
            && is_open(self.settings.running_max, &|_| true)
            && is_open(lane.running_max, &|other| other.lane == entry.lane)
            && is_open(lane.running_per_agent_max, &|other| same_party(other, entry))
            && is_open(tenant_max, &|other| other.row.spec.tenant == spec.tenant)
            && is_open(kind_max, &|other| other.row.spec.kind == spec.kind)
            && (lane.pull.is_pull()
                || match executor {
                    Some(executor) => has_slot(executor),
                    None => !self.workers.pick(&self.settings, ledger, entry, shared).is_empty(),
                })
            && spec.keys.iter().all(|key| {
                let holds = |other: &JobSpec| other.tenant == spec.tenant && other.keys.contains(key);
                let limit = self.key_max(&key.name).saturating_sub(ledger.keepers(&spec.tenant, key));
                is_open(limit, &|other| holds(&other.row.spec))
            })
            && self.is_next_of_session(ledger, entry)
    }

    /// A session goes in order, and only its next job decides how many may run at once.
    fn is_next_of_session(&self, ledger: &Ledger, entry: &Entry) -> bool {
        let Some(session) = &entry.row.spec.session else { return true };
        let same = |row: &JobRow| {
            row.spec.tenant == entry.row.spec.tenant
                && row.spec.session.as_ref().is_some_and(|other| other.key == session.key)
        };
        let head = ledger
            .waiting()
            .filter(|other| same(&other.row) && !other.is_never_due())
            .map(|other| (other.rank_time, other.row.seq))
            .min();
        let open = ledger.open().filter(|other| same(&other.row)).count() as u32;
        // An interrupt waits for every attempt that was asked to stop, whatever else its session would let it do.
        let waits = session.mode == SessionMode::Interrupt
            && ledger.open().any(|other| same(&other.row) && other.end.is_some());
        head == Some((entry.rank_time, entry.row.seq))
            && open < session_max(ledger, &entry.row.spec)
            && !waits
    }

    /// Among lanes with an eligible job: the lowest share of open attempts, then the one served longest ago, then by
    /// name.
    fn next_lane(&self, ledger: &Ledger, eligible: &[&Entry]) -> Option<Name> {
        let load = |lane: &Name| u64::from(ledger.executors(&|entry| entry.lane == *lane));
        let limit = |lane: &Name| self.lane(lane).map_or(0, |settings| u64::from(settings.running_max));
        let served = |lane: &Name| self.lane_served.get(lane).copied().unwrap_or(0);
        let mut lanes: Vec<&Name> = eligible.iter().map(|entry| &entry.lane).collect();
        lanes.sort();
        lanes.dedup();
        let order = |a: &&Name, b: &&Name| {
            let shares = (load(a) * limit(b)).cmp(&(load(b) * limit(a)));
            shares.then_with(|| served(a).cmp(&served(b))).then_with(|| a.cmp(b))
        };
        lanes.into_iter().min_by(order).cloned()
    }

    /// The agent with the fewest open attempts for its weight, then the one served longest ago, then the best job.
    fn fair_order(&self, ledger: &Ledger, lane: &LaneSettings, a: &Entry, b: &Entry) -> std::cmp::Ordering {
        let load = |entry: &Entry| u64::from(ledger.executors(&|other| same_party(other, entry)));
        let weight = |entry: &Entry| {
            self.settings.agents.get(&entry.row.spec.agent).map_or(1, |agent| u64::from(agent.weight.max(1)))
        };
        let served = |entry: &Entry| self.agent_served.get(&party(entry)).copied().unwrap_or(0);
        let shares = (load(a) * weight(b)).cmp(&(load(b) * weight(a)));
        shares.then_with(|| served(a).cmp(&served(b))).then_with(|| rank(lane, a).cmp(&rank(lane, b)))
    }

    /// The settings of a lane. One that is no longer named keeps its last ones for the jobs it has.
    pub fn lane(&self, name: &Name) -> Option<&LaneSettings> {
        self.settings.lanes.get(name).or_else(|| self.old_lanes.get(name))
    }

    /// New settings hold from now on. A lane that is no longer named and has no jobs is forgotten, with who was served
    /// in it, when a new one takes its slot.
    pub fn configure(&mut self, ledger: &Ledger, settings: Settings) {
        let before = std::mem::replace(&mut self.settings, settings);
        self.old_lanes.extend(before.lanes);
        let named = &self.settings.lanes;
        self.taking_jobs.retain(|lane| named.contains_key(lane));
        for lane in named.keys() {
            if !self.lane_slots.contains(lane) {
                let is_free = |capacity: &Name| {
                    !self.taking_jobs.contains(capacity)
                        && ledger.jobs.values().all(|entry| entry.lane != *capacity)
                };
                match self.lane_slots.iter().position(is_free) {
                    Some(free) => {
                        let gone = std::mem::replace(&mut self.lane_slots[free], lane.clone());
                        self.lane_served.remove(&gone);
                        self.agent_served.retain(|(of, _, _), _| *of != gone);
                    }
                    None => self.lane_slots.push(lane.clone()),
                }
            }
            self.taking_jobs.insert(lane.clone());
        }
    }

    /// The limits of a tenant.
    pub fn tenant(&self, name: &Name) -> TenantSettings {
        self.settings.tenants.get(name).copied().unwrap_or(self.settings.tenant_default)
    }

    /// How many attempts may hold one key of this name.
    pub fn key_max(&self, name: &Name) -> u32 {
        self.settings.keys.get(name).copied().unwrap_or(self.settings.key_default)
    }
}

/// How many jobs of its session may run at once when this one is the next: what it asks for, or one while the context of
/// the session is full.
pub fn session_max(ledger: &Ledger, spec: &JobSpec) -> u32 {
    let Some(session) = &spec.session else { return u32::MAX };
    let known = ledger.sessions.get(&(spec.tenant.clone(), session.key.clone()));
    if known.is_some_and(|row| row.is_throttled()) { 1 } else { session.max_concurrent.max(1) }
}

/// True when the job must not start any more.
pub fn is_overdue(moment: Moment, entry: &Entry) -> bool {
    entry.row.spec.deadline.is_some_and(|at| at <= moment.now.wall)
        || entry.queue_until.is_some_and(|until| until <= moment.at)
}

/// With aging, a level of priority is worth a step of waiting time; without, priority goes before age.
fn rank(lane: &LaneSettings, entry: &Entry) -> Rank {
    let priority = i128::from(entry.row.spec.priority);
    let seq = entry.row.seq.0;
    if entry.row.status.near_deadline {
        return match lane.aging_step {
            Some(step) => (i128::from(entry.rank_time) + priority * i128::from(step.0) - (1 << 62), 0, seq),
            None => (priority, 0, seq),
        };
    }
    match lane.aging_step {
        Some(step) => (i128::from(entry.rank_time) + priority * i128::from(step.0), 0, seq),
        None => (priority, entry.rank_time, seq),
    }
}
