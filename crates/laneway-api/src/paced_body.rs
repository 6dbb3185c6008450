//! Limits how slowly a request body may arrive, and how many large bodies one tenant may send at once.
//!
//! Only arrived bytes count. A body that is announced and withheld blocks no other client, and ends after a few
//! seconds. After 64 KiB a body requires a permit for its whole length, within the shares of its tenant and its token
//! ([`laneway_core::share`]). Memory use after a body was read is not limited here.

use std::collections::HashMap;
use std::error::Error as StdError;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::Request;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use laneway_core::Name;
use laneway_core::share::Pool;
use laneway_runtime::Caller;
use laneway_runtime::caller::BodyDelay;
use tokio::sync::Notify;
use tokio::time::{Instant, Sleep};

use crate::auth::network_of;
use crate::serve::Peer;

/// The large bodies that may arrive at the same time, in MiB.
const MIB_MAX: u32 = 256;
/// The permits of a body of unknown length, in MiB.
const UNKNOWN_MIB: u32 = 16;
/// The most permits of one body, in MiB. No body is longer than a batch.
const BODY_MIB_MAX: u64 = 32;
/// Bodies up to this many bytes need no permit. Those of all connections together have at most 512 MiB.
const SMALL: u64 = 64 * 1024;
/// The longest pause between two bytes.
const IDLE_MAX: Duration = Duration::from_secs(5);
/// The fewest bytes in every second, after the first [`IDLE_MAX`].
const RATE_MIN: u64 = 16 * 1024;
/// The longest time in which a body must arrive.
const WHOLE_MAX: Duration = Duration::from_secs(30);
/// How long a body waits for a permit.
const PERMIT_WAIT_MAX: Duration = Duration::from_secs(5);

/// The permits for large bodies in MiB, by tenant and by token or address.
#[derive(Default)]
pub struct Bodies {
    state: Mutex<State>,
    freed: Notify,
}

#[derive(Default)]
struct State {
    used: u32,
    by_tenant: HashMap<Name, u32>,
    by_caller: HashMap<Who, u32>,
    /// How many bodies wait for a permit.
    waiting: HashMap<Who, u32>,
}

/// A tenant, and one of its tokens or addresses.
type Who = (Name, Box<str>);

/// A body that waits for a permit.
struct Wait<'a> {
    bodies: &'a Bodies,
    who: &'a Who,
}

/// The permit for one large body.
struct Permit {
    bodies: Arc<Bodies>,
    who: Who,
    mib: u32,
}

impl Bodies {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn try_take(self: &Arc<Self>, who: &Who, mib: u32) -> Option<Permit> {
        let mut state = self.state();
        if u64::from(mib) > state.left_to(who) {
            return None;
        }
        state.used += mib;
        *state.by_tenant.entry(who.0.clone()).or_default() += mib;
        *state.by_caller.entry(who.clone()).or_default() += mib;
        Some(Permit { bodies: Arc::clone(self), who: who.clone(), mib })
    }

    async fn take(self: Arc<Self>, who: Who, mib: u32) -> Result<Permit, BodyDelay> {
        let _wait = Wait::new(&self, &who);
        let taken = async {
            loop {
                let freed = self.freed.notified();
                tokio::pin!(freed);
                // Listen before the check: a permit that is released between the two must not be missed.
                freed.as_mut().enable();
                if let Some(permit) = self.try_take(&who, mib) {
                    return permit;
                }
                freed.await;
            }
        };
        tokio::time::timeout(PERMIT_WAIT_MAX, taken).await.map_err(|_| BodyDelay::Busy)
    }
}

impl State {
    /// How much a token may have now. It shares the tenant's part with the tenant's other tokens.
    fn left_to(&self, who: &Who) -> u64 {
        let of_tenant = |tenant: &Name| self.by_tenant.get(tenant).copied().unwrap_or(0);
        let of_caller = |who: &Who| self.by_caller.get(who).copied().unwrap_or(0);
        let (tenant_uses, caller_uses) = (of_tenant(&who.0), of_caller(who));
        let mut contended = (false, false);
        for other in self.waiting.keys() {
            contended.0 |= of_tenant(&other.0) < tenant_uses;
            contended.1 |= other.0 == who.0 && of_caller(other) < caller_uses;
        }
        let left = Pool::new(MIB_MAX, self.used).left_to(tenant_uses, contended.0);
        Pool { total: u64::from(tenant_uses) + left, free: left }.left_to(caller_uses, contended.1)
    }
}

