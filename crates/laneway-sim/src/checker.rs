//! The checker: follows everything that becomes durable and everything that is published, and reports which rule is broken.
//!
//! It is asked after every batch. It never looks into the engine: what it knows comes from the disk's notes, from the
//! commands that were given, and from the replies and notices that were published. The rules carry the names of the list in
//! `docs/decisions/0003-simulator.md`.

mod admission;
mod calls;
mod causes;
mod deliveries;
mod documents;
mod follow;
mod job_changes;
mod leases;
mod limits;
mod promptness;
mod published;
mod runs;
mod sessions;
mod slots;
mod tables;
mod views;
mod workers;

use laneway_core::command::{AdminCommand, LeaseCommand, WorkerCommand};
use std::collections::{BTreeMap, BTreeSet};

use laneway_core::worker::Register;
use laneway_core::{
    Change, Command, ConnectionId, Effects, EventKind, ExecutorMode, ExecutorOffer, Fence, JobId, JobRow,
    JobState, JobStatus, Name, Notice, OpenAttempt, Seq, Settings, ShutdownPolicy, Span, Wall,
};

use crate::clock::Moment;
use crate::faulty::Noted;
use crate::ledger::Ledger;
use crate::reference::Reference;
use crate::violation::{Checked, Violation, hold};

pub use admission::Verdict;
use deliveries::CommitDeliveries;
pub use published::Expected;
use sessions::Sessions;

/// The checker of one world.
pub struct Checker {
    /// What is durable.
    pub ledger: Ledger,
    /// Finds the job that must run next.
    pub reference: Reference,
    /// Decisions of the engine that were compared with the reference.
    pub decisions: u64,
    /// When the engine was built last.
    started_at: u64,
    /// Engine time for ordering at that moment.
    rank_base: u64,
    /// True while storage is reported to be low.
    pub storage_low: bool,
    watches: BTreeMap<Seq, Watch>,
    /// When jobs ended, by the time that really passes.
    ended_at: BTreeMap<Seq, u64>,
    keys: BTreeMap<(Name, Name), KeyUse>,
    /// Which job a submit made, by the number that the world writes into its payload.
    submits: BTreeMap<u64, Seq>,
    /// Offers that a rebuilt engine is given again, one by one.
    reoffered: Vec<ExecutorOffer>,
    /// True while commits of a rebuilt engine are followed.
    rebuilding: bool,
    /// A change of settings that takes effect with its event.
    pending_settings: Option<Settings>,
    /// Attempts that the current batch asks to stop.
    stopping: Vec<Fence>,
    /// True while a batch is followed that begins all sessions anew.
    resetting: bool,
    sessions: Sessions,
    slots: slots::Slots,
    /// The webhook deliveries of the commit that is being followed.
    deliveries: CommitDeliveries,
    /// Jobs that the commit that is being followed keeps as rejected.
    rejected: BTreeSet<Seq>,
    /// Jobs that the commit that is being followed cancels (true), or lets succeed.
    canceled_now: BTreeMap<Seq, bool>,
    /// Registrations that a rebuilt engine is given again, after its offers.
    reregistered: Vec<Register>,
    /// Connections whose registration the current batch must deny.
    denied: Vec<ConnectionId>,
    /// Attempts that the commit that is being followed closes because their worker did not answer.
    unanswered: Vec<Fence>,
    calls: calls::Calls,
    documents: documents::Documents,
    job_changes: job_changes::JobChanges,
    /// When the server last looked at the clock.
    looked_at: u64,
    /// No lease ends before this time: the server was held up, perhaps.
    floor: u64,
}

/// What the checker keeps of a live job beside its row.
#[derive(Clone, Debug, Default)]
struct Watch {
    /// Before this time no attempt may open: the shortest backoff of its last failure.
    not_before: u64,
    /// When its backoff has passed.
    due: Option<u64>,
    /// Since when it could have started for the first time.
    since: u64,
    /// Its open attempt, as time goes.
    run: Option<AttemptWatch>,
}

