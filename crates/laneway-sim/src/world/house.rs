//! The house from outside: it starts, takes turns, fails, starts again; and after every turn the checker is asked.

use laneway_core::command::{AdminCommand, DeliveryCommand, ScheduleCommand, WorkflowCommand};
use std::collections::VecDeque;

use laneway_core::settings::{LaneSettings, TenantSettings};
use laneway_core::{
    CapacitySettings, Change, Command, Dispatch, Effects, ExecutorOffer, Notice, Origin, Outcome as Ending,
    Reply, ScheduleId, Settings, Span,
};
use laneway_runtime::{Committed, Driver};
use laneway_store::StoreError;

use super::{HEAL_TURNS_MAX, World};
use crate::checker::{Expected, Given};
use crate::clock::Moment;
use crate::faulty::{Fault, Noted};
use crate::panics::caught;
use crate::runs::Phase;
use crate::violation::{Checked, Violation, hold};

impl World {
    /// A process starts on whatever is on the disk. It may fail and be started again.
    pub(super) fn boot(&mut self) -> Checked {
        loop {
            self.boots += 1;
            let settings = self.kept_settings()?;
            let moment = self.clock.moment();
            self.checker.restarted(settings.clone(), moment);
            self.plan_fault();
            let seed = self.rng.word();
            let store = self.disk.handle().map_err(|error| Violation::new("I1", error.to_string()))?;
            let result = caught(|| Driver::recover(store, settings, seed, moment.now))?;
            let noted = self.take_notes();
            let given = Given { moment, commands: &[], restart: true };
            self.checker.follow(given, &noted, &[])?;
            match result {
                Ok(mut house) => {
                    self.diary.note(|| format!("the house starts ({})", self.boots));
                    let told = house.recovered();
                    self.offers = house.engine().offers();
                    self.house = Some(house);
                    self.stops_told(&told, given)?;
                    self.notices_told(&told, moment.at)?;
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
        self.house = None;
        self.attached_runs_die();
        self.news.clear();
        // Every connection died with the process.
        self.hands.clear();
        self.clock.advance(Span(self.rng.below(5_000)));
        self.clock.reboot(self.rng.below(1 << 40));
        self.runs_look_at_clock();
        self.boot()?;
        self.offer_places()
    }

    /// Every place says again what it offers.
    pub(super) fn offer_places(&mut self) -> Checked {
        for at in 0..self.executors.len() {
            let offer = self.executors[at].clone();
            if !offer.kinds.is_empty() {
                self.turn(vec![Command::Admin(AdminCommand::Offer(offer))])?;
            }
        }
        Ok(())
    }

    /// Settings come from the disk: what was kept last, or what the house was first started with.
    fn kept_settings(&self) -> Result<Settings, Violation> {
        let stored = self.disk.read().map_err(|error| Violation::new("I1", error.to_string()))?;
        let kept = stored.overrides.and_then(|bytes| bytes.get(..8).and_then(|bytes| bytes.try_into().ok()));
        let index = kept.map_or(0, u64::from_le_bytes) as usize;
        self.settings
            .get(index)
            .cloned()
            .ok_or_else(|| Violation::new("I1", "settings were kept that never were"))
    }

    /// One turn of the house, and everything that must be true after it.
    pub(super) fn turn(&mut self, commands: Vec<Command>) -> Checked {
        let moment = self.clock.moment();
        if !commands.is_empty() && self.checker.crew_is_due(moment) {
            // What a look at the clock changes about workers must not fall between commands and what follows from them.
            let boots = self.boots;
            self.turn(Vec::new())?;
            if self.boots != boots {
                // They were for a process that is gone; what it had under way went with it.
                return Ok(());
            }
        }
        self.turns += 1;
        self.plan_fault();
        let moment = self.clock.moment();
        let expected = commands.first().map_or(Expected::Free, |first| self.checker.expect(first, moment));
        for command in &commands {
            self.diary.note(|| format!("{:>9} {command:?}", moment.at));
        }
        let mut inbox: VecDeque<Command> = commands.iter().cloned().collect();
        let house = self.house.as_mut().expect("a house runs between starts");
        let result = caught(|| {
            let batch = house.apply(moment.now, &mut inbox)?;
            house.commit(batch)
        })?;
        let noted = self.take_notes();
        let given = Given { moment, commands: &commands, restart: false };
        self.checker.follow(given, &noted, &self.offers)?;
        match result {
            Ok(told) => {
                let rebuilt = noted.iter().any(|note| matches!(note, Noted::Loaded));
                let expected = if rebuilt { Expected::Free } else { expected };
                self.stops_told(&told, given)?;
                self.all_told(&commands, &told, &expected, moment)?;
                self.is_sound(moment)
            }
            Err(error) => {
                self.must_be_planned(&noted, &error)?;
                let leaked = self.house.as_mut().map(Driver::leaked).unwrap_or_default();
                self.leaks_nothing(&commands, &leaked)?;
                self.diary.note(|| format!("the house dies: {error}"));
                self.reboot()
            }
        }
    }

    /// Where a stop is all that happens, nothing is written, and the notice alone says so.
    fn stops_told(&mut self, told: &Committed, given: Given<'_>) -> Checked {
        told.notices.iter().try_for_each(|notice| match notice {
            Notice::Stop { seq, fence, .. } => self.checker.told_to_stop(*seq, fence, given),
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
            self.diary.mark(note);
            match note {
                Noted::Written(effects) => self.note_written(effects),
                other => self.diary.note(|| format!("          disk: {other:?}")),
            }
        }
        noted
    }

    fn note_written(&mut self, effects: &Effects) {
        for change in &effects.changes {
            if !matches!(change, Change::JobsPruned { .. } | Change::EventsPruned { .. }) {
                self.diary.note(|| format!("          {change:?}"));
            }
        }
    }

    /// The house may only fail when its disk did.
    fn must_be_planned(&self, noted: &[Noted], error: &StoreError) -> Checked {
        let planned = noted.iter().any(|note| matches!(note, Noted::Failed(_)));
        hold("I7", planned, || format!("the house fails although its disk is well: {error}"))
    }

    fn all_told(
        &mut self,
        commands: &[Command],
        told: &Committed,
        expected: &Expected,
        moment: Moment,
    ) -> Checked {
        self.diary.mark(&told.replies);
        hold("I6", told.replies.len() == commands.len(), || {
            format!("{} commands get {} replies", commands.len(), told.replies.len())
        })?;
        for (at, (command, reply)) in commands.iter().zip(&told.replies).enumerate() {
            self.diary.note(|| format!("          -> {reply:?}"));
            let expected = if at == 0 { expected } else { &Expected::Free };
            self.checker.told(command, reply, expected)?;
            self.heard(command, reply, moment.at);
        }
        self.notices_told(told, moment.at)
    }

    fn notices_told(&mut self, told: &Committed, at: u64) -> Checked {
        for notice in &told.notices {
            self.diary.mark(notice);
            self.checker.noticed(notice)?;
            self.payloads_agree(notice)?;
            self.place_heard(notice, at)?;
        }
        self.settle_runs()
    }

    /// A run is given the payloads of all jobs that it runs for, in the order in which they came.
    fn payloads_agree(&self, notice: &Notice) -> Checked {
        let (Notice::Offer(offer), Some(house)) = (notice, &self.house) else { return Ok(()) };
        let Some(wanted) = self.checker.payloads_of(offer.seq) else { return Ok(()) };
        let read = house.reader().payloads(&[offer.seq]);
        let given = read
            .as_ref()
            .ok()
            .and_then(|jobs| jobs.first())
            .map(|job| std::iter::once(&job.payload).chain(&job.merged).cloned().collect::<Vec<_>>());
        hold("S1", given.as_ref() == Some(&wanted), || {
            format!("a run of job {} is given {given:?} and not {wanted:?}", offer.seq.0)
        })
    }

    /// What a failed turn lets out all the same must be durable.
    fn leaks_nothing(&mut self, commands: &[Command], leaked: &Committed) -> Checked {
        for (command, reply) in commands.iter().zip(&leaked.replies) {
            self.checker.told(command, reply, &Expected::Free)?;
        }
        leaked.notices.iter().try_for_each(|notice| self.checker.noticed(notice))
    }

    fn heard(&mut self, command: &Command, reply: &Reply, at: u64) {
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
            ) => self.place_changed(command),
            (Command::Delivery(DeliveryCommand::Tried { .. }), _) => self.news_heard(command),
            _ => self.run_heard(command, reply, at),
        }
    }

    /// Between turns the house rests: nothing is left undone, and its memory agrees with itself.
    fn is_sound(&mut self, moment: Moment) -> Checked {
        let engine = self.house.as_ref().expect("a house runs between starts").engine();
        self.offers = engine.offers();
        let agrees = caught(|| engine.check_invariants())?;
        agrees.map_err(|story| Violation::new("I18", story))?;
        self.checker.nothing_left(moment).map_err(|violation| {
            let waiting = self.checker.ledger.waiting().map(|entry| {
                let holds = engine.explain(moment.now, None, entry.row.id).map(|told| told.holds);
                format!("job {} is held by {holds:?}", entry.row.seq.0)
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
            "the house looked at the clock and wants to look again at once".to_owned()
        })?;
        self.checker.wakes_in_time(moment, moment.at.saturating_add(sleeps))
    }

    /// A house that just started knows every live job and every open attempt, in the state that is durable.
    fn is_recovered(&mut self) -> Checked {
        let engine = self.house.as_ref().expect("a house runs between starts").engine();
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

    /// Faults stop, everything is open again, runs are quick: everything must come to an end.
    pub(super) fn heal(&mut self) -> Checked {
        self.healed = true;
        self.diary.note(|| "the world heals".to_owned());
        if self.checker.reference.draining {
            self.reboot()?;
        }
        self.turn(vec![Command::Admin(AdminCommand::StorageLow(false))])?;
        self.put_schedules_to_rest()?;
        let mut settings = self.checker.reference.settings.clone();
        for lane in self.shape.real_lanes() {
            settings.lanes.entry(lane.clone()).or_default();
        }
        open_up(&mut settings);
        let command = self.configure_with(settings, true);
        self.turn(vec![command])?;
        for offer in self.healed_places() {
            self.turn(vec![Command::Admin(AdminCommand::Withdraw(offer.executor.clone()))])?;
        }
        for offer in self.healed_places() {
            self.turn(vec![Command::Admin(AdminCommand::Offer(offer))])?;
        }
        self.heal_crew()?;
        let began = self.clock.moment().at;
        let mut turns = 0;
        while !self.checker.ledger.jobs.is_empty()
            || self.checker.ledger.waiting_deliveries().next().is_some()
        {
            turns += 1;
            hold("L1", turns < HEAL_TURNS_MAX, || self.who_is_left())?;
            self.heal_a_little(began)?;
        }
        self.checker.everybody_has_heard()?;
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
            self.turn(vec![command])?;
        }
        Ok(())
    }

    /// A run that can be heard comes to its end; when there is none, time passes until something is due.
    fn heal_a_little(&mut self, began: u64) -> Checked {
        self.heal_pulse()?;
        if let Some(at) = self.runs.iter().position(|run| !run.cut && self.is_connected(run)) {
            let run = &self.runs[at];
            let command = match run.phase {
                _ if run.at.is_some() => self.task_ends(at, Ending::Succeeded(None)),
                Phase::Offered => Command::Start(run.fence),
                _ => self.finish(at, Ending::Succeeded(None)),
            };
            return self.turn(vec![command]);
        }
        if let Some(command) = self.tell() {
            return self.turn(vec![command]);
        }
        let moment = self.clock.moment();
        match self.checker.next_due(moment) {
            // Straight to what is due: the house itself would also wake to look for old rows.
            Some(due) => {
                self.clock.advance(Span(due.saturating_sub(moment.at)));
                self.runs_look_at_clock();
                self.turn(Vec::new())?;
            }
            None => self.wake()?,
        }
        self.checker.no_silent_runs(self.clock.moment(), began)
    }

    fn who_is_left(&self) -> String {
        let engine = self.house.as_ref().expect("a house runs between starts").engine();
        let now = self.clock.moment().now;
        let left = self.checker.ledger.jobs.values().map(|entry| {
            let holds = engine.explain(now, None, entry.row.id).map(|told| told.holds);
            format!("job {} is {} and held by {holds:?}", entry.row.seq.0, entry.state)
        });
        format!("not ended long after the world healed: {}", left.collect::<Vec<_>>().join("; "))
    }

    /// Every kind has a place with room.
    fn healed_places(&self) -> Vec<ExecutorOffer> {
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

    /// Somebody looks: what is shown is what is durable, and nothing of another tenant.
    pub(super) fn look(&mut self) -> Checked {
        if self.rng.chance(20) {
            self.checker.tables_agree(&self.disk)?;
        }
        let (owner, session) = self.some_session();
        let tenant = self.rng.chance(60).then(|| self.rng.pick(&self.shape.tenants).clone());
        let now = self.clock.moment().now;
        let engine = self.house.as_ref().expect("a house runs between starts").engine();
        self.checker.stats_agree(tenant.as_ref(), &engine.stats(tenant.as_ref()))?;
        self.checker.session_agrees(&owner, &session, engine.session(&owner, &session).as_ref())?;
        for (job, _) in self.known_jobs.iter().take(6) {
            let told = engine.explain(now, tenant.as_ref(), *job);
            self.checker.explained(tenant.as_ref(), *job, told.as_ref())?;
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
