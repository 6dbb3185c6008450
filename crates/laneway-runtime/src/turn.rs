//! One turn: look up, apply, commit, and only then tell.
//!
//! The loop and the simulator both run exactly this code. It is synchronous, reads no clock and starts nothing. Who asks
//! and who is told is the business of `run.rs`.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use laneway_core::command::Submitted;
use laneway_core::engine::Restart;
use laneway_core::lease::{LeaseWord, Said};
use laneway_core::worker::{ConnectionId, Register, WorkerSaid, WorkerWord};
use laneway_core::{
    Change, Command, Effects, Engine, Event, Failure, LoadReading, Name, Notice, Now, Outcome, PlaceOffer,
    Recovery, Refusal, RefusalCode, Reply, Seed, Seq, Settings, Submission,
};
use laneway_store::{Loaded, Reader, Store, StoreError};

/// A batch is cut when it holds this many changes: one commit stays short enough to be waited for.
const CHANGES_MAX: usize = 1_024;
/// A batch is cut when its payloads and results have this many bytes.
const BYTES_MAX: usize = 4 << 20;
/// Lists with room for more than this are not kept for the next batch.
const ROOM_MAX: usize = 8 * CHANGES_MAX;

/// The engine and its store, moved on by turns.
pub struct Turn {
    engine: Engine,
    store: Box<dyn Store>,
    kept: Kept,
    seed: Seed,
    engines_built: u64,
    last_event: u64,
    recovered: Told,
    /// Empty lists with the room of earlier batches. Lists that grew anew in every turn cost a tenth of the loop's time.
    room: Batch,
    /// How many events the last batch had.
    events_len: usize,
    #[cfg(feature = "zoo")]
    leaked: Told,
}

/// A seed that nobody knows, of the operating system.
pub fn fresh_seed() -> Result<Seed, getrandom::Error> {
    let mut secret = [0; 32];
    getrandom::fill(&mut secret)?;
    Ok(Seed::new(secret))
}

/// What one turn lets out, all of it durable.
#[derive(Debug, Default)]
pub struct Told {
    /// One for each command that was taken, in order.
    pub replies: Vec<Reply>,
    /// What was made durable.
    pub changes: Vec<Change>,
    /// What happened, in order of the numbers.
    pub events: Vec<Event>,
    /// What places must be told, in order.
    pub notices: Vec<Notice>,
}

/// What an engine knows that no row holds; to be given again to an engine that replaces this one.
struct Kept {
    settings: Settings,
    offers: Vec<PlaceOffer>,
    storage_low: bool,
    draining: bool,
    /// News that was handed out and not heard of since, with its try.
    under_way: BTreeMap<Seq, u32>,
    /// What the probe said last.
    reading: Option<LoadReading>,
    /// Who registered over which connection, and what an operator said of them.
    registrations: BTreeMap<ConnectionId, Register>,
}

impl Kept {
    fn new(settings: Settings) -> Kept {
        Kept {
            settings,
            offers: Vec::new(),
            storage_low: false,
            draining: false,
            under_way: BTreeMap::new(),
            reading: None,
            registrations: BTreeMap::new(),
        }
    }
}

/// Commands that were applied together, and what followed.
#[derive(Default)]
struct Batch {
    /// Copies, for the case that the store refuses one of them.
    taken: Vec<Command>,
    replies: Vec<Reply>,
    effects: Effects,
}

impl Turn {
    /// Builds the engine from what is stored and makes the consequences of the restart durable before anything else.
    /// `seed` must differ from boot to boot.
    pub fn recover(
        mut store: Box<dyn Store>,
        settings: Settings,
        seed: impl Into<Seed>,
        now: Now,
    ) -> Result<Turn, StoreError> {
        let seed = seed.into();
        let mut effects = Effects::default();
        let (engine, mut last_event) = load_engine(
            store.as_mut(),
            &Kept::new(settings.clone()),
            seed,
            now,
            Restart::Process,
            &mut effects,
        )?;
        commit(store.as_mut(), &effects)?;
        if let Some(event) = effects.events.last() {
            last_event = event.number;
        }
        let mut turn = Turn {
            kept: Kept::new(settings),
            engine,
            store,
            seed,
            engines_built: 1,
            last_event,
            recovered: Told::default(),
            room: Batch::default(),
            events_len: 0,
            #[cfg(feature = "zoo")]
            leaked: Told::default(),
        };
        turn.engine.committed();
        turn.recovered.take_in(effects);
        Ok(turn)
    }