/// What the checker keeps of an open attempt.
#[derive(Clone, Debug)]
struct AttemptWatch {
    leased: bool,
    opened: u64,
    started: Option<u64>,
    /// Until when it may be silent.
    lease_until: u64,
    /// When it was asked to stop, and until when it may take to do so.
    stop: Option<(u64, u64)>,
    /// It was asked to stop so that its session begins anew: its job is queued again.
    reset: bool,
    /// It was asked to stop because no caller waits for its answer any more.
    withdrawn: bool,
    /// A pull worker requested it.
    held: bool,
    /// Its worker took it over the connection that it has now.
    acked: bool,
}

/// The job that an idempotency key stands for.
#[derive(Clone, Debug)]
struct KeyUse {
    job: JobId,
    seq: Seq,
    digest: [u8; 32],
}

/// One batch, as it was given.
#[derive(Clone, Copy)]
pub struct Given<'a> {
    /// When.
    pub moment: Moment,
    /// What was asked, in order.
    pub commands: &'a [Command],
    /// True when a new process starts: then nothing was asked.
    pub restart: bool,
}

impl Checker {
    /// For a server that was just started with these settings on an empty disk.
    pub fn new(settings: Settings) -> Checker {
        Checker {
            ledger: Ledger::default(),
            reference: Reference::new(settings),
            decisions: 0,
            started_at: 0,
            rank_base: 0,
            storage_low: false,
            watches: BTreeMap::new(),
            ended_at: BTreeMap::new(),
            keys: BTreeMap::new(),
            submits: BTreeMap::new(),
            reoffered: Vec::new(),
            rebuilding: false,
            pending_settings: None,
            stopping: Vec::new(),
            resetting: false,
            sessions: Sessions::default(),
            slots: slots::Slots::default(),
            deliveries: CommitDeliveries::default(),
            rejected: BTreeSet::new(),
            canceled_now: BTreeMap::new(),
            reregistered: Vec::new(),
            denied: Vec::new(),
            unanswered: Vec::new(),
            calls: calls::Calls::default(),
            documents: documents::Documents::default(),
            job_changes: job_changes::JobChanges::default(),
            looked_at: 0,
            floor: 0,
        }
    }

    /// A new process starts with these settings and no executors.
    pub fn restarted(&mut self, settings: Settings, moment: Moment) {
        self.reference = Reference::new(settings);
        self.storage_low = false;
        (self.looked_at, self.floor) = (moment.at, 0);
        self.rearm(moment);
        self.slots_restarted(moment, true);
        self.reference.takes_up(&self.ledger);
    }

    /// Follows what the disk noted during one batch. `offers` is what the executors offered before it.
    pub fn follow(&mut self, given: Given<'_>, noted: &[Noted], offers: &[ExecutorOffer]) -> Checked {
        self.rebuilding = false;
        self.stopping.clear();
        self.denied.clear();
        self.documents.begin_batch();
        self.job_changes = job_changes::JobChanges::default();
        self.resetting = sessions::resets(given);
        let rebuilds = noted.iter().any(|note| matches!(note, Noted::Loaded)) && !given.restart;
        if given.commands.is_empty() {
            self.looks_at_clock(given.moment);
        }
        for command in given.commands {
            self.prepare(command, given.moment, rebuilds);
            self.prepare_workers(command, given.moment, rebuilds);
            self.receive(command, given.moment);
        }
        for note in noted {
            match note {
                Noted::Loaded if !given.restart => {
                    self.reference.rebuilt();
                    self.reoffered = offers.to_vec();
                    self.reoffered.reverse();
                    self.reference.executors.clear();
                    while self.register_again(given.moment) {}
                    self.reregistered = self.reference.workers.registrations();
                    self.reregistered.reverse();
                    self.reference.workers = Default::default();
                    self.rebuilding = true;
                    self.rearm(given.moment);
                    self.slots_restarted(given.moment, false);
                    self.reference.takes_up(&self.ledger);
                }
                Noted::Written(effects) => {
                    self.commit(given, effects)?;
                    // The first thing that a rebuilt engine writes is what came of its workers; all are there by then.
                    while self.register_again(given.moment) {}
                }
                _ => {}
            }
        }
        while let Some(offer) = self.reoffered.pop() {
            self.reference.offer(&offer);
        }
        while self.register_again(given.moment) {}
        self.looks_at_clock(given.moment);
        // A configuration that left no event was not taken: the batch failed, and the process with it.
        self.pending_settings = None;
        Ok(())
    }

