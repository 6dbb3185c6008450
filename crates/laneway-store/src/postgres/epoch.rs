//! The fence of a domain: which server may write.

use std::sync::Arc;

use super::cells::{blob, int, number as number_of, opt_blob, text};
use super::session::{ReadError, Session, Statement};
use super::tenure::{Domain, Nonce, Tenure};
use crate::columns::{Columns, number};
use crate::{Epoch, StoreError};

/// The fence of a writer: every transaction compares it with the row of the domain.
#[derive(Clone, Debug)]
pub(super) struct Ownership {
    pub epoch: Epoch,
    domain: Domain,
    nonce: Nonce,
    /// How long it lasts by the clock of this process. `None`: until another server takes the domain over.
    tenure: Option<Arc<Tenure>>,
}

/// The first statement of every transaction that writes. The lock lasts until the transaction ends: no other server can take the
/// domain over in between. A weaker lock, FOR KEY SHARE, would not keep it from doing so.
const CHECK: &str = "SELECT epoch, nonce FROM laneway.domain WHERE name = $1 FOR SHARE";

/// Takes a domain over, if that is allowed: the fence last, because it waits for transactions of the owner before.
const TAKE: &str = "WITH lease AS (\
     UPDATE laneway.tenure SET epoch = epoch + 1, nonce = $2, node = $3, since = clock_timestamp(), free = false, \
       expires_at = clock_timestamp() + $4 * interval '1 millisecond' \
     WHERE domain = $1 AND ($5 = 1 OR free OR expires_at < clock_timestamp()) RETURNING epoch) \
     UPDATE laneway.domain SET epoch = lease.epoch, nonce = $2 FROM lease WHERE name = $1 RETURNING lease.epoch";

/// Who takes a domain over.
pub(super) struct Taking<'a> {
    pub domain: &'a Domain,
    /// `None`: no node.
    pub node: Option<&'a [u8]>,
    pub ttl_ms: u64,
    /// True: also from an owner that renews it.
    pub by_force: bool,
}

/// Takes a domain over, unless another server owns it. From now on, transactions of earlier epochs are fenced.
pub(super) fn take(session: &Session, taking: &Taking<'_>) -> Result<Option<(Epoch, Nonce)>, ReadError> {
    let Taking { domain, node, ttl_ms, by_force } = taking;
    let mut nonce = Nonce::default();
    getrandom::fill(&mut nonce)
        .map_err(|error| StoreError::Failed(format!("the system has no random numbers: {error}")))?;
    let params = vec![
        text(domain.as_str()),
        blob(&nonce),
        opt_blob(*node),
        number_of(*ttl_ms),
        int(i64::from(*by_force)),
    ];
    match session.row(TAKE, params)? {
        None => Ok(None),
        Some(row) => Ok(Some((Epoch(number(&row, 0)?), nonce))),
    }
}

impl Ownership {
    /// Takes the main domain over, also from a server that still writes.
    pub fn take(session: &Session) -> Result<Ownership, ReadError> {
        let domain = Domain::main();
        let taken = take(session, &Taking { domain: &domain, node: None, ttl_ms: 0, by_force: true })?;
        let (epoch, nonce) = taken.ok_or_else(missing)?;
        Ok(Ownership { epoch, domain, nonce, tenure: None })
    }

    /// The fence of a node that owns a domain.
    pub fn of(tenure: Arc<Tenure>) -> Ownership {
        let (epoch, domain, nonce) = (tenure.epoch(), tenure.domain().clone(), *tenure.nonce());
        Ownership { epoch, domain, nonce, tenure: Some(tenure) }
    }

    /// The check, as a statement.
    pub fn check(&self) -> Statement<'_> {
        Statement::new(CHECK, vec![text(self.domain.as_str())])
    }

    /// Compares with what the check returned.
    pub fn compare(&self, row: Option<&impl Columns>) -> Result<(), StoreError> {
        let row = row.ok_or_else(missing)?;
        let stored = Epoch(number(row, 0)?);
        if stored != self.epoch || row.get_ref(1)?.as_blob()? != self.nonce {
            return Err(StoreError::Fenced { given: self.epoch, stored });
        }
        Ok(())
    }

    /// Compares with the row of the domain, without a lock.
    pub fn look(&self, session: &Session) -> Result<(), ReadError> {
        let sql = "SELECT epoch, nonce FROM laneway.domain WHERE name = $1";
        Ok(self.compare(session.row(sql, vec![text(self.domain.as_str())])?.as_ref())?)
    }

    /// Does it last, by the clock of this process?
    pub fn check_time(&self) -> Result<(), StoreError> {
        self.tenure.as_ref().map_or(Ok(()), |tenure| tenure.check())
    }

    /// How long it lasts.
    pub fn tenure(&self) -> Option<&Arc<Tenure>> {
        self.tenure.as_ref()
    }

    /// Gives the domain back, if it is still this writer's. Another server may take it over at once.
    pub fn give_back(&self, session: &Session) -> Result<(), ReadError> {
        if let Some(tenure) = &self.tenure {
            tenure.end();
        }
        let sql = "UPDATE laneway.tenure SET free = true WHERE domain = $1 AND epoch = $2 AND nonce = $3 RETURNING 1";
        session.rows(sql, vec![text(self.domain.as_str()), number_of(self.epoch.0), blob(&self.nonce)])?;
        Ok(())
    }
}

fn missing() -> StoreError {
    StoreError::Damaged("table domain or tenure has no row of the domain".into())
}
