//! A request to a gateway: a message in a session, and context for its turn.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use laneway_compat::agent_turn::AgentTurn;
use laneway_core::job::session::ChatSettings;
use laneway_core::{DropPolicy, SessionMode};
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
    /// A message in a session. Keys such as `agent:writer:telegram:direct:42` also name the agent.
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

    /// The agent. Defaults to the one in the session's key, else `default`.
    pub fn agent(mut self, agent: impl Into<String>) -> Request {
        self.agent = Some(agent.into());
        self
    }

    /// Your id for the turn. It need not be unique.
    pub fn run_id(mut self, id: impl Into<String>) -> Request {
        self.turn.run_id = Some(id.into());
        self
    }

    /// The trace id; part of the turn's final record, however it ends.
    pub fn trace_id(mut self, id: impl Into<String>) -> Request {
        self.turn.trace_id = Some(id.into());
        self
    }

    /// The user.
    pub fn user(mut self, user: impl Into<String>) -> Request {
        self.turn.user_id = Some(user.into());
        self
    }

    /// The channel of the conversation, and the recipient there.
    pub fn channel(mut self, channel: impl Into<String>, to: impl Into<String>) -> Request {
        (self.turn.deliver_channel, self.turn.deliver_to) = (channel.into(), to.into());
        self
    }

    /// Media of the message: the address of a picture, a sound, ….
    pub fn media(mut self, address: impl Into<String>) -> Request {
        self.turn.media.push(address.into());
        self
    }

    /// Metadata of the channel, such as the `message_id`.
    pub fn metadata(mut self, key: impl Into<String>, value: impl Into<Value>) -> Request {
        self.turn.metadata.insert(key.into(), value.into());
        self
    }

    /// A value that the turn reads from its [`Context`]. It is stored with the job, so it survives a restart.
    pub fn value(mut self, key: impl Into<String>, value: impl Into<Value>) -> Request {
        self.context.values.insert(key.into(), value.into());
        self
    }

    /// An object of this process that the turn reads from its [`Context`] by type: a connection, a collector,
    /// …. A turn after a restart has none.
    pub fn attach<T: Any + Send + Sync>(mut self, thing: Arc<T>) -> Request {
        self.context.attached.push(thing);
        self
    }

    /// When it was sent. A message that was sent before its session was stopped is stale.
    pub fn sent_at(mut self, time: SystemTime) -> Request {
        self.sent_at = Some(time);
        self
    }

    /// A message with the same key is the same message: it runs once, and both get its outcome.
    pub fn dedupe_key(mut self, key: impl Into<String>) -> Request {
        self.dedupe_key = Some(key.into());
        self
    }
}

/// The session options of a message. They apply to this message only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// How many turns of the session may run at once. Defaults to 1; 0 counts as 1.
    pub max_concurrent: u32,
    /// What the message does to earlier ones. Defaults to `Queue`.
    pub mode: SessionMode,
    /// Most messages that may wait. Defaults to 10.
    pub cap: u32,
    /// Which message is dropped at the cap. Defaults to `Old`.
    pub drop: DropPolicy,
    /// Messages within this time of one another run as one turn. Defaults to 800 ms; zero: no debounce.
    pub debounce: Duration,
}

impl Default for Options {
    fn default() -> Options {
        ChatSettings::default().into()
    }
}

impl From<ChatSettings> for Options {
    fn from(chat: ChatSettings) -> Options {
        let ChatSettings { mode, cap, drop, debounce, max_concurrent } = chat;
        Options { max_concurrent, mode, cap, drop, debounce: Duration::from_millis(debounce.0) }
    }
}

/// The context of a turn. It can be read as long as the turn holds it, canceled or not.
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

    /// An object of this process by its type; the last one of that type.
    pub fn get<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        self.attached.iter().rev().find_map(|thing| Arc::clone(thing).downcast().ok())
    }
}

impl std::fmt::Debug for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Context").field("values", &self.values).finish_non_exhaustive()
    }
}

/// Objects of this process that wait for their turns, by a number that the job carries.
#[derive(Default)]
pub(super) struct Attachments {
    /// Distinguishes this process from earlier ones, whose numbers are not valid here.
    boot: u64,
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    last: u64,
    contexts: BTreeMap<u64, Context>,
}

/// Removes the context when it is dropped.
pub(super) struct Attached {
    number: u64,
    of: Arc<Attachments>,
}

impl Attachments {
    /// For the process with this number.
    pub(super) fn new(boot: u64) -> Attachments {
        Attachments { boot, held: Mutex::default() }
    }

    /// Keeps a context until its guard is dropped; returns the mark for the job.
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

    /// The context of a job: its values, and the objects that this process keeps for it.
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

/// The key of the mark in a job.
pub(super) const MARK: &str = "$attached";
