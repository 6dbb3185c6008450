//! Recounts everything from the jobs and compares: counters are derived, never free-standing.

mod fleet;

use std::collections::{BTreeMap, BTreeSet};

use super::Engine;
use super::chains::ChainKey;
use super::slab::{Ix, NONE};
use super::state::{BinKey, Wake};
use crate::JobState;

/// What a chain has one place in.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Scope {
    Server,
    Tenant,
    Lane(Ix),
    Agent(Ix),
    Kind(Ix),
    Key(Ix),
}

/// Counts of one thing: waiting jobs and open attempts.
type Counts<K> = BTreeMap<K, (u32, u32)>;

impl Engine {
    /// Recounts everything from the jobs and compares; says what does not agree.
    pub fn check_invariants(&self) -> Result<(), String> {
        self.check_jobs()?;
        self.check_counts()?;
        self.check_sessions()?;
        self.check_bins()?;
        self.check_heads()?;
        self.check_deliveries()?;
        self.check_units()?;
        self.check_fleet()?;
        self.check_timers()?;
        self.check_runs()?;
        self.check_chains()?;
        self.check_schedules()
    }

    fn check_jobs(&self) -> Result<(), String> {
        for (ix, job) in self.jobs.iter() {
            let fault = |what: &str| Err(format!("job {} ({}): {what}", job.id, job.state));
            if self.find_job(job.id) != Some(ix) {
                return fault("is not found by its id");
            }
            if job.open != NONE && job.bin != NONE {
                return fault("waits and runs at once");
            }
            if job.state.is_open() != (job.open != NONE && !job.state.is_terminal()) {
                return fault("its state and its attempt disagree");
            }
            if job.state.is_terminal() && job.open == NONE {
                return fault("has ended and is still in memory");
            }
            if job.state == JobState::Queued && job.bin == NONE {
                return fault("is queued and in no bin");
            }
            if job.wake.is_some() != (job.state == JobState::Scheduled) {
                return fault("its state and its wake-up disagree");
            }
        }
        if self.by_id.len() != self.jobs.len() {
            return Err("the index by id has strangers".into());
        }
        Ok(())
    }

