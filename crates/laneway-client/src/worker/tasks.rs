//! The running and remembered tasks, and the decision about a new dispatch: start it, recognise it, or reject it.
//!
//! Pure. Two attempts of one task, or of one `concurrency_key`, are never open at the same time.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use laneway_wire::frame::{Dispatch, ErrorCode, Text};

use super::outbox::{Outbox, TaskKey};

/// How many tasks are remembered after their end, to recognise duplicate dispatches.
pub const REMEMBERED_MAX: usize = 10_000;
/// How many frames of a connection are remembered by `(id, corr)`.
pub const SEEN_MAX: usize = 10_000;

/// A task to run.
#[derive(Clone, Debug, PartialEq)]
pub struct Order {
    /// The attempt.
    pub key: TaskKey,
    /// What to run.
    pub dispatch: Box<Dispatch>,
}

/// Why an attempt is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// The scheduler requested it.
    Canceled,
    /// The scheduler did not answer for the length of the lease.
    Lease,
    /// The worker drains, and the attempt took longer than the drain limit.
    Drain,
    /// The attempt no longer belongs to this worker. Its outcome is discarded.
    Stale,
}

/// Why a dispatch is rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// The error code.
    pub code: ErrorCode,
    /// The part of the worker that rejected it.
    pub part: &'static str,
    /// What is wrong, for people.
    pub message: String,
}

/// The decision about a dispatch.
#[derive(Debug, PartialEq)]
pub enum Intake {
    /// Run it.
    Start(Order),
    /// An older attempt of its task still runs: stop that one; this one starts when it has ended.
    Wait {
        /// The older attempt.
        stop: TaskKey,
    },
    /// A duplicate that is running or whose outcome is known: acknowledge it again.
    Again,
    /// A newer attempt came before: acknowledge it and ignore it.
    Stale,
    /// It cannot run here.
    Rejected(Rejection),
}

/// A running task.
#[derive(Clone, Debug)]
pub struct Open {
    /// Its workflow run.
    pub run_id: Text,
    /// Its node, for error details.
    pub node_id: Text,
    /// Its kind.
    pub kind: Text,
    /// Its middleware chain, by workflow run and host. The running part of a chain takes one slot, because
    /// its callers wait.
    pub chain: Option<(Text, Text)>,
    /// Unanswered calls of the rest of its chain, by id. A task that waits for one takes no slot.
    pub calls: BTreeSet<Text>,
    /// No other task with the same key runs at the same time.
    pub concurrency_key: Option<Text>,
    /// When it started.
    pub started: Duration,
    /// Why it is being stopped, if it is.
    pub stopping: Option<StopReason>,
}

/// The limits on running tasks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Most tasks at once.
    pub max_parallel: usize,
    /// Most tasks of each kind at once.
    pub per_node: BTreeMap<Text, usize>,
}

/// The tasks of a worker.
pub struct Tasks {
    capacity: Capacity,
    open: BTreeMap<TaskKey, Open>,
    /// Newer attempts of tasks that still run an older one.
    waiting: BTreeMap<Text, Order>,
    /// The newest accepted attempt by task, and the order in which tasks arrived.
    taken: BTreeMap<Text, u64>,
    taken_order: VecDeque<Text>,
    /// Frames of this connection, by `(id, corr)`.
    seen: BTreeSet<(Text, Option<Text>)>,
    seen_order: VecDeque<(Text, Option<Text>)>,
}

impl Tasks {
    /// An empty registry.
    pub fn new(capacity: Capacity) -> Tasks {
        Tasks {
            capacity,
            open: BTreeMap::new(),
            waiting: BTreeMap::new(),
            taken: BTreeMap::new(),
            taken_order: VecDeque::new(),
            seen: BTreeSet::new(),
            seen_order: VecDeque::new(),
        }
    }

    /// The number of open tasks: running, or waiting for an older attempt to end.
    pub fn len(&self) -> usize {
        self.open.len() + self.waiting.len()
    }

