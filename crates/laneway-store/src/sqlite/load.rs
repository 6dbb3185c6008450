//! What the writer reads: everything live at a start, and rows and payloads of jobs about to run.

use laneway_core::engine::StoreCounters;
use laneway_core::{Bytes, Name, Prior, Seq, TokenRecord, Wall};
use rusqlite::{Connection, OptionalExtension, params};

use super::deliveries;
use super::tables::Tables;
use super::{firing_log, kept_keys, records, runs, schedules, sessions};
use crate::columns::retention_bucket;
use crate::columns::{JOB, JOB_LEN, OPEN, PAYLOAD, number, read_job, read_open, read_payload, small};
use crate::live::CHUNK;
use crate::rows::{Interner, stored_digest, stored_job_id, stored_name, stored_role};
use crate::{Loaded, Runnable, StoreError};

/// A chunk with fewer live jobs is read job by job; one with more is read in one go, past the ended ones.
const SPARSE: usize = 64;

/// See [`crate::Store::load`].
pub(super) fn load(store: &mut Tables, visit: &mut dyn FnMut(Loaded)) -> Result<StoreCounters, StoreError> {
    let mut names = Interner::default();
    load_lanes(&store.conn, visit)?;
    schedules::load(&store.conn, &mut names, visit)?;
    firing_log::load(&store.conn, visit)?;
    runs::load(&store.conn, visit)?;
    for chunk in store.live.chunks() {
        load_chunk(store, chunk, &mut names, visit)?;
    }
    load_open(store, &mut names, visit)?;
    runs::load_calls(&store.conn, visit)?;
    sessions::load(&store.conn, visit)?;
    kept_keys::load(&store.conn, visit)?;
    records::load(&store.conn, visit)?;
    deliveries::load(&store.conn, visit)?;
    counters(store)
}

/// The name of every lane that ever had a job. Lanes of runs are looked up by their index, one after the other.
fn load_lanes(conn: &Connection, visit: &mut dyn FnMut(Loaded)) -> Result<(), StoreError> {
    let mut select = conn.prepare(
        "WITH RECURSIVE of_runs(lane) AS (
             SELECT min(lane) FROM run WHERE finished_at IS NOT NULL
             UNION ALL
             SELECT (SELECT min(lane) FROM run WHERE finished_at IS NOT NULL AND lane > of_runs.lane) FROM of_runs
             WHERE of_runs.lane IS NOT NULL
         )
         SELECT name FROM lane UNION SELECT lane FROM of_runs WHERE lane IS NOT NULL ORDER BY 1",
    )?;
    let mut rows = select.query([])?;
    while let Some(row) = rows.next()? {
        visit(Loaded::Lane(stored_name(row.get_ref(0)?.as_str()?)?));
    }
    Ok(())
}

/// The counters.
pub(super) fn counters(store: &Tables) -> Result<StoreCounters, StoreError> {
    // Rank times grow with the numbers, but for jobs that were submitted for later: good enough for people.
    let sql = "SELECT rank_time FROM job ORDER BY seq DESC LIMIT 1";
    let rank_time: Option<i64> = store.conn.query_row(sql, [], |row| row.get(0)).optional()?;
    let clock_seen: Option<i64> =
        store.conn.query_row("SELECT clock_seen FROM server_state", [], |row| row.get(0))?;
    Ok(StoreCounters {
        last_seq: store.numbers.last_seq,
        last_event: store.numbers.last_event,
        last_rank_time: rank_time.unwrap_or(0).cast_unsigned(),
        clock_seen: clock_seen.map(Wall),
    })
}

fn load_chunk(
    store: &mut Tables,
    chunk: u64,
    names: &mut Interner,
    visit: &mut dyn FnMut(Loaded),
) -> Result<(), StoreError> {
    let jobs = store.live.jobs_of(chunk);
    let ranges: Vec<(Seq, Seq)> = if jobs.len() < SPARSE {
        jobs.iter().map(|seq| (*seq, *seq)).collect()
    } else {
        vec![(Seq(chunk * CHUNK), Seq(chunk * CHUNK + CHUNK - 1))]
    };
    let mut select = store
        .conn
        .prepare_cached(&format!("SELECT {JOB} FROM job WHERE seq BETWEEN ?1 AND ?2 ORDER BY seq"))?;
    let mut found = 0;
    for (from, to) in ranges {
        let mut rows = select.query([from.0.cast_signed(), to.0.cast_signed()])?;
        while let Some(row) = rows.next()? {
            let seq = Seq(number(row, 0)?);
            if store.live.get(seq).is_none() {
                continue;
            }
            let job = read_job(row, names)?;
            if let Some(lane) = store.lanes.get(&job.spec.lane) {
                let (keyed, member) = (job.spec.idempotency.is_some(), job.spec.member.is_some());
                store.live.learn(seq, retention_bucket(*lane, keyed, member));
            }
            found += 1;
            visit(Loaded::Job(job));
        }
    }
    if found != jobs.len() {
        return Err(StoreError::Damaged(format!(
            "of {} live jobs from {} on, {found} have rows",
            jobs.len(),
            chunk * CHUNK
        )));
    }
    Ok(())
}