    /// Takes commands from the front, as many as make one batch, looks at the clock, commits, and gives back what may
    /// be told now. Nothing may be told when this fails, and the turn must not be used again.
    ///
    /// What runners say goes first: the clock is looked at only when no such word is left at the front of `commands`, so
    /// that a loop that was held up hears its runners before it gives any of them up.
    pub fn turn(&mut self, now: Now, commands: &mut VecDeque<Command>) -> Result<Told, StoreError> {
        let mut batch = std::mem::take(&mut self.room);
        batch.effects.events.reserve(self.events_len);
        let mut bytes = 0;
        while batch.effects.changes.len() < CHANGES_MAX && bytes < BYTES_MAX {
            let Some(mut command) = commands.pop_front() else { break };
            look_up_priors(self.store.as_mut(), &mut command)?;
            batch.taken.push(command.clone());
            let before = batch.effects.changes.len();
            batch.replies.push(self.engine.apply(now, command, &mut batch.effects));
            bytes += batch.effects.changes[before..].iter().map(opaque_len).sum::<usize>();
        }
        if !commands.front().is_some_and(is_runners_word) {
            self.engine.apply(now, Command::Tick, &mut batch.effects);
        }
        match commit(self.store.as_mut(), &batch.effects) {
            Ok(()) => {
                self.settle(&batch.taken, &batch.effects);
                self.events_len = batch.effects.events.len();
                batch.taken.clear();
                self.room.taken = batch.taken;
                let mut told = Told { replies: batch.replies, ..Told::default() };
                told.take_in(batch.effects);
                Ok(told)
            }
            Err(error) => self.commit_failed(now, batch, error),
        }
    }

    /// Takes the lists of an earlier turn back when all in them has been told; the next turn needs not make new ones.
    pub fn take_back(&mut self, told: Told) {
        fn emptied<T>(mut list: Vec<T>) -> Vec<T> {
            list.clear();
            list.shrink_to(ROOM_MAX);
            list
        }
        let Told { replies, changes, events, notices } = told;
        self.room.replies = emptied(replies);
        self.room.effects =
            Effects { changes: emptied(changes), events: emptied(events), notices: emptied(notices) };
    }

    /// The engine, between turns.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// A reader of what is committed.
    pub fn reader(&self) -> Arc<dyn Reader> {
        self.store.reader()
    }

    /// The number of the latest committed event.
    pub fn last_event(&self) -> u64 {
        self.last_event
    }

    /// What followed from the restart; gives it once.
    pub fn recovered(&mut self) -> Told {
        std::mem::take(&mut self.recovered)
    }

    /// Gives the store back: to close it, or to recover from it again.
    pub fn into_store(self) -> Box<dyn Store> {
        self.store
    }

    /// What a bug of the zoo let out of the last failed turn.
    #[cfg(feature = "zoo")]
    pub fn leaked(&mut self) -> Told {
        std::mem::take(&mut self.leaked)
    }

    /// The batch is durable: remembers what the engine knows and no row holds.
    fn settle(&mut self, taken: &[Command], effects: &Effects) {
        self.engine.committed();
        if let Some(event) = effects.events.last() {
            self.last_event = event.number;
        }
        for command in taken {
            match command {
                Command::Configure { .. } => self.kept.settings = self.engine.settings().clone(),
                Command::Offer(_) | Command::Withdraw(_) => self.kept.offers = self.engine.offers(),
                Command::StorageLow(low) => self.kept.storage_low = *low,
                Command::Drain => self.kept.draining = true,
                Command::DeliveryTried { seq, number, .. }
                    if self.kept.under_way.get(seq) == Some(number) =>
                {
                    self.kept.under_way.remove(seq);
                }
                Command::Load(_) => self.kept.reading = self.engine.reading(),
                Command::Register(register) => self.keep_registration(register.connection),
                Command::Worker(word) if matches!(word.said, WorkerSaid::Gone | WorkerSaid::Offers(_)) => {
                    self.keep_registration(word.connection);
                }
                Command::DrainWorker { tenant, worker, .. }
                | Command::RebindWorker { tenant, worker, .. } => {
                    let register = self.engine.registration_of(tenant, worker);
                    self.kept.registrations.extend(register.map(|register| (register.connection, register)));
                }
                _ => {}
            }
        }
        for notice in &effects.notices {
            if let Notice::Deliver { seq, number, .. } = notice {
                self.kept.under_way.insert(*seq, *number);
            }
        }
    }

