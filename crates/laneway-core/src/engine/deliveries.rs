//! Who is owed the news of a job's end: one durable delivery for each, tried until it is answered or given up.
//!
//! The engine decides when a try is due and what its outcome means; the runtime makes the calls. A delivery never holds
//! up a job: beyond a bound the news is dropped, and that is recorded.

use std::collections::{BTreeMap, BTreeSet};

use super::Engine;
use super::slab::Ix;
use super::submit::refuse;
use crate::delivery::{DELIVERY_TRIES_MAX, DeliveryRow, DeliveryState, DeliveryTry, TryOutcome};
use crate::{
    Change, Effects, EventKind, JobId, Mono, Name, Notice, Now, Origin, RefusalCode, Reply, Seq, Span,
};

/// How far a wait between tries is spread, in percent of it: receivers that come back must not be met all at once.
const JITTER_PERCENT: u64 = 20;
/// Why a delivery was dropped.
const TOO_MANY: &str =
    "too many deliveries wait; raise webhooks.pending_max, or see why receivers do not answer";

/// Every delivery that waits, and figures of those that do not any more.
#[derive(Default)]
pub(super) struct Deliveries {
    pending: BTreeMap<Seq, Pending>,
    /// Those that are not under way, by when they are due.
    due: BTreeSet<(Mono, Seq)>,
    /// How many are under way.
    open: u32,
    /// Ended in commands whose commit has not come yet: the store still says that they wait.
    fresh: BTreeMap<Seq, DeliveryRow>,
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
    pub(super) fn owe_delivery(&mut self, now: Now, job: Ix, effects: &mut Effects) {
        let entry = &self.jobs[job];
        let tenant = self.tenants.key(self.classes[entry.class].tenant).clone();
        let fits = self.deliveries.pending.len() < self.settings.webhooks.pending_max as usize;
        let row = DeliveryRow {
            seq: Seq(entry.seq),
            job: entry.id,
            tenant,
            state: if fits { DeliveryState::Waiting } else { DeliveryState::Dropped },
            tries: 0,
            next_at: fits.then_some(now.wall),
            created_at: now.wall,
            ended_at: (!fits).then_some(now.wall),
            last_status: None,
            last_error: (!fits).then(|| TOO_MANY.into()),
        };
        effects.changes.push(Change::DeliveryPut(Box::new(row.clone())));
        if fits {
            self.deliveries.wait(row, now.mono);
        } else {
            self.deliveries.totals.dropped += 1;
        }
    }

    /// Hands out what is due, as much as may be under way.
    pub(super) fn deliver(&mut self, now: Now, effects: &mut Effects) {
        while self.deliveries.open < self.settings.webhooks.open_max
            && let Some(&(at, seq)) = self.deliveries.due.first()
            && at <= now.mono
        {
            self.deliveries.due.pop_first();
            self.deliveries.open += 1;
            let pending = self.deliveries.pending.get_mut(&seq).expect("what is due waits");
            pending.due = None;
            let number = pending.row.tries + 1;
            effects.notices.push(Notice::Deliver { seq, job: pending.row.job, number });
        }
    }

    /// When the next delivery is due, if one may be handed out then.
    pub(super) fn next_delivery(&self) -> Option<Mono> {
        let may = self.deliveries.open < self.settings.webhooks.open_max;
        self.deliveries.due.first().map(|(at, _)| *at).filter(|_| may)
    }