    /// A rebuilt engine gets the registration of its next worker.
    fn register_again(&mut self, moment: Moment) -> bool {
        let Some(register) = self.reregistered.pop() else { return false };
        let starts = self.reference.starts();
        self.reference.workers.register(&self.reference.settings, &register, moment.at, starts);
        true
    }

    /// The server looks at the clock. If it comes late, leases may get the lost time back, but no more than one of them.
    fn looks_at_clock(&mut self, moment: Moment) {
        let late = moment.at.saturating_sub(self.looked_at);
        self.looked_at = moment.at;
        if late > 1_000 {
            self.floor = self.floor.max(moment.at + late.min(self.reference.settings.lease.0));
        }
        self.reference.workers.expire(moment.now.wall);
    }

    /// Settings, executors and the like leave no change: they hold from the moment of their command.
    fn prepare(&mut self, command: &Command, moment: Moment, rebuilds: bool) {
        match command {
            Command::Admin(AdminCommand::Configure { settings, .. }) if rebuilds => {
                self.pending_settings = Some(*settings.clone())
            }
            Command::Admin(AdminCommand::Configure { settings, .. }) => {
                self.reference.configure(&self.ledger, *settings.clone())
            }
            Command::Admin(AdminCommand::Offer(offer)) if self.may_offer(offer) => {
                self.reference.offer(offer)
            }
            Command::Admin(AdminCommand::Withdraw(executor)) => self.reference.withdraw(executor),
            Command::Admin(AdminCommand::Drain) => self.reference.draining = true,
            Command::Admin(AdminCommand::StorageLow(low)) => {
                self.storage_low = *low;
                self.reference.storage_low = *low;
            }
            Command::Admin(AdminCommand::Load(reading)) => self.reference.take_reading(moment, *reading),
            _ => {}
        }
    }

    /// What a server that begins to stop in this commit must cancel: what waits in lanes with that policy. (What is handed
    /// back later is kept.)
    fn doomed(&self, given: Given<'_>, effects: &Effects) -> Vec<Seq> {
        let began = effects.events.iter().any(|event| event.kind == EventKind::DrainBegan);
        if !began || !matches!(given.commands, [Command::Admin(AdminCommand::Drain), ..]) {
            return Vec::new();
        }
        let cancels = |lane: &Name| {
            self.reference.lane(lane).is_some_and(|lane| lane.on_shutdown == ShutdownPolicy::Cancel)
        };
        self.ledger.waiting().filter(|entry| cancels(&entry.lane)).map(|entry| entry.row.seq).collect()
    }

    /// A report about an open attempt renews its lease, and counts before the clock is looked at.
    fn receive(&mut self, command: &Command, moment: Moment) {
        if let Command::Lease(LeaseCommand::Message(message)) = command {
            return self.receive_lease_message(message, moment);
        }
        if let Command::Worker(WorkerCommand::Message(message)) = command {
            return self.receive_worker_message(message, moment.at);
        }
        let (Command::Start(fence) | Command::Heartbeat(fence)) = command else { return };
        let Some(entry) = self.ledger.fits(fence) else { return };
        let (lease, seq) = (self.lease_of(entry), entry.row.seq);
        let running =
            entry.open.as_ref().is_some_and(|open| open.started_at.is_some()) || entry.end.is_some();
        let run = self.watches.get_mut(&seq).and_then(|watch| watch.run.as_mut());
        if let Some(run) = run.filter(|run| run.leased && running) {
            run.lease_until = run.lease_until.max(moment.at + lease);
        }
    }

    /// A kind belongs to one executor.
    fn may_offer(&self, offer: &ExecutorOffer) -> bool {
        let others = self.reference.executors.iter().filter(|executor| executor.executor != offer.executor);
        others.flat_map(|executor| &executor.kinds).all(|kind| !offer.kinds.contains(kind))
    }

