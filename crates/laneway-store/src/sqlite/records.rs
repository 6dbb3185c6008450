//! Records: one row each, replaced and deleted by version.

use laneway_core::{Bytes, Record, RecordName, Wall};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, params};

use super::commit::{bind, rejected};
use crate::columns::number;
use crate::rows::stored_name;
use crate::sums::{check_sum, sum_of};
use crate::{Loaded, StoreError};

/// The columns of a record that are in its checksum: all but the checksum.
const SUMMED: std::ops::Range<usize> = 0..7;

/// Stores a record in place of the one with the version `replaces`; `None`: there must be none.
pub(super) fn put(conn: &Connection, record: &Record, replaces: Option<u64>) -> Result<(), StoreError> {
    let Record { name, version, body, created_at, updated_at } = record;
    let RecordName { tenant, collection, id } = name;
    let sum = sum_of([
        ValueRef::Text(tenant.as_str().as_bytes()),
        ValueRef::Text(collection.as_str().as_bytes()),
        ValueRef::Text(id.as_str().as_bytes()),
        ValueRef::Integer(version.cast_signed()),
        ValueRef::Blob(body),
        ValueRef::Integer(created_at.0),
        ValueRef::Integer(updated_at.0),
    ]);
    let sql = match replaces {
        None => {
            "INSERT INTO record (tenant, collection, id, version, body, created_at, updated_at, sum) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT DO NOTHING"
        }
        Some(_) => {
            "UPDATE record SET version = ?4, body = ?5, created_at = ?6, updated_at = ?7, sum = ?8 \
             WHERE tenant = ?1 AND collection = ?2 AND id = ?3 AND version = ?9"
        }
    };
    let mut put = conn.prepare_cached(sql)?;
    let row = params![
        tenant.as_str(),
        collection.as_str(),
        id.as_str(),
        version.cast_signed(),
        &body[..],
        created_at.0,
        updated_at.0,
        sum,
    ];
    bind(&mut put, 1, row)?;
    if let Some(replaces) = replaces {
        put.raw_bind_parameter(9, replaces.cast_signed())?;
    }
    let written = put.raw_execute().map_err(|error| rejected(error, || format!("record {name}")))?;
    one_row(written, name, replaces)
}

/// Deletes the record with this version.
pub(super) fn delete(conn: &Connection, name: &RecordName, version: u64) -> Result<(), StoreError> {
    let RecordName { tenant, collection, id } = name;
    let mut delete = conn.prepare_cached(
        "DELETE FROM record WHERE tenant = ?1 AND collection = ?2 AND id = ?3 AND version = ?4",
    )?;
    let row = params![tenant.as_str(), collection.as_str(), id.as_str(), version.cast_signed()];
    one_row(delete.execute(row)?, name, Some(version))
}

fn one_row(count: usize, name: &RecordName, expected: Option<u64>) -> Result<(), StoreError> {
    if count == 1 {
        return Ok(());
    }
    Err(StoreError::Disagree(format!("record {name} of {} does not have version {expected:?}", name.tenant)))
}

/// Visits every record.
pub(super) fn load(conn: &Connection, visit: &mut dyn FnMut(Loaded)) -> Result<(), StoreError> {
    let mut select = conn.prepare(
        "SELECT tenant, collection, id, version, body, created_at, updated_at, sum FROM record \
         ORDER BY tenant, collection, id",
    )?;
    let mut rows = select.query([])?;
    while let Some(row) = rows.next()? {
        let text = |column: usize| stored_name(row.get_ref(column)?.as_str()?);
        let name = RecordName { tenant: text(0)?, collection: text(1)?, id: text(2)? };
        check_sum(row, SUMMED, SUMMED.end).map_err(|error| match error {
            StoreError::Damaged(why) => StoreError::Damaged(format!("record {name}: {why}")),
            other => other,
        })?;
        visit(Loaded::Record(Record {
            name,
            version: number(row, 3)?,
            body: Bytes::from(row.get_ref(4)?.as_blob()?),
            created_at: Wall(row.get_ref(5)?.as_i64()?),
            updated_at: Wall(row.get_ref(6)?.as_i64()?),
        }));
    }
    Ok(())
}