impl<'a> Wait<'a> {
    fn new(bodies: &'a Bodies, who: &'a Who) -> Wait<'a> {
        *bodies.state().waiting.entry(who.clone()).or_default() += 1;
        Wait { bodies, who }
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        let mut state = self.bodies.state();
        if let Some(count) = state.waiting.get_mut(self.who) {
            *count -= 1;
            if *count == 0 {
                state.waiting.remove(self.who);
            }
        }
        drop(state);
        // Bodies that it went before may go now.
        self.bodies.freed.notify_waiters();
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut state = self.bodies.state();
        state.used -= self.mib;
        let left = |count: Option<&mut u32>| {
            count.is_none_or(|count| {
                *count -= self.mib;
                *count == 0
            })
        };
        if left(state.by_tenant.get_mut(&self.who.0)) {
            state.by_tenant.remove(&self.who.0);
        }
        if left(state.by_caller.get_mut(&self.who)) {
            state.by_caller.remove(&self.who);
        }
        drop(state);
        self.bodies.freed.notify_waiters();
    }
}

/// The request with a paced body, on behalf of its caller.
pub fn paced(request: Request, bodies: &Arc<Bodies>, caller: &Caller) -> Request {
    if request.body().is_end_stream() {
        return request;
    }
    let from = match caller.token() {
        Some(token) => token.as_str().into(),
        None => {
            let peer = request.extensions().get::<Peer>();
            peer.map(|peer| network_of(peer.address.ip()).to_string()).unwrap_or_default().into()
        }
    };
    let (bodies, who) = (Arc::clone(bodies), (caller.tenant.clone(), from));
    request.map(|inner| Body::new(PacedBody::new(inner, bodies, who)))
}

struct PacedBody {
    inner: Body,
    bodies: Arc<Bodies>,
    who: Who,
    permit: Held,
    /// The bytes that wait for the permit.
    kept: Option<Frame<Bytes>>,
    received: u64,
    began: Instant,
    /// When the last bytes arrived.
    last: Instant,
    /// Runs while no bytes arrive.
    timer: Option<Pin<Box<Sleep>>>,
}

enum Held {
    Nothing,
    Waiting(Instant, Pin<Box<dyn Future<Output = Result<Permit, BodyDelay>> + Send>>),
    Permit { _permit: Permit },
}

impl PacedBody {
    fn new(inner: Body, bodies: Arc<Bodies>, who: Who) -> PacedBody {
        let now = Instant::now();
        PacedBody {
            inner,
            bodies,
            who,
            permit: Held::Nothing,
            kept: None,
            received: 0,
            began: now,
            last: now,
            timer: None,
        }
    }

    /// When it is rejected if no more bytes arrive.
    fn deadline(&self) -> Instant {
        let earned = Duration::from_millis(self.received.saturating_mul(1_000) / RATE_MIN);
        let whole = (IDLE_MAX + earned).min(WHOLE_MAX);
        (self.began + whole).min(self.last + IDLE_MAX)
    }

    /// The permits that the whole body needs.
    fn mib(&self) -> u32 {
        let rest = self.inner.size_hint().upper();
        let whole = rest.map(|rest| (self.received + rest).div_ceil(1 << 20).min(BODY_MIB_MAX));
        whole.and_then(|mib| u32::try_from(mib).ok()).map_or(UNKNOWN_MIB, |mib| mib.max(1))
    }

