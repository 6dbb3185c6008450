//! The connection limit of the server, shared fairly between addresses.
//!
//! While there are free connections, an address may open as many as it likes. At the limit, a new connection evicts
//! an older one of the address with the most connections: first one that has sent no request yet, then the one whose
//! last request is oldest, then one whose request is still arriving. Only an address with fewer connections also
//! evicts one whose request is running. An address never evicts connections of an address with fewer connections, so
//! a flood evicts itself.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use axum::response::Response;
use hyper::body::{Body as _, Frame, SizeHint};
use tokio_util::sync::CancellationToken;

use crate::auth::network_of;

/// No request has arrived yet.
const NEW: u8 = 0;
/// The connection waits for its next request, or discards the rest of the last one.
const IDLE: u8 = 1;
/// A request has begun, and its body is arriving.
const RECEIVING: u8 = 2;
/// A request is running, or its response is being sent.
const RUNNING: u8 = 3;

/// All connections of a server. Clones share them.
#[derive(Clone)]
pub struct Connections {
    max: usize,
    open: Arc<Mutex<Open>>,
}

#[derive(Default)]
struct Open {
    last: u64,
    count: usize,
    /// By address, oldest first.
    of: BTreeMap<IpAddr, BTreeMap<u64, Arc<State>>>,
    changes: Arc<AtomicU64>,
}

#[derive(Default)]
struct State {
    phase: AtomicU8,
    /// Grows with each change of a phase, over all connections.
    changed: AtomicU64,
    changes: Arc<AtomicU64>,
    closing: CancellationToken,
    /// True: the connection ends at once, whatever its phase.
    at_once: AtomicBool,
}

/// One connection. Dropping it removes it.
pub struct Connection {
    address: IpAddr,
    number: u64,
    state: Arc<State>,
    open: Arc<Mutex<Open>>,
}

/// The phase of a connection. Clones share it.
#[derive(Clone)]
pub struct Phase(Arc<State>);

impl Connections {
    /// With this connection limit.
    pub fn new(max: u32) -> Connections {
        Connections { max: max.max(1) as usize, open: Arc::default() }
    }

    /// Adds a connection, and evicts an older one at the limit. `None`: its address has the most, and all of its
    /// requests are running.
    pub fn enter(&self, address: IpAddr) -> Option<Connection> {
        let address = network_of(address);
        let mut open = lock(&self.open);
        if open.count >= self.max && !open.evict(address) {
            return None;
        }
        open.last += 1;
        open.count += 1;
        let changes = Arc::clone(&open.changes);
        let (number, state) = (open.last, Arc::new(State { changes, ..State::default() }));
        open.of.entry(address).or_default().insert(number, Arc::clone(&state));
        Some(Connection { address, number, state, open: Arc::clone(&self.open) })
    }
}

impl Open {
    /// Evicts a connection for a new one of this address. False when none may be evicted.
    fn evict(&mut self, address: IpAddr) -> bool {
        let own = self.of.get(&address).map_or(0, BTreeMap::len);
        let mut crowded: Vec<(Reverse<usize>, IpAddr)> = self
            .of
            .iter()
            .filter(|(other, held)| **other == address || held.len() > own)
            .map(|(other, held)| (Reverse(held.len()), *other))
            .collect();
        crowded.sort_unstable();
        for phase in [NEW, IDLE, RECEIVING] {
            for (_, other) in &crowded {
                let held = self.of[other].iter().filter(|(_, state)| state.phase() == phase);
                let longest = held.min_by_key(|(_, state)| state.changed.load(Ordering::Relaxed));
                if let Some(number) = longest.map(|(number, _)| *number) {
                    self.end(*other, number, phase == RECEIVING);
                    return true;
                }
            }
        }
        // The difference must be at least two, or the two addresses would only swap.
        let largest = crowded.first().filter(|(Reverse(held), _)| *held > own + 1).map(|(_, other)| *other);
        let Some(largest) = largest else { return false };
        let newest = self.of[&largest].last_key_value().map(|(number, _)| *number);
        newest.inspect(|number| self.end(largest, *number, true)).is_some()
    }

    fn end(&mut self, address: IpAddr, number: u64, at_once: bool) {
        if let Some(state) = self.remove(address, number) {
            state.at_once.store(at_once, Ordering::Relaxed);
            state.closing.cancel();
        }
    }

    /// Removes a connection. An evicted one is removed already.
    fn remove(&mut self, address: IpAddr, number: u64) -> Option<Arc<State>> {
        let held = self.of.get_mut(&address)?;
        let state = held.remove(&number)?;
        if held.is_empty() {
            self.of.remove(&address);
        }
        self.count -= 1;
        Some(state)
    }
}

impl State {
    fn phase(&self) -> u8 {
        self.phase.load(Ordering::Relaxed)
    }

