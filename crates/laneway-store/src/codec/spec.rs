//! The part of a job's row that no list filters by, in one column.

use laneway_core::capacity::{Hours, HoursClock};
use laneway_core::job::IdempotencyKey;
use laneway_core::{
    Backoff, Callback, CapacityRequest, DropPolicy, Jitter, JobId, JobRow, JobSpec, Key, MemberOf, Name,
    Placement, QuietRule, RetryPolicy, ScheduleId, ScheduleRef, Session, SessionMode, Span, TraceContext,
    Wall,
};

use super::placement::{read_placement, write_placement};
use super::run::{read_member, write_member};
use super::{Input, Intern, put_bytes, put_i64, put_name, put_names, put_u64};
use crate::StoreError;

const VERSION: u8 = 1;

// One bit for each part that may be missing.
const SESSION: u64 = 1 << 0;
/// Beside [`SESSION`]: the session has more than a concurrency.
const SESSION_RULES: u64 = 1 << 1;
const NOT_BEFORE: u64 = 1 << 2;
const DEADLINE: u64 = 1 << 3;
const QUEUE_TIMEOUT: u64 = 1 << 4;
const TIMEOUT: u64 = 1 << 5;
const RETRY: u64 = 1 << 6;
const IDEMPOTENCY: u64 = 1 << 7;
const RETRY_OF: u64 = 1 << 8;
const KEYS: u64 = 1 << 9;
const TAGS: u64 = 1 << 10;
const CALLBACK: u64 = 1 << 11;
const SCHEDULE: u64 = 1 << 12;
const CAPACITY: u64 = 1 << 13;
const MEMBER: u64 = 1 << 14;
const PLACEMENT: u64 = 1 << 15;
const POSITION: u64 = 1 << 16;
const TRACE: u64 = 1 << 17;
/// Beside [`TRACE`]: the trace has a state.
const TRACE_STATE: u64 = 1 << 18;
const ALL: u64 = (1 << 19) - 1;

// One bit for each part of a session's rules that may be missing.
const CAP: u64 = 1 << 0;
const DEBOUNCE: u64 = 1 << 1;
const DEBOUNCE_MAX: u64 = 1 << 2;
const SENT_AT: u64 = 1 << 3;
const ALL_RULES: u64 = (1 << 4) - 1;

// The same for a capacity request.
const QUIET: u8 = 1 << 0;
const UNIQUE: u8 = 1 << 1;
const EXPECTED: u8 = 1 << 2;
const HOURS: u8 = 1 << 3;
/// The hours go by the clock of a time zone.
const ZONE: u8 = 1 << 4;
const ALL_CAPACITY: u8 = (1 << 5) - 1;

/// What [`read_spec`] returns: the fields of a [`JobRow`] that have no column of their own.
#[derive(Debug)]
pub(crate) struct SpecRest {
    pub payload_len: u32,
    pub submitted_by: Name,
    pub position: u32,
    pub session: Option<SessionRest>,
    pub keys: Vec<Key>,
    pub not_before: Option<Wall>,
    pub deadline: Option<Wall>,
    pub queue_timeout: Option<Span>,
    pub timeout: Option<Span>,
    pub retry: Option<RetryPolicy>,
    pub idempotency: Option<IdempotencyKey>,
    pub retry_of: Option<JobId>,
    pub tags: Vec<Name>,
    pub callback: Option<Callback>,
    pub schedule: Option<ScheduleRef>,
    /// Without the cost, which has a column.
    pub capacity: CapacityRequest,
    pub member: Option<Box<MemberOf>>,
    pub placement: Option<Box<Placement>>,
    pub trace: Option<Box<TraceContext>>,
}

/// The fields of a [`JobSpec`] that have columns of their own.
pub(crate) struct SpecColumns {
    pub tenant: Name,
    pub kind: Name,
    pub agent: Name,
    pub lane: Name,
    /// The key of its session.
    pub session: Option<Name>,
    pub priority: i32,
    pub cost: u32,
}

impl SpecRest {
    /// The whole spec. The only function that puts a stored spec together.
    pub fn with_columns(self, columns: SpecColumns) -> Result<JobSpec, StoreError> {
        let SpecColumns { tenant, kind, agent, lane, session: key, priority, cost } = columns;
        let session = match (key, self.session) {
            (Some(key), Some(session)) => Some(session.with_key(key)),
            (None, None) => None,
            _ => return Err(StoreError::Damaged("a job has half a session".into())),
        };
        Ok(JobSpec {
            tenant,
            kind,
            agent,
            lane,
            session,
            keys: self.keys,
            priority,
            not_before: self.not_before,
            deadline: self.deadline,
            queue_timeout: self.queue_timeout,
            timeout: self.timeout,
            retry: self.retry,
            idempotency: self.idempotency,
            retry_of: self.retry_of,
            tags: self.tags,
            schedule: self.schedule,
            callback: self.callback,
            capacity: CapacityRequest { cost, ..self.capacity },
            member: self.member,
            placement: self.placement,
            trace: self.trace,
        })
    }
}

