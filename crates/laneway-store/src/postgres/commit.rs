//! Turns a commit into statements: one for each table that it changes, with all rows of the table in its parameters.
//!
//! The rows come folded and in key order from `batch.rs`. All statements are sent in one round trip; the COMMIT follows when each
//! has done what it must.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use laneway_core::{Event, JobEnd, JobRow, JobStatus, Name, Seq, TokenRecord};

use super::cells::{
    Param, Rows, blob, id, int, name, number, opt_blob, opt_int, opt_name, opt_wall, own_blob, text,
};
use super::load::{LogTallies, Numbers};
use super::script::Script;
use super::{attempts, deliveries, firing_log, kept_keys, prune, records, runs, schedules, sessions};
use crate::StoreError;
use crate::batch::{Batch, JobImage, Revision, Step};
use crate::codec::{EventWriter, write_failure, write_spec};
use crate::columns::events::{EventBytes, next_hash};
use crate::columns::{end_sum, job_sum, retention_bucket};
use crate::live::Bucket;
use crate::logs::stream_of;
use crate::sums::sum_of;
use rusqlite::types::ValueRef;

/// What the writer keeps of the tables in memory. It changes while a script is written, and is put back when that fails.
pub(super) struct Tables<'t> {
    pub numbers: &'t mut Numbers,
    pub logs: LogTallies,
    /// The rows that the commit rewrites, as they are stored.
    pub revised: HashMap<Seq, JobRow>,
}

/// Writes the script of a commit.
pub(super) fn write<'a>(
    tables: &mut Tables<'_>,
    steps: &[Step<'a>],
    events: &[Event],
    writer: &mut EventWriter,
) -> Result<Script<'a>, StoreError> {
    let mut script = Script::default();
    for (at, step) in steps.iter().enumerate() {
        match step {
            Step::Write(batch) => write_batch(tables, batch, &mut script)?,
            Step::PruneJobs(prune) => prune::jobs(tables.numbers, prune, &mut script),
            Step::ReviseJob(revision) => revise_job(tables, &steps[..at], revision, &mut script)?,
            Step::DeleteJobs(jobs) => prune::delete_jobs(tables.numbers, jobs, &mut script)?,
            Step::PruneEvents(before) => prune::events(*before, &mut script),
            Step::PutOverrides(bytes) => {
                script.any("overrides", "UPDATE laneway.server_state SET overrides = $1", vec![blob(bytes)]);
            }
            Step::PutToken(token) => put_token(token, &mut script),
            Step::ForgetToken(id) => {
                script.any("token", "DELETE FROM laneway.token WHERE id = $1", vec![name(id)]);
            }
            Step::SeeClock(at) => {
                script.any("clock", "UPDATE laneway.server_state SET clock_seen = $1", vec![int(at.0)]);
            }
            Step::PutSession(row) => sessions::put(row, &mut script),
            Step::ForgetSession { tenant, key } => sessions::forget(tenant, key, &mut script),
            Step::PutSchedule(schedule) => schedules::put(schedule, &mut script),
            Step::MoveSchedule(id, enabled, state) => schedules::move_on(*id, *enabled, state, &mut script),
            Step::RemoveSchedule(id) => schedules::remove(*id, &mut script),
            Step::PutSlot(schedule, slot, job) => schedules::put_slot(*schedule, *slot, *job, &mut script),
            Step::LogFiring(entry) => firing_log::insert(entry, &mut script),
            Step::PruneFiringLog(prune) => firing_log::prune(prune, &mut script),
            Step::PutRun(row) => runs::insert(row, &mut script),
            Step::DefineRun(first, definition) => runs::define(*first, definition, &mut script),
            Step::MoveRun(first, state, finished_at) => {
                runs::move_on(*first, *state, *finished_at, &mut script)
            }
            Step::PutCall(row) => runs::put_call(row, &mut script),
            Step::PruneRuns(prune) => runs::prune(prune, &mut script),
            Step::KeepKeys(row) => kept_keys::insert(row, &mut script),
            Step::ReleaseKeys(job) => kept_keys::delete(*job, &mut script),
            Step::PutRecord(record, replaces) => records::put(record, *replaces, &mut script),
            Step::DeleteRecord(name, version) => records::delete(name, *version, &mut script),
        }
    }
    write_live(tables.numbers, &mut script);
    write_events(tables.numbers, EventBytes::of(writer, events), &mut script)?;
    let state = &mut *tables.numbers;
    state.commits += 1;
    script.exactly(
        1,
        "server_state",
        "UPDATE laneway.server_state SET commits = $1, last_seq = $2, last_ended = $3",
        vec![number(state.commits), number(state.last_seq), number(state.last_ended)],
    );
    Ok(script)
}

