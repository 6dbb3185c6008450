//! Connections. The store is synchronous: a thread of its own drives the sockets, and callers wait for its answers.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{AsyncMessage, Client, Row};

use super::cells::Param;
use super::inbox::Bell;
use super::tenure::Tenure;
use super::url::Target;
use crate::StoreError;

/// How long a connection attempt may take.
pub(super) const CONNECT_MAX: Duration = Duration::from_secs(10);
/// How long the answers of one round trip may take. After that the connection counts as cut.
const ANSWER_MAX: Duration = Duration::from_secs(60);
/// Connections that are kept for the next reader.
const IDLE_MAX: usize = 8;

/// What went wrong, and whether the connection is gone.
#[derive(Debug)]
pub(super) struct Failure {
    /// The connection is gone. What the server did with the last statement is not known.
    pub cut: bool,
    /// The code of the server, if it answered.
    pub code: Option<SqlState>,
    /// For people.
    pub why: String,
}

impl Failure {
    fn cut(why: impl Into<String>) -> Failure {
        Failure { cut: true, code: None, why: why.into() }
    }

    fn of(error: &tokio_postgres::Error) -> Failure {
        match error.as_db_error() {
            // The server ends the connection after these: it stops, or an operator ends the connection.
            Some(db) => Failure {
                cut: [
                    SqlState::ADMIN_SHUTDOWN,
                    SqlState::CRASH_SHUTDOWN,
                    SqlState::CANNOT_CONNECT_NOW,
                    SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
                ]
                .contains(db.code())
                    || db.code().code().starts_with("08"),
                code: Some(db.code().clone()),
                why: match db.detail() {
                    Some(detail) => format!("{}: {detail}", db.message()),
                    None => db.message().to_owned(),
                },
            },
            None => {
                let source = std::error::Error::source(error).map(|source| format!(": {source}"));
                Failure::cut(format!("{error}{}", source.unwrap_or_default()))
            }
        }
    }

    /// Is it one of the rows that cannot be stored, and not the store?
    pub fn is_about_a_row(&self) -> bool {
        let Some(code) = &self.code else { return false };
        // Integrity constraints; values that do not fit, or texts that cannot be stored; rows that are too large.
        ["22", "23", "54"].iter().any(|class| code.code().starts_with(class))
    }
}

impl From<Failure> for StoreError {
    fn from(failure: Failure) -> StoreError {
        let Failure { code, why, .. } = failure;
        match code {
            Some(SqlState::DISK_FULL) => StoreError::Full(format!(
                "the disk of the PostgreSQL server is full: {why}; free disk space there and start again"
            )),
            Some(SqlState::DATA_CORRUPTED | SqlState::INDEX_CORRUPTED) => StoreError::Damaged(why),
            Some(SqlState::READ_ONLY_SQL_TRANSACTION) => StoreError::Unusable(format!(
                "the PostgreSQL server is read-only: {why}; connect to the primary server"
            )),
            _ => StoreError::Failed(format!("PostgreSQL: {why}")),
        }
    }
}

/// Where connections go, and the thread that drives them.
pub(super) struct Server {
    pub target: Target,
    runtime: Option<Runtime>,
    idle: Mutex<Vec<Session>>,
}