    /// Who is registered over this connection now; one that lost its place to it is nobody's.
    fn keep_registration(&mut self, connection: ConnectionId) {
        self.kept.registrations.remove(&connection);
        let Some(register) = self.engine.registration(connection) else { return };
        let (engine, kept) = (&self.engine, &mut self.kept.registrations);
        kept.retain(|connection, _| engine.registration(*connection).is_some());
        kept.insert(connection, register);
    }

    /// A refused row is the fault of one command, and the others are applied without it. Every other failure leaves
    /// the store's state unknown and is final.
    fn commit_failed(&mut self, now: Now, batch: Batch, error: StoreError) -> Result<Told, StoreError> {
        #[cfg(feature = "zoo")]
        if let Some(outcome) = self.commit_failed_in_the_zoo(now, &batch, &error) {
            return outcome;
        }
        match error {
            StoreError::Refused(_) if !batch.taken.is_empty() => self.one_by_one(now, batch.taken),
            error => Err(error),
        }
    }

    /// Builds the engine anew and gives it the commands again, each with a commit of its own.
    fn one_by_one(&mut self, now: Now, commands: Vec<Command>) -> Result<Told, StoreError> {
        let mut told = Told::default();
        self.rebuild(now, &mut told)?;
        for command in commands {
            let reply = self.apply_alone(now, command, &mut told)?;
            told.replies.push(reply);
        }
        self.look_at_clock(now, &mut told)?;
        Ok(told)
    }

    /// Looks at the clock with a commit of its own. Nobody asked for what follows, so nobody can be refused it.
    fn look_at_clock(&mut self, now: Now, told: &mut Told) -> Result<(), StoreError> {
        let mut effects = Effects::default();
        self.engine.apply(now, Command::Tick, &mut effects);
        commit(self.store.as_mut(), &effects)?;
        self.settle(&[], &effects);
        told.take_in(effects);
        Ok(())
    }

    /// Throws the engine away, with everything in it that is not durable, and builds it anew from the store.
    fn rebuild(&mut self, now: Now, told: &mut Told) -> Result<(), StoreError> {
        let mut effects = Effects::default();
        // A seed of its own: an engine that drew the same ids as the one before it would give them out twice.
        let seed = self.seed.stream(self.engines_built);
        self.engines_built += 1;
        let (engine, _) =
            load_engine(self.store.as_mut(), &self.kept, seed, now, Restart::Rebuild, &mut effects)?;
        self.engine = engine;
        if let Some(reading) = self.kept.reading {
            self.engine.apply(now, Command::Load(reading), &mut effects);
        }
        if self.kept.storage_low {
            self.engine.apply(now, Command::StorageLow(true), &mut effects);
        }
        if self.kept.draining {
            self.engine.apply(now, Command::Drain, &mut effects);
        }
        for offer in self.kept.offers.clone() {
            self.engine.apply(now, Command::Offer(offer), &mut effects);
        }
        for register in self.kept.registrations.clone().into_values() {
            self.engine.apply(now, Command::Register(Box::new(register)), &mut effects);
        }
        commit(self.store.as_mut(), &effects)?;
        self.settle(&[], &effects);
        told.take_in(effects);
        Ok(())
    }

