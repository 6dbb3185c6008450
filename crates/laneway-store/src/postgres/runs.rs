//! Runs: written by the commit, read at a start and for lists, deleted together with all their jobs.

use laneway_core::{
    Bytes, CallRow, EndedMember, Name, NextAnswer, PriorRun, RunId, RunRow, RunState, Seq, Wall,
};

use super::cells::{
    Param, blob, id, int, name, number, opt_blob, opt_int, opt_name, opt_text, opt_wall, own_blob,
};
use super::load::by_key;
use super::pages::newest_first;
use super::script::Script;
use super::session::{ReadError, Session};
use crate::batch::JobPrune;
use crate::codec::write_run;
use crate::columns::runs::{CALL, RUN, read_call, read_run};
use crate::columns::{Columns, number as number_at, small};
use crate::rows::{stored_digest, stored_job_id, stored_run_id, stored_state};
use crate::{Loaded, Page, RunFilter};

/// Inserts a run.
pub(super) fn insert<'a>(row: &'a RunRow, script: &mut Script<'a>) {
    let mut form = Vec::new();
    write_run(&mut form, row);
    let key = row.spec.idempotency.as_ref();
    script.any(
        "run",
        "INSERT INTO laneway.run (first, members, id, tenant, lane, state, created_at, finished_at, key, digest, spec) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)",
        vec![
            number(row.first.0),
            number(row.nodes.len() as u64),
            id(row.id.0),
            name(&row.spec.tenant),
            name(&row.spec.lane),
            int(row.state.code()),
            int(row.created_at.0),
            opt_wall(row.finished_at),
            opt_name(key.map(|key| &key.key)),
            opt_blob(key.map(|key| &key.digest[..])),
            own_blob(Some(form)),
        ],
    );
}

/// Stores the definition of a run.
pub(super) fn define<'a>(first: Seq, definition: &'a [u8], script: &mut Script<'a>) {
    let sql = "INSERT INTO laneway.run_definition (seq, bytes) VALUES ($1, $2)";
    script.any("run_definition", sql, vec![number(first.0), blob(definition)]);
}

/// The definition of a run.
pub(super) fn definition(session: &Session, first: Seq) -> Result<Option<Bytes>, ReadError> {
    let sql = "SELECT bytes FROM laneway.run_definition WHERE seq = $1";
    let Some(row) = session.row(sql, vec![number(first.0)])? else { return Ok(None) };
    Ok(Some(Bytes::from(row.get_ref(0)?.as_blob()?)))
}

/// A run's state changed.
pub(super) fn move_on(first: Seq, state: RunState, finished_at: Option<Wall>, script: &mut Script<'_>) {
    let sql = "UPDATE laneway.run SET state = $2, finished_at = $3 WHERE first = $1";
    script.exactly(1, "run", sql, vec![number(first.0), int(state.code()), opt_wall(finished_at)]);
}

/// Visits every open run, with those of its members that have ended.
pub(super) fn load(session: &Session, visit: &mut dyn FnMut(Loaded)) -> Result<(), ReadError> {
    let sql = format!("SELECT {RUN} FROM laneway.run WHERE finished_at IS NULL ORDER BY first");
    let runs = session.rows(&sql, vec![])?;
    let sql = "SELECT done.seq, job.id, done.state, done.attempts, done.finished_at \
               FROM laneway.run JOIN laneway.done ON done.seq BETWEEN run.first AND run.first + run.members - 1 \
               JOIN laneway.job ON job.seq = done.seq WHERE run.finished_at IS NULL ORDER BY done.seq";
    let rows = if runs.is_empty() { Vec::new() } else { session.rows(sql, vec![])? };
    let mut members = Vec::new();
    for row in &rows {
        members.push(EndedMember {
            seq: Seq(number_at(row, 0)?),
            job: stored_job_id(row.get_ref(1)?.as_blob()?)?,
            state: stored_state(small(row, 2)?)?,
            attempts: small(row, 3)?,
            finished_at: Wall(row.get_ref(4)?.as_i64()?),
        });
    }
    let mut members = members.into_iter().peekable();
    for row in &runs {
        let run = read_run(row)?;
        let seqs = run.seqs();
        let mut ended = Vec::new();
        while let Some(member) = members.next_if(|member| member.seq.0 < seqs.end) {
            ended.push(member);
        }
        visit(Loaded::OpenRun(Box::new(run), ended));
    }
    Ok(())
}

