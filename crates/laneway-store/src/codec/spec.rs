//! The part of a job's row that no list filters by, in one column.

use laneway_core::capacity::{Hours, HoursClock};
use laneway_core::job::IdempotencyKey;
use laneway_core::{
    Backoff, Callback, CapacityRequest, DropPolicy, Jitter, JobId, JobRow, JobSpec, Key, MemberOf, Name,
    Placement, QuietRule, RetryPolicy, ScheduleId, ScheduleRef, Session, SessionMode, Span, Wall,
};

use super::run::{read_grouping, read_member, write_grouping, write_member};
use super::wants::{read_wants, write_wants};
use super::{Input, put_bytes, put_i64, put_u64};
use crate::StoreError;

const VERSION: u8 = 1;

// One bit for each part that may be missing.
const SESSION: u64 = 1 << 0;
const NOT_BEFORE: u64 = 1 << 1;
const DEADLINE: u64 = 1 << 2;
const QUEUE_TIMEOUT: u64 = 1 << 3;
const TIMEOUT: u64 = 1 << 4;
const RETRY: u64 = 1 << 5;
const IDEMPOTENCY: u64 = 1 << 6;
const RETRY_OF: u64 = 1 << 7;
const KEYS: u64 = 1 << 8;
const TAGS: u64 = 1 << 9;
/// Beside [`SESSION`]: the session is more than its concurrency.
const SESSION_RULES: u64 = 1 << 10;
const CALLBACK: u64 = 1 << 15;
const SCHEDULE: u64 = 1 << 16;
const POSITION: u64 = 1 << 20;
const NEEDS: u64 = 1 << 14;
const WANTS: u64 = 1 << 13;
const MEMBER: u64 = 1 << 24;
/// Beside [`MEMBER`]: the node is a group, or is in one.
const GROUPING: u64 = 1 << 25;
const ALL: u64 = ((1 << 11) - 1) | WANTS | NEEDS | CALLBACK | SCHEDULE | POSITION | MEMBER | GROUPING;

// One bit for each part of a session's rules that may be missing.
const CAP: u64 = 1 << 0;
const DEBOUNCE: u64 = 1 << 1;
const DEBOUNCE_MAX: u64 = 1 << 2;
const SENT_AT: u64 = 1 << 3;
const ALL_RULES: u64 = (1 << 4) - 1;

// The same for what a job asks of the machine.
const QUIET: u8 = 1 << 0;
const UNIQUE: u8 = 1 << 1;
const EXPECTED: u8 = 1 << 2;
const HOURS: u8 = 1 << 3;
/// The hours go by the clock of a time zone.
const ZONE: u8 = 1 << 4;
const NEEDS_ALL: u8 = (1 << 5) - 1;

/// What [`read_spec`] gives back: the fields of a [`JobRow`] that have no column of their own.
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
    pub needs: CapacityRequest,
    pub member: Option<Box<MemberOf>>,
    pub wants: Option<Box<Placement>>,
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
    write_rest(out, &row.spec, row.payload_len, &row.submitted_by, row.position);
}

/// Appends the form of those parts of a spec that have no column of their own.
pub(super) fn write_rest(
    out: &mut Vec<u8>,
    spec: &JobSpec,
    payload_len: u32,
    submitted_by: &Name,
    position: u32,
) {
    let flag = |present: bool, bit: u64| if present { bit } else { 0 };
    out.push(VERSION);
    put_u64(
        out,
        flag(spec.session.is_some(), SESSION)
            | flag(spec.not_before.is_some(), NOT_BEFORE)
            | flag(spec.deadline.is_some(), DEADLINE)
            | flag(spec.queue_timeout.is_some(), QUEUE_TIMEOUT)
            | flag(spec.timeout.is_some(), TIMEOUT)
            | flag(spec.retry.is_some(), RETRY)
            | flag(spec.idempotency.is_some(), IDEMPOTENCY)
            | flag(spec.retry_of.is_some(), RETRY_OF)
            | flag(!spec.keys.is_empty(), KEYS)
            | flag(!spec.tags.is_empty(), TAGS)
            | flag(spec.session.as_ref().is_some_and(has_rules), SESSION_RULES)
            | flag(spec.schedule.is_some(), SCHEDULE)
            | flag(spec.callback.is_some(), CALLBACK)
            | flag(spec.member.is_some(), MEMBER)
            | flag(spec.member.as_deref().is_some_and(is_grouped), GROUPING)
            | flag(position > 0, POSITION)
            | flag(asks_more_than_units(&spec.capacity), NEEDS)
            | flag(spec.placement.is_some(), WANTS),
    );
    put_u64(out, payload_len.into());
    put_bytes(out, submitted_by.as_str().as_bytes());
    if let Some(session) = &spec.session {
        put_u64(out, session.max_concurrent.into());
        if has_rules(session) {
            write_rules(out, session);
        }
    }
    for time in [spec.not_before, spec.deadline].into_iter().flatten() {
        put_i64(out, time.0);
    }
    for span in [spec.queue_timeout, spec.timeout].into_iter().flatten() {
        put_u64(out, span.0);
    }
    if let Some(retry) = &spec.retry {
        write_retry(out, retry);
    }
    if let Some(idempotency) = &spec.idempotency {
        put_bytes(out, idempotency.key.as_str().as_bytes());
        out.extend_from_slice(&idempotency.digest);
    }
    if let Some(job) = spec.retry_of {
        out.extend_from_slice(&job.0.to_be_bytes());
    }
    write_extras(out, spec);
    if position > 0 {
        put_u64(out, position.into());
    }
}

