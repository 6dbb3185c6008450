//! Compares the sets with the tables of jobs.

use std::collections::HashMap;

use laneway_core::Name;
use rusqlite::{Connection, OptionalExtension};

use super::bits::{Bits, CHUNK};
use super::ends;
use super::plan::Sets;
use super::write::{SET, read_set, read_times};
use super::{Dimension, FACET_BITS, Facet, NUMBER_BITS, place_of};
use crate::rows::Interner;
use crate::search::{error_words, spec_words};
use crate::sqlite::open::read_lanes;
use crate::sqlite::query::views_between;
use crate::sqlite::row_sums::FACET_NAME;
use crate::{JobView, StoreError};

/// The sets of a chunk: dimension, and name or code.
type Expected = HashMap<(u8, Box<str>), Bits>;

/// The chunks to compare.
pub(in crate::sqlite) fn chunks(conn: &Connection) -> Result<Vec<u64>, StoreError> {
    let mut chunks = Sets::new(conn)?.chunks(u64::MAX)?;
    let (first, last): (Option<i64>, Option<i64>) =
        conn.query_row("SELECT min(seq), max(seq) FROM job", [], |row| Ok((row.get(0)?, row.get(1)?)))?;
    if let (Some(first), Some(last)) = (first, last) {
        chunks.extend(first.cast_unsigned() / CHUNK..=last.cast_unsigned() / CHUNK);
    }
    chunks.sort_unstable();
    chunks.dedup();
    Ok(chunks)
}

/// What is wrong with the sets of a chunk, if anything is.
pub(in crate::sqlite) fn check_chunk(conn: &Connection, chunk: u64) -> Result<Option<String>, StoreError> {
    let lanes = read_lanes(conn)?;
    let times = read_times(conn, chunk)?.unwrap_or_default();
    let ends = ends::read(conn, chunk)?;
    let mut expected = Expected::new();
    let mut outside = None;
    let mut names = Interner::default();
    views_between(conn, (chunk * CHUNK, (chunk + 1) * CHUNK - 1), &mut names, &mut |view| {
        let place = place_of(view.row.seq);
        let is_inside = times.0.covers(place, view.row.created_at)
            && view.end.as_ref().is_none_or(|end| times.1.covers(place, end.finished_at));
        if !is_inside {
            outside = Some(format!("the times of job {} are outside of its block", view.row.seq.0));
        }
        if ends.as_ref().is_some_and(|ends| !ends::has(ends, view.row.seq, view.row.id)) {
            outside = Some(format!("the end of the id of job {} is another one", view.row.seq.0));
        }
        expect(&mut expected, &lanes, &view);
        Ok(())
    })?;
    if outside.is_some() {
        return Ok(outside);
    }
    let all = expected.get(&(Dimension::State as u8, super::ALL_JOBS.to_string().into())).cloned();
    compare(conn, chunk, expected, &all.unwrap_or_default())
}

/// Adds a job to the sets that must have it.
fn expect(expected: &mut Expected, lanes: &HashMap<Name, i64>, view: &JobView) {
    let (spec, place) = (&view.row.spec, place_of(view.row.seq));
    let mut put = |dimension: Dimension, text: &str| {
        expected.entry((dimension as u8, text.into())).or_default().insert(place);
    };
    put(Dimension::State, &super::ALL_JOBS.to_string());
    put(Dimension::State, &view.state().code().to_string());
    put(Dimension::Lane, &lanes.get(&spec.lane).copied().unwrap_or_default().to_string());
    put(Dimension::Tenant, spec.tenant.as_str());
    put(Dimension::Kind, spec.kind.as_str());
    put(Dimension::Agent, spec.agent.as_str());
    spec.session.iter().for_each(|session| put(Dimension::Session, session.key.as_str()));
    spec.tags.iter().for_each(|tag| put(Dimension::Tag, tag.as_str()));
    spec_words(spec, &mut |word| put(Dimension::Word, word));
    if let Some(end) = &view.end {
        put(Dimension::Reason, &end.reason.code().to_string());
        if let Some(error) = &end.error {
            put(Dimension::ErrorCode, error.code.as_str());
            error_words(error, &mut |word| put(Dimension::Word, word));
        }
    }
}

/// Compares the stored sets with those that must be there. Deleted jobs may stay in the sets of names.
fn compare(
    conn: &Connection,
    chunk: u64,
    mut expected: Expected,
    all: &Bits,
) -> Result<Option<String>, StoreError> {
    let (from, to) = (chunk.cast_signed() << FACET_BITS, ((chunk + 1).cast_signed() << FACET_BITS) - 1);
    let mut select = conn.prepare_cached(&format!("SELECT {SET} FROM facet WHERE key BETWEEN ?1 AND ?2"))?;
    let sql = format!("SELECT text, {} FROM facet_name WHERE number = ?1", FACET_NAME.check);
    let mut name = conn.prepare_cached(&sql)?;
    let mut rows = select.query([from, to])?;
    while let Some(row) = rows.next()? {
        let key: i64 = row.get(0)?;
        let dimension = ((key >> NUMBER_BITS) & 15) as u8;
        let text = match Facet::name_of(key) {
            None => Some(super::number_of(key).to_string()),
            Some(number) => name.query_row([number], |row| row.get(0)).optional()?,
        };
        let Some(text) = text else { return Ok(Some(format!("set {key} has no name"))) };
        let mut stored = Bits::read(read_set(row)?)?;
        if dimension != Dimension::State as u8 {
            stored.keep(all);
        }
        let wanted = expected.remove(&(dimension, text.as_str().into())).unwrap_or_default();
        if stored != wanted {
            return Ok(Some(format!(
                "the set of {text:?} (dimension {dimension}) has not the jobs that it must"
            )));
        }
    }
    Ok(expected
        .into_keys()
        .next()
        .map(|(dimension, text)| format!("the set of {text:?} (dimension {dimension}) is missing")))
}
