//! What runs, what ran, and what becomes of a dispatch that arrives: started, known already, or refused.
//!
//! Pure. Nothing here ever lets two runs of one task, or of one `concurrency_key`, be open at the same time.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use laneway_wire::frame::{Dispatch, ErrorCode, Text};

use super::outbox::{Outbox, TaskKey};

/// How many tasks are remembered after their end, to know a dispatch that comes again.
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

/// Why a run is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// The scheduler asked for it.
    Canceled,
    /// The scheduler has not been heard for as long as the lease.
    Lease,
    /// The worker stops, and the run took longer than that may last.
    Drain,
    /// The attempt is not ours any more; its outcome interests nobody.
    Stale,
}

/// Why a dispatch is not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The code of the answer.
    pub code: ErrorCode,
    /// Which part of the worker says so.
    pub part: &'static str,
    /// What is wrong, for people.
    pub message: String,
}

/// What becomes of a dispatch.
#[derive(Debug, PartialEq)]
pub enum Intake {
    /// Run it.
    Start(Order),
    /// Its task still runs as an older attempt: stop that; this one starts when it has ended.
    Wait {
        /// The older attempt.
        stop: TaskKey,
    },
    /// It came before and is running, or its outcome is known: acknowledge it again.
    Again,
    /// A newer attempt came before: acknowledge it, and do nothing.
    Stale,
    /// It cannot run here.
    Refused(Refusal),
}

/// A task that runs.
#[derive(Clone, Debug)]
pub struct Open {
    /// Its run.
    pub run_id: Text,
    /// Its node, for error details.
    pub node_id: Text,
    /// Its kind.
    pub kind: Text,
    /// Whoever has the same one does not run beside it.
    pub concurrency_key: Option<Text>,
    /// When it began.
    pub started: Duration,
    /// Why it is being stopped, if it is.
    pub stopping: Option<StopReason>,
}

/// How much may run at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Most tasks.
    pub max_parallel: usize,
    /// Most tasks of a kind.
    pub per_node: BTreeMap<Text, usize>,
}

/// The tasks of a worker.
pub struct Desk {
    capacity: Capacity,
    open: BTreeMap<TaskKey, Open>,
    /// Newer attempts of tasks that still run as older ones.
    waiting: BTreeMap<Text, Order>,
    /// The newest attempt ever taken, by task, and in which order tasks came.
    taken: BTreeMap<Text, u64>,
    taken_order: VecDeque<Text>,
    /// Frames of this connection, by `(id, corr)`.
    seen: BTreeSet<(Text, Option<Text>)>,
    seen_order: VecDeque<(Text, Option<Text>)>,
}

impl Desk {
    /// An empty desk.
    pub fn new(capacity: Capacity) -> Desk {
        Desk {
            capacity,
            open: BTreeMap::new(),
            waiting: BTreeMap::new(),
            taken: BTreeMap::new(),
            taken_order: VecDeque::new(),
            seen: BTreeSet::new(),
            seen_order: VecDeque::new(),
        }
    }

    /// How many tasks are open: they run, or wait for an older attempt to end.
    pub fn len(&self) -> usize {
        self.open.len() + self.waiting.len()
    }

    /// What runs.
    pub fn open(&self) -> impl Iterator<Item = (&TaskKey, &Open)> {
        self.open.iter()
    }

    /// Decides about a dispatch. `fits` says whether there is a handler and everything the task refers to.
    pub fn take(
        &mut self,
        now: Duration,
        order: Order,
        outbox: &Outbox,
        draining: bool,
        fits: Result<(), Refusal>,
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
        if let Err(refusal) = fits {
            return Intake::Refused(refusal);
        }
        let older = self.open.keys().find(|open| open.task_id == key.task_id).cloned();
        if let Some(refusal) = self.no_room(&order, older.as_ref(), outbox, draining) {
            return Intake::Refused(refusal);
        }
        self.remember(key);
        if let Some(stop) = older {
            self.waiting.insert(order.key.task_id.clone(), order);
            return Intake::Wait { stop };
        }
        self.begin(now, &order);
        Intake::Start(order)
    }

