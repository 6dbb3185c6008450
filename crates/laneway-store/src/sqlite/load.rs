//! What the writer reads: everything live at a start, and rows and payloads of jobs about to run.

use std::collections::HashMap;
use std::sync::mpsc::sync_channel;

use laneway_core::engine::StoreCounters;
use laneway_core::{Bytes, JobRow, Name, Prior, Seq, TokenRecord, Wall};
use rusqlite::{Connection, params};

use super::deliveries;
use super::pool::Pool;
use super::tables::Tables;
use super::{firing_log, kept_keys, records, row_sums, runs, schedules, sessions};
use crate::columns::retention_bucket;
use crate::columns::status::{JOB, JOB_LEN, read_job};
use crate::columns::{END, OPEN, PAYLOAD, number, read_end, read_open, read_payload, small};
use crate::live::{CHUNK, LiveChunk};
use crate::rows::{Interner, stored_digest, stored_job_id, stored_name, stored_role};
use crate::{Loaded, Runnable, StoreError};

/// A chunk with fewer live jobs is read job by job; one with more is read in one go, past the ended ones.
const SPARSE: usize = 64;
/// From this many chunks on, several threads read them.
const CHUNKS_PARALLEL: usize = 16;
/// Threads that read at most: more would only wait for the engine.
const LOAD_THREADS_MAX: usize = 3;
/// Chunks that each of them reads ahead of the engine.
const CHUNKS_AHEAD: usize = 2;

/// Jobs among which the newest one is looked for that is not damaged.
const NEWEST: u32 = 100;

/// See [`crate::Store::load`].
pub(super) fn load(
    store: &mut Tables,
    pool: &Pool,
    visit: &mut dyn FnMut(Loaded),
) -> Result<StoreCounters, StoreError> {
    let mut names = Interner::default();
    load_lanes(&store.conn, visit)?;
    schedules::load(&store.conn, &mut names, visit)?;
    firing_log::load(&store.conn, visit)?;
    runs::load(&store.conn, visit)?;
    load_jobs(store, pool, visit)?;
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
    // Their rows are checked where the numbers of lanes and the runs themselves are read.
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
    let mut select =
        store.conn.prepare(&format!("SELECT {JOB} FROM job ORDER BY seq DESC LIMIT {NEWEST}"))?;
    let mut rows = select.query([])?;
    let mut newest = None;
    while let Some(row) = rows.next()?.filter(|_| newest.is_none()) {
        newest = match read_job(row, &mut Interner::default()) {
            Ok(job) => Some(job),
            // An ended job: it is reported when it is read, and must not keep a server from starting.
            Err(StoreError::Damaged(_)) => None,
            Err(other) => return Err(other),
        };
    }
    let sql = format!("SELECT clock_seen, {} FROM server_state", row_sums::SERVER_STATE.check);
    let clock_seen: Option<i64> = store.conn.query_row(&sql, [], |row| row.get(0))?;
    Ok(StoreCounters {
        last_seq: store.numbers.last_seq,
        last_event: store.numbers.last_event,
        last_rank_time: newest.map_or(0, |job| job.rank_time),
        clock_seen: clock_seen.map(Wall),
    })
}

/// Reads live jobs chunk by chunk, in order. Many chunks are read by several threads: decoding a row takes longer than the
/// engine needs for it.
fn load_jobs(store: &mut Tables, pool: &Pool, visit: &mut dyn FnMut(Loaded)) -> Result<(), StoreError> {
    let Tables { conn, live, lanes, .. } = store;
    let chunks = live.chunks();
    let mut take = |jobs: Vec<LiveJob>| {
        for LiveJob { row, bucket } in jobs {
            if let Some(bucket) = bucket {
                live.learn(row.seq, bucket);
            }
            visit(Loaded::Job(row));
        }
    };
    if chunks.len() < CHUNKS_PARALLEL {
        return chunks.iter().try_for_each(|chunk| read_chunk(conn, lanes, chunk).map(&mut take));
    }
    let threads = std::thread::available_parallelism().map_or(1, |count| count.get().min(LOAD_THREADS_MAX));
    let (lanes, chunks) = (&*lanes, &chunks[..]);
    std::thread::scope(|scope| {
        let receivers: Vec<_> = (0..threads)
            .map(|first| {
                let (sender, receiver) = sync_channel(CHUNKS_AHEAD);
                scope.spawn(move || {
                    let own = chunks.iter().skip(first).step_by(threads);
                    let read = pool.read(|conn| {
                        for chunk in own {
                            // An error: the caller has given up.
                            if sender.send(read_chunk(conn, lanes, chunk)).is_err() {
                                break;
                            }
                        }
                        Ok(())
                    });
                    if let Err(error) = read {
                        drop(sender.send(Err(error)));
                    }
                });
                receiver
            })
            .collect();
        for at in 0..chunks.len() {
            let read = receivers[at % threads].recv();
            let gone = |_| StoreError::Failed("a thread that reads jobs has ended".into());
            take(read.map_err(gone)??);
        }
        Ok(())
    })
}

