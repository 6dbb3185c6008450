//! What time does: due jobs become queued, late ones end, silent leases are lost, old rows are forgotten.

use std::ops::Bound;

use crate::engine::clock::ClockChange;
use crate::engine::{Engine, Wakeup};
use crate::{Change, Effects, EventKind, Name, Now, Reply, Span, Wall};

/// Most jobs that one tick looks at; the rest follow in the next turn, so that commands are heard in between.
const DUE_MAX: usize = 1_024;
/// Rows of a lane that a sweep may delete beside twice what ended since the last one.
const SWEEP_ROWS_MIN: u32 = 1_000;
/// Rows of a lane that a sweep may delete at most: more would hold up everybody's commit.
const SWEEP_ROWS_MAX: u32 = 5_000;
/// Lanes that are named no more and that one sweep looks at.
const REMOVED_LANES_SWEPT: usize = 64;

impl Engine {
    /// Looks at the clock.
    pub(in crate::engine) fn tick(&mut self, now: Now, effects: &mut Effects) {
        self.notice_stall(now);
        for _ in 0..DUE_MAX {
            let Some(job) = self.timers.due(now) else { break };
            self.look_at(now, job, effects);
        }
        self.watch_workers(now, effects);
        self.expire_bindings(now);
        self.fire_schedules(now, effects);
        self.look_at_clock(now, effects);
        if self.clock.sweep_at() <= now.mono {
            let left_over = self.sweep(now, effects);
            self.clock.swept(now.mono, left_over);
        }
    }

    /// Moves the clock of retention on. A jump of the wall clock is an event. A clock that goes back is stored at once: a
    /// restart that began from a later time would take what ends from now on for older than it is.
    pub(in crate::engine) fn look_at_clock(&mut self, now: Now, effects: &mut Effects) {
        let ClockChange { set_back_to, jumped_by } = self.clock.advance(now);
        effects.changes.extend(set_back_to.map(Change::ClockSeen));
        if let Some(ahead) = jumped_by {
            let detail = format!(
                "the wall clock is {} s ahead of the time that was seen to pass; until it has been so for an hour, nothing \
                 is deleted for its age",
                ahead.0 / 1_000
            );
            self.numbers.server_event(now, EventKind::ClockJumped, None, None, detail.into(), effects);
        }
    }

    /// When to look at the clock again.
    pub fn next_wakeup(&self) -> Wakeup {
        let sweep_at = self.clock.sweep_at();
        let mono = self.timers.next_mono().map_or(sweep_at, |at| at.min(sweep_at));
        let mono = self.webhooks.next_at(&self.settings.webhooks).map_or(mono, |at| at.min(mono));
        let mono = self.workers.pool.watch.first().map_or(mono, |&(at, _)| at.min(mono));
        let slot = self.schedules.next_slot().filter(|_| !self.server.is_draining());
        let wall = [self.timers.next_wall(), slot, self.workers.pool.bindings.next_expiry()]
            .into_iter()
            .flatten()
            .min();
        Wakeup { mono: Some(mono), wall }
    }

    /// A process that was stopped heard no heartbeats: leases get the lost time back.
    fn notice_stall(&mut self, now: Now) {
        let watched = self.workers.pool.watch.first().map(|&(at, _)| at);
        let asked = [self.timers.next_mono(), watched].into_iter().flatten().min();
        self.clock.look(now, asked, self.settings.lease);
    }

    /// Somebody wants ended jobs of a lane forgotten. What an idempotency key stands for stays as long as the key does.
    pub(in crate::engine) fn forget_ended(
        &mut self,
        now: Now,
        lane: Name,
        finished_before: Wall,
        effects: &mut Effects,
    ) -> Reply {
        // Also here by the time that was seen to pass: jobs and keys may be younger than the wall clock says, and whoever
        // asks has counted back from the wall clock.
        self.look_at_clock(now, effects);
        let seen = self.clock.seen();
        let ahead = now.wall.since(seen);
        let finished_before = finished_before.min(now.wall).before(ahead);
        let keyed = seen.before(self.settings.idempotency_window).min(finished_before);
        effects.changes.push(Change::JobsPruned {
            lane,
            finished_before,
            keyed_finished_before: keyed,
            max: SWEEP_ROWS_MAX,
        });
        Reply::Done
    }

    /// Forgets ended jobs of lanes that are named no more, a few lanes at a time.
    fn sweep_removed_lanes(&mut self, seen: Wall, keyed: Wall, effects: &mut Effects) {
        let after = self.queue.removed_lane_swept.take();
        let from = after.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let due: Vec<(&Name, &Span)> = self
            .queue
            .removed_lanes
            .range::<Name, _>((from, Bound::Unbounded))
            .take(REMOVED_LANES_SWEPT)
            .collect();
        for &(lane, retention) in &due {
            // One whose slot was not given to another lane yet is swept with the others.
            if self.queue.lanes.values().any(|other| other.name == *lane) {
                continue;
            }
            let finished_before = seen.before(*retention);
            purge(effects, lane, finished_before, keyed.min(finished_before), SWEEP_ROWS_MIN);
        }
        self.queue.removed_lane_swept = match due.len() {
            REMOVED_LANES_SWEPT => due.last().map(|(lane, _)| (*lane).clone()),
            // That was the last of them: the next sweep begins anew.
            _ => None,
        };
    }

    /// Forgets rows that nobody is owed any more: a bounded number, more where more ended. True when a lane may have more.
    fn sweep(&mut self, now: Now, effects: &mut Effects) -> bool {
        let mut left_over = false;
        let seen = self.clock.seen();
        effects.changes.push(Change::ClockSeen(seen));
        let keyed = seen.before(self.settings.idempotency_window);
        for lane in self.queue.lanes.values_mut() {
            let max = SWEEP_ROWS_MIN.saturating_add(lane.ended.saturating_mul(2)).min(SWEEP_ROWS_MAX);
            lane.ended = lane.ended.saturating_sub(max / 2);
            left_over |= lane.ended > 0;
            let finished_before = seen.before(lane.settings.retention);
            purge(effects, &lane.name, finished_before, keyed.min(finished_before), max);
        }
        self.sweep_removed_lanes(seen, keyed, effects);
        effects.changes.push(Change::FiringLogPruned {
            ended_before: seen.before(self.settings.schedules.run_log_retention),
            keep: self.settings.schedules.run_log_max,
            slots_before: seen.before(self.settings.schedules.slot_retention),
            max: SWEEP_ROWS_MAX,
        });
        effects.changes.push(Change::EventsPruned { before: seen.before(self.settings.event_retention) });
        self.sessions.sweep(seen, &mut self.queue, effects);
        self.sweep_tokens(now, seen, effects);
        left_over
    }
}

/// Forgets ended jobs and ended runs of a lane, `max` at most of each.
fn purge(effects: &mut Effects, lane: &Name, finished_before: Wall, keyed_finished_before: Wall, max: u32) {
    let lane = lane.clone();
    effects.changes.push(Change::JobsPruned {
        lane: lane.clone(),
        finished_before,
        keyed_finished_before,
        max,
    });
    effects.changes.push(Change::RunsPruned { lane, finished_before, keyed_finished_before, max });
}
