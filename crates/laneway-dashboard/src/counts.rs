//! Numbers of jobs that match a filter. A list does not wait for them: counting among millions takes longer than reading a page.
//!
//! A number is kept for a time that grows with the time that counting took, so that open pages cost at most a twentieth of a core. A
//! page that cannot have its number soon shows the last one, or none, and asks again.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use laneway_wire::JobCounts;
use tokio::sync::watch;

use crate::call::Caller;

/// How long a page waits for a number.
const WAIT: Duration = Duration::from_millis(20);
/// How long a number is kept at least.
const KEPT_MIN: Duration = Duration::from_millis(900);
/// A number is kept this many times as long as counting took.
const KEPT_FACTOR: u32 = 20;
/// A number that is older than this is not shown any more.
const SHOWN_MAX: Duration = Duration::from_secs(60);
/// Most filters whose numbers are kept.
const FILTERS_MAX: usize = 256;
/// Most counts of readers with the same view at once.
const AT_ONCE_MAX: usize = 2;

/// The number of jobs of a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// Counted a moment ago.
    Known(u64),
    /// Being counted. The last number, if there is one.
    Pending(Option<u64>),
    /// Too much would have to be read.
    Unknown,
}

/// The numbers, by view and filter.
#[derive(Clone, Default)]
pub struct Counts {
    filters: Arc<Mutex<BTreeMap<(String, String), Filter>>>,
}

struct Filter {
    /// The last number, and when it was counted. `None` inside: it cannot be counted.
    last: Option<(Option<u64>, Instant)>,
    /// Until when the last number counts as known.
    kept_until: Instant,
    /// Changes when the running count ends.
    running: Option<watch::Receiver<()>>,
}

impl Counts {
    /// The number of jobs that match a query, such as `?state=failed`, for readers with one view.
    pub async fn of(&self, view: &str, query: &str, api: &Caller) -> Count {
        let key = (view.to_owned(), query.to_owned());
        let now = Instant::now();
        let mut ended = match self.begin(&key, now) {
            Begin::Known(count) => return count,
            Begin::Wait(ended) => ended,
            Begin::Start(ended, done) => {
                tokio::spawn(self.clone().count(key.clone(), api.clone(), done));
                ended
            }
        };
        // An error means that the count has ended.
        let _ = tokio::time::timeout(WAIT, ended.changed()).await;
        let filters = self.lock();
        let Some(filter) = filters.get(&key) else { return Count::Pending(None) };
        match (&filter.running, filter.last) {
            (None, Some((Some(number), _))) => Count::Known(number),
            (None, Some((None, _))) => Count::Unknown,
            (_, Some((number, at))) if now.duration_since(at) < SHOWN_MAX => Count::Pending(number),
            _ => Count::Pending(None),
        }
    }

    fn begin(&self, key: &(String, String), now: Instant) -> Begin {
        let mut filters = self.lock();
        if let Some(filter) = filters.get(key) {
            if let Some(running) = &filter.running {
                return Begin::Wait(running.clone());
            }
            if let Some((number, _)) = filter.last.filter(|_| now < filter.kept_until) {
                return Begin::Known(number.map_or(Count::Unknown, Count::Known));
            }
        }
        filters.retain(|_, filter| filter.running.is_some() || now < filter.kept_until + SHOWN_MAX);
        let last = filters.get(key).and_then(|filter| filter.last);
        let of_view =
            filters.range((key.0.clone(), String::new())..).take_while(|((view, _), _)| *view == key.0);
        let at_once = of_view.filter(|(_, filter)| filter.running.is_some()).count();
        if at_once >= AT_ONCE_MAX || (filters.len() >= FILTERS_MAX && !filters.contains_key(key)) {
            return Begin::Known(Count::Pending(last.and_then(|(number, _)| number)));
        }
        let (done, ended) = watch::channel(());
        filters.insert(key.clone(), Filter { last, kept_until: now, running: Some(ended.clone()) });
        Begin::Start(ended, done)
    }

    async fn count(self, key: (String, String), api: Caller, done: watch::Sender<()>) {
        let begin = Instant::now();
        let counted = api.get::<JobCounts>(&format!("/v1/jobs/counts{}", key.1)).await;
        let now = Instant::now();
        let kept = (now.duration_since(begin) * KEPT_FACTOR).max(KEPT_MIN);
        let last = Some((counted.ok().map(|counts| counts.total), now));
        self.lock().insert(key, Filter { last, kept_until: now + kept, running: None });
        // There may be no page left that waits.
        let _ = done.send(());
    }

    /// Forgets every number: something was changed, and the reader wants to see it.
    pub fn clear(&self) {
        self.lock().retain(|_, filter| filter.running.is_some());
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<(String, String), Filter>> {
        self.filters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a page does about its number.
enum Begin {
    Known(Count),
    Wait(watch::Receiver<()>),
    Start(watch::Receiver<()>, watch::Sender<()>),
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::http::{Extensions, HeaderMap};
    use axum::routing::get;
    use tokio::sync::Semaphore;

    use super::*;

    /// An API whose counts wait for permits.
    fn api(permits: &Arc<Semaphore>) -> Caller {
        let permits = Arc::clone(permits);
        let count = move || async move {
            permits.acquire().await.unwrap().forget();
            axum::Json(serde_json::json!({"total": 7, "states": {}}))
        };
        let router = Router::new().route("/v1/jobs/counts", get(count));
        Caller::new(&router, &Extensions::new(), &HeaderMap::new(), None)
    }

    #[tokio::test]
    async fn a_page_does_not_wait_for_a_slow_count_and_gets_it_later() {
        let (counts, permits) = (Counts::default(), Arc::new(Semaphore::new(0)));
        let api = api(&permits);
        assert_eq!(counts.of("a", "?state=failed", &api).await, Count::Pending(None));
        permits.add_permits(1);
        let mut count = Count::Pending(None);
        while count != Count::Known(7) {
            count = counts.of("a", "?state=failed", &api).await;
        }
        // It is kept, so that no permit is needed.
        assert_eq!(counts.of("a", "?state=failed", &api).await, Count::Known(7));
        counts.clear();
        assert_eq!(counts.of("a", "?state=failed", &api).await, Count::Pending(None));
    }

    #[tokio::test]
    async fn one_reader_counts_few_filters_at_once() {
        let (counts, permits) = (Counts::default(), Arc::new(Semaphore::new(0)));
        let api = api(&permits);
        for query in ["?a", "?b", "?c", "?d"] {
            assert_eq!(counts.of("a", query, &api).await, Count::Pending(None));
        }
        assert_eq!(counts.lock().len(), AT_ONCE_MAX);
        assert_eq!(counts.of("b", "?a", &api).await, Count::Pending(None));
        assert_eq!(counts.lock().len(), AT_ONCE_MAX + 1, "another reader has its own");
    }
}
