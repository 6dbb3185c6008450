//! The life of a job: how it is submitted, created, recorded, canceled and finished.

mod attempt;
pub(in crate::engine) mod cancel;
pub(in crate::engine) mod create;
pub(in crate::engine) mod ending;
pub(in crate::engine) mod finish;
mod job;
mod optional_time;
pub(in crate::engine) mod record;
pub(in crate::engine) mod recorded_rejections;
pub(in crate::engine) mod submit;

pub(in crate::engine) use attempt::Open;
pub(in crate::engine) use job::{Armed, Job, Wake};
pub(in crate::engine) use optional_time::{MaybeMono, MaybeWall};

use crate::capacity::Hours;
use crate::engine::collections::fresh::Fresh;
use crate::engine::collections::index::{Hashing, Index};
use crate::engine::collections::slab::{Interned, Ix, Slab};
use crate::{Name, Prior, RetryPolicy};

/// Every live job, its open attempt, and what jobs share among themselves.
pub(in crate::engine) struct Jobs {
    slab: Slab<Job>,
    /// Open attempts; a job points at its own.
    pub(in crate::engine) attempts: Slab<Open>,
    pub(in crate::engine) hashing: Hashing,
    pub(in crate::engine) by_id: Index<Job>,
    pub(in crate::engine) policies: Interned<RetryPolicy>,
    pub(in crate::engine) hours: Interned<Hours>,
    /// Idempotency keys that the store does not know yet.
    pub(in crate::engine) fresh_keys: Fresh<(Name, Name), Prior>,
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
        }
    }

    pub(in crate::engine) fn insert(&mut self, job: Job) -> Ix<Job> {
        self.slab.insert(job)
    }

    pub(in crate::engine) fn remove(&mut self, job: Ix<Job>) -> Job {
        self.slab.remove(job)
    }

    pub(in crate::engine) fn iter(&self) -> impl Iterator<Item = (Ix<Job>, &Job)> {
        self.slab.iter()
    }

    /// Opens an attempt of the job that it names.
    pub(in crate::engine) fn set_open(&mut self, open: Open) {
        let job = open.job;
        self.slab[job].open = Some(self.attempts.insert(open));
    }

    /// The open attempt of a job. It must have one.
    pub(in crate::engine) fn open(&self, job: Ix<Job>) -> &Open {
        &self.attempts[self.slab[job].attempt()]
    }

    /// The open attempt of a job. It must have one.
    pub(in crate::engine) fn open_mut(&mut self, job: Ix<Job>) -> &mut Open {
        &mut self.attempts[self.slab[job].attempt()]
    }

    pub(in crate::engine) fn len(&self) -> usize {
        self.slab.len()
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
