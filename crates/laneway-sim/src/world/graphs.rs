//! Clients that ask for runs: small graphs of jobs, some with middleware chains, now and then one that cannot be; and
//! middlewares that call the next element of their chain.

use laneway_core::command::WorkflowCommand;
use laneway_core::job::IdempotencyKey;
use laneway_core::{
    Bytes, Chain, Command, FailurePolicy, Fence, Member, Name, NextCall, Origin, RunSpec, RunSubmission,
    RunSubmitted, Span,
};

use super::{REMEMBERED_JOBS, World};
use crate::runs::Caller;

/// Most nodes of a run of the world: small ones meet more often.
const NODES_MAX: u64 = 6;

impl World {
    /// A client submits a run: a random graph in which nodes wait for earlier ones.
    pub(super) fn submit_run(&mut self) -> Command {
        let count = self.rng.between(1, NODES_MAX) as usize;
        let dense = self.rng.small(10, 70);
        let tenant = self.rng.pick(&self.shape.tenants).clone();
        let name = |node: usize| Name::new(&format!("n{node}")).expect("a letter and a number are a name");
        let mut members = Vec::with_capacity(count);
        for node in 0..count {
            let mut submission = self.submission();
            submission.spec.tenant = tenant.clone();
            (submission.spec.session, submission.spec.idempotency) = (None, None);
            let depends_on = (0..node).filter(|_| self.rng.chance(dense)).map(name).collect();
            members
                .push(Member { depends_on, ..Member::new(name(node), submission.spec, submission.payload) });
        }
        if self.rng.chance(self.shape.habits.chains) {
            let host = self.rng.below(count as u64) as usize;
            self.put_chain_around(&mut members, host);
        }
        if self.rng.chance(3) {
            // A node that waits for itself, at once or through all the others.
            members[0].depends_on.push(name(count - 1));
            for (node, member) in members.iter_mut().enumerate().skip(1) {
                member.depends_on.push(name(node - 1));
            }
        }
        let idempotency = self.rng.chance(self.shape.habits.idempotency / 2).then(|| {
            let key =
                Name::new(&format!("idem{}", self.rng.below(4))).expect("a word and a number are a name");
            IdempotencyKey { key, digest: [u8::from(self.rng.chance(15)); 32] }
        });
        let failure = if self.rng.chance(50) { FailurePolicy::Stop } else { FailurePolicy::Continue };
        let spec = RunSpec {
            lane: self.rng.pick(&self.shape.lanes).clone(),
            failure,
            idempotency,
            ..RunSpec::new(tenant)
        };
        let origin = Origin::server("client");
        Command::Workflow(WorkflowCommand::Submit(Box::new(RunSubmission {
            spec,
            members,
            definition: None,
            origin,
            prior: None,
            strict_lanes: false,
        })))
    }

    /// A node gets one to three middlewares, which may depend on earlier nodes; now and then they contradict one another.
    fn put_chain_around(&mut self, members: &mut Vec<Member>, host: usize) {
        let name = |index: u32| Name::new(&format!("m{index}")).expect("a letter and a number are a name");
        let middlewares: Vec<Name> = (0..self.rng.small(1, 3)).map(name).collect();
        let node = members[host].node.clone();
        let chain = |index| Chain { host: node.clone(), middlewares: middlewares.clone(), index };
        let tenant = members[host].spec.tenant.clone();
        for (index, middleware) in (0u32..).zip(&middlewares) {
            let mut submission = self.submission();
            submission.spec.tenant = tenant.clone();
            (submission.spec.session, submission.spec.idempotency) = (None, None);
            if index > 0 {
                submission.spec.not_before = None;
            }
            let earlier = members[..host].iter().map(|member| member.node.clone());
            let depends_on = earlier.filter(|_| self.rng.chance(15)).collect();
            members.push(Member {
                depends_on,
                chain: Some(chain(Some(index))),
                ..Member::new(middleware.clone(), submission.spec, submission.payload)
            });
        }
        members[host].spec.not_before = None;
        members[host].chain = Some(chain(None));
        if self.rng.chance(4) {
            let last = members.len() - 1;
            match self.rng.below(3) {
                0 => members[host].chain = None,
                1 => members[last].chain = Some(chain(Some(7))),
                _ => members[last].chain = Some(chain(None)),
            }
        }
    }

    /// What a run of a middleware knows of its calls; `None` for all others.
    pub(super) fn caller_of(&self, fence: &Fence) -> Option<Caller> {
        let index = self.checker.ledger.find(fence.job)?.chain()?.index?;
        Some(Caller { index, calls: 0, waits: false })
    }

    /// A middleware that works calls, waits, or does as any other run does (`None`). A run that is none calls now and then,
    /// too.
    pub(super) fn caller_speaks(&mut self, at: usize) -> Option<Option<Command>> {
        let run = &self.runs[at];
        let fence = run.fence;
        if !run.works() || (run.told_to_stop && self.rng.chance(60)) {
            return None;
        }
        let Some(caller) = run.caller.clone() else {
            return self.rng.chance(1).then(|| Some(self.call(fence, 0, 0)));
        };
        let waits = if caller.waits { 60 } else { 0 };
        if self.rng.chance(waits) {
            return Some(run.leased.then_some(Command::Heartbeat(fence)).filter(|_| run.at.is_none()));
        }
        if !self.rng.chance(if caller.waits { 25 } else { 55 }) {
            return None;
        }
        // Mostly a new call; now and then the latest once more.
        let again = caller.calls > 0 && self.rng.chance(25);
        let number = if again { caller.calls } else { caller.calls + 1 };
        let index = if self.rng.chance(5) { caller.index + 1 } else { caller.index };
        if let Some(caller) = self.runs[at].caller.as_mut() {
            (caller.calls, caller.waits) = (number, true);
        }
        Some(Some(self.call(fence, index, number)))
    }

    /// A call of the next element.
    pub(super) fn call(&mut self, fence: Fence, index: u32, number: u32) -> Command {
        let request = Name::new(&format!("q{number}")).expect("a letter and a number are a name");
        let timeout = self.rng.chance(50).then(|| Span(self.rng.between(0, 20_000)));
        let payload = self.rng.chance(30).then(|| Bytes::from(&b"{}"[..]));
        Command::Workflow(WorkflowCommand::CallNext(Box::new(NextCall {
            fence,
            request,
            index,
            timeout,
            payload,
        })))
    }

    /// A client cancels a run, perhaps another tenant's or one that has ended.
    pub(super) fn cancel_run(&mut self) -> Option<Command> {
        let (run, owner) = match self.known_runs.len() {
            0 => return None,
            known => self.known_runs[self.rng.below(known as u64) as usize].clone(),
        };
        let tenant = match self.rng.below(5) {
            0 => None,
            1 => Some(self.rng.pick(&self.shape.tenants).clone()),
            _ => Some(owner),
        };
        Some(Command::Workflow(WorkflowCommand::Cancel { tenant, run, origin: Origin::server("client") }))
    }

    /// Remembers a run that a client was told of, and its jobs.
    pub(super) fn remember_run(&mut self, tenant: &Name, submitted: &RunSubmitted) {
        if self.known_runs.len() == REMEMBERED_JOBS {
            self.known_runs.pop_front();
        }
        self.known_runs.push_back((submitted.run, tenant.clone()));
        for job in &submitted.jobs {
            self.remember_job(*job, tenant.clone());
        }
    }
}
