//! Changes of single jobs by calls: what a call may change of a waiting job, and what is known of a job that it deletes.

use crate::{JobId, JobRow, MergedInto, Name, RunId, Seq, Span, Wall};

/// The changes of a waiting job. A part that is `None` stays as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobPatch {
    /// Its priority. A lower number runs sooner.
    pub priority: Option<i32>,
    /// When it starts at the earliest.
    pub start: Option<StartAt>,
}

/// When a job starts at the earliest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartAt {
    /// At this time. A time in the past means now.
    Time(Wall),
    /// After this much time.
    Delay(Span),
}

impl StartAt {
    /// The time, for a call that arrives now.
    pub fn time(self, now: Wall) -> Wall {
        match self {
            StartAt::Time(at) => at.max(now),
            StartAt::Delay(delay) => now + delay,
        }
    }
}

/// A stored job, as far as its deletion depends on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredJob {
    /// Its number.
    pub seq: Seq,
    /// Its id.
    pub id: JobId,
    /// The tenant that it belongs to.
    pub tenant: Name,
    /// Its kind.
    pub kind: Name,
    /// Its lane.
    pub lane: Name,
    /// Its agent.
    pub agent: Name,
    /// Attempts opened.
    pub attempts: u32,
    /// Number of its last event.
    pub last_event: u64,
    /// True once it has ended and no attempt of it is open.
    pub ended: bool,
    /// The run that it is a member of.
    pub run: Option<RunId>,
    /// The job that runs, or ran, for it.
    pub merged_into: Option<MergedInto>,
}

impl StoredJob {
    /// From what is stored of the job: its row, its end and whether an attempt of it is open.
    pub fn new(row: &JobRow, end: Option<&crate::JobEnd>, has_attempt: bool) -> StoredJob {
        StoredJob {
            seq: row.seq,
            id: row.id,
            tenant: row.spec.tenant.clone(),
            kind: row.spec.kind.clone(),
            lane: row.spec.lane.clone(),
            agent: row.spec.agent.clone(),
            attempts: end.map_or(row.status.attempts, |end| end.attempts),
            last_event: end.map_or(row.status.last_event, |end| end.last_event),
            ended: end.is_some() && !has_attempt,
            run: row.spec.member.as_ref().map(|member| member.run),
            merged_into: end.and_then(|end| end.merged_into),
        }
    }
}
