//! Limits the bytes of request bodies in memory: in total, for each tenant and for each caller.
//!
//! Bytes are counted as they arrive, whatever the declared length, and released when the request is done. A body with
//! a small declared length is not counted: the connection limit bounds all of them together. Tenants share the budget as
//! [`laneway_core::share`] describes.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use hyper::body::{Frame, SizeHint};
use laneway_core::Span;
use laneway_core::share::Pool;
use tokio::time::{Duration, Instant};

use crate::error::{ApiError, Code};

/// Bodies with a declared length of at most this many bytes are not counted.
const SMALL: u64 = 64 * 1024;
/// When a new request may succeed. Most requests take less time.
const RETRY_AFTER: Span = Span::secs(1);
/// How long a tenant that was denied goes before tenants that use more: it sends again after [`RETRY_AFTER`].
const CONTENDED_FOR: Duration = Duration::from_secs(2);

/// The budget. Clones share it.
#[derive(Clone)]
pub struct BodyBudget {
    max: usize,
    per_caller_max: usize,
    spent: Arc<Mutex<Spent>>,
}

#[derive(Default)]
struct Spent {
    bytes: usize,
    tenants: HashMap<String, usize>,
    callers: HashMap<String, usize>,
    /// The tenant that was last denied for lack of free bytes, and when.
    denied: Option<(String, Instant)>,
}

/// The bytes of the body of one request. Dropping the last clone releases them.
#[derive(Clone)]
pub struct Spending(Arc<Inner>);

struct Inner {
    budget: BodyBudget,
    tenant: String,
    caller: String,
    so_far: Mutex<SoFar>,
}

#[derive(Default)]
struct SoFar {
    bytes: usize,
    over: Option<Over>,
}

/// The limit that a body exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Over {
    All,
    Tenant,
    Caller,
}

impl BodyBudget {
    /// A budget of `max` bytes, of which one caller may use at most `per_caller_max`.
    pub fn new(max: usize, per_caller_max: usize) -> BodyBudget {
        BodyBudget { max, per_caller_max, spent: Arc::default() }
    }

    /// Counts the bytes of `body` as they arrive, for a caller of a tenant. Small bodies are returned unchanged.
    pub fn count(&self, body: Body, tenant: &str, caller: &str) -> (Body, Option<Spending>) {
        if body.size_hint().upper().is_some_and(|upper| upper <= SMALL) {
            return (body, None);
        }
        let spending = Spending(Arc::new(Inner {
            budget: self.clone(),
            tenant: tenant.to_owned(),
            caller: caller.to_owned(),
            so_far: Mutex::default(),
        }));
        (Body::new(Counted { body, spending: spending.clone() }), Some(spending))
    }

    fn spend(&self, inner: &Inner, bytes: usize) -> Result<(), Over> {
        let mut spent = lock(&self.spent);
        let of = |counts: &HashMap<String, usize>, who: &str| counts.get(who).copied().unwrap_or(0) + bytes;
        if of(&spent.callers, &inner.caller) > self.per_caller_max {
            return Err(Over::Caller);
        }
        let pool = Pool::new(self.max as u64, spent.bytes as u64);
        let contended = spent.is_contended(&inner.tenant);
        let used = spent.tenants.get(&inner.tenant).copied().unwrap_or(0);
        if bytes as u64 > pool.left_to(used as u64, contended) {
            // A tenant that was denied earlier keeps its precedence over one that uses more.
            if !contended {
                spent.denied = Some((inner.tenant.clone(), Instant::now()));
            }
            return Err(if bytes as u64 > pool.free { Over::All } else { Over::Tenant });
        }
        spent.bytes += bytes;
        *spent.tenants.entry(inner.tenant.clone()).or_default() += bytes;
        *spent.callers.entry(inner.caller.clone()).or_default() += bytes;
        Ok(())
    }
}

impl Spent {
    /// Was a tenant that uses less than this one denied just now?
    fn is_contended(&self, tenant: &str) -> bool {
        let uses = |tenant: &str| self.tenants.get(tenant).copied().unwrap_or(0);
        self.denied.as_ref().is_some_and(|(denied, at)| {
            at.elapsed() < CONTENDED_FOR && denied != tenant && uses(denied) < uses(tenant)
        })
    }
}

impl Spending {
    /// The error for a request whose body exceeded a limit.
    pub fn error(&self) -> Option<ApiError> {
        let over = lock(&self.0.so_far).over?;
        let BodyBudget { max, per_caller_max, .. } = self.0.budget;
        let detail = match over {
            Over::Caller => format!(
                "the bodies of this caller's open requests have more than {per_caller_max} bytes \
                 (server.bodies_per_caller_max); wait for answers before you send more"
            ),
            Over::Tenant => format!(
                "the bodies of this tenant's open requests have more than its share of {max} bytes (server.bodies_max); \
                 wait for answers before you send more"
            ),
            Over::All => format!(
                "the bodies of all open requests have {max} bytes (server.bodies_max); send again after Retry-After"
            ),
        };
        let mut error = ApiError::new(Code::TooMany, detail);
        error.retry_after = Some(RETRY_AFTER);
        Some(error)
    }