/// A session without its key, which has a column.
#[derive(Debug)]
pub(crate) struct SessionRest {
    max_concurrent: u32,
    rules: Option<Rules>,
}

#[derive(Debug)]
struct Rules {
    mode: SessionMode,
    drop: DropPolicy,
    cap: Option<u32>,
    debounce: Option<Span>,
    debounce_max: Option<Span>,
    sent_at: Option<Wall>,
}

impl SessionRest {
    /// The whole session.
    pub fn with_key(self, key: Name) -> Session {
        let session = Session { max_concurrent: self.max_concurrent, ..Session::new(key) };
        match self.rules {
            None => session,
            Some(Rules { mode, drop, cap, debounce, debounce_max, sent_at }) => {
                Session { mode, drop, cap, debounce, debounce_max, sent_at, ..session }
            }
        }
    }
}

/// Appends the form of `row` to `out`.
pub(crate) fn write_spec(out: &mut Vec<u8>, row: &JobRow) {
    // Parts with an underscore have columns of their own.
    let JobRow {
        seq: _,
        id: _,
        spec,
        payload_len,
        created_at: _,
        rank_time: _,
        submitted_by,
        position,
        status: _,
    } = row;
    write_rest(out, spec, *payload_len, submitted_by, *position);
}

/// Appends the form of those parts of a spec that have no column of their own.
pub(super) fn write_rest(
    out: &mut Vec<u8>,
    spec: &JobSpec,
    payload_len: u32,
    submitted_by: &Name,
    position: u32,
) {
    // The five first ones have columns, and so has the priority.
    let JobSpec {
        tenant: _,
        kind: _,
        agent: _,
        lane: _,
        session,
        keys,
        priority: _,
        not_before,
        deadline,
        queue_timeout,
        timeout,
        retry,
        idempotency,
        retry_of,
        tags,
        schedule,
        callback,
        capacity,
        member,
        placement,
        trace,
    } = spec;
    out.push(VERSION);
    put_u64(out, parts_of(spec, position));
    put_u64(out, payload_len.into());
    put_name(out, submitted_by);
    write_part(out, session.as_ref(), write_session);
    for time in [not_before, deadline].into_iter().flatten() {
        put_i64(out, time.0);
    }
    for span in [queue_timeout, timeout].into_iter().flatten() {
        put_u64(out, span.0);
    }
    write_part(out, retry.as_ref(), write_retry);
    write_part(out, idempotency.as_ref(), write_idempotency);
    write_part(out, retry_of.as_ref(), |out, job| out.extend_from_slice(&job.0.to_be_bytes()));
    write_part(out, Some(keys).filter(|keys| !keys.is_empty()), |out, keys| write_keys(out, keys));
    write_part(out, Some(tags).filter(|tags| !tags.is_empty()), |out, tags| put_names(out, tags));
    write_part(out, callback.as_ref(), write_callback);
    write_part(out, schedule.as_ref(), write_schedule);
    write_part(out, Some(capacity).filter(|capacity| requests_more_than_units(capacity)), write_capacity);
    write_part(out, member.as_deref(), write_member);
    write_part(out, placement.as_deref(), write_placement);
    write_part(out, Some(position).filter(|position| *position > 0).as_ref(), |out, position| {
        put_u64(out, (*position).into());
    });
    write_part(out, trace.as_deref(), write_trace);
}

