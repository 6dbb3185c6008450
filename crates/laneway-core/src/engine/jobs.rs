//! The life of a job: how it is submitted, created, changed, recorded, canceled, finished and deleted.

mod attempt;
pub(in crate::engine) mod cancel;
mod check;
pub(in crate::engine) mod create;
mod delete;
pub(in crate::engine) mod ending;
pub(in crate::engine) mod finish;
mod job;
mod opening;
mod optional_time;
pub(in crate::engine) mod record;
pub(in crate::engine) mod recorded_rejections;
pub(in crate::engine) mod submit;
mod timing;
mod update;

pub(in crate::engine) use attempt::{Open, Resumed};
pub(in crate::engine) use job::{Armed, Job, Times, Wake};
pub(in crate::engine) use optional_time::{MaybeMono, MaybeWall};

use crate::capacity::Hours;
use crate::engine::collections::fresh::{BatchNumber, Fresh};
use crate::engine::collections::index::{Hashing, Index};
use crate::engine::collections::slab::{Interned, Ix, Slab};
use crate::{Fence, JobId, Name, Prior, RetryPolicy, Wall};

/// Every live job, its open attempt, and what jobs share among themselves.
pub(in crate::engine) struct Jobs {
    slab: Slab<Job>,
    /// Open attempts; a job points at its own.
    attempts: Slab<Open>,
    hashing: Hashing,
    by_id: Index<Job>,
    policies: Interned<RetryPolicy>,
    hours: Interned<Hours>,
    /// Idempotency keys that the store does not know yet.
    fresh_keys: Fresh<(Name, Name), Prior>,
    /// Deleted jobs that the store still has.
    fresh_deleted: Fresh<JobId, ()>,
}

impl Jobs {
    pub(in crate::engine) fn new(hashing: Hashing) -> Jobs {
        Jobs {
            slab: Slab::new(),
            attempts: Slab::new(),
            hashing,
            by_id: Index::new(),
            policies: Interned::new(hashing),
            hours: Interned::new(hashing),
            fresh_keys: Fresh::default(),
            fresh_deleted: Fresh::default(),
        }
    }

    /// The job of that id, live or canceled and still running.
    pub(in crate::engine) fn find(&self, id: JobId) -> Option<Ix<Job>> {
        self.by_id.find(self.hashing.hash(&id), |ix| self.slab[ix].id == id)
    }

    pub(in crate::engine) fn iter(&self) -> impl Iterator<Item = (Ix<Job>, &Job)> {
        self.slab.iter()
    }

    /// The open attempt of a job. It must have one.
    #[inline]
    pub(in crate::engine) fn open(&self, job: Ix<Job>) -> &Open {
        &self.attempts[self.slab[job].attempt()]
    }

    /// The open attempt of a job. It must have one.
    #[inline]
    pub(in crate::engine) fn open_mut(&mut self, job: Ix<Job>) -> &mut Open {
        &mut self.attempts[self.slab[job].attempt()]
    }

    /// The open attempt of a job, if it has one.
    pub(in crate::engine) fn attempt_of(&self, job: Ix<Job>) -> Option<&Open> {
        self.slab[job].open.map(|open| &self.attempts[open])
    }

    /// Every open attempt.
    pub(in crate::engine) fn open_attempts(&self) -> impl Iterator<Item = &Open> {
        self.attempts.iter().map(|(_, open)| open)
    }

    /// Opens an attempt of the job that it names.
    pub(in crate::engine) fn set_open(&mut self, open: Open) {
        let job = open.job;
        self.slab[job].open = Some(self.attempts.insert(open));
    }

    /// True for a job that is reserved and that no worker has claimed.
    pub(in crate::engine) fn is_reserved(&self, job: Ix<Job>) -> bool {
        self.attempt_of(job).is_some_and(Open::is_reserved)
    }

    /// The fence of a job's open attempt.
    pub(in crate::engine) fn fence_of(&self, job: Ix<Job>) -> Fence {
        let (entry, open) = (&self.slab[job], self.open(job));
        Fence {
            job: entry.id,
            attempt: entry.attempts,
            attempt_id: open.attempt_id,
            lease_epoch: open.lease_epoch,
        }
    }

    /// The job that `fence` is about, if it has an open attempt and the fence is that attempt's.
    pub(in crate::engine) fn fenced(&self, fence: &Fence) -> Option<Ix<Job>> {
        let job = self.find(fence.job)?;
        (self.slab[job].has_attempt() && self.fence_of(job) == *fence).then_some(job)
    }

    pub(in crate::engine) fn retry_policy_of(&self, job: Ix<Job>) -> &RetryPolicy {
        &self.policies[self.slab[job].policy]
    }

    /// The hours in which a job starts.
    pub(in crate::engine) fn hours_of(&self, job: Ix<Job>) -> Option<&Hours> {
        self.slab[job].hours.map(|hours| &self.hours[hours])
    }

    /// A queued job has hours: notes when they end.
    pub(in crate::engine) fn begin_hours(&mut self, job: Ix<Job>, now: Wall) {
        if let Some(hours) = self.slab[job].hours {
            let end = self.hours[hours].next_end(now);
            self.slab[job].change_times(|times| times.hours_end = Some(end).into());
        }
    }

    /// The store knows the idempotency keys and the deletions up to this batch.
    pub(in crate::engine) fn committed(&mut self, batch: BatchNumber) {
        self.fresh_keys.committed(batch);
        self.fresh_deleted.committed(batch);
    }

    /// Is this a deleted job that the store still has?
    pub(in crate::engine) fn is_being_deleted(&self, job: JobId) -> bool {
        self.fresh_deleted.get(&job).is_some()
    }

    /// Adds a job, and makes it known by its id.
    fn insert(&mut self, job: Job) -> Ix<Job> {
        let hash = self.hashing.hash(&job.id);
        let ix = self.slab.insert(job);
        self.by_id.insert(hash, ix);
        ix
    }

    /// Removes a job, with its retry policy and hours where no other job has them.
    fn remove(&mut self, job: Ix<Job>) -> Job {
        let hash = self.hashing.hash(&self.slab[job].id);
        self.by_id.remove(hash, job);
        let entry = self.slab.remove(job);
        debug_assert!(
            entry.bin.is_none() && entry.open.is_none(),
            "a job leaves its bin and its gates first"
        );
        self.policies.release(entry.policy);
        if let Some(hours) = entry.hours {
            self.hours.release(hours);
        }
        entry
    }
}

impl std::ops::Index<Ix<Job>> for Jobs {
    type Output = Job;

    fn index(&self, job: Ix<Job>) -> &Job {
        &self.slab[job]
    }
}

impl std::ops::IndexMut<Ix<Job>> for Jobs {
    fn index_mut(&mut self, job: Ix<Job>) -> &mut Job {
        &mut self.slab[job]
    }
}
