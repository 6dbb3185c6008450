//! The inbox: jobs that applications submit in transactions of their own.
//!
//! A trigger notifies the server, but only while the server says that it waits: a notification at every commit would limit how many
//! transactions the database commits. What is missed so is found by polling.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::cells::{Param, int, number};
use super::open::{cannot_connect, cannot_open, check_tables};
use super::session::{ReadError, Server, Session};
use super::url::Target;
use crate::StoreError;
use crate::columns::Columns;

/// How long a rejected row is kept, in days.
const REJECTED_DAYS: i64 = 30;

/// A row that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InboxRow {
    /// Its number.
    pub number: i64,
    /// The tenant of the job.
    pub tenant: String,
    /// The idempotency key, unless the request has its own.
    pub key: String,
    /// The request, as JSON.
    pub request: String,
}

/// A row that was rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RejectedRow {
    /// Its number.
    pub number: i64,
    /// The code of the error.
    pub code: String,
    /// What was wrong, and the remedy.
    pub reason: String,
}

/// The inbox of a database.
pub struct Inbox {
    server: Server,
    /// The connection that gets notifications.
    listener: Option<Session>,
    bell: Arc<Bell>,
    /// True: the trigger notifies.
    listening: bool,
}

impl Inbox {
    /// Opens the inbox of a database whose tables are there.
    pub fn open(url: &str) -> Result<Inbox, StoreError> {
        let server = Server::new(Target::parse(url)?)?;
        let session = server.connect().map_err(|failure| cannot_connect(&server.target, &failure))?;
        check_tables(&session).map_err(|error| cannot_open(&server.target, error))?;
        Ok(Inbox { server, listener: None, bell: Arc::default(), listening: false })
    }

    /// Ends [`Inbox::wait`].
    pub fn bell(&self) -> Arc<Bell> {
        Arc::clone(&self.bell)
    }

    /// The first rows that wait after a number.
    pub fn waiting(&self, after: i64, limit: usize) -> Result<Vec<InboxRow>, StoreError> {
        self.server.read(|session| {
            let sql = "SELECT number, tenant, key, request FROM laneway.inbox WHERE rejected_at IS NULL AND number > $1 \
                       ORDER BY number LIMIT $2";
            let rows = session.rows(sql, vec![int(after), int(limit as i64)])?;
            let row = |row: &tokio_postgres::Row| -> Result<InboxRow, ReadError> {
                let text = |column| Ok::<_, ReadError>(row.get_ref(column)?.as_str()?.to_owned());
                Ok(InboxRow { number: row.get_ref(0)?.as_i64()?, tenant: text(1)?, key: text(2)?, request: text(3)? })
            };
            rows.iter().map(row).collect()
        })
    }

    /// Removes rows whose jobs are stored, and marks rows that were rejected.
    pub fn settle(&self, stored: &[i64], rejected: &[RejectedRow]) -> Result<(), StoreError> {
        if !stored.is_empty() {
            self.server.read(|session| {
                let numbers = Param::Ints(stored.iter().map(|number| Some(*number)).collect());
                session.rows("DELETE FROM laneway.inbox WHERE number = ANY($1)", vec![numbers])?;
                Ok(())
            })?;
        }
        for RejectedRow { number, code, reason } in rejected {
            self.server.read(|session| {
                let sql =
                    "UPDATE laneway.inbox SET rejected_at = now(), code = $2, reason = $3 WHERE number = $1";
                session
                    .rows(sql, vec![int(*number), super::cells::text(code), super::cells::text(reason)])?;
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Removes rejected rows that are too old.
    pub fn prune(&self) -> Result<(), StoreError> {
        self.server.read(|session| {
            let sql = "DELETE FROM laneway.inbox WHERE rejected_at < now() - $1 * interval '1 day'";
            session.rows(sql, vec![number(REJECTED_DAYS.unsigned_abs())])?;
            Ok(())
        })
    }

    /// Waits until rows are submitted, the bell rings, or `limit` has passed.
    pub fn wait(&mut self, limit: Duration) -> Result<(), StoreError> {
        if self.listener.as_ref().is_none_or(Session::is_closed) {
            let session = self.server.connect_with(Some(Arc::clone(&self.bell)))?;
            session.batch("LISTEN laneway_inbox")?;
            (self.listener, self.listening) = (Some(session), false);
        }
        if !self.listening {
            self.listen(true)?;
            // Rows that came before the trigger notified.
            if !self.waiting(0, 1)?.is_empty() {
                return self.listen(false);
            }
        }
        if self.bell.wait(limit) {
            self.listen(false)?;
        }
        Ok(())
    }

    fn listen(&mut self, listening: bool) -> Result<(), StoreError> {
        self.server.read(|session| {
            let sql = "UPDATE laneway.inbox_state SET listening = ($1 = 1) WHERE listening <> ($1 = 1)";
            session.rows(sql, vec![int(i64::from(listening))])?;
            Ok(())
        })?;
        self.listening = listening;
        Ok(())
    }
}

/// Wakes a thread that waits for notifications.
#[derive(Debug, Default)]
pub struct Bell {
    rung: Mutex<bool>,
    changed: Condvar,
}

impl Bell {
    /// Wakes the thread, now or when it waits next.
    pub fn ring(&self) {
        *self.rung.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }

    /// True: it was rung. False: the time has passed.
    fn wait(&self, limit: Duration) -> bool {
        let until = Instant::now() + limit;
        let mut rung = self.rung.lock().unwrap_or_else(PoisonError::into_inner);
        while !*rung {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            rung = self.changed.wait_timeout(rung, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        std::mem::take(&mut *rung)
    }
}
