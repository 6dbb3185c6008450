//! How jobs and attempts end. Everything is known before the end is recorded.

use crate::{AttemptEnd, Bytes, Failure, JobState, MergedInto, Origin, Reason};

/// How a job ends.
pub(in crate::engine) struct JobEnding<'a> {
    pub(in crate::engine) state: JobState,
    pub(in crate::engine) reason: Reason,
    /// How its open attempt ends with it. `None`: an open attempt holds its gates until its runner has stopped.
    pub(in crate::engine) closed: Option<AttemptEnding<'a>>,
    /// The error, where no attempt that closes with the job has one.
    pub(in crate::engine) error: Option<Failure>,
    pub(in crate::engine) result: Option<Bytes>,
    /// The job that runs for it.
    pub(in crate::engine) merged_into: Option<MergedInto>,
    /// The caller that asked for it.
    pub(in crate::engine) origin: Option<&'a Origin>,
}

impl<'a> JobEnding<'a> {
    /// The end of a job without error, result or caller.
    pub(in crate::engine) fn new(state: JobState, reason: Reason) -> JobEnding<'a> {
        JobEnding { state, reason, closed: None, error: None, result: None, merged_into: None, origin: None }
    }
}

/// How an attempt ends.
pub(in crate::engine) struct AttemptEnding<'a> {
    pub(in crate::engine) end: AttemptEnd,
    pub(in crate::engine) failure: Option<Failure>,
    /// The worker's own code, where it is more specific than the rest.
    pub(in crate::engine) code: Option<&'a str>,
}

impl<'a> AttemptEnding<'a> {
    /// The end of an attempt that failed.
    pub(in crate::engine) fn failed(end: AttemptEnd, failure: Failure) -> AttemptEnding<'a> {
        AttemptEnding { end, failure: Some(failure), code: None }
    }

    /// The code of how the attempt ended.
    pub(in crate::engine) fn code(&self) -> &str {
        let failure = self.failure.as_ref().map(|failure| failure.code.as_str());
        self.code.or(failure).unwrap_or(self.end.as_str())
    }
}

impl From<AttemptEnd> for AttemptEnding<'_> {
    fn from(end: AttemptEnd) -> Self {
        AttemptEnding { end, failure: None, code: None }
    }
}
