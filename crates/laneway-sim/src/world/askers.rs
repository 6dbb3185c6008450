//! Workers that ask for work, whoever speaks by a lease's id, and the probe that says how the machine is.

use laneway_core::command::{AdminCommand, LeaseCommand};
use laneway_core::lease::{Grant, LeaseFor, LeaseMessage, LeaseRequest, LeaseUpdate};
use laneway_core::{Claim, Command, Holder, LoadReading, Name, QuietState, Reply};

use super::World;
use crate::runs::Run;

impl World {
    /// A probe looks at the machine.
    pub(super) fn reading(&mut self) -> Command {
        let quiet = *self.rng.pick(&[
            QuietState::Quiet,
            QuietState::Quiet,
            QuietState::Quiet,
            QuietState::Normal,
            QuietState::Busy,
            QuietState::Panic,
        ]);
        let busy = if self.rng.chance(60) { 0 } else { self.rng.below(11) as u8 };
        Command::Admin(AdminCommand::Load(LoadReading { busy, quiet, at: self.clock.moment().now.mono }))
    }

    fn holder(&mut self) -> Holder {
        let worker = *self.rng.pick(&["w1", "w2", "w3"]);
        Holder { worker: Name::fixed(worker), pid: self.rng.chance(20).then_some(7), boot: None }
    }

    /// A worker asks for the next job that suits it.
    pub(super) fn claim(&mut self) -> Command {
        let holder = self.holder();
        let lane =
            if self.rng.chance(90) { self.pull_lane() } else { self.rng.pick(&self.shape.lanes).clone() };
        let (rng, shape) = (&mut self.rng, &self.shape);
        let some_kinds = rng.chance(30);
        Command::Lease(LeaseCommand::Claim(Box::new(Claim {
            tenant: rng.pick(&shape.tenants).clone(),
            lane,
            agent: rng.chance(30).then(|| rng.pick(&shape.agents).clone()),
            kinds: shape.kinds.iter().filter(|_| some_kinds && rng.chance(60)).cloned().collect(),
            max_cost: rng.chance(30).then(|| *rng.pick(&[0, 5, 10, 50])),
            holder,
            start: rng.chance(50),
            token: None,
        })))
    }

    fn pull_lane(&mut self) -> Name {
        let lanes = self.checker.reference.settings.lanes.iter();
        let lanes: Vec<Name> =
            lanes.filter(|(_, lane)| lane.pull.is_pull()).map(|(name, _)| name.clone()).collect();
        if lanes.is_empty() { Name::fixed("main") } else { self.rng.pick(&lanes).clone() }
    }

    /// A worker asks to run one job now: a new one, or one that it has heard of.
    pub(super) fn request(&mut self) -> Option<Command> {
        let holder = self.holder();
        let what = if self.rng.chance(50) {
            let lane = self.pull_lane();
            let mut submission = self.submission();
            let spec = &mut submission.spec;
            (spec.session, spec.not_before, spec.idempotency) = (None, None, None);
            spec.keys.clear();
            spec.lane = lane;
            LeaseFor::New(Box::new(submission))
        } else {
            let waiting: Vec<_> = self.checker.ledger.jobs.values().map(|entry| entry.row.id).collect();
            if waiting.is_empty() {
                return None;
            }
            let job = *self.rng.pick(&waiting);
            let tenant = self.rng.chance(50).then(|| self.rng.pick(&self.shape.tenants).clone());
            LeaseFor::Job { tenant, job }
        };
        Some(Command::Lease(LeaseCommand::Request(Box::new(LeaseRequest { what, holder }))))
    }

    /// Somebody speaks by a lease's id: mostly its holder, or a stranger, or an operator who takes it away.
    pub(super) fn lease_message(&mut self) -> Option<Command> {
        let open = self.checker.ledger.open().filter_map(|entry| entry.open.clone());
        let mut leases: Vec<_> = open.filter(|open| open.executor.as_str() == "leases").collect();
        if leases.is_empty() {
            return None;
        }
        let at = self.rng.below(leases.len() as u64) as usize;
        let open = leases.swap_remove(at);
        let holder = open.holder.map(|holder| holder.worker);
        let run = self.runs.iter().position(|run| run.fence == open.fence);
        let mut word = LeaseMessage {
            lease: open.fence.attempt_id,
            tenant: self.rng.chance(10).then(|| self.rng.pick(&self.shape.tenants).clone()),
            worker: None,
            pid: self.rng.chance(20).then_some(9),
            update: LeaseUpdate::Alive,
        };
        match self.rng.below(10) {
            0 => {
                word.update = LeaseUpdate::Revoke("enough".into());
                return Some(Command::Lease(LeaseCommand::Message(Box::new(word))));
            }
            // Whoever knows the fence of a job that is set aside may take it without a name.
            2 if holder.is_none() => return Some(Command::Start(open.fence)),
            1 => {
                word.worker = Some(self.holder().worker);
                word.update = if self.rng.chance(50) {
                    LeaseUpdate::Report
                } else {
                    LeaseUpdate::Ended(self.outcome())
                };
                let stranger = word.worker != holder;
                return stranger.then(|| Command::Lease(LeaseCommand::Message(Box::new(word))));
            }
            _ => {}
        }
        // A run that nobody hears says nothing, and one that has ended says nothing more.
        let run = run.filter(|&run| !self.runs[run].cut && self.runs[run].lives())?;
        word.worker = holder;
        if self.runs[run].works() && self.rng.chance(40) {
            word.update = LeaseUpdate::Ended(self.outcome());
            self.runs[run].phase = crate::runs::Phase::Ended;
        }
        Some(Command::Lease(LeaseCommand::Message(Box::new(word))))
    }

    /// What a worker makes of the answer to what it asked.
    pub(super) fn worker_heard(&mut self, reply: &Reply, at: u64) {
        let Reply::Granted(grant) = reply else { return };
        let grant: &Grant = grant;
        if self.runs.iter().any(|run| run.fence == grant.fence) {
            return;
        }
        let mut run = Run::granted(grant, at);
        run.stubborn = !self.healed && self.rng.chance(self.shape.faults.stubborn);
        run.cut = !self.healed && self.rng.chance(self.shape.faults.cut);
        self.runs.push(run);
    }
}