    /// A try has ended.
    pub(super) fn delivery_tried(
        &mut self,
        now: Now,
        seq: Seq,
        number: u32,
        took: Span,
        outcome: &TryOutcome,
        effects: &mut Effects,
    ) -> Reply {
        let waits = |pending: &&mut Pending| pending.due.is_none() && pending.row.tries + 1 == number;
        let Some(pending) = self.deliveries.pending.get_mut(&seq).filter(waits) else { return Reply::Stale };
        self.deliveries.open -= 1;
        self.deliveries.totals.tries += 1;
        let row = &mut pending.row;
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
            let wait = spread(wait, self.rng.jitter());
            row.next_at = Some(now.wall + wait);
            pending.due = Some(now.mono + wait);
            self.deliveries.due.insert((now.mono + wait, seq));
            effects.changes.push(Change::DeliveryPut(Box::new(pending.row.clone())));
            return Reply::Done;
        }
        let mut row = self.deliveries.pending.remove(&seq).expect("it was just there").row;
        (row.next_at, row.ended_at) = (None, Some(now.wall));
        if outcome.is_delivered() {
            row.state = DeliveryState::Delivered;
            self.deliveries.totals.delivered += 1;
        } else {
            row.state = DeliveryState::Failed;
            self.deliveries.totals.failed += 1;
        }
        self.deliveries.fresh.insert(seq, row.clone());
        effects.changes.push(Change::DeliveryPut(Box::new(row)));
        Reply::Done
    }

    /// Somebody wants a delivery tried again, whatever became of it. `stored`: what the store knows of it.
    pub(super) fn redeliver(
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
        let known = self.deliveries.pending.get(&seq);
        if known.is_some_and(|pending| pending.due.is_none()) {
            // It is under way: that is the try that was asked for.
            return Reply::Done;
        }
        let mut row = match known {
            Some(pending) => pending.row.clone(),
            None => self.deliveries.fresh.get(&seq).cloned().unwrap_or(stored),
        };
        if row.tries >= DELIVERY_TRIES_MAX {
            let message = format!("this delivery was tried {DELIVERY_TRIES_MAX} times, which is the most");
            return Reply::Refused(refuse(RefusalCode::TooMany, message));
        }
        let fits = self.deliveries.pending.len() < self.settings.webhooks.pending_max as usize;
        if known.is_none() && !fits {
            return Reply::Refused(refuse(RefusalCode::TooMany, TOO_MANY));
        }
        self.deliveries.forget(seq);
        (row.state, row.next_at, row.ended_at) = (DeliveryState::Waiting, Some(now.wall), None);
        effects.changes.push(Change::DeliveryPut(Box::new(row.clone())));
        let detail = format!("the news of job {job} is sent again");
        self.house_event(
            now,
            EventKind::CallDone,
            Some(row.tenant.clone()),
            Some(origin),
            detail.into(),
            effects,
        );
        self.deliveries.wait(row, now.mono);
        Reply::Done
    }

    /// Takes up a delivery that waited when the engine was last at work. A try whose teller died with its process is made
    /// again; one whose teller is still `under_way` is not.
    pub(super) fn resume_delivery(&mut self, now: Now, row: DeliveryRow, under_way: bool) {
        #[cfg(feature = "zoo")]
        if crate::zoo::is_out(crate::zoo::Bug::DeliveryLostOnCrash) {
            return;
        }
        if under_way {
            self.deliveries.open += 1;
            self.deliveries.pending.insert(row.seq, Pending { row, due: None });
            return;
        }
        // Stored as a wall time; a clock that was set must not stretch it.
        let longest = self.settings.webhooks.retries.iter().max().copied().unwrap_or_default();
        let rest = row.next_at.map_or(Span(0), |at| at.since(now.wall));
        self.deliveries.wait(row, now.mono + Span(rest.0.min(most(longest).0)));
    }

    /// Figures of deliveries.
    pub fn delivery_stats(&self) -> DeliveryStats {
        DeliveryStats {
            waiting: self.deliveries.pending.len() as u64,
            open: self.deliveries.open.into(),
            ..self.deliveries.totals
        }
    }

    /// What is said of deliveries agrees with itself.
    pub(super) fn check_deliveries(&self) -> Result<(), String> {
        let Deliveries { pending, due, open, .. } = &self.deliveries;
        let under_way = pending.values().filter(|pending| pending.due.is_none()).count();
        if under_way != *open as usize || under_way + due.len() != pending.len() {
            return Err(format!(
                "deliveries: {open} open, {} due, but {} wait and {under_way} of them are under way",
                due.len(),
                pending.len()
            ));
        }
        for (seq, delivery) in pending {
            let armed = delivery.due.is_none_or(|at| due.contains(&(at, *seq)));
            if !armed || delivery.row.seq != *seq || delivery.row.state != DeliveryState::Waiting {
                return Err(format!("delivery {} is not what it is filed as", seq.0));
            }
        }
        Ok(())
    }
}

impl Deliveries {
    /// Everything so far is durable.
    pub(super) fn committed(&mut self) {
        self.fresh.clear();
    }

    fn wait(&mut self, row: DeliveryRow, due: Mono) {
        let seq = row.seq;
        self.due.insert((due, seq));
        self.pending.insert(seq, Pending { row, due: Some(due) });
    }

    /// Forgets a delivery that is not under way.
    fn forget(&mut self, seq: Seq) {
        if let Some(Pending { due: Some(at), .. }) = self.pending.remove(&seq) {
            self.due.remove(&(at, seq));
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
