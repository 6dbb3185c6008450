//! The machine as the reference sees it: units counted anew every time, who was overtaken, and what a claim must get.

use laneway_core::{CapacityRequest, Claim, Dispatch, LoadReading, Name, QuietRule, QuietState, Seq};

use super::{Reference, is_overdue};
use crate::clock::Moment;
use crate::ledger::{Entry, Ledger};

/// What a job asks of the machine, and whether workers ask for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Need {
    /// Units.
    pub cost: u32,
    /// Up to which state of the machine it starts.
    pub rule: Option<QuietRule>,
    /// Workers ask for it.
    pub pull: bool,
    /// Only for a worker that holds nothing else.
    pub unique: bool,
}

/// How much room the machine has.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// How quiet it is.
    pub quiet: QuietState,
    /// Units that open attempts may hold.
    pub usable: u32,
    /// Units that nobody holds.
    pub free: u32,
    /// The job that goes next among those with a cost, and its cost.
    pub due: Option<(Seq, u32)>,
}

impl Room {
    /// Is it quiet enough?
    pub fn is_quiet_for(&self, rule: Option<QuietRule>) -> bool {
        rule.is_none_or(|rule| rule.allows(self.quiet))
    }

    /// Are there units for a job that is not due?
    pub fn has_units_for(&self, cost: u32) -> bool {
        cost == 0 || (cost <= self.free && self.due.is_none())
    }
}

impl Reference {
    /// What a job asks for now.
    pub fn need(&self, entry: &Entry) -> Need {
        let CapacityRequest { cost, quiet, unique, .. } = entry.row.spec.capacity;
        let pull = self.lane(&entry.lane).is_some_and(|lane| lane.pull.is_pull());
        let rule = match quiet {
            Some(QuietRule::Quiet) if entry.row.status.near_deadline => Some(QuietRule::Normal),
            rule => rule,
        };
        Need { cost, rule, pull, unique: unique && pull }
    }

    /// Does a job wait until a worker asks for it?
    pub fn waits_for_a_claim(&self, entry: &Entry) -> bool {
        self.lane(&entry.lane).is_some_and(|lane| lane.pull.dispatch == Dispatch::Claim)
    }

    /// How much room there is now. A due job that waits for a claim has its chance once its units are free.
    pub fn room(&mut self, ledger: &Ledger, moment: Moment) -> Room {
        let mut room = self.room_without_due(ledger, moment);
        while let Some((seq, cost, claimed)) = self.first_due(ledger, moment, &room) {
            if cost > room.free || !claimed {
                room.due = Some((seq, cost));
                break;
            }
            self.forget_bypassed(seq);
        }
        room
    }

    /// A probe said something, a while ago by the clock of the house. What is older than what is known counts nothing.
    pub fn take_reading(&mut self, moment: Moment, reading: LoadReading) {
        if self.reading.is_some_and(|(_, known)| reading.at < known.at) {
            return;
        }
        let age = moment.now.mono.since(reading.at).0;
        let at = reading.at.min(moment.now.mono);
        self.reading = Some((moment.at.saturating_sub(age), LoadReading { at, ..reading }));
    }

    /// Whether or not a job is due.
    pub fn room_without_due(&self, ledger: &Ledger, moment: Moment) -> Room {
        let settings = &self.settings.capacity;
        let fresh = |at: u64| moment.at - at < settings.stale_after.0;
        let (busy, quiet) = match self.reading {
            _ if !settings.measured => (0, QuietState::Quiet),
            Some((at, reading)) if fresh(at) => (reading.busy, reading.quiet),
            _ => (settings.failclosed_busy, QuietState::Busy),
        };
        let usable = settings.usable(busy);
        let used: u32 = ledger.open().map(|entry| entry.row.spec.capacity.cost).sum();
        Room { quiet, usable, free: usable.saturating_sub(used), due: None }
    }