    /// Follows one durable commit.
    fn commit(&mut self, given: Given<'_>, effects: &Effects) -> Checked {
        if effects.events.iter().any(|event| event.kind == EventKind::ConfigChanged)
            && let Some(settings) = self.pending_settings.take()
        {
            self.reference.configure(&self.ledger, settings);
        }
        for event in &effects.events {
            hold("I7", event.at == given.moment.now.wall, || {
                format!("event {} has another time", event.number)
            })?;
        }
        for event in &effects.events {
            self.follow_worker_event(event, given.moment)?;
        }
        self.unanswered = workers::unanswered(effects);
        self.slots_bring(effects);
        self.members_stop(effects);
        self.calls_begin(effects);
        for notice in &effects.notices {
            if let Notice::Stop { seq, fence, .. } = notice {
                self.asked_to_stop(*seq, fence, given)?;
            }
        }
        let doomed = self.doomed(given, effects);
        self.deliveries = CommitDeliveries::default();
        self.rejected = rejected(effects);
        for change in &effects.changes {
            self.follow_change(given, change)?;
        }
        self.deliveries_are_stored()?;
        self.everything_is_offered(effects)?;
        self.everything_is_offered_again(effects)?;
        self.sessions_rest()?;
        self.slots_closed(effects)?;
        self.runs_rest(given, effects)?;
        self.calls_rest(effects)?;
        self.documents_rest(effects)?;
        let left =
            doomed.iter().find(|&&seq| self.ledger.jobs.get(&seq).is_some_and(|entry| entry.end.is_none()));
        hold("I14", left.is_none(), || format!("a server that stops leaves job {left:?} waiting"))?;
        self.ledger.close_commit(effects)
    }

    /// Every attempt that opens is offered to an executor, in the same order.
    fn everything_is_offered(&self, effects: &Effects) -> Checked {
        let opened = effects.changes.iter().filter_map(|change| match change {
            Change::AttemptOpened(open) if open.executor.as_str() != leases::LEASES => Some(&open.fence),
            _ => None,
        });
        let offered = effects.notices.iter().filter_map(|notice| match notice {
            Notice::Offer(offer) if offer.to.as_ref().is_none_or(|to| !to.again) => Some(&offer.fence),
            _ => None,
        });
        hold("I6", opened.eq(offered), || "what opens is not what is offered".to_owned())
    }

    fn created(&mut self, row: &JobRow, moment: Moment) {
        if let Some(entry) = self.ledger.jobs.get(&row.seq) {
            self.reference.admitted(entry);
        }
        let due = self.window_ends(row, moment);
        self.watches.insert(row.seq, Watch { since: moment.at, due, ..Watch::default() });
        if row.status.state == JobState::Queued {
            self.begin_queue_timeout(row.seq, moment.at);
        }
    }

    fn moved(&mut self, seq: Seq, was: Option<JobState>, status: &JobStatus, moment: Moment) {
        let Some(entry) = self.ledger.jobs.get(&seq) else { return };
        if was == Some(JobState::Queued) {
            // No worker accepted it: it waits as long as the change states.
            let due = status.wake_at.map_or(0, |at| moment.at + at.since(moment.now.wall).0);
            let watch = self.watches.entry(seq).or_default();
            (watch.not_before, watch.due) = (due, Some(due));
        } else if status.state == JobState::Scheduled {
            let retry = entry.row.spec.retry.as_ref().expect("defaults are filled in");
            let watch = self.watches.entry(seq).or_default();
            watch.not_before = moment.at + retry.backoff.wait_min(status.failures).0;
            watch.due = status.wake_at.map(|at| moment.at + at.since(moment.now.wall).0);
        } else if status.attempts == 0 {
            let by_wall = entry.row.spec.not_before.is_some_and(|at| at > entry.row.created_at);
            self.session_job_queued(seq);
            // A member that waited for others is as old as its run.
            if by_wall {
                self.watches.entry(seq).or_default().since = moment.at;
            }
            let rank_now = self.rank_now(moment);
            if let Some(entry) = self.ledger.jobs.get_mut(&seq) {
                entry.rank_time = entry.rank_time.min(rank_now);
            }
            self.begin_queue_timeout(seq, moment.at);
        }
    }

