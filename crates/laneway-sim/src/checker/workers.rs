//! Push workers: I10 and I11 (an attempt belongs to one connection, and only reports over that one count), I12 (a
//! result counts once), I37 (a worker gets what it can run, no more than it takes, and nothing while it must not), I38 (an
//! attempt is given to at most one process of a worker, and is lost with it).

use laneway_core::command::WorkerCommand;
use laneway_core::worker::{Register, WorkerMessage, WorkerReport};
use laneway_core::{
    AttemptEnd, Change, ClosedAttempt, Command, Effects, Event, EventKind, Fence, JobState, Name, Notice,
    OpenAttempt, Outcome, Reason, RejectionCode, Reply, Task, TasksKept,
};

use super::{Checker, Given};
use crate::clock::Moment;
use crate::ledger::Entry;
use crate::reference::workers::{WORKERS, WorkerKey, held, is_held, is_lane, pin, pin_expiry, wants_worker};
use crate::violation::{Checked, Violation, hold};

/// What a message about a task finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TaskFound {
    /// An attempt of this worker that goes on.
    Running,
    /// An attempt of this worker that was asked to stop.
    Stopping,
    /// Nothing that the worker may report about.
    Nothing,
    /// An attempt of another worker.
    Others,
    /// Nothing yet: the number is too high.
    Ahead,
}

/// The answer that a message over a connection must get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskAnswer {
    found: TaskFound,
    /// The result was taken before.
    taken: bool,
}

impl Checker {
    /// Workers come and go at the moment of their message.
    pub(super) fn prepare_workers(&mut self, command: &Command, moment: Moment, rebuilds: bool) {
        if let Command::Worker(WorkerCommand::Register(register)) = command {
            // A rebuilt engine has just got all its registrations again.
            let at = if rebuilds { 0 } else { moment.at };
            if self.reference.workers.is_taken(register, at) {
                return self.denied.push(register.connection);
            }
        }
        let starts = self.reference.starts();
        let (settings, ledger) = (&self.reference.settings, &self.ledger);
        let workers = &mut self.reference.workers;
        match command {
            Command::Worker(WorkerCommand::Register(register)) => {
                workers.register(settings, register, moment.at, starts)
            }
            Command::Worker(WorkerCommand::Drain { tenant, worker, drain, .. }) => {
                workers.drain(&(tenant.clone(), worker.clone()), *drain);
            }
            Command::Worker(WorkerCommand::Rebind { tenant, worker, lanes, .. }) => {
                workers.rebind(settings, &(tenant.clone(), worker.clone()), lanes);
            }
            Command::Worker(WorkerCommand::Message(message)) => match &message.report {
                WorkerReport::Beat(beat) => workers.beat(settings, message.connection, *beat, moment.at),
                WorkerReport::Offers(offer) => workers.offers(message.connection, offer),
                WorkerReport::Gone => workers.gone(ledger, message.connection),
                _ => {}
            },
            _ => {}
        }
    }

    /// A heartbeat renews all that its worker accepted; the message that accepts a task starts its lease.
    pub(super) fn receive_worker_message(&mut self, message: &WorkerMessage, at: u64) {
        let Some(who) = self.reference.workers.worker_of(message.connection).cloned() else { return };
        let Some(member) = self.reference.workers.members.get(&who) else { return };
        let (until, lease) = (member.lease_until, member.lease);
        if let WorkerReport::Accepted(task) = message.report
            && let Some(seq) = self.task_of(&who, task).map(|entry| entry.row.seq)
            && let Some(run) = self.watches.get_mut(&seq).and_then(|watch| watch.run.as_mut())
        {
            run.acked = true;
            if run.started.is_some() || run.stop.is_some() {
                run.lease_until = run.lease_until.max(at + lease);
            }
        }
        let theirs: Vec<_> = held(&self.ledger, &who).map(|entry| entry.row.seq).collect();
        for seq in theirs {
            let run = self.watches.get_mut(&seq).and_then(|watch| watch.run.as_mut());
            if let Some(run) = run.filter(|run| run.acked) {
                run.lease_until = run.lease_until.max(until);
            }
        }
    }

