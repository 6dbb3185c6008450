//! Who is owed the news of a job's end: one durable delivery for each, tried until it is answered or given up.
//!
//! The engine decides when a try is due and what its outcome means; the runtime makes the calls. A delivery never holds
//! up a job: beyond a bound the news is dropped, and that is recorded.

use crate::engine::jobs::Job;
use std::collections::BTreeMap;
use std::sync::Arc;

use crate::delivery::{DELIVERY_TRIES_MAX, DeliveryRow, DeliveryState, DeliveryTry, TryOutcome};
use crate::engine::Engine;
use crate::engine::collections::fresh::Fresh;
use crate::engine::collections::slab::Ix;
use crate::engine::jobs::submit::reject;
use crate::engine::webhooks::fair_queue::{FairQueue, queue_of};
use crate::{
    Change, Effects, EventKind, JobId, JobRow, Mono, Name, Notice, Now, Origin, RejectionCode, Reply, Seq,
    Span,
};

/// How far a wait between tries is spread, in percent of it: receivers that come back must not be met all at once.
const JITTER_PERCENT: u64 = 20;
/// Why a delivery was dropped.
const TOO_MANY: &str =
    "too many deliveries wait; raise webhooks.pending_max, or see why receivers do not answer";
/// The same, where it is its own tenant that has too many.
const TOO_MANY_OF_TENANT: &str = "too many deliveries of the tenant wait; raise webhooks.pending_per_tenant_max, or see why \
    receivers do not answer";

/// Every delivery that waits, and figures of those that do not any more.
#[derive(Default)]
pub(in crate::engine) struct Deliveries {
    pending: BTreeMap<Seq, Pending>,
    /// How many of these each tenant has.
    by_tenant: BTreeMap<Name, u32>,
    /// Whose turn it is.
    lines: FairQueue,
    /// How many are under way.
    open: u32,
    /// Ended in commands whose commit has not come yet: the store still says that they wait.
    pub(in crate::engine) fresh: Fresh<Seq, DeliveryRow>,
    totals: DeliveryStats,
}

/// A delivery that waits.
struct Pending {
    row: DeliveryRow,
    /// When it is due; `None` while a try is under way.
    due: Option<Mono>,
}

/// Figures of deliveries. All but `waiting` and `open` count since the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct DeliveryStats {
    /// Deliveries that wait, those under way included.
    pub waiting: u64,
    /// Deliveries that are under way.
    pub open: u64,
    /// Tries that have ended.
    pub tries: u64,
    /// Deliveries that were answered well.
    pub delivered: u64,
    /// Deliveries that were given up.
    pub failed: u64,
    /// Deliveries that were never tried.
    pub dropped: u64,
}

impl Engine {
    /// A job with a callback has ended: somebody is owed the news.
    pub(in crate::engine) fn owe_delivery(&mut self, now: Now, job: Ix<Job>, effects: &mut Effects) {
        let entry = &self.jobs[job];
        let tenant = self.queue.owner_of(entry).clone();
        let host = match self.webhooks.host_of.get(&entry.seq()) {
            Some(host) => self.webhooks.callback_hosts[*host].clone(),
            None => Arc::default(),
        };
        let full = self.deliveries_full(&tenant);
        let fits = full.is_none();
        let row = DeliveryRow {
            seq: Seq(entry.seq()),
            job: entry.id(),
            tenant,
            host,
            state: if fits { DeliveryState::Waiting } else { DeliveryState::Dropped },
            tries: 0,
            next_at: fits.then_some(now.wall),
            created_at: now.wall,
            ended_at: (!fits).then_some(now.wall),
            last_status: None,
            last_error: full.map(Into::into),
        };
        effects.changes.push(Change::DeliveryPut(Box::new(row.clone())));
        if fits {
            self.webhooks.deliveries.wait(row, now.mono);
        } else {
            self.webhooks.deliveries.totals.dropped += 1;
        }
    }

