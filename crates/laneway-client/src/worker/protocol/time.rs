//! Handles the passing of time: heartbeats, resends, leases, limits.

use std::time::Duration;

use laneway_wire::frame::{AckNote, Frame, Heartbeat, Message, Vitals};
use serde_json::json;

use super::super::outbox::TaskKey;
use super::super::state::WorkerState;
use super::super::tasks::StopReason;
use super::{Action, Beat, CloseReason, Environment, Now, Protocol};

/// Most unanswered heartbeats that are remembered.
const BEATS_MAX: usize = 16;
/// How long a draining worker waits for acknowledgements after its last attempt was stopped.
const FLUSH_LIMIT: Duration = Duration::from_secs(10);

impl Protocol {
    /// When [`Protocol::handle_tick`] has something to do next.
    pub fn next_wakeup(&self) -> Option<Duration> {
        let connected = !matches!(self.state, WorkerState::New | WorkerState::Backoff | WorkerState::Closed);
        let resend = connected.then(|| self.outbox.next_due(self.state.is_up())).flatten();
        let runs = self.tasks.open().next().is_some();
        let unstopped = self.tasks.open().any(|(_, open)| open.stopping.is_none());
        let silence = self.state.is_up() && !self.closed;
        let drain_end = self.drain_until.map(|until| until + self.flush_after());
        [
            resend,
            self.next_beat,
            self.handshake_limit,
            unstopped.then(|| self.lease_warning()),
            (runs || silence).then_some(self.lease_until),
            self.drain_until.filter(|_| unstopped),
            drain_end.filter(|_| !self.closed),
        ]
        .into_iter()
        .flatten()
        .filter(|at| *at < Duration::MAX)
        .min()
    }

    /// Handles everything that is due.
    pub fn handle_tick(&mut self, now: Now, environment: &dyn Environment, out: &mut Vec<Action>) {
        if self.handshake_limit.is_some_and(|limit| now.mono >= limit) {
            self.handshake_limit = None;
            return self.close(CloseReason::Retry, out);
        }
        self.check_lease(now, out);
        self.check_drain(now, out);
        if self.closed {
            return;
        }
        if self.state.is_up() && now.mono >= self.lease_until {
            // No answer for the length of a lease: the connection is half open, or the scheduler
            // hangs.
            return self.close(CloseReason::Retry, out);
        }
        if self.next_beat.is_some_and(|at| now.mono >= at) && self.state.is_up() {
            self.beat(now, environment, out);
        }
        let connected = !matches!(self.state, WorkerState::New | WorkerState::Backoff | WorkerState::Closed);
        if connected {
            self.resend(now, out);
        }
    }

    fn resend(&mut self, now: Now, out: &mut Vec<Action>) {
        let rng = &mut self.rng;
        let due = self.outbox.take_due(now.mono, self.state.is_up(), || rng.f64());
        self.tally.resent += due.frames.len() as u64;
        out.extend(due.frames.into_iter().map(Action::Send));
        if due.exhausted {
            // Outcomes are kept, and are sent again on the next connection.
            self.outbox.rewind(now.mono, |_| true);
            self.close(CloseReason::Retry, out);
        }
    }

    fn beat(&mut self, now: Now, environment: &dyn Environment, out: &mut Vec<Action>) {
        let mut vitals = environment.vitals();
        vitals.inflight = self.tasks.len() as u64;
        vitals.latency_ms = self.latency_ms;
        let healthy = !self.draining && !self.is_overloaded(&vitals);
        if self.draining {
            let mut more = (*vitals.more).clone();
            more.insert(laneway_wire::frame::Text::fixed("draining"), json!(true));
            vitals.more = laneway_wire::frame::Table::new(more).unwrap_or_default();
        }
        self.tally.heartbeats += 1;
        self.tally.degraded += u64::from(!healthy);
        let message = Message::Heartbeat(Heartbeat { healthy, metrics: vitals, packages: None });
        let frame = self.frame(now, message);
        let frame = Frame { ack: AckNote::requested(), ..frame };
        self.beats.push_back(Beat { id: frame.id.clone(), sent: now.mono });
        if self.beats.len() > BEATS_MAX {
            self.beats.pop_front();
        }
        let timing = self.profile.timing;
        self.next_beat = Some(now.mono + timing.heartbeat + timing.heartbeat_jitter.mul_f64(self.rng.f64()));
        out.push(Action::Send(frame));
    }

    fn is_overloaded(&self, vitals: &Vitals) -> bool {
        let over = |value: Option<f64>, limit: f64| value.is_some_and(|value| value >= limit);
        let limits = self.profile.thresholds;
        over(vitals.mem_pct, limits.mem_pct) || over(vitals.disk_pct, limits.disk_pct)
    }

    /// When attempts are asked to stop so that they have ended when the lease ends.
    fn lease_warning(&self) -> Duration {
        let before = self.profile.timing.stop_grace.min(self.lease / 3);
        self.lease_until.saturating_sub(before)
    }

    /// No attempt runs beyond the lease: the scheduler may give it to another worker then.
    fn check_lease(&mut self, now: Now, out: &mut Vec<Action>) {
        if now.mono < self.lease_warning() {
            return;
        }
        let over = now.mono >= self.lease_until;
        let open: Vec<TaskKey> = self.tasks.open().map(|(key, _)| key.clone()).collect();
        for key in open {
            self.stop(&key, StopReason::Lease, out);
            if over {
                out.push(Action::Abandon(key));
            }
        }
    }

    fn check_drain(&mut self, now: Now, out: &mut Vec<Action>) {
        let Some(until) = self.drain_until.filter(|until| now.mono >= *until) else { return };
        let open: Vec<TaskKey> = self.tasks.open().map(|(key, _)| key.clone()).collect();
        for key in open {
            self.stop(&key, StopReason::Drain, out);
        }
        if now.mono >= until + self.flush_after() && !self.closed {
            tracing::error!(results = self.outbox.outcomes(), "stopped before every result was acknowledged");
            self.close(CloseReason::Done, out);
        }
    }

    fn flush_after(&self) -> Duration {
        self.profile.timing.stop_grace + FLUSH_LIMIT
    }
}