    /// The running tasks.
    pub fn open(&self) -> impl Iterator<Item = (&TaskKey, &Open)> {
        self.open.iter()
    }

    /// Every attempt that runs, or waits for an older one to end.
    pub fn keys(&self) -> impl Iterator<Item = &TaskKey> {
        self.open.keys().chain(self.waiting.values().map(|order| &order.key))
    }

    /// Decides about a dispatch. `fits` is whether there is a handler and everything that the task refers to.
    pub fn take(
        &mut self,
        now: Duration,
        order: Order,
        outbox: &Outbox,
        draining: bool,
        fits: Result<(), Rejection>,
    ) -> Intake {
        let key = &order.key;
        let waits = self.waiting.get(&key.task_id).is_some_and(|waiting| waiting.key.seq >= key.seq);
        if self.open.contains_key(key) || waits || outbox.has(key) {
            return Intake::Again;
        }
        match self.taken.get(&key.task_id) {
            Some(newest) if *newest == key.seq => return Intake::Again,
            Some(newest) if *newest > key.seq => return Intake::Stale,
            _ => {}
        }
        if let Err(rejection) = fits {
            return Intake::Rejected(rejection);
        }
        let older = self.open.keys().find(|open| open.task_id == key.task_id).cloned();
        if let Some(rejection) = self.over_capacity(&order, older.as_ref(), outbox, draining) {
            return Intake::Rejected(rejection);
        }
        self.remember(key);
        if let Some(stop) = older {
            self.waiting.insert(order.key.task_id.clone(), order);
            return Intake::Wait { stop };
        }
        self.begin(now, &order);
        Intake::Start(order)
    }

    fn over_capacity(
        &self,
        order: &Order,
        older: Option<&TaskKey>,
        outbox: &Outbox,
        draining: bool,
    ) -> Option<Rejection> {
        let rejection = |message: String| {
            let code = ErrorCode::CmdConcurrencyViolation;
            Some(Rejection { code, part: "worker.concurrency", message })
        };
        if draining {
            return rejection("the worker is draining and takes no more tasks".to_owned());
        }
        if outbox.is_full(self.len()) {
            return rejection("too many results wait for an acknowledgement".to_owned());
        }
        let others = || self.open.iter().filter(|(key, _)| Some(*key) != older).map(|(_, open)| open);
        if let Some(wanted) = &order.dispatch.concurrency_key
            && others().any(|open| open.concurrency_key.as_ref() == Some(wanted))
        {
            return rejection(format!("a task with the concurrency_key {:?} runs already", wanted.as_str()));
        }
        let chain = chain_of(&order.dispatch);
        let has_slot = |taken: &mut dyn Iterator<Item = &Open>, limit: usize, more: usize| {
            let (mut alone, mut chains, mut working) = (more, BTreeSet::new(), more);
            for open in taken {
                working += usize::from(open.calls.is_empty());
                match &open.chain {
                    Some(chain) => drop(chains.insert(chain)),
                    None => alone += 1,
                }
            }
            // A middleware may wait for nodes of no chain or of another chain: those of a container.
            let of_chain = chain.as_ref().is_some_and(|chain| chains.contains(chain));
            of_chain || alone + chains.len() < limit || working < limit
        };
        if !has_slot(&mut others(), self.capacity.max_parallel, self.waiting.len()) {
            return rejection(format!("max_parallel of {} tasks run already", self.capacity.max_parallel));
        }
        let kind = &order.dispatch.node_type;
        let limit = self.capacity.per_node.get(kind)?;
        if !has_slot(&mut others().filter(|open| open.kind == *kind), *limit, 0) {
            return rejection(format!(
                "{limit} tasks of kind {:?} run already, the limit of the kind",
                kind.as_str()
            ));
        }
        None
    }