    fn begin_queue_timeout(&mut self, seq: Seq, from: u64) {
        if let Some(entry) = self.ledger.jobs.get_mut(&seq) {
            entry.queue_until = entry.row.spec.queue_timeout.map(|timeout| from.saturating_add(timeout.0));
        }
    }

    fn opened(&mut self, open: &OpenAttempt, moment: Moment) {
        let leased = open.mode == ExecutorMode::Leased;
        let wait = self.first_wait(open);
        let run = AttemptWatch {
            leased,
            opened: moment.at,
            started: open.started_at.map(|_| moment.at),
            lease_until: if leased { moment.at + wait } else { u64::MAX },
            stop: None,
            reset: false,
            withdrawn: false,
            held: open.holder.is_some(),
            acked: false,
        };
        self.watches.entry(open.seq).or_default().run = Some(run);
        if self.stopping.contains(&open.fence) {
            self.begin_stop(open.seq, moment);
        }
        if let Some(entry) = self.ledger.jobs.get_mut(&open.seq) {
            entry.queue_until = None;
            self.reference.opened(entry, moment);
        }
    }

    /// How long an attempt that just opened may be silent.
    fn first_wait(&self, open: &OpenAttempt) -> u64 {
        let Some(entry) = self.ledger.jobs.get(&open.seq) else { return 0 };
        match (open.executor.as_str() == leases::LEASES, &open.holder) {
            (false, _) => self.reference.settings.ack_timeout.0,
            (true, Some(_)) => self.lease_of(entry),
            (true, None) => {
                self.reference.lane(&entry.lane).map_or(0, |lane| lane.pull.reservation_timeout.0)
            }
        }
    }

    /// An attempt runs, or has a holder from now on.
    fn started(&mut self, open: &OpenAttempt, moment: Moment) {
        let pushed = workers::is_pushed(open);
        let until = self.worker_lease_until(open);
        let lease = self.ledger.jobs.get(&open.seq).map_or(0, |entry| self.lease_of(entry));
        let Some(run) = self.watches.get_mut(&open.seq).and_then(|watch| watch.run.as_mut()) else { return };
        let taken = open.holder.is_some() && !run.held;
        run.held |= taken;
        if run.started.is_none() && open.started_at.is_some() {
            run.started = Some(moment.at);
            run.acked = pushed;
            run.lease_until = (moment.at + lease).max(until);
        } else if taken {
            run.lease_until = run.lease_until.max(moment.at + lease);
        }
    }

