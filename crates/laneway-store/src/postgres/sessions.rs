//! Sessions: their stored state, and which jobs run as one.

use laneway_core::{Bytes, JobEnd, MergedInto, Name, Seq, SessionRow, Wall};

use super::cells::{Param, Rows, id, int, name, number, opt_wall};
use super::script::Script;
use super::session::{ReadError, Session};
use crate::columns::{Columns, PAYLOAD, number as number_at, read_payload};
use crate::live::Live;
use crate::rows::stored_name;
use crate::{Loaded, StoreError};

/// Stores a session's state.
pub(super) fn put<'a>(row: &'a SessionRow, script: &mut Script<'a>) {
    let SessionRow { tenant, key, cutoff, generation, tokens, window, updated_at } = row;
    script.any(
        "session",
        "INSERT INTO laneway.session (tenant, key, cutoff, generation, tokens, context_window, updated_at) \
         VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (tenant, key) DO UPDATE SET cutoff = excluded.cutoff, \
         generation = excluded.generation, tokens = excluded.tokens, context_window = excluded.context_window, \
         updated_at = excluded.updated_at",
        vec![
            name(tenant),
            name(key),
            opt_wall(*cutoff),
            number(*generation),
            number(*tokens),
            number(*window),
            int(updated_at.0),
        ],
    );
}

/// Deletes a session's state.
pub(super) fn forget<'a>(tenant: &'a Name, key: &'a Name, script: &mut Script<'a>) {
    let sql = "DELETE FROM laneway.session WHERE tenant = $1 AND key = $2";
    script.any("session", sql, vec![name(tenant), name(key)]);
}

/// Visits the state of every session.
pub(super) fn load(session: &Session, visit: &mut dyn FnMut(Loaded)) -> Result<(), ReadError> {
    let sql = "SELECT tenant, key, cutoff, generation, tokens, context_window, updated_at FROM laneway.session \
               ORDER BY tenant, key";
    for row in session.rows(sql, vec![])? {
        visit(Loaded::Session(SessionRow {
            tenant: stored_name(row.get_ref(0)?.as_str()?)?,
            key: stored_name(row.get_ref(1)?.as_str()?)?,
            cutoff: row.get_ref(2)?.as_i64_or_null()?.map(Wall),
            generation: number_at(&row, 3)?,
            tokens: number_at(&row, 4)?,
            window: number_at(&row, 5)?,
            updated_at: Wall(row.get_ref(6)?.as_i64()?),
        }));
    }
    Ok(())
}

/// Stores which jobs run for those among `ends` that were merged.
pub(super) fn merge<'a>(live: &Live, ends: &[&'a JobEnd], script: &mut Script<'a>) -> Result<(), StoreError> {
    let mut rows = Rows::default();
    for end in ends {
        let Some(MergedInto { seq, job }) = end.merged_into else { continue };
        if live.get(seq).is_none() {
            return Err(StoreError::Disagree(format!("job {} is not live", seq.0)));
        }
        rows.push([number(seq.0), number(end.seq.0), id(job.0)]);
    }
    script.insert("merged", "leader, seq, job", rows);
    Ok(())
}

/// The payloads of the jobs that were merged into these, by leader, in the order in which they came.
pub(super) fn merged_payloads(session: &Session, leaders: &[Seq]) -> Result<Vec<(Seq, Bytes)>, ReadError> {
    if leaders.is_empty() {
        return Ok(Vec::new());
    }
    let sql = format!(
        "SELECT {PAYLOAD}, merged.leader FROM laneway.merged JOIN laneway.payload ON payload.seq = merged.seq \
         WHERE merged.leader = ANY($1) ORDER BY merged.leader, merged.seq"
    );
    let rows = session.rows(&sql, vec![Param::seqs(leaders.iter().map(|seq| seq.0))])?;
    rows.iter().map(|row| Ok((Seq(number_at(row, 3)?), read_payload(row, 0)?))).collect()
}
