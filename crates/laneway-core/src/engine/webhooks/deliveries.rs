//! Webhook deliveries: one durable delivery for each ended job with a callback, tried until it succeeds or is given up.
//!
//! The engine decides when a try is made and what its outcome means; the runtime makes the calls. A delivery never holds
//! up a job: beyond a limit a delivery is dropped, and that is recorded.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::delivery::{DELIVERY_TRIES_MAX, DeliveryRow, DeliveryState, DeliveryTry, TryOutcome};
use crate::engine::Engine;
use crate::engine::collections::fresh::BatchNumber;
use crate::engine::jobs::submit::reject;
use crate::engine::jobs::{Job, Jobs};
use crate::engine::numbers::Numbers;
use crate::engine::webhooks::Webhooks;
use crate::engine::webhooks::fair_queue::queue_of;
use crate::settings::WebhookSettings;
use crate::share::Pool;
use crate::{
    Change, Effects, EventKind, JobId, JobRow, Mono, Name, Notice, Now, Origin, Rejection, RejectionCode,
    Reply, Seq, Span,
};

/// How far a wait between tries is spread, in percent of it: receivers that come back must not be met all at once.
const JITTER_PERCENT: u64 = 20;
/// Why a delivery was dropped.
const TOO_MANY: &str =
    "too many deliveries wait; raise webhooks.pending_max, or see why receivers do not answer";
/// The same, when its own tenant has too many.
const TOO_MANY_OF_TENANT: &str = "too many deliveries of the tenant wait; raise webhooks.pending_per_tenant_max, or see why \
    receivers do not answer";

/// A delivery that waits.
pub(super) struct Pending {
    row: DeliveryRow,
    /// When it is tried; `None` while a try is under way.
    due: Option<Mono>,
}

/// Statistics of deliveries. All but `waiting` and `open` count since the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct DeliveryStats {
    /// Deliveries that wait, those under way included.
    pub waiting: u64,
    /// Deliveries that are under way.
    pub open: u64,
    /// Tries that have ended.
    pub tries: u64,
    /// Deliveries that the receiver accepted.
    pub delivered: u64,
    /// Deliveries that were given up.
    pub failed: u64,
    /// Deliveries that were never tried.
    pub dropped: u64,
}

impl Webhooks {
    /// Remembers the callback host of a job until the job is forgotten.
    pub(in crate::engine) fn remember_callback(&mut self, row: &JobRow) {
        if let Some(callback) = &row.spec.callback {
            let host = self.callback_hosts.hold(&callback.host().into());
            self.host_of.insert(row.seq.0, host);
        }
    }

    /// Forgets the callback host of a job.
    pub(in crate::engine) fn forget_callback(&mut self, job: &Job) {
        if job.has_callback()
            && let Some(host) = self.host_of.remove(&job.seq())
        {
            self.callback_hosts.release(host);
        }
    }

    /// A job with a callback has ended: creates its delivery, or drops it when too many wait.
    pub(in crate::engine) fn create_delivery(
        &mut self,
        now: Now,
        job: &Job,
        tenant: Name,
        settings: &WebhookSettings,
        effects: &mut Effects,
    ) {
        let host = match self.host_of.get(&job.seq()) {
            Some(host) => self.callback_hosts[*host].clone(),
            None => Arc::default(),
        };
        let full = self.full_for(&tenant, settings);
        let fits = full.is_none();
        let row = DeliveryRow {
            seq: Seq(job.seq()),
            job: job.id(),
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
            self.wait(row, now.mono);
        } else {
            self.totals.dropped += 1;
        }
    }

    /// True while the delivery of a job waits or is under way.
    pub(in crate::engine) fn waits(&self, job: Seq) -> bool {
        self.pending.contains_key(&job)
    }

