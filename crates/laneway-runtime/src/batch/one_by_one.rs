//! When the store rejects a batch: the engine is built anew, and every command gets a commit of its own.

use laneway_core::command::{AdminCommand, LeaseCommand, WorkerCommand};
use std::collections::VecDeque;
use std::sync::Arc;

use laneway_core::command::Submitted;
use laneway_core::engine::Restart;
use laneway_core::lease::{LeaseMessage, LeaseUpdate};
use laneway_core::worker::{WorkerMessage, WorkerReport};
use laneway_core::{
    Command, Effects, Engine, Failure, Name, Now, Outcome, Recovery, Rejection, RejectionCode, Reply, Seed,
    Seq,
};
use laneway_store::{Loaded, Store, StoreError};

use super::kept::Kept;
use super::{Batch, Committed, Driver, write};
use crate::otel::live::Given;

impl Driver {
    /// A rejected row is the fault of one command, and the others are applied without it. Every other failure leaves
    /// the store's state unknown and is final.
    pub(super) fn commit_failed(&mut self, batch: Batch, error: StoreError) -> Result<Committed, StoreError> {
        match error {
            StoreError::Rejected(_) if !batch.taken.is_empty() => self.one_by_one(batch.now, batch.taken),
            error => Err(error),
        }
    }

    /// Builds the engine anew and gives it the commands again, each with a commit of its own.
    fn one_by_one(&mut self, now: Now, commands: Vec<Command>) -> Result<Committed, StoreError> {
        let mut committed = Committed::default();
        self.rebuild(now, &mut committed)?;
        self.apply_each(now, commands, &mut committed)?;
        Ok(committed)
    }

    /// Applies the commands of a batch again, with the engine that replaced the one that had applied it.
    pub(super) fn apply_again(&mut self, batch: Batch) -> Result<Committed, StoreError> {
        let mut committed = Committed::default();
        self.apply_each(batch.now, batch.taken, &mut committed)?;
        Ok(committed)
    }

    fn apply_each(
        &mut self,
        now: Now,
        commands: Vec<Command>,
        committed: &mut Committed,
    ) -> Result<(), StoreError> {
        for command in commands {
            let reply = self.apply_alone(now, command, committed)?;
            committed.replies.push(reply);
        }
        self.look_at_clock(now, committed)
    }

    /// Looks at the clock with a commit of its own. No command asked for what follows, so none can be rejected.
    fn look_at_clock(&mut self, now: Now, committed: &mut Committed) -> Result<(), StoreError> {
        let mut effects = Effects::default();
        self.engine.apply(now, Command::Tick, &mut effects);
        write(self.store.as_mut(), self.epoch, &effects)?;
        self.settle_alone(&[], effects, committed);
        Ok(())
    }

    /// Throws the engine away, with everything in it that is not durable, and builds it anew from the store.
    fn rebuild(&mut self, now: Now, committed: &mut Committed) -> Result<(), StoreError> {
        let mut effects = Effects::default();
        // A seed of its own: an engine that drew the same ids as the one before it would give them out twice.
        let seed = self.seed.stream(self.engines_built);
        self.engines_built += 1;
        let (engine, _) = load_engine(
            self.store.as_mut(),
            &self.kept,
            seed,
            now,
            Restart::Rebuild,
            (&mut effects, &mut Vec::new()),
        )?;
        self.engine = engine;
        if let Some(reading) = self.kept.reading {
            self.engine.apply(now, Command::Admin(AdminCommand::Load(reading)), &mut effects);
        }
        if self.kept.storage_low {
            self.engine.apply(now, Command::Admin(AdminCommand::StorageLow(true)), &mut effects);
        }
        if self.kept.draining {
            self.engine.apply(now, Command::Admin(AdminCommand::Drain), &mut effects);
        }
        for offer in self.kept.offers.clone() {
            self.engine.apply(now, Command::Admin(AdminCommand::Offer(offer)), &mut effects);
        }
        for register in self.kept.registrations.clone().into_values() {
            self.engine.apply(
                now,
                Command::Worker(WorkerCommand::Register(Box::new(register))),
                &mut effects,
            );
        }
        write(self.store.as_mut(), self.epoch, &effects)?;
        self.settle_alone(&[], effects, committed);
        Ok(())
    }