/// Appends what few jobs have.
fn write_extras(out: &mut Vec<u8>, spec: &JobSpec) {
    if !spec.keys.is_empty() {
        put_u64(out, spec.keys.len() as u64);
        for key in &spec.keys {
            put_bytes(out, key.name.as_str().as_bytes());
            put_bytes(out, key.value.as_str().as_bytes());
        }
    }
    if !spec.tags.is_empty() {
        put_u64(out, spec.tags.len() as u64);
        for tag in &spec.tags {
            put_bytes(out, tag.as_str().as_bytes());
        }
    }
    if let Some(callback) = &spec.callback {
        put_bytes(out, callback.url.as_bytes());
        put_bytes(out, callback.format.as_str().as_bytes());
    }
    if let Some(schedule) = &spec.schedule {
        let ScheduleRef { id, name, slot, by_hand } = schedule;
        out.extend_from_slice(&id.0.to_be_bytes());
        put_bytes(out, name.as_str().as_bytes());
        put_i64(out, slot.0);
        out.push(u8::from(*by_hand));
    }
    if asks_more_than_units(&spec.capacity) {
        write_needs(out, &spec.capacity);
    }
    if let Some(member) = &spec.member {
        write_member(out, member);
        if is_grouped(member) {
            write_grouping(out, member);
        }
    }
    if let Some(wants) = &spec.placement {
        write_wants(out, wants);
    }
}

/// True for a group, and for a node that is in one.
fn is_grouped(member: &MemberOf) -> bool {
    member.group || member.within.is_some()
}

fn read_membership(input: &mut Input<'_>, grouped: bool) -> Result<Box<MemberOf>, StoreError> {
    let mut member = read_member(input)?;
    if grouped {
        read_grouping(input, &mut member)?;
    }
    Ok(Box::new(member))
}

/// True for a session that asks for more than to run so many at once, in order.
fn has_rules(session: &Session) -> bool {
    let Session { key: _, max_concurrent: _, mode, cap, drop, debounce, debounce_max, sent_at } = session;
    (*mode, *drop) != (SessionMode::Queue, DropPolicy::Old)
        || cap.is_some()
        || debounce.is_some()
        || debounce_max.is_some()
        || sent_at.is_some()
}