impl Server {
    /// Starts the thread. Nothing is connected yet.
    pub fn new(target: Target) -> Result<Server, StoreError> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("laneway-postgres")
            .enable_io()
            .enable_time()
            .build()
            .map_err(|error| {
                StoreError::Failed(format!("cannot start the thread for PostgreSQL: {error}"))
            })?;
        Ok(Server { target, runtime: Some(runtime), idle: Mutex::default() })
    }

    /// Connects.
    pub fn connect(&self) -> Result<Session, Failure> {
        self.connect_with(None)
    }

    /// Connects. Notifications, and the end of the connection, ring the bell.
    pub fn connect_with(&self, bell: Option<Arc<Bell>>) -> Result<Session, Failure> {
        self.connect_for(CONNECT_MAX, ANSWER_MAX, None, bell)
    }

    /// Connects for statements that are of no use later than this.
    pub fn connect_within(&self, max: Duration) -> Result<Session, Failure> {
        self.connect_for(max.min(CONNECT_MAX), max, None, None)
    }

    /// Connects for the owner of a domain. Its statements count as cut once it may no longer act as the owner.
    pub fn connect_owned(&self, tenure: Option<&Arc<Tenure>>) -> Result<Session, Failure> {
        let left = tenure.map_or(CONNECT_MAX, |tenure| tenure.left());
        self.connect_for(left.min(CONNECT_MAX), ANSWER_MAX, tenure.cloned(), None)
    }

    fn connect_for(
        &self,
        connect_max: Duration,
        answer_max: Duration,
        tenure: Option<Arc<Tenure>>,
        bell: Option<Arc<Bell>>,
    ) -> Result<Session, Failure> {
        let (send, answer) = mpsc::sync_channel(1);
        let (config, tls) = (self.target.config().clone(), self.target.tls());
        let warnings = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&warnings);
        let connect = async move {
            let connected = tokio::time::timeout(connect_max, config.connect(tls)).await;
            let (client, mut connection) = match connected {
                Ok(Ok(connected)) => connected,
                Ok(Err(error)) => return drop(send.send(Err(Failure::of(&error)))),
                Err(_) => {
                    let why = format!("no answer within {} ms", connect_max.as_millis());
                    return drop(send.send(Err(Failure::cut(why))));
                }
            };
            let _ = send.send(Ok(client));
            // Ends with the client, or when the connection is cut; the client then reports it.
            let ring = || bell.iter().for_each(|bell| bell.ring());
            while let Some(Ok(message)) = std::future::poll_fn(|cx| connection.poll_message(cx)).await {
                match message {
                    AsyncMessage::Notice(notice) if *notice.code() == SqlState::WARNING => {
                        counted.fetch_add(1, Ordering::SeqCst);
                    }
                    AsyncMessage::Notification(_) => ring(),
                    _ => {}
                }
            }
            ring();
        };
        let Some(runtime) = &self.runtime else { return Err(Failure::cut("the store is closed")) };
        runtime.spawn(connect);
        let client = answer.recv().map_err(|_| Failure::cut("the thread for PostgreSQL has ended"))??;
        Ok(Session { client, warnings, patience: Patience { answer_max, tenure } })
    }

    /// Reads with a connection that no other reader uses. A connection that was cut while it was idle is replaced.
    pub fn read<T>(&self, mut read: impl FnMut(&Session) -> Result<T, ReadError>) -> Result<T, StoreError> {
        let idle = self.lock().pop().filter(|session| !session.client.is_closed());
        if let Some(session) = idle {
            match read(&session) {
                Err(ReadError::Query(failure)) if failure.cut => {}
                done => return self.done(session, done),
            }
        }
        let session = self.connect()?;
        let done = read(&session);
        self.done(session, done)
    }

    fn done<T>(&self, session: Session, done: Result<T, ReadError>) -> Result<T, StoreError> {
        let mut idle = self.lock();
        if idle.len() < IDLE_MAX && !session.client.is_closed() {
            idle.push(session);
        }
        done.map_err(StoreError::from)
    }

    /// Closes the connections that no reader uses.
    pub fn close_idle(&self) {
        self.lock().clear();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Session>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.close_idle();
        if let Some(runtime) = self.runtime.take() {
            // A store may end within an asynchronous task, which must not wait.
            runtime.shutdown_background();
        }
    }
}

/// Why a read failed: the server, or what it returned.
#[derive(Debug)]
pub(super) enum ReadError {
    Query(Failure),
    Store(StoreError),
}

impl From<Failure> for ReadError {
    fn from(failure: Failure) -> ReadError {
        ReadError::Query(failure)
    }
}

impl From<StoreError> for ReadError {
    fn from(error: StoreError) -> ReadError {
        ReadError::Store(error)
    }
}

impl From<rusqlite::types::FromSqlError> for ReadError {
    fn from(error: rusqlite::types::FromSqlError) -> ReadError {
        ReadError::Store(error.into())
    }
}

impl From<ReadError> for StoreError {
    fn from(error: ReadError) -> StoreError {
        match error {
            ReadError::Query(failure) => failure.into(),
            ReadError::Store(error) => error,
        }
    }
}

/// One connection.
pub(super) struct Session {
    client: Client,
    warnings: Arc<AtomicU64>,
    patience: Patience,
}

/// How long an answer is waited for.
struct Patience {
    answer_max: Duration,
    /// Set: at most as long as this lasts.
    tenure: Option<Arc<Tenure>>,
}

/// What the statements of a transaction did.
pub(super) struct Transacted {
    /// The rows of the first one.
    pub rows: Vec<Row>,
    /// How many rows each of the others wrote.
    pub written: Vec<Result<u64, Failure>>,
}

/// A statement with its parameters.
#[derive(Debug)]
pub(super) struct Statement<'a> {
    pub sql: String,
    pub params: Vec<Param<'a>>,
}

