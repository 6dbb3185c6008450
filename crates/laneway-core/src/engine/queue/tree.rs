//! How waiting jobs hang in the tree of heads: lane > class > source > agent > bin > job.
//!
//! A bin hangs in exactly one source of its head's agent, or nowhere while its session is full or its head waits for a
//! retry or for others to join it. A source shows its first agent only while the key it hangs on is open; a class shows its first source only
//! while the gates of tenant, kind and place are open. So a gate that closes or opens moves heads, never jobs, and wakes
//! nobody. Which head is taken is decided in `dispatch.rs`.

use crate::engine::Engine;
use crate::engine::collections::slab::Ix;
use crate::engine::jobs::Job;
use crate::engine::queue::{
    AgentQueue, Bin, BinKey, Class, FairKey, Hanging, KeyEntry, Kind, Lane, Rank, SourceKey,
};
use crate::engine::sessions::order::rank_in_session;
use crate::settings::LaneOrder;
use crate::{JobState, LaneSettings};

/// One open attempt of an agent of weight 1, in the unit of [`FairKey::load`]. Weights up to 1,000 divide it finely enough
/// that different loads never round to the same value.
const LOAD_UNIT: u64 = 1 << 32;

impl Engine {
    /// Puts a queued job (or a job of a session that waits for its retry or for others to join it) where it waits.
    pub(in crate::engine) fn enqueue(&mut self, job: Ix<Job>) {
        let key = self.bin_key(job);
        let order = self.order_in_bin(job);
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
        let order = self.order_in_bin(job);
        self.queue.bins[bin].jobs.remove(&order);
        self.refresh(bin);
    }

    /// The head of a bin, its session or its backoff may have changed: hangs the bin where it belongs now.
    pub(in crate::engine) fn refresh(&mut self, bin: Ix<Bin>) {
        // All jobs of a plain bin need the same, so it stays where it hangs; a session's next job may need something else.
        let stays = matches!(self.queue.bins.key(bin), BinKey::Plain { .. });
        let source = match self.queue.bins[bin].at {
            Some(at) if stays => at.source,
            _ => self.home_of(bin),
        };
        self.refresh_in(bin, source);
    }

    /// What holds the session of a job may have changed.
    pub(in crate::engine) fn refresh_session(&mut self, job: Ix<Job>) {
        if let Some(session) = self.jobs[job].session()
            && let Some(bin) = self.sessions.bin_of(session)
        {
            self.refresh(bin);
        }
    }

    /// Where a bin hangs that met no closed gate: ready, or with its class where its jobs ask something of the machine, so
    /// that the lane finds its heads by their demands.
    pub(in crate::engine) fn home_of(&self, bin: Ix<Bin>) -> SourceKey {
        let class = match *self.queue.bins.key(bin) {
            BinKey::Plain { shared_class, .. } => shared_class,
            BinKey::Session(_) => match self.queue.bins[bin].jobs.first() {
                Some((_, head)) => self.jobs[head].class(),
                None => return SourceKey::READY,
            },
        };
        match self.queue.classes[class].demand {
            None => SourceKey::READY,
            Some(_) => SourceKey { class: Some(class), key: None },
        }
    }

    /// The same, and hangs the bin in `source` if it hangs at all.
    pub(in crate::engine) fn refresh_in(&mut self, bin: Ix<Bin>, source: SourceKey) {
        let Some((_, head)) = self.queue.bins[bin].jobs.first() else {
            self.hang(bin, None);
            match self.queue.bins.release(bin) {
                Some((BinKey::Session(session), _)) => self.sessions.set_bin(session, None),
                Some((BinKey::Plain { shared_class, .. }, _)) => self.release_any_class(shared_class),
                None => {}
            }
            return;
        };
        if self.is_held(head) {
            return self.hang(bin, None);
        }
        let hanging =
            Hanging { agent_queue: self.jobs[head].agent_queue(), source, rank: self.rank_of(head) };
        self.hang(bin, Some(hanging));
    }

    /// Moves a bin whose head met a closed gate to the source that hangs on that gate.
    pub(in crate::engine) fn park(&mut self, bin: Ix<Bin>, source: SourceKey) {
        let at = self.queue.bins[bin].at.expect("a parked bin was a head");
        self.hang(bin, Some(Hanging { source, ..at }));
    }

