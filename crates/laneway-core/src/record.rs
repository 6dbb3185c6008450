//! Records: small durable documents of features around the engine, such as browser profiles.
//!
//! A record belongs to a tenant and a collection. The engine stores its bytes and never looks into them. It keeps every
//! record in memory, so their number and size are limited, for each tenant and in total.

use std::fmt;

use crate::{Bytes, Name, Wall};

/// Most bytes of a record's body.
pub const BODY_BYTES_MAX: usize = 64 * 1024;
/// Most records of one collection of one tenant.
pub const COLLECTION_LEN_MAX: usize = 10_000;
/// Most bytes of one collection of one tenant: ids and bodies.
pub const COLLECTION_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Most collections of one tenant. Collections belong to features, and there are few of these.
pub const COLLECTIONS_PER_TENANT_MAX: usize = 16;
/// Most bytes of all records of one tenant.
pub const TENANT_BYTES_MAX: usize = 32 * 1024 * 1024;
/// Most bytes of all records: they stay in memory.
pub const BYTES_MAX: usize = 512 * 1024 * 1024;

/// Collections of statistics begin with this character. The server writes them every minute, so their changes have no
/// events.
pub const UNLOGGED_PREFIX: char = '~';

/// A small durable document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its full name.
    pub name: RecordName,
    /// Grows with every change. It is the number of the event that records the change, so no version comes back, not even
    /// when the record is deleted and created again. Versions in unlogged collections grow while the record exists.
    pub version: u64,
    /// Its content, in the format of the feature that owns the collection; at most [`BODY_BYTES_MAX`].
    pub body: Bytes,
    /// When it was created.
    pub created_at: Wall,
    /// When it was last changed.
    pub updated_at: Wall,
}

/// The full name of a record.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RecordName {
    /// Its tenant.
    pub tenant: Name,
    /// Its collection.
    pub collection: Name,
    /// Its id within the collection.
    pub id: Name,
}

impl Record {
    /// How many bytes of the limits it takes.
    pub fn bytes(&self) -> usize {
        self.name.id.as_str().len() + self.body.len()
    }
}

impl RecordName {
    /// True when changes of the record have no events (see [`UNLOGGED_PREFIX`]).
    pub fn is_unlogged(&self) -> bool {
        self.collection.as_str().starts_with(UNLOGGED_PREFIX)
    }
}

impl fmt::Display for RecordName {
    /// Without the tenant, which events name in a field of its own.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.collection, self.id)
    }
}
