//! What a submit must be answered, and which job may come of it: I2 (no phantom), I4 (idempotency), I5 (batches) and
//! I20 (queue caps hold exactly, and no job that fits is rejected).

use laneway_core::command::{LeaseCommand, WorkflowCommand};
use std::borrow::Cow;
use std::collections::BTreeSet;

use laneway_core::lease::LeaseFor;
use laneway_core::{
    Bytes, Command, JobId, JobRow, JobSpec, Name, RejectionCode, Session, SessionMode, Submission,
};

use super::{Checker, Given, KeyUse};
use crate::clock::Moment;
use crate::shape::POISON_KIND;
use crate::violation::{Checked, Violation, hold};

/// What a submit must be answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// A new job.
    Fresh,
    /// The job that the idempotency key stands for; `None`: an earlier one of the same batch.
    Existing(Option<JobId>),
    /// No job.
    Rejected(RejectionCode),
    /// Not known.
    Open,
}

/// Jobs that earlier items of a batch added.
#[derive(Default)]
struct Added<'a> {
    jobs: Vec<(Name, &'a JobSpec)>,
    keys: Vec<(&'a Name, &'a Name, [u8; 32])>,
}

/// The number that the world wrote into a payload.
pub fn submit_number(payload: &Bytes) -> Option<u64> {
    payload.get(..8).and_then(|bytes| bytes.try_into().ok()).map(u64::from_le_bytes)
}

impl Checker {
    /// What a single submit must be answered.
    pub fn verdict(&self, submission: &Submission, moment: Moment) -> Verdict {
        self.verdict_beside(submission, moment, &Added::default())
    }

    /// What each item of a batch must be answered.
    pub fn batch_verdicts(&self, items: &[Submission], atomic: bool, moment: Moment) -> Vec<Verdict> {
        let poisoned = items.iter().any(|item| item.spec.kind.as_str() == POISON_KIND);
        let mut added = Added::default();
        let mut verdicts = Vec::with_capacity(items.len());
        for item in items {
            let verdict = self.verdict_beside(item, moment, &added);
            if verdict == Verdict::Fresh {
                added.jobs.push((self.lane_of(&item.spec), &item.spec));
                if let Some(idempotency) = &item.spec.idempotency {
                    added.keys.push((&item.spec.tenant, &idempotency.key, idempotency.digest));
                }
            }
            verdicts.push(verdict);
        }
        if poisoned || verdicts.contains(&Verdict::Open) || self.items_meet(items, moment) {
            // A batch with a row that the store rejects is submitted again item by item, with starts in between.
            return vec![Verdict::Open; items.len()];
        }
        if atomic && verdicts.iter().any(|verdict| matches!(verdict, Verdict::Rejected(_))) {
            for verdict in &mut verdicts {
                if !matches!(verdict, Verdict::Rejected(_)) {
                    *verdict = Verdict::Rejected(RejectionCode::BatchRejected);
                }
            }
        }
        verdicts
    }

    /// True when what one item does to its session may decide about another item.
    fn items_meet(&self, items: &[Submission], moment: Moment) -> bool {
        let ruled = |item: &Submission| {
            let session = item.spec.session.as_ref();
            let rules = |session: &Session| {
                session.cap.is_some() || session.debounce.is_some() || session.mode == SessionMode::Interrupt
            };
            session.is_some_and(rules) || self.would_join(item, moment)
        };
        items.len() > 1 && items.iter().any(ruled)
    }

    /// The lane that a job really runs in.
    pub fn lane_of(&self, spec: &JobSpec) -> Name {
        match self.reference.settings.lanes.contains_key(&spec.lane) {
            true => spec.lane.clone(),
            false => Name::fixed("main"),
        }
    }

