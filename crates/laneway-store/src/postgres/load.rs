//! What the writer reads: its counters, everything live at a start, and rows and payloads of jobs about to run.

use std::collections::{HashMap, HashSet};

use laneway_core::engine::StoreCounters;
use laneway_core::{Bytes, JobRow, Name, Prior, Seq, TokenRecord, Wall};
use tokio_postgres::Row;

use super::cells::{From, Param, Rows, name, of_table};
use super::commit::Lanes;
use super::session::{ReadError, Session};
use super::{deliveries, firing_log, kept_keys, records, runs, schedules, sessions};
use crate::batch::Step;
use crate::columns::{
    Columns, JOB, JOB_LEN, OPEN, PAYLOAD, number, read_job, read_open, read_payload, retention_bucket, small,
};
use crate::live::{Live, LiveChunk};
use crate::logs::LogTally;
use crate::rows::{Interner, stored_digest, stored_job_id, stored_name, stored_role};
use crate::{Loaded, Runnable, StoreError};

/// Jobs that one statement loads.
const LOADED_AT_ONCE: usize = 4_096;

/// What the writer keeps of the tables in memory.
#[derive(Default)]
pub(super) struct Numbers {
    /// Highest job number ever stored.
    pub last_seq: u64,
    /// How many jobs have ended, ever.
    pub last_ended: u64,
    /// Highest event number ever stored.
    pub last_event: u64,
    /// Hash of the last event batch.
    pub hash: [u8; 32],
    /// How many transactions wrote.
    pub commits: u64,
    /// Which jobs are live.
    pub live: Live,
    /// The numbers of lanes.
    pub lanes: Lanes,
}

/// The counters alone, to go back to when a commit fails.
#[derive(Clone, Copy)]
pub(super) struct Counters {
    last_seq: u64,
    last_ended: u64,
    last_event: u64,
    hash: [u8; 32],
    commits: u64,
    lanes: usize,
}

impl Numbers {
    /// Reads the tables.
    pub fn read(session: &Session) -> Result<Numbers, ReadError> {
        let mut numbers = Numbers::default();
        let sql = "SELECT greatest(server_state.last_seq, (SELECT max(seq) FROM laneway.job)), \
                   greatest(server_state.last_ended, (SELECT max(ended) FROM laneway.done)), \
                   commits, pruned_event, pruned_hash FROM laneway.server_state";
        let missing = || StoreError::Damaged("the row of table server_state is missing".into());
        let row = session.row(sql, vec![])?.ok_or_else(missing)?;
        numbers.last_seq = number(&row, 0)?;
        numbers.last_ended = number(&row, 1)?;
        numbers.commits = number(&row, 2)?;
        numbers.last_event = number(&row, 3)?;
        numbers.hash = stored_digest(row.get_ref(4)?.as_blob()?)?;
        let sql = "SELECT first + count - 1, hash FROM laneway.event_batch ORDER BY first DESC LIMIT 1";
        if let Some(row) = session.row(sql, vec![])? {
            numbers.last_event = number(&row, 0)?;
            numbers.hash = stored_digest(row.get_ref(1)?.as_blob()?)?;
        }
        for row in session.rows("SELECT chunk, bits FROM laneway.live_chunk", vec![])? {
            numbers.live.read_chunk(number(&row, 0)?, row.get_ref(1)?.as_blob()?)?;
        }
        for row in session.rows("SELECT name, number FROM laneway.lane", vec![])? {
            numbers.lanes.insert(stored_name(row.get_ref(0)?.as_str()?)?, row.get_ref(1)?.as_i64()?);
        }
        Ok(numbers)
    }

    /// What to go back to.
    pub fn counters(&self) -> Counters {
        let Numbers { last_seq, last_ended, last_event, hash, commits, live: _, lanes } = self;
        Counters {
            last_seq: *last_seq,
            last_ended: *last_ended,
            last_event: *last_event,
            hash: *hash,
            commits: *commits,
            lanes: lanes.len(),
        }
    }

