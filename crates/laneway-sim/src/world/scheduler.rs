//! The server from outside: it starts, takes batches, fails, starts again; and after every batch the checker is asked.

use laneway_core::command::{AdminCommand, DeliveryCommand, ScheduleCommand, WorkflowCommand};
use std::collections::VecDeque;

use laneway_core::settings::{LaneSettings, TenantSettings};
use laneway_core::{
    CapacitySettings, Change, Command, Dispatch, Effects, ExecutorOffer, Notice, Origin, Outcome as Ending,
    Reply, ScheduleId, Settings, Span,
};
use laneway_runtime::{Committed, Driver};
use laneway_store::StoreError;

use super::{HEAL_BATCHES_MAX, World};
use crate::attempts::Phase;
use crate::checker::{Expected, Given};
use crate::clock::Moment;
use crate::faulty::{Fault, Noted};
use crate::panics::caught;
use crate::violation::{Checked, Violation, hold};

impl World {
    /// A process starts on whatever is on the disk. It may fail and be started again.
    pub(super) fn boot(&mut self) -> Checked {
        loop {
            self.boots += 1;
            self.disk.crash().map_err(|story| Violation::new("T1", story))?;
            let settings = self.kept_settings()?;
            let moment = self.clock.moment();
            self.checker.restarted(settings.clone(), moment);
            self.plan_fault();
            let seed = self.rng.next_u64();
            let store = self.disk.handle().map_err(|error| Violation::new("I1", error.to_string()))?;
            let result = caught(|| Driver::recover(store, settings, seed, moment.now))?;
            let noted = self.take_notes();
            let given = Given { moment, commands: &[], restart: true };
            self.checker.follow(given, &noted, &[])?;
            match result {
                Ok(mut driver) => {
                    self.log.note(|| format!("the server starts ({})", self.boots));
                    let committed = driver.recovered();
                    self.offers = driver.engine().offers();
                    self.driver = Some(driver);
                    self.follow_stops(&committed, given)?;
                    self.notices_published(&committed, moment.at)?;
                    return self.is_recovered();
                }
                Err(error) => self.must_be_planned(&noted, &error)?,
            }
            self.clock.reboot(self.rng.below(1 << 40));
        }
    }

    /// The process ends, with everything attached to it, and another one starts.
    pub(super) fn reboot(&mut self) -> Checked {
        self.restarts += 1;
        let (old, epoch) = (self.driver.take(), self.disk.epoch());
        self.attached_attempts_die();
        self.deliveries.clear();
        // Every connection died with the process.
        self.sockets.clear();
        self.clock.advance(Span(self.rng.below(5_000)));
        self.clock.reboot(self.rng.below(1 << 40));
        self.attempts_look_at_clock();
        self.boot()?;
        if let Some(old) = old {
            self.replaced_owner_goes_on(old, epoch)?;
        }
        self.offer_executors()
    }

    /// Every executor offers its kinds again.
    pub(super) fn offer_executors(&mut self) -> Checked {
        for at in 0..self.executors.len() {
            let offer = self.executors[at].clone();
            if !offer.kinds.is_empty() {
                self.batch(vec![Command::Admin(AdminCommand::Offer(offer))])?;
            }
        }
        Ok(())
    }

    /// Settings come from the disk: what was kept last, or what the server was first started with.
    fn kept_settings(&self) -> Result<Settings, Violation> {
        let stored = self.disk.read().map_err(|error| Violation::new("I1", error.to_string()))?;
        let kept = stored.overrides.and_then(|bytes| bytes.get(..8).and_then(|bytes| bytes.try_into().ok()));
        let index = kept.map_or(0, u64::from_le_bytes) as usize;
        self.settings
            .get(index)
            .cloned()
            .ok_or_else(|| Violation::new("I1", "settings were kept that never were"))
    }

