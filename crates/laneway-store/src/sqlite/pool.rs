//! A few read-only connections, opened when first needed, shared among threads.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use rusqlite::Connection;

use crate::StoreError;

/// Lends connections. A caller that finds none waits for one.
pub(super) struct Pool {
    open: Box<dyn Fn() -> Result<Connection, StoreError> + Send + Sync>,
    most: usize,
    state: Mutex<State>,
    returned: Condvar,
}

#[derive(Default)]
struct State {
    idle: Vec<Connection>,
    /// How many connections there are, idle or lent.
    count: usize,
}

impl Pool {
    /// A pool of at most `most` connections (at least one) that `open` makes.
    pub fn new(
        most: usize,
        open: impl Fn() -> Result<Connection, StoreError> + Send + Sync + 'static,
    ) -> Pool {
        Pool { open: Box::new(open), most: most.max(1), state: Mutex::default(), returned: Condvar::new() }
    }

    /// Reads with one connection, all of it at one committed state.
    pub fn read<T>(&self, read: impl FnOnce(&Connection) -> Result<T, StoreError>) -> Result<T, StoreError> {
        let mut loan = Loan { pool: self, conn: self.idle_connection() };
        if loan.conn.is_none() {
            loan.conn = Some((self.open)()?);
        }
        let Some(conn) = &loan.conn else {
            return Err(StoreError::Failed("there is no connection to read with".into()));
        };
        conn.prepare_cached("BEGIN")?.execute([])?;
        let result = read(conn);
        let ended = conn.prepare_cached("ROLLBACK").and_then(|mut rollback| rollback.execute([]));
        if ended.is_err() || matches!(result, Err(StoreError::Failed(_) | StoreError::Full(_))) {
            // The connection may be faulty, so it is not lent again.
            loan.conn = None;
        }
        result
    }

    /// Closes connections that are not in use.
    pub fn close_idle(&self) {
        let mut state = self.lock();
        state.count -= state.idle.len();
        state.idle.clear();
    }

    /// An idle connection; `None`: the caller may open one.
    fn idle_connection(&self) -> Option<Connection> {
        let mut state = self.lock();
        loop {
            if let Some(conn) = state.idle.pop() {
                return Some(conn);
            }
            if state.count < self.most {
                state.count += 1;
                return None;
            }
            state = self.returned.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection that goes back when its reader is done, also when the reader panics.
struct Loan<'a> {
    pool: &'a Pool,
    conn: Option<Connection>,
}

impl Drop for Loan<'_> {
    fn drop(&mut self) {
        // A panic may have left a transaction open: such a connection is not lent again.
        let conn = self.conn.take().filter(Connection::is_autocommit);
        let mut state = self.pool.lock();
        match conn {
            Some(conn) => state.idle.push(conn),
            None => state.count -= 1,
        }
        self.pool.returned.notify_one();
    }
}