/// The flags of the parts that are not missing.
fn parts_of(spec: &JobSpec, position: u32) -> u64 {
    let flag = |present: bool, bit: u64| if present { bit } else { 0 };
    flag(spec.session.is_some(), SESSION)
        | flag(spec.session.as_ref().is_some_and(has_rules), SESSION_RULES)
        | flag(spec.not_before.is_some(), NOT_BEFORE)
        | flag(spec.deadline.is_some(), DEADLINE)
        | flag(spec.queue_timeout.is_some(), QUEUE_TIMEOUT)
        | flag(spec.timeout.is_some(), TIMEOUT)
        | flag(spec.retry.is_some(), RETRY)
        | flag(spec.idempotency.is_some(), IDEMPOTENCY)
        | flag(spec.retry_of.is_some(), RETRY_OF)
        | flag(!spec.keys.is_empty(), KEYS)
        | flag(!spec.tags.is_empty(), TAGS)
        | flag(spec.callback.is_some(), CALLBACK)
        | flag(spec.schedule.is_some(), SCHEDULE)
        | flag(requests_more_than_units(&spec.capacity), CAPACITY)
        | flag(spec.member.is_some(), MEMBER)
        | flag(spec.placement.is_some(), PLACEMENT)
        | flag(position > 0, POSITION)
        | flag(spec.trace.is_some(), TRACE)
        | flag(spec.trace.as_ref().is_some_and(|trace| trace.state.is_some()), TRACE_STATE)
}

fn write_part<T>(out: &mut Vec<u8>, part: Option<&T>, write: impl FnOnce(&mut Vec<u8>, &T)) {
    if let Some(part) = part {
        write(out, part);
    }
}

pub(super) fn write_idempotency(out: &mut Vec<u8>, idempotency: &IdempotencyKey) {
    let IdempotencyKey { key, digest } = idempotency;
    put_name(out, key);
    out.extend_from_slice(digest);
}

pub(super) fn write_keys(out: &mut Vec<u8>, keys: &[Key]) {
    put_u64(out, keys.len() as u64);
    for Key { name, value } in keys {
        put_name(out, name);
        put_name(out, value);
    }
}

fn write_trace(out: &mut Vec<u8>, trace: &TraceContext) {
    let TraceContext { trace_id, span_id, flags, state } = trace;
    out.extend_from_slice(&trace_id.to_be_bytes());
    out.extend_from_slice(&span_id.to_be_bytes());
    out.push(*flags);
    write_part(out, state.as_ref(), |out, state| put_bytes(out, state.as_bytes()));
}

fn write_callback(out: &mut Vec<u8>, callback: &Callback) {
    let Callback { url, format } = callback;
    put_bytes(out, url.as_bytes());
    put_name(out, format);
}

fn write_schedule(out: &mut Vec<u8>, schedule: &ScheduleRef) {
    let ScheduleRef { id, name, slot, by_hand } = schedule;
    out.extend_from_slice(&id.0.to_be_bytes());
    put_name(out, name);
    put_i64(out, slot.0);
    out.push(u8::from(*by_hand));
}

/// True for a session with rules beside its concurrency.
fn has_rules(session: &Session) -> bool {
    let Session { key: _, max_concurrent: _, mode, cap, drop, debounce, debounce_max, sent_at } = session;
    (*mode, *drop) != (SessionMode::Queue, DropPolicy::Old)
        || cap.is_some()
        || debounce.is_some()
        || debounce_max.is_some()
        || sent_at.is_some()
}

fn write_session(out: &mut Vec<u8>, session: &Session) {
    let Session { key: _, max_concurrent, mode, cap, drop, debounce, debounce_max, sent_at } = session;
    put_u64(out, (*max_concurrent).into());
    if !has_rules(session) {
        return;
    }
    let flag = |present: bool, bit: u64| if present { bit } else { 0 };
    put_u64(
        out,
        flag(cap.is_some(), CAP)
            | flag(debounce.is_some(), DEBOUNCE)
            | flag(debounce_max.is_some(), DEBOUNCE_MAX)
            | flag(sent_at.is_some(), SENT_AT),
    );
    out.extend_from_slice(&[mode.code(), drop.code()]);
    if let Some(cap) = cap {
        put_u64(out, (*cap).into());
    }
    for span in [debounce, debounce_max].into_iter().flatten() {
        put_u64(out, span.0);
    }
    if let Some(time) = sent_at {
        put_i64(out, time.0);
    }
}

/// True where a request has more than a cost, which has a column.
fn requests_more_than_units(capacity: &CapacityRequest) -> bool {
    let CapacityRequest { cost: _, quiet, unique, expected_duration, hours } = capacity;
    quiet.is_some() || *unique || expected_duration.is_some() || hours.is_some()
}

