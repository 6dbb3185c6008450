//! The domain: which server may write.

use super::cells::{blob, number as number_of, text};
use super::session::{ReadError, Session, Statement};
use crate::columns::{Columns, number};
use crate::{Epoch, StoreError};

/// The fence of a writer: every transaction compares it with the row of the domain.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ownership {
    pub epoch: Epoch,
    nonce: [u8; 16],
}

/// The first statement of every transaction that writes. The lock lasts until the transaction ends: no other server can take the
/// domain over in between.
const CHECK: &str = "SELECT epoch, nonce FROM laneway.domain WHERE name = 'default' FOR SHARE";

impl Ownership {
    /// Takes the domain over. From now on, transactions of earlier epochs are fenced.
    pub fn take(session: &Session) -> Result<Ownership, ReadError> {
        let mut nonce = [0; 16];
        getrandom::fill(&mut nonce)
            .map_err(|error| StoreError::Failed(format!("the system has no random numbers: {error}")))?;
        let owner = format!("process {}", std::process::id());
        let sql = "UPDATE laneway.domain SET epoch = epoch + 1, nonce = $1, owner = $2, renewed_at = now(), free = false \
                   WHERE name = 'default' RETURNING epoch";
        let row = session.row(sql, vec![blob(&nonce), text(&owner)])?;
        let row = row.ok_or_else(|| StoreError::Damaged("table domain has no row".into()))?;
        Ok(Ownership { epoch: Epoch(number(&row, 0)?), nonce })
    }

    /// The check, as a statement.
    pub fn check() -> Statement<'static> {
        Statement::new(CHECK, vec![])
    }

    /// Compares with what the check returned.
    pub fn compare(&self, row: Option<&impl Columns>) -> Result<(), StoreError> {
        let row = row.ok_or_else(|| StoreError::Damaged("table domain has no row".into()))?;
        let stored = Epoch(number(row, 0)?);
        if stored != self.epoch || row.get_ref(1)?.as_blob()? != self.nonce {
            return Err(StoreError::Fenced { given: self.epoch, stored });
        }
        Ok(())
    }

    /// Gives the domain back, if it is still this writer's.
    pub fn give_back(&self, session: &Session) -> Result<(), ReadError> {
        let sql = "UPDATE laneway.domain SET free = true WHERE name = 'default' AND epoch = $1 AND nonce = $2 RETURNING 1";
        session.rows(sql, vec![number_of(self.epoch.0), blob(&self.nonce)])?;
        Ok(())
    }
}
