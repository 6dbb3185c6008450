//! The epoch of the store: which opening may write.

use rusqlite::Connection;

use super::row_sums::SERVER_STATE;
use crate::{Epoch, StoreError};

/// Takes the next epoch. From the end of the transaction on, commits of earlier ones are fenced.
pub(super) fn take_next(transaction: &Connection) -> Result<Epoch, StoreError> {
    let sql =
        format!("UPDATE server_state SET epoch = epoch + 1 WHERE {} RETURNING epoch", SERVER_STATE.check);
    let epoch = transaction.query_row(&sql, [], |row| row.get::<_, i64>(0))?;
    Ok(Epoch(epoch.cast_unsigned()))
}
