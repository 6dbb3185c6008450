//! Records and kept keys through the handle: what features around the engine store.
//!
//! A record is a small document of a tenant, with a version (see [`laneway_core::record`]). A kept key stays taken after
//! its job has ended (see [`laneway_core::kept_keys`]). Every change is a command to the loop; reads come from the engine,
//! which holds all of them (see `queries.rs`).

use laneway_core::{
    Bytes, Command, JobId, Key, Name, Origin, Record, RecordCommand, RecordName, Rejection, Reply,
};
use thiserror::Error;

use crate::scheduler::{Scheduler, Stopped};

/// Most records that one call lists: the loop does nothing else meanwhile.
pub const RECORDS_LISTED_MAX: usize = 1_000;

/// Why a record was not stored or deleted. Nothing changed.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum RecordError {
    /// Another caller changed, created or deleted it in between.
    #[error("the record has version {version} (0: it does not exist), not the expected one; read it again")]
    Conflict {
        /// Its version; 0: there is no such record.
        version: u64,
    },
    /// There is no such record.
    #[error("there is no such record")]
    NotFound,
    /// It is too large, there are too many, or storage is low.
    #[error("{0}")]
    Rejected(Rejection),
    /// The loop has stopped.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

impl Scheduler {
    /// Stores a record and returns it as stored. `expected_version`: the version that it must have, 0 where there must be
    /// none; `None` stores it in any case.
    pub async fn put_record(
        &self,
        name: RecordName,
        expected_version: Option<u64>,
        body: Bytes,
        origin: Origin,
    ) -> Result<Record, RecordError> {
        let RecordName { tenant, collection, id } = name;
        let put = RecordCommand::Put { tenant, collection, id, expected_version, body, origin };
        self.change_record(put).await
    }

    /// Deletes a record and returns it as it was. `expected_version`: the version that it must have; `None`: any.
    pub async fn delete_record(
        &self,
        name: RecordName,
        expected_version: Option<u64>,
        origin: Origin,
    ) -> Result<Record, RecordError> {
        let RecordName { tenant, collection, id } = name;
        self.change_record(RecordCommand::Delete { tenant, collection, id, expected_version, origin }).await
    }

    async fn change_record(&self, command: RecordCommand) -> Result<Record, RecordError> {
        match self.send(Command::Record(Box::new(command))).await? {
            Reply::Record(record) => Ok(*record),
            Reply::Conflict { version } => Err(RecordError::Conflict { version }),
            Reply::NotFound => Err(RecordError::NotFound),
            Reply::Rejected(rejection) => Err(RecordError::Rejected(rejection)),
            other => unreachable!("the engine answers a change of a record with {other:?}"),
        }
    }

    /// Frees the keys that an ended job keeps, and returns them. Empty: it keeps none (any more), it has not ended, or it is
    /// another tenant's.
    pub async fn release_keys(
        &self,
        tenant: Option<Name>,
        job: JobId,
        origin: Origin,
    ) -> Result<Vec<Key>, Stopped> {
        match self.send(Command::ReleaseKeys { tenant, job, origin }).await? {
            Reply::KeysReleased(keys) => Ok(keys),
            other => unreachable!("the engine answers a release with {other:?}"),
        }
    }
}
