//! A data directory as the source or the target of a copy.

use std::path::{Path, PathBuf};

use rusqlite::Connection;

use super::migrate::{MIGRATIONS, migrate};
use super::tables::Tables;
use super::{SqliteOptions, SqliteStore, copy, facets, files, open, row_sums};
use crate::{Store, StoreError};

/// A data directory that was closed in order, and that no server can use while this lives.
pub(crate) struct ClosedDirectory {
    // Fields drop in order: the connection closes before the lock goes.
    pub conn: Connection,
    _store: SqliteStore,
}

impl ClosedDirectory {
    /// Opens the directory as a server would, so that its tables have every commit, and closes it.
    pub fn open(dir: &Path) -> Result<ClosedDirectory, StoreError> {
        if !files::has_database(dir)? {
            return Err(StoreError::Unusable(format!(
                "{} holds no database; name the data directory",
                dir.display()
            )));
        }
        let mut store = SqliteStore::open(dir, SqliteOptions::default())?;
        if !store.close()? {
            return Err(StoreError::Failed(format!("another program reads {}; try again", dir.display())));
        }
        let conn = open::open_reader(&dir.join(files::DB), 16 * 1024)?;
        Ok(ClosedDirectory { conn, _store: store })
    }
}

/// A file that becomes the database of an empty data directory.
pub(crate) struct NewDatabase {
    pub conn: Connection,
    file: Removed,
    dir: PathBuf,
}

impl NewDatabase {
    /// Makes the tables. The directory must be missing or empty.
    pub fn begin(dir: &Path) -> Result<NewDatabase, StoreError> {
        let mut found = std::fs::read_dir(dir).into_iter().flatten();
        if found.any(|entry| entry.is_ok_and(|entry| entry.file_name() != files::LOCK)) {
            return Err(StoreError::Unusable(format!(
                "{} is not empty; name a directory that is missing or empty",
                dir.display()
            )));
        }
        let mut name = dir.file_name().unwrap_or_default().to_owned();
        name.push(format!(".partial-{}", std::process::id()));
        let file = Removed(dir.with_file_name(name));
        if let Some(above) = dir.parent().filter(|above| !above.as_os_str().is_empty()) {
            files::make_dir(above)?;
        }
        let _ = std::fs::remove_file(&file.0);
        drop(files::open_private(&file.0).map_err(|error| files::not_written(&file.0, &error))?);
        let conn = Connection::open(&file.0)?;
        row_sums::add_functions(&conn)?;
        conn.execute_batch("PRAGMA synchronous = OFF; PRAGMA journal_mode = MEMORY;")?;
        migrate(&conn, MIGRATIONS)?;
        conn.execute_batch("BEGIN")?;
        Ok(NewDatabase { conn, file, dir: dir.to_owned() })
    }

    /// Checks the file and puts it into the directory.
    pub fn finish(self, checking: &mut dyn FnMut()) -> Result<(), StoreError> {
        let NewDatabase { conn, file, dir } = self;
        conn.execute_batch("COMMIT")?;
        let mut tables = Tables::read(conn, &dir, None, Default::default(), (0, 0))?;
        facets::build::complete(&mut tables)?;
        let conn = tables.conn;
        let _mode: String = conn.query_row("PRAGMA journal_mode = DELETE", [], |row| row.get(0))?;
        conn.close().map_err(|(_, error)| StoreError::from(error))?;
        copy::restore(&file.0, &dir, false, None, &mut |_| checking())?;
        Ok(())
    }
}

/// A file that goes with its value.
struct Removed(PathBuf);

impl Drop for Removed {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