    /// One batch of the server, and everything that must be true after it.
    pub(super) fn batch(&mut self, commands: Vec<Command>) -> Checked {
        let moment = self.clock.moment();
        if !commands.is_empty() && self.checker.workers_are_due(moment) {
            // What a look at the clock changes about workers must not fall between commands and what follows from them.
            let boots = self.boots;
            self.batch(Vec::new())?;
            if self.boots != boots {
                // They were for a process that is gone; what it had under way went with it.
                return Ok(());
            }
        }
        self.batches += 1;
        self.plan_fault();
        let moment = self.clock.moment();
        let expected = commands.first().map_or(Expected::Free, |first| self.checker.expect(first, moment));
        for command in &commands {
            self.log.note(|| format!("{:>9} {command:?}", moment.at));
        }
        let mut inbox: VecDeque<Command> = commands.iter().cloned().collect();
        let driver = self.driver.as_mut().expect("a process runs between starts");
        let result = caught(|| {
            let batch = driver.apply(moment.now, &mut inbox)?;
            driver.commit(batch)
        })?;
        let noted = self.take_notes();
        let given = Given { moment, commands: &commands, restart: false };
        self.checker.follow(given, &noted, &self.offers)?;
        match result {
            Ok(committed) => {
                let rebuilt = noted.iter().any(|note| matches!(note, Noted::Loaded));
                let expected = if rebuilt { Expected::Free } else { expected };
                self.follow_stops(&committed, given)?;
                self.results_published(&commands, &committed, &expected, moment)?;
                self.is_sound(moment)
            }
            Err(error) => {
                self.must_be_planned(&noted, &error)?;
                self.log.note(|| format!("the server dies: {error}"));
                self.reboot()
            }
        }
    }

    /// Where a stop is all that happens, nothing is written, and the notice is the only sign of it.
    fn follow_stops(&mut self, committed: &Committed, given: Given<'_>) -> Checked {
        committed.notices.iter().try_for_each(|notice| match notice {
            Notice::Stop { seq, fence, .. } => self.checker.asked_to_stop(*seq, fence, given),
            _ => Ok(()),
        })
    }

    fn plan_fault(&mut self) {
        if self.healed {
            return;
        }
        let faults = &self.shape.faults;
        if self.rng.chance(faults.commit_lost) {
            self.disk.plan(Fault::Lost, u32::from(self.rng.chance(10)));
        } else if self.rng.chance(faults.commit_unknown) {
            self.disk.plan(Fault::Unknown, u32::from(self.rng.chance(10)));
        }
    }

    /// What the disk saw. A fault that met no commit is not kept for later.
    fn take_notes(&mut self) -> Vec<Noted> {
        self.disk.heal();
        let noted = self.disk.noted();
        for note in &noted {
            self.log.mark(note);
            match note {
                Noted::Written(effects) => self.note_written(effects),
                other => self.log.note(|| format!("          disk: {other:?}")),
            }
        }
        noted
    }

    fn note_written(&mut self, effects: &Effects) {
        for change in &effects.changes {
            if !matches!(change, Change::JobsPruned { .. } | Change::EventsPruned { .. }) {
                self.log.note(|| format!("          {change:?}"));
            }
        }
    }

    /// The server may only fail when its disk did.
    fn must_be_planned(&self, noted: &[Noted], error: &StoreError) -> Checked {
        let planned = noted.iter().any(|note| matches!(note, Noted::Failed(_)));
        hold("I7", planned, || format!("the server fails although its disk is well: {error}"))
    }

    fn results_published(
        &mut self,
        commands: &[Command],
        committed: &Committed,
        expected: &Expected,
        moment: Moment,
    ) -> Checked {
        self.log.mark(&committed.replies);
        hold("I6", committed.replies.len() == commands.len(), || {
            format!("{} commands get {} replies", commands.len(), committed.replies.len())
        })?;
        for (at, (command, reply)) in commands.iter().zip(&committed.replies).enumerate() {
            self.log.note(|| format!("          -> {reply:?}"));
            let expected = if at == 0 { expected } else { &Expected::Free };
            self.checker.answered(command, reply, expected)?;
            self.reply_received(command, reply, moment.at);
        }
        self.notices_published(committed, moment.at)
    }

