//! What a handler gets: an agent turn with all its messages.

use laneway_compat::agent_turn::AgentTurn;
use laneway_core::{JobId, Name, ScheduleRef};
use laneway_runtime::JobContext;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use super::merge::{Merged, merge_texts};
use super::request::{Attachments, Context};

/// One attempt of an agent turn.
#[derive(Clone)]
pub struct Run {
    job: JobContext,
    messages: Vec<Message>,
}

/// One message of a turn.
#[derive(Clone, Debug)]
pub struct Message {
    /// The text.
    pub content: String,
    /// The media.
    pub media: Vec<String>,
    /// The metadata of the channel.
    pub metadata: Map<String, Value>,
    /// The context of its caller.
    pub context: Context,
    /// The caller's id for the turn.
    pub run_id: Option<String>,
    /// The trace id.
    pub trace_id: Option<String>,
    /// The user.
    pub user: Option<String>,
}

impl Run {
    /// Parses the agent turn of a job. Any other payload becomes a message.
    pub(super) fn of(job: JobContext, attachments: &Attachments) -> Run {
        let message = |payload: &[u8]| {
            let text = || String::from_utf8_lossy(payload).into_owned();
            let turn = AgentTurn::read(payload).unwrap_or_else(|_| AgentTurn::new(text()));
            Message {
                content: turn.message,
                media: turn.media,
                metadata: turn.metadata,
                context: attachments.context_of(turn.context),
                run_id: turn.run_id,
                trace_id: turn.trace_id,
                user: turn.user_id,
            }
        };
        let messages = job.payloads().map(|payload| message(payload)).collect();
        Run { job, messages }
    }

    /// The job.
    pub fn id(&self) -> JobId {
        self.job.job()
    }

    /// The session.
    pub fn session_key(&self) -> &str {
        self.job.session().map_or("", Name::as_str)
    }

    /// The agent.
    pub fn agent(&self) -> &str {
        self.job.agent().as_str()
    }

    /// The lane.
    pub fn lane(&self) -> &str {
        self.job.lane().as_str()
    }

    /// The caller's id for the turn; that of the first message.
    pub fn run_id(&self) -> Option<&str> {
        self.messages[0].run_id.as_deref()
    }

    /// The trace id; that of the first message.
    pub fn trace_id(&self) -> Option<&str> {
        self.messages[0].trace_id.as_deref()
    }

    /// All messages in order: one, or those of a debounce batch.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// All messages merged into one.
    pub fn merged(&self) -> Merged {
        merge_texts(&self.messages)
    }

    /// All messages as one text.
    pub fn text(&self) -> String {
        self.merged().content
    }

    /// The context of the first message. Those of others are with their messages.
    pub fn context(&self) -> &Context {
        &self.messages[0].context
    }

    /// Canceled when the turn must stop: it was canceled, another message interrupted it, it timed out, or
    /// the gateway stops. Everything else stays readable.
    pub fn cancellation(&self) -> &CancellationToken {
        self.job.cancellation()
    }

    /// True when the turn must stop.
    pub fn is_canceled(&self) -> bool {
        self.cancellation().is_cancelled()
    }

    /// The cron job of this turn, and its slot.
    pub fn cron(&self) -> Option<&ScheduleRef> {
        self.job.row().spec.schedule.as_ref()
    }

    /// The underlying attempt, for everything else: logs, progress, time left.
    pub fn job(&self) -> &JobContext {
        &self.job
    }
}