fn write_batch<'a>(
    tables: &mut Tables<'_>,
    batch: &Batch<'a>,
    script: &mut Script<'a>,
) -> Result<(), StoreError> {
    let live = &tables.numbers.live;
    if let Some(seq) = batch.must_live.iter().find(|seq| live.get(**seq).is_none()) {
        return Err(StoreError::Disagree(format!("job {} is not live", seq.0)));
    }
    insert_jobs(tables.numbers, &batch.jobs, script);
    move_jobs(batch, script);
    attempts::write_open(batch, script);
    attempts::insert_closed(batch, script);
    sessions::merge(&tables.numbers.live, &batch.ends, script)?;
    end_jobs(tables.numbers, batch, script)?;
    append_logs(tables, batch, script)?;
    deliveries::write(batch, script);
    Ok(())
}

/// The columns that [`insert_jobs`] writes.
const JOB: &str = "seq, state, wake_at, attempts, failures, losses, last_event, rejections, near_deadline, denials, denied_until, \
     id, tenant, kind, agent, lane, session, priority, rank_time, created_at, spec, cost, sum, key, member";

fn insert_jobs<'a>(state: &mut Numbers, jobs: &[JobImage<'a>], script: &mut Script<'a>) {
    let (mut lanes, mut rows, mut payloads, mut keys) =
        (Rows::default(), Rows::default(), Rows::default(), Rows::default());
    for JobImage { row, status, payload } in jobs {
        let (row, spec) = (*row, &row.spec);
        let lane = match state.lanes.get(&spec.lane) {
            Some(lane) => *lane,
            None => {
                let lane = state.lanes.values().max().copied().unwrap_or_default() + 1;
                state.lanes.insert(spec.lane.clone(), lane);
                lanes.push([int(lane), name(&spec.lane)]);
                lane
            }
        };
        let mut form = Vec::new();
        write_spec(&mut form, row);
        let sum = job_sum(row, &form);
        let keyed = spec.idempotency.as_ref();
        let own = [
            id(row.id.0),
            name(&spec.tenant),
            name(&spec.kind),
            name(&spec.agent),
            name(&spec.lane),
            opt_name(spec.session.as_ref().map(|session| &session.key)),
            int(spec.priority),
            number(row.rank_time),
            int(row.created_at.0),
            own_blob(Some(form)),
            int(spec.capacity.cost),
            int(sum),
            opt_name(keyed.map(|key| &key.key)),
            int(spec.member.is_some()),
        ];
        rows.push(status_of(row.seq, status).into_iter().chain(own));
        let payload_sum = sum_of([ValueRef::Integer(row.seq.0.cast_signed()), ValueRef::Blob(payload)]);
        payloads.push([number(row.seq.0), blob(payload), int(payload_sum)]);
        if let Some(idempotency) = keyed {
            keys.push([name(&spec.tenant), name(&idempotency.key), id(row.id.0), blob(&idempotency.digest)]);
        }
        state.last_seq = state.last_seq.max(row.seq.0);
        state.live.add(row.seq, retention_bucket(lane, keyed.is_some(), spec.member.is_some()));
    }
    script.insert("lane", "number, name", lanes);
    if !rows.is_empty() {
        // The last column is a boolean.
        let columns: Vec<String> = (1..25).map(|column| format!("c{column}")).collect();
        let columns = columns.join(", ");
        let sql = format!(
            "INSERT INTO laneway.job ({JOB}) SELECT {columns}, c25 = 1 FROM {} AS rows ({columns}, c25)",
            rows.unnest()
        );
        script.any("job", sql, rows.into_params());
    }
    script.insert("payload", "seq, bytes, sum", payloads);
    script.insert("idempotency", "tenant, key, job, digest", keys);
}

