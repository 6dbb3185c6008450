//! The writer: one connection, what it keeps of the tables in memory, and what happens when the connection is cut.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use laneway_core::engine::StoreCounters;
use laneway_core::{Effects, JobRow, Seq};

use super::commit::{self, Tables};
use super::epoch::Ownership;
use super::load::{self, LogTallies, Numbers};
use super::script::{Outcome, Script};
use super::session::{Failure, ReadError, Server, Session, Statement, Transacted};
use crate::batch::{Step, fold};
use crate::codec::EventWriter;
use crate::columns::events::check_numbers;
use crate::columns::number;
use crate::{Epoch, Loaded, StoreError};

/// How long a writer without a connection tries to get one. A database that restarts is back by then.
const RECONNECT_MAX: Duration = Duration::from_secs(30);
/// The wait between two tries.
const RECONNECT_PAUSE: Duration = Duration::from_millis(200);

/// Begins a transaction. One whose writer is gone ends by itself: its locks must not keep the next writer waiting.
const BEGIN: &str = "BEGIN; SET LOCAL idle_in_transaction_session_timeout = '3s'";

/// The only writer of a domain.
pub(super) struct Writer {
    server: Arc<Server>,
    session: Session,
    ownership: Ownership,
    numbers: Numbers,
    events: EventWriter,
}

impl Writer {
    pub fn new(server: Arc<Server>, session: Session, ownership: Ownership, numbers: Numbers) -> Writer {
        Writer { server, session, ownership, numbers, events: EventWriter::default() }
    }

    pub fn server(&self) -> &Arc<Server> {
        &self.server
    }

    pub fn epoch(&self) -> Epoch {
        self.ownership.epoch
    }

    /// Fails when another server may own the domain.
    pub fn check_owned(&self) -> Result<(), StoreError> {
        self.ownership.check_time()
    }

    pub fn load(&mut self, visit: &mut dyn FnMut(Loaded)) -> Result<StoreCounters, StoreError> {
        // What was visited cannot be taken back, so the connection is tried first.
        if let Err(failure) = self.session.batch("SELECT 1") {
            self.reconnect(&failure.why)?;
        }
        Ok(load::load(&self.session, &mut self.numbers, visit)?)
    }

    pub fn counters(&mut self) -> Result<StoreCounters, StoreError> {
        let numbers = &self.numbers;
        self.server.read(|session| load::counters(session, numbers))
    }

    /// See [`crate::Store::commit`].
    pub fn commit(&mut self, effects: &Effects) -> Result<(), StoreError> {
        check_numbers(self.numbers.last_event, &effects.events)?;
        self.check_owned()?;
        if effects.changes.is_empty() && effects.events.is_empty() {
            return Ok(());
        }
        let steps = fold(&effects.changes)?;
        let before = self.numbers.counters();
        let done = self.read_rows(&steps).and_then(|(logs, revised)| {
            let mut tables = Tables { numbers: &mut self.numbers, logs, revised };
            let script = commit::write(&mut tables, &steps, &effects.events, &mut self.events)?;
            self.run(&script)
        });
        match done {
            Ok(()) => self.numbers.live.committed(),
            Err(_) => self.numbers.go_back(before),
        }
        done
    }

    /// Reads the stored rows that the script of a commit depends on.
    fn read_rows(&mut self, steps: &[Step<'_>]) -> Result<(LogTallies, HashMap<Seq, JobRow>), StoreError> {
        if self.session.is_closed() {
            self.reconnect("it was closed")?;
        }
        let read =
            |session: &Session| Ok((LogTallies::read(session, steps)?, load::revised(session, steps)?));
        match read(&self.session) {
            Err(ReadError::Query(failure)) if failure.cut => {
                self.reconnect(&failure.why)?;
                Ok(read(&self.session)?)
            }
            other => Ok(other?),
        }
    }

    /// Runs the transaction until its outcome is known.
    fn run(&mut self, script: &Script<'_>) -> Result<(), StoreError> {
        loop {
            let failure = match self.write(script) {
                Ok(()) => match self.end() {
                    Ok(()) => return Ok(()),
                    Err(Outcome::Error(error)) => return Err(error),
                    Err(Outcome::Cut(failure)) => {
                        self.reconnect(&failure.why)?;
                        if self.was_done()? {
                            return Ok(());
                        }
                        continue;
                    }
                },
                Err(Outcome::Error(error)) => {
                    // The connection may be gone as well: then the server rolls back by itself.
                    let _ = self.session.batch("ROLLBACK");
                    return Err(error);
                }
                Err(Outcome::Cut(failure)) => failure,
            };
            // The COMMIT was not sent: nothing was written.
            self.reconnect(&failure.why)?;
        }
    }

    /// Sends everything but the COMMIT, and checks what it did.
    fn write(&self, script: &Script<'_>) -> Result<(), Outcome> {
        let statements: Vec<&Statement<'_>> = script.writes.iter().map(|write| &write.statement).collect();
        let sent = self.session.transact(BEGIN, &self.ownership.check(), &statements);
        let Transacted { rows, written } = sent.map_err(outcome)?;
        self.ownership.compare(rows.first()).map_err(Outcome::Error)?;
        script.writes.iter().zip(written).try_for_each(|(write, done)| write.check(done))
    }

    /// Commits. A warning means that the server could not keep its promise, such as a standby that did not answer.
    fn end(&self) -> Result<(), Outcome> {
        let warnings = self.session.warnings();
        self.session.batch("COMMIT").map_err(outcome)?;
        if self.session.warnings() != warnings {
            return Err(Outcome::Error(StoreError::Failed(
                "PostgreSQL committed with a warning: the commit may not be on its standby; check the log of the server".into(),
            )));
        }
        Ok(())
    }

    /// Whether the transaction whose COMMIT was sent was done. The lock waits for a transaction that is still being ended.
    fn was_done(&mut self) -> Result<bool, StoreError> {
        loop {
            let sql = "SELECT commits FROM laneway.server_state FOR SHARE";
            match self.session.row(sql, vec![]) {
                Ok(row) => {
                    let row =
                        row.ok_or_else(|| StoreError::Damaged("table server_state has no row".into()))?;
                    return Ok(number(&row, 0)? == self.numbers.commits);
                }
                Err(failure) if failure.cut => self.reconnect(&failure.why)?,
                Err(failure) => return Err(failure.into()),
            }
        }
    }

    /// Gets another connection. The domain must still be this writer's.
    fn reconnect(&mut self, why: &str) -> Result<(), StoreError> {
        tracing::warn!(%why, "the connection to PostgreSQL was cut");
        let until = Instant::now() + RECONNECT_MAX;
        loop {
            self.check_owned()?;
            let connected = self.server.connect_owned(self.ownership.tenure()).map_err(ReadError::from);
            let connected = connected.and_then(|session| {
                self.ownership.look(&session)?;
                Ok(session)
            });
            match connected {
                Ok(session) => {
                    self.session = session;
                    return Ok(());
                }
                Err(ReadError::Query(failure)) if Instant::now() < until => {
                    tracing::debug!(why = %failure.why, "no connection to PostgreSQL yet");
                    std::thread::park_timeout(RECONNECT_PAUSE);
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Gives the domain back, so that the next server need not wait.
    pub fn close(&mut self) -> Result<(), StoreError> {
        self.ownership.give_back(&self.session)?;
        self.server.close_idle();
        Ok(())
    }
}

fn outcome(failure: Failure) -> Outcome {
    match failure.cut {
        true => Outcome::Cut(failure),
        false => Outcome::Error(failure.into()),
    }
}
