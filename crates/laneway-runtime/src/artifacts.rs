//! Artifacts: their names, and requests for parts of them.
//!
//! Artifacts are lines of their job's log, so that they live as long as it does. The data of a worker's artifact stays on the
//! worker: a part is requested over the worker's connection, and the caller is informed when that connection is gone. The
//! data of an artifact of this process is a file (`files.rs`).

mod files;

use std::fmt;

use laneway_core::{ConnectionId, JobId, Name};
pub use laneway_store::ARTIFACTS;
use thiserror::Error;
use tokio::sync::oneshot;

use crate::scheduler::Scheduler;
use crate::workers::ToWorker;

pub use files::{ArtifactFiles, FileId, LOCAL_WORKER, NotStored, folder_name};

/// Names an artifact: the job whose attempt made it, and its line in the job's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ArtifactId {
    /// The job.
    pub job: JobId,
    /// The line, from 1.
    pub line: u64,
}

impl ArtifactId {
    /// Reads `<job>.<line>`.
    pub fn parse(text: &str) -> Option<ArtifactId> {
        let (job, line) = text.rsplit_once('.')?;
        let plain = !line.is_empty() && line.bytes().all(|byte| byte.is_ascii_digit());
        let line = plain.then(|| line.parse().ok()).flatten().filter(|line| *line > 0)?;
        Some(ArtifactId { job: JobId::parse(job)?, line })
    }

    /// Where its data can be read.
    pub fn href(self) -> String {
        format!("/v1/artifacts/{self}")
    }
}

impl fmt::Display for ArtifactId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.job, self.line)
    }
}

/// A request for a part of an artifact.
#[derive(Debug)]
pub struct PartOrder {
    /// Its name in the worker's resource registry.
    pub resource: Box<str>,
    /// The first byte.
    pub offset: u64,
    /// Most bytes of the part.
    pub limit: u32,
    /// The caller that waits for it. Dropped with the connection.
    pub answer: oneshot::Sender<Result<Part, PartTrouble>>,
}

/// A part of something that a worker keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// How large the whole is.
    pub size: u64,
    /// The bytes that were asked for, or as many of them as there are.
    pub bytes: Vec<u8>,
}

/// Why there is no part.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PartTrouble {
    /// The worker is not connected, or its connection ended before it answered.
    #[error("the worker's connection is gone")]
    Away,
    /// The worker does not have it, or not any more.
    #[error("the worker does not have it any more")]
    Missing,
    /// The worker is of a version that gives nothing out.
    #[error("the worker does not know how to give out what its tasks made")]
    Unknown,
    /// The worker did not answer in time.
    #[error("the worker did not answer in time")]
    TimedOut,
    /// Too much is asked of the worker at once.
    #[error("too much is asked of the worker at once")]
    Busy,
    /// The worker says that it cannot, or says what makes no sense.
    #[error("the worker could not give it: {0}")]
    Failed(Box<str>),
}

impl Scheduler {
    /// A part of something that the worker behind `connection` keeps. Waits for its answer, which comes in bounded time.
    pub async fn read_part(
        &self,
        connection: ConnectionId,
        resource: &str,
        offset: u64,
        limit: u32,
    ) -> Result<Part, PartTrouble> {
        let (answer, part) = oneshot::channel();
        let order = PartOrder { resource: resource.into(), offset, limit, answer };
        if !self.send_to_worker(connection, ToWorker::Read(order)) {
            return Err(PartTrouble::Away);
        }
        part.await.unwrap_or(Err(PartTrouble::Away))
    }

    /// A part of an artifact of this process. `resource` is the name that the artifact has there.
    pub async fn read_local_part(
        &self,
        tenant: &Name,
        job: JobId,
        resource: &str,
        offset: u64,
        limit: u32,
    ) -> Result<Part, PartTrouble> {
        let files = self.artifact_files().cloned().ok_or(PartTrouble::Missing)?;
        let id = FileId::parse(job, resource).ok_or(PartTrouble::Missing)?;
        let tenant = tenant.clone();
        let part = tokio::task::spawn_blocking(move || files.read(&tenant, id, offset, limit));
        part.await.unwrap_or(Err(PartTrouble::Missing))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_artifact_is_named_by_its_job_and_its_line() {
        let id = ArtifactId { job: JobId(7), line: 12 };
        assert_eq!(id.to_string(), "00000000-0000-0000-0000-000000000007.12");
        assert_eq!(ArtifactId::parse(&id.to_string()), Some(id));
        for wrong in ["", ".", "7.12", "x.1", "00000000-0000-0000-0000-000000000007"] {
            assert_eq!(ArtifactId::parse(wrong), None, "{wrong:?}");
        }
        for line in ["", "0", "-1", "+1", "1.2", "1 ", "99999999999999999999999"] {
            assert_eq!(ArtifactId::parse(&format!("{}.{line}", JobId(7))), None, "{line:?}");
        }
    }
}
