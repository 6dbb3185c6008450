//! Rows that changes put as a whole: tokens, sessions, deliveries and their tries, kept keys, records.

use laneway_core::{
    Bytes, Change, DeliveryRow, DeliveryTry, JobId, KeptKeys, Record, RecordName, Seq, SessionRow, Span,
    TokenRecord,
};

use super::super::spec::{read_keys, write_keys};
use super::super::{Input, Intern, put_bytes, put_name, put_u64, put_u128, put_wall};
use super::flag;
use crate::StoreError;
use crate::rows::{stored_delivery_state, stored_role};

// One bit for each part of a token that may be missing.
const TENANT: u8 = 1 << 0;
const EXPIRES: u8 = 1 << 1;
const REVOKED: u8 = 1 << 2;
const ALL_TOKEN: u8 = (1 << 3) - 1;

/// The same for a session.
const CUTOFF: u8 = 1 << 0;

// The same for a delivery and for a try.
const STATUS: u8 = 1 << 0;
const ERROR: u8 = 1 << 1;
const ALL_TRY: u8 = (1 << 2) - 1;
const NEXT: u8 = 1 << 2;
const ENDED: u8 = 1 << 3;
const ALL_DELIVERY: u8 = (1 << 4) - 1;

/// The same for a record.
const REPLACES: u8 = 1 << 0;

pub(super) fn write_token(out: &mut Vec<u8>, token: &TokenRecord) {
    let TokenRecord { id, tenant, role, digest, note, created_at, expires_at, revoked_at } = token;
    let flags = flag(tenant.is_some(), TENANT)
        | flag(expires_at.is_some(), EXPIRES)
        | flag(revoked_at.is_some(), REVOKED);
    out.extend_from_slice(&[flags, role.code()]);
    put_name(out, id);
    out.extend_from_slice(digest);
    put_bytes(out, note.as_bytes());
    put_wall(out, *created_at);
    if let Some(tenant) = tenant {
        put_name(out, tenant);
    }
    for time in [expires_at, revoked_at].into_iter().flatten() {
        put_wall(out, *time);
    }
}

pub(super) fn read_token(input: &mut Input<'_>, intern: &mut Intern<'_>) -> Result<TokenRecord, StoreError> {
    let flags = input.flags(ALL_TOKEN)?;
    let has = |bit: u8| flags & bit != 0;
    // Evaluated in the order in which the parts are written.
    Ok(TokenRecord {
        role: stored_role(input.u8()?)?,
        id: input.name()?,
        digest: input.array()?,
        note: input.text()?.into(),
        created_at: input.wall()?,
        tenant: has(TENANT).then(|| intern(input.text()?)).transpose()?,
        expires_at: has(EXPIRES).then(|| input.wall()).transpose()?,
        revoked_at: has(REVOKED).then(|| input.wall()).transpose()?,
    })
}

pub(super) fn write_session(out: &mut Vec<u8>, session: &SessionRow) {
    let SessionRow { tenant, key, cutoff, generation, tokens, window, updated_at } = session;
    out.push(flag(cutoff.is_some(), CUTOFF));
    put_name(out, tenant);
    put_name(out, key);
    for number in [generation, tokens, window] {
        put_u64(out, *number);
    }
    put_wall(out, *updated_at);
    if let Some(time) = cutoff {
        put_wall(out, *time);
    }
}

pub(super) fn read_session(input: &mut Input<'_>, intern: &mut Intern<'_>) -> Result<SessionRow, StoreError> {
    let flags = input.flags(CUTOFF)?;
    // Evaluated in the order in which the parts are written.
    Ok(SessionRow {
        tenant: intern(input.text()?)?,
        key: intern(input.text()?)?,
        generation: input.u64()?,
        tokens: input.u64()?,
        window: input.u64()?,
        updated_at: input.wall()?,
        cutoff: (flags & CUTOFF != 0).then(|| input.wall()).transpose()?,
    })
}

pub(super) fn write_delivery(out: &mut Vec<u8>, delivery: &DeliveryRow) {
    let DeliveryRow {
        seq,
        job,
        tenant,
        host,
        state,
        tries,
        next_at,
        created_at,
        ended_at,
        last_status,
        last_error,
    } = delivery;
    let flags = flag(last_status.is_some(), STATUS)
        | flag(last_error.is_some(), ERROR)
        | flag(next_at.is_some(), NEXT)
        | flag(ended_at.is_some(), ENDED);
    out.extend_from_slice(&[flags, state.code()]);
    put_u64(out, seq.0);
    put_u128(out, job.0);
    put_name(out, tenant);
    put_bytes(out, host.as_bytes());
    put_u64(out, (*tries).into());
    put_wall(out, *created_at);
    write_answer(out, *last_status, last_error.as_deref());
    for time in [next_at, ended_at].into_iter().flatten() {
        put_wall(out, *time);
    }
}