    fn notices_published(&mut self, committed: &Committed, at: u64) -> Checked {
        for notice in &committed.notices {
            self.log.mark(notice);
            self.checker.noticed(notice)?;
            self.payloads_agree(notice)?;
            self.notice_received(notice, at)?;
        }
        self.settle_attempts()
    }

    /// An attempt is given the payloads of all jobs that it runs for, in the order in which they came.
    fn payloads_agree(&self, notice: &Notice) -> Checked {
        let (Notice::Offer(offer), Some(driver)) = (notice, &self.driver) else { return Ok(()) };
        let Some(wanted) = self.checker.payloads_of(offer.seq) else { return Ok(()) };
        let read = driver.reader().payloads(&[offer.seq]);
        let given = read
            .as_ref()
            .ok()
            .and_then(|jobs| jobs.first())
            .map(|job| std::iter::once(&job.payload).chain(&job.merged).cloned().collect::<Vec<_>>());
        hold("S1", given.as_ref() == Some(&wanted), || {
            format!("an attempt of job {} is given {given:?} and not {wanted:?}", offer.seq.0)
        })
    }

    fn reply_received(&mut self, command: &Command, reply: &Reply, at: u64) {
        match (command, reply) {
            (Command::Submit(submission), Reply::Submitted(submitted)) => {
                self.remember_job(submitted.job, submission.spec.tenant.clone());
            }
            (Command::SubmitBatch { items, .. }, Reply::Batch(verdicts)) => {
                for (item, verdict) in items.iter().zip(verdicts) {
                    if let Ok(submitted) = verdict {
                        self.remember_job(submitted.job, item.spec.tenant.clone());
                    }
                }
            }
            (Command::Workflow(WorkflowCommand::Submit(run)), Reply::RunSubmitted(submitted)) => {
                self.remember_run(&run.spec.tenant, submitted);
            }
            (
                Command::Admin(AdminCommand::Offer(_)) | Command::Admin(AdminCommand::Withdraw(_)),
                Reply::Done,
            ) => self.executor_changed(command),
            (Command::Delivery(DeliveryCommand::Tried { .. }), _) => self.delivery_answered(command),
            _ => self.attempt_answered(command, reply, at),
        }
    }

    /// Between batches the server rests: nothing is left undone, and its memory agrees with itself.
    fn is_sound(&mut self, moment: Moment) -> Checked {
        let engine = self.driver.as_ref().expect("a process runs between starts").engine();
        self.offers = engine.offers();
        let agrees = caught(|| engine.check_invariants())?;
        agrees.map_err(|story| Violation::new("I18", story))?;
        self.checker.nothing_left(moment).map_err(|violation| {
            let waiting = self.checker.ledger.waiting().map(|entry| {
                let holds = engine.explain(moment.now, None, entry.row.id).map(|committed| committed.holds);
                format!("job {} is blocked by {holds:?}", entry.row.seq.0)
            });
            let story = waiting.collect::<Vec<_>>().join("; ");
            Violation::new(violation.rule, format!("{}: {story}", violation.story))
        })?;
        self.checker.nothing_overdue(moment)?;
        self.checker.no_slot_left(moment)?;
        self.checker.no_silent_worker(moment)?;
        let wakeup = engine.next_wakeup();
        let sleeps = self.clock.until(wakeup.mono, wakeup.wall).map_or(u64::MAX, |span| span.0);
        hold("L5", sleeps > 0, || {
            "the server looked at the clock and wants to look again at once".to_owned()
        })?;
        self.checker.wakes_in_time(moment, moment.at.saturating_add(sleeps))
    }