    /// Why one more delivery of the tenant does not fit; `None` when it does.
    fn full_for(&self, tenant: &Name, settings: &WebhookSettings) -> Option<&'static str> {
        let of_tenant = self.by_tenant.get(tenant).copied().unwrap_or(0);
        // A tenant alone may borrow all but a reserve, so that it cannot keep the deliveries of others from waiting.
        if Pool::new(settings.pending_max, self.pending.len() as u64).left_to(of_tenant, false) == 0 {
            Some(TOO_MANY)
        } else {
            (of_tenant >= settings.pending_per_tenant_max).then_some(TOO_MANY_OF_TENANT)
        }
    }

    /// Hands out deliveries whose time has come, as many as may be under way.
    pub(in crate::engine) fn hand_out(
        &mut self,
        now: Now,
        settings: &WebhookSettings,
        effects: &mut Effects,
    ) {
        self.queue.limit(settings.open_per_host_max);
        while let Some(seq) = self.queue.next(now.mono, self.pool(settings)) {
            self.open += 1;
            let pending = self.pending.get_mut(&seq).expect("a queued delivery waits");
            pending.due = None;
            let number = pending.row.tries + 1;
            effects.notices.push(Notice::Deliver { seq, job: pending.row.job, number });
        }
    }

    /// When the next delivery can be handed out.
    pub(in crate::engine) fn next_at(&self, settings: &WebhookSettings) -> Option<Mono> {
        let pool = self.pool(settings);
        self.queue.next_at(pool).filter(|_| pool.free > 0)
    }

    /// How many may be under way.
    fn pool(&self, settings: &WebhookSettings) -> Pool {
        Pool::new(settings.open_max, self.open)
    }

    /// A try has ended: the delivery succeeded, waits for the next try, or is given up.
    pub(in crate::engine) fn tried(
        &mut self,
        now: Now,
        tried: DeliveryTry,
        outcome: &TryOutcome,
        settings: &WebhookSettings,
        numbers: &mut Numbers,
        effects: &mut Effects,
    ) -> Reply {
        let (seq, number) = (tried.seq, tried.number);
        let is_open = |pending: &&mut Pending| pending.due.is_none() && pending.row.tries + 1 == number;
        let Some(pending) = self.pending.get_mut(&seq).filter(is_open) else { return Reply::Stale };
        self.open -= 1;
        self.totals.tries += 1;
        let row = &mut pending.row;
        let key = queue_of(row);
        self.queue.closed(&key);
        row.tries = number;
        (row.last_status, row.last_error) = (tried.status, tried.error.clone());
        effects.changes.push(Change::DeliveryTried(Box::new(tried)));
        let wait = settings.retries.get(number as usize - 1).copied();
        if let (Some(wait), false, false) = (wait, outcome.is_delivered(), outcome.is_final()) {
            let wait = spread(wait, numbers.jitter());
            row.next_at = Some(now.wall + wait);
            pending.due = Some(now.mono + wait);
            self.queue.wait(&key, now.mono + wait, seq);
            effects.changes.push(Change::DeliveryPut(Box::new(pending.row.clone())));
            return Reply::Done;
        }
        let mut row = self.remove(seq).expect("it was just there").row;
        (row.next_at, row.ended_at) = (None, Some(now.wall));
        if outcome.is_delivered() {
            row.state = DeliveryState::Delivered;
            self.totals.delivered += 1;
        } else {
            row.state = DeliveryState::Failed;
            self.totals.failed += 1;
        }
        self.fresh.insert(numbers.batch(), seq, row.clone());
        effects.changes.push(Change::DeliveryPut(Box::new(row)));
        Reply::Done
    }

    /// Lets a delivery wait for a try at once, whatever its state. Returns false when a try is under way.
    fn retry_now(
        &mut self,
        now: Now,
        stored: DeliveryRow,
        settings: &WebhookSettings,
        effects: &mut Effects,
    ) -> Result<bool, Rejection> {
        let seq = stored.seq;
        let known = self.pending.get(&seq);
        if known.is_some_and(|pending| pending.due.is_none()) {
            return Ok(false);
        }
        let mut row = match known {
            Some(pending) => pending.row.clone(),
            None => self.fresh.get(&seq).cloned().unwrap_or(stored),
        };
        if row.tries >= DELIVERY_TRIES_MAX {
            let message = format!("this delivery was tried {DELIVERY_TRIES_MAX} times, which is the most");
            return Err(reject(RejectionCode::TooMany, message));
        }
        if known.is_none()
            && let Some(full) = self.full_for(&row.tenant, settings)
        {
            return Err(reject(RejectionCode::TooMany, full));
        }
        self.forget(seq);
        (row.state, row.next_at, row.ended_at) = (DeliveryState::Waiting, Some(now.wall), None);
        effects.changes.push(Change::DeliveryPut(Box::new(row.clone())));
        self.wait(row, now.mono);
        Ok(true)
    }

    /// Loads a delivery that waited when the engine was last at work. A try whose sender died with its process is made
    /// again; one whose sender is still `under_way` is not.
    pub(in crate::engine) fn resume(
        &mut self,
        now: Now,
        row: DeliveryRow,
        under_way: bool,
        settings: &WebhookSettings,
    ) {
        if under_way {
            self.open += 1;
            self.queue.opened(&queue_of(&row));
            self.insert(row, None);
            return;
        }
        // Stored as a wall time; a clock that was set must not stretch it.
        let longest = settings.retries.iter().max().copied().unwrap_or_default();
        let rest = row.next_at.map_or(Span(0), |at| at.since(now.wall));
        self.wait(row, now.mono + Span(rest.0.min(most(longest).0)));
    }

    /// The store knows every delivery that ended up to this batch.
    pub(in crate::engine) fn committed(&mut self, batch: BatchNumber) {
        self.fresh.committed(batch);
    }

    /// Statistics of deliveries.
    pub(in crate::engine) fn stats(&self) -> DeliveryStats {
        DeliveryStats { waiting: self.pending.len() as u64, open: self.open.into(), ..self.totals }
    }

    /// Recounts deliveries and callback hosts.
    pub(in crate::engine) fn check(&self, jobs: &Jobs) -> Result<(), String> {
        let (queued, queue_open) = self.queue.check()?;
        let under_way = self.pending.values().filter(|pending| pending.due.is_none()).count();
        let (open, all) = (self.open, self.pending.len());
        if under_way != open as usize || queue_open != open || under_way + queued != all {
            return Err(format!(
                "deliveries: {open} open, {queue_open} open in the queue, {queued} queued, but {all} wait and {under_way} of \
                 them are under way"
            ));
        }
        let mut counted = BTreeMap::new();
        for delivery in self.pending.values() {
            *counted.entry(delivery.row.tenant.clone()).or_insert(0) += 1;
        }
        if counted != self.by_tenant {
            return Err(format!("deliveries by tenant are {:?}, counted {counted:?}", self.by_tenant));
        }
        let callbacks = jobs.iter().filter(|(_, job)| job.has_callback()).count();
        if callbacks != self.host_of.len() {
            return Err(format!("{callbacks} jobs have a callback, {} hosts are kept", self.host_of.len()));
        }
        for (seq, delivery) in &self.pending {
            let armed = delivery.due.is_none_or(|at| self.queue.holds(&queue_of(&delivery.row), at, *seq));
            if !armed || delivery.row.seq != *seq || delivery.row.state != DeliveryState::Waiting {
                return Err(format!("delivery {} is not queued as it should be", seq.0));
            }
        }
        Ok(())
    }

    fn wait(&mut self, row: DeliveryRow, due: Mono) {
        self.queue.wait(&queue_of(&row), due, row.seq);
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
            self.queue.leave(&queue_of(&row), at, seq);
        }
    }
}