impl<'a> Statement<'a> {
    /// A statement.
    pub fn new(sql: impl Into<String>, params: Vec<Param<'a>>) -> Statement<'a> {
        Statement { sql: sql.into(), params }
    }

    fn typed(&self) -> Vec<(&(dyn ToSql + Sync), Type)> {
        self.params.iter().map(|param| (param as &(dyn ToSql + Sync), param.of_type())).collect()
    }
}

impl Session {
    /// Has the connection been cut?
    pub fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// How many warnings of class 01000 came so far.
    pub fn warnings(&self) -> u64 {
        self.warnings.load(Ordering::SeqCst)
    }

    /// Rows of a query.
    pub fn rows(&self, sql: &str, params: Vec<Param<'_>>) -> Result<Vec<Row>, Failure> {
        let statement = Statement::new(sql, params);
        let typed = statement.typed();
        self.patience.wait(self.client.query_typed(&statement.sql, &typed))
    }

    /// The first row of a query, if it has one.
    pub fn row(&self, sql: &str, params: Vec<Param<'_>>) -> Result<Option<Row>, Failure> {
        Ok(self.rows(sql, params)?.into_iter().next())
    }

    /// Executes statements without parameters.
    pub fn batch(&self, sql: &str) -> Result<(), Failure> {
        self.patience.wait(self.client.batch_execute(sql))
    }

    /// Begins a transaction and executes statements in one round trip. After an error the transaction must be rolled back.
    pub fn transact(
        &self,
        begin: &str,
        first: &Statement<'_>,
        statements: &[&Statement<'_>],
    ) -> Result<Transacted, Failure> {
        let typed: Vec<_> = statements.iter().map(|statement| statement.typed()).collect();
        let first_typed = first.typed();
        let mut begun: Flight<'_, ()> = Flight::new(self.client.batch_execute(begin));
        let mut head = Flight::new(self.client.query_typed(&first.sql, &first_typed));
        let mut writes: Vec<Flight<'_, u64>> = statements
            .iter()
            .zip(&typed)
            .map(|(statement, typed)| Flight::new(self.client.execute_typed(&statement.sql, typed)))
            .collect();
        let all = std::future::poll_fn(|cx| {
            // In this order, because the first poll of each sends it.
            let mut ready = begun.poll(cx) & head.poll(cx);
            for write in &mut writes {
                ready &= write.poll(cx);
            }
            if ready { Poll::Ready(Ok(())) } else { Poll::Pending }
        });
        self.patience.wait(all)?;
        begun.take()?;
        let rows = head.take()?;
        Ok(Transacted { rows, written: writes.into_iter().map(Flight::take).collect() })
    }
}

/// A statement that was sent, or will be by the first poll.
struct Flight<'a, T> {
    future: Pin<Box<dyn Future<Output = Result<T, tokio_postgres::Error>> + 'a>>,
    answer: Option<Result<T, tokio_postgres::Error>>,
}

impl<'a, T> Flight<'a, T> {
    fn new(future: impl Future<Output = Result<T, tokio_postgres::Error>> + 'a) -> Flight<'a, T> {
        Flight { future: Box::pin(future), answer: None }
    }

    /// True: it was answered.
    fn poll(&mut self, cx: &mut Context<'_>) -> bool {
        if self.answer.is_none()
            && let Poll::Ready(answer) = self.future.as_mut().poll(cx)
        {
            self.answer = Some(answer);
        }
        self.answer.is_some()
    }

    fn take(self) -> Result<T, Failure> {
        match self.answer {
            Some(answer) => answer.map_err(|error| Failure::of(&error)),
            None => Err(Failure::cut("no answer")),
        }
    }
}

/// Wakes a thread that waits.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

impl Patience {
    /// Waits for an answer, on any thread, inside or outside of a runtime.
    fn wait<T>(&self, future: impl Future<Output = Result<T, tokio_postgres::Error>>) -> Result<T, Failure> {
        let mut future = pin!(future);
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        let mut cx = Context::from_waker(&waker);
        let until = Instant::now() + self.answer_max;
        loop {
            if let Poll::Ready(answer) = future.as_mut().poll(&mut cx) {
                return answer.map_err(|error| Failure::of(&error));
            }
            // A renewal makes a tenure longer, so it is looked at again when it would have ended.
            let (left, why) = match self.tenure.as_ref().map(|tenure| tenure.time_left()) {
                Some(left) if left < until.saturating_duration_since(Instant::now()) => {
                    (left, "the ownership of the domain was not renewed in time".to_owned())
                }
                _ => (
                    until.saturating_duration_since(Instant::now()),
                    format!("no answer within {} ms", self.answer_max.as_millis()),
                ),
            };
            if left.is_zero() {
                return Err(Failure::cut(why));
            }
            std::thread::park_timeout(left);
        }
    }
}
