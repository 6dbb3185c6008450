//! The address of a store: `sqlite:DIR`, or `postgres://user:password@host/database`.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::postgres::{NodeSettings, check_url, is_postgres_url, without_password};
use crate::{PostgresStore, SqliteOptions, SqliteStore, Store, StoreError};

/// The beginning of the address of a data directory.
const SQLITE: &str = "sqlite:";

/// Where a store is. It prints without the password.
#[derive(Clone, PartialEq, Eq)]
pub enum StoreAddress {
    /// A data directory, with SQLite and the commit log.
    Directory(PathBuf),
    /// The URL of a PostgreSQL database, with its password.
    Postgres(Box<str>),
}

impl StoreAddress {
    /// Reads an address. The error is a fragment that says what to write; it never contains a password.
    pub fn parse(text: &str) -> Result<StoreAddress, String> {
        if let Some(dir) = text.strip_prefix(SQLITE) {
            if dir.is_empty() {
                return Err("names no directory; write sqlite:DIR".into());
            }
            return Ok(StoreAddress::Directory(dir.into()));
        }
        if !is_postgres_url(text) {
            return Err("is not an address of a store; write \"sqlite:DIR\" or \"postgres://user:password@host/database\"".into());
        }
        match check_url(text) {
            Ok(()) => Ok(StoreAddress::Postgres(text.into())),
            Err(why) => Err(format!(
                "is not a valid URL: {why}; write \"postgres://user:password@host:port/database\""
            )),
        }
    }

    /// The data directory, if the store is in one.
    pub fn directory(&self) -> Option<&Path> {
        match self {
            StoreAddress::Directory(dir) => Some(dir),
            StoreAddress::Postgres(_) => None,
        }
    }

    /// The address with its password, as [`StoreAddress::parse`] reads it.
    pub fn reveal(&self) -> String {
        match self {
            StoreAddress::Directory(dir) => format!("{SQLITE}{}", dir.display()),
            StoreAddress::Postgres(url) => url.to_string(),
        }
    }

    /// Opens the store for a server. `options` are those of a data directory.
    pub fn open(&self, options: SqliteOptions) -> Result<Box<dyn Store>, StoreError> {
        Ok(match self {
            StoreAddress::Directory(dir) => Box::new(SqliteStore::open(dir, options)?),
            StoreAddress::Postgres(url) => Box::new(PostgresStore::claim(url, NodeSettings::alone())?),
        })
    }

    /// Opens the store, unless a server uses it: for commands that work without one.
    pub fn open_unused(&self) -> Result<Box<dyn Store>, StoreError> {
        Ok(match self {
            StoreAddress::Directory(dir) => Box::new(SqliteStore::open(dir, SqliteOptions::default())?),
            StoreAddress::Postgres(url) => Box::new(PostgresStore::open_unused(url)?),
        })
    }
}

impl fmt::Display for StoreAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreAddress::Directory(dir) => write!(f, "{SQLITE}{}", dir.display()),
            StoreAddress::Postgres(url) => f.write_str(&without_password(url)),
        }
    }
}

impl fmt::Debug for StoreAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_shown_without_their_password() {
        for (text, shown) in [
            ("sqlite:/var/lib/laneway", "sqlite:/var/lib/laneway"),
            ("postgres://me:hunter2@db/jobs", "postgres://me@db/jobs"),
            (
                "postgresql://me:hunter2@db:5433/jobs?sslmode=verify-full",
                "postgresql://me@db:5433/jobs?sslmode=verify-full",
            ),
        ] {
            let address = StoreAddress::parse(text).unwrap();
            assert_eq!(address.to_string(), shown);
            assert_eq!(format!("{address:?}"), shown);
            assert_eq!(address.reveal(), text);
        }
        for (text, why) in [
            ("", "is not an address of a store"),
            ("sqlite:", "names no directory"),
            ("mysql://me:hunter2@db/jobs", "write \"sqlite:DIR\" or"),
            ("postgres://me:hunter2@db", "it names no database"),
            ("postgres://me:hunter2@db/jobs?sslmode=maybe", "sslmode is one of"),
        ] {
            let problem = StoreAddress::parse(text).unwrap_err();
            assert!(problem.contains(why) && !problem.contains("hunter2"), "{text}: {problem}");
        }
    }
}
