//! Times that may be missing, in eight bytes: a job has several of them.

use crate::{Mono, Wall};

/// A point of the monotonic clock or none, in eight bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::engine) struct MaybeMono(u64);

impl MaybeMono {
    pub(super) const NONE: MaybeMono = MaybeMono(u64::MAX);

    pub(in crate::engine) fn get(self) -> Option<Mono> {
        (self != MaybeMono::NONE).then_some(Mono(self.0))
    }

    pub(in crate::engine) fn is_due(self, now: Mono) -> bool {
        self != MaybeMono::NONE && self.0 <= now.0
    }
}

impl Default for MaybeMono {
    fn default() -> MaybeMono {
        MaybeMono::NONE
    }
}

impl From<Option<Mono>> for MaybeMono {
    fn from(at: Option<Mono>) -> MaybeMono {
        MaybeMono(at.map_or(u64::MAX, |at| at.0))
    }
}

/// A point of the wall clock or none, in eight bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::engine) struct MaybeWall(i64);

impl MaybeWall {
    pub(super) const NONE: MaybeWall = MaybeWall(i64::MAX);

    pub(in crate::engine) fn get(self) -> Option<Wall> {
        (self != MaybeWall::NONE).then_some(Wall(self.0))
    }

    pub(in crate::engine) fn is_due(self, now: Wall) -> bool {
        self != MaybeWall::NONE && self.0 <= now.0
    }
}

impl Default for MaybeWall {
    fn default() -> MaybeWall {
        MaybeWall::NONE
    }
}

impl From<Option<Wall>> for MaybeWall {
    fn from(at: Option<Wall>) -> MaybeWall {
        MaybeWall(at.map_or(i64::MAX, |at| at.0))
    }
}