    /// An agent's load, share or limit changed: all its entries move.
    pub(in crate::engine) fn rekey_agent(&mut self, agent_queue: Ix<AgentQueue>) {
        self.rekey(agent_queue, SourceKey::READY);
        if self.queue.agent_queues[agent_queue].groups.parked.is_empty() {
            return;
        }
        let parked: Vec<SourceKey> =
            self.queue.agent_queues[agent_queue].groups.parked.keys().copied().collect();
        for source in parked {
            self.rekey(agent_queue, source);
        }
    }

    /// A gate of the class opened or closed: shows or hides its heads in every lane.
    pub(in crate::engine) fn reshow_class(&mut self, class: Ix<Class>) {
        let lanes: Vec<Ix<Lane>> = self.queue.classes[class].lanes.iter().copied().collect();
        for lane in lanes {
            self.show_class(lane, class);
        }
    }

    /// A key opened or closed: shows or hides the sources that hang on it.
    pub(in crate::engine) fn reshow_key(&mut self, key: Ix<KeyEntry>) {
        let sources: Vec<(Ix<Lane>, SourceKey)> = self.queue.keys[key].sources.iter().copied().collect();
        for (lane, source) in sources {
            self.show_source(lane, source);
        }
    }

    /// True while the gates of tenant, kind and place (or a worker that fits) all have room.
    pub(in crate::engine) fn class_is_open(&self, class: Ix<Class>) -> bool {
        let class = &self.queue.classes[class];
        let open = match (class.executor, class.kind) {
            (Some(executor), _) => self.queue.executors[executor].gate.is_open(),
            (None, Some(kind)) => self.queue.kinds[kind].gate.is_open() && self.room_of(class, kind),
            (None, None) => false,
        };
        open && self.queue.tenants[class.tenant].gate.is_open()
    }

    /// True while a place, or a worker that fits, has room for jobs of a class that is no shared class.
    pub(in crate::engine) fn class_has_room(&self, class: Ix<Class>) -> bool {
        let class = &self.queue.classes[class];
        self.room_of(class, class.own_kind())
    }

    fn room_of(&self, class: &Class, kind: Ix<Kind>) -> bool {
        if self.is_pull(class.demand) {
            return true;
        }
        match (class.route, class.placement) {
            (Some(route), _) => !self.workers.pool.routes[route].heads.is_empty(),
            (None, None) => self.queue.kinds[kind]
                .executor
                .is_some_and(|executor| self.queue.executors[executor].gate.is_open()),
            // A job that uses something on one worker looks at that worker itself.
            (None, Some(placement)) => self.workers.placements[placement].pinned,
        }
    }

    /// The rank of a job among its agent's jobs.
    pub(in crate::engine) fn rank_of(&self, job: Ix<Job>) -> Rank {
        let job = &self.jobs[job];
        let lane = &self.queue.lanes[self.queue.agent_queues[job.agent_queue()].lane].settings;
        if job.near() {
            return rank_near(lane, job.priority(), job.rank_time(), job.seq());
        }
        rank(lane, job.priority(), job.rank_time(), job.seq())
    }

    fn bin_key(&self, job: Ix<Job>) -> BinKey {
        let job = &self.jobs[job];
        match job.session() {
            None => {
                let shared_class = self.queue.classes[job.class()].shared_class.unwrap_or(job.class());
                BinKey::Plain { agent_queue: job.agent_queue(), shared_class, keyset: job.keyset() }
            }
            Some(session) => BinKey::Session(session),
        }
    }

    /// A session goes in the order of its jobs' times, whatever their priorities.
    pub(in crate::engine) fn order_in_bin(&self, job: Ix<Job>) -> Rank {
        let entry = &self.jobs[job];
        if entry.session().is_none() {
            return self.rank_of(job);
        }
        rank_in_session(entry)
    }

    /// True when a head must wait although all its gates might be open.
    fn is_held(&self, head: Ix<Job>) -> bool {
        let job = &self.jobs[head];
        job.state() != JobState::Queued || !self.sessions.lets_start(&self.jobs, job)
    }

    /// Hangs a bin where it is told, and brings the entries of its agents up to date.
    fn hang(&mut self, bin: Ix<Bin>, to: Option<Hanging>) {
        let from = std::mem::replace(&mut self.queue.bins[bin].at, to);
        if from == to {
            return;
        }
        // A bin that hangs on a key is one of its users: the gate of a worker has no others.
        if let Some(key) = to.and_then(|at| at.source.key) {
            self.queue.keys.hold_again(key);
        }
        if let Some(at) = from {
            let group = self.queue.agent_queues[at.agent_queue]
                .groups
                .get_mut(at.source)
                .expect("a hanging bin has its group");
            group.bins.remove(&(at.rank, bin));
        }
        if let Some(at) = to {
            self.queue.agent_queues[at.agent_queue]
                .groups
                .get_or_default(at.source)
                .bins
                .insert((at.rank, bin), ());
        }
        match (from, to) {
            (Some(from), Some(to)) if (from.agent_queue, from.source) == (to.agent_queue, to.source) => {
                self.rekey(to.agent_queue, to.source)
            }
            (from, to) => {
                for at in [from, to].into_iter().flatten() {
                    self.rekey(at.agent_queue, at.source);
                }
            }
        }
        if let Some(key) = from.and_then(|at| at.source.key) {
            self.release_key(key);
        }
    }

