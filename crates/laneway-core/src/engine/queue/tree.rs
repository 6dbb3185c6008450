//! How waiting jobs hang in the tree of heads: lane > class > source > agent > bin > job.
//!
//! A bin hangs in exactly one source of its head's agent. It hangs nowhere while its session is full, or while its head waits
//! for a retry or for jobs that join it. A source shows its first agent only while the key it hangs on is open; a class shows
//! its first source only while the gates of tenant, kind and executor are open. So a gate that closes or opens moves heads,
//! never jobs. `dispatch.rs` decides which head starts.

use crate::engine::Engine;
use crate::engine::collections::slab::Ix;
use crate::engine::jobs::{Job, Jobs};
use crate::engine::queue::agent_queue::Group;
use crate::engine::queue::bin::{BinKey, Hanging};
use crate::engine::queue::{
    AgentQueue, Bin, Class, FairKey, KeyEntry, Kind, Lane, Queue, QueueHead, Rank, SourceKey,
};
use crate::engine::workers::Workers;
use crate::settings::LaneOrder;
use crate::{JobState, LaneSettings};

/// One open attempt of an agent of weight 1, in the unit of [`FairKey::load`]. Weights up to 1,000 divide it finely enough
/// that different loads never round to the same value.
const LOAD_UNIT: u64 = 1 << 32;

impl Engine {
    /// Puts a queued job into its bin, or a job of a session that waits for its retry or for jobs that join it.
    pub(in crate::engine) fn enqueue(&mut self, job: Ix<Job>) {
        let key = self.queue.bin_key(&self.jobs[job]);
        let order = self.queue.order_in_bin(&self.jobs[job]);
        let (bin, new) = self.queue.bins.find_or_make(&key, || Bin { jobs: Default::default(), at: None });
        if new {
            match key {
                BinKey::Session(session) => self.sessions.set_bin(session, Some(bin)),
                BinKey::Plain { shared_class, .. } => self.queue.classes.hold_again(shared_class),
            }
        }
        self.queue.bins[bin].jobs.insert(order, job);
        self.jobs[job].set_bin(bin);
        self.refresh(bin);
    }

    /// Takes a job out of the bin it waits in, if it waits in one.
    pub(in crate::engine) fn dequeue(&mut self, job: Ix<Job>) {
        let Some(bin) = self.jobs[job].take_bin() else { return };
        self.queue.remove_from_bin(bin, job, &self.jobs[job]);
        self.refresh(bin);
    }

    /// The head of a bin, its session or its backoff may have changed: hangs the bin where it belongs now.
    pub(in crate::engine) fn refresh(&mut self, bin: Ix<Bin>) {
        // All jobs of a plain bin pass the same gates, so it stays where it hangs; the next job of a session may have others.
        let stays = matches!(self.queue.bins.key(bin), BinKey::Plain { .. });
        let source = match self.queue.bins[bin].at {
            Some(at) if stays => at.source,
            _ => self.queue.home_of(&self.jobs, &self.workers, bin),
        };
        self.refresh_in(bin, source);
    }

    /// What blocks the session of a job may have changed.
    pub(in crate::engine) fn refresh_session(&mut self, job: Ix<Job>) {
        if let Some(session) = self.jobs[job].session()
            && let Some(bin) = self.sessions.bin_of(session)
        {
            self.refresh(bin);
        }
    }

    /// The same, and hangs the bin in `source` if it hangs at all.
    pub(in crate::engine) fn refresh_in(&mut self, bin: Ix<Bin>, source: SourceKey) {
        let Some((_, head)) = self.queue.bins[bin].jobs.first() else {
            self.hang(bin, None);
            match self.queue.bins.release(bin) {
                Some((BinKey::Session(session), _)) => self.sessions.set_bin(session, None),
                Some((BinKey::Plain { shared_class, .. }, _)) => {
                    self.queue.release_any_class(&mut self.workers, shared_class)
                }
                None => {}
            }
            return;
        };
        if self.is_blocked(head) {
            return self.hang(bin, None);
        }
        let hanging = Hanging {
            agent_queue: self.jobs[head].agent_queue(),
            source,
            rank: self.queue.rank_of(&self.jobs[head]),
        };
        self.hang(bin, Some(hanging));
    }

