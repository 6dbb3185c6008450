//! Clients that ask for runs: small graphs of jobs, now and then one that cannot be.

use laneway_core::job::IdempotencyKey;
use laneway_core::{Command, FailurePolicy, Member, Name, Origin, RunSpec, RunSubmission, RunSubmitted};

use super::{REMEMBERED_JOBS, World};

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
            members.push(Member {
                node: name(node),
                spec: submission.spec,
                payload: submission.payload,
                depends_on,
                bindings: Vec::new(),
                chain: None,
            });
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
            tenant,
            name: None,
            lane: self.rng.pick(&self.shape.lanes).clone(),
            failure,
            client: None,
            idempotency,
            tags: Vec::new(),
        };
        let origin = Origin::house("client");
        Command::SubmitRun(Box::new(RunSubmission { spec, members, definition: None, origin, prior: None }))
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
        Some(Command::CancelRun { tenant, run, origin: Origin::house("client") })
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
