//! Batches: commands are applied together, committed together, and only then published.
//!
//! The loop and the simulator both run exactly this code. It is synchronous, reads no clock and starts no tasks. Callers and
//! receivers of results are in `event_loop.rs`.
//!
//! [`Driver::apply`] and [`Driver::commit`] are two calls: a later batch may be applied before an earlier one is committed.
//! Batches must be committed in the order in which they were applied.

mod kept;
mod one_by_one;
mod priors;
mod reported_ends;

use laneway_core::command::{LeaseCommand, WorkerCommand, WorkflowCommand};
use std::collections::VecDeque;
use std::sync::Arc;

use laneway_core::engine::{BatchNumber, Restart};
use laneway_core::{Change, Command, Effects, Engine, Event, Notice, Now, Reply, Seed, Seq, Settings};
use laneway_store::{Epoch, Reader, Store, StoreError};

use kept::{Kept, Remembered};
use one_by_one::load_engine;
use priors::look_up_priors;
use reported_ends::look_up_ends;

use crate::otel::live::Given;

/// A batch is cut when it holds this many changes: one commit stays short enough to be waited for.
const CHANGES_MAX: usize = 1_024;
/// A batch is cut when its payloads and results have this many bytes.
const BYTES_MAX: usize = 4 << 20;
/// Lists with a larger capacity than this are not reused for the next batch.
const BUFFER_LEN_MAX: usize = 8 * CHANGES_MAX;

/// The engine and its store, advanced batch by batch.
pub struct Driver {
    engine: Engine,
    store: Box<dyn Store>,
    /// The epoch of everything that this engine decides.
    epoch: Epoch,
    kept: Kept,
    seed: Seed,
    engines_built: u64,
    last_event: u64,
    recovered: Committed,
    /// The traces of live jobs that do not follow from their ids, as of the recovery.
    traces: Vec<(Seq, Given)>,
    /// Empty lists with the capacity of earlier batches. Lists that grow anew in every batch cost a tenth of the loop's time.
    buffers: Buffers,
    /// How many events the last batch had.
    events_len: usize,
}

/// A random seed from the operating system.
pub fn fresh_seed() -> Result<Seed, getrandom::Error> {
    let mut secret = [0; 32];
    getrandom::fill(&mut secret)?;
    Ok(Seed::new(secret))
}

/// Commands that were applied together, and their effects. Nothing of it may be published before it is committed.
#[must_use = "a batch that is not committed is lost"]
pub struct Batch {
    now: Now,
    number: BatchNumber,
    /// Which engine applied it: the number of engines that were built until then.
    engine: u64,
    /// Copies, for the case that the store rejects one of them.
    taken: Vec<Command>,
    replies: Vec<Reply>,
    effects: Effects,
    /// State of the engine after this batch that is in no row.
    remembered: Vec<Remembered>,
}

/// The results of a batch, all of them durable.
#[derive(Debug, Default)]
pub struct Committed {
    /// One for each command that was taken, in order.
    pub replies: Vec<Reply>,
    /// The changes that are durable now.
    pub changes: Vec<Change>,
    /// The events, in the order of their numbers.
    pub events: Vec<Event>,
    /// The notices for executors, workers and the webhook dispatcher, in order.
    pub notices: Vec<Notice>,
}

/// Empty lists.
#[derive(Default)]
struct Buffers {
    taken: Vec<Command>,
    replies: Vec<Reply>,
    effects: Effects,
}

impl Driver {
    /// Builds the engine from the store, and commits the effects of the restart before anything else.
    /// `seed` must differ from boot to boot.
    pub fn recover(
        mut store: Box<dyn Store>,
        settings: Settings,
        seed: impl Into<Seed>,
        now: Now,
    ) -> Result<Driver, StoreError> {
        let (seed, epoch, kept) = (seed.into(), store.epoch(), Kept::new(settings));
        let (mut effects, mut traces) = (Effects::default(), Vec::new());
        let (mut engine, mut last_event) =
            load_engine(store.as_mut(), &kept, seed, now, Restart::Process, (&mut effects, &mut traces))?;
        write(store.as_mut(), epoch, &effects)?;
        if let Some(event) = effects.events.last() {
            last_event = event.number;
        }
        let number = engine.end_batch();
        engine.committed(number);
        let mut recovered = Committed::default();
        recovered.take_in(effects);
        Ok(Driver {
            engine,
            store,
            epoch,
            kept,
            seed,
            engines_built: 1,
            last_event,
            recovered,
            traces,
            buffers: Buffers::default(),
            events_len: 0,
        })
    }

