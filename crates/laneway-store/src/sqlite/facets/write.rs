//! Keeps the sets up to date, in the transaction that writes the jobs.
//!
//! What a transaction adds is collected, sorted by key, and written set by set. The sets of the newest chunk are kept in memory:
//! most jobs of a transaction are new, and their sets need not be read before they grow.

use std::collections::{BTreeMap, HashMap};

use laneway_core::{JobEnd, JobRow, JobState, Name, Seq, Wall};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row, params};

use super::bits::{Bits, extend};
use super::ends;
use super::names::Names;
use super::times::Times;
use super::{ALL_JOBS, Dimension, FACET_BITS, Facet, chunk_of, place_of};
use crate::StoreError;
use crate::batch::Batch;
use crate::search::error_words;
use crate::sqlite::row_sums::FACET_NAME;
use crate::sqlite::tables::Tables;
use crate::sums::{check_sum, in_row, sum_of};

/// Sets of the newest chunk that are kept in memory at most. They have a few bytes each; the largest have 2 KiB.
const KEPT_MAX: usize = 20_000;
/// Sets of states of a chunk, and the set of all its jobs.
const STATES: usize = JobState::ALL.len();

/// What the writer of the sets keeps in memory.
#[derive(Default)]
pub(in crate::sqlite) struct Facets {
    names: Names,
    /// Sets of the newest chunk, as they are stored.
    recent: HashMap<i64, Vec<u8>>,
    recent_chunk: u64,
    /// What is collected, by key.
    added: Vec<(i64, u16)>,
    /// The states of jobs, by chunk.
    states: BTreeMap<u64, Vec<(u16, JobState)>>,
    /// Times of submissions and of ends, by chunk.
    times: BTreeMap<u64, Vec<(u16, When, Wall)>>,
}

#[derive(Clone, Copy)]
enum When {
    Created,
    Finished,
}

/// Puts the jobs of a batch into the sets. The rows of the batch are written already.
pub(in crate::sqlite) fn write(store: &mut Tables, batch: &Batch<'_>) -> Result<(), StoreError> {
    for image in &batch.jobs {
        store.facets.job(&store.conn, &store.lanes, image.row)?;
    }
    for end in &batch.ends {
        store.facets.end(&store.conn, end)?;
    }
    for (seq, state) in states_of(store, batch)? {
        store.facets.state(seq, state);
    }
    store.facets.flush(&store.conn)
}

/// The states of the jobs of a batch, after it.
fn states_of(store: &Tables, batch: &Batch<'_>) -> Result<HashMap<Seq, JobState>, StoreError> {
    let mut states = HashMap::with_capacity(batch.jobs.len() + batch.ends.len());
    states.extend(batch.jobs.iter().map(|image| (image.row.seq, image.status.state)));
    // The row of a job has the state of a job that waits; an attempt that is open has another one.
    let stored = |seq: Seq| -> Result<JobState, StoreError> {
        let mut find = store.conn.prepare_cached(
            "SELECT coalesce((SELECT state FROM open_attempt WHERE seq = ?1), (SELECT state FROM job WHERE seq = ?1))",
        )?;
        let code: u8 = find.query_row([seq.0.cast_signed()], |row| row.get(0))?;
        crate::rows::stored_state(code)
    };
    let is_live = |seq: &Seq| store.live.get(*seq).is_some();
    let moved = batch.moved.iter().map(|(seq, _)| *seq);
    let closed = batch.closed.iter().map(|(seq, _)| *seq);
    let opened: HashMap<Seq, JobState> = {
        let started = batch.started.iter().map(|(open, _)| *open);
        started.chain(batch.opened.iter().copied()).map(|open| (open.seq, open.state)).collect()
    };
    for seq in moved.chain(closed).filter(is_live).filter(|seq| !opened.contains_key(seq)) {
        if let std::collections::hash_map::Entry::Vacant(entry) = states.entry(seq) {
            entry.insert(stored(seq)?);
        }
    }
    states.extend(opened.into_iter().filter(|(seq, _)| is_live(seq)));
    states.extend(batch.ends.iter().map(|end| (end.seq, end.state)));
    Ok(states)
}

impl Facets {
    /// A job that is new here.
    pub fn job(
        &mut self,
        conn: &Connection,
        lanes: &HashMap<Name, i64>,
        row: &JobRow,
    ) -> Result<(), StoreError> {
        let (chunk, place, spec) = (chunk_of(row.seq), place_of(row.seq), &row.spec);
        let Facets { names, added, times, .. } = self;
        let mut put = |facet: Facet| added.push((facet.key(chunk), place));
        put(Facet::new(Dimension::Lane, lanes.get(&spec.lane).copied().unwrap_or_default()));
        names.put(conn, Dimension::Tenant, &spec.tenant, &mut put)?;
        names.put(conn, Dimension::Kind, &spec.kind, &mut put)?;
        names.put(conn, Dimension::Agent, &spec.agent, &mut put)?;
        if let Some(session) = &spec.session {
            names.put(conn, Dimension::Session, &session.key, &mut put)?;
        }
        for tag in &spec.tags {
            names.put(conn, Dimension::Tag, tag, &mut put)?;
        }
        times.entry(chunk).or_default().push((place, When::Created, row.created_at));
        Ok(())
    }

