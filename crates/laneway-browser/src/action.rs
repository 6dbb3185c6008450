//! The kind `tab_action`: a job that does something with a browser tab.
//!
//! Its payload is [`TabAction`]. An attempt is one action on a tab of this machine, or one call to the instance that has the tab. The
//! deadline of the job is its only
//! time limit, and a stop closes the connection.

use std::sync::Arc;

use laneway_core::{Bytes, Failure, Name, Outcome};
use laneway_runtime::executors::context::cut;
use laneway_runtime::executors::{Handler, HandlerFuture, Handlers, JobContext};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::forward::{ANSWER_BYTES_MAX, Action, Answered, ForwardError};
use crate::tabs::Tabs;

/// The kind.
pub const TAB_ACTION: &str = "tab_action";
/// The names in an action's body that parameters cannot take.
pub const RESERVED: [&str; 4] = ["kind", "ref", "selector", "tabId"];
/// A text answer is kept as a JSON text, which may need six letters for one.
const RESULT_BYTES_MAX: usize = 6 * ANSWER_BYTES_MAX + 2;
/// Longest part of an error answer that is kept, in bytes.
const ERROR_BODY_MAX: usize = 2 << 10;

/// The payload of a job of the kind. Unknown fields are ignored: they belong to the submitter.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct TabAction {
    /// The tab.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub tab_id: String,
    /// What to do with it: `click`, `type`, ….
    pub action: String,
    /// Which element, as a selector.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub selector: String,
    /// Which element, by an older name for it.
    #[serde(rename = "ref", skip_serializing_if = "String::is_empty")]
    pub reference: String,
    /// What else the action needs.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub params: Map<String, Value>,
    /// On whose behalf, where that is not the job's agent to the letter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent_id: Option<String>,
}

impl TabAction {
    /// The body of the call. Parameters cannot take the place of the fields, in whatever case they are written.
    pub fn body(&self) -> Vec<u8> {
        let is_free = |key: &str| !RESERVED.iter().any(|reserved| reserved.eq_ignore_ascii_case(key));
        let params = self.params.iter().filter(|(key, _)| is_free(key));
        let mut body: Map<String, Value> = params.map(|(key, value)| (key.clone(), value.clone())).collect();
        body.insert("kind".to_owned(), self.action.clone().into());
        for (key, value) in [("ref", &self.reference), ("selector", &self.selector)] {
            if !value.is_empty() {
                body.insert(key.to_owned(), value.clone().into());
            }
        }
        Value::Object(body).to_string().into_bytes()
    }
}

impl Tabs {
    /// The handlers that run tab actions: the one kind, with a limit that fits its results. `message` writes the texts of
    /// failures.
    pub fn handlers(&self, message: fn(&ActionError) -> String) -> Handlers {
        let tabs = self.clone();
        let handler: Handler = Arc::new(move |context: JobContext| {
            let tabs = tabs.clone();
            Box::pin(async move { tabs.run(&context, message).await }) as HandlerFuture
        });
        let mut handlers = Handlers::new().result_len_max(RESULT_BYTES_MAX);
        handlers.insert(Name::fixed(TAB_ACTION), handler);
        handlers
    }

    async fn run(&self, context: &JobContext, message: fn(&ActionError) -> String) -> Outcome {
        let asked: TabAction = match context.json() {
            Ok(asked) => asked,
            Err(failure) => return Outcome::Failed(failure),
        };
        match self.act(asked, context).await {
            Ok(result) => Outcome::Succeeded(Some(result)),
            Err(ActionError::Forward(ForwardError::Canceled)) => Outcome::Canceled,
            // An action is never retried: the instance may have done it.
            Err(error) => Outcome::Failed(Failure::permanent(error.code(), message(&error))),
        }
    }

    async fn act(&self, asked: TabAction, context: &JobContext) -> Result<Bytes, ActionError> {
        if asked.tab_id.is_empty() {
            return Err(ActionError::NoTabId);
        }
        let body = asked.body();
        let agent = asked.agent_id.unwrap_or_else(|| context.agent().to_string());
        let action = Action {
            tab: asked.tab_id,
            tenant: context.tenant().clone(),
            may_script: self.may_submitter_script(context.row()),
            agent: Some(agent),
            scheduled: true,
            body,
            time_left: context.time_left(),
        };
        result_of(self.forward(&action, context.cancellation()).await.map_err(ActionError::Forward)?)
    }
}

/// Why an action has no result.
#[derive(Debug)]
pub enum ActionError {
    /// The payload names no tab.
    NoTabId,
    /// The action did not reach an instance, or its answer did not come back.
    Forward(ForwardError),
    /// The instance answered with a redirect, which is not followed.
    Redirect {
        /// The status.
        status: u16,
    },
    /// The instance answered with an error.
    Status {
        /// The status.
        status: u16,
        /// The beginning of the body.
        body: String,
    },
}

impl ActionError {
    /// The code of the failure.
    fn code(&self) -> &'static str {
        match self {
            ActionError::NoTabId => "no_tab",
            ActionError::Forward(ForwardError::Unresolved { .. }) => "tab_not_found",
            ActionError::Forward(_) => "executor_failed",
            ActionError::Redirect { .. } | ActionError::Status { .. } => "executor_status",
        }
    }
}

fn result_of(answered: Answered) -> Result<Bytes, ActionError> {
    let Answered { status, content_type: _, body } = answered;
    match status {
        200..300 if serde_json::from_slice::<serde::de::IgnoredAny>(&body).is_ok() => Ok(Bytes::from(body)),
        200..300 => {
            let text = Value::from(String::from_utf8_lossy(&body));
            Ok(Bytes::from(text.to_string().into_bytes()))
        }
        300..400 => Err(ActionError::Redirect { status }),
        _ => {
            let body = String::from_utf8_lossy(&body);
            Err(ActionError::Status { status, body: cut(&body, ERROR_BODY_MAX).to_owned() })
        }
    }
}