    fn hang(&mut self, bin: Ix<Bin>, to: Option<Hanging>) {
        if let Some(key) = self.queue.hang(&self.workers, bin, to) {
            self.workers.release_key(&mut self.queue, key);
        }
    }

    /// Moves a bin whose head met a closed gate to the source that hangs on that gate.
    pub(in crate::engine) fn park(&mut self, bin: Ix<Bin>, source: SourceKey) {
        let at = self.queue.bins[bin].at.expect("a parked bin was a head");
        self.hang(bin, Some(Hanging { source, ..at }));
    }

    /// True when a head must wait even if all its gates are open.
    fn is_blocked(&self, head: Ix<Job>) -> bool {
        let job = &self.jobs[head];
        job.state() != JobState::Queued || !self.sessions.lets_start(&self.jobs, job)
    }

    /// The order or a limit of a lane changed: every bin in it is sorted and hung anew.
    pub(in crate::engine) fn replant_lane(&mut self, lane: Ix<Lane>, was: &LaneSettings) {
        let order_changed = was.order != self.queue.lanes[lane].settings.order
            || was.aging_step != self.queue.lanes[lane].settings.aging_step;
        let agent_queues: Vec<Ix<AgentQueue>> = self
            .queue
            .agent_queues
            .handles()
            .into_iter()
            .filter(|&agent_queue| self.queue.agent_queues[agent_queue].lane == lane)
            .collect();
        if !order_changed {
            for agent_queue in agent_queues {
                self.queue.rekey_agent(&self.workers, agent_queue);
            }
            return;
        }
        let bins = self.queue.bins.handles();
        for bin in bins {
            let (_, head) = self.queue.bins[bin].jobs.first().expect("bins are not empty");
            if self.queue.agent_queues[self.jobs[head].agent_queue()].lane != lane {
                continue;
            }
            self.hang(bin, None);
            let jobs = std::mem::take(&mut self.queue.bins[bin].jobs);
            for (_, job) in jobs.iter() {
                let order = self.queue.order_in_bin(&self.jobs[job]);
                self.queue.bins[bin].jobs.insert(order, job);
            }
            self.refresh(bin);
        }
    }
}

impl Queue {
    /// The rank of a job among its agent's jobs.
    pub(in crate::engine) fn rank_of(&self, job: &Job) -> Rank {
        let lane = &self.lanes[self.lane_of(job)].settings;
        if job.near() {
            return rank_near(lane, job.priority(), job.rank_time(), job.seq());
        }
        rank(lane, job.priority(), job.rank_time(), job.seq())
    }

    /// Jobs of a session start in the order of their times, whatever their priorities.
    pub(in crate::engine) fn order_in_bin(&self, job: &Job) -> Rank {
        if job.session().is_none() {
            return self.rank_of(job);
        }
        Rank::by_level(i64::try_from(job.rank_time()).unwrap_or(i64::MAX), job.seq())
    }

    fn bin_key(&self, job: &Job) -> BinKey {
        match job.session() {
            None => {
                let shared_class = self.classes[job.class()].shared_class.unwrap_or(job.class());
                BinKey::Plain { agent_queue: job.agent_queue(), shared_class, keyset: job.keyset() }
            }
            Some(session) => BinKey::Session(session),
        }
    }

    /// Where a bin hangs that met no closed gate: ready, or on its class. It hangs on its class where its jobs have a capacity
    /// request, so that the lane finds its heads by their demands, and where the class is closed, so that it need not be
    /// parked there later.
    pub(in crate::engine) fn home_of(&self, jobs: &Jobs, workers: &Workers, bin: Ix<Bin>) -> SourceKey {
        let class = match *self.bins.key(bin) {
            BinKey::Plain { shared_class, .. } => shared_class,
            BinKey::Session(_) => match self.bins[bin].jobs.first() {
                Some((_, head)) => jobs[head].class(),
                None => return SourceKey::READY,
            },
        };
        let Class { demand, kind, .. } = self.classes[class];
        // Jobs in a shared class may need another class since their kind got a limit. The dispatcher sees that when they are ready.
        let ready = demand.is_none() && (kind.is_none() || self.class_is_open(workers, class));
        SourceKey { class: (!ready).then_some(class), key: None }
    }