    /// The open attempt that a worker may report about.
    fn task_of(&self, who: &WorkerKey, task: Task) -> Option<&Entry> {
        let entry = self.ledger.find(task.job)?;
        let open = entry.open.as_ref()?;
        let mine = open.executor.as_str() == WORKERS
            && entry.row.spec.tenant == who.0
            && open.holder.as_ref().is_some_and(|holder| holder.worker == who.1);
        (mine && task.dispatch_seq == open.dispatch_seq).then_some(entry)
    }

    pub(super) fn expect_worker(&self, message: &WorkerMessage) -> Option<TaskAnswer> {
        let task = match &message.report {
            WorkerReport::Accepted(task)
            | WorkerReport::Rejected(task, _)
            | WorkerReport::Ended { task, .. } => *task,
            _ => return None,
        };
        let nothing = TaskAnswer { found: TaskFound::Nothing, taken: false };
        let Some(who) = self.reference.workers.worker_of(message.connection) else { return Some(nothing) };
        let entry = self.ledger.find(task.job);
        if entry.is_some_and(|entry| entry.row.spec.member.is_some() && entry.open.is_none()) {
            // How far the numbers of its workflow run have come is not kept here.
            return None;
        }
        let recent =
            self.reference.workers.members.get(who).is_some_and(|member| member.recent.contains(&task));
        let found = self.find_task(who, task);
        // The server looks an attempt that it does not know up in the store.
        let looked_up = matches!(found, TaskFound::Nothing | TaskFound::Others);
        if looked_up && !recent && entry.is_some_and(|entry| entry.purgeable) {
            // Retention may have deleted the job already.
            return None;
        }
        let stored = looked_up && entry.is_some_and(|entry| ended_with_result(entry, who, task));
        Some(TaskAnswer { found, taken: recent || stored })
    }

    fn find_task(&self, who: &WorkerKey, task: Task) -> TaskFound {
        let known = self.ledger.ids.get(&task.job).and_then(|seq| self.ledger.jobs.get(seq));
        let Some(entry) = known.filter(|entry| entry.row.spec.tenant == who.0) else {
            return TaskFound::Nothing;
        };
        let current = entry.open.as_ref().map_or(entry.attempts.into(), |open| open.dispatch_seq);
        if task.dispatch_seq > current {
            return TaskFound::Ahead;
        }
        if self.task_of(who, task).is_some() {
            let run = self.watches.get(&entry.row.seq).and_then(|watch| watch.run.as_ref());
            let stopping = entry.end.is_some() || run.is_some_and(|run| run.stop.is_some());
            return if stopping { TaskFound::Stopping } else { TaskFound::Running };
        }
        if entry.open.is_some() && task.dispatch_seq == current {
            TaskFound::Others
        } else {
            TaskFound::Nothing
        }
    }

    /// A message over a connection was answered.
    pub(super) fn worker_answered(
        &self,
        message: &WorkerMessage,
        reply: &Reply,
        wanted: Option<TaskAnswer>,
    ) -> Checked {
        let known = self.reference.workers.worker_of(message.connection).is_some();
        let same = match (&message.report, reply) {
            // A connection that is gone by now had a worker when it reported so; a second report is stale.
            (WorkerReport::Gone, reply) => matches!(reply, Reply::Done | Reply::Stale) && !known,
            (WorkerReport::Beat(_), Reply::Alive { lease, .. }) => {
                let who = self.reference.workers.worker_of(message.connection);
                let member = who.and_then(|who| self.reference.workers.members.get(who));
                let settings = self.reference.settings.lease.0;
                member.is_some_and(|member| lease.0 == settings.max(3 * member.heartbeat))
            }
            (WorkerReport::Offers(_), Reply::Done) => known,
            (WorkerReport::Beat(_) | WorkerReport::Offers(_), reply) => *reply == Reply::Stale && !known,
            (report, reply) => match wanted {
                None => true,
                Some(TaskAnswer { taken: true, .. }) if matches!(report, WorkerReport::Ended { .. }) => {
                    *reply == Reply::Duplicate
                }
                Some(TaskAnswer { found, .. }) => {
                    answers(report, found, reply) || self.is_stopped_now(report, reply)
                }
            },
        };
        hold("I11", same, || format!("{:?} is answered with {reply:?}; wanted is {wanted:?}", message.report))
    }

