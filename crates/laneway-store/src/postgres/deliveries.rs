//! Webhook deliveries and the tries at them.

use laneway_core::{DeliveryRow, DeliveryTry, JobId, Seq, Span, Wall};

use super::cells::{Rows, id, int, name, number, opt_int, opt_text, opt_wall, text};
use super::pages::newest_first;
use super::script::Script;
use super::session::{ReadError, Session};
use crate::batch::Batch;
use crate::columns::deliveries::{DELIVERY, optional_small, read_delivery};
use crate::columns::{Columns, number as number_at, small};
use crate::{DeliveryFilter, Loaded, Page};

/// Stores deliveries and tries of a batch. Those of a deleted job are not stored, because nothing could find them.
pub(super) fn write<'a>(batch: &Batch<'a>, script: &mut Script<'a>) {
    let mut rows = Rows::default();
    for row in &batch.deliveries {
        let DeliveryRow {
            seq,
            job,
            tenant,
            host,
            state,
            tries,
            next_at,
            created_at,
            ended_at,
            last_status,
            last_error,
        } = *row;
        rows.push([
            number(seq.0),
            id(job.0),
            name(tenant),
            int(state.code()),
            int(*tries),
            opt_wall(*next_at),
            int(created_at.0),
            opt_wall(*ended_at),
            opt_int(*last_status),
            opt_text(last_error.as_deref()),
            text(host),
        ]);
    }
    if !rows.is_empty() {
        let sql = format!(
            "INSERT INTO laneway.delivery ({DELIVERY}) SELECT * FROM {} AS rows (c1) \
             WHERE EXISTS (SELECT 1 FROM laneway.job WHERE job.seq = c1) \
             ON CONFLICT (seq) DO UPDATE SET job = excluded.job, tenant = excluded.tenant, state = excluded.state, \
             tries = excluded.tries, next_at = excluded.next_at, created_at = excluded.created_at, \
             ended_at = excluded.ended_at, last_status = excluded.last_status, last_error = excluded.last_error, \
             host = excluded.host",
            rows.unnest()
        );
        script.any("delivery", sql, rows.into_params());
    }
    write_tries(batch, script);
}

fn write_tries<'a>(batch: &Batch<'a>, script: &mut Script<'a>) {
    // One statement must not write a row twice: the last one counts.
    let mut last: std::collections::BTreeMap<(u64, u32), &DeliveryTry> = std::collections::BTreeMap::new();
    for tried in &batch.tries {
        last.insert((tried.seq.0, tried.number), tried);
    }
    let mut rows = Rows::default();
    for tried in last.into_values() {
        let DeliveryTry { seq, number: try_number, at, took, status, error } = tried;
        rows.push([
            number(seq.0),
            int(*try_number),
            int(at.0),
            number(took.0),
            opt_int(*status),
            opt_text(error.as_deref()),
        ]);
    }
    if !rows.is_empty() {
        let sql = format!(
            "INSERT INTO laneway.delivery_try (seq, number, at, took_ms, status, error) SELECT * FROM {} AS rows (c1) \
             WHERE EXISTS (SELECT 1 FROM laneway.job WHERE job.seq = c1) \
             ON CONFLICT (seq, number) DO UPDATE SET at = excluded.at, took_ms = excluded.took_ms, \
             status = excluded.status, error = excluded.error",
            rows.unnest()
        );
        script.any("delivery_try", sql, rows.into_params());
    }
}

/// Visits every waiting delivery.
pub(super) fn load(session: &Session, visit: &mut dyn FnMut(Loaded)) -> Result<(), ReadError> {
    let sql = format!("SELECT {DELIVERY} FROM laneway.delivery WHERE state = 0 ORDER BY seq");
    for row in session.rows(&sql, vec![])? {
        visit(Loaded::Delivery(read_delivery(&row)?));
    }
    Ok(())
}

/// The delivery of a job.
pub(super) fn find(session: &Session, job: JobId) -> Result<Option<DeliveryRow>, ReadError> {
    let sql = format!(
        "SELECT {DELIVERY} FROM laneway.delivery WHERE seq = (SELECT job.seq FROM laneway.job WHERE job.id = $1)"
    );
    Ok(session.row(&sql, vec![id(job.0)])?.map(|row| read_delivery(&row)).transpose()?)
}

/// Deliveries, newest job first.
pub(super) fn list(
    session: &Session,
    filter: &DeliveryFilter,
    before: Option<Seq>,
    limit: usize,
) -> Result<Page<DeliveryRow>, ReadError> {
    if let Some(job) = filter.job {
        let items = find(session, job)?.filter(|row| filter.matches(row)).into_iter().collect();
        return Ok(Page { items, next: None });
    }
    let (wanted, params) = match (&filter.state, &filter.tenant) {
        (Some(state), _) => ("state = $3 AND ", vec![int(state.code())]),
        (None, Some(tenant)) => ("tenant = $3 AND ", vec![name(tenant)]),
        (None, None) => ("", vec![]),
    };
    let sql =
        format!("SELECT {DELIVERY} FROM laneway.delivery WHERE {wanted}seq < $1 ORDER BY seq DESC LIMIT $2");
    newest_first(session, (&sql, params), before, limit, |row| {
        Ok(Some(read_delivery(row)?).filter(|row| filter.matches(row)))
    })
}

/// Tries at the delivery of a job, oldest first.
pub(super) fn tries(session: &Session, job: Seq) -> Result<Vec<DeliveryTry>, ReadError> {
    let sql =
        "SELECT number, at, took_ms, status, error FROM laneway.delivery_try WHERE seq = $1 ORDER BY number";
    let mut tries = Vec::new();
    for row in session.rows(sql, vec![number(job.0)])? {
        tries.push(DeliveryTry {
            seq: job,
            number: small(&row, 0)?,
            at: Wall(row.get_ref(1)?.as_i64()?),
            took: Span(number_at(&row, 2)?),
            status: optional_small(&row, 3)?,
            error: row.get_ref(4)?.as_str_or_null()?.map(Into::into),
        });
    }
    Ok(tries)
}