    /// A server that just started knows every live job and every open attempt, in the state that is durable.
    fn is_recovered(&mut self) -> Checked {
        let engine = self.driver.as_ref().expect("a process runs between starts").engine();
        for entry in self.checker.ledger.jobs.values().filter(|entry| entry.end.is_none()) {
            let state = engine.state_of(entry.row.id);
            hold("I1", state == Some(entry.state), || {
                format!("after a start job {} is {state:?}, not {}", entry.row.seq.0, entry.state)
            })?;
        }
        let (owed, known) =
            (self.checker.ledger.waiting_deliveries().count() as u64, engine.delivery_stats().waiting);
        hold("N1", owed == known, || format!("after a start {known} of {owed} deliveries are remembered"))?;
        let tokens: Vec<_> = engine.tokens().cloned().collect();
        hold("I1", tokens.iter().eq(self.checker.ledger.tokens.values()), || {
            format!("after a start the tokens are {tokens:?}")
        })?;
        let schedules = engine.schedules(None, None, usize::MAX, true);
        hold("I1", schedules.into_iter().eq(self.checker.ledger.calendar.schedules.values()), || {
            "after a start the schedules are not what was committed".to_owned()
        })?;
        let agrees = caught(|| engine.check_invariants())?;
        agrees.map_err(|story| Violation::new("I18", story))?;
        self.documents_are_recovered()?;
        if self.rng.chance(20) { self.recovers_once() } else { Ok(()) }
    }

    /// Starting twice is the same as starting once.
    fn recovers_once(&mut self) -> Checked {
        let Some(fork) = self.disk.fork() else { return self.checker.tables_agree(&self.disk) };
        let store = fork.handle().map_err(|error| Violation::new("I1", error.to_string()))?;
        let (settings, now) = (self.kept_settings()?, self.clock.moment().now);
        let again = caught(|| Driver::recover(store, settings, 1, now))?;
        let mut again =
            again.map_err(|error| Violation::new("I7", format!("a second start fails: {error}")))?;
        let changes = again.recovered().changes;
        hold("I7", changes.is_empty(), || format!("a second start still changes something: {changes:?}"))?;
        self.checker.tables_agree(&self.disk)
    }

    /// Faults stop, everything is open again, attempts are quick: everything must come to an end.
    pub(super) fn heal(&mut self) -> Checked {
        self.healed = true;
        self.log.note(|| "the world heals".to_owned());
        if self.checker.reference.draining {
            self.reboot()?;
        }
        self.batch(vec![Command::Admin(AdminCommand::StorageLow(false))])?;
        self.release_everything()?;
        self.put_schedules_to_rest()?;
        let mut settings = self.checker.reference.settings.clone();
        for lane in self.shape.real_lanes() {
            settings.lanes.entry(lane.clone()).or_default();
        }
        open_up(&mut settings);
        let command = self.configure_with(settings, true);
        self.batch(vec![command])?;
        for offer in self.healed_executors() {
            self.batch(vec![Command::Admin(AdminCommand::Withdraw(offer.executor.clone()))])?;
        }
        for offer in self.healed_executors() {
            self.batch(vec![Command::Admin(AdminCommand::Offer(offer))])?;
        }
        self.heal_workers()?;
        let began = self.clock.moment().at;
        let mut batches = 0;
        while !self.checker.ledger.jobs.is_empty()
            || self.checker.ledger.waiting_deliveries().next().is_some()
        {
            batches += 1;
            hold("L1", batches < HEAL_BATCHES_MAX, || self.who_is_left())?;
            self.heal_a_little(began)?;
        }
        self.checker.every_delivery_was_tried()?;
        self.checker.tables_agree(&self.disk)
    }

    /// Schedules would make jobs for ever: each is switched off, or deleted.
    fn put_schedules_to_rest(&mut self) -> Checked {
        let ids: Vec<ScheduleId> = self.checker.ledger.calendar.schedules.keys().copied().collect();
        for id in ids {
            let origin = Origin::server("operator");
            let command = match self.rng.chance(50) {
                true => Command::Schedule(ScheduleCommand::Delete { tenant: None, id, origin }),
                false => {
                    Command::Schedule(ScheduleCommand::Toggle { tenant: None, id, enabled: false, origin })
                }
            };
            self.batch(vec![command])?;
        }
        Ok(())
    }