    /// Does its worker end or reject this attempt in this batch?
    pub(super) fn worker_report_about<'a>(
        &self,
        given: Given<'a>,
        entry: &Entry,
    ) -> Option<&'a WorkerReport> {
        given.commands.iter().find_map(|command| {
            let Command::Worker(WorkerCommand::Message(message)) = command else { return None };
            let who = self.reference.workers.worker_of(message.connection)?;
            let task = ending_task(&message.report)?;
            self.task_of(who, task)
                .is_some_and(|found| found.row.seq == entry.row.seq)
                .then_some(&message.report)
        })
    }

    /// A worker that accepts a task whose time was over is asked to stop it; the task was stopped in this batch.
    fn is_stopped_now(&self, report: &WorkerReport, reply: &Reply) -> bool {
        let (WorkerReport::Accepted(task), Reply::Alive { stop: true, .. }) = (report, reply) else {
            return false;
        };
        let seq = self.ledger.ids.get(&task.job);
        let run = seq.and_then(|seq| self.watches.get(seq)).and_then(|watch| watch.run.as_ref());
        run.is_some_and(|run| run.stop.is_some())
    }

    /// The outcome that a worker reports for its attempt.
    pub(super) fn worker_outcome<'a>(&self, given: Given<'a>, entry: &Entry) -> Option<&'a Outcome> {
        match self.worker_report_about(given, entry)? {
            WorkerReport::Ended { outcome, .. } => Some(outcome),
            _ => None,
        }
    }

    /// The same about an attempt that this commit has closed already.
    pub(super) fn ended_report<'a>(
        &self,
        given: Given<'a>,
        entry: &Entry,
        dispatch_seq: u64,
        holder: Option<&Name>,
    ) -> Option<&'a Outcome> {
        given.commands.iter().find_map(|command| {
            let Command::Worker(WorkerCommand::Message(message)) = command else { return None };
            let who = self.reference.workers.worker_of(message.connection)?;
            match &message.report {
                WorkerReport::Ended { task, outcome, .. }
                    if task.job == entry.row.id
                        && task.dispatch_seq == dispatch_seq
                        && holder.is_none_or(|holder| *holder == who.1)
                        && entry.row.spec.tenant == who.0 =>
                {
                    Some(outcome)
                }
                _ => None,
            }
        })
    }

    /// A rebind is taken exactly when its lanes are there.
    pub(super) fn rebind_answered(&self, lanes: &[Name], reply: &Reply) -> Checked {
        let known = lanes.iter().all(|lane| is_lane(&self.reference.settings, lane));
        let same = match reply {
            Reply::NotFound => true,
            Reply::Done => known,
            Reply::Rejected(_) => !known,
            _ => false,
        };
        hold("I37", same, || format!("a rebind to {lanes:?} is answered with {reply:?}"))
    }

    /// A registration is denied exactly while another process of that name answers; and whatever another process had is
    /// closed with it.
    pub(super) fn register_answered(&self, register: &Register, reply: &Reply) -> Checked {
        let denied = self.denied.contains(&register.connection);
        let same = match reply {
            Reply::Registered(_) => !denied,
            Reply::Rejected(rejection) => denied && rejection.code == RejectionCode::NameTaken,
            _ => false,
        };
        hold("I38", same, || format!("the registration of {} is answered {reply:?}", register.connection))?;
        let who = (register.offer.tenant.clone(), register.offer.worker.clone());
        let Some(member) = self.reference.workers.members.get(&who) else { return Ok(()) };
        let boot = |entry: &Entry| {
            let holder = entry.open.as_ref().and_then(|open| open.holder.as_ref());
            holder.and_then(|holder| holder.boot.clone())
        };
        let other = held(&self.ledger, &who).find(|entry| boot(entry) != member.boot);
        hold("I38", other.is_none(), || {
            let seq = other.map_or(0, |entry| entry.row.seq.0);
            format!("job {seq} is open at {}, whose process is another one now", who.1)
        })
    }

    /// Has another process of its worker come in this batch, which does not have this attempt?
    pub(super) fn lost_its_process(&self, given: Given<'_>, entry: &Entry, open: &OpenAttempt) -> bool {
        given.commands.iter().any(|command| match command {
            Command::Worker(WorkerCommand::Register(register)) => {
                let holder = open.holder.as_ref();
                open.executor.as_str() == WORKERS
                    && holder.is_some_and(|holder| holder.worker == register.offer.worker)
                    && register.offer.tenant == entry.row.spec.tenant
                    && !self.denied.contains(&register.connection)
                    && !keeps(register, open)
            }
            _ => false,
        })
    }

    /// I37: is this the worker that must get it?
    pub(super) fn right_worker(&self, entry: &Entry, open: &OpenAttempt) -> Checked {
        let spec = &entry.row.spec;
        let wrong = |what: String| Err(Violation::new("I37", format!("job {} {what}", open.seq.0)));
        let Some(holder) = &open.holder else { return wrong("goes to workers and to none of them".into()) };
        let who = (spec.tenant.clone(), holder.worker.clone());
        let Some(member) = self.reference.workers.members.get(&who) else {
            return wrong(format!("goes to {}, who is not there", holder.worker));
        };
        if !member.fits(&self.reference.settings, &entry.lane, spec) {
            let lane = &entry.lane;
            return wrong(format!("of lane {lane} goes to {}, who cannot run it", holder.worker));
        }
        let here = |other: &Entry| is_held(other, &who);
        let used = self.ledger.executors(&here);
        if used >= member.offer.max_parallel && !self.ledger.chain_has_slot(entry, &here) {
            return wrong(format!("is number {} at {}, who takes {used}", used + 1, holder.worker));
        }
        let placed = self.reference.executors.iter().any(|executor| executor.kinds.contains(&spec.kind));
        if placed && !wants_worker(spec) && !self.rebuilding {
            return wrong("goes to a worker although an executor runs its kind".into());
        }
        let wanted = self.reference.workers.pick(&self.reference.settings, &self.ledger, entry, true);
        if !wanted.contains(&holder.worker) {
            return wrong(format!("goes to {} and not to {wanted:?}", holder.worker));
        }
        Ok(())
    }

    /// A result is remembered with its task, so that it is known when it comes again.
    pub(super) fn note_result(&mut self, given: Given<'_>, closed: &ClosedAttempt) {
        let by_result = matches!(
            closed.end,
            AttemptEnd::Succeeded | AttemptEnd::Failed | AttemptEnd::HandedBack | AttemptEnd::Lost
        );
        let Some(entry) = self.ledger.jobs.get(&closed.open.seq) else { return };
        let run = self.watches.get(&closed.open.seq).and_then(|watch| watch.run.as_ref());
        let stopped = run.is_some_and(|run| run.stop.is_some());
        if !by_result || stopped || closed.open.executor.as_str() != WORKERS {
            return;
        }
        let report = given.commands.iter().find_map(|command| {
            let Command::Worker(WorkerCommand::Message(message)) = command else { return None };
            let task = ending_task(&message.report)?;
            let found = self.task_of(self.reference.workers.worker_of(message.connection)?, task)?;
            (found.row.seq == entry.row.seq).then_some((message, task))
        });
        // A worker that rejected it first has not ended it.
        let report = report.filter(|(message, _)| match &message.report {
            // An attempt that was interrupted and cannot be repeated is lost, and so is one that went silent.
            WorkerReport::Ended { outcome, .. } if closed.end == AttemptEnd::Lost => {
                matches!(outcome, Outcome::Interrupted | Outcome::Canceled)
            }
            WorkerReport::Ended { .. } => true,
            _ => false,
        });
        let report = report.map(|(message, task)| (message.connection, task));
        if let Some((connection, task)) = report {
            self.reference.workers.took(connection, task);
        }
    }

    /// A worker that is away and held nothing else is forgotten.
    pub(super) fn worker_freed(&mut self, closed: &ClosedAttempt) {
        let Some(entry) = self.ledger.jobs.get(&closed.open.seq) else { return };
        let Some(holder) = closed.open.holder.as_ref().filter(|_| closed.open.executor.as_str() == WORKERS)
        else {
            return;
        };
        let who = (entry.row.spec.tenant.clone(), holder.worker.clone());
        self.reference.workers.forget_away(&self.ledger, &who);
    }

    /// An attempt belongs to another connection of its worker: because that has just come, and in time.
    pub(super) fn may_rebind(&self, given: Given<'_>, open: &OpenAttempt) -> Checked {
        let Some(entry) = self.ledger.jobs.get(&open.seq) else {
            return Err(Violation::new("I11", format!("job {} is rebound and not there", open.seq.0)));
        };
        let came: Vec<&Register> = given
            .commands
            .iter()
            .filter_map(|command| match command {
                Command::Worker(WorkerCommand::Register(register)) => Some(&**register),
                _ => None,
            })
            .filter(|register| {
                let holder = open.holder.as_ref().map(|holder| &holder.worker);
                holder == Some(&register.offer.worker) && register.offer.tenant == entry.row.spec.tenant
            })
            .collect();
        hold("I11", self.rebuilding || !came.is_empty(), || {
            format!("job {} is rebound, and no worker registered", open.seq.0)
        })?;
        let kept = self.rebuilding || came.iter().any(|register| keeps(register, open));
        hold("I38", kept, || format!("job {} is rebound to a process that does not have it", open.seq.0))?;
        let run = self.watches.get(&open.seq).and_then(|watch| watch.run.as_ref());
        let until = run.map_or(0, |run| run.lease_until).max(self.floor);
        hold("I12", until > given.moment.at, || {
            format!("job {} is rebound at {} and was lost at {until}", open.seq.0, given.moment.at)
        })
    }

    /// True for an attempt whose worker has no connection: it gets no messages, and goes on until its lease ends.
    pub(super) fn hears_nothing(&self, entry: &Entry) -> bool {
        let open = entry.open.as_ref().filter(|open| open.executor.as_str() == WORKERS);
        let Some(holder) = open.and_then(|open| open.holder.as_ref()) else { return false };
        let who = (entry.row.spec.tenant.clone(), holder.worker.clone());
        self.reference.workers.members.get(&who).is_none_or(|member| member.connection.is_none())
    }

    /// The same attempt, over another connection: it must be accepted again.
    pub(super) fn rebound(&mut self, open: &OpenAttempt, moment: Moment) {
        let ack = self.reference.settings.ack_timeout.0;
        let Some(tenant) = self.ledger.jobs.get(&open.seq).map(|entry| entry.row.spec.tenant.clone()) else {
            return;
        };
        let Some(worker) = open.holder.as_ref().map(|holder| holder.worker.clone()) else { return };
        let who = (tenant, worker);
        // A rebuilt engine has the registrations of its workers up to this one.
        while !self.reference.workers.members.contains_key(&who) && self.register_again(moment) {}
        let lease = self.reference.workers.members.get(&who).map_or(0, |member| member.lease);
        let Some(run) = self.watches.get_mut(&open.seq).and_then(|watch| watch.run.as_mut()) else { return };
        let wait = if run.started.is_some() { lease } else { ack };
        run.lease_until = run.lease_until.max(moment.at + wait);
        run.acked = false;
        let grace = self.reference.settings.stop_grace.0;
        if let Some((_, until)) = &mut run.stop {
            *until = (*until).max(moment.at + grace);
        }
        let stops = run.stop.is_none() && self.stopping.contains(&open.fence);
        if stops {
            self.begin_stop(open.seq, moment);
        }
    }

    /// What is rebound is offered again or asked to stop, and nothing else is.
    pub(super) fn everything_is_offered_again(&self, effects: &Effects) -> Checked {
        let rebound: Vec<&Fence> = effects
            .changes
            .iter()
            .filter_map(|change| match change {
                Change::AttemptRebound(open) => Some(&open.fence),
                _ => None,
            })
            .collect();
        for notice in &effects.notices {
            if let Notice::Offer(offer) = notice
                && let Some(to) = offer.to.as_ref().filter(|to| to.again)
            {
                hold("I6", rebound.contains(&&offer.fence), || {
                    format!("job {} is offered to {} again and is not rebound", offer.seq.0, to.worker)
                })?;
            }
        }
        Ok(())
    }

    /// The events about workers.
    pub(super) fn follow_worker_event(&mut self, event: &Event, moment: Moment) -> Checked {
        if event.kind != EventKind::WorkerLost {
            return Ok(());
        }
        let name = event.detail.as_deref().and_then(|detail| detail.split_once(':')).map(|(name, _)| name);
        let (Some(tenant), Some(Ok(worker))) = (event.tenant.clone(), name.map(Name::new)) else {
            return Err(Violation::new("I37", format!("{event:?} names no worker")));
        };
        let who = (tenant, worker);
        let silent =
            self.reference.workers.members.get(&who).is_some_and(|member| member.is_silent(moment.at));
        hold("I37", silent, || format!("worker {} is called lost and was not silent", who.1))?;
        self.reference.workers.lost(&who);
        Ok(())
    }

    /// Silence is noticed, unless the server itself was held up.
    pub fn no_silent_worker(&self, moment: Moment) -> Checked {
        let silent = self
            .reference
            .workers
            .members
            .iter()
            .find(|(_, member)| member.is_silent(moment.at) && !member.lost && self.floor <= moment.at);
        hold("L3", silent.is_none(), || {
            format!("worker {:?} is silent for long, and is not reported lost", silent.map(|(who, _)| &who.1))
        })
    }

    /// How long an attempt of a push worker lives without a heartbeat.
    pub(super) fn worker_lease_of(&self, entry: &Entry) -> Option<u64> {
        let open = entry.open.as_ref().filter(|open| is_pushed(open))?;
        let worker = open.holder.as_ref().map(|holder| holder.worker.clone())?;
        let member = self.reference.workers.members.get(&(entry.row.spec.tenant.clone(), worker));
        let alone = self.reference.settings.lease.0.max(open.lease.0);
        Some(member.map_or(alone, |member| member.lease))
    }

    /// Until when the signs of life of its worker keep an attempt.
    pub(super) fn worker_lease_until(&self, open: &OpenAttempt) -> u64 {
        let Some(entry) = self.ledger.jobs.get(&open.seq).filter(|_| is_pushed(open)) else { return 0 };
        let Some(worker) = open.holder.as_ref().map(|holder| holder.worker.clone()) else { return 0 };
        let member = self.reference.workers.members.get(&(entry.row.spec.tenant.clone(), worker));
        member.map_or(0, |member| member.lease_until)
    }

    /// Would a look at the clock change who may get what?
    pub fn workers_are_due(&self, moment: Moment) -> bool {
        let workers = &self.reference.workers;
        workers.members.values().any(|member| member.is_silent(moment.at) && !member.lost)
            || workers.has_expired(moment.now.wall)
    }

    /// Is a job that uses something on a worker without hope?
    pub(super) fn is_missing(&self, entry: &Entry, moment: Moment) -> bool {
        let spec = &entry.row.spec;
        let Some(worker) = pin(spec) else { return false };
        let member = self.reference.workers.members.get(&(spec.tenant.clone(), worker.clone()));
        let settings = &self.reference.settings;
        let there = member.is_some_and(|member| !member.lost && member.fits(settings, &entry.lane, spec));
        !there || pin_expiry(spec).is_some_and(|at| at <= moment.now.wall)
    }

    /// A job that no worker took waits 1, 2, 4, … s.
    pub(super) fn rejected_wait(&self, entry: &Entry, rejections: u32) -> Option<u64> {
        let closed = entry.closed.last()?;
        (closed.open.executor.as_str() == WORKERS).then(|| 1_000 << rejections.saturating_sub(1).min(16))
    }
}