    fn no_room(
        &self,
        order: &Order,
        older: Option<&TaskKey>,
        outbox: &Outbox,
        draining: bool,
    ) -> Option<Refusal> {
        let refusal = |message: String| {
            let code = ErrorCode::CmdConcurrencyViolation;
            Some(Refusal { code, part: "worker.concurrency", message })
        };
        if draining {
            return refusal("the worker is draining and takes no more tasks".to_owned());
        }
        if outbox.is_full(self.len()) {
            return refusal("too many results wait to be acknowledged".to_owned());
        }
        let others = || self.open.iter().filter(|(key, _)| Some(*key) != older).map(|(_, open)| open);
        if let Some(wanted) = &order.dispatch.concurrency_key
            && others().any(|open| open.concurrency_key.as_ref() == Some(wanted))
        {
            return refusal(format!("a task with the concurrency_key {:?} runs already", wanted.as_str()));
        }
        if others().count() + self.waiting.len() >= self.capacity.max_parallel {
            return refusal(format!("max_parallel of {} tasks run already", self.capacity.max_parallel));
        }
        let kind = &order.dispatch.node_type;
        let limit = self.capacity.per_node.get(kind)?;
        if others().filter(|open| open.kind == *kind).count() >= *limit {
            return refusal(format!("{limit} tasks of kind {:?} run already: its limit", kind.as_str()));
        }
        None
    }

    fn begin(&mut self, now: Duration, order: &Order) {
        let dispatch = &order.dispatch;
        let open = Open {
            run_id: dispatch.run_id.clone(),
            node_id: dispatch.node_id.clone(),
            kind: dispatch.node_type.clone(),
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
                // What runs must not be forgotten: a duplicate would start it again.
                self.taken_order.push_back(oldest);
                break;
            }
            self.taken.remove(&oldest);
        }
    }

    /// Notes that an attempt is being stopped. False when it does not run, or is being stopped already.
    pub fn stop(&mut self, key: &TaskKey, why: StopReason) -> bool {
        let Some(open) = self.open.get_mut(key) else { return false };
        let first = open.stopping.is_none();
        // An attempt that is not ours stays so, and one that was canceled may still turn out not to be ours.
        if first || why == StopReason::Stale {
            open.stopping = Some(why);
        }
        first
    }

    /// The attempts of a task that a command means: one, or all.
    pub fn attempts(&self, task_id: &str, seq: Option<u64>) -> Vec<TaskKey> {
        let of_task = self.open.keys().filter(|key| key.task_id == *task_id);
        of_task.filter(|key| seq.is_none_or(|seq| seq == key.seq)).cloned().collect()
    }

    /// Takes back an attempt that waits for an older one to end.
    pub fn unwait(&mut self, task_id: &str, seq: Option<u64>) -> Option<Order> {
        let waiting = self.waiting.get(task_id)?;
        if seq.is_some_and(|seq| seq != waiting.key.seq) {
            return None;
        }
        self.waiting.remove(task_id)
    }

    /// An attempt has ended. Gives what it was, and the newer attempt that may begin now.
    pub fn end(&mut self, now: Duration, key: &TaskKey) -> Option<(Open, Option<Order>)> {
        let open = self.open.remove(key)?;
        let next = self.waiting.remove(&key.task_id);
        if let Some(order) = &next {
            self.begin(now, order);
        }
        Some((open, next))
    }

    /// Notes a frame of this connection. False when it came before.
    pub fn first_sight(&mut self, id: &Text, corr: Option<&Text>) -> bool {
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

    /// The connection is gone: ids of its frames mean nothing any more.
    pub fn forget_session(&mut self) {
        self.seen.clear();
        self.seen_order.clear();
    }
}

#[cfg(test)]
mod tests;