    /// A job that has ended.
    pub fn end(&mut self, conn: &Connection, end: &JobEnd) -> Result<(), StoreError> {
        let (chunk, place) = (chunk_of(end.seq), place_of(end.seq));
        self.added.push((Facet::new(Dimension::Reason, end.reason.code().into()).key(chunk), place));
        self.times.entry(chunk).or_default().push((place, When::Finished, end.finished_at));
        let Some(error) = &end.error else { return Ok(()) };
        let Facets { names, added, .. } = self;
        names.put(conn, Dimension::ErrorCode, &error.code, &mut |facet| {
            added.push((facet.key(chunk), place));
        })?;
        let mut words = Vec::new();
        error_words(error, &mut |word| words.push(Box::<str>::from(word)));
        for word in words {
            added.push((names.word(conn, word)?.key(chunk), place));
        }
        Ok(())
    }

    /// The state of a job.
    pub fn state(&mut self, seq: Seq, state: JobState) {
        self.states.entry(chunk_of(seq)).or_default().push((place_of(seq), state));
    }

    /// Forgets what is in memory: the transaction was given up.
    pub fn forget(&mut self) {
        *self = Facets::default();
    }

    /// Writes what was collected.
    pub fn flush(&mut self, conn: &Connection) -> Result<(), StoreError> {
        let mut added = std::mem::take(&mut self.added);
        added.sort_unstable();
        let mut complete_before = None;
        if let Some((key, _)) = added.last() {
            let chunk = (key >> FACET_BITS).cast_unsigned();
            complete_before = Some(chunk).filter(|chunk| *chunk > self.recent_chunk);
            if chunk > self.recent_chunk || self.recent.len() > KEPT_MAX {
                self.recent.clear();
                self.recent_chunk = chunk.max(self.recent_chunk);
            }
        }
        let mut places = Vec::new();
        for set in added.chunk_by(|left, right| left.0 == right.0) {
            places.clear();
            places.extend(set.iter().map(|(_, place)| *place));
            self.add(conn, set[0].0, &places)?;
        }
        added.clear();
        self.added = added;
        for (chunk, states) in std::mem::take(&mut self.states) {
            write_states(conn, chunk, &states)?;
        }
        for (chunk, times) in std::mem::take(&mut self.times) {
            write_times(conn, chunk, &times)?;
        }
        complete_before.map_or(Ok(()), |newest| ends::write_missing(conn, newest))
    }

    /// Adds jobs to a set.
    fn add(&mut self, conn: &Connection, key: i64, places: &[u16]) -> Result<(), StoreError> {
        let is_recent = (key >> FACET_BITS).cast_unsigned() == self.recent_chunk;
        let kept = self.recent.get_mut(&key).filter(|_| is_recent);
        if let Some(stored) = kept {
            extend(stored, places)?;
            return put(conn, key, stored);
        }
        let found = get(conn, key)?;
        if found.is_none()
            && let Some(number) = Facet::name_of(key)
            && self.names.is_counted_later(number)
        {
            let sql = format!(
                "UPDATE facet_name SET chunks = chunks + 1 WHERE number = ?1 AND {}",
                FACET_NAME.check
            );
            conn.prepare_cached(&sql)?.execute([number])?;
        }
        let mut stored = found.unwrap_or_default();
        extend(&mut stored, places)?;
        put(conn, key, &stored)?;
        if is_recent {
            self.recent.insert(key, stored);
        }
        Ok(())
    }
}

/// Moves jobs of a chunk to the sets of their states.
fn write_states(conn: &Connection, chunk: u64, moved: &[(u16, JobState)]) -> Result<(), StoreError> {
    let mut sets = read_states(conn, chunk)?;
    let before = sets.clone();
    for (place, state) in moved {
        for (set, code) in sets.iter_mut().zip(0u8..) {
            let is_in = code == state.code() || usize::from(code) == STATES;
            if is_in { set.insert(*place) } else { set.remove(*place) }
        }
    }
    put_states(conn, chunk, &before, &sets)
}

/// The sets of the states of a chunk, and last the set of all its jobs.
fn read_states(conn: &Connection, chunk: u64) -> Result<Vec<Bits>, StoreError> {
    let numbers = 0..=ALL_JOBS;
    numbers
        .map(|number| {
            let stored = get(conn, Facet::new(Dimension::State, number).key(chunk))?;
            stored.map_or(Ok(Bits::default()), |stored| Bits::read(&stored))
        })
        .collect()
}

fn put_states(conn: &Connection, chunk: u64, before: &[Bits], after: &[Bits]) -> Result<(), StoreError> {
    let mut delete = conn.prepare_cached("DELETE FROM facet WHERE key = ?1")?;
    for (number, (before, after)) in (0..).zip(before.iter().zip(after)) {
        let key = Facet::new(Dimension::State, number).key(chunk);
        if after.is_empty() && !before.is_empty() {
            delete.execute([key])?;
        } else if before != after {
            put(conn, key, &after.write())?;
        }
    }
    Ok(())
}

