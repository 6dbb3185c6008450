//! Records: one row each, replaced and deleted by version.

use laneway_core::{Bytes, Record, RecordName, Wall};
use rusqlite::types::ValueRef;

use super::cells::{blob, int, name, number};
use super::script::Script;
use super::session::{ReadError, Session};
use crate::columns::{Columns, number as number_at};
use crate::rows::stored_name;
use crate::sums::{check_sum, sum_of};
use crate::{Loaded, StoreError};

/// The columns of a record that are in its checksum: all but the checksum.
const SUMMED: std::ops::Range<usize> = 0..7;

/// Stores a record in place of the one with the version `replaces`; `None`: there must be none.
pub(super) fn put<'a>(record: &'a Record, replaces: Option<u64>, script: &mut Script<'a>) {
    let Record { name: record_name, version, body, created_at, updated_at } = record;
    let RecordName { tenant, collection, id } = record_name;
    let sum = sum_of([
        ValueRef::Text(tenant.as_str().as_bytes()),
        ValueRef::Text(collection.as_str().as_bytes()),
        ValueRef::Text(id.as_str().as_bytes()),
        ValueRef::Integer(version.cast_signed()),
        ValueRef::Blob(body),
        ValueRef::Integer(created_at.0),
        ValueRef::Integer(updated_at.0),
    ]);
    let mut params = vec![
        name(tenant),
        name(collection),
        name(id),
        number(*version),
        blob(body),
        int(created_at.0),
        int(updated_at.0),
        int(sum),
    ];
    let sql = match replaces {
        None => {
            "INSERT INTO laneway.record (tenant, collection, id, version, body, created_at, updated_at, sum) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT DO NOTHING"
        }
        Some(replaces) => {
            params.push(number(replaces));
            "UPDATE laneway.record SET version = $4, body = $5, created_at = $6, updated_at = $7, sum = $8 \
             WHERE tenant = $1 AND collection = $2 AND id = $3 AND version = $9"
        }
    };
    script.exactly(1, "record", sql, params);
}

/// Deletes the record with this version.
pub(super) fn delete<'a>(record: &'a RecordName, version: u64, script: &mut Script<'a>) {
    let RecordName { tenant, collection, id } = record;
    script.exactly(
        1,
        "record",
        "DELETE FROM laneway.record WHERE tenant = $1 AND collection = $2 AND id = $3 AND version = $4",
        vec![name(tenant), name(collection), name(id), number(version)],
    );
}

/// Visits every record.
pub(super) fn load(session: &Session, visit: &mut dyn FnMut(Loaded)) -> Result<(), ReadError> {
    let sql = "SELECT tenant, collection, id, version, body, created_at, updated_at, sum FROM laneway.record \
               ORDER BY tenant, collection, id";
    for row in session.rows(sql, vec![])? {
        let text = |column: usize| stored_name(row.get_ref(column)?.as_str()?);
        let name = RecordName { tenant: text(0)?, collection: text(1)?, id: text(2)? };
        check_sum(&row, SUMMED, SUMMED.end).map_err(|error| match error {
            StoreError::Damaged(why) => StoreError::Damaged(format!("record {name}: {why}")),
            other => other,
        })?;
        visit(Loaded::Record(Record {
            name,
            version: number_at(&row, 3)?,
            body: Bytes::from(row.get_ref(4)?.as_blob()?),
            created_at: Wall(row.get_ref(5)?.as_i64()?),
            updated_at: Wall(row.get_ref(6)?.as_i64()?),
        }));
    }
    Ok(())
}
