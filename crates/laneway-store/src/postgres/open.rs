//! Opens a database: connects, checks that what the server promises is enough, and brings the tables to this program's version.

use std::sync::Arc;

use tokio_postgres::error::SqlState;

use super::session::{Failure, ReadError, Server, Session};
use super::tenure::Tenure;
use super::url::{APPLICATION, Target};
use super::{epoch::Ownership, load, migrate};
use crate::StoreError;
use crate::columns::{Columns, small};

/// The oldest version that works, as the server numbers it.
const OLDEST_VERSION: i64 = 140_000;

/// Settings without which the server forgets what it has acknowledged.
const DURABLE: &[(&str, &[&str])] = &[
    ("fsync", &["on"]),
    ("full_page_writes", &["on"]),
    ("synchronous_commit", &["on", "local", "remote_write", "remote_apply"]),
];

/// Connects, checks the server and its tables, and takes the domain over.
pub(super) fn open(url: &str) -> Result<(Server, Session, Ownership, load::Numbers), StoreError> {
    let server = Server::new(Target::parse(url)?)?;
    let session = server.connect().map_err(|failure| cannot_connect(&server.target, &failure))?;
    let opened = check(&session)
        .and_then(|()| migrate::migrate(&session))
        .and_then(|()| Ownership::take(&session))
        .and_then(|ownership| Ok((ownership, load::Numbers::read(&session)?)));
    match opened {
        Ok((ownership, numbers)) => Ok((server, session, ownership, numbers)),
        Err(error) => Err(cannot_open(&server.target, error)),
    }
}

/// Connects, checks the server and its tables, and takes nothing over.
pub(super) fn connect(url: &str) -> Result<Server, StoreError> {
    let server = Server::new(Target::parse(url)?)?;
    let session = server.connect().map_err(|failure| cannot_connect(&server.target, &failure))?;
    match check(&session).and_then(|()| migrate::migrate(&session)) {
        Ok(()) => Ok(server),
        Err(error) => Err(cannot_open(&server.target, error)),
    }
}

/// Opens the tables for the node that owns the domain.
pub(super) fn open_owned(
    server: &Server,
    tenure: &Arc<Tenure>,
) -> Result<(Session, Ownership, load::Numbers), StoreError> {
    let opened = server.connect_owned(Some(tenure)).map_err(ReadError::from).and_then(|session| {
        let ownership = Ownership::of(Arc::clone(tenure));
        ownership.look(&session)?;
        let numbers = load::Numbers::read(&session)?;
        Ok((session, ownership, numbers))
    });
    opened.map_err(|error| cannot_open(&server.target, error))
}

/// Fails if a server uses the database: the domain was not given back, and another connection of a server is open.
pub(super) fn check_unused(url: &str) -> Result<(), StoreError> {
    let server = Server::new(Target::parse(url)?)?;
    let session = server.connect().map_err(|failure| cannot_connect(&server.target, &failure))?;
    let used = in_use(&session).map_err(|error| cannot_open(&server.target, error))?;
    match used {
        None => Ok(()),
        Some(owner) => Err(StoreError::Locked(format!(
            "a server uses {} ({owner}); stop it first",
            server.target.display()
        ))),
    }
}

/// Checks that the tables are there, of this program's version.
pub(super) fn check_tables(session: &Session) -> Result<(), ReadError> {
    let exists = session.row("SELECT to_regclass('laneway.schema_migration') IS NOT NULL", vec![])?;
    if exists.map_or(Ok(0), |row| small::<i64>(&row, 0))? == 0 {
        let why = "it has no tables of Laneway; name the database of a server";
        return Err(StoreError::Unusable(why.into()).into());
    }
    migrate::migrate(session)
}

/// Who uses the database, if a server does.
fn in_use(session: &Session) -> Result<Option<String>, ReadError> {
    let exists = session.row("SELECT to_regclass('laneway.tenure') IS NOT NULL", vec![])?;
    if exists.map_or(Ok(0), |row| small::<i64>(&row, 0))? == 0 {
        return Ok(None);
    }
    let sql = "SELECT coalesce(node.name, 'unknown') FROM laneway.tenure LEFT JOIN laneway.node ON node.id = tenure.node \
               WHERE NOT free AND (node IS NULL OR expires_at > clock_timestamp()) AND EXISTS (SELECT 1 FROM pg_stat_activity \
                 WHERE application_name = $1 AND datname = current_database() AND pid <> pg_backend_pid())";
    let row = session.row(sql, vec![super::cells::text(APPLICATION)])?;
    Ok(row.map(|row| row.get_ref(0)?.as_str().map(str::to_owned).map_err(StoreError::from)).transpose()?)
}