fn write_times(conn: &Connection, chunk: u64, put: &[(u16, When, Wall)]) -> Result<(), StoreError> {
    let (mut created, mut finished) = read_times(conn, chunk)?.unwrap_or_default();
    let mut changed = false;
    for (place, when, time) in put {
        let times = match when {
            When::Created => &mut created,
            When::Finished => &mut finished,
        };
        changed |= !times.covers(*place, *time);
        times.put(*place, *time);
    }
    if changed {
        let (chunk, created, finished) = (chunk.cast_signed(), created.write(), finished.write());
        let sum = sum_of([ValueRef::Integer(chunk), ValueRef::Blob(&created), ValueRef::Blob(&finished)]);
        let mut put = conn.prepare_cached(
            "REPLACE INTO facet_times (chunk, created, finished, sum) VALUES (?1, ?2, ?3, ?4)",
        )?;
        put.execute(params![chunk, created, finished, sum])?;
    }
    Ok(())
}

/// The times of submissions and of ends of a chunk.
pub(super) fn read_times(conn: &Connection, chunk: u64) -> Result<Option<(Times, Times)>, StoreError> {
    let sql = "SELECT chunk, created, finished, sum FROM facet_times WHERE chunk = ?1";
    let mut select = conn.prepare_cached(sql)?;
    let mut rows = select.query([chunk.cast_signed()])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    check_sum(row, 0..3, 3).map_err(|error| in_row("facet_times", row, error))?;
    Ok(Some((Times::read(row.get_ref(1)?.as_blob()?)?, Times::read(row.get_ref(2)?.as_blob()?)?)))
}

/// The columns that [`read_set`] reads, in its order.
pub(super) const SET: &str = "key, jobs, sum";

/// A set in its stored form, from the columns [`SET`].
pub(super) fn read_set<'row>(row: &'row Row<'_>) -> Result<&'row [u8], StoreError> {
    check_sum(row, 0..2, 2).map_err(|error| in_row("facet", row, error))?;
    Ok(row.get_ref(1)?.as_blob()?)
}

/// Takes deleted jobs out of the sets of states. A chunk without jobs goes as a whole.
pub(in crate::sqlite) fn remove(
    conn: &Connection,
    facets: &mut Facets,
    jobs: &[Seq],
) -> Result<(), StoreError> {
    let mut chunks: BTreeMap<u64, Vec<u16>> = BTreeMap::new();
    for seq in jobs {
        chunks.entry(chunk_of(*seq)).or_default().push(place_of(*seq));
    }
    for (chunk, places) in chunks {
        let before = read_states(conn, chunk)?;
        let mut sets = before.clone();
        for set in &mut sets {
            places.iter().for_each(|place| set.remove(*place));
        }
        if sets.iter().all(Bits::is_empty) {
            remove_chunk(conn, chunk)?;
            facets.forget();
        } else {
            put_states(conn, chunk, &before, &sets)?;
        }
    }
    Ok(())
}

fn remove_chunk(conn: &Connection, chunk: u64) -> Result<(), StoreError> {
    let (from, to) = (chunk.cast_signed() << FACET_BITS, ((chunk + 1).cast_signed() << FACET_BITS) - 1);
    let mut select = conn.prepare_cached("SELECT key FROM facet WHERE key BETWEEN ?1 AND ?2")?;
    let mut count = conn.prepare_cached(&format!(
        "UPDATE facet_name SET chunks = chunks - 1 WHERE number = ?1 AND {}",
        FACET_NAME.check
    ))?;
    let mut rows = select.query([from, to])?;
    let mut named = Vec::new();
    while let Some(row) = rows.next()? {
        named.extend(Facet::name_of(row.get(0)?));
    }
    drop(rows);
    let mut delete = conn.prepare_cached("DELETE FROM facet_name WHERE number = ?1 AND chunks <= 0")?;
    for number in named {
        count.execute([number])?;
        delete.execute([number])?;
    }
    conn.prepare_cached("DELETE FROM facet WHERE key BETWEEN ?1 AND ?2")?.execute([from, to])?;
    conn.prepare_cached("DELETE FROM facet_times WHERE chunk = ?1")?.execute([chunk.cast_signed()])?;
    ends::remove(conn, chunk)
}

fn get(conn: &Connection, key: i64) -> Result<Option<Vec<u8>>, StoreError> {
    let mut select = conn.prepare_cached(&format!("SELECT {SET} FROM facet WHERE key = ?1"))?;
    let mut rows = select.query([key])?;
    rows.next()?.map(|row| read_set(row).map(<[u8]>::to_vec)).transpose()
}

fn put(conn: &Connection, key: i64, stored: &[u8]) -> Result<(), StoreError> {
    let sum = sum_of([ValueRef::Integer(key), ValueRef::Blob(stored)]);
    let mut put = conn.prepare_cached("REPLACE INTO facet (key, jobs, sum) VALUES (?1, ?2, ?3)")?;
    put.execute(params![key, stored, sum])?;
    Ok(())
}