    fn check_counts(&self) -> Result<(), String> {
        let mut lanes: Counts<Ix> = BTreeMap::new();
        let mut nodes: Counts<Ix> = BTreeMap::new();
        let mut tenants: Counts<Ix> = BTreeMap::new();
        let (mut kinds, mut places, mut keys, mut sessions) =
            (Counts::<Ix>::new(), Counts::<Ix>::new(), Counts::<Ix>::new(), Counts::<Ix>::new());
        let mut total = (0, 0);
        let mut states: BTreeMap<Ix, [u32; JobState::ALL.len()]> = BTreeMap::new();
        // What runs of one chain counts once in each of these.
        let mut seen: BTreeSet<(&ChainKey, Scope)> = BTreeSet::new();
        for (ix, job) in self.jobs.iter() {
            let class = &self.classes[job.class];
            let waits = u32::from(job.open == NONE);
            let open = 1 - waits;
            let chain = self.chains.of.get(&ix);
            let mut once =
                |scope| u32::from(open == 1 && chain.is_none_or(|chain| seen.insert((chain, scope))));
            let lane = self.nodes[job.node].lane;
            let add = |count: &mut (u32, u32)| *count = (count.0 + waits, count.1 + open);
            let add_once = |count: &mut (u32, u32), open| *count = (count.0 + waits, count.1 + open);
            add_once(&mut total, once(Scope::Server));
            states.entry(class.tenant).or_default()[usize::from(job.state.code())] += 1;
            add_once(lanes.entry(lane).or_default(), once(Scope::Lane(lane)));
            add_once(nodes.entry(job.node).or_default(), once(Scope::Agent(job.node)));
            add_once(tenants.entry(class.tenant).or_default(), once(Scope::Tenant));
            add_once(kinds.entry(class.kind).or_default(), once(Scope::Kind(class.kind)));
            if job.open != NONE {
                add(places.entry(self.attempts[job.open].place).or_default());
            }
            if job.session != NONE {
                add(sessions.entry(job.session).or_default());
            }
            if job.keyset != NONE {
                for &key in self.keysets.key(job.keyset).iter() {
                    add_once(keys.entry(key).or_default(), once(Scope::Key(key)));
                }
            }
        }
        compare("server", &"", (self.waiting, self.open), total)?;
        for (ix, lane) in self.lanes.iter().enumerate() {
            let recount = lanes.get(&(ix as Ix)).copied().unwrap_or_default();
            compare("lane", &lane.name, (lane.waiting, lane.open), recount)?;
        }
        for (ix, key, node) in self.nodes.iter() {
            compare("agent", key, (node.waiting, node.open), nodes.get(&ix).copied().unwrap_or_default())?;
        }
        for (ix, name, tenant) in self.tenants.iter() {
            let recount = tenants.get(&ix).copied().unwrap_or_default();
            compare("tenant", name, (tenant.waiting, tenant.gate.used), recount)?;
            let recount = states.get(&ix).copied().unwrap_or_default();
            if tenant.states != recount {
                return Err(format!("tenant {name}: states {:?}, but jobs say {recount:?}", tenant.states));
            }
        }
        for (ix, name, kind) in self.kinds.iter() {
            compare_open("kind", name, kind.gate.used, &kinds, ix)?;
        }
        for (ix, name, place) in self.places.iter() {
            compare_open("place", name, place.gate.used, &places, ix)?;
        }
        for (ix, name, key) in self.keys.iter() {
            compare_open("key", name, key.gate.used, &keys, ix)?;
        }
        for (ix, name, session) in self.sessions.iter() {
            let open = u32::try_from(session.runs.len()).unwrap_or(u32::MAX);
            compare_open("session", name, open, &sessions, ix)?;
            let recount = sessions.get(&ix).copied().unwrap_or_default();
            compare("session", name, (self.waiting_in_session(ix), open), recount)?;
        }
        Ok(())
    }

    fn check_sessions(&self) -> Result<(), String> {
        let mut idle = 0;
        for (ix, (tenant, key), session) in self.sessions.iter() {
            let fault = |what: &str| Err(format!("session {tenant}/{key}: {what}"));
            if session.runs.iter().any(|&job| self.jobs[job].session != ix || self.jobs[job].open == NONE) {
                return fault("a run of it is not its run");
            }
            if session.later.values().any(|&job| !matches!(self.jobs[job].wake, Some(Wake::NotBefore(_)))) {
                return fault("a job of it waits for no time");
            }
            if let Some(buffer) = &session.buffer
                && (!matches!(self.jobs[buffer.leader].wake, Some(Wake::Debounce(_)))
                    || self.jobs[buffer.leader].session != ix)
            {
                return fault("the job that others join does not wait for them");
            }
            let is_idle = session.facts.as_ref().filter(|_| self.sessions.users(ix) == 1);
            idle += usize::from(is_idle.is_some());
            if is_idle.is_some_and(|facts| !self.idle_sessions.contains(facts.updated_at, ix)) {
                return fault("is idle and not known to be");
            }
        }
        if idle != self.idle_sessions.len() {
            return Err(format!("{} sessions are said to be idle, {idle} are", self.idle_sessions.len()));
        }
        self.idle_sessions.check()
    }