fn write_capacity(out: &mut Vec<u8>, capacity: &CapacityRequest) {
    let CapacityRequest { cost: _, quiet, unique, expected_duration, hours } = capacity;
    let flag = |present: bool, bit: u8| if present { bit } else { 0 };
    out.push(
        flag(quiet.is_some(), QUIET)
            | flag(*unique, UNIQUE)
            | flag(expected_duration.is_some(), EXPECTED)
            | flag(hours.is_some(), HOURS)
            | flag(hours.as_ref().is_some_and(|hours| matches!(hours.clock, HoursClock::Zone(_))), ZONE),
    );
    if let Some(rule) = quiet {
        out.push(rule.code());
    }
    if let Some(span) = expected_duration {
        put_u64(out, span.0);
    }
    if let Some(Hours { from, until, clock }) = hours {
        put_u64(out, (*from).into());
        put_u64(out, (*until).into());
        match clock {
            HoursClock::Ahead(ahead) => put_i64(out, (*ahead).into()),
            HoursClock::Zone(zone) => put_bytes(out, zone.as_str().as_bytes()),
        }
    }
}

fn write_retry(out: &mut Vec<u8>, retry: &RetryPolicy) {
    let RetryPolicy { retries_max, losses_max, backoff } = retry;
    let Backoff { base, factor, max, jitter } = backoff;
    put_u64(out, (*retries_max).into());
    put_u64(out, (*losses_max).into());
    put_u64(out, base.0);
    put_u64(out, (*factor).into());
    put_u64(out, max.0);
    match jitter {
        Jitter::None => out.push(0),
        Jitter::Add(span) => {
            out.push(1);
            put_u64(out, span.0);
        }
        Jitter::Percent(percent) => out.extend_from_slice(&[2, *percent]),
    }
}

/// Reads a form back. `intern` makes the names, so that equal ones can share their text.
pub(crate) fn read_spec(bytes: &[u8], intern: &mut Intern<'_>) -> Result<SpecRest, StoreError> {
    let mut input = Input::new("the spec of a job", bytes);
    let spec = read_rest(&mut input, intern)?;
    input.end()?;
    Ok(spec)
}

/// Reads the form that [`write_rest`] appends. Other parts may follow it.
pub(super) fn read_rest(input: &mut Input<'_>, intern: &mut Intern<'_>) -> Result<SpecRest, StoreError> {
    input.version(VERSION)?;
    let flags = input.u64()?;
    if flags & !ALL != 0 {
        return Err(input.damaged("it has parts that this program does not know"));
    }
    let has = |bit: u64| flags & bit != 0;
    // Evaluated in the order in which the parts are written.
    Ok(SpecRest {
        payload_len: input.u32()?,
        submitted_by: intern(input.text()?)?,
        session: has(SESSION).then(|| read_session(input, has(SESSION_RULES))).transpose()?,
        not_before: has(NOT_BEFORE).then(|| input.i64().map(Wall)).transpose()?,
        deadline: has(DEADLINE).then(|| input.i64().map(Wall)).transpose()?,
        queue_timeout: has(QUEUE_TIMEOUT).then(|| input.u64().map(Span)).transpose()?,
        timeout: has(TIMEOUT).then(|| input.u64().map(Span)).transpose()?,
        retry: has(RETRY).then(|| read_retry(input)).transpose()?,
        idempotency: has(IDEMPOTENCY).then(|| read_idempotency(input)).transpose()?,
        retry_of: has(RETRY_OF)
            .then(|| input.array().map(|id| JobId(u128::from_be_bytes(id))))
            .transpose()?,
        keys: if has(KEYS) { read_keys(input, intern)? } else { Vec::new() },
        tags: if has(TAGS) { read_tags(input, intern)? } else { Vec::new() },
        callback: has(CALLBACK).then(|| read_callback(input, intern)).transpose()?,
        schedule: has(SCHEDULE).then(|| read_schedule(input, intern)).transpose()?,
        capacity: if has(CAPACITY) { read_capacity(input)? } else { CapacityRequest::default() },
        member: has(MEMBER).then(|| read_member(input).map(Box::new)).transpose()?,
        placement: has(PLACEMENT).then(|| read_placement(input, intern).map(Box::new)).transpose()?,
        position: if has(POSITION) { input.u32()? } else { 0 },
        trace: has(TRACE).then(|| read_trace(input, has(TRACE_STATE)).map(Box::new)).transpose()?,
    })
}

fn read_session(input: &mut Input<'_>, has_rules: bool) -> Result<SessionRest, StoreError> {
    let max_concurrent = input.u32()?;
    let rules = has_rules.then(|| read_rules(input)).transpose()?;
    Ok(SessionRest { max_concurrent, rules })
}

