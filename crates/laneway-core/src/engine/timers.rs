//! When to look at which job again: one entry for each job and clock.

use std::collections::BTreeSet;

use crate::engine::collections::slab::Ix;
use crate::engine::jobs::{Armed, Job};
use crate::{Mono, Now, Wall};

/// The timers of all jobs.
#[derive(Default)]
pub(in crate::engine) struct Timers {
    mono: BTreeSet<(Mono, Ix<Job>)>,
    wall: BTreeSet<(Wall, Ix<Job>)>,
}

impl Timers {
    /// Replaces what is armed for `job`.
    pub(in crate::engine) fn rearm(&mut self, job: Ix<Job>, was: Armed, now: Armed) {
        if was.mono != now.mono {
            if let Some(at) = was.mono.get() {
                self.mono.remove(&(at, job));
            }
            if let Some(at) = now.mono.get() {
                self.mono.insert((at, job));
            }
        }
        if was.wall != now.wall {
            if let Some(at) = was.wall.get() {
                self.wall.remove(&(at, job));
            }
            if let Some(at) = now.wall.get() {
                self.wall.insert((at, job));
            }
        }
    }

    /// A job whose time has come, earliest first.
    pub(in crate::engine) fn due(&self, now: Now) -> Option<Ix<Job>> {
        match (self.mono.first(), self.wall.first()) {
            (Some(&(at, job)), _) if at <= now.mono => Some(job),
            (_, Some(&(at, job))) if at <= now.wall => Some(job),
            _ => None,
        }
    }

    pub(in crate::engine) fn next_mono(&self) -> Option<Mono> {
        self.mono.first().map(|entry| entry.0)
    }

    pub(in crate::engine) fn next_wall(&self) -> Option<Wall> {
        self.wall.first().map(|entry| entry.0)
    }

    pub(in crate::engine) fn holds(&self, job: Ix<Job>, armed: Armed) -> bool {
        armed.mono.get().is_none_or(|at| self.mono.contains(&(at, job)))
            && armed.wall.get().is_none_or(|at| self.wall.contains(&(at, job)))
    }

    pub(in crate::engine) fn len(&self) -> (usize, usize) {
        (self.mono.len(), self.wall.len())
    }
}
