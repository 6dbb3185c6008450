//! What time does: timers of jobs fire, workers go silent, schedules fire, old rows are deleted.

use crate::engine::clock::ClockChange;
use crate::engine::queue::ROWS_PRUNED_MAX;
use crate::engine::{Engine, Wakeup};
use crate::{Change, Effects, EventKind, Name, Now, Reply, Wall};

/// Most jobs that one tick looks at; the rest follow in the next batch, so that commands are applied in between.
const DUE_MAX: usize = 1_024;

impl Engine {
    /// Looks at the clock.
    pub(in crate::engine) fn tick(&mut self, now: Now, effects: &mut Effects) {
        self.notice_stall(now);
        for _ in 0..DUE_MAX {
            let Some(job) = self.timers.due(now) else { break };
            self.look_at(now, job, effects);
        }
        self.check_silent_workers(now, effects);
        self.workers.expire_bindings(now, &mut self.queue);
        self.fire_schedules(now, effects);
        self.look_at_clock(now, effects);
        if self.clock.sweep_at() <= now.mono {
            let left_over = self.sweep(now, effects);
            self.clock.swept(now.mono, left_over);
        }
    }

    /// Moves the clock of retention on. A jump of the wall clock is an event. A clock that goes back is stored at once: a
    /// restart that began from a later time would take jobs that end from now on for older than they are.
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
        let mono = self.workers.next_check().map_or(mono, |at| at.min(mono));
        let slot = self.schedules.next_slot().filter(|_| !self.server.is_draining());
        let wall = [self.timers.next_wall(), slot, self.workers.next_expiry()].into_iter().flatten().min();
        Wakeup { mono: Some(mono), wall }
    }

    /// A process that was stopped got no heartbeats: leases get the lost time back.
    fn notice_stall(&mut self, now: Now) {
        let watched = self.workers.next_check();
        let asked = [self.timers.next_mono(), watched].into_iter().flatten().min();
        self.clock.look(now, asked, self.settings.lease);
    }

    /// Deletes ended jobs of a lane on request. A job with an idempotency key stays as long as the key does.
    pub(in crate::engine) fn forget_ended(
        &mut self,
        now: Now,
        lane: Name,
        finished_before: Wall,
        effects: &mut Effects,
    ) -> Reply {
        // The clock of retention counts here, too: jobs and keys may be younger than the wall clock says, and the caller has
        // counted back from the wall clock.
        self.look_at_clock(now, effects);
        let seen = self.clock.seen();
        let ahead = now.wall.since(seen);
        let finished_before = finished_before.min(now.wall).before(ahead);
        let keyed = seen.before(self.settings.idempotency_window).min(finished_before);
        effects.changes.push(Change::JobsPruned {
            lane,
            finished_before,
            keyed_finished_before: keyed,
            max: ROWS_PRUNED_MAX,
        });
        Reply::Done
    }

    /// Deletes rows whose retention has passed: a bounded number, more where more ended. True when a lane may have more.
    fn sweep(&mut self, now: Now, effects: &mut Effects) -> bool {
        let seen = self.clock.seen();
        effects.changes.push(Change::ClockSeen(seen));
        let keyed = seen.before(self.settings.idempotency_window);
        let left_over = self.queue.sweep(seen, keyed, effects);
        effects.changes.push(Change::FiringLogPruned {
            ended_before: seen.before(self.settings.schedules.firing_log_retention),
            keep: self.settings.schedules.firing_log_max,
            slots_before: seen.before(self.settings.schedules.slot_retention),
            max: ROWS_PRUNED_MAX,
        });
        effects.changes.push(Change::EventsPruned { before: seen.before(self.settings.event_retention) });
        self.sessions.sweep(seen, &mut self.queue, effects);
        self.sweep_tokens(now, seen, effects);
        left_over
    }
}