fn load_open(store: &Tables, names: &mut Interner, visit: &mut dyn FnMut(Loaded)) -> Result<(), StoreError> {
    let mut select = store.conn.prepare(&format!("SELECT {OPEN} FROM open_attempt ORDER BY seq"))?;
    let mut job_id = store.conn.prepare("SELECT id FROM job WHERE seq = ?1")?;
    let mut job = store.conn.prepare(&format!("SELECT {JOB} FROM job WHERE seq = ?1"))?;
    let mut end = store.conn.prepare("SELECT last_event FROM done WHERE seq = ?1")?;
    let mut rows = select.query([])?;
    while let Some(row) = rows.next()? {
        let seq = Seq(number(row, 0)?);
        let missing = || StoreError::Damaged(format!("the open attempt of job {} has no job", seq.0));
        if store.live.get(seq).is_some() {
            let mut ids = job_id.query([seq.0.cast_signed()])?;
            let id = stored_job_id(ids.next()?.ok_or_else(missing)?.get_ref(0)?.as_blob()?)?;
            visit(Loaded::Open(read_open(row, id)?));
        } else {
            let mut jobs = job.query([seq.0.cast_signed()])?;
            let mut job = read_job(jobs.next()?.ok_or_else(missing)?, names)?;
            let mut ends = end.query([seq.0.cast_signed()])?;
            job.status.last_event = number(ends.next()?.ok_or_else(missing)?, 0)?;
            let open = read_open(row, job.id)?;
            visit(Loaded::StillRunning(job, open));
        }
    }
    Ok(())
}

pub(super) fn tokens(conn: &Connection) -> Result<Vec<TokenRecord>, StoreError> {
    let mut select = conn.prepare(
        "SELECT id, tenant, role, digest, note, created_at, expires_at, revoked_at FROM token ORDER BY id",
    )?;
    let mut rows = select.query([])?;
    let mut tokens = Vec::new();
    while let Some(row) = rows.next()? {
        tokens.push(TokenRecord {
            id: stored_name(row.get_ref(0)?.as_str()?)?,
            tenant: row.get_ref(1)?.as_str_or_null()?.map(stored_name).transpose()?,
            role: stored_role(small(row, 2)?)?,
            digest: stored_digest(row.get_ref(3)?.as_blob()?)?,
            note: row.get_ref(4)?.as_str()?.into(),
            created_at: Wall(row.get_ref(5)?.as_i64()?),
            expires_at: row.get_ref(6)?.as_i64_or_null()?.map(Wall),
            revoked_at: row.get_ref(7)?.as_i64_or_null()?.map(Wall),
        });
    }
    Ok(tokens)
}

pub(super) fn overrides(conn: &Connection) -> Result<Option<Bytes>, StoreError> {
    let bytes: Option<Vec<u8>> =
        conn.query_row("SELECT overrides FROM server_state", [], |row| row.get(0))?;
    Ok(bytes.map(Bytes::from))
}

/// What idempotency keys of jobs stand for, in the order of the keys.
pub(super) fn priors(conn: &Connection, keys: &[(&Name, &Name)]) -> Result<Vec<Option<Prior>>, StoreError> {
    if keys.is_empty() {
        return Ok(Vec::new());
    }
    let mut select =
        conn.prepare_cached("SELECT job, digest FROM idempotency WHERE tenant = ?1 AND key = ?2")?;
    let find = |(tenant, key): &(&Name, &Name)| {
        let mut rows = select.query(params![tenant.as_str(), key.as_str()])?;
        let Some(row) = rows.next()? else { return Ok(None) };
        let job = stored_job_id(row.get_ref(0)?.as_blob()?)?;
        Ok(Some(Prior { job, digest: stored_digest(row.get_ref(1)?.as_blob()?)? }))
    };
    keys.iter().map(find).collect()
}

pub(super) fn payloads(
    conn: &Connection,
    names: &mut Interner,
    jobs: &[Seq],
) -> Result<Vec<Runnable>, StoreError> {
    let mut select = conn.prepare_cached(&format!(
        "SELECT {JOB}, {PAYLOAD} FROM job CROSS JOIN payload WHERE job.seq = ?1 AND payload.seq = ?1"
    ))?;
    let mut found = Vec::with_capacity(jobs.len());
    for seq in jobs {
        let mut rows = select.query([seq.0.cast_signed()])?;
        let row = rows.next()?.ok_or_else(|| StoreError::Disagree(format!("there is no job {}", seq.0)))?;
        let payload = read_payload(row, JOB_LEN)?;
        let row = read_job(row, names)?;
        let merged = sessions::merged_payloads(conn, &row)?;
        found.push(Runnable { row, payload, merged });
    }
    Ok(found)
}
