//! Webhook deliveries and the tries at them: written by the commit, read at a start and for lists.

use laneway_core::{DeliveryRow, DeliveryTry, JobId, Seq, Span, Wall};
use rusqlite::{Connection, params};

use super::pages::newest_first;
use super::row_sums;
use crate::batch::Batch;
use crate::columns::deliveries::{DELIVERY, optional_small, read_delivery};
use crate::columns::{number, small};
use crate::{DeliveryFilter, Loaded, Page, StoreError};

/// Stores deliveries and tries of a batch. Those of a deleted job are not stored, because nothing could find them.
pub(super) fn write(conn: &Connection, batch: &Batch<'_>) -> Result<(), StoreError> {
    if !batch.deliveries.is_empty() {
        let mut put = conn.prepare_cached(&format!(
            "INSERT OR REPLACE INTO delivery ({DELIVERY}) \
             SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11 WHERE EXISTS (SELECT 1 FROM job WHERE job.seq = ?1)"
        ))?;
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
            put.execute(params![
                seq.0.cast_signed(),
                &job.0.to_be_bytes()[..],
                tenant.as_str(),
                state.code(),
                tries,
                next_at.map(|at| at.0),
                created_at.0,
                ended_at.map(|at| at.0),
                last_status,
                last_error.as_deref(),
                &**host,
            ])?;
        }
    }
    if !batch.tries.is_empty() {
        let mut put = conn.prepare_cached(
            "INSERT OR REPLACE INTO delivery_try (seq, number, at, took_ms, status, error) \
             SELECT ?1, ?2, ?3, ?4, ?5, ?6 WHERE EXISTS (SELECT 1 FROM job WHERE job.seq = ?1)",
        )?;
        for tried in &batch.tries {
            let DeliveryTry { seq, number, at, took, status, error } = *tried;
            put.execute(params![
                seq.0.cast_signed(),
                number,
                at.0,
                took.0.cast_signed(),
                status,
                error.as_deref(),
            ])?;
        }
    }
    Ok(())
}

/// Visits every waiting delivery.
pub(super) fn load(conn: &Connection, visit: &mut dyn FnMut(Loaded)) -> Result<(), StoreError> {
    let sql =
        format!("SELECT {DELIVERY}, {} FROM delivery WHERE state = 0 ORDER BY seq", row_sums::DELIVERY.check);
    let mut select = conn.prepare(&sql)?;
    let mut rows = select.query([])?;
    while let Some(row) = rows.next()? {
        visit(Loaded::Delivery(read_delivery(row)?));
    }
    Ok(())
}

/// The delivery of a job.
pub(super) fn find(conn: &Connection, job: JobId) -> Result<Option<DeliveryRow>, StoreError> {
    let mut select = conn.prepare_cached(&format!(
        "SELECT {DELIVERY}, {} FROM delivery WHERE seq = (SELECT job.seq FROM job WHERE job.id = ?1)",
        row_sums::DELIVERY.check
    ))?;
    let mut rows = select.query([&job.0.to_be_bytes()[..]])?;
    rows.next()?.map(read_delivery).transpose()
}

/// Deliveries, newest job first.
pub(super) fn list(
    conn: &Connection,
    filter: &DeliveryFilter,
    before: Option<Seq>,
    limit: usize,
) -> Result<Page<DeliveryRow>, StoreError> {
    if let Some(job) = filter.job {
        let items = find(conn, job)?.filter(|row| filter.matches(row)).into_iter().collect();
        return Ok(Page { items, next: None });
    }
    let sql = format!(
        "SELECT {DELIVERY}, {} FROM delivery WHERE seq < ?1 ORDER BY seq DESC",
        row_sums::DELIVERY.check
    );
    newest_first(conn, &sql, before, limit, |row| {
        Ok(Some(read_delivery(row)?).filter(|row| filter.matches(row)))
    })
}

/// Tries at the delivery of a job, oldest first.
pub(super) fn tries(conn: &Connection, job: Seq) -> Result<Vec<DeliveryTry>, StoreError> {
    let mut select = conn.prepare_cached(&format!(
        "SELECT number, at, took_ms, status, error, {} FROM delivery_try WHERE seq = ?1 ORDER BY number",
        row_sums::DELIVERY_TRY.check
    ))?;
    let mut rows = select.query([job.0.cast_signed()])?;
    let mut tries = Vec::new();
    while let Some(row) = rows.next()? {
        tries.push(DeliveryTry {
            seq: job,
            number: small(row, 0)?,
            at: Wall(row.get_ref(1)?.as_i64()?),
            took: Span(number(row, 2)?),
            status: optional_small(row, 3)?,
            error: row.get_ref(4)?.as_str_or_null()?.map(Into::into),
        });
    }
    Ok(tries)
}