    /// An engine was built from rows: leases and timeouts begin anew, waiting times go on by the wall clock.
    fn rearm(&mut self, moment: Moment) {
        self.started_at = moment.at;
        self.debounce_batches_end();
        let stored = self.ledger.waiting().filter(|entry| !entry.is_never_due()).chain(self.ledger.open());
        let stored = stored.filter(|entry| entry.end.is_none()).map(|entry| entry.row.rank_time).max();
        self.rank_base = stored.unwrap_or(0).max(u64::try_from(moment.now.wall.0).unwrap_or(0));
        let settings = &self.reference.settings;
        let released: BTreeMap<Seq, Wall> = self
            .ledger
            .waiting()
            .filter_map(|entry| Some((entry.row.seq, self.ledger.released_at(entry)?)))
            .collect();
        self.calls.rearm(&self.ledger, moment);
        let outdated: BTreeSet<Seq> =
            self.ledger.open().filter(|entry| self.is_outdated(entry)).map(|entry| entry.row.seq).collect();
        let pull_lease = |lane: &Name| settings.lanes.get(lane).and_then(|lane| lane.pull.lease);
        for (seq, entry) in &mut self.ledger.jobs {
            entry.rank_time = entry.row.rank_time;
            let named = &entry.row.spec.lane;
            entry.lane = if settings.lanes.contains_key(named) { named.clone() } else { Name::fixed("main") };
            let Some(watch) = self.watches.get_mut(seq) else { continue };
            if let Some(run) = &mut watch.run {
                if run.leased {
                    // Its runner goes by the lease that was reported to it, whatever the settings are by now.
                    let answer = entry.open.as_ref().map_or(0, |open| open.lease.0);
                    let lease = pull_lease(&entry.lane).unwrap_or(settings.lease);
                    run.lease_until = moment.at + lease.0.max(answer);
                }
                run.opened = moment.at;
                run.started = run.started.map(|_| moment.at);
                // An attempt that outlives its job gets its grace anew; any other is asked again when its time comes.
                // So is one that no caller waits for: it is asked to stop again.
                run.withdrawn = outdated.contains(seq);
                let stops = entry.end.is_some() || run.withdrawn;
                run.stop = stops.then(|| (moment.at, moment.at + settings.stop_grace.0));
                run.reset = false;
                run.acked = run.started.is_some();
                continue;
            }
            let row = &entry.row;
            if let (Some(_), Some(timeout)) = (entry.queue_until, row.spec.queue_timeout) {
                let from = row.spec.not_before.map_or(row.created_at, |at| at.max(row.created_at));
                let from = released.get(seq).map_or(from, |at| from.max(*at));
                let rest = timeout.0.saturating_sub(moment.now.wall.since(from).0);
                entry.queue_until = Some(moment.at + rest);
            }
            if let (JobState::Scheduled, Some(wake_at)) = (entry.state, entry.wake_at())
                && row.status.attempts > 0
                && !entry.waits_for_its_time()
            {
                let longest = row.spec.retry.as_ref().map_or(0, |retry| retry.backoff.longest().0);
                let longest = longest.max(Span::mins(5).0).max(settings.retry_after_max.0);
                watch.not_before = moment.at + wake_at.since(moment.now.wall).0.min(longest);
                watch.due = Some(watch.not_before);
            }
            if let (true, Some(wake_at)) = (entry.collects(), entry.wake_at()) {
                let window =
                    row.spec.session.as_ref().and_then(|session| session.debounce).unwrap_or_default();
                watch.due = Some(moment.at + wake_at.since(moment.now.wall).0.min(window.0));
            }
        }
    }

    /// Engine time for ordering: it follows real time, whatever the wall clock does.
    fn rank_now(&self, moment: Moment) -> u64 {
        self.rank_base + (moment.at - self.started_at)
    }

    /// The engine's choice is the reference's (I23).
    fn right_choice(&mut self, given: Given<'_>, open: &OpenAttempt) -> Checked {
        let pushed = workers::is_pushed(open);
        if open.holder.is_some() && !pushed {
            return self.right_answer(given, open);
        }
        self.decisions += 1;
        loop {
            let choice = self.reference.choice(&self.ledger, given.moment);
            let right = match self.ledger.jobs.get(&open.seq) {
                Some(entry) if pushed => self.right_worker(entry, open),
                _ => Ok(()),
            };
            if choice == Some(open.seq) && right.is_ok() {
                return Ok(());
            }
            // A rebuilt engine gets its executors back one by one and uses each at once.
            if self.rebuilding
                && let Some(offer) = self.reoffered.pop()
            {
                self.reference.offer(&offer);
                continue;
            }
            if self.rebuilding && self.register_again(given.moment) {
                continue;
            }
            right?;
            let wanted = choice.map_or("no job".to_owned(), |seq| format!("job {}", seq.0));
            return Err(Violation::new("I23", format!("job {} starts where {wanted} must", open.seq.0)));
        }
    }

    /// Nothing that could start was left behind (I24c).
    pub fn nothing_left(&mut self, moment: Moment) -> Checked {
        let left = self.reference.choice(&self.ledger, moment);
        hold("I24c", left.is_none(), || {
            format!("job {} could start and does not", left.map_or(0, |seq| seq.0))
        })
    }
}

/// Jobs that are stored as never admitted.
fn rejected(effects: &Effects) -> BTreeSet<Seq> {
    let ended = effects.changes.iter().filter_map(|change| match change {
        Change::JobEnded(end) if end.state == JobState::Rejected => Some(end.seq),
        _ => None,
    });
    ended.collect()
}
