//! Pull workers, messages by lease id, and the probe that reports the load of the machine.

use laneway_core::command::{AdminCommand, LeaseCommand};
use laneway_core::lease::{Grant, LeaseFor, LeaseMessage, LeaseRequest, LeaseUpdate};
use laneway_core::{Claim, Command, Holder, LoadReading, Name, QuietState, Reply};

use super::World;
use crate::attempts::SimAttempt;

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

    /// A worker requests to run one job now: a new one, or one that it knows.
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

    /// A message by lease id: mostly of its holder, or of another worker, or of an operator who revokes the lease.
    pub(super) fn lease_message(&mut self) -> Option<Command> {
        let open = self.checker.ledger.open().filter_map(|entry| entry.open.clone());
        let mut leases: Vec<_> = open.filter(|open| open.executor.as_str() == "leases").collect();
        if leases.is_empty() {
            return None;
        }
        let at = self.rng.below(leases.len() as u64) as usize;
        let open = leases.swap_remove(at);
        let holder = open.holder.map(|holder| holder.worker);
        let attempt = self.attempts.iter().position(|attempt| attempt.fence == open.fence);
        let mut message = LeaseMessage {
            lease: open.fence.attempt_id,
            tenant: self.rng.chance(10).then(|| self.rng.pick(&self.shape.tenants).clone()),
            worker: None,
            pid: self.rng.chance(20).then_some(9),
            update: LeaseUpdate::Alive,
        };
        match self.rng.below(10) {
            0 => {
                message.update = LeaseUpdate::Revoke("enough".into());
                return Some(Command::Lease(LeaseCommand::Message(Box::new(message))));
            }
            // A caller that knows the fence of a reserved job may start it without a name.
            2 if holder.is_none() => return Some(Command::Start(open.fence)),
            1 => {
                message.worker = Some(self.holder().worker);
                message.update = if self.rng.chance(50) {
                    LeaseUpdate::Report
                } else {
                    LeaseUpdate::Ended(self.outcome(open.fence.job))
                };
                let is_other = message.worker != holder;
                return is_other.then(|| Command::Lease(LeaseCommand::Message(Box::new(message))));
            }
            _ => {}
        }
        // An attempt that is cut off reports nothing, and one that has ended reports nothing more.
        let attempt =
            attempt.filter(|&attempt| !self.attempts[attempt].cut && self.attempts[attempt].lives())?;
        message.worker = holder;
        if self.attempts[attempt].works() && self.rng.chance(40) {
            message.update = LeaseUpdate::Ended(self.outcome(open.fence.job));
            self.attempts[attempt].phase = crate::attempts::Phase::Ended;
        }
        Some(Command::Lease(LeaseCommand::Message(Box::new(message))))
    }

    /// What a worker makes of the answer to what it asked.
    pub(super) fn claim_answered(&mut self, reply: &Reply, at: u64) {
        let Reply::Granted(grant) = reply else { return };
        let grant: &Grant = grant;
        if self.attempts.iter().any(|attempt| attempt.fence == grant.fence) {
            return;
        }
        let mut attempt = SimAttempt::granted(grant, at);
        attempt.stubborn = !self.healed && self.rng.chance(self.shape.faults.stubborn);
        attempt.cut = !self.healed && self.rng.chance(self.shape.faults.cut);
        self.attempts.push(attempt);
    }
}
