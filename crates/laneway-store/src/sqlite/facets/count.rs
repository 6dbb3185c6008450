//! Numbers of jobs: the sizes of the sets that a list would read.

use std::collections::HashMap;

use laneway_core::{JobState, Name};
use rusqlite::{Connection, OptionalExtension};

use super::bits::Bits;
use super::list::Comparison;
use super::plan::{Plan, Sets};
use super::{Dimension, Facet, seq_at};
use crate::rows::stored_name;
use crate::sqlite::row_sums::{FACET_NAME, LANE};
use crate::{CountBy, JobCounts, JobFilter, StateCounts, StoreError};

/// Sets that one call reads. A set takes one or two microseconds.
const SETS_MAX: usize = 120_000;
/// Jobs whose times one call compares.
const TIMES_MAX: usize = 50_000;

/// How many jobs a filter matches. `None`: too much would have to be read.
pub(in crate::sqlite) fn count(
    conn: &Connection,
    filter: &JobFilter,
    by: CountBy,
) -> Result<Option<JobCounts>, StoreError> {
    let mut counts = JobCounts::default();
    let Some(plan) = Plan::of(conn, filter)? else { return Ok(Some(counts)) };
    if plan.inexact {
        return Ok(None);
    }
    let mut sets = Sets::new(conn)?;
    let mut times = Comparison::new(conn, filter)?;
    let mut groups: HashMap<i64, StateCounts> = HashMap::new();
    for chunk in sets.chunks(u64::MAX)? {
        let mut matched = plan.of_chunk(&mut sets, chunk)?;
        for place in matched.doubtful.descending() {
            if times.compared >= TIMES_MAX {
                return Ok(None);
            }
            if !times.matches(seq_at(chunk, place))? {
                matched.jobs.remove(place);
            }
        }
        if sets.read >= SETS_MAX {
            return Ok(None);
        }
        if !matched.jobs.is_empty() {
            count_chunk(&plan, &mut sets, chunk, &matched.jobs, by, &mut counts.all, &mut groups)?;
        }
    }
    for (number, states) in groups {
        if let Some(name) = name_of(conn, by, number)? {
            counts.groups.insert(name, states);
        }
    }
    Ok(Some(counts.bounded()))
}

fn count_chunk(
    plan: &Plan<'_>,
    sets: &mut Sets<'_>,
    chunk: u64,
    jobs: &Bits,
    by: CountBy,
    all: &mut StateCounts,
    groups: &mut HashMap<i64, StateCounts>,
) -> Result<(), StoreError> {
    let mut states: Vec<(JobState, Bits)> = Vec::new();
    for state in &plan.states {
        let mut of_state = sets.any_of(chunk, &[Facet::state(*state)])?;
        of_state.keep(jobs);
        let count = of_state.count();
        if count > 0 {
            all.add(*state, count);
            states.push((*state, of_state));
        }
    }
    let Some(dimension) = dimension_of(by) else { return Ok(()) };
    sets.each(chunk, dimension, &mut |number, stored| {
        for (state, of_state) in &states {
            let count = of_state.count_common(stored);
            if count > 0 {
                groups.entry(number).or_default().add(*state, count);
            }
        }
        Ok(())
    })
}

fn dimension_of(by: CountBy) -> Option<Dimension> {
    match by {
        CountBy::Nothing => None,
        CountBy::Lane => Some(Dimension::Lane),
        CountBy::Kind => Some(Dimension::Kind),
        CountBy::Agent => Some(Dimension::Agent),
        CountBy::ErrorCode => Some(Dimension::ErrorCode),
    }
}

fn name_of(conn: &Connection, by: CountBy, number: i64) -> Result<Option<Name>, StoreError> {
    let sql = match by {
        CountBy::Lane => format!("SELECT name, {} FROM lane WHERE number = ?1", LANE.check),
        _ => format!("SELECT text, {} FROM facet_name WHERE number = ?1", FACET_NAME.check),
    };
    let text: Option<String> = conn.prepare_cached(&sql)?.query_row([number], |row| row.get(0)).optional()?;
    text.map(|text| stored_name(&text)).transpose()
}