/// A live job as it is loaded, with its retention bucket if that is known.
struct LiveJob {
    row: JobRow,
    bucket: Option<i64>,
}

fn read_chunk(
    conn: &Connection,
    lanes: &HashMap<Name, i64>,
    chunk: &LiveChunk,
) -> Result<Vec<LiveJob>, StoreError> {
    let (first, jobs) = (chunk.first(), chunk.jobs());
    let ranges: Vec<(Seq, Seq)> = if jobs.len() < SPARSE {
        jobs.iter().map(|seq| (*seq, *seq)).collect()
    } else {
        vec![(first, Seq(first.0 + CHUNK - 1))]
    };
    let mut select =
        conn.prepare_cached(&format!("SELECT {JOB} FROM job WHERE seq BETWEEN ?1 AND ?2 ORDER BY seq"))?;
    // For this chunk alone: the counts of users of a name that two threads share cost more than a second copy of it.
    let mut names = Interner::default();
    let mut found = Vec::with_capacity(jobs.len());
    for (from, to) in ranges {
        let mut rows = select.query([from.0.cast_signed(), to.0.cast_signed()])?;
        while let Some(row) = rows.next()? {
            if !chunk.has(Seq(number(row, 0)?)) {
                continue;
            }
            let row = read_job(row, &mut names)?;
            let bucket = lanes.get(&row.spec.lane).map(|lane| {
                retention_bucket(*lane, row.spec.idempotency.is_some(), row.spec.member.is_some())
            });
            found.push(LiveJob { row, bucket });
        }
    }
    if found.len() != jobs.len() {
        return Err(StoreError::Damaged(format!(
            "of {} live jobs from {} on, {} have rows",
            jobs.len(),
            first.0,
            found.len()
        )));
    }
    Ok(found)
}

fn load_open(store: &Tables, names: &mut Interner, visit: &mut dyn FnMut(Loaded)) -> Result<(), StoreError> {
    let mut select = store.conn.prepare(&format!(
        "SELECT {OPEN}, {} FROM open_attempt ORDER BY seq",
        row_sums::OPEN_ATTEMPT.check
    ))?;
    let mut job = store.conn.prepare(&format!("SELECT {JOB} FROM job WHERE seq = ?1"))?;
    let mut end = store.conn.prepare(&format!("SELECT {END} FROM done WHERE seq = ?1"))?;
    let mut rows = select.query([])?;
    while let Some(row) = rows.next()? {
        let seq = Seq(number(row, 0)?);
        let missing = || StoreError::Damaged(format!("the open attempt of job {} has no job", seq.0));
        let mut jobs = job.query([seq.0.cast_signed()])?;
        let mut job = read_job(jobs.next()?.ok_or_else(missing)?, names)?;
        let open = read_open(row, job.id)?;
        if store.live.get(seq).is_some() {
            visit(Loaded::Open(open));
        } else {
            let mut ends = end.query([seq.0.cast_signed()])?;
            job.status.last_event = read_end(ends.next()?.ok_or_else(missing)?)?.last_event;
            visit(Loaded::StillRunning(job, open));
        }
    }
    Ok(())
}

pub(super) fn tokens(conn: &Connection) -> Result<Vec<TokenRecord>, StoreError> {
    let mut select = conn.prepare(&format!(
        "SELECT id, tenant, role, digest, note, created_at, expires_at, revoked_at, {} FROM token ORDER BY id",
        row_sums::TOKEN.check
    ))?;
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
    let sql = format!("SELECT overrides, {} FROM server_state", row_sums::SERVER_STATE.check);
    let bytes: Option<Vec<u8>> = conn.query_row(&sql, [], |row| row.get(0))?;
    Ok(bytes.map(Bytes::from))
}

/// What idempotency keys of jobs stand for, in the order of the keys.
pub(super) fn priors(conn: &Connection, keys: &[(&Name, &Name)]) -> Result<Vec<Option<Prior>>, StoreError> {
    if keys.is_empty() {
        return Ok(Vec::new());
    }
    let mut select = conn.prepare_cached(&format!(
        "SELECT job, digest, {} FROM idempotency WHERE tenant = ?1 AND key = ?2",
        row_sums::IDEMPOTENCY.check
    ))?;
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