/// The task that a report ends or rejects.
fn ending_task(report: &WorkerReport) -> Option<Task> {
    match report {
        WorkerReport::Ended { task, .. } | WorkerReport::Rejected(task, _) => Some(*task),
        _ => None,
    }
}

/// Does the process that registers so keep this attempt?
fn keeps(register: &Register, open: &OpenAttempt) -> bool {
    let task = Task { job: open.fence.job, dispatch_seq: open.dispatch_seq };
    let boot = open.holder.as_ref().and_then(|holder| holder.boot.as_ref());
    let unheard = register.boot.is_some() && open.started_at.is_none();
    match &register.tasks {
        TasksKept::All => true,
        TasksKept::Listed(tasks) => register.boot.as_ref() == boot && (unheard || tasks.contains(&task)),
    }
}

/// True when the worker's attempt of this task ended with a result, by the rows of the job.
fn ended_with_result(entry: &Entry, who: &WorkerKey, task: Task) -> bool {
    if entry.row.spec.tenant != who.0 {
        return false;
    }
    if let Some(end) = entry.end.as_ref().filter(|end| u64::from(end.attempts) == task.dispatch_seq) {
        return end.state == JobState::Succeeded
            || (end.state == JobState::Failed
                && matches!(end.reason, Reason::Permanent | Reason::Exhausted));
    }
    entry.closed.iter().any(|closed| {
        closed.open.dispatch_seq == task.dispatch_seq
            && closed.open.holder.as_ref().is_some_and(|holder| holder.worker == who.1)
            && matches!(closed.end, AttemptEnd::Succeeded | AttemptEnd::Failed)
    })
}

