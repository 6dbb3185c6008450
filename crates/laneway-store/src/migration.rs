//! Migrations: how the tables of a store get from one schema version to the next.
//!
//! All stores with tables have one number for their schema. A change of the schema is a new file in each folder below
//! `migrations/`. The digest of each migration is stored, so a released one must never change.

use sha2::{Digest, Sha256};

/// One step from a version to the next.
pub(crate) struct Migration {
    /// The version it leads to.
    pub version: i32,
    /// Its name, for people.
    pub name: &'static str,
    /// What it does. Must never change once it is released: its digest is stored.
    pub sql: &'static str,
}

impl Migration {
    /// The digest that is stored.
    pub fn digest(&self) -> [u8; 32] {
        Sha256::digest(self.sql.as_bytes()).into()
    }
}

#[cfg(test)]
mod tests {
    use crate::{postgres, sqlite};

    #[test]
    fn all_stores_have_the_same_schema_number() {
        let newest = |migrations: &[super::Migration]| migrations.last().map(|migration| migration.version);
        assert_eq!(newest(sqlite::MIGRATIONS), newest(postgres::MIGRATIONS));
    }
}