    /// The load, weight or limit of an agent changed: its entries move, except those that may lag.
    pub(in crate::engine) fn rekey_agent(&mut self, workers: &Workers, agent_queue: Ix<AgentQueue>) {
        self.rekey(workers, agent_queue, SourceKey::READY);
        let entry = &self.agent_queues[agent_queue];
        if entry.groups.parked.is_empty() {
            return;
        }
        let standing = self.standing(entry);
        let moves = |source: SourceKey, group: &Group| {
            let now = standing.fair_key(group);
            now != group.shown_key() && !self.may_lag(source, group.shown_key(), now)
        };
        let parked = entry.groups.parked.iter();
        let moved: Vec<SourceKey> =
            parked.filter(|(source, group)| moves(**source, group)).map(|(source, _)| *source).collect();
        for source in moved {
            self.rekey(workers, agent_queue, source);
        }
    }

    /// May an agent's entry in a source keep an old key? Yes where the agent only goes further back: the entry then comes to
    /// the front too early, and is moved back when it is looked at. So an agent that waits behind many closed gates is not
    /// sorted again behind each of them whenever one of its attempts opens or closes. Claims read heads with a demand without
    /// looking at each, so those never lag.
    fn may_lag(&self, source: SourceKey, was: Option<FairKey>, now: Option<FairKey>) -> bool {
        let behind = matches!((was, now), (Some(was), Some(now)) if was < now);
        behind && source.class.is_some_and(|class| self.classes[class].demand.is_none())
    }

    /// False when the entry of a head's agent lags.
    pub(super) fn is_current(&self, (fair, agent_queue, source): QueueHead) -> bool {
        if source == SourceKey::READY {
            return true;
        }
        let entry = &self.agent_queues[agent_queue];
        let group = entry.groups.get(source).expect("a head has its group");
        self.standing(entry).fair_key(group) == Some(fair)
    }

    /// Moves entries of a source that lag back to where they belong, until its first one does not lag.
    pub(super) fn catch_up(&mut self, workers: &Workers, lane: Ix<Lane>, source: SourceKey) {
        let first = |queue: &Queue| queue.lanes[lane].sources.get(source)?.agents.first();
        while let Some((fair, agent_queue)) = first(self)
            && !self.is_current((fair, agent_queue, source))
        {
            self.move_entry(agent_queue, source);
        }
        self.show_source(workers, lane, source);
    }

    /// Each agent's entry in a source has the agent's key, or lags where it may.
    pub(super) fn check_fair_keys(&self) -> Result<(), String> {
        for (ix, _, entry) in self.agent_queues.iter() {
            let standing = self.standing(entry);
            for (source, group) in entry.groups.iter() {
                let now = standing.fair_key(group);
                if group.shown_key() != now && !self.may_lag(source, group.shown_key(), now) {
                    return Err(format!("agent queue {ix} has the wrong key in source {source:?}"));
                }
            }
        }
        Ok(())
    }

    fn standing(&self, entry: &AgentQueue) -> Standing {
        let settings = &self.lanes[entry.lane].settings;
        let (load, served) = match settings.order {
            // Nearly all agents have weight 1, and a division takes longer than all the rest.
            LaneOrder::Fair if entry.weight == 1 => (u64::from(entry.open) * LOAD_UNIT, entry.served),
            LaneOrder::Fair => (u64::from(entry.open) * LOAD_UNIT / u64::from(entry.weight), entry.served),
            LaneOrder::Priority => (0, 0),
        };
        Standing { withheld: entry.open >= settings.running_per_agent_max, load, served }
    }

    /// A gate of the class opened or closed: shows or hides its heads in every lane.
    pub(in crate::engine) fn reshow_class(&mut self, workers: &Workers, class: Ix<Class>) {
        let lanes: Vec<Ix<Lane>> = self.classes[class].lanes.iter().copied().collect();
        for lane in lanes {
            self.show_class(workers, lane, class);
        }
    }

    /// A key opened or closed: shows or hides the sources that hang on it.
    pub(in crate::engine) fn reshow_key(&mut self, workers: &Workers, key: Ix<KeyEntry>) {
        let sources: Vec<(Ix<Lane>, SourceKey)> = self.keys[key].sources.iter().copied().collect();
        for (lane, source) in sources {
            self.show_source(workers, lane, source);
        }
    }

