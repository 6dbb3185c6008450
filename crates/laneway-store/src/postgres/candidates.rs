//! Which jobs a list looks at: those of the index that leaves the fewest, newest first.
//!
//! A list may filter by anything. One condition of it selects an index with the number of the job as its last column, so that a page
//! is read from one place. The other conditions are compared afterwards.

use laneway_core::{JobState, Name, Seq};

use super::cells::{Param, int, name};
use super::session::{ReadError, Session};
use crate::JobFilter;
use crate::columns::{Columns, number};
use crate::live::{CHUNK, LiveChunk};

/// Rows of table `live_chunk` that one statement reads.
const CHUNKS: i64 = 256;

/// Where the jobs of a list come from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Candidates<'f> {
    /// Jobs with an open attempt.
    Open,
    /// Jobs that have not ended.
    Live,
    /// Jobs with this name in a column of table `job`.
    Named(&'static str, &'f Name),
    /// Jobs that ended with an error of this code.
    Failed(&'f Name),
    /// Jobs that ended in another state than succeeded.
    Unsuccessful,
    /// Jobs that have ended.
    Ended,
    /// All jobs.
    All,
}

impl<'f> Candidates<'f> {
    /// The source that leaves the fewest jobs to compare.
    pub fn of(filter: &'f JobFilter) -> Candidates<'f> {
        let only =
            |these: fn(&JobState) -> bool| !filter.states.is_empty() && filter.states.iter().all(these);
        let named =
            |column, name: &'f Option<Name>| name.as_ref().map(|name| Candidates::Named(column, name));
        if only(|state| matches!(state, JobState::Assigned | JobState::Running)) {
            return Candidates::Open;
        }
        if let Some(session) = named("session", &filter.session) {
            return session;
        }
        if let Some(code) = &filter.error_code {
            return Candidates::Failed(code);
        }
        if only(|state| state.is_terminal() && *state != JobState::Succeeded) {
            return Candidates::Unsuccessful;
        }
        if let Some(agent) = named("agent", &filter.agent) {
            return agent;
        }
        if only(|state| !state.is_terminal()) {
            return Candidates::Live;
        }
        let by_name = named("kind", &filter.kind)
            .or_else(|| named("tenant", &filter.tenant))
            .or_else(|| named("lane", &filter.lane));
        if let Some(by_name) = by_name {
            return by_name;
        }
        let ended = only(|state| state.is_terminal())
            || !filter.reasons.is_empty()
            || filter.finished_before.is_some()
            || filter.finished_after.is_some();
        if ended { Candidates::Ended } else { Candidates::All }
    }

    /// The next `limit` jobs before a number: what to select from, and its parameters.
    pub fn before(
        &self,
        session: &Session,
        before: i64,
        limit: usize,
    ) -> Result<(String, Vec<Param<'f>>), ReadError> {
        let newest = "seq < $1 ORDER BY seq DESC LIMIT $2";
        let mut params = vec![int(before), int(limit as i64)];
        let of_ends = |wanted: &str| {
            format!(
                "(SELECT seq FROM laneway.done WHERE {wanted}{newest}) AS found JOIN laneway.job USING (seq)"
            )
        };
        let sql = match self {
            Candidates::Open => format!(
                "(SELECT seq FROM laneway.open_attempt WHERE {newest}) AS found JOIN laneway.job USING (seq)"
            ),
            Candidates::Live => {
                params.push(Param::seqs(live_before(session, before, limit)?));
                "laneway.job WHERE seq = ANY($3)".to_owned()
            }
            Candidates::Named(column, wanted) => {
                params.push(name(wanted));
                format!("laneway.job WHERE {column} = $3 AND {newest}")
            }
            Candidates::Failed(code) => {
                params.push(name(code));
                of_ends("error_code = $3 AND ")
            }
            Candidates::Unsuccessful => of_ends(&format!("state <> {} AND ", JobState::Succeeded.code())),
            Candidates::Ended => of_ends(""),
            Candidates::All => format!("laneway.job WHERE {newest}"),
        };
        Ok((sql, params))
    }
}

/// The newest live jobs before a number.
fn live_before(session: &Session, before: i64, limit: usize) -> Result<Vec<u64>, ReadError> {
    let before = before.cast_unsigned();
    let mut found = Vec::new();
    let mut chunk = Some(before.saturating_sub(1) / CHUNK);
    while let Some(at) = chunk.filter(|_| found.len() < limit) {
        let sql = "SELECT chunk, bits FROM laneway.live_chunk WHERE chunk <= $1 ORDER BY chunk DESC LIMIT $2";
        let rows = session.rows(sql, vec![int(at.cast_signed()), int(CHUNKS)])?;
        for row in &rows {
            let number = number(row, 0)?;
            let live = LiveChunk::of_row(number, row.get_ref(1)?.as_blob()?)?;
            found.extend(live.jobs().into_iter().rev().map(|Seq(seq)| seq).filter(|seq| *seq < before));
            chunk = number.checked_sub(1);
            if found.len() >= limit {
                break;
            }
        }
        if rows.len() < CHUNKS as usize {
            break;
        }
    }
    found.truncate(limit);
    Ok(found)
}
