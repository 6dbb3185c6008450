//! What a filter means in sets: which sets are joined, and which of the joined ones are intersected.

use std::collections::HashSet;

use laneway_core::{JobState, Seq};
use rusqlite::{CachedStatement, Connection};

use super::bits::{Bits, CHUNK};
use super::ends;
use super::names::{find, find_words};
use super::write::{SET, read_set, read_times};
use super::{Dimension, FACET_BITS, Facet, NUMBER_BITS, chunk_of, place_of};
use crate::search::Term;
use crate::sqlite::row_sums::LANE;
use crate::{JobFilter, StoreError};

/// Words that one word of a search may stand for. Beyond that, jobs are read to find it.
const WORDS_MAX: usize = 20_000;
/// Words up to which each is looked up; where there are more, all words of a chunk are read.
const LOOKED_UP_MAX: usize = 48;
/// Jobs that one part of an id may stand for. Beyond that, jobs are read to find it.
const IDS_MAX: i64 = 4_096;

/// A filter in sets.
pub(super) struct Plan<'a> {
    pub filter: &'a JobFilter,
    /// The states that are shown.
    pub states: Vec<JobState>,
    /// Every job must be in one set of each of these.
    any_of: Vec<Vec<Facet>>,
    terms: Vec<SearchTerm>,
    /// True: the sets do not tell everything, and the jobs themselves must be compared.
    pub inexact: bool,
}

/// A term of a search: jobs of these numbers, and jobs that have each of the words.
struct SearchTerm {
    ids: Vec<Seq>,
    words: Vec<Words>,
}

/// The words that begin with a word of a search.
enum Words {
    Few(Vec<Facet>),
    Many(HashSet<i64>),
}

/// The jobs of a chunk that a filter may match.
pub(super) struct Matched {
    pub jobs: Bits,
    /// Those of them whose own times must be compared.
    pub doubtful: Bits,
}

impl<'a> Plan<'a> {
    /// `None`: no job can match.
    pub fn of(conn: &Connection, filter: &'a JobFilter) -> Result<Option<Plan<'a>>, StoreError> {
        let mut plan =
            Plan { filter, states: states_of(filter), any_of: Vec::new(), terms: Vec::new(), inexact: false };
        if plan.states.is_empty() {
            return Ok(None);
        }
        let names = [
            (Dimension::Session, &filter.session),
            (Dimension::Tag, &filter.tag),
            (Dimension::ErrorCode, &filter.error_code),
            (Dimension::Agent, &filter.agent),
            (Dimension::Kind, &filter.kind),
            (Dimension::Tenant, &filter.tenant),
        ];
        for (dimension, name) in names {
            if let Some(name) = name {
                let Some(facet) = find(conn, dimension, name.as_str())? else { return Ok(None) };
                plan.any_of.push(vec![facet]);
            }
        }
        if let Some(lane) = &filter.lane {
            let sql = format!("SELECT number, {} FROM lane WHERE name = ?1", LANE.check);
            let mut find = conn.prepare_cached(&sql)?;
            let mut rows = find.query([lane.as_str()])?;
            let Some(row) = rows.next()? else { return Ok(None) };
            plan.any_of.push(vec![Facet::new(Dimension::Lane, row.get(0)?)]);
        }
        if !filter.reasons.is_empty() {
            let reasons = filter.reasons.iter();
            plan.any_of.push(reasons.map(|r| Facet::new(Dimension::Reason, r.code().into())).collect());
        }
        for term in filter.search.iter().flat_map(|search| search.terms()) {
            if !plan.add_term(conn, term)? {
                return Ok(None);
            }
        }
        Ok(Some(plan))
    }

    /// False: no job has the term.
    fn add_term(&mut self, conn: &Connection, term: &Term) -> Result<bool, StoreError> {
        let mut ids = Vec::new();
        if let Some((from, to)) = term.ids {
            let mut select =
                conn.prepare_cached("SELECT seq FROM job WHERE id BETWEEN ?1 AND ?2 LIMIT ?3")?;
            let (from, to) = (from.0.to_be_bytes(), to.0.to_be_bytes());
            let mut rows = select.query(rusqlite::params![&from[..], &to[..], IDS_MAX + 1])?;
            while let Some(row) = rows.next()? {
                ids.push(Seq(row.get::<_, i64>(0)?.cast_unsigned()));
            }
        }
        if let Some(end) = &term.end {
            ids.extend(ends::find(conn, end, IDS_MAX as usize + 1)?);
        }
        let mut words = Vec::new();
        for word in &term.words {
            match find_words(conn, word, WORDS_MAX)? {
                Some(found) if found.len() <= LOOKED_UP_MAX => words.push(Words::Few(found)),
                Some(found) => {
                    let number = |facet: Facet| super::number_of(facet.0);
                    words.push(Words::Many(found.into_iter().map(number).collect()));
                }
                None => self.inexact = true,
            }
        }
        if ids.len() as i64 > IDS_MAX || words.len() < term.words.len() {
            // What the sets do not tell must not exclude a job.
            self.inexact = true;
            return Ok(true);
        }
        let is_possible = !ids.is_empty() || words.iter().all(|words| !words.is_empty());
        ids.sort_unstable();
        ids.dedup();
        self.terms.push(SearchTerm { ids, words });
        Ok(is_possible)
    }

    /// The jobs of a chunk that match, in any of the states.
    pub fn of_chunk(&self, sets: &mut Sets<'_>, chunk: u64) -> Result<Matched, StoreError> {
        let mut jobs = match self.states.len() {
            0..8 => {
                let states: Vec<Facet> = self.states.iter().map(|state| Facet::state(*state)).collect();
                sets.any_of(chunk, &states)?
            }
            _ => sets.any_of(chunk, &[Facet::all()])?,
        };
        for facets in &self.any_of {
            if jobs.is_empty() {
                break;
            }
            jobs.keep(&sets.any_of(chunk, facets)?);
        }
        for term in &self.terms {
            if jobs.is_empty() {
                break;
            }
            jobs.keep(&term.of_chunk(sets, chunk)?);
        }
        let mut doubtful = if self.inexact { jobs.clone() } else { Bits::default() };
        let JobFilter { created_after, created_before, finished_after, finished_before, .. } = *self.filter;
        let by_created = created_after.is_some() || created_before.is_some();
        let by_finished = finished_after.is_some() || finished_before.is_some();
        if (by_created || by_finished) && !jobs.is_empty() {
            let (created, finished) = read_times(sets.conn, chunk)?.unwrap_or_default();
            if by_created {
                doubtful.join(&created.restrict(&mut jobs, created_after, created_before));
            }
            if by_finished {
                doubtful.join(&finished.restrict(&mut jobs, finished_after, finished_before));
            }
            doubtful.keep(&jobs);
        }
        Ok(Matched { jobs, doubtful })
    }
}

/// The states that a filter can match.
fn states_of(filter: &JobFilter) -> Vec<JobState> {
    let is_wanted = |state: &JobState| filter.states.is_empty() || filter.states.contains(state);
    let may_be = |state: &JobState| state.is_terminal() || !filter.is_about_ends();
    JobState::ALL.into_iter().filter(is_wanted).filter(may_be).collect()
}

impl SearchTerm {
    fn of_chunk(&self, sets: &mut Sets<'_>, chunk: u64) -> Result<Bits, StoreError> {
        let mut jobs = Bits::before(CHUNK);
        for words in &self.words {
            if jobs.is_empty() {
                break;
            }
            jobs.keep(&match words {
                Words::Few(facets) => sets.any_of(chunk, facets)?,
                Words::Many(numbers) => sets.any_of_many(chunk, numbers)?,
            });
        }
        let first = self.ids.partition_point(|seq| chunk_of(*seq) < chunk);
        for seq in self.ids[first..].iter().take_while(|seq| chunk_of(**seq) == chunk) {
            jobs.insert(place_of(*seq));
        }
        Ok(jobs)
    }
}

impl Words {
    fn is_empty(&self) -> bool {
        matches!(self, Words::Few(facets) if facets.is_empty())
    }
}

/// Takes the number of a set and its stored form.
type Visit<'a> = dyn FnMut(i64, &[u8]) -> Result<(), StoreError> + 'a;

/// Reads sets, and counts how many.
pub(super) struct Sets<'a> {
    conn: &'a Connection,
    get: CachedStatement<'a>,
    range: CachedStatement<'a>,
    /// Sets that were looked up or read.
    pub read: usize,
}