impl Engine {
    /// A caller asks for another try of a delivery, whatever its state. `stored`: the row in the store.
    pub(in crate::engine) fn redeliver(
        &mut self,
        now: Now,
        tenant: Option<&Name>,
        job: JobId,
        stored: Option<DeliveryRow>,
        origin: &Origin,
        effects: &mut Effects,
    ) -> Reply {
        let stored = stored.filter(|row| tenant.is_none_or(|tenant| *tenant == row.tenant));
        // The delivery of a job that is being deleted goes with it.
        let Some(stored) = stored.filter(|_| !self.jobs.is_being_deleted(job)) else {
            return Reply::NotFound;
        };
        let tenant = Some(stored.tenant.clone());
        match self.webhooks.retry_now(now, stored, &self.settings.webhooks, effects) {
            Err(rejection) => return Reply::Rejected(rejection),
            // The try that is under way is the one that the caller asks for.
            Ok(false) => {}
            Ok(true) => {
                let detail = format!("the webhook of job {job} is sent again").into();
                self.numbers.server_event(now, EventKind::CallDone, tenant, Some(origin), detail, effects);
            }
        }
        Reply::Done
    }

    /// Statistics of deliveries.
    pub fn delivery_stats(&self) -> DeliveryStats {
        self.webhooks.stats()
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