/// The number and the status of a job, in the order of the first columns of [`JOB`].
fn status_of<'a>(seq: Seq, status: &JobStatus) -> [Param<'a>; 11] {
    let JobStatus {
        state,
        wake_at,
        attempts,
        failures,
        losses,
        rejections,
        near_deadline,
        denials,
        denied_until,
        last_event,
    } = status;
    [
        number(seq.0),
        int(state.code()),
        opt_wall(*wake_at),
        int(*attempts),
        int(*failures),
        int(*losses),
        number(*last_event),
        int(*rejections),
        int(*near_deadline),
        int(*denials),
        opt_wall(*denied_until),
    ]
}

fn move_jobs<'a>(batch: &Batch<'a>, script: &mut Script<'a>) {
    let mut rows = Rows::default();
    for (seq, status) in &batch.moved {
        rows.push(status_of(*seq, status));
    }
    if rows.is_empty() {
        return;
    }
    let sql = format!(
        "UPDATE laneway.job SET state = c2, wake_at = c3, attempts = c4, failures = c5, losses = c6, last_event = c7, \
         rejections = c8, near_deadline = c9, denials = c10, denied_until = c11 \
         FROM {} AS rows (c1, c2, c3, c4, c5, c6, c7, c8, c9, c10, c11) WHERE seq = c1",
        rows.unnest()
    );
    script.exactly(rows.len(), "job", sql, rows.into_params());
}

/// Rewrites the row of a live job, with its checksum. Its status is written by [`move_jobs`].
fn revise_job<'a>(
    tables: &mut Tables<'_>,
    before: &[Step<'a>],
    revision: &Revision,
    script: &mut Script<'a>,
) -> Result<(), StoreError> {
    let seq = revision.seq;
    if tables.numbers.live.get(seq).is_none() {
        return Err(StoreError::Disagree(format!("job {} is not live", seq.0)));
    }
    let row = match tables.revised.entry(seq) {
        Entry::Occupied(entry) => entry.into_mut(),
        // It is not stored yet: this commit creates it.
        Entry::Vacant(entry) => {
            let batches = before.iter().filter_map(|step| match step {
                Step::Write(batch) => Some(&batch.jobs),
                _ => None,
            });
            let created = batches.flatten().find(|image| image.row.seq == seq);
            let missing = || StoreError::Damaged(format!("live job {} has no row", seq.0));
            entry.insert(created.ok_or_else(missing)?.row.clone())
        }
    };
    revision.apply(row);
    let mut form = Vec::new();
    write_spec(&mut form, row);
    let sum = job_sum(row, &form);
    script.exactly(
        1,
        "job",
        "UPDATE laneway.job SET priority = $2, rank_time = $3, spec = $4, sum = $5 WHERE seq = $1",
        vec![number(seq.0), int(row.spec.priority), number(row.rank_time), own_blob(Some(form)), int(sum)],
    );
    Ok(())
}

fn end_jobs<'a>(state: &mut Numbers, batch: &Batch<'a>, script: &mut Script<'a>) -> Result<(), StoreError> {
    let mut rows = Rows::default();
    for end in &batch.ends {
        let bucket = match state.live.get(end.seq) {
            Some(Bucket::Known(bucket)) => Some(bucket),
            Some(Bucket::Unknown) => None,
            None => return Err(StoreError::Disagree(format!("job {} is not live", end.seq.0))),
        };
        let JobEnd {
            seq,
            state: ended,
            reason,
            error,
            result,
            attempt_id,
            started_at,
            finished_at,
            attempts,
            failures,
            losses,
            last_event,
            merged_into: _,
        } = *end;
        let form = error.as_ref().map(|error| {
            let mut form = Vec::new();
            write_failure(&mut form, error);
            form
        });
        let sum = end_sum(end, form.as_deref());
        state.last_ended += 1;
        rows.push([
            number(state.last_ended),
            number(seq.0),
            opt_int(bucket),
            int(ended.code()),
            int(reason.code()),
            own_blob(attempt_id.map(|id| id.0.to_be_bytes().to_vec())),
            opt_wall(*started_at),
            int(finished_at.0),
            int(*attempts),
            int(*failures),
            int(*losses),
            number(*last_event),
            own_blob(form),
            opt_blob(result.as_deref()),
            int(sum),
            opt_name(error.as_ref().map(|error| &error.code)),
        ]);
        state.live.remove(end.seq);
    }
    if rows.is_empty() {
        return Ok(());
    }
    // The bucket of a job from before a start is in its row.
    let sql = format!(
        "INSERT INTO laneway.done (ended, seq, retention_bucket, state, reason, attempt_id, started_at, finished_at, attempts, \
         failures, losses, last_event, error, result, sum, error_code) \
         SELECT c1, c2, coalesce(c3, (SELECT CASE WHEN member THEN -1 ELSE lane.number * 2 + (job.key IS NOT NULL)::int END \
         FROM laneway.job JOIN laneway.lane ON lane.name = job.lane WHERE job.seq = c2)), \
         c4, c5, c6, c7, c8, c9, c10, c11, c12, c13, c14, c15, c16 \
         FROM {} AS rows (c1, c2, c3, c4, c5, c6, c7, c8, c9, c10, c11, c12, c13, c14, c15, c16)",
        rows.unnest()
    );
    script.any("done", sql, rows.into_params());
    Ok(())
}