fn answers(report: &WorkerReport, found: TaskFound, reply: &Reply) -> bool {
    match (found, report) {
        (TaskFound::Nothing, _) => *reply == Reply::Stale,
        (TaskFound::Others, _) => *reply == Reply::NotYours,
        (TaskFound::Ahead, _) => *reply == Reply::Gap,
        (found, WorkerReport::Accepted(_)) => match reply {
            Reply::Alive { stop, .. } => *stop == (found == TaskFound::Stopping),
            _ => false,
        },
        (_, WorkerReport::Rejected(..)) => *reply == Reply::Done,
        (TaskFound::Running, _) => *reply == Reply::Done,
        (TaskFound::Stopping, _) => *reply == Reply::Stale,
    }
}

/// Attempts that close because their worker did not answer.
pub(super) fn unanswered(effects: &Effects) -> Vec<Fence> {
    let closed = effects.changes.iter().filter_map(|change| match change {
        Change::AttemptClosed(closed)
            if closed.end == AttemptEnd::Unanswered && closed.open.executor.as_str() == WORKERS =>
        {
            Some(closed.open.fence)
        }
        _ => None,
    });
    closed.collect()
}

/// Is a worker's attempt open in this state?
pub(super) fn is_pushed(open: &OpenAttempt) -> bool {
    open.executor.as_str() == WORKERS && (open.state == JobState::Assigned || open.started_at.is_some())
}
