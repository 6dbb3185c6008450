//! The numbers that the engine gives out: jobs, events, batches, and what chance decides.

use crate::engine::collections::fresh::BatchNumber;
use crate::engine::random::rng::Rng;
use crate::{Effects, Event, EventKind, Name, Now, Origin, Seed};

/// The last numbers given out.
pub(in crate::engine) struct Numbers {
    pub(in crate::engine) rng: Rng,
    pub(in crate::engine) last_seq: u64,
    pub(in crate::engine) last_event: u64,
    /// The batch that commands are applied for.
    pub(in crate::engine) batch: BatchNumber,
}

impl Numbers {
    pub(in crate::engine) fn new(seed: Seed) -> Numbers {
        Numbers { rng: Rng::new(seed), last_seq: 0, last_event: 0, batch: BatchNumber::default() }
    }

    /// The number of the last event.
    pub(in crate::engine) fn last_event(&self) -> u64 {
        self.last_event
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
        self.last_event += 1;
        effects.events.push(Event {
            number: self.last_event,
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