    /// Takes commands from the front, as many as make one batch, applies them, and looks at the clock. After an error the
    /// driver must not be used again.
    ///
    /// Messages of runners go first: the clock is looked at only when no such message is left at the front of `commands`, so
    /// that a delayed loop applies the messages of runners before it declares any of them lost.
    pub fn apply(&mut self, now: Now, commands: &mut VecDeque<Command>) -> Result<Batch, StoreError> {
        let Buffers { mut taken, mut replies, mut effects } = std::mem::take(&mut self.buffers);
        effects.events.reserve(self.events_len);
        let mut bytes = 0;
        // How many commands at the front can be applied without another call to the store.
        let mut looked_up = 0;
        while effects.changes.len() < CHANGES_MAX && bytes < BYTES_MAX {
            if looked_up == 0 {
                looked_up = self.look_up(commands)?;
            }
            let Some(command) = commands.pop_front() else { break };
            looked_up -= 1;
            taken.push(command.clone());
            let before = effects.changes.len();
            replies.push(self.engine.apply(now, command, &mut effects));
            bytes += effects.changes[before..].iter().map(Change::opaque_len).sum::<usize>();
        }
        if !commands.front().is_some_and(is_runner_message) {
            self.engine.apply(now, Command::Tick, &mut effects);
        }
        let remembered = self.kept.remember(&self.engine, &taken);
        let number = self.engine.end_batch();
        Ok(Batch { now, number, engine: self.engines_built, taken, replies, effects, remembered })
    }

    /// Looks up what the engine needs from the store for the commands at the front. Returns how many commands it prepared:
    /// at least one, if there is one.
    fn look_up(&mut self, commands: &mut VecDeque<Command>) -> Result<usize, StoreError> {
        let count = look_up_priors(self.store.as_mut(), commands)?;
        look_up_ends(&self.engine, self.store.as_ref(), commands.iter_mut().take(count));
        Ok(count)
    }

    /// Makes a batch durable and gives its results, which may be published now. After an error nothing may be published, and
    /// the driver must not be used again.
    pub fn commit(&mut self, batch: Batch) -> Result<Committed, StoreError> {
        if batch.engine != self.engines_built {
            // An earlier batch was rejected, and the engine that applied this one is gone.
            return self.apply_again(batch);
        }
        match write(self.store.as_mut(), self.epoch, &batch.effects) {
            Ok(()) => Ok(self.committed(batch)),
            Err(error) => self.commit_failed(batch, error),
        }
    }

    /// The batch is durable.
    fn committed(&mut self, batch: Batch) -> Committed {
        let Batch { number, mut taken, replies, effects, remembered, .. } = batch;
        self.settle(number, remembered, &effects);
        self.events_len = effects.events.len();
        taken.clear();
        self.buffers.taken = taken;
        let mut committed = Committed { replies, ..Committed::default() };
        committed.take_in(effects);
        committed
    }

    /// Takes the lists of an earlier batch back when all in them has been published; the next batch needs no new ones.
    pub fn take_back(&mut self, committed: Committed) {
        fn emptied<T>(mut list: Vec<T>) -> Vec<T> {
            list.clear();
            list.shrink_to(BUFFER_LEN_MAX);
            list
        }
        let Committed { replies, changes, events, notices } = committed;
        self.buffers.replies = emptied(replies);
        self.buffers.effects =
            Effects { changes: emptied(changes), events: emptied(events), notices: emptied(notices) };
    }

    /// The engine, between batches.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// A reader of what is committed.
    pub fn reader(&self) -> Arc<dyn Reader> {
        self.store.reader()
    }

    /// Closes the store. Committed data stays, whether or not this succeeds.
    pub fn close(&mut self) {
        match self.store.close() {
            Ok(true) => tracing::debug!("store closed"),
            Ok(false) => tracing::warn!(
                "the store was not closed cleanly: a reader still used it; the next start recovers"
            ),
            Err(error) => {
                tracing::warn!(%error, "the store was not closed cleanly; the next start recovers")
            }
        }
    }

    /// The number of the latest committed event.
    pub fn last_event(&self) -> u64 {
        self.last_event
    }

    /// The effects of the restart; returned once.
    pub fn recovered(&mut self) -> Committed {
        std::mem::take(&mut self.recovered)
    }

    /// The traces of live jobs that do not follow from their ids, as the recovery found them; returned once.
    pub(crate) fn take_traces(&mut self) -> Vec<(Seq, Given)> {
        std::mem::take(&mut self.traces)
    }

    /// Returns the store, to close it or to recover from it again.
    pub fn into_store(self) -> Box<dyn Store> {
        self.store
    }

    /// The effects are durable: keeps the state of the engine that is in no row.
    fn settle(&mut self, number: BatchNumber, remembered: Vec<Remembered>, effects: &Effects) {
        self.engine.committed(number);
        if let Some(event) = effects.events.last() {
            self.last_event = event.number;
        }
        self.kept.keep(remembered, &effects.notices);
    }
}

impl Committed {
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

/// Commits, unless there is nothing to make durable. Either way the results may be published afterwards: the store is still this
/// writer's.
fn write(store: &mut dyn Store, epoch: Epoch, effects: &Effects) -> Result<(), StoreError> {
    if !effects.changes.is_empty() || !effects.events.is_empty() {
        store.commit(epoch, effects)?;
    }
    store.check_owned()
}

/// True for messages of runners about their attempts.
pub(crate) fn is_runner_message(command: &Command) -> bool {
    matches!(
        command,
        Command::Start(_)
            | Command::Heartbeat(_)
            | Command::Finish(..)
            | Command::Log(..)
            | Command::Workflow(WorkflowCommand::CallNext(..))
            | Command::Lease(LeaseCommand::Message(_))
            | Command::Worker(WorkerCommand::Message(_))
    )
}
