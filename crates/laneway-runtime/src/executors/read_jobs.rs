//! Reads the rows and payloads of offered jobs that are no longer in memory.

use laneway_core::{Failure, Seq, Span};
use laneway_store::{Reader, Runnable, StoreError};

use crate::bindings::compose;
use crate::scheduler::{Shared, read_store};

/// How often offered jobs are read before their attempts are handed back.
const READS_MAX: u32 = 5;
/// How long to wait before a read of the store is retried.
const RETRY_AFTER: Span = Span::secs(1);

/// The jobs with their composed payloads. A job whose bindings cannot be carried out has a failure instead. `None`: the
/// store could not be read, and the attempts must be handed back.
pub(crate) async fn read_jobs(shared: &Shared, jobs: &[Seq]) -> Option<Vec<Result<Runnable, Failure>>> {
    for _ in 0..READS_MAX {
        let wanted = jobs.to_vec();
        match read_store(&shared.readers, &shared.reader, move |reader| runnable(reader, &wanted)).await {
            Ok(jobs) => return Some(jobs),
            Err(error) => tracing::error!(%error, "offered jobs cannot be read"),
        }
        shared.clock.sleep(RETRY_AFTER).await;
    }
    None
}

fn runnable(reader: &dyn Reader, jobs: &[Seq]) -> Result<Vec<Result<Runnable, Failure>>, StoreError> {
    let composed = |job: Runnable| {
        let payload = compose(reader, &job.row, &job.payload)?;
        Ok(payload.map(|payload| Runnable { payload, ..job }))
    };
    reader.payloads(jobs)?.into_iter().map(composed).collect()
}