    /// Why there is no room for a delivery more of the tenant, if there is none.
    fn deliveries_full(&self, tenant: &Name) -> Option<&'static str> {
        let webhooks = &self.settings.webhooks;
        let of_tenant = self.webhooks.deliveries.by_tenant.get(tenant).copied().unwrap_or(0);
        if self.webhooks.deliveries.pending.len() >= webhooks.pending_max as usize {
            Some(TOO_MANY)
        } else {
            (of_tenant >= webhooks.pending_per_tenant_max).then_some(TOO_MANY_OF_TENANT)
        }
    }

    /// Keeps whom a job calls back until it has ended.
    pub(in crate::engine) fn remember_callback(&mut self, row: &JobRow) {
        if let Some(callback) = &row.spec.callback {
            let host = self.webhooks.callback_hosts.hold(&callback.host().into());
            self.webhooks.host_of.insert(row.seq.0, host);
        }
    }

    /// Forgets whom a job called back.
    pub(in crate::engine) fn forget_callback(&mut self, job: Ix<Job>) {
        if self.jobs[job].has_callback()
            && let Some(host) = self.webhooks.host_of.remove(&self.jobs[job].seq())
        {
            self.webhooks.callback_hosts.release(host);
        }
    }

    /// Hands out what is due, as much as may be under way.
    pub(in crate::engine) fn deliver(&mut self, now: Now, effects: &mut Effects) {
        self.webhooks.deliveries.lines.limit(self.settings.webhooks.open_per_host_max);
        while let Some(seq) = self.webhooks.deliveries.lines.next(now.mono, self.deliveries_free()) {
            self.webhooks.deliveries.open += 1;
            let pending = self.webhooks.deliveries.pending.get_mut(&seq).expect("what is due waits");
            pending.due = None;
            let number = pending.row.tries + 1;
            effects.notices.push(Notice::Deliver { seq, job: pending.row.job, number });
        }
    }

    /// When the next delivery is due, if one may be handed out then.
    pub(in crate::engine) fn next_delivery(&self) -> Option<Mono> {
        let free = self.deliveries_free();
        self.webhooks.deliveries.lines.next_at(free).filter(|_| free > 0)
    }

    /// How many more may be under way.
    fn deliveries_free(&self) -> u32 {
        self.settings.webhooks.open_max.saturating_sub(self.webhooks.deliveries.open)
    }

    /// A try has ended.
    pub(in crate::engine) fn delivery_tried(
        &mut self,
        now: Now,
        seq: Seq,
        number: u32,
        took: Span,
        outcome: &TryOutcome,
        effects: &mut Effects,
    ) -> Reply {
        let waits = |pending: &&mut Pending| pending.due.is_none() && pending.row.tries + 1 == number;
        let Some(pending) = self.webhooks.deliveries.pending.get_mut(&seq).filter(waits) else {
            return Reply::Stale;
        };
        self.webhooks.deliveries.open -= 1;
        self.webhooks.deliveries.totals.tries += 1;
        let row = &mut pending.row;
        let line = queue_of(row);
        self.webhooks.deliveries.lines.closed(&line);
        row.tries = number;
        (row.last_status, row.last_error) = (outcome.status(), outcome.error());
        effects.changes.push(Change::DeliveryTried(Box::new(DeliveryTry {
            seq,
            number,
            at: now.wall,
            took,
            status: row.last_status,
            error: row.last_error.clone(),
        })));
        let wait = self.settings.webhooks.retries.get(number as usize - 1).copied();
        if let (Some(wait), false, false) = (wait, outcome.is_delivered(), outcome.is_final()) {
            let wait = spread(wait, self.numbers.jitter());
            row.next_at = Some(now.wall + wait);
            pending.due = Some(now.mono + wait);
            self.webhooks.deliveries.lines.wait(&line, now.mono + wait, seq);
            effects.changes.push(Change::DeliveryPut(Box::new(pending.row.clone())));
            return Reply::Done;
        }
        let mut row = self.webhooks.deliveries.remove(seq).expect("it was just there").row;
        (row.next_at, row.ended_at) = (None, Some(now.wall));
        if outcome.is_delivered() {
            row.state = DeliveryState::Delivered;
            self.webhooks.deliveries.totals.delivered += 1;
        } else {
            row.state = DeliveryState::Failed;
            self.webhooks.deliveries.totals.failed += 1;
        }
        self.webhooks.deliveries.fresh.insert(self.numbers.batch(), seq, row.clone());
        effects.changes.push(Change::DeliveryPut(Box::new(row)));
        Reply::Done
    }

    /// Somebody wants a delivery tried again, whatever became of it. `stored`: what the store knows of it.
    pub(in crate::engine) fn redeliver(
        &mut self,
        now: Now,
        tenant: Option<&Name>,
        job: JobId,
        stored: Option<DeliveryRow>,
        origin: &Origin,
        effects: &mut Effects,
    ) -> Reply {
        let Some(stored) = stored.filter(|row| tenant.is_none_or(|tenant| *tenant == row.tenant)) else {
            return Reply::NotFound;
        };
        let seq = stored.seq;
        let known = self.webhooks.deliveries.pending.get(&seq);
        if known.is_some_and(|pending| pending.due.is_none()) {
            // It is under way: that is the try that was asked for.
            return Reply::Done;
        }
        let mut row = match known {
            Some(pending) => pending.row.clone(),
            None => self.webhooks.deliveries.fresh.get(&seq).cloned().unwrap_or(stored),
        };
        if row.tries >= DELIVERY_TRIES_MAX {
            let message = format!("this delivery was tried {DELIVERY_TRIES_MAX} times, which is the most");
            return Reply::Rejected(reject(RejectionCode::TooMany, message));
        }
        if known.is_none()
            && let Some(full) = self.deliveries_full(&row.tenant)
        {
            return Reply::Rejected(reject(RejectionCode::TooMany, full));
        }
        self.webhooks.deliveries.forget(seq);
        (row.state, row.next_at, row.ended_at) = (DeliveryState::Waiting, Some(now.wall), None);
        effects.changes.push(Change::DeliveryPut(Box::new(row.clone())));
        let detail = format!("the news of job {job} is sent again");
        self.numbers.server_event(
            now,
            EventKind::CallDone,
            Some(row.tenant.clone()),
            Some(origin),
            detail.into(),
            effects,
        );
        self.webhooks.deliveries.wait(row, now.mono);
        Reply::Done
    }

    /// Takes up a delivery that waited when the engine was last at work. A try whose teller died with its process is made
    /// again; one whose teller is still `under_way` is not.
    pub(in crate::engine) fn resume_delivery(&mut self, now: Now, row: DeliveryRow, under_way: bool) {
        if under_way {
            self.webhooks.deliveries.open += 1;
            self.webhooks.deliveries.lines.opened(&queue_of(&row));
            self.webhooks.deliveries.insert(row, None);
            return;
        }
        // Stored as a wall time; a clock that was set must not stretch it.
        let longest = self.settings.webhooks.retries.iter().max().copied().unwrap_or_default();
        let rest = row.next_at.map_or(Span(0), |at| at.since(now.wall));
        self.webhooks.deliveries.wait(row, now.mono + Span(rest.0.min(most(longest).0)));
    }

    /// Figures of deliveries.
    pub fn delivery_stats(&self) -> DeliveryStats {
        DeliveryStats {
            waiting: self.webhooks.deliveries.pending.len() as u64,
            open: self.webhooks.deliveries.open.into(),
            ..self.webhooks.deliveries.totals
        }
    }

    /// What is said of deliveries agrees with itself.
    pub(in crate::engine) fn check_deliveries(&self) -> Result<(), String> {
        let Deliveries { pending, by_tenant, lines, open, .. } = &self.webhooks.deliveries;
        let (due, in_lines) = lines.check()?;
        let under_way = pending.values().filter(|pending| pending.due.is_none()).count();
        if under_way != *open as usize || in_lines != *open || under_way + due != pending.len() {
            return Err(format!(
                "deliveries: {open} open, {in_lines} in lines, {due} due, but {} wait and {under_way} of them are under way",
                pending.len()
            ));
        }
        let mut counted = BTreeMap::new();
        for delivery in pending.values() {
            *counted.entry(delivery.row.tenant.clone()).or_insert(0) += 1;
        }
        if counted != *by_tenant {
            return Err(format!("deliveries by tenant are {by_tenant:?}, counted {counted:?}"));
        }
        let callbacks = self.jobs.iter().filter(|(_, job)| job.has_callback()).count();
        if callbacks != self.webhooks.host_of.len() {
            return Err(format!(
                "{callbacks} jobs have a callback, {} hosts are kept",
                self.webhooks.host_of.len()
            ));
        }
        for (seq, delivery) in pending {
            let armed = delivery.due.is_none_or(|at| lines.holds(&queue_of(&delivery.row), at, *seq));
            if !armed || delivery.row.seq != *seq || delivery.row.state != DeliveryState::Waiting {
                return Err(format!("delivery {} is not what it is filed as", seq.0));
            }
        }
        Ok(())
    }
}

