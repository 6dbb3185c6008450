//! The retention of ended jobs, lane by lane.

use std::ops::Bound;

use crate::engine::queue::Queue;
use crate::{Change, Effects, Name, Span, Wall};

/// Rows of a lane that a sweep may delete beside twice the number of jobs that ended since the last one.
const ROWS_PRUNED_MIN: u32 = 1_000;
/// Rows of a lane that a sweep may delete at most: more would delay the commits of all clients.
pub(in crate::engine) const ROWS_PRUNED_MAX: u32 = 5_000;
/// Removed lanes that one sweep looks at.
const REMOVED_LANES_SWEPT: usize = 64;

impl Queue {
    /// A stored job has this lane. If the settings do not name it, its ended jobs leave by the retention of `main`.
    pub(in crate::engine) fn resume_lane(&mut self, lane: Name) {
        if !self.has_lane(&lane) {
            let retention = self.lanes[self.main_lane()].settings.retention;
            self.removed_lanes.insert(lane, retention);
        }
    }

    /// Deletes ended jobs whose retention has passed. `keyed`: those with an idempotency key must have ended before that,
    /// too. True when a lane may have more.
    pub(in crate::engine) fn sweep(&mut self, seen: Wall, keyed: Wall, effects: &mut Effects) -> bool {
        let mut left_over = false;
        for lane in self.lanes.values_mut() {
            let max = ROWS_PRUNED_MIN.saturating_add(lane.ended.saturating_mul(2)).min(ROWS_PRUNED_MAX);
            lane.ended = lane.ended.saturating_sub(max / 2);
            left_over |= lane.ended > 0;
            let finished_before = seen.before(lane.settings.retention);
            prune(effects, &lane.name, finished_before, keyed.min(finished_before), max);
        }
        self.sweep_removed_lanes(seen, keyed, effects);
        left_over
    }

    /// Deletes ended jobs of lanes that the settings do not name any more, a few lanes at a time.
    fn sweep_removed_lanes(&mut self, seen: Wall, keyed: Wall, effects: &mut Effects) {
        let after = self.removed_lane_swept.take();
        let from = after.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let removed = self.removed_lanes.range::<Name, _>((from, Bound::Unbounded));
        let next: Vec<(&Name, &Span)> = removed.take(REMOVED_LANES_SWEPT).collect();
        for &(lane, retention) in &next {
            // A lane whose handle no other lane has yet was swept with the others.
            if self.lanes.values().any(|other| other.name == *lane) {
                continue;
            }
            let finished_before = seen.before(*retention);
            prune(effects, lane, finished_before, keyed.min(finished_before), ROWS_PRUNED_MIN);
        }
        self.removed_lane_swept = match next.len() {
            REMOVED_LANES_SWEPT => next.last().map(|(lane, _)| (*lane).clone()),
            // That was the last of them: the next sweep begins anew.
            _ => None,
        };
    }
}

/// Deletes ended jobs and ended runs of a lane, `max` at most of each.
fn prune(effects: &mut Effects, lane: &Name, finished_before: Wall, keyed_finished_before: Wall, max: u32) {
    let lane = lane.clone();
    effects.changes.push(Change::JobsPruned {
        lane: lane.clone(),
        finished_before,
        keyed_finished_before,
        max,
    });
    effects.changes.push(Change::RunsPruned { lane, finished_before, keyed_finished_before, max });
}