    /// Applies one command of a refused batch with a commit of its own; of a batch of submits, every item so.
    fn apply_alone(&mut self, now: Now, command: Command, told: &mut Told) -> Result<Reply, StoreError> {
        match command {
            Command::SubmitBatch { items, atomic: true } => {
                let count = items.len();
                let reply = self.commit_alone(now, Command::SubmitBatch { items, atomic: true }, told)?;
                Ok(match reply {
                    Reply::Refused(refusal) => Reply::Batch(vec![Err(refusal); count]),
                    reply => reply,
                })
            }
            Command::SubmitBatch { items, atomic: false } => {
                let mut verdicts = Vec::with_capacity(items.len());
                for item in items {
                    let reply = self.commit_alone(now, Command::Submit(Box::new(item)), told)?;
                    verdicts.push(verdict_of(reply));
                }
                Ok(Reply::Batch(verdicts))
            }
            Command::Finish(fence, outcome) => {
                let reply = self.commit_alone(now, Command::Finish(fence, outcome), told)?;
                let Reply::Refused(refusal) = &reply else { return Ok(reply) };
                // The run has ended, whatever it said: an attempt that stayed open would hold its gates for nothing.
                let failure = result_refused(refusal);
                self.commit_alone(now, Command::Finish(fence, Outcome::Failed(failure)), told)
            }
            Command::Worker(word) => {
                let reply = self.commit_alone(now, Command::Worker(word.clone()), told)?;
                match (&reply, word.said) {
                    (Reply::Refused(refusal), WorkerSaid::Ended { task, stored, .. }) => {
                        let outcome = Outcome::Failed(result_refused(refusal));
                        let said = WorkerSaid::Ended { task, outcome, stored };
                        let word = WorkerWord { connection: word.connection, said };
                        self.commit_alone(now, Command::Worker(Box::new(word)), told)
                    }
                    _ => Ok(reply),
                }
            }
            Command::Lease(word) => {
                let reply = self.commit_alone(now, Command::Lease(word.clone()), told)?;
                match (&reply, &word.said) {
                    (Reply::Refused(refusal), Said::Ended(_)) => {
                        let said = Said::Ended(Outcome::Failed(result_refused(refusal)));
                        self.commit_alone(now, Command::Lease(Box::new(LeaseWord { said, ..*word })), told)
                    }
                    _ => Ok(reply),
                }
            }
            command => self.commit_alone(now, command, told),
        }
    }

    fn commit_alone(&mut self, now: Now, mut command: Command, told: &mut Told) -> Result<Reply, StoreError> {
        let mut effects = Effects::default();
        look_up_priors(self.store.as_mut(), &mut command)?;
        let taken = [command.clone()];
        let reply = self.engine.apply(now, command, &mut effects);
        match commit(self.store.as_mut(), &effects) {
            Ok(()) => {
                self.settle(&taken, &effects);
                told.take_in(effects);
                Ok(reply)
            }
            Err(StoreError::Refused(why)) => {
                self.rebuild(now, told)?;
                Ok(Reply::Refused(Refusal::new(
                    RefusalCode::Invalid,
                    format!("the store cannot hold this: {why}"),
                )))
            }
            Err(error) => Err(error),
        }
    }

    /// What bugs of the zoo do when a commit fails; `None`: none of them is out.
    #[cfg(feature = "zoo")]
    fn commit_failed_in_the_zoo(
        &mut self,
        now: Now,
        batch: &Batch,
        error: &StoreError,
    ) -> Option<Result<Told, StoreError>> {
        use laneway_core::zoo::{Bug, is_out};

        let Batch { taken, replies, effects } = batch;
        let refused = matches!(error, StoreError::Refused(_));
        if is_out(Bug::AckBeforeCommit) || is_out(Bug::ReleaseEffectsOnCommitError) {
            self.leaked.replies.extend(replies.iter().cloned());
        }
        if is_out(Bug::DispatchBeforeCommit) || is_out(Bug::ReleaseEffectsOnCommitError) {
            self.leaked.notices.extend(effects.notices.iter().cloned());
        }
        if is_out(Bug::WebhookBeforeCommit) {
            let news = |notice: &&Notice| matches!(notice, Notice::Deliver { .. });
            self.leaked.notices.extend(effects.notices.iter().filter(news).cloned());
        }
        if is_out(Bug::ReleaseEffectsOnCommitError) {
            self.leaked.events.extend(effects.events.iter().cloned());
        }
        if refused && is_out(Bug::BatchPoisonAbortsAll) {
            let mut told = Told::default();
            let refusal = Refusal::new(RefusalCode::Invalid, error.to_string());
            told.replies = vec![Reply::Refused(refusal); taken.len()];
            let rebuilt = self.rebuild(now, &mut told);
            let looked = rebuilt.and_then(|()| self.look_at_clock(now, &mut told));
            return Some(looked.map(|()| told));
        }
        if !refused && is_out(Bug::BlindRetryOfUnknownCommit) {
            return Some(self.one_by_one(now, taken.clone()));
        }
        None
    }
}

impl Told {
    fn take_in(&mut self, effects: Effects) {
        let Effects { changes, events, notices } = effects;
        append(&mut self.changes, changes);
        append(&mut self.events, events);
        append(&mut self.notices, notices);
    }
}

