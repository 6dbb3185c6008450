//! What a handler gets: a turn, with everything that was said for it.

use laneway_core::{JobId, Name, ScheduleRef};
use laneway_runtime::JobContext;
use laneway_runtime::agent_turn::AgentTurn;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use super::merge::{Merged, merge_texts};
use super::request::{Attachments, Context};

/// One attempt at a turn.
#[derive(Clone)]
pub struct Run {
    job: JobContext,
    messages: Vec<Message>,
}

/// One message of a turn.
#[derive(Clone, Debug)]
pub struct Message {
    /// What was said.
    pub content: String,
    /// What came with it.
    pub media: Vec<String>,
    /// What the channel says about it.
    pub metadata: Map<String, Value>,
    /// What its own caller wants the run to know.
    pub context: Context,
    /// Its caller's name for the run.
    pub run_id: Option<String>,
    /// What traces are filed under.
    pub trace_id: Option<String>,
    /// Who asks.
    pub user: Option<String>,
}

impl Run {
    /// Reads the turn that a job is. A payload that is none is a message of its own.
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

    /// The name that the caller gave the run; that of the first message.
    pub fn run_id(&self) -> Option<&str> {
        self.messages[0].run_id.as_deref()
    }

    /// What traces of the run are filed under; that of the first message.
    pub fn trace_id(&self) -> Option<&str> {
        self.messages[0].trace_id.as_deref()
    }

    /// Everything that was said, in the order in which it came: one message, or those that came quickly one after the other.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// Everything that was said, as one message.
    pub fn merged(&self) -> Merged {
        merge_texts(&self.messages)
    }

    /// Everything that was said, as one text.
    pub fn text(&self) -> String {
        self.merged().content
    }

    /// What the caller of the first message wants the run to know. Others' are with their messages.
    pub fn context(&self) -> &Context {
        &self.messages[0].context
    }

    /// Canceled when the run must stop: somebody stopped it, another message took its place, its time is up, or the
    /// gateway stops. Everything else here stays readable.
    pub fn cancellation(&self) -> &CancellationToken {
        self.job.cancellation()
    }

    /// True when the run must stop.
    pub fn is_canceled(&self) -> bool {
        self.cancellation().is_cancelled()
    }

    /// The cron job that asks for this turn, and when it was due.
    pub fn cron(&self) -> Option<&ScheduleRef> {
        self.job.row().spec.schedule.as_ref()
    }

    /// The attempt below, for what is not here: logs, progress, time left.
    pub fn job(&self) -> &JobContext {
        &self.job
    }
}