fn append_logs<'a>(
    tables: &mut Tables<'_>,
    batch: &Batch<'a>,
    script: &mut Script<'a>,
) -> Result<(), StoreError> {
    let mut rows = Rows::default();
    for (seq, attempt, lines) in &batch.logs {
        let live = tables.numbers.live.get(*seq).is_some();
        if !live && !tables.logs.stored.contains(seq) && !batch.ends.iter().any(|end| end.seq == *seq) {
            return Err(StoreError::Disagree(format!("there is no job {}", seq.0)));
        }
        let tally = tables.logs.tallies.entry(*seq).or_default();
        for line in *lines {
            let Some(kept) = tally.admit(line) else { continue };
            let stream = stream_of(line, kept);
            rows.push([
                number(seq.0),
                number(tally.lines),
                int(*attempt),
                int(line.at.0),
                Param::Text(Some(stream.as_str().to_owned().into())),
                text(kept),
                number(tally.bytes),
            ]);
        }
    }
    script.insert("log", "seq, line, attempt, at, stream, text, bytes", rows);
    Ok(())
}

fn put_token<'a>(token: &'a TokenRecord, script: &mut Script<'a>) {
    let TokenRecord { id, tenant, role, digest, note, created_at, expires_at, revoked_at } = token;
    script.any(
        "token",
        "INSERT INTO laneway.token (id, tenant, role, digest, note, created_at, expires_at, revoked_at) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8) \
         ON CONFLICT (id) DO UPDATE SET tenant = excluded.tenant, role = excluded.role, digest = excluded.digest, \
         note = excluded.note, created_at = excluded.created_at, expires_at = excluded.expires_at, \
         revoked_at = excluded.revoked_at",
        vec![
            name(id),
            opt_name(tenant.as_ref()),
            int(role.code()),
            blob(digest),
            text(note),
            int(created_at.0),
            opt_wall(*expires_at),
            opt_wall(*revoked_at),
        ],
    );
}

fn write_live<'a>(state: &Numbers, script: &mut Script<'a>) {
    let (mut put, mut gone) = (Rows::default(), Vec::new());
    for (chunk, bits) in state.live.changed() {
        match bits {
            Some(bits) => put.push([number(chunk), own_blob(Some(bits.to_vec()))]),
            None => gone.push(chunk),
        }
    }
    if !put.is_empty() {
        let sql = format!(
            "INSERT INTO laneway.live_chunk (chunk, bits) SELECT * FROM {} \
             ON CONFLICT (chunk) DO UPDATE SET bits = excluded.bits",
            put.unnest()
        );
        script.any("live_chunk", sql, put.into_params());
    }
    if !gone.is_empty() {
        script.any(
            "live_chunk",
            "DELETE FROM laneway.live_chunk WHERE chunk = ANY($1)",
            vec![Param::seqs(gone)],
        );
    }
}

fn write_events<'a>(
    state: &mut Numbers,
    events: Option<EventBytes>,
    script: &mut Script<'a>,
) -> Result<(), StoreError> {
    let Some(EventBytes { first, count, at, bytes }) = events else { return Ok(()) };
    let hash = next_hash(&state.hash, &bytes);
    let mut rows = Rows::default();
    rows.push([
        number(first),
        number(count),
        int(at.0),
        own_blob(Some(hash.to_vec())),
        own_blob(Some(bytes.into())),
    ]);
    script.insert("event_batch", "first, count, at, hash, bytes", rows);
    state.last_event = first + count - 1;
    state.hash = hash;
    Ok(())
}

/// The numbers of lanes, by name.
pub(super) type Lanes = HashMap<Name, i64>;
