//! Damage that a read of the store meets: one event and one line of the log for each damaged row, and a gauge of their number.
//!
//! The read itself fails: damaged data is never an answer. What is reported here lets an operator know without waiting for a
//! client to complain.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use laneway_core::command::{AdminCommand, Origin};
use laneway_core::{
    Bytes, Command, DeliveryRow, DeliveryTry, Event, EventKind, JobId, Name, Prior, RunId, RunRow, Seq,
};
use laneway_store::{
    AttemptView, CountBy, DeliveryFilter, EventFilter, FiringLogFilter, FiringLogPage, JobCounts, JobFilter,
    JobView, Lag, LogView, Page, Reader, RunFilter, Runnable, StoreError,
};
use tokio::sync::{mpsc, oneshot};

use crate::event_loop::ClientRequest;

/// Damaged rows that are distinguished. Beyond that, nothing new is reported: the store must be repaired anyway.
const ROWS_MAX: usize = 1_000;
/// What to do about damage.
const REMEDY: &str = "`laneway store check` lists all damage; restore a backup (`laneway restore`) or build the tables anew (`laneway store rebuild`)";

/// Where damage is reported. Clones are the same.
#[derive(Clone, Default)]
pub(crate) struct DamageWatch(Arc<Watched>);

#[derive(Default)]
struct Watched {
    rows: Mutex<BTreeSet<Box<str>>>,
    count: AtomicU64,
    /// The way to the loop, which records events. Not there before the loop is.
    requests: OnceLock<mpsc::WeakSender<ClientRequest>>,
}

impl DamageWatch {
    /// From here on, events can be recorded. What was found before is recorded now.
    pub fn connect(&self, requests: mpsc::WeakSender<ClientRequest>) {
        if self.0.requests.set(requests).is_ok() {
            let found: Vec<Box<str>> = self.rows().iter().cloned().collect();
            found.iter().for_each(|what| self.record(what));
        }
    }

    /// How many damaged rows were met since the start.
    pub fn count(&self) -> u64 {
        self.0.count.load(Ordering::Relaxed)
    }

    /// Damage was met. `what` names the table and the row.
    pub fn report(&self, what: &str) {
        {
            let mut rows = self.rows();
            if rows.len() >= ROWS_MAX || !rows.insert(what.into()) {
                return;
            }
        }
        self.0.count.fetch_add(1, Ordering::Relaxed);
        tracing::error!(damage = what, remedy = REMEDY, "the store is damaged");
        self.record(what);
    }

    /// Lets the loop record an event. A loop that is too busy to take it has other problems, and the log has the line.
    fn record(&self, what: &str) {
        let Some(requests) = self.0.requests.get().and_then(mpsc::WeakSender::upgrade) else { return };
        let detail = format!("{what}; {REMEDY}").into();
        let origin = Origin::server("store");
        let note = AdminCommand::Note { kind: EventKind::StoreDamaged, tenant: None, detail, origin };
        let (reply, _) = oneshot::channel();
        if requests.try_send(ClientRequest::Command(Command::Admin(note), reply)).is_err() {
            tracing::warn!(damage = what, "the event about the damage could not be recorded");
        }
    }

    /// Passes a result on, and reports damage.
    pub fn seen<T>(&self, result: Result<T, StoreError>) -> Result<T, StoreError> {
        if let Err(StoreError::Damaged(what)) = &result {
            self.report(what);
        }
        result
    }

    /// A reader whose damage is reported.
    pub fn reader(&self, reader: Arc<dyn Reader>) -> Arc<dyn Reader> {
        Arc::new(WatchedReader { reader, watch: self.clone() })
    }

    fn rows(&self) -> std::sync::MutexGuard<'_, BTreeSet<Box<str>>> {
        self.0.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct WatchedReader {
    reader: Arc<dyn Reader>,
    watch: DamageWatch,
}

/// Each method asks the reader within, and reports damage.
macro_rules! watched {
    ($(fn $name:ident($($argument:ident: $type:ty),*) -> $value:ty;)+) => {
        $(fn $name(&self, $($argument: $type),*) -> Result<$value, StoreError> {
            self.watch.seen(self.reader.$name($($argument),*))
        })+
    };
}

impl Reader for WatchedReader {
    watched! {
        fn job(id: JobId) -> Option<JobView>;
        fn jobs(filter: &JobFilter, before: Option<Seq>, limit: usize) -> Page<JobView>;
        fn count_jobs(filter: &JobFilter, by: CountBy) -> Option<JobCounts>;
        fn prior(tenant: &Name, key: &Name) -> Option<Prior>;
        fn jobs_at(jobs: &[Seq]) -> Vec<JobView>;
        fn run(id: RunId) -> Option<RunRow>;
        fn runs(filter: &RunFilter, before: Option<Seq>, limit: usize) -> Page<RunRow>;
        fn run_definition(first: Seq) -> Option<Bytes>;
        fn payloads(jobs: &[Seq]) -> Vec<Runnable>;
        fn payload(job: Seq) -> Option<Bytes>;
        fn call_payload(node: Seq) -> Option<Bytes>;
        fn attempts(job: Seq) -> Vec<AttemptView>;
        fn logs(job: Seq, after: u64, limit: usize) -> Vec<LogView>;
        fn events_after(filter: &EventFilter, after: u64, limit: usize) -> Page<Event>;
        fn events_before(filter: &EventFilter, before: Option<u64>, limit: usize) -> Page<Event>;
        fn events_of(job: Seq, limit: usize) -> Vec<Event>;
        fn firing_log(filter: &FiringLogFilter, before: Option<u64>, limit: usize) -> FiringLogPage;
        fn first_event() -> u64;
        fn deliveries(filter: &DeliveryFilter, before: Option<Seq>, limit: usize) -> Page<DeliveryRow>;
        fn delivery(job: JobId) -> Option<DeliveryRow>;
        fn delivery_tries(job: Seq) -> Vec<DeliveryTry>;
        fn reusable_bytes() -> u64;
        fn verify_events() -> u64;
    }

    fn lag(&self) -> Lag {
        self.reader.lag()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_reported_once_and_the_number_of_rows_is_bounded() {
        let watch = DamageWatch::default();
        for _ in 0..3 {
            let read: Result<(), _> = watch.seen(Err(StoreError::Damaged("table run, row 7".into())));
            assert!(read.is_err());
        }
        assert_eq!(watch.count(), 1);
        let other: Result<(), _> = watch.seen(Err(StoreError::Failed("it is slow".into())));
        assert!(other.is_err() && watch.count() == 1, "only damage counts");
        (0..2 * ROWS_MAX).for_each(|row| watch.report(&format!("table log, row {row}")));
        assert_eq!(watch.count(), ROWS_MAX as u64);
    }

    #[test]
    fn what_was_found_before_the_loop_began_is_recorded_then() {
        let watch = DamageWatch::default();
        watch.report("table lane, row 1");
        let (requests, mut taken) = mpsc::channel(4);
        watch.connect(requests.downgrade());
        watch.report("table lane, row 2");
        let details: Vec<String> = std::iter::from_fn(|| taken.try_recv().ok())
            .map(|request| match request {
                ClientRequest::Command(Command::Admin(AdminCommand::Note { kind, detail, .. }), _) => {
                    assert_eq!(kind, EventKind::StoreDamaged);
                    detail.into()
                }
                _ => panic!("something else was sent"),
            })
            .collect();
        assert_eq!(details.len(), 2);
        assert!(
            details[0].starts_with("table lane, row 1; ") && details[1].contains("laneway store rebuild")
        );
    }
}