impl<'a> Sets<'a> {
    pub fn new(conn: &'a Connection) -> Result<Sets<'a>, StoreError> {
        let get = conn.prepare_cached(&format!("SELECT {SET} FROM facet WHERE key = ?1"))?;
        let range = conn.prepare_cached(&format!("SELECT {SET} FROM facet WHERE key BETWEEN ?1 AND ?2"))?;
        Ok(Sets { conn, get, range, read: 0 })
    }

    /// The jobs of a chunk that are in one of these sets.
    pub fn any_of(&mut self, chunk: u64, facets: &[Facet]) -> Result<Bits, StoreError> {
        let mut jobs = Bits::default();
        for facet in facets {
            self.read += 1;
            let mut rows = self.get.query([facet.key(chunk)])?;
            if let Some(row) = rows.next()? {
                jobs.add(read_set(row)?)?;
            }
        }
        Ok(jobs)
    }

    fn any_of_many(&mut self, chunk: u64, numbers: &HashSet<i64>) -> Result<Bits, StoreError> {
        let mut jobs = Bits::default();
        self.each(chunk, Dimension::Word, &mut |number, stored| {
            if numbers.contains(&number) { jobs.add(stored) } else { Ok(()) }
        })?;
        Ok(jobs)
    }

    /// Visits every set of a dimension in a chunk.
    pub fn each(
        &mut self,
        chunk: u64,
        dimension: Dimension,
        visit: &mut Visit<'_>,
    ) -> Result<(), StoreError> {
        let from = Facet::new(dimension, 0).key(chunk);
        let mut rows = self.range.query([from, from + (1 << NUMBER_BITS) - 1])?;
        let mut read = 0;
        while let Some(row) = rows.next()? {
            read += 1;
            visit(super::number_of(row.get(0)?), read_set(row)?)?;
        }
        self.read += read / 4;
        Ok(())
    }

    /// The numbers of the chunks that have jobs before `end`, from the last to the first.
    pub fn chunks(&self, end: u64) -> Result<Vec<u64>, StoreError> {
        let mut select = self
            .conn
            .prepare_cached("SELECT chunk FROM facet_times WHERE chunk <= ?1 ORDER BY chunk DESC")?;
        let most = i64::MAX >> FACET_BITS;
        let mut rows = select.query([i64::try_from(end.saturating_sub(1) / CHUNK).unwrap_or(most)])?;
        let mut chunks = Vec::new();
        while let Some(row) = rows.next()? {
            chunks.push(row.get::<_, i64>(0)?.cast_unsigned());
        }
        Ok(chunks)
    }
}
