//! The events of one commit, in one column.
//!
//! Names repeat a lot within a batch, so each is written once: 0 and the text where it first appears, and its index
//! among the names so far (1, 2, 3, …) from then on. Event numbers have no gaps, so only the first is written. Times
//! and links to earlier events are written as differences.

use std::collections::HashMap;

use laneway_core::event::{ErrorLine, JobLine};
use laneway_core::{Event, EventKind, JobId, Name, Reason, Seq, Wall};

use super::{Input, put_bytes, put_i64, put_u64};
use crate::StoreError;

const VERSION: u8 = 1;

// One bit for each part that may be missing.
const TENANT: u8 = 1 << 0;
const JOB: u8 = 1 << 1;
const REASON: u8 = 1 << 2;
const ACTOR: u8 = 1 << 3;
const REQUEST: u8 = 1 << 4;
const DETAIL: u8 = 1 << 5;
const ERROR: u8 = 1 << 6;
const ALL: u8 = (1 << 7) - 1;

/// The most names of an event: tenant, kind, lane, agent, actor, request, and the code of an error.
const NAMES_OF_EVENT: usize = 7;

/// Writes batches of events. It keeps its buffers from one batch to the next.
#[derive(Default)]
pub(crate) struct EventWriter {
    names: HashMap<Name, u64>,
    /// The names of the event before, by their place in it: tenant, lane, kind and actor are often the same again, and a
    /// comparison costs less than a hash.
    recent: [Option<(Name, u64)>; NAMES_OF_EVENT],
    /// The place of the next name.
    place: usize,
    bytes: Vec<u8>,
}

impl EventWriter {
    /// The form of `events`, which are in order of their numbers and not empty.
    pub fn write(&mut self, events: &[Event]) -> &[u8] {
        self.names.clear();
        self.recent = Default::default();
        self.bytes.clear();
        self.bytes.push(VERSION);
        put_u64(&mut self.bytes, events.first().map_or(0, |event| event.number));
        put_u64(&mut self.bytes, events.len() as u64);
        let mut at = 0;
        for event in events {
            self.place = 0;
            self.event(event, at);
            at = event.at.0;
        }
        &self.bytes
    }

    fn event(&mut self, event: &Event, previous_at: i64) {
        let Event { number, at, kind, tenant, job, actor, request, detail } = event;
        let reason = job.as_ref().and_then(|line| line.reason);
        let error = job.as_ref().and_then(|line| line.error.as_deref());
        let flag = |present: bool, bit: u8| if present { bit } else { 0 };
        self.bytes.push(kind.code());
        self.bytes.push(
            flag(tenant.is_some(), TENANT)
                | flag(job.is_some(), JOB)
                | flag(reason.is_some(), REASON)
                | flag(actor.is_some(), ACTOR)
                | flag(request.is_some(), REQUEST)
                | flag(detail.is_some(), DETAIL)
                | flag(error.is_some(), ERROR),
        );
        put_i64(&mut self.bytes, at.0.wrapping_sub(previous_at));
        if let Some(tenant) = tenant {
            self.name(tenant);
        }
        if let Some(line) = job {
            self.job(line, *number);
        }
        for name in [actor, request].into_iter().flatten() {
            self.name(name);
        }
        if let Some(detail) = detail {
            put_bytes(&mut self.bytes, detail.as_bytes());
        }
        if let Some(ErrorLine { code, message }) = error {
            self.name(code);
            put_bytes(&mut self.bytes, message.as_bytes());
        }
    }

    fn job(&mut self, line: &JobLine, number: u64) {
        let JobLine { seq, id, kind, lane, agent, attempt, reason, previous, error: _ } = line;
        put_u64(&mut self.bytes, seq.0);
        self.bytes.extend_from_slice(&id.0.to_be_bytes());
        for name in [kind, lane, agent] {
            self.name(name);
        }
        put_u64(&mut self.bytes, (*attempt).into());
        if let Some(reason) = reason {
            self.bytes.push(reason.code());
        }
        // 0 stays 0; else how far back the event before this one is.
        put_u64(&mut self.bytes, if *previous == 0 { 0 } else { number.saturating_sub(*previous) });
    }

