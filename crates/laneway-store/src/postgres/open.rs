//! Opens a database: connects, checks that what the server promises is enough, and brings the tables to this program's version.

use tokio_postgres::error::SqlState;

use super::session::{Failure, ReadError, Server, Session};
use super::url::Target;
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

fn check(session: &Session) -> Result<(), ReadError> {
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
fn cannot_connect(target: &Target, failure: &Failure) -> StoreError {
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
        _ => "check that the server runs, that the host and the port of the store URL are right, and sslmode"
            .into(),
    };
    StoreError::Unusable(format!("cannot connect to {}: {}; {remedy}", target.display(), failure.why))
}

/// What a failed opening means, and what to do.
fn cannot_open(target: &Target, error: ReadError) -> StoreError {
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