/// Appends without a copy in the usual case, where nothing was there before.
fn append<T>(all: &mut Vec<T>, mut more: Vec<T>) {
    if all.is_empty() {
        *all = more;
    } else {
        all.append(&mut more);
    }
}

fn load_engine(
    store: &mut dyn Store,
    kept: &Kept,
    seed: Seed,
    now: Now,
    restart: Restart,
    effects: &mut Effects,
) -> Result<(Engine, u64), StoreError> {
    let head = store.head()?;
    let mut recovery = Recovery::new(kept.settings.clone(), store.tokens()?, head, seed, now);
    store.load(&mut |loaded| match loaded {
        Loaded::Schedule(schedule) => recovery.schedule(*schedule),
        Loaded::Run(run) => recovery.run_log(*run),
        Loaded::OpenRun(row, ended) => recovery.run(*row, &ended),
        Loaded::Job(row) => recovery.job(row),
        Loaded::Open(open) => recovery.open(open),
        Loaded::Lingering(row, open) => recovery.lingering(row, open),
        Loaded::Call(row) => recovery.call(*row),
        Loaded::Session(row) => recovery.session(row),
        Loaded::Delivery(row) => {
            let under_way = kept.under_way.get(&row.seq) == Some(&(row.tries + 1));
            recovery.delivery(row, under_way);
        }
    })?;
    Ok((recovery.finish(now, restart, effects), head.last_event))
}

/// Commits, unless there is nothing to make durable.
fn commit(store: &mut dyn Store, effects: &Effects) -> Result<(), StoreError> {
    if effects.changes.is_empty() && effects.events.is_empty() { Ok(()) } else { store.commit(effects) }
}

/// Tells the engine what the store knows of a submit's idempotency key, or of a delivery that is to be sent again. This must happen after the last commit and before
/// the command is applied: from a commit on the engine leaves the key to the store.
fn look_up_priors(store: &mut dyn Store, command: &mut Command) -> Result<(), StoreError> {
    let mut look_up = |submission: &mut Submission| {
        if let Some(idempotency) = &submission.spec.idempotency {
            submission.prior = store.prior(&submission.spec.tenant, &idempotency.key)?;
        }
        Ok(())
    };
    match command {
        Command::Redeliver { job, stored, .. } => {
            *stored = store.reader().delivery(*job)?.map(Box::new);
            Ok(())
        }
        Command::Submit(submission) => look_up(submission),
        Command::SubmitBatch { items, .. } => items.iter_mut().try_for_each(look_up),
        Command::SubmitRun(submission) => {
            if let Some(idempotency) = &submission.spec.idempotency {
                submission.prior = store.prior_run(&submission.spec.tenant, &idempotency.key)?;
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Bytes of a change that the engine does not look into.
fn opaque_len(change: &Change) -> usize {
    match change {
        Change::JobCreated { payload, .. } => payload.len(),
        Change::JobEnded(end) => end.result.as_ref().map_or(0, |result| result.len()),
        Change::CallPut(call) => {
            [&call.result, &call.payload].into_iter().flatten().map(|bytes| bytes.len()).sum()
        }
        Change::LogAppended { lines, .. } => lines.iter().map(|line| line.text.len()).sum(),
        Change::RunDefined { definition, .. } => definition.len(),
        Change::SchedulePut(schedule) => schedule.spec.payload.len() + schedule.spec.note.len(),
        _ => 0,
    }
}

/// True for what runners say about their attempts.
pub(crate) fn is_runners_word(command: &Command) -> bool {
    matches!(
        command,
        Command::Start(_)
            | Command::Heartbeat(_)
            | Command::Finish(..)
            | Command::Log(..)
            | Command::CallNext(..)
            | Command::Lease(_)
            | Command::Worker(_)
    )
}

/// A run ended well, and the store cannot hold what came out.
fn result_refused(refusal: &Refusal) -> Failure {
    Failure {
        code: Name::fixed("result_refused"),
        message: refusal.message.clone(),
        retryable: false,
        detail: None,
    }
}

fn verdict_of(reply: Reply) -> Result<Submitted, Refusal> {
    match reply {
        Reply::Submitted(submitted) => Ok(submitted),
        Reply::Refused(refusal) => Err(refusal),
        other => unreachable!("the engine answers a submit with {other:?}"),
    }
}