    fn check_bins(&self) -> Result<(), String> {
        let mut hanging = 0;
        for (ix, key, bin) in self.bins.iter() {
            if bin.jobs.is_empty() || self.bins.find(key) != Some(ix) {
                return Err(format!("bin {ix} is empty or not found by its key"));
            }
            if let Some((_, job)) = bin.jobs.iter().find(|(_, job)| self.jobs[*job].bin != ix) {
                return Err(format!("job {} does not know its bin", self.jobs[job].id));
            }
            if let BinKey::Plain { shelf, .. } = *key
                && let Some((_, job)) = bin.jobs.iter().find(|(_, job)| !self.may_stand_on(*job, shelf))
            {
                return Err(format!("job {} stands on a shelf of another place", self.jobs[job].id));
            }
            let Some(at) = bin.at else { continue };
            hanging += 1;
            let (_, head) = bin.jobs.first().expect("checked above");
            if at.rank != self.rank_of(head) || at.node != self.jobs[head].node {
                return Err(format!("bin {ix} hangs where its head does not belong"));
            }
            let group = self.nodes[at.node].groups.get(at.source);
            if !group.is_some_and(|group| group.bins.contains(&(at.rank, ix))) {
                return Err(format!("bin {ix} is not in the group it hangs in"));
            }
        }
        let grouped: usize = self
            .nodes
            .iter()
            .flat_map(|(_, _, node)| node.groups.iter())
            .map(|(_, group)| group.bins.len())
            .sum();
        if grouped != hanging {
            return Err(format!("{grouped} bins are grouped, {hanging} hang"));
        }
        Ok(())
    }

    /// A job stands in a bin of its own class or on the shelf of its tenant and place; its kind may have got a limit since.
    fn may_stand_on(&self, job: Ix, shelf: Ix) -> bool {
        let class = self.jobs[job].class;
        let (own, shelf_class) = (&self.classes[class], &self.classes[shelf]);
        class == shelf
            || (shelf_class.kind == NONE
                && shelf_class.tenant == own.tenant
                && shelf_class.need == own.need
                && shelf_class.place == self.kinds[own.kind].place)
    }

    /// What each level shows is the first of the level below, if the gate in between is open.
    fn check_heads(&self) -> Result<(), String> {
        for lane in &self.lanes {
            let (mut shown, mut needy) = (0, 0);
            for (key, source) in lane.sources.iter() {
                let open = key.key == NONE || self.keys[key.key].gate.is_open();
                let head = if open { source.agents.first().copied() } else { None };
                if head != source.head {
                    return Err(format!("lane {}: source {key:?} shows the wrong head", lane.name));
                }
                let Some((turn, node)) = head else { continue };
                let above = match key.class {
                    NONE => {
                        shown += 1;
                        &lane.heads
                    }
                    class => &lane.classes[&class].heads,
                };
                if !above.contains(&(turn, node, key)) {
                    return Err(format!("lane {}: the head of {key:?} is not shown", lane.name));
                }
            }
            for (class, sources) in &lane.classes {
                let head = if self.class_is_open(*class) { sources.heads.first().copied() } else { None };
                if head != sources.head {
                    return Err(format!("lane {}: class {class} shows the wrong head", lane.name));
                }
                match self.classes[*class].need {
                    NONE => shown += usize::from(head.is_some()),
                    need => {
                        let above = lane.needy.get(&need);
                        if head.is_some_and(|head| !above.is_some_and(|heads| heads.contains(&head))) {
                            return Err(format!(
                                "lane {}: the head of class {class} is not shown",
                                lane.name
                            ));
                        }
                        needy += usize::from(head.is_some());
                    }
                }
            }
            if lane.needy.values().map(BTreeSet::len).sum::<usize>() != needy {
                return Err(format!("lane {}: does not show {needy} heads with needs", lane.name));
            }
            if lane.heads.len() != shown {
                return Err(format!(
                    "lane {}: shows {} heads instead of {shown}",
                    lane.name,
                    lane.heads.len()
                ));
            }
        }
        Ok(())
    }

