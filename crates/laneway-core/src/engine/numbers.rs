//! The numbers that the engine gives out: jobs, events, batches, and random ids and jitter.

use crate::engine::collections::fresh::BatchNumber;
use crate::engine::random::rng::Rng;
use crate::{AttemptId, Effects, Event, EventKind, JobId, Name, Now, Origin, Seed, Seq, Wall};

/// The last numbers given out.
pub(in crate::engine) struct Numbers {
    rng: Rng,
    last_seq: u64,
    last_event: u64,
    /// The batch that commands are applied for.
    batch: BatchNumber,
}

impl Numbers {
    pub(in crate::engine) fn new(seed: Seed) -> Numbers {
        Numbers { rng: Rng::new(seed), last_seq: 0, last_event: 0, batch: BatchNumber::default() }
    }

    /// Goes on after the last numbers that the store has.
    pub(in crate::engine) fn resume(&mut self, last_seq: u64, last_event: u64) {
        (self.last_seq, self.last_event) = (last_seq, last_event);
    }

    /// The number of the next job.
    pub(in crate::engine) fn next_seq(&mut self) -> Seq {
        self.last_seq += 1;
        Seq(self.last_seq)
    }

    /// The number that the next job will have.
    pub(in crate::engine) fn seq_to_come(&self) -> Seq {
        Seq(self.last_seq + 1)
    }

    /// The number of the next event.
    pub(in crate::engine) fn next_event(&mut self) -> u64 {
        self.last_event += 1;
        self.last_event
    }

    /// The number of the last event.
    pub(in crate::engine) fn last_event(&self) -> u64 {
        self.last_event
    }

    /// The batch that commands are applied for.
    pub(in crate::engine) fn batch(&self) -> BatchNumber {
        self.batch
    }

    /// The next command belongs to the next batch. Returns the number of this one.
    pub(in crate::engine) fn end_batch(&mut self) -> BatchNumber {
        let next = self.batch.next();
        std::mem::replace(&mut self.batch, next)
    }

    pub(in crate::engine) fn job_id(&mut self, now: Wall) -> JobId {
        self.rng.job_id(now)
    }

    pub(in crate::engine) fn attempt_id(&mut self) -> AttemptId {
        self.rng.attempt_id()
    }

    /// A random number for jitter.
    pub(in crate::engine) fn jitter(&mut self) -> u64 {
        self.rng.jitter()
    }

    /// A secret for hashing.
    pub(in crate::engine) fn secret(&mut self) -> u64 {
        self.rng.secret()
    }

    /// Adds an event that is about no job.
    pub(in crate::engine) fn server_event(
        &mut self,
        now: Now,
        kind: EventKind,
        tenant: Option<Name>,
        origin: Option<&Origin>,
        detail: Box<str>,
        effects: &mut Effects,
    ) {
        effects.events.push(Event {
            number: self.next_event(),
            at: now.wall,
            kind,
            tenant,
            job: None,
            actor: origin.map(|origin| origin.actor.clone()),
            request: origin.and_then(|origin| origin.request.clone()),
            detail: Some(detail),
        });
    }
}