    /// Waits for a permit, if it needs one. This time does not count against the sender.
    fn poll_permit(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BodyDelay>> {
        if self.received <= SMALL {
            return Poll::Ready(Ok(()));
        }
        loop {
            match &mut self.permit {
                Held::Permit { .. } => return Poll::Ready(Ok(())),
                Held::Nothing => {
                    let taken = Arc::clone(&self.bodies).take(self.who.clone(), self.mib());
                    self.permit = Held::Waiting(Instant::now(), Box::pin(taken));
                }
                Held::Waiting(since, taken) => {
                    let permit = ready!(taken.as_mut().poll(context))?;
                    self.began += since.elapsed();
                    self.last = Instant::now();
                    self.permit = Held::Permit { _permit: permit };
                }
            }
        }
    }

    fn poll_late(&mut self, context: &mut Context<'_>) -> Poll<BodyDelay> {
        let deadline = self.deadline();
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
        if timer.deadline() != deadline {
            timer.as_mut().reset(deadline);
        }
        timer.as_mut().poll(context).map(|()| BodyDelay::Late)
    }
}

impl HttpBody for PacedBody {
    type Data = Bytes;
    type Error = Box<dyn StdError + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let this = &mut *self;
        // The reader allocates memory when the first bytes exceed the small size, so these bytes need the permit.
        if this.kept.is_none() {
            match Pin::new(&mut this.inner).poll_frame(context) {
                Poll::Ready(Some(Ok(frame))) => {
                    let len = frame.data_ref().map_or(0, Bytes::len);
                    this.received = this.received.saturating_add(len as u64);
                    this.last = Instant::now();
                    this.kept = Some(frame);
                }
                Poll::Ready(other) => return Poll::Ready(other.map(|end| end.map_err(Into::into))),
                Poll::Pending => return this.poll_late(context).map(|delay| Some(Err(delay.into()))),
            }
        }
        let permitted = ready!(this.poll_permit(context));
        Poll::Ready(permitted.map(|()| this.kept.take()).map_err(Into::into).transpose())
    }