impl Deliveries {
    fn wait(&mut self, row: DeliveryRow, due: Mono) {
        self.lines.wait(&queue_of(&row), due, row.seq);
        self.insert(row, Some(due));
    }

    fn insert(&mut self, row: DeliveryRow, due: Option<Mono>) {
        *self.by_tenant.entry(row.tenant.clone()).or_default() += 1;
        self.pending.insert(row.seq, Pending { row, due });
    }

    fn remove(&mut self, seq: Seq) -> Option<Pending> {
        let pending = self.pending.remove(&seq)?;
        let tenant = &pending.row.tenant;
        let left = self.by_tenant.get_mut(tenant).expect("a tenant with deliveries is counted");
        *left -= 1;
        if *left == 0 {
            self.by_tenant.remove(tenant);
        }
        Some(pending)
    }

    /// Forgets a delivery that is not under way.
    fn forget(&mut self, seq: Seq) {
        if let Some(Pending { row, due: Some(at) }) = self.remove(seq) {
            self.lines.leave(&queue_of(&row), at, seq);
        }
    }
}

/// The wait, more or less a fifth.
fn spread(wait: Span, draw: u64) -> Span {
    let least = wait.0 - wait.0 * JITTER_PERCENT / 100;
    let width = most(wait).0 - least;
    Span(least + draw % (width + 1))
}

/// The longest that a wait can become.
fn most(wait: Span) -> Span {
    Span(wait.0.saturating_add(wait.0.saturating_mul(JITTER_PERCENT) / 100))
}