    fn first_due(&self, ledger: &Ledger, moment: Moment, room: &Room) -> Option<(Seq, u32, bool)> {
        let jobs = self.due.iter().filter_map(|seq| ledger.jobs.get(seq));
        let mut held = jobs.filter(|entry| {
            self.need(entry).cost <= room.usable
                && entry.is_waiting()
                && !is_overdue(moment, entry)
                && self.is_open_but_for_units(ledger, entry, room)
        });
        held.next().map(|entry| (entry.row.seq, self.need(entry).cost, self.waits_for_a_claim(entry)))
    }

    /// A job is about to start: older ones that only others' units hold back are overtaken, of every lane the first of
    /// every need; in a lane that waits for claims only by claims of that lane.
    pub fn bypasses(&mut self, ledger: &Ledger, moment: Moment, starter: Seq) {
        let Some(starter) = ledger.jobs.get(&starter) else { return };
        if self.need(starter).cost == 0 {
            return;
        }
        let room = self.room(ledger, moment);
        let held = |entry: &&Entry| {
            let cost = self.need(entry).cost;
            let elsewhere = self.waits_for_a_claim(entry) && entry.lane != starter.lane;
            cost > room.free
                && cost <= room.usable
                && !elsewhere
                && self.is_open_but_for_units(ledger, entry, &room)
        };
        let held: Vec<&Entry> = ledger.waiting().filter(held).collect();
        let mut groups: Vec<(&Name, Need)> =
            held.iter().map(|entry| (&entry.lane, self.need(entry))).collect();
        groups.sort();
        groups.dedup();
        let mut bypassed = Vec::new();
        for (lane, need) in groups {
            let group = held.iter().copied().filter(|entry| entry.lane == *lane && self.need(entry) == need);
            bypassed.extend(self.first_in_lane(ledger, lane, group));
        }
        for seq in bypassed {
            let late = ledger.jobs.get(&seq).is_some_and(|entry| is_overdue(moment, entry));
            if seq < starter.row.seq && !late {
                self.bypass(seq);
            }
        }
    }

    fn bypass(&mut self, seq: Seq) {
        let count = self.bypassed.entry(seq).or_default();
        *count += 1;
        if *count >= u32::from(self.settings.capacity.bypasses_max) {
            self.due.insert(seq);
        }
    }

    /// The job has started or ended, or had its chance.
    pub fn forget_bypassed(&mut self, seq: Seq) {
        self.bypassed.remove(&seq);
        self.due.remove(&seq);
    }

    /// Does the job suit who claims?
    pub fn suits(&self, ledger: &Ledger, entry: &Entry, claim: &Claim) -> bool {
        let spec = &entry.row.spec;
        spec.tenant == claim.tenant
            && entry.lane == claim.lane
            && (claim.kinds.is_empty() || claim.kinds.contains(&spec.kind))
            && claim.agent.as_ref().is_none_or(|agent| *agent == spec.agent)
            && claim.max_cost.is_none_or(|max| spec.capacity.cost <= max)
            && self.suits_worker(ledger, entry, &claim.holder.worker)
    }

    /// A unique job is for a worker that holds nothing.
    pub fn suits_worker(&self, ledger: &Ledger, entry: &Entry, worker: &Name) -> bool {
        let holds = |other: &Entry| {
            let holder = other.open.as_ref().and_then(|open| open.holder.as_ref());
            other.row.spec.tenant == entry.row.spec.tenant
                && holder.is_some_and(|holder| holder.worker == *worker)
        };
        !self.need(entry).unique || !ledger.open().any(holds)
    }

    /// The job that a claim must get from the queue of a lane that waits for claims.
    pub fn claim_choice(&mut self, ledger: &Ledger, moment: Moment, claim: &Claim) -> Option<Seq> {
        let room = self.room(ledger, moment);
        let waiting = ledger.waiting().filter(|entry| self.waits_for_a_claim(entry));
        let suitable = waiting.filter(|entry| {
            self.suits(ledger, entry, claim) && self.is_eligible(ledger, moment, entry, &room)
        });
        self.first_in_lane(ledger, &claim.lane, suitable)
    }
}