pub(super) fn read_delivery(
    input: &mut Input<'_>,
    intern: &mut Intern<'_>,
) -> Result<DeliveryRow, StoreError> {
    let flags = input.flags(ALL_DELIVERY)?;
    let has = |bit: u8| flags & bit != 0;
    // Evaluated in the order in which the parts are written.
    Ok(DeliveryRow {
        state: stored_delivery_state(input.u8()?)?,
        seq: Seq(input.u64()?),
        job: JobId(input.u128()?),
        tenant: intern(input.text()?)?,
        host: input.text()?.into(),
        tries: input.u32()?,
        created_at: input.wall()?,
        last_status: has(STATUS).then(|| input.u16()).transpose()?,
        last_error: has(ERROR).then(|| input.text().map(Into::into)).transpose()?,
        next_at: has(NEXT).then(|| input.wall()).transpose()?,
        ended_at: has(ENDED).then(|| input.wall()).transpose()?,
    })
}

pub(super) fn write_try(out: &mut Vec<u8>, tried: &DeliveryTry) {
    let DeliveryTry { seq, number, at, took, status, error } = tried;
    out.push(flag(status.is_some(), STATUS) | flag(error.is_some(), ERROR));
    put_u64(out, seq.0);
    put_u64(out, (*number).into());
    put_wall(out, *at);
    put_u64(out, took.0);
    write_answer(out, *status, error.as_deref());
}

pub(super) fn read_try(input: &mut Input<'_>) -> Result<DeliveryTry, StoreError> {
    let flags = input.flags(ALL_TRY)?;
    // Evaluated in the order in which the parts are written.
    Ok(DeliveryTry {
        seq: Seq(input.u64()?),
        number: input.u32()?,
        at: input.wall()?,
        took: Span(input.u64()?),
        status: (flags & STATUS != 0).then(|| input.u16()).transpose()?,
        error: (flags & ERROR != 0).then(|| input.text().map(Into::into)).transpose()?,
    })
}

fn write_answer(out: &mut Vec<u8>, status: Option<u16>, error: Option<&str>) {
    if let Some(status) = status {
        put_u64(out, status.into());
    }
    if let Some(error) = error {
        put_bytes(out, error.as_bytes());
    }
}

pub(super) fn write_kept_keys(out: &mut Vec<u8>, kept: &KeptKeys) {
    let KeptKeys { job, tenant, keys, since } = kept;
    put_u128(out, job.0);
    put_name(out, tenant);
    write_keys(out, keys);
    put_wall(out, *since);
}

pub(super) fn read_kept_keys(input: &mut Input<'_>, intern: &mut Intern<'_>) -> Result<KeptKeys, StoreError> {
    // Evaluated in the order in which the parts are written.
    Ok(KeptKeys {
        job: JobId(input.u128()?),
        tenant: intern(input.text()?)?,
        keys: read_keys(input, intern)?,
        since: input.wall()?,
    })
}

pub(super) fn write_record(out: &mut Vec<u8>, record: &Record, replaces: Option<u64>) {
    let Record { name, version, body, created_at, updated_at } = record;
    out.push(flag(replaces.is_some(), REPLACES));
    write_record_name(out, name);
    put_u64(out, *version);
    put_bytes(out, body);
    put_wall(out, *created_at);
    put_wall(out, *updated_at);
    if let Some(version) = replaces {
        put_u64(out, version);
    }
}

pub(super) fn read_record(input: &mut Input<'_>, intern: &mut Intern<'_>) -> Result<Change, StoreError> {
    let flags = input.flags(REPLACES)?;
    // Evaluated in the order in which the parts are written.
    let record = Record {
        name: read_record_name(input, intern)?,
        version: input.u64()?,
        body: Bytes::from(input.bytes()?),
        created_at: input.wall()?,
        updated_at: input.wall()?,
    };
    let replaces = (flags & REPLACES != 0).then(|| input.u64()).transpose()?;
    Ok(Change::RecordPut { record: Box::new(record), replaces })
}

pub(super) fn write_deleted_record(out: &mut Vec<u8>, name: &RecordName, version: u64) {
    write_record_name(out, name);
    put_u64(out, version);
}

fn write_record_name(out: &mut Vec<u8>, name: &RecordName) {
    let RecordName { tenant, collection, id } = name;
    for name in [tenant, collection, id] {
        put_name(out, name);
    }
}

pub(super) fn read_record_name(
    input: &mut Input<'_>,
    intern: &mut Intern<'_>,
) -> Result<RecordName, StoreError> {
    Ok(RecordName { tenant: intern(input.text()?)?, collection: intern(input.text()?)?, id: input.name()? })
}