pub(super) fn check(session: &Session) -> Result<(), ReadError> {
    let unusable = |why: String| Err(ReadError::Store(StoreError::Unusable(why)));
    let sql = "SELECT current_setting('server_version_num')::int8, current_setting('server_version'), pg_is_in_recovery(), \
               current_setting('transaction_read_only') = 'on'";
    let missing = || StoreError::Failed("the server does not report its version".into());
    let row = session.row(sql, vec![])?.ok_or_else(missing)?;
    if small::<i64>(&row, 0)? < OLDEST_VERSION {
        return unusable(format!(
            "it runs PostgreSQL {}, and Laneway needs version 14 or later; upgrade the server",
            row.get_ref(1)?.as_str()?
        ));
    }
    if small::<i64>(&row, 2)? != 0 || small::<i64>(&row, 3)? != 0 {
        return unusable("it is a read-only replica; connect to the primary server".into());
    }
    for (setting, durable) in DURABLE {
        let row = session.row("SELECT current_setting($1)", vec![super::cells::text(setting)])?;
        let row = row.ok_or_else(missing)?;
        let value = row.get_ref(0)?.as_str()?;
        if !durable.contains(&value) {
            return unusable(format!(
                "its setting {setting} is {value}, so that a power cut loses jobs that were acknowledged; set {setting} = on \
                 in postgresql.conf"
            ));
        }
    }
    Ok(())
}

/// What a failed connection means, and what to do.
pub(super) fn cannot_connect(target: &Target, failure: &Failure) -> StoreError {
    let (user, database) = (target.user(), target.database());
    let remedy = match &failure.code {
        Some(SqlState::INVALID_PASSWORD | SqlState::INVALID_AUTHORIZATION_SPECIFICATION) => {
            format!("check the user and the password of the store URL, and pg_hba.conf for user {user}")
        }
        Some(SqlState::INVALID_CATALOG_NAME) => format!("create the database: createdb -O {user} {database}"),
        Some(SqlState::TOO_MANY_CONNECTIONS) => "raise max_connections of the server".into(),
        Some(SqlState::CANNOT_CONNECT_NOW) => "the server starts or stops; try again".into(),
        Some(SqlState::INSUFFICIENT_PRIVILEGE) => {
            format!("allow it: GRANT CONNECT ON DATABASE {database} TO {user}")
        }
        None if failure.why.contains("password missing") => {
            "check the user and the password of the store URL".into()
        }
        None if failure.why.contains("does not support TLS") => {
            "switch it on in postgresql.conf (ssl = on), or write sslmode=disable".into()
        }
        None if failure.why.contains("certificate") => {
            "name the file of its authority with sslrootcert, and the host as the certificate names it, or write sslmode=require"
                .into()
        }
        _ => "check that the server runs, that the host and the port of the store URL are right, and sslmode"
            .into(),
    };
    StoreError::Unusable(format!("cannot connect to {}: {}; {remedy}", target.display(), failure.why))
}

/// What a failed opening means, and what to do.
pub(super) fn cannot_open(target: &Target, error: ReadError) -> StoreError {
    let (user, database) = (target.user(), target.database());
    match error {
        ReadError::Store(StoreError::Unusable(why)) => {
            StoreError::Unusable(format!("cannot use {}: {why}", target.display()))
        }
        ReadError::Query(failure) if failure.code == Some(SqlState::INSUFFICIENT_PRIVILEGE) => {
            StoreError::Unusable(format!(
                "cannot use {}: {}; allow it: GRANT CREATE ON DATABASE {database} TO {user}, and the tables of schema laneway must \
             belong to {user}",
                target.display(),
                failure.why
            ))
        }
        ReadError::Query(failure) if failure.cut => StoreError::Unusable(format!(
            "the connection to {} was cut: {}; check the server and its log",
            target.display(),
            failure.why
        )),
        other => other.into(),
    }
}