    /// True while the gates of tenant, kind and executor are open, or a worker that fits has a free slot.
    pub(in crate::engine) fn class_is_open(&self, workers: &Workers, class: Ix<Class>) -> bool {
        let class = &self.classes[class];
        let open = match (class.executor, class.kind) {
            (Some(executor), _) => self.executors[executor].gate.is_open(),
            (None, Some(kind)) => {
                self.kinds[kind].gate.is_open() && self.class_has_capacity_for(workers, class, kind)
            }
            (None, None) => false,
        };
        open && self.tenants[class.tenant].gate.is_open()
    }

    /// True while the executor, or a worker that fits, has a free slot for jobs of a class that is no shared class.
    pub(in crate::engine) fn class_has_free_slot(&self, workers: &Workers, class: Ix<Class>) -> bool {
        let class = &self.classes[class];
        self.class_has_capacity_for(workers, class, class.own_kind())
    }

    fn class_has_capacity_for(&self, workers: &Workers, class: &Class, kind: Ix<Kind>) -> bool {
        if self.is_pull(class.demand) {
            return true;
        }
        match (class.route, class.placement) {
            (Some(route), _) => workers.has_free_slot(route),
            (None, None) => {
                self.kinds[kind].executor.is_some_and(|executor| self.executors[executor].gate.is_open())
            }
            // A job that uses a resource of one worker is checked against that worker itself.
            (None, Some(placement)) => workers.is_pinned(placement),
        }
    }

    /// Hangs a bin there, and brings the entries of its agents up to date. Returns the key on which it hung: the caller takes
    /// one user of it away.
    fn hang(&mut self, workers: &Workers, bin: Ix<Bin>, to: Option<Hanging>) -> Option<Ix<KeyEntry>> {
        let from = std::mem::replace(&mut self.bins[bin].at, to);
        if from == to {
            return None;
        }
        // A bin that hangs on a key is one of its users: the gate of a worker has no others.
        if let Some(key) = to.and_then(|at| at.source.key) {
            self.keys.hold_again(key);
        }
        if let Some(at) = from {
            let group = self.agent_queues[at.agent_queue]
                .groups
                .get_mut(at.source)
                .expect("a hanging bin has its group");
            group.bins.remove(&(at.rank, bin));
        }
        if let Some(at) = to {
            self.agent_queues[at.agent_queue]
                .groups
                .get_or_default(at.source)
                .bins
                .insert((at.rank, bin), ());
        }
        match (from, to) {
            (Some(from), Some(to)) if (from.agent_queue, from.source) == (to.agent_queue, to.source) => {
                self.rekey(workers, to.agent_queue, to.source)
            }
            (from, to) => {
                for at in [from, to].into_iter().flatten() {
                    self.rekey(workers, at.agent_queue, at.source);
                }
            }
        }
        from.and_then(|at| at.source.key)
    }

    /// A job leaves its bin. The bin may be empty then.
    pub(super) fn remove_from_bin(&mut self, bin: Ix<Bin>, ix: Ix<Job>, job: &Job) {
        let (first, head) = self.bins[bin].jobs.first().expect("a job waits in its bin");
        let order = if head == ix { first } else { self.order_in_bin(job) };
        self.bins[bin].jobs.remove(&order);
    }

    /// Brings an agent's entry in one source up to date.
    fn rekey(&mut self, workers: &Workers, agent_queue: Ix<AgentQueue>, source: SourceKey) {
        if !self.move_entry(agent_queue, source) {
            return;
        }
        let lane = self.agent_queues[agent_queue].lane;
        if let Some(key) = source.key {
            self.keys[key].sources.insert((lane, source));
        }
        self.show_source(workers, lane, source);
    }

    /// Puts an agent's entry where it belongs in one source; true when it was elsewhere.
    fn move_entry(&mut self, agent_queue: Ix<AgentQueue>, source: SourceKey) -> bool {
        let standing = self.standing(&self.agent_queues[agent_queue]);
        let entry = &mut self.agent_queues[agent_queue];
        let lane = entry.lane;
        let Some(group) = entry.groups.get_mut(source) else { return false };
        let now = standing.fair_key(group);
        let changed = group.shown_key() != now;
        if changed {
            let agents = &mut self.lanes[lane].sources.get_or_default(source).agents;
            group.shown = match (group.shown, now) {
                (Some((_, slot)), Some(fair)) => {
                    agents.replace(slot, (fair, agent_queue));
                    Some((fair, slot))
                }
                (None, Some(fair)) => Some((fair, agents.insert((fair, agent_queue)))),
                (Some((_, slot)), None) => {
                    agents.remove(slot);
                    None
                }
                (None, None) => None,
            };
        }
        if group.bins.is_empty() {
            entry.groups.prune(source);
        }
        changed
    }