    /// An attempt that can reach the server ends; when there is none, time passes until something is due.
    fn heal_a_little(&mut self, began: u64) -> Checked {
        self.heal_pulse()?;
        if let Some(at) = self.attempts.iter().position(|attempt| !attempt.cut && self.is_connected(attempt))
        {
            let attempt = &self.attempts[at];
            let command = match attempt.phase {
                _ if attempt.at.is_some() => self.task_ends(at, Ending::Succeeded(None)),
                Phase::Offered => Command::Start(attempt.fence),
                _ => self.finish(at, Ending::Succeeded(None)),
            };
            return self.batch(vec![command]);
        }
        if let Some(command) = self.end_delivery() {
            return self.batch(vec![command]);
        }
        let moment = self.clock.moment();
        match self.checker.next_due(moment) {
            // Straight to what is due: the server itself would also wake to look for old rows.
            Some(due) => {
                self.clock.advance(Span(due.saturating_sub(moment.at)));
                self.attempts_look_at_clock();
                self.batch(Vec::new())?;
            }
            None => self.wake()?,
        }
        self.checker.no_silent_runs(self.clock.moment(), began)
    }

    fn who_is_left(&self) -> String {
        let engine = self.driver.as_ref().expect("a process runs between starts").engine();
        let now = self.clock.moment().now;
        let left = self.checker.ledger.jobs.values().map(|entry| {
            let holds = engine.explain(now, None, entry.row.id).map(|committed| committed.holds);
            format!("job {} is {} and held by {holds:?}", entry.row.seq.0, entry.state)
        });
        format!("not ended long after the world healed: {}", left.collect::<Vec<_>>().join("; "))
    }

    /// Every kind has an executor with free slots.
    fn healed_executors(&self) -> Vec<ExecutorOffer> {
        let mut executors = self.shape.executors.clone();
        for executor in &mut executors {
            executor.slots = executor.slots.max(1);
        }
        for kind in &self.shape.kinds {
            if !executors.iter().any(|executor| executor.kinds.contains(kind)) {
                executors[0].kinds.push(kind.clone());
            }
        }
        executors
    }

    /// A client reads: it sees what is durable, and nothing of another tenant.
    pub(super) fn look(&mut self) -> Checked {
        if self.rng.chance(20) {
            self.checker.tables_agree(&self.disk)?;
        }
        let (owner, session) = self.some_session();
        let tenant = self.rng.chance(60).then(|| self.rng.pick(&self.shape.tenants).clone());
        let now = self.clock.moment().now;
        let engine = self.driver.as_ref().expect("a process runs between starts").engine();
        self.checker.stats_agree(tenant.as_ref(), &engine.stats(tenant.as_ref()))?;
        self.checker.session_agrees(&owner, &session, engine.session(&owner, &session).as_ref())?;
        for (job, _) in self.known_jobs.iter().take(6) {
            let committed = engine.explain(now, tenant.as_ref(), *job);
            self.checker.explained(tenant.as_ref(), *job, committed.as_ref())?;
        }
        Ok(())
    }
}

/// No limit is zero and nothing is paused.
fn open_up(settings: &mut Settings) {
    settings.running_max = settings.running_max.max(1);
    let near_deadline = settings.capacity.near_deadline;
    settings.capacity = CapacitySettings {
        measured: false,
        near_deadline,
        reserve: 0,
        headroom_pct: 0,
        ..Default::default()
    };
    settings.key_default = settings.key_default.max(1);
    settings.keys.values_mut().for_each(|limit| *limit = (*limit).max(1));
    settings.lanes.values_mut().for_each(|lane: &mut LaneSettings| {
        lane.paused = false;
        lane.running_max = lane.running_max.max(1);
        lane.running_per_agent_max = lane.running_per_agent_max.max(1);
        lane.pull.dispatch = Dispatch::Push;
    });
    settings
        .kinds
        .values_mut()
        .for_each(|kind| kind.running_max = kind.running_max.map(|limit| limit.max(1)));
    let open = |tenant: &mut TenantSettings| tenant.running_max = tenant.running_max.max(1);
    open(&mut settings.tenant_default);
    settings.tenants.values_mut().for_each(open);
}