    fn take(&self, bytes: usize) -> Result<(), std::io::Error> {
        let mut so_far = lock(&self.0.so_far);
        match self.0.budget.spend(&self.0, bytes) {
            Ok(()) => {
                so_far.bytes += bytes;
                Ok(())
            }
            Err(over) => {
                so_far.over = Some(over);
                Err(std::io::Error::other("bodies have too many bytes"))
            }
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let bytes = lock(&self.so_far).bytes;
        if bytes == 0 {
            return;
        }
        let mut spent = lock(&self.budget.spent);
        let Spent { bytes: all, tenants, callers, .. } = &mut *spent;
        *all -= bytes;
        for (counts, who) in [(tenants, &self.tenant), (callers, &self.caller)] {
            if let Some(count) = counts.get_mut(who) {
                *count -= bytes;
                if *count == 0 {
                    counts.remove(who);
                }
            }
        }
    }
}

/// A body whose bytes are counted.
struct Counted {
    body: Body,
    spending: Spending,
}

impl HttpBody for Counted {
    type Data = Bytes;
    type Error = axum::BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::BoxError>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        if let Poll::Ready(Some(Ok(frame))) = &polled
            && let Some(data) = frame.data_ref()
            && let Err(error) = self.spending.take(data.len())
        {
            return Poll::Ready(Some(Err(error.into())));
        }
        // Without its wrapper, in which a reader would not find why a body is late.
        polled.map_err(axum::Error::into_inner)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt;
    use futures_util::stream;

    use super::*;

    /// A body of `pieces` of 1,000 bytes, of unknown length.
    fn body(pieces: usize) -> Body {
        let piece = || Ok::<_, std::io::Error>(Bytes::from(vec![b'x'; 1_000]));
        Body::from_stream(stream::iter(std::iter::repeat_with(piece).take(pieces)))
    }

    /// Reads so many pieces. `None`: the budget does not allow it.
    async fn read(body: Body, pieces: usize) -> Option<Body> {
        let mut chunks = body.into_data_stream();
        for _ in 0..pieces {
            chunks.next().await?.ok()?;
        }
        Some(Body::from_stream(chunks))
    }

    /// Arrived bytes are counted, not declared ones, and they are released with the request.
    #[tokio::test]
    async fn defect_09_bytes_are_counted_as_they_arrive() {
        let budget = BodyBudget::new(100_000, 10_000);
        let (withheld, first) = budget.count(body(1_000), "a", "t1");
        assert_eq!(lock(&budget.spent).bytes, 0, "no byte has arrived");
        let withheld = read(withheld, 9).await.unwrap();
        assert_eq!(lock(&budget.spent).bytes, 9_000);
        let (next, second) = budget.count(body(2), "a", "t1");
        assert!(read(next, 2).await.is_none(), "a caller has 10,000 bytes");
        let error = second.as_ref().unwrap().error().unwrap();
        assert!(error.detail.contains("server.bodies_per_caller_max"), "{}", error.detail);
        assert_eq!((error.code, error.retry_after), (Code::TooMany, Some(RETRY_AFTER)));
        assert!(first.as_ref().unwrap().error().is_none());
        drop((withheld, first, second));
        let spent = lock(&budget.spent);
        assert!(spent.bytes == 0 && spent.tenants.is_empty() && spent.callers.is_empty());
    }

    /// A tenant with many tokens leaves the reserve, and lends nothing to itself after another tenant was denied.
    #[tokio::test(start_paused = true)]
    async fn defect_09_a_tenant_leaves_the_reserve_to_others() {
        let budget = BodyBudget::new(100_000, 100_000);
        let mut held = Vec::new();
        for token in 0..100 {
            let (body, spending) = budget.count(body(1), "a", &format!("t{token}"));
            let Some(body) = read(body, 1).await else {
                assert!(spending.unwrap().error().unwrap().detail.contains("server.bodies_max"));
                break;
            };
            held.push((body, spending));
        }
        assert_eq!(held.len(), 87, "all but an eighth");
        let (other, spending) = budget.count(body(6), "b", "u");
        let other = read(other, 6).await;
        assert!(other.is_some(), "another tenant has something at once");
        let (more, denied) = budget.count(body(6), "b", "u");
        assert!(read(more, 6).await.is_none() && denied.as_ref().unwrap().error().is_some());
        drop((denied, held.split_off(78)));
        let (again, denied) = budget.count(body(1), "a", "t0");
        assert!(read(again, 1).await.is_none(), "a tenant with less was denied just now");
        drop(denied);
        let (more, _spending) = budget.count(body(1), "b", "u");
        assert!(read(more, 1).await.is_some(), "it finds what was released");
        tokio::time::advance(CONTENDED_FOR * 2).await;
        let (again, _spending) = budget.count(body(1), "a", "t0");
        assert!(read(again, 1).await.is_some(), "what is free is borrowed again");
        drop((other, spending));
    }

    #[tokio::test]
    async fn small_bodies_are_not_counted() {
        let budget = BodyBudget::new(1, 1);
        assert!(budget.count(Body::from(vec![b'x'; 65_536]), "a", "t").1.is_none());
        assert!(budget.count(Body::from(vec![b'x'; 65_537]), "a", "t").1.is_some());
    }
}
