//! What is asked of a gateway: a message in a session, and what its caller wants the run to know.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use laneway_core::{DropPolicy, SessionMode};
use laneway_runtime::agent_turn::AgentTurn;
use serde_json::{Map, Value};

/// A message for an agent.
#[derive(Clone, Debug)]
#[must_use = "a request does nothing until it is scheduled"]
pub struct Request {
    pub(super) session_key: String,
    pub(super) agent: Option<String>,
    pub(super) turn: AgentTurn,
    pub(super) context: Context,
    pub(super) sent_at: Option<SystemTime>,
    pub(super) dedupe_key: Option<String>,
}

impl Request {
    /// This message, in this session. Keys such as `agent:writer:telegram:direct:42` name the agent, too.
    pub fn new(session_key: impl Into<String>, message: impl Into<String>) -> Request {
        Request {
            session_key: session_key.into(),
            agent: None,
            turn: AgentTurn::new(message),
            context: Context::default(),
            sent_at: None,
            dedupe_key: None,
        }
    }

    /// The agent. Defaults to the one that the session's key names, else `default`.
    pub fn agent(mut self, agent: impl Into<String>) -> Request {
        self.agent = Some(agent.into());
        self
    }

    /// Your name for the run. It need not be unique.
    pub fn run_id(mut self, id: impl Into<String>) -> Request {
        self.turn.run_id = Some(id.into());
        self
    }

    /// What traces of the run are filed under; part of its final record, however it ends.
    pub fn trace_id(mut self, id: impl Into<String>) -> Request {
        self.turn.trace_id = Some(id.into());
        self
    }

    /// Who asks.
    pub fn user(mut self, user: impl Into<String>) -> Request {
        self.turn.user_id = Some(user.into());
        self
    }

    /// Where the conversation is: a channel, and whom to answer there.
    pub fn channel(mut self, channel: impl Into<String>, to: impl Into<String>) -> Request {
        (self.turn.deliver_channel, self.turn.deliver_to) = (channel.into(), to.into());
        self
    }

    /// Something that came with the message: the address of a picture, a sound, ….
    pub fn media(mut self, address: impl Into<String>) -> Request {
        self.turn.media.push(address.into());
        self
    }

    /// What the channel says about the message, such as its `message_id`.
    pub fn metadata(mut self, key: impl Into<String>, value: impl Into<Value>) -> Request {
        self.turn.metadata.insert(key.into(), value.into());
        self
    }

    /// A value that the run reads from its [`Context`]. It is kept with the job, so it survives a restart.
    pub fn value(mut self, key: impl Into<String>, value: impl Into<Value>) -> Request {
        self.context.values.insert(key.into(), value.into());
        self
    }

    /// Something of this process that the run reads from its [`Context`] by type: a connection, a collector, …. A run after
    /// a restart finds none.
    pub fn attach<T: Any + Send + Sync>(mut self, thing: Arc<T>) -> Request {
        self.context.attached.push(thing);
        self
    }

    /// When its sender sent it. A message that was sent before everything of its session was stopped is stale.
    pub fn sent_at(mut self, time: SystemTime) -> Request {
        self.sent_at = Some(time);
        self
    }

    /// A message with the same key is the same message: it is answered with the first one's outcome, and runs once.
    pub fn dedupe_key(mut self, key: impl Into<String>) -> Request {
        self.dedupe_key = Some(key.into());
        self
    }
}

/// How a message joins its session. Nothing here is sticky: the next message asks for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// How many turns of the session may run at once. Defaults to 1; 0 counts as 1.
    pub max_concurrent: u32,
    /// What the message does to those before it. Defaults to `Queue`.
    pub mode: SessionMode,
    /// Most messages that may wait. Defaults to 10.
    pub cap: u32,
    /// Who gives way then. Defaults to `Old`.
    pub drop: DropPolicy,
    /// Messages within this time of one another run as one. Defaults to 800 ms; zero: each for itself.
    pub debounce: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            max_concurrent: 1,
            mode: SessionMode::Queue,
            cap: 10,
            drop: DropPolicy::Old,
            debounce: Duration::from_millis(800),
        }
    }
}

/// What a caller wants its run to know. Readable for as long as the run holds it, canceled or not.
#[derive(Clone, Default)]
pub struct Context {
    pub(super) values: Map<String, Value>,
    attached: Vec<Arc<dyn Any + Send + Sync>>,
}

impl Context {
    /// A value by its key.
    pub fn value(&self, key: &str) -> Option<&Value> {
        self.values.get(key)
    }

    /// Something of this process by its type; the last one of that type.
    pub fn get<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        self.attached.iter().rev().find_map(|thing| Arc::clone(thing).downcast().ok())
    }
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context").field("values", &self.values).finish_non_exhaustive()
    }
}

/// Things of this process that wait for their runs, by a number that the job carries.
#[derive(Default)]
pub(super) struct Attachments {
    /// Tells this process from those before it: their numbers mean nothing here.
    boot: u64,
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    last: u64,
    contexts: BTreeMap<u64, Context>,
}

/// Forgets what it stands for when it is dropped.
pub(super) struct Attached {
    number: u64,
    of: Arc<Attachments>,
}

impl Attachments {
    /// For the process with this number.
    pub(super) fn new(boot: u64) -> Attachments {
        Attachments { boot, held: Mutex::default() }
    }

    /// Holds a context until its guard is dropped; gives what stands for it in the job.
    pub(super) fn hold(self: &Arc<Self>, context: &Context) -> Option<(Attached, Value)> {
        if context.attached.is_empty() {
            return None;
        }
        let mut held = self.held();
        held.last += 1;
        let number = held.last;
        held.contexts.insert(number, context.clone());
        let mark = Value::from(vec![self.boot, number]);
        Some((Attached { number, of: Arc::clone(self) }, mark))
    }

    /// The context that stands in a job: its values, and what this process holds for it.
    pub(super) fn context_of(&self, mut values: Map<String, Value>) -> Context {
        let mark = values.remove(MARK);
        let number = |at: usize| mark.as_ref()?.get(at)?.as_u64();
        let attached = match (number(0), number(1)) {
            (Some(boot), Some(number)) if boot == self.boot => {
                self.held().contexts.get(&number).map(|context| context.attached.clone())
            }
            _ => None,
        };
        Context { values, attached: attached.unwrap_or_default() }
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        self.of.held().contexts.remove(&self.number);
    }
}

/// Where a job carries the number of what this process holds for it.
pub(super) const MARK: &str = "$attached";