    fn begin(&mut self, now: Duration, order: &Order) {
        let dispatch = &order.dispatch;
        let open = Open {
            run_id: dispatch.run_id.clone(),
            node_id: dispatch.node_id.clone(),
            kind: dispatch.node_type.clone(),
            chain: chain_of(dispatch),
            calls: BTreeSet::new(),
            concurrency_key: dispatch.concurrency_key.clone(),
            started: now,
            stopping: None,
        };
        self.open.insert(order.key.clone(), open);
    }

    fn remember(&mut self, key: &TaskKey) {
        if self.taken.insert(key.task_id.clone(), key.seq).is_none() {
            self.taken_order.push_back(key.task_id.clone());
        }
        while self.taken_order.len() > REMEMBERED_MAX {
            let Some(oldest) = self.taken_order.pop_front() else { break };
            if self.open.keys().any(|open| open.task_id == oldest) {
                // A running task must not be forgotten: a duplicate would start it again.
                self.taken_order.push_back(oldest);
                break;
            }
            self.taken.remove(&oldest);
        }
    }

    /// An attempt calls the rest of its chain and waits for the answer.
    pub fn call(&mut self, key: &TaskKey, request: &Text) {
        if let Some(open) = self.open.get_mut(key) {
            open.calls.insert(request.clone());
        }
    }

    /// A call was answered.
    pub fn answered(&mut self, request: &Text) {
        for open in self.open.values_mut() {
            open.calls.remove(request);
        }
    }

    /// Marks an attempt as stopping. False when it does not run, or is stopping already.
    pub fn stop(&mut self, key: &TaskKey, why: StopReason) -> bool {
        let Some(open) = self.open.get_mut(key) else { return false };
        let first = open.stopping.is_none();
        // A stale attempt stays stale, and a canceled one may still become stale.
        if first || why == StopReason::Stale {
            open.stopping = Some(why);
        }
        first
    }

    /// The attempts of a task that a command refers to: one, or all.
    pub fn attempts(&self, task_id: &str, seq: Option<u64>) -> Vec<TaskKey> {
        let of_task = self.open.keys().filter(|key| key.task_id == *task_id);
        of_task.filter(|key| seq.is_none_or(|seq| seq == key.seq)).cloned().collect()
    }

    /// Removes an attempt that waits for an older one to end.
    pub fn remove_waiting(&mut self, task_id: &str, seq: Option<u64>) -> Option<Order> {
        let waiting = self.waiting.get(task_id)?;
        if seq.is_some_and(|seq| seq != waiting.key.seq) {
            return None;
        }
        self.waiting.remove(task_id)
    }

    /// An attempt has ended. Returns the attempt, and the newer one that may start now.
    pub fn end(&mut self, now: Duration, key: &TaskKey) -> Option<(Open, Option<Order>)> {
        let open = self.open.remove(key)?;
        let next = self.waiting.remove(&key.task_id);
        if let Some(order) = &next {
            self.begin(now, order);
        }
        Some((open, next))
    }

    /// Records a frame of this connection. False for a duplicate.
    pub fn is_new_frame(&mut self, id: &Text, corr: Option<&Text>) -> bool {
        let sight = (id.clone(), corr.cloned());
        if !self.seen.insert(sight.clone()) {
            return false;
        }
        self.seen_order.push_back(sight);
        if self.seen_order.len() > SEEN_MAX
            && let Some(oldest) = self.seen_order.pop_front()
        {
            self.seen.remove(&oldest);
        }
        true
    }

    /// The connection was closed: forgets the ids of its frames.
    pub fn forget_session(&mut self) {
        self.seen.clear();
        self.seen_order.clear();
    }
}

/// The middleware chain of a task.
fn chain_of(dispatch: &Dispatch) -> Option<(Text, Text)> {
    let host = dispatch.host_node_id.as_ref()?;
    Some((dispatch.run_id.clone(), host.clone()))
}

#[cfg(test)]
mod tests;