    /// Applies one command of a rejected batch with a commit of its own; of a batch of submits, every item so.
    fn apply_alone(
        &mut self,
        now: Now,
        command: Command,
        committed: &mut Committed,
    ) -> Result<Reply, StoreError> {
        match command {
            Command::SubmitBatch { items, atomic: true } => {
                let count = items.len();
                let reply =
                    self.commit_alone(now, Command::SubmitBatch { items, atomic: true }, committed)?;
                Ok(match reply {
                    Reply::Rejected(rejection) => Reply::Batch(vec![Err(rejection); count]),
                    reply => reply,
                })
            }
            Command::SubmitBatch { items, atomic: false } => {
                let mut verdicts = Vec::with_capacity(items.len());
                for item in items.iter().cloned() {
                    let reply = self.commit_alone(now, Command::Submit(Arc::new(item)), committed)?;
                    verdicts.push(verdict_of(reply));
                }
                Ok(Reply::Batch(verdicts))
            }
            Command::Finish(fence, outcome) => {
                let reply = self.commit_alone(now, Command::Finish(fence, outcome), committed)?;
                let Reply::Rejected(rejection) = &reply else { return Ok(reply) };
                // The attempt has ended, whatever it reported: an open attempt would keep its slots.
                let failure = result_rejected(rejection);
                self.commit_alone(now, Command::Finish(fence, Outcome::Failed(failure)), committed)
            }
            Command::Worker(WorkerCommand::Message(message)) => {
                let command = Command::Worker(WorkerCommand::Message(message.clone()));
                let reply = self.commit_alone(now, command, committed)?;
                match (&reply, message.report) {
                    (Reply::Rejected(rejection), WorkerReport::Ended { task, stored, .. }) => {
                        let outcome = Outcome::Failed(result_rejected(rejection));
                        let report = WorkerReport::Ended { task, outcome, stored };
                        let message = WorkerMessage { connection: message.connection, report };
                        let command = Command::Worker(WorkerCommand::Message(Box::new(message)));
                        self.commit_alone(now, command, committed)
                    }
                    _ => Ok(reply),
                }
            }
            Command::Lease(LeaseCommand::Message(message)) => {
                let command = Command::Lease(LeaseCommand::Message(message.clone()));
                let reply = self.commit_alone(now, command, committed)?;
                match (&reply, &message.update) {
                    (Reply::Rejected(rejection), LeaseUpdate::Ended(_)) => {
                        let update = LeaseUpdate::Ended(Outcome::Failed(result_rejected(rejection)));
                        let message = Box::new(LeaseMessage { update, ..*message });
                        self.commit_alone(now, Command::Lease(LeaseCommand::Message(message)), committed)
                    }
                    _ => Ok(reply),
                }
            }
            command => self.commit_alone(now, command, committed),
        }
    }

    fn commit_alone(
        &mut self,
        now: Now,
        command: Command,
        committed: &mut Committed,
    ) -> Result<Reply, StoreError> {
        let mut effects = Effects::default();
        let mut alone = VecDeque::from([command]);
        self.look_up(&mut alone)?;
        let taken = Vec::from(alone);
        let command = taken[0].clone();
        let reply = self.engine.apply(now, command, &mut effects);
        match write(self.store.as_mut(), self.epoch, &effects) {
            Ok(()) => {
                self.settle_alone(&taken, effects, committed);
                Ok(reply)
            }
            Err(StoreError::Rejected(why)) => {
                self.rebuild(now, committed)?;
                Ok(Reply::Rejected(Rejection::new(
                    RejectionCode::Invalid,
                    format!("the store cannot hold this: {why}"),
                )))
            }
            Err(error) => Err(error),
        }
    }

    /// The effects of these commands alone are durable.
    fn settle_alone(&mut self, taken: &[Command], effects: Effects, committed: &mut Committed) {
        let remembered = self.kept.remember(&self.engine, taken);
        let number = self.engine.end_batch();
        self.settle(number, remembered, &effects);
        committed.take_in(effects);
    }
}

/// Builds an engine from what is stored. Gives it and the number of the latest event.
pub(super) fn load_engine(
    store: &mut dyn Store,
    kept: &Kept,
    seed: Seed,
    now: Now,
    restart: Restart,
    (effects, traces): (&mut Effects, &mut Vec<(Seq, Given)>),
) -> Result<(Engine, u64), StoreError> {
    let head = store.counters()?;
    let mut recovery = Recovery::new(kept.settings.clone(), store.tokens()?, head, seed, now);
    store.load(&mut |loaded| match loaded {
        Loaded::Lane(lane) => recovery.lane(lane),
        Loaded::Schedule(schedule) => recovery.schedule(*schedule),
        Loaded::FiringLogEntry(run) => recovery.firing_log_entry(*run),
        Loaded::OpenRun(row, ended) => recovery.run(*row, &ended),
        Loaded::Job(row) => {
            traces.extend(Given::of(&row).map(|given| (row.seq, given)));
            recovery.job(row);
        }
        Loaded::Open(open) => recovery.open(open),
        Loaded::StillRunning(row, open) => recovery.still_running(row, open),
        Loaded::Call(row) => recovery.call(*row),
        Loaded::Session(row) => recovery.session(row),
        Loaded::KeptKeys(row) => recovery.kept_keys(row),
        Loaded::Record(record) => recovery.record(record),
        Loaded::Delivery(row) => {
            let under_way = kept.under_way.get(&row.seq) == Some(&(row.tries + 1));
            recovery.delivery(row, under_way);
        }
    })?;
    Ok((recovery.finish(now, restart, effects), head.last_event))
}

/// A run ended well, and the store cannot hold what came out.
fn result_rejected(rejection: &Rejection) -> Failure {
    Failure {
        code: Name::fixed("result_rejected"),
        message: rejection.message.clone(),
        retryable: false,
        detail: None,
        retry_after: None,
    }
}

fn verdict_of(reply: Reply) -> Result<Submitted, Rejection> {
    match reply {
        Reply::Submitted(submitted) => Ok(submitted),
        Reply::Rejected(rejection) => Err(rejection),
        other => unreachable!("the engine answers a submit with {other:?}"),
    }
}