fn write_rules(out: &mut Vec<u8>, session: &Session) {
    let Session { key: _, max_concurrent: _, mode, cap, drop, debounce, debounce_max, sent_at } = session;
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

fn asks_more_than_units(needs: &CapacityRequest) -> bool {
    let CapacityRequest { cost: _, quiet, unique, expected_duration, hours } = needs;
    quiet.is_some() || *unique || expected_duration.is_some() || hours.is_some()
}

fn write_needs(out: &mut Vec<u8>, needs: &CapacityRequest) {
    let CapacityRequest { cost: _, quiet, unique, expected_duration, hours } = needs;
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
pub(crate) fn read_spec(
    bytes: &[u8],
    intern: &mut dyn FnMut(&str) -> Result<Name, StoreError>,
) -> Result<SpecRest, StoreError> {
    let mut input = Input::new("the spec of a job", bytes);
    input.version(VERSION)?;
    let flags = input.u64()?;
    if flags & !ALL != 0 {
        return Err(input.damaged("it has parts that this program does not know"));
    }
    let has = |bit: u64| flags & bit != 0;
    // Evaluated in the order in which the parts are written.
    let spec = SpecRest {
        payload_len: input.u32()?,
        submitted_by: intern(input.text()?)?,
        session: has(SESSION).then(|| read_session(&mut input, has(SESSION_RULES))).transpose()?,
        not_before: has(NOT_BEFORE).then(|| input.i64().map(Wall)).transpose()?,
        deadline: has(DEADLINE).then(|| input.i64().map(Wall)).transpose()?,
        queue_timeout: has(QUEUE_TIMEOUT).then(|| input.u64().map(Span)).transpose()?,
        timeout: has(TIMEOUT).then(|| input.u64().map(Span)).transpose()?,
        retry: has(RETRY).then(|| read_retry(&mut input)).transpose()?,
        idempotency: has(IDEMPOTENCY).then(|| read_idempotency(&mut input)).transpose()?,
        retry_of: has(RETRY_OF)
            .then(|| input.array().map(|id| JobId(u128::from_be_bytes(id))))
            .transpose()?,
        keys: if has(KEYS) { read_keys(&mut input, intern)? } else { Vec::new() },
        tags: if has(TAGS) { read_tags(&mut input, intern)? } else { Vec::new() },
        callback: has(CALLBACK).then(|| read_callback(&mut input, intern)).transpose()?,
        schedule: has(SCHEDULE).then(|| read_schedule(&mut input, intern)).transpose()?,
        needs: if has(NEEDS) { read_needs(&mut input)? } else { CapacityRequest::default() },
        member: has(MEMBER).then(|| read_membership(&mut input, has(GROUPING))).transpose()?,
        wants: has(WANTS).then(|| read_wants(&mut input, intern).map(Box::new)).transpose()?,
        position: if has(POSITION) { input.u32()? } else { 0 },
    };
    input.end()?;
    Ok(spec)
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

fn read_needs(input: &mut Input<'_>) -> Result<CapacityRequest, StoreError> {
    let flags = input.u8()?;
    if flags & !NEEDS_ALL != 0 {
        return Err(input.damaged("it needs what this program does not know"));
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

fn read_idempotency(input: &mut Input<'_>) -> Result<IdempotencyKey, StoreError> {
    Ok(IdempotencyKey { key: input.name()?, digest: input.array()? })
}

fn read_keys(
    input: &mut Input<'_>,
    intern: &mut dyn FnMut(&str) -> Result<Name, StoreError>,
) -> Result<Vec<Key>, StoreError> {
    let count = read_count(input)?;
    let mut keys = Vec::with_capacity(count);
    for _ in 0..count {
        keys.push(Key { name: intern(input.text()?)?, value: intern(input.text()?)? });
    }
    Ok(keys)
}

fn read_tags(
    input: &mut Input<'_>,
    intern: &mut dyn FnMut(&str) -> Result<Name, StoreError>,
) -> Result<Vec<Name>, StoreError> {
    let count = read_count(input)?;
    let mut tags = Vec::with_capacity(count);
    for _ in 0..count {
        tags.push(intern(input.text()?)?);
    }
    Ok(tags)
}

fn read_callback(
    input: &mut Input<'_>,
    intern: &mut dyn FnMut(&str) -> Result<Name, StoreError>,
) -> Result<Callback, StoreError> {
    Ok(Callback { url: input.text()?.into(), format: intern(input.text()?)? })
}

fn read_schedule(
    input: &mut Input<'_>,
    intern: &mut dyn FnMut(&str) -> Result<Name, StoreError>,
) -> Result<ScheduleRef, StoreError> {
    let id = ScheduleId(u128::from_be_bytes(input.array()?));
    let (name, slot) = (intern(input.text()?)?, Wall(input.i64()?));
    match input.u8()? {
        by_hand @ 0..=1 => Ok(ScheduleRef { id, name, slot, by_hand: by_hand == 1 }),
        _ => Err(input.damaged("a run is neither by hand nor of a slot")),
    }
}

pub(super) fn read_count(input: &mut Input<'_>) -> Result<usize, StoreError> {
    match usize::try_from(input.u64()?) {
        Ok(count) if count <= input.left() => Ok(count),
        _ => Err(input.damaged("a list is longer than its bytes")),
    }
}