    fn name(&mut self, name: &Name) {
        let place = self.place % NAMES_OF_EVENT;
        self.place += 1;
        if let Some((_, index)) = self.recent[place].as_ref().filter(|(recent, _)| recent == name) {
            put_u64(&mut self.bytes, *index);
            return;
        }
        let index = match self.names.get(name) {
            Some(&index) => {
                put_u64(&mut self.bytes, index);
                index
            }
            None => {
                let index = self.names.len() as u64 + 1;
                self.names.insert(name.clone(), index);
                put_u64(&mut self.bytes, 0);
                put_bytes(&mut self.bytes, name.as_str().as_bytes());
                index
            }
        };
        self.recent[place] = Some((name.clone(), index));
    }
}

/// Reads a batch, event by event.
pub(crate) struct EventReader<'a> {
    input: Input<'a>,
    names: Vec<Name>,
    number: u64,
    left: u64,
    at: i64,
}

impl<'a> EventReader<'a> {
    /// Begins to read a batch that must hold `count` events from number `first` on.
    pub fn new(bytes: &'a [u8], first: u64, count: u64) -> Result<EventReader<'a>, StoreError> {
        let mut input = Input::new("a batch of events", bytes);
        input.version(VERSION)?;
        if input.u64()? != first || input.u64()? != count || first.checked_add(count).is_none() {
            return Err(input.damaged("its numbers are not those of its row"));
        }
        Ok(EventReader { input, names: Vec::new(), number: first, left: count, at: 0 })
    }

    fn event(&mut self) -> Result<Event, StoreError> {
        let kind = self.input.u8()?;
        let kind =
            EventKind::from_code(kind).ok_or_else(|| self.input.damaged("there is no such kind of event"))?;
        let flags = self.input.u8()?;
        if flags & !ALL != 0 {
            return Err(self.input.damaged("an event has parts that this program does not know"));
        }
        self.at = self.at.wrapping_add(self.input.i64()?);
        let tenant = self.optional_name(flags & TENANT != 0)?;
        let mut job = if flags & JOB != 0 { Some(self.job(flags & REASON != 0)?) } else { None };
        let actor = self.optional_name(flags & ACTOR != 0)?;
        let request = self.optional_name(flags & REQUEST != 0)?;
        let detail = if flags & DETAIL != 0 { Some(self.input.text()?.into()) } else { None };
        if flags & ERROR != 0 {
            let error = ErrorLine { code: self.name()?, message: self.input.text()?.into() };
            let Some(line) = &mut job else {
                return Err(self.input.damaged("an event of no job has a job's error"));
            };
            line.error = Some(Box::new(error));
        }
        let number = self.number;
        self.number += 1;
        Ok(Event { number, at: Wall(self.at), kind, tenant, job, actor, request, detail })
    }

    fn job(&mut self, has_reason: bool) -> Result<JobLine, StoreError> {
        let seq = Seq(self.input.u64()?);
        let id = JobId(u128::from_be_bytes(self.input.array()?));
        let (kind, lane, agent) = (self.name()?, self.name()?, self.name()?);
        let attempt = self.input.u32()?;
        let reason = if has_reason { Some(self.reason()?) } else { None };
        let previous = match self.input.u64()? {
            0 => 0,
            back => {
                let previous = self.number.checked_sub(back);
                previous.ok_or_else(|| self.input.damaged("an event comes before the first"))?
            }
        };
        Ok(JobLine { seq, id, kind, lane, agent, attempt, reason, previous, error: None })
    }

    fn reason(&mut self) -> Result<Reason, StoreError> {
        let code = self.input.u8()?;
        Reason::from_code(code).ok_or_else(|| self.input.damaged("there is no such reason"))
    }

    fn optional_name(&mut self, present: bool) -> Result<Option<Name>, StoreError> {
        if present { self.name().map(Some) } else { Ok(None) }
    }

    fn name(&mut self) -> Result<Name, StoreError> {
        let index = self.input.u64()?;
        if index == 0 {
            let name = self.input.name()?;
            self.names.push(name.clone());
            return Ok(name);
        }
        let known = usize::try_from(index - 1).ok().and_then(|index| self.names.get(index));
        known.cloned().ok_or_else(|| self.input.damaged("a name is used before it is given"))
    }
}

impl Iterator for EventReader<'_> {
    type Item = Result<Event, StoreError>;

    fn next(&mut self) -> Option<Result<Event, StoreError>> {
        if self.left == 0 {
            return None;
        }
        self.left -= 1;
        let event = self.event().and_then(|event| {
            if self.left == 0 {
                self.input.end()?;
            }
            Ok(event)
        });
        if event.is_err() {
            self.left = 0;
        }
        Some(event)
    }
}