    /// Brings what a source shows up to date.
    fn show_source(&mut self, workers: &Workers, lane: Ix<Lane>, source: SourceKey) {
        let open = source.key.is_none_or(|key| self.keys[key].gate.is_open());
        let entry = &mut self.lanes[lane];
        let Some(hanging) = entry.sources.get_mut(source) else { return };
        let now = if open { hanging.agents.first() } else { None };
        let was = std::mem::replace(&mut hanging.head, now);
        if hanging.agents.is_empty() {
            entry.sources.prune(source);
            if let Some(key) = source.key {
                self.keys[key].sources.remove(&(lane, source));
            }
        }
        if was == now {
            return;
        }
        let heads = match source.class {
            // The ready source is shown by the lane itself.
            None => &mut entry.heads,
            Some(class) => &mut entry.classes.entry(class).or_default().heads,
        };
        if let Some((fair, agent_queue)) = was {
            heads.remove(&(fair, agent_queue, source));
        }
        if let Some((fair, agent_queue)) = now {
            heads.insert((fair, agent_queue, source));
        }
        if let Some(class) = source.class {
            self.classes[class].lanes.insert(lane);
            self.show_class(workers, lane, class);
        }
    }

    /// Brings what a class shows in a lane up to date.
    fn show_class(&mut self, workers: &Workers, lane: Ix<Lane>, class: Ix<Class>) {
        let open = self.class_is_open(workers, class);
        let demand = self.classes[class].demand;
        let entry = &mut self.lanes[lane];
        let Some(sources) = entry.classes.get_mut(&class) else { return };
        let now = if open { sources.heads.first().copied() } else { None };
        let was = std::mem::replace(&mut sources.head, now);
        if sources.heads.is_empty() {
            entry.classes.remove(&class);
            self.classes[class].lanes.remove(&lane);
        }
        if was == now {
            return;
        }
        let heads = match demand {
            None => &mut entry.heads,
            Some(demand) => entry.by_demand.entry(demand).or_default(),
        };
        if let Some(head) = was {
            heads.remove(&head);
        }
        if let Some(head) = now {
            heads.insert(head);
        }
        if let Some(demand) = demand
            && entry.by_demand.get(&demand).is_some_and(|heads| heads.is_empty())
        {
            entry.by_demand.remove(&demand);
        }
    }
}

/// Where an agent stands in the fair order of its lane.
struct Standing {
    /// True: it has as many open attempts as it may.
    withheld: bool,
    load: u64,
    served: u64,
}

impl Standing {
    /// The key of the agent's entry for a group of its bins; `None` while it has none.
    fn fair_key(&self, group: &Group) -> Option<FairKey> {
        let ((rank, _), ()) = group.bins.first().filter(|_| !self.withheld)?;
        Some(FairKey { load: self.load, served: self.served, rank })
    }
}

/// The order of a job whose deadline is near: with aging it goes ahead of all whose deadline is not; else it is the oldest of
/// its priority.
fn rank_near(lane: &LaneSettings, priority: i32, rank_time: u64, seq: u64) -> Rank {
    match lane.aging_step {
        Some(step) => {
            let bonus = i64::from(priority).saturating_mul(i64::try_from(step.0).unwrap_or(i64::MAX));
            let time = i64::try_from(rank_time).unwrap_or(i64::MAX);
            Rank::by_level(time.saturating_add(bonus).saturating_add(i64::MIN / 2), seq)
        }
        None => Rank::by_priority(priority, 0, seq),
    }
}

/// The order of jobs in a lane: with aging, one level of priority is worth one step of waiting time; else priority first.
fn rank(lane: &LaneSettings, priority: i32, rank_time: u64, seq: u64) -> Rank {
    match lane.aging_step {
        Some(step) => {
            let bonus = i64::from(priority).saturating_mul(i64::try_from(step.0).unwrap_or(i64::MAX));
            let time = i64::try_from(rank_time).unwrap_or(i64::MAX);
            Rank::by_level(time.saturating_add(bonus), seq)
        }
        None => Rank::by_priority(priority, rank_time, seq),
    }
}