    fn verdict_beside(&self, submission: &Submission, moment: Moment, added: &Added<'_>) -> Verdict {
        let spec = &submission.spec;
        if let Some(idempotency) = &spec.idempotency {
            if let Some(known) = self.keys.get(&(spec.tenant.clone(), idempotency.key.clone())) {
                let gone = self.ledger.ended.get(&known.seq).is_some_and(|entry| entry.purgeable);
                return match known.digest == idempotency.digest {
                    _ if gone => Verdict::Open,
                    true => Verdict::Existing(Some(known.job)),
                    false => Verdict::Rejected(RejectionCode::IdempotencyMismatch),
                };
            }
            let earlier = added
                .keys
                .iter()
                .find(|(tenant, key, _)| **tenant == spec.tenant && **key == idempotency.key);
            if let Some((_, _, digest)) = earlier {
                return match *digest == idempotency.digest {
                    true => Verdict::Existing(None),
                    false => Verdict::Rejected(RejectionCode::IdempotencyMismatch),
                };
            }
        }
        if let Some(code) = self.form_of(spec, moment) {
            return Verdict::Rejected(code);
        }
        if self.caps(spec, &added.jobs).iter().any(|(_, waiting, cap)| waiting >= cap) {
            return Verdict::Rejected(RejectionCode::QueueFull);
        }
        if let Some(code) = self.session_verdict(submission, moment) {
            return Verdict::Rejected(code);
        }
        if spec.kind.as_str() == POISON_KIND {
            Verdict::Rejected(RejectionCode::Invalid)
        } else {
            Verdict::Fresh
        }
    }

    fn form_of(&self, spec: &JobSpec, moment: Moment) -> Option<RejectionCode> {
        let past = spec.deadline.is_some_and(|deadline| {
            deadline <= moment.now.wall || spec.not_before.is_some_and(|not_before| not_before >= deadline)
        });
        let lane = self.lane_of(spec);
        let pull = self.reference.lane(&lane).is_some_and(|lane| lane.pull.is_pull());
        let known = pull
            || self.reference.settings.kinds.contains_key(&spec.kind)
            || self.reference.executors.iter().any(|executor| executor.kinds.contains(&spec.kind))
            || self.reference.workers.is_offered(&self.reference.settings, &lane, spec);
        if self.reference.draining {
            Some(RejectionCode::Draining)
        } else if self.storage_low {
            Some(RejectionCode::StorageLow)
        } else if spec.capacity.cost > self.reference.settings.capacity.usable(0) {
            Some(RejectionCode::NeverFits)
        } else if past {
            Some(RejectionCode::DeadlinePast)
        } else if self.reference.settings.strict_kinds && !known {
            Some(RejectionCode::UnknownKind)
        } else {
            None
        }
    }