    /// Undoes what a commit that failed has changed.
    pub fn go_back(&mut self, to: Counters) {
        self.live.rolled_back();
        (self.last_seq, self.last_ended, self.last_event) = (to.last_seq, to.last_ended, to.last_event);
        (self.hash, self.commits) = (to.hash, to.commits);
        if self.lanes.len() > to.lanes {
            // New lanes have the highest numbers.
            let mut numbers: Vec<i64> = self.lanes.values().copied().collect();
            numbers.sort_unstable();
            let kept: HashSet<i64> = numbers.into_iter().take(to.lanes).collect();
            self.lanes.retain(|_, number| kept.contains(number));
        }
    }
}

/// How much is kept of the logs of jobs that a commit appends to.
#[derive(Default)]
pub(super) struct LogTallies {
    /// Of each job.
    pub tallies: HashMap<Seq, LogTally>,
    /// The jobs that have a row.
    pub stored: HashSet<Seq>,
}

impl LogTallies {
    /// Reads them for the jobs of a commit.
    pub fn read(session: &Session, steps: &[Step<'_>]) -> Result<LogTallies, ReadError> {
        let mut jobs: Vec<u64> = Vec::new();
        for step in steps {
            if let Step::Write(batch) = step {
                jobs.extend(batch.logs.iter().map(|(seq, ..)| seq.0));
            }
        }
        let mut found = LogTallies::default();
        if jobs.is_empty() {
            return Ok(found);
        }
        let sql = "SELECT job.seq, last.line, last.bytes FROM laneway.job LEFT JOIN LATERAL \
                   (SELECT line, bytes FROM laneway.log WHERE log.seq = job.seq ORDER BY line DESC LIMIT 1) AS last ON true \
                   WHERE job.seq = ANY($1)";
        for row in session.rows(sql, vec![Param::seqs(jobs)])? {
            let seq = Seq(number(&row, 0)?);
            found.stored.insert(seq);
            if row.get_ref(1)?.as_i64_or_null()?.is_some() {
                found.tallies.insert(seq, LogTally { lines: number(&row, 1)?, bytes: number(&row, 2)? });
            }
        }
        Ok(found)
    }
}

/// Reads the rows of live jobs that a commit rewrites.
pub(super) fn revised(session: &Session, steps: &[Step<'_>]) -> Result<HashMap<Seq, JobRow>, ReadError> {
    let jobs: Vec<u64> = steps
        .iter()
        .filter_map(|step| match step {
            Step::ReviseJob(revision) => Some(revision.seq.0),
            _ => None,
        })
        .collect();
    let mut found = HashMap::new();
    if jobs.is_empty() {
        return Ok(found);
    }
    let mut names = Interner::default();
    let sql = format!("SELECT {JOB} FROM laneway.job WHERE seq = ANY($1)");
    for row in session.rows(&sql, vec![Param::seqs(jobs)])? {
        let row = read_job(&row, &mut names)?;
        found.insert(row.seq, row);
    }
    Ok(found)
}

/// See [`crate::Store::load`].
pub(super) fn load(
    session: &Session,
    state: &mut Numbers,
    visit: &mut dyn FnMut(Loaded),
) -> Result<StoreCounters, ReadError> {
    let mut names = Interner::default();
    load_lanes(session, visit)?;
    schedules::load(session, &mut names, visit)?;
    firing_log::load(session, visit)?;
    runs::load(session, visit)?;
    load_jobs(session, state, &mut names, visit)?;
    load_open(session, state, &mut names, visit)?;
    runs::load_calls(session, visit)?;
    sessions::load(session, visit)?;
    kept_keys::load(session, visit)?;
    records::load(session, visit)?;
    deliveries::load(session, visit)?;
    counters(session, state)
}

/// The name of every lane that ever had a job. Lanes of runs are looked up by their index, one after the other.
fn load_lanes(session: &Session, visit: &mut dyn FnMut(Loaded)) -> Result<(), ReadError> {
    let sql = "WITH RECURSIVE of_runs(lane) AS (
             SELECT min(lane) FROM laneway.run WHERE finished_at IS NOT NULL
             UNION ALL
             SELECT (SELECT min(lane) FROM laneway.run WHERE finished_at IS NOT NULL AND lane > of_runs.lane) FROM of_runs
             WHERE of_runs.lane IS NOT NULL
         )
         SELECT name FROM laneway.lane UNION SELECT lane FROM of_runs WHERE lane IS NOT NULL ORDER BY 1";
    for row in session.rows(sql, vec![])? {
        visit(Loaded::Lane(stored_name(row.get_ref(0)?.as_str()?)?));
    }
    Ok(())
}

/// The counters.
pub(super) fn counters(session: &Session, state: &Numbers) -> Result<StoreCounters, ReadError> {
    // Rank times grow with the numbers, but for jobs that were submitted for later: good enough for people.
    let sql = "SELECT clock_seen, (SELECT rank_time FROM laneway.job ORDER BY seq DESC LIMIT 1) FROM laneway.server_state";
    let missing = || StoreError::Damaged("the row of table server_state is missing".into());
    let row = session.row(sql, vec![])?.ok_or_else(missing)?;
    Ok(StoreCounters {
        last_seq: state.last_seq,
        last_event: state.last_event,
        last_rank_time: row.get_ref(1)?.as_i64_or_null()?.unwrap_or(0).cast_unsigned(),
        clock_seen: row.get_ref(0)?.as_i64_or_null()?.map(Wall),
    })
}

fn load_jobs(
    session: &Session,
    state: &mut Numbers,
    names: &mut Interner,
    visit: &mut dyn FnMut(Loaded),
) -> Result<(), ReadError> {
    let seqs: Vec<Seq> = state.live.chunks().iter().flat_map(LiveChunk::jobs).collect();
    let sql = format!("SELECT {JOB} FROM laneway.job WHERE seq = ANY($1) ORDER BY seq");
    for some in seqs.chunks(LOADED_AT_ONCE) {
        let rows = session.rows(&sql, vec![Param::seqs(some.iter().map(|seq| seq.0))])?;
        if rows.len() != some.len() {
            let from = some.first().map_or(0, |seq| seq.0);
            let why = format!("of {} live jobs from {from} on, {} have rows", some.len(), rows.len());
            return Err(StoreError::Damaged(why).into());
        }
        for row in &rows {
            let job = read_job(row, names)?;
            if let Some(lane) = state.lanes.get(&job.spec.lane) {
                let (keyed, member) = (job.spec.idempotency.is_some(), job.spec.member.is_some());
                state.live.learn(job.seq, retention_bucket(*lane, keyed, member));
            }
            visit(Loaded::Job(job));
        }
    }
    Ok(())
}

fn load_open(
    session: &Session,
    state: &Numbers,
    names: &mut Interner,
    visit: &mut dyn FnMut(Loaded),
) -> Result<(), ReadError> {
    let sql = format!(
        "SELECT {JOB}, {}, done.last_event FROM laneway.open_attempt LEFT JOIN laneway.job USING (seq) \
         LEFT JOIN laneway.done USING (seq) ORDER BY open_attempt.seq",
        of_table("open_attempt", OPEN)
    );
    for row in &session.rows(&sql, vec![])? {
        let open = From(row, JOB_LEN);
        let seq = Seq(number(&open, 0)?);
        let missing = || StoreError::Damaged(format!("the open attempt of job {} has no job", seq.0));
        if row.get_ref(0)?.as_i64_or_null()?.is_none() {
            return Err(missing().into());
        }
        if state.live.get(seq).is_some() {
            visit(Loaded::Open(read_open(&open, stored_job_id(row.get_ref(1)?.as_blob()?)?)?));
        } else {
            let mut job = read_job(row, names)?;
            let ended = From(row, JOB_LEN + OPEN.split(", ").count());
            if ended.get_ref(0)?.as_i64_or_null()?.is_none() {
                return Err(missing().into());
            }
            job.status.last_event = number(&ended, 0)?;
            let open = read_open(&open, job.id)?;
            visit(Loaded::StillRunning(job, open));
        }
    }
    Ok(())
}

pub(super) fn tokens(session: &Session) -> Result<Vec<TokenRecord>, ReadError> {
    let sql = "SELECT id, tenant, role, digest, note, created_at, expires_at, revoked_at FROM laneway.token ORDER BY id";
    let mut tokens = Vec::new();
    for row in session.rows(sql, vec![])? {
        tokens.push(TokenRecord {
            id: stored_name(row.get_ref(0)?.as_str()?)?,
            tenant: row.get_ref(1)?.as_str_or_null()?.map(stored_name).transpose()?,
            role: stored_role(small(&row, 2)?)?,
            digest: stored_digest(row.get_ref(3)?.as_blob()?)?,
            note: row.get_ref(4)?.as_str()?.into(),
            created_at: Wall(row.get_ref(5)?.as_i64()?),
            expires_at: row.get_ref(6)?.as_i64_or_null()?.map(Wall),
            revoked_at: row.get_ref(7)?.as_i64_or_null()?.map(Wall),
        });
    }
    Ok(tokens)
}

pub(super) fn overrides(session: &Session) -> Result<Option<Bytes>, ReadError> {
    let Some(row) = session.row("SELECT overrides FROM laneway.server_state", vec![])? else {
        return Ok(None);
    };
    Ok(row.get_ref(0)?.as_blob_or_null()?.map(Bytes::from))
}

/// What idempotency keys of jobs stand for, in the order of the keys.
pub(super) fn priors(session: &Session, keys: &[(&Name, &Name)]) -> Result<Vec<Option<Prior>>, ReadError> {
    by_key(session, "idempotency", "job, digest", keys, |row| {
        let job = stored_job_id(row.get_ref(1)?.as_blob()?)?;
        Ok(Prior { job, digest: stored_digest(row.get_ref(2)?.as_blob()?)? })
    })
}

/// Looks up rows by tenant and key, in the order of the keys. The column before the given ones is the position of the key.
pub(super) fn by_key<T>(
    session: &Session,
    table: &str,
    columns: &str,
    keys: &[(&Name, &Name)],
    read: impl Fn(&Row) -> Result<T, StoreError>,
) -> Result<Vec<Option<T>>, ReadError> {
    let mut found: Vec<Option<T>> = keys.iter().map(|_| None).collect();
    let mut wanted = Rows::default();
    for ((tenant, key), position) in keys.iter().zip(0u32..) {
        wanted.push([super::cells::int(position), name(tenant), name(key)]);
    }
    if wanted.is_empty() {
        return Ok(found);
    }
    let sql = format!(
        "SELECT position, {} FROM {} AS wanted (position, tenant, key) \
         JOIN laneway.{table} ON {table}.tenant = wanted.tenant AND {table}.key = wanted.key",
        of_table(table, columns),
        wanted.unnest()
    );
    for row in &session.rows(&sql, wanted.into_params())? {
        let position: usize = small(row, 0)?;
        if let Some(slot) = found.get_mut(position) {
            *slot = Some(read(row)?);
        }
    }
    Ok(found)
}

/// Rows and payloads, in the given order.
pub(super) fn payloads(
    session: &Session,
    names: &mut Interner,
    jobs: &[Seq],
) -> Result<Vec<Runnable>, ReadError> {
    let sql = format!(
        "SELECT {JOB}, {PAYLOAD} FROM laneway.job JOIN laneway.payload ON payload.seq = job.seq WHERE job.seq = ANY($1)"
    );
    let mut rows: HashMap<Seq, Runnable> = HashMap::new();
    for row in &session.rows(&sql, vec![Param::seqs(jobs.iter().map(|seq| seq.0))])? {
        let payload = read_payload(row, JOB_LEN)?;
        let row = read_job(row, names)?;
        rows.insert(row.seq, Runnable { row, payload, merged: Vec::new() });
    }
    // Only a job with a debounce window can have others merged into it.
    let debounced = |run: &&Runnable| run.row.spec.session.as_ref().is_some_and(|key| key.debounce.is_some());
    let leaders: Vec<Seq> = rows.values().filter(debounced).map(|run| run.row.seq).collect();
    for (leader, payload) in sessions::merged_payloads(session, &leaders)? {
        if let Some(run) = rows.get_mut(&leader) {
            run.merged.push(payload);
        }
    }
    let missing = |seq: &Seq| StoreError::Disagree(format!("there is no job {}", seq.0));
    jobs.iter().map(|seq| rows.get(seq).cloned().ok_or_else(|| missing(seq).into())).collect()
}