    fn is_end_stream(&self) -> bool {
        self.kept.is_none() && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::{StreamExt, stream};

    use super::*;

    fn who(tenant: &'static str, token: &str) -> Who {
        (Name::fixed(tenant), token.into())
    }

    fn delay_of(error: axum::Error) -> Option<BodyDelay> {
        error.into_inner().downcast_ref::<BodyDelay>().copied()
    }

    /// Sends `bytes` bytes `times` times with `pause` between them, then nothing.
    fn trickle(bytes: usize, times: usize, pause: Duration) -> Body {
        let parts = stream::iter(0..times).then(move |_| async move {
            tokio::time::sleep(pause).await;
            Ok::<_, axum::Error>(Bytes::from(vec![b' '; bytes]))
        });
        Body::from_stream(parts.chain(stream::pending()))
    }

    /// The time until the body is rejected, and the reason.
    async fn given_up(body: Body) -> (Duration, Option<BodyDelay>) {
        let began = Instant::now();
        let mut parts =
            Body::new(PacedBody::new(body, Arc::new(Bodies::default()), who("t", "a"))).into_data_stream();
        loop {
            if let Err(error) = parts.next().await.expect("it never ends by itself") {
                return (began.elapsed(), delay_of(error));
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn defect_11_withheld_and_trickled_bodies_are_rejected_soon() {
        let late = Some(BodyDelay::Late);
        let round = |(took, why): (Duration, Option<BodyDelay>)| (took.as_secs(), why);
        assert_eq!(
            round(given_up(Body::from_stream(stream::pending::<Result<Bytes, axum::Error>>())).await),
            (5, late)
        );
        // One byte each second: each one is in time, all together are too slow.
        assert_eq!(round(given_up(trickle(1, 1_000, Duration::from_secs(1))).await), (5, late));
        // As fast as required, and still too late in the end.
        assert_eq!(round(given_up(trickle(20 << 10, 1_000, Duration::from_secs(1))).await), (30, late));
        // Many bytes at once, then none.
        assert_eq!(round(given_up(trickle(1 << 20, 2, Duration::from_millis(1))).await), (5, late));
    }

    #[tokio::test(start_paused = true)]
    async fn defect_11_large_bodies_of_one_tenant_leave_permits_for_others() {
        let bodies = Arc::new(Bodies::default());
        let greedy = |tenant: &'static str, token: &str| -> Vec<Permit> {
            std::iter::from_fn(|| bodies.try_take(&who(tenant, token), 1)).collect()
        };
        let first = greedy("a", "one");
        assert_eq!(first.len(), 196, "a token alone has all but the reserves of other tokens and tenants");
        let second = greedy("a", "two");
        assert_eq!(second.len(), 14, "another token of the tenant gets some at once");
        let largest = bodies.try_take(&who("b", "one"), 32);
        assert!(largest.is_some(), "another tenant sends the largest body at once");
        drop(largest);
        let other = greedy("b", "one");
        assert_eq!(other.len(), 22, "another tenant gets its share at once");
        assert_eq!(Arc::clone(&bodies).take(who("a", "one"), 1).await.err(), Some(BodyDelay::Busy));
        drop((first, second));
        assert!(Arc::clone(&bodies).take(who("a", "one"), 1).await.is_ok());
        drop(other);
        assert!(bodies.state().by_tenant.is_empty() && bodies.state().by_caller.is_empty());
    }

    /// While a tenant with less waits, a tenant with more gets none of the permits that are released.
    #[tokio::test(start_paused = true)]
    async fn defect_11_the_tenant_with_the_smallest_bodies_in_transit_goes_first() {
        let bodies = Arc::new(Bodies::default());
        let take = |tenant: &'static str, token: &str, mib| {
            tokio::spawn(Arc::clone(&bodies).take(who(tenant, token), mib))
        };
        let mut held: Vec<Permit> = Vec::new();
        for token in 0..7 {
            let token = token.to_string();
            held.extend(std::iter::from_fn(|| bodies.try_take(&who("a", &token), 32)));
        }
        assert_eq!(held.len(), 7, "seven bodies of 32 MiB are in transit, the reserve is free");
        let other = take("b", "one", 32).await.unwrap().unwrap();
        // The tenant with more asks first, and would be served first if only the order counted.
        let (small, more) = (take("a", "one", 1), take("b", "two", 32));
        tokio::task::yield_now().await;
        assert!(!more.is_finished() && !small.is_finished(), "both wait");
        // The first release makes the reserve free again; the next one is for the tenant with less.
        drop((held.pop(), held.pop()));
        let more = more.await.unwrap();
        assert!(more.is_ok(), "the tenant with less goes first");
        assert!(!small.is_finished(), "only the reserve is free");
        drop(held.pop());
        assert!(small.await.unwrap().is_ok());
        drop((other, more, held));
        let state = bodies.state();
        assert!(state.by_tenant.is_empty() && state.by_caller.is_empty() && state.used == 0);
    }

    /// A body has the permits of its whole length while it is read, and is rejected when there are none.
    #[tokio::test(start_paused = true)]
    async fn defect_11_a_large_body_has_permits_while_it_is_read() {
        let bodies = Arc::new(Bodies::default());
        let read = |bytes: usize| {
            let body = PacedBody::new(Body::from(vec![b' '; bytes]), Arc::clone(&bodies), who("a", "one"));
            Body::new(body).into_data_stream()
        };
        let (mut small, mut large) = (read(64 << 10), read(3 << 20));
        for (parts, used) in [(&mut small, 0), (&mut large, 3)] {
            parts.next().await.unwrap().unwrap();
            assert_eq!(bodies.state().used, used);
        }
        drop((small, large));
        assert_eq!(bodies.state().used, 0, "a body that was read has none");
        let all: Vec<Permit> = std::iter::from_fn(|| bodies.try_take(&who("a", "two"), 1)).collect();
        let mut rejected = read(32 << 20);
        assert_eq!(delay_of(rejected.next().await.unwrap().unwrap_err()), Some(BodyDelay::Busy));
        assert!(read(64 << 10).next().await.unwrap().is_ok(), "small bodies need none");
        let mut waiting = read(32 << 20);
        let (part, ()) = tokio::join!(waiting.next(), async { drop(all) });
        assert!(part.unwrap().is_ok(), "it waits until others have arrived");
    }

    #[tokio::test(start_paused = true)]
    async fn a_withheld_body_takes_no_permit() {
        let bodies = Arc::new(Bodies::default());
        let mut held = Vec::new();
        for _ in 0..1_000 {
            let body =
                PacedBody::new(trickle(1_000, 1, Duration::ZERO), Arc::clone(&bodies), who("a", "one"));
            let mut parts = Body::new(body).into_data_stream();
            parts.next().await.unwrap().unwrap();
            held.push(parts);
        }
        assert_eq!(bodies.state().used, 0);
    }
}