    /// Every cap that a new job of this sort meets: its scope, how many wait there, and how many may.
    fn caps(&self, spec: &JobSpec, added: &[(Name, &JobSpec)]) -> [(&'static str, usize, usize); 4] {
        let lane = self.lane_of(spec);
        let count = |counts: &dyn Fn(&Name, &JobSpec) -> bool| {
            let stored = self.ledger.waiting().filter(|entry| counts(&entry.lane, &entry.row.spec)).count();
            stored + added.iter().filter(|(lane, spec)| counts(lane, spec)).count()
        };
        let settings = &self.reference.settings;
        let limits = self.reference.lane(&lane).cloned().unwrap_or_default();
        let tenant = self.reference.tenant(&spec.tenant);
        let of_agent = |at: &Name, other: &JobSpec| {
            *at == lane && other.tenant == spec.tenant && other.agent == spec.agent
        };
        // Naive: what each known tenant has reserved and does not use, counted anew. A tenant with nothing in a queue
        // has a quarter of its share reserved.
        let known = self.known_tenants();
        let cap = |max: u32, here: &dyn Fn(&Name) -> bool| {
            let reserved = u64::from(max) * u64::from(settings.reserved_percent) / 100;
            let each = if known.len() < 2 { 0 } else { reserved as usize / known.len() };
            let minimum = if each == 0 { 0 } else { (each / 4).max(1) };
            let has = |tenant: &Name| {
                let stored = self.ledger.waiting().filter(|entry| entry.row.spec.tenant == *tenant);
                let added = added.iter().filter(|(lane, other)| here(lane) && other.tenant == *tenant);
                stored.filter(|entry| here(&entry.lane)).count() + added.count()
            };
            let own = has(&spec.tenant);
            if own < minimum {
                return max as usize;
            }
            let mut tenants = self.tenants_waiting();
            tenants.extend(added.iter().map(|(_, other)| &other.tenant));
            let others = tenants.iter().filter(|tenant| **tenant != &spec.tenant).map(|tenant| has(tenant));
            let counts: Vec<usize> = others.filter(|count| *count > 0).collect();
            let unused = |part: usize, tenants: usize| {
                (part * tenants).saturating_sub(counts.iter().map(|count| count.min(&part)).sum())
            };
            let others = known.len().saturating_sub(1);
            let mut reserved = unused(minimum, others);
            if own >= each {
                let present = counts.len().min(others);
                reserved = reserved.max(unused(each, present) + (others - present) * minimum);
            }
            (max as usize).saturating_sub(reserved)
        };
        [
            ("the server", count(&|_, _| true), cap(settings.queued_max, &|_| true)),
            ("the lane", count(&|at, _| *at == lane), cap(limits.queued_max, &|at| *at == lane)),
            ("the tenant", count(&|_, other| other.tenant == spec.tenant), tenant.queued_max as usize),
            ("the agent", count(&of_agent), limits.queued_per_agent_max as usize),
        ]
    }

    /// Tenants with a token or with settings of their own.
    fn known_tenants(&self) -> BTreeSet<&Name> {
        let known = self.ledger.tokens.values().filter_map(|token| token.tenant.as_ref());
        known.chain(self.reference.settings.tenants.keys()).collect()
    }

    /// Tenants with waiting jobs.
    fn tenants_waiting(&self) -> BTreeSet<&Name> {
        self.ledger.waiting().map(|entry| &entry.row.spec.tenant).collect()
    }

    /// May this job be stored?
    pub(super) fn may_be_admitted(&mut self, row: &JobRow, payload: &Bytes, given: Given<'_>) -> Checked {
        match &row.spec.schedule {
            Some(of) => self.may_be_made(row, of, given)?,
            None => self.was_submitted(row, payload, given)?,
        }
        // A member that waits for others is as old as its run.
        let waits = row.spec.member.as_ref().is_some_and(|of| !of.depends_on.is_empty());
        let not_before = row.spec.not_before.filter(|_| !waits);
        let ahead = not_before.map_or(0, |at| at.since(given.moment.now.wall).0);
        let rank_time = self.rank_now(given.moment) + ahead;
        hold("I24b", row.rank_time == rank_time, || {
            format!("job {} has the rank time {}, not {rank_time}", row.seq.0, row.rank_time)
        })?;
        for (scope, waiting, cap) in self.caps(&row.spec, &[]) {
            hold("I20", waiting < cap, || {
                format!("job {} is admitted although {waiting} of {cap} jobs of {scope} wait", row.seq.0)
            })?;
        }
        hold("I20", !self.reference.draining, || {
            format!("job {} is admitted by a server that stops", row.seq.0)
        })?;
        let Some(idempotency) = &row.spec.idempotency else { return Ok(()) };
        let key = (row.spec.tenant.clone(), idempotency.key.clone());
        let taken = self
            .keys
            .get(&key)
            .filter(|known| !self.ledger.ended.get(&known.seq).is_some_and(|entry| entry.purgeable));
        if let Some(known) = taken {
            let story = format!("jobs {} and {} have the same idempotency key", known.seq.0, row.seq.0);
            return Err(Violation::new("I4", story));
        }
        self.keys.insert(key, KeyUse { job: row.id, seq: row.seq, digest: idempotency.digest });
        Ok(())
    }

    /// The job comes from one submit of this batch, and from no other.
    fn was_submitted(&mut self, row: &JobRow, payload: &Bytes, given: Given<'_>) -> Checked {
        let number = submit_number(payload).unwrap_or(0);
        let Some(asked) = find_submission(given, number) else {
            return Err(Violation::new(
                "I2",
                format!("job {} comes from no submit of this batch", row.seq.0),
            ));
        };
        hold("I2", self.submits.insert(number, row.seq).is_none(), || {
            format!("submit {number} made a second job, {}", row.seq.0)
        })?;
        self.member_may_be_created(given, row, number)?;
        let near = self.near_at(&row.spec).is_some_and(|at| at <= given.moment.now.wall);
        hold("I1", self.is_as_asked(row, &asked, given) && row.status.near_deadline == near, || {
            format!("job {} is not what submit {number} asked for", row.seq.0)
        })
    }

    /// Would a job of this sort be rejected now?
    pub(super) fn is_rejected(&self, spec: &JobSpec, moment: Moment) -> bool {
        self.form_of(spec, moment).is_some()
            || self.caps(spec, &[]).iter().any(|(_, waiting, cap)| waiting >= cap)
    }

    /// May this job be kept as rejected?
    pub(super) fn may_be_rejected(&mut self, row: &JobRow, payload: &Bytes, given: Given<'_>) -> Checked {
        let number = submit_number(payload).unwrap_or(0);
        let Some(asked) = find_submission(given, number).filter(|asked| asked.record_rejection) else {
            return Err(Violation::new("I2", format!("rejected job {} comes from no submit", row.seq.0)));
        };
        hold("I2", self.submits.insert(number, row.seq).is_none(), || {
            format!("submit {number} made a second job, {}", row.seq.0)
        })?;
        let mut keyless = asked.into_owned();
        keyless.spec.idempotency = None;
        hold("I1", self.is_as_asked(row, &keyless, given), || {
            format!("rejected job {} is not what submit {number} asked for", row.seq.0)
        })?;
        let full = self.caps(&row.spec, &[]).iter().any(|(_, waiting, cap)| waiting >= cap);
        hold("I20", full, || format!("job {} is kept as rejected although it fits", row.seq.0))
    }

    /// The row is the spec with its defaults filled in.
    fn is_as_asked(&self, row: &JobRow, asked: &Submission, given: Given<'_>) -> bool {
        let JobSpec {
            tenant,
            kind,
            agent,
            lane: _,
            session,
            keys,
            priority,
            not_before,
            deadline,
            queue_timeout,
            timeout,
            retry,
            idempotency,
            retry_of,
            tags,
            schedule,
            callback,
            capacity,
            placement,
            trace,
            // Compared with the workflow run that requested it.
            member: _,
        } = &asked.spec;
        let spec = &row.spec;
        let settings = &self.reference.settings;
        let of_kind = settings.kinds.get(kind);
        let same =
            spec.tenant == *tenant && spec.kind == *kind && spec.agent == *agent && spec.session == *session;
        let lane = spec.lane == self.lane_of(&asked.spec);
        let mut sorted = keys.clone();
        sorted.sort();
        sorted.dedup();
        let times = spec.not_before == *not_before
            && spec.deadline == *deadline
            && row.created_at == given.moment.now.wall;
        let queue_timeout =
            queue_timeout.or(of_kind.and_then(|kind| kind.queue_timeout)).or(settings.queue_timeout);
        let timeout = timeout.or(of_kind.and_then(|kind| kind.timeout)).or(Some(settings.timeout));
        let of_kind = of_kind.and_then(|kind| kind.retry.clone());
        let retry = retry.clone().or(of_kind).or(Some(settings.retry.clone()));
        let spans = spec.queue_timeout == queue_timeout && spec.timeout == timeout && spec.retry == retry;
        let rest = spec.idempotency == *idempotency
            && spec.retry_of == *retry_of
            && spec.tags == *tags
            && spec.schedule == *schedule
            && spec.callback == *callback
            && spec.capacity == *capacity
            && spec.placement == *placement
            && spec.trace == *trace;
        same && lane && spec.keys == sorted && spec.priority == *priority && times && spans && rest
    }
}

/// The submission of this batch with this number.
fn find_submission<'a>(given: Given<'a>, number: u64) -> Option<Cow<'a, Submission>> {
    given.commands.iter().find_map(|command| match command {
        Command::Submit(submission) => {
            (submit_number(&submission.payload) == Some(number)).then_some(Cow::Borrowed(&**submission))
        }
        Command::Lease(LeaseCommand::Request(request)) => match &request.what {
            LeaseFor::New(submission) if submit_number(&submission.payload) == Some(number) => {
                Some(Cow::Borrowed(&**submission))
            }
            _ => None,
        },
        Command::SubmitBatch { items, .. } => {
            items.iter().find(|item| submit_number(&item.payload) == Some(number)).map(Cow::Borrowed)
        }
        Command::Workflow(WorkflowCommand::Submit(run)) => {
            let member = run.members.iter().find(|member| submit_number(&member.payload) == Some(number))?;
            Some(Cow::Owned(Submission::new(
                member.spec.clone(),
                Bytes::clone(&member.payload),
                run.origin.clone(),
            )))
        }
        _ => None,
    })
}