    fn set(&self, phase: u8) {
        self.changed.store(self.changes.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
        self.phase.store(phase, Ordering::Relaxed);
    }
}

impl Connection {
    /// Waits until this connection is evicted. False: a request that has begun meanwhile may finish.
    pub async fn ended(&self) -> bool {
        self.state.closing.cancelled().await;
        self.state.at_once.load(Ordering::Relaxed) || matches!(self.state.phase(), NEW | IDLE)
    }

    /// Its phase, which requests on it update.
    pub fn phase(&self) -> Phase {
        Phase(Arc::clone(&self.state))
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        lock(&self.open).remove(self.address, self.number);
    }
}

impl Phase {
    /// A request begins, with or without a body to receive.
    pub fn begin(&self, receives: bool) {
        self.0.set(if receives { RECEIVING } else { RUNNING });
    }

    /// The body of the request has arrived, or is not needed.
    pub fn received(&self) {
        let _ = self.0.phase.compare_exchange(RECEIVING, RUNNING, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// The request is done.
    pub fn end(&self) {
        self.0.set(IDLE);
    }

    /// The response of a request. A streamed response keeps the request running until it is sent.
    pub fn answer(&self, response: Response) -> Response {
        if response.body().size_hint().exact().is_some() {
            self.end();
            return response;
        }
        response.map(|body| Body::new(Streamed { body, phase: self.clone() }))
    }
}

/// The body of a streamed response.
struct Streamed {
    body: Body,
    phase: Phase,
}

impl hyper::body::Body for Streamed {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Streamed {
    fn drop(&mut self) {
        self.phase.end();
    }
}

fn lock(open: &Mutex<Open>) -> MutexGuard<'_, Open> {
    open.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    fn is_ended(connection: &Connection) -> bool {
        connection.state.closing.is_cancelled()
    }

    fn ended(connections: &[Connection]) -> Vec<usize> {
        connections.iter().enumerate().filter(|(_, one)| is_ended(one)).map(|(at, _)| at).collect()
    }

    #[test]
    fn defect_11_silent_connections_are_evicted_first() {
        let connections = Connections::new(4);
        let silent: Vec<Connection> = (0..4).map(|_| connections.enter(address(1)).unwrap()).collect();
        silent[0].phase().begin(false);
        let other = connections.enter(address(2)).unwrap();
        assert_eq!(ended(&silent), [1], "the oldest one that waits for a request");
        let same = connections.enter(address(1)).unwrap();
        assert_eq!(ended(&silent), [1, 2], "an address evicts its own connections");
        assert!(!is_ended(&other), "and none of an address with fewer");
        drop((silent, other, same));
        let open = lock(&connections.open);
        assert!(open.count == 0 && open.of.is_empty());
    }

    #[test]
    fn defect_11_an_active_connection_outlives_silent_ones() {
        let connections = Connections::new(4);
        let held: Vec<Connection> = (0..4).map(|_| connections.enter(address(1)).unwrap()).collect();
        for at in [0, 1, 2, 0] {
            held[at].phase().begin(false);
            held[at].phase().end();
        }
        let mut new = Vec::new();
        for order in [&[3][..], &[3], &[1, 3]] {
            new.push(connections.enter(address(1)).unwrap());
            assert_eq!(ended(&held), order, "first the silent ones, then the one with the oldest request");
            if new.len() == 2 {
                new[1].phase().begin(false);
            }
        }
        assert_eq!(ended(&new), [0]);
    }

    #[test]
    fn defect_11_requests_of_one_address_leave_connections_for_others() {
        let connections = Connections::new(6);
        let busy: Vec<Connection> = (0..6).map(|_| connections.enter(address(1)).unwrap()).collect();
        for connection in &busy {
            connection.phase().begin(false);
        }
        assert!(connections.enter(address(1)).is_none(), "all of its requests are running");
        // A request whose body is arriving is evicted before a running one.
        busy[2].phase().begin(true);
        let mut others = vec![connections.enter(address(2)).unwrap()];
        assert_eq!(ended(&busy), [2]);
        others[0].phase().begin(false);
        for _ in 0..2 {
            others.push(connections.enter(address(2)).unwrap());
            others.last().unwrap().phase().begin(false);
        }
        assert_eq!(ended(&busy), [2, 4, 5], "the newest ones");
        assert!(connections.enter(address(2)).is_none(), "both have half of them now");
        busy[0].phase().end();
        assert!(connections.enter(address(1)).is_some());
    }

    #[tokio::test]
    async fn a_request_that_has_just_begun_may_finish() {
        let connections = Connections::new(1);
        let first = connections.enter(address(1)).unwrap();
        let _second = connections.enter(address(1)).unwrap();
        first.phase().begin(true);
        assert!(!first.ended().await);
        first.phase().end();
        assert!(first.ended().await);
    }
}