/// Stores the latest call of a node.
pub(super) fn put_call<'a>(row: &'a CallRow, script: &mut Script<'a>) {
    let CallRow { target, caller, request, called_at, after, until, payload, answer, result } = row;
    let (answered, failure) = match answer {
        None => (0, None),
        Some(NextAnswer::Done(_)) => (1, None),
        Some(NextAnswer::Failed(code, message)) => (2, Some((code.code(), message))),
    };
    let changed: Vec<String> =
        CALL.split(", ").skip(1).map(|column| format!("{column} = excluded.{column}")).collect();
    let sql = format!(
        "INSERT INTO laneway.run_call ({CALL}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14) \
         ON CONFLICT (target) DO UPDATE SET {}",
        changed.join(", ")
    );
    script.any(
        "run_call",
        sql,
        vec![
            number(target.0),
            id(caller.job.0),
            int(caller.attempt),
            id(caller.attempt_id.0),
            int(caller.lease_epoch),
            name(request),
            opt_wall(*until),
            int(answered),
            opt_int(failure.map(|(code, _)| code)),
            opt_text(failure.map(|(_, message)| message.as_ref())),
            opt_blob(result.as_deref()),
            int(called_at.0),
            int(*after),
            opt_blob(payload.as_deref()),
        ],
    );
}

/// Visits the latest call of every node of an open run that was called.
pub(super) fn load_calls(session: &Session, visit: &mut dyn FnMut(Loaded)) -> Result<(), ReadError> {
    let sql = format!(
        "SELECT {} FROM laneway.run JOIN laneway.run_call ON target BETWEEN first AND first + members - 1 \
         WHERE finished_at IS NULL ORDER BY target",
        super::cells::of_table("run_call", CALL)
    );
    for row in session.rows(&sql, vec![])? {
        visit(Loaded::Call(Box::new(read_call(&row)?)));
    }
    Ok(())
}

/// The payload of the call that a node works on.
pub(super) fn call_payload(session: &Session, node: Seq) -> Result<Option<Bytes>, ReadError> {
    let sql = "SELECT payload FROM laneway.run_call WHERE target = $1";
    let Some(row) = session.row(sql, vec![number(node.0)])? else { return Ok(None) };
    Ok(row.get_ref(0)?.as_blob_or_null()?.map(Bytes::from))
}

/// What idempotency keys of runs stand for, in the order of the keys.
pub(super) fn priors(session: &Session, keys: &[(&Name, &Name)]) -> Result<Vec<Option<PriorRun>>, ReadError> {
    by_key(session, "run", "id, digest", keys, |row| {
        let run = stored_run_id(row.get_ref(1)?.as_blob()?)?;
        Ok(PriorRun { run, digest: stored_digest(row.get_ref(2)?.as_blob()?)? })
    })
}

/// One run.
pub(super) fn find(session: &Session, run: RunId) -> Result<Option<RunRow>, ReadError> {
    let sql = format!("SELECT {RUN} FROM laneway.run WHERE id = $1");
    Ok(session.row(&sql, vec![id(run.0)])?.map(|row| read_run(&row)).transpose()?)
}

/// Runs, newest first.
pub(super) fn list(
    session: &Session,
    filter: &RunFilter,
    before: Option<Seq>,
    limit: usize,
) -> Result<Page<RunRow>, ReadError> {
    let (wanted, params) = match &filter.tenant {
        Some(tenant) => ("tenant = $3 AND ", vec![name(tenant)]),
        None => ("", vec![]),
    };
    let sql = format!("SELECT {RUN} FROM laneway.run WHERE {wanted}first < $1 ORDER BY first DESC LIMIT $2");
    newest_first(session, (&sql, params), before, limit, |row| {
        Ok(Some(read_run(row)?).filter(|row| filter.matches(row)))
    })
}

/// Deletes ended runs of a lane with all their jobs, those that ended first first.
pub(super) fn prune<'a>(prune: &JobPrune<'a>, script: &mut Script<'a>) {
    let keyed_before = prune.finished_before.min(prune.keyed_finished_before);
    let mut sql = String::from(
        "WITH ended AS (SELECT first, members, finished_at FROM laneway.run \
         WHERE lane = $1 AND finished_at < $2 AND (key IS NULL OR finished_at < $3) \
         AND NOT EXISTS (SELECT 1 FROM laneway.open_attempt WHERE seq BETWEEN first AND first + members - 1) \
         AND NOT EXISTS (SELECT 1 FROM laneway.delivery \
         WHERE seq BETWEEN first AND first + members - 1 AND delivery.state = 0) \
         ORDER BY finished_at, first LIMIT $4), \
         due AS MATERIALIZED (SELECT first, first + members - 1 AS last FROM \
         (SELECT first, members, sum(members) OVER (ORDER BY finished_at, first) - members AS before FROM ended) AS ranked \
         WHERE before < $4), \
         run_call_gone AS (DELETE FROM laneway.run_call USING due WHERE target BETWEEN due.first AND due.last)",
    );
    for table in ["job", "payload", "attempt", "log", "delivery", "delivery_try", "done", "run_definition"] {
        sql.push_str(&format!(
            ", {table}_gone AS (DELETE FROM laneway.{table} USING due WHERE {table}.seq BETWEEN due.first AND due.last)"
        ));
    }
    sql.push_str(" DELETE FROM laneway.run USING due WHERE run.first = due.first");
    let params: Vec<Param<'a>> =
        vec![name(prune.lane), int(prune.finished_before.0), int(keyed_before.0), int(prune.max)];
    script.any("run", sql, params);
}