    /// Units, leases and jobs that are set aside are what open attempts say.
    fn check_units(&self) -> Result<(), String> {
        let (mut used, mut leases, mut aside) = (0, 0, 0);
        for (ix, job) in self.jobs.iter() {
            let fault = |what: &str| Err(format!("job {} ({}): {what}", job.id, job.state));
            let due = self.capacity.due.contains(&(job.seq, ix));
            if due && (job.open != NONE || job.state.is_terminal()) {
                return fault("is due and does not wait");
            }
            if job.open == NONE {
                continue;
            }
            used += self.cost_of(ix);
            let open = &self.attempts[job.open];
            if open.job != ix {
                return fault("its attempt is another job's");
            }
            if !open.pull {
                continue;
            }
            leases += 1;
            if self.capacity.leases.get(&open.attempt_id) != Some(&ix) {
                return fault("its lease is not found by its id");
            }
            let lane = &self.lanes[self.nodes[job.node].lane as usize];
            let is_aside = lane.aside.contains(&(open.number, ix));
            if is_aside != (self.is_aside(ix) && !job.state.is_terminal()) {
                return fault("is set aside and taken, or neither");
            }
            aside += usize::from(is_aside);
        }
        if used != self.capacity.used {
            return Err(format!("{} units are counted, but open attempts hold {used}", self.capacity.used));
        }
        if leases != self.capacity.leases.len() {
            return Err(format!("{} leases are known, {leases} are open", self.capacity.leases.len()));
        }
        if aside != self.lanes.iter().map(|lane| lane.aside.len()).sum::<usize>() {
            return Err("strangers are set aside".into());
        }
        Ok(())
    }

    fn check_timers(&self) -> Result<(), String> {
        let mut armed = (0, 0);
        for (ix, job) in self.jobs.iter() {
            if !self.timers.holds(ix, job.armed) {
                return Err(format!("job {} is armed but no timer holds it", job.id));
            }
            armed.0 += usize::from(job.armed.mono.get().is_some());
            armed.1 += usize::from(job.armed.wall.get().is_some());
        }
        if self.timers.len() != armed {
            return Err(format!("{:?} timers for {armed:?} armed jobs", self.timers.len()));
        }
        Ok(())
    }

    fn check_schedules(&self) -> Result<(), String> {
        let schedules = &self.schedules;
        let (mut due, mut runs) = (0, 0);
        for (id, entry) in &schedules.entries {
            let (spec, state) = (&entry.schedule.spec, &entry.schedule.state);
            let fault = |what: &str| Err(format!("schedule {id}: {what}"));
            if schedules.names.get(&(spec.tenant.clone(), spec.name.clone())) != Some(id) {
                return fault("is not found by its name");
            }
            if let Some(at) = state.next_at {
                due += 1;
                if !spec.enabled || !schedules.due.contains(&(at, *id)) {
                    return fault("its next slot is not armed, or it is switched off");
                }
                if state.last_slot.is_some_and(|slot| at <= slot) {
                    return fault("a slot that came would come again");
                }
            }
            if state.waiting_slot.is_some() && entry.runs.is_empty() && !schedules.ended.contains(id) {
                return fault("a slot waits for a run that is not there");
            }
            runs += entry.runs.len();
            if entry.runs.iter().any(|job| schedules.runs.get(job).is_none_or(|run| run.of.id != *id)) {
                return fault("a run of it is not known");
            }
        }
        let orphans =
            schedules.runs.values().filter(|run| !schedules.entries.contains_key(&run.of.id)).count();
        if due != schedules.due.len() || schedules.names.len() != schedules.entries.len() {
            return Err("the index of schedules has strangers".into());
        }
        if runs + orphans != schedules.runs.len() {
            return Err(format!("{} runs of schedules, of which {runs} are known", schedules.runs.len()));
        }
        Ok(())
    }
}

fn compare(
    what: &str,
    name: &dyn std::fmt::Debug,
    counted: (u32, u32),
    recount: (u32, u32),
) -> Result<(), String> {
    if counted == recount {
        return Ok(());
    }
    Err(format!("{what} {name:?}: counts (waiting, open) {counted:?}, but jobs say {recount:?}"))
}

fn compare_open(
    what: &str,
    name: &dyn std::fmt::Debug,
    used: u32,
    counts: &Counts<Ix>,
    ix: Ix,
) -> Result<(), String> {
    let recount = counts.get(&ix).map_or(0, |count| count.1);
    compare(what, name, (0, used), (0, recount))
}