    /// Brings an agent's entry in one source up to date.
    fn rekey(&mut self, agent_queue: Ix<AgentQueue>, source: SourceKey) {
        let entry = &mut self.queue.agent_queues[agent_queue];
        let lane = entry.lane;
        let settings = &self.queue.lanes[lane].settings;
        let withheld = entry.open >= settings.running_per_agent_max;
        let (load, served) = match settings.order {
            LaneOrder::Fair => (u64::from(entry.open) * LOAD_UNIT / u64::from(entry.weight), entry.served),
            LaneOrder::Priority => (0, 0),
        };
        let Some(group) = entry.groups.get_mut(source) else { return };
        let best = if withheld { None } else { group.bins.first() };
        let now = best.map(|((rank, _), ())| FairKey { load, served, rank });
        let was = std::mem::replace(&mut group.shown, now);
        if group.bins.is_empty() {
            entry.groups.prune(source);
        }
        if was == now {
            return;
        }
        let agents = &mut self.queue.lanes[lane].sources.get_or_default(source).agents;
        if let Some(fair) = was {
            agents.remove(&(fair, agent_queue));
        }
        if let Some(fair) = now {
            agents.insert((fair, agent_queue));
        }
        if let Some(key) = source.key {
            self.queue.keys[key].sources.insert((lane, source));
        }
        self.show_source(lane, source);
    }

    /// Brings what a source shows up to date.
    fn show_source(&mut self, lane: Ix<Lane>, source: SourceKey) {
        let open = source.key.is_none_or(|key| self.queue.keys[key].gate.is_open());
        let entry = &mut self.queue.lanes[lane];
        let Some(hanging) = entry.sources.get_mut(source) else { return };
        let now = if open { hanging.agents.first().copied() } else { None };
        let was = std::mem::replace(&mut hanging.head, now);
        if hanging.agents.is_empty() {
            entry.sources.prune(source);
            if let Some(key) = source.key {
                self.queue.keys[key].sources.remove(&(lane, source));
            }
        }
        if was == now {
            return;
        }
        let heads = match source.class {
            // The ready source stands in the lane itself.
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
            self.queue.classes[class].lanes.insert(lane);
            self.show_class(lane, class);
        }
    }

    /// Brings what a class shows in a lane up to date.
    fn show_class(&mut self, lane: Ix<Lane>, class: Ix<Class>) {
        let open = self.class_is_open(class);
        let demand = self.queue.classes[class].demand;
        let entry = &mut self.queue.lanes[lane];
        let Some(sources) = entry.classes.get_mut(&class) else { return };
        let now = if open { sources.heads.first().copied() } else { None };
        let was = std::mem::replace(&mut sources.head, now);
        if sources.heads.is_empty() {
            entry.classes.remove(&class);
            self.queue.classes[class].lanes.remove(&lane);
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

    /// The order or the sharing of a lane changed: every bin that stands in it is sorted and hung anew.
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
                self.rekey_agent(agent_queue);
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
                let order = self.order_in_bin(job);
                self.queue.bins[bin].jobs.insert(order, job);
            }
            self.refresh(bin);
        }
    }
}

/// The order of a job whose deadline is near: with aging it goes ahead of all whose deadline is not; else it is the oldest of
/// its priority.
pub(in crate::engine) fn rank_near(lane: &LaneSettings, priority: i32, rank_time: u64, seq: u64) -> Rank {
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
pub(in crate::engine) fn rank(lane: &LaneSettings, priority: i32, rank_time: u64, seq: u64) -> Rank {
    match lane.aging_step {
        Some(step) => {
            let bonus = i64::from(priority).saturating_mul(i64::try_from(step.0).unwrap_or(i64::MAX));
            let time = i64::try_from(rank_time).unwrap_or(i64::MAX);
            Rank::by_level(time.saturating_add(bonus), seq)
        }
        None => Rank::by_priority(priority, rank_time, seq),
    }
}