fn read_rules(input: &mut Input<'_>) -> Result<Rules, StoreError> {
    let flags = input.u64()?;
    if flags & !ALL_RULES != 0 {
        return Err(input.damaged("its session has parts that this program does not know"));
    }
    let has = |bit: u64| flags & bit != 0;
    let (mode, drop) = (input.u8()?, input.u8()?);
    Ok(Rules {
        mode: SessionMode::from_code(mode).ok_or_else(|| input.damaged("there is no such session mode"))?,
        drop: DropPolicy::from_code(drop).ok_or_else(|| input.damaged("there is no such drop policy"))?,
        cap: has(CAP).then(|| input.u32()).transpose()?,
        debounce: has(DEBOUNCE).then(|| input.u64().map(Span)).transpose()?,
        debounce_max: has(DEBOUNCE_MAX).then(|| input.u64().map(Span)).transpose()?,
        sent_at: has(SENT_AT).then(|| input.i64().map(Wall)).transpose()?,
    })
}

fn read_retry(input: &mut Input<'_>) -> Result<RetryPolicy, StoreError> {
    let (retries_max, losses_max) = (input.u32()?, input.u32()?);
    let (base, factor, max) = (Span(input.u64()?), input.u32()?, Span(input.u64()?));
    let jitter = match input.u8()? {
        0 => Jitter::None,
        1 => Jitter::Add(Span(input.u64()?)),
        2 => Jitter::Percent(input.u8()?),
        other => return Err(input.damaged(&format!("there is no jitter {other}"))),
    };
    Ok(RetryPolicy { retries_max, losses_max, backoff: Backoff { base, factor, max, jitter } })
}

fn read_capacity(input: &mut Input<'_>) -> Result<CapacityRequest, StoreError> {
    let flags = input.u8()?;
    if flags & !ALL_CAPACITY != 0 {
        return Err(input.damaged("its capacity request has parts that this program does not know"));
    }
    let has = |bit: u8| flags & bit != 0;
    let quiet = match has(QUIET).then(|| input.u8()).transpose()? {
        None => None,
        Some(code) => Some(QuietRule::from_code(code).ok_or_else(|| input.damaged("there is no such rule"))?),
    };
    let expected_duration = has(EXPECTED).then(|| input.u64().map(Span)).transpose()?;
    let hours = has(HOURS).then(|| read_hours(input, has(ZONE))).transpose()?;
    Ok(CapacityRequest { cost: 0, quiet, unique: has(UNIQUE), expected_duration, hours })
}

fn read_hours(input: &mut Input<'_>, by_zone: bool) -> Result<Hours, StoreError> {
    let (from, until) = (u16::try_from(input.u64()?), u16::try_from(input.u64()?));
    let clock = match by_zone {
        true => Ok(HoursClock::Zone(input.name()?)),
        false => i16::try_from(input.i64()?).map(HoursClock::Ahead),
    };
    match (from, until, clock) {
        (Ok(from), Ok(until), Ok(clock)) => Ok(Hours { from, until, clock }),
        _ => Err(input.damaged("there are no such hours")),
    }
}

pub(super) fn read_idempotency(input: &mut Input<'_>) -> Result<IdempotencyKey, StoreError> {
    Ok(IdempotencyKey { key: input.name()?, digest: input.array()? })
}

pub(super) fn read_keys(input: &mut Input<'_>, intern: &mut Intern<'_>) -> Result<Vec<Key>, StoreError> {
    input.list(|input| Ok(Key { name: intern(input.text()?)?, value: intern(input.text()?)? }))
}

fn read_tags(input: &mut Input<'_>, intern: &mut Intern<'_>) -> Result<Vec<Name>, StoreError> {
    input.list(|input| intern(input.text()?))
}

fn read_trace(input: &mut Input<'_>, has_state: bool) -> Result<TraceContext, StoreError> {
    let (trace_id, span_id) = (u128::from_be_bytes(input.array()?), u64::from_be_bytes(input.array()?));
    let flags = input.u8()?;
    let state = has_state.then(|| input.text().map(Into::into)).transpose()?;
    Ok(TraceContext { trace_id, span_id, flags, state })
}

fn read_callback(input: &mut Input<'_>, intern: &mut Intern<'_>) -> Result<Callback, StoreError> {
    Ok(Callback { url: input.text()?.into(), format: intern(input.text()?)? })
}

fn read_schedule(input: &mut Input<'_>, intern: &mut Intern<'_>) -> Result<ScheduleRef, StoreError> {
    let id = ScheduleId(u128::from_be_bytes(input.array()?));
    let (name, slot) = (intern(input.text()?)?, Wall(input.i64()?));
    match input.u8()? {
        by_hand @ 0..=1 => Ok(ScheduleRef { id, name, slot, by_hand: by_hand == 1 }),
        _ => Err(input.damaged("a firing is neither by hand nor of a slot")),
    }
}
