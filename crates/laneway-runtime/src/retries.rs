//! Retries that a client requests: a new job with the work of an ended one.

use laneway_core::command::Submitted;
use laneway_core::job::IdempotencyKey;
use laneway_core::{Bytes, Failure, JobId, JobState, Name, Origin, Rejection, RejectionCode, Submission};
use laneway_store::{JobView, Reader, StoreError};

use crate::bindings::compose;
use crate::scheduler::{ReadError, Scheduler};

/// The result of a manual retry.
#[derive(Clone, Debug, PartialEq)]
pub enum Retried {
    /// A new job tries it again.
    Submitted(Submitted),
    /// The new job was not admitted.
    Rejected(Rejection),
    /// The job has not ended: there is nothing to try again.
    Live(JobState),
    /// This tenant has no such job.
    NotFound,
}

impl Scheduler {
    /// Submits a new job with the spec and payload of an ended one. A deadline that has passed is left out, and so is the
    /// idempotency key: the new job is asked for on purpose.
    pub async fn retry(
        &self,
        tenant: Option<Name>,
        job: JobId,
        origin: Origin,
    ) -> Result<Retried, ReadError> {
        self.retry_once(tenant, job, origin, None).await
    }

    /// The same with an idempotency key: a second call with the key finds the job of the first.
    pub async fn retry_once(
        &self,
        tenant: Option<Name>,
        job: JobId,
        origin: Origin,
        key: Option<Name>,
    ) -> Result<Retried, ReadError> {
        let found = self.read(move |reader| ended_work(reader, job)).await?;
        let Some((view, merged, payload)) = found else { return Ok(Retried::NotFound) };
        if tenant.is_some_and(|tenant| tenant != view.row.spec.tenant) {
            return Ok(Retried::NotFound);
        }
        if view.end.is_none() {
            return Ok(Retried::Live(view.state()));
        }
        let payload = match payload {
            Ok(payload) => payload,
            Err(clash) => {
                return Ok(Retried::Rejected(Rejection::new(RejectionCode::Invalid, clash.message)));
            }
        };
        let (mut spec, now) = (view.row.spec, self.shared.clock.now().wall);
        // The key names the job that is retried, so there is no other request to tell it from.
        spec.idempotency = key.map(|key| IdempotencyKey { key, digest: [0; 32] });
        spec.not_before = None;
        spec.deadline = spec.deadline.filter(|deadline| *deadline > now);
        spec.retry_of = Some(job);
        // Asked for on purpose, and no run of the schedule; a node is tried again outside of its run, with what it got.
        spec.schedule = None;
        spec.member = None;
        if let Some(session) = &mut spec.session {
            session.sent_at = None;
        }
        let again = |payload| Submission {
            // A retry that went to another lane would run under other limits than its job did.
            strict_lane: true,
            ..Submission::new(spec.clone(), payload, origin.clone())
        };
        let verdict = if merged.is_empty() {
            self.submit(again(payload)).await?
        } else {
            // What ran as one is tried again as one: they come together, so the others join the first.
            // The first one calls their callback, once.
            let joins = |payload| {
                let mut item = again(payload);
                item.spec.callback = None;
                item.spec.idempotency = None;
                item
            };
            let items = std::iter::once(again(payload)).chain(merged.into_iter().map(joins)).collect();
            first_of(self.submit_batch(items, true).await?)
        };
        Ok(match verdict {
            Ok(submitted) => Retried::Submitted(submitted),
            Err(rejection) => Retried::Rejected(of_retry(rejection, &spec.lane)),
        })
    }
}

/// See [`ended_work`].
type EndedWork = (JobView, Vec<Bytes>, Result<Bytes, Failure>);

/// A job that may be tried again, with the payloads that were merged into it and what its attempt got. `None`: it is not
/// stored, or was forgotten between two reads.
fn ended_work(reader: &dyn Reader, job: JobId) -> Result<Option<EndedWork>, StoreError> {
    let Some(view) = reader.job(job)? else { return Ok(None) };
    match reader.payloads(&[view.row.seq]) {
        Ok(mut found) => {
            let Some(runnable) = found.pop() else { return Ok(None) };
            let payload = compose(reader, &view.row, &runnable.payload)?;
            Ok(Some((view, runnable.merged, payload)))
        }
        Err(StoreError::Disagree(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Why a retry is rejected. Its lane was there once, so the remedy is another one than for a name that was mistyped.
fn of_retry(rejection: Rejection, lane: &Name) -> Rejection {
    if rejection.code != RejectionCode::UnknownLane {
        return rejection;
    }
    let message = format!(
        "lane: the job's lane {:?} was deleted; make the lane again (PUT /v1/lanes/{lane}), or submit a new job to another one",
        lane.as_str()
    );
    Rejection::new(RejectionCode::UnknownLane, message)
}

/// The first job of an atomic batch that is not empty, or the rejection that is to blame.
fn first_of(verdicts: Vec<Result<Submitted, Rejection>>) -> Result<Submitted, Rejection> {
    let to_blame = |verdict: &&Result<Submitted, Rejection>| {
        verdict.as_ref().is_err_and(|rejection| rejection.code != RejectionCode::BatchRejected)
    };
    let verdict = verdicts.iter().find(to_blame).or(verdicts.first());
    verdict.cloned().expect("the batch has items")
}
