//! The kind `tab_action`: a job that does something with a browser tab.
//!
//! Its payload is [`TabAction`]. The run is one call to the instance that has the tab; the deadline of the job is the only
//! limit of its time, and a stop closes the connection.

use std::sync::Arc;

use laneway_core::{Bytes, Failure, Outcome};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::Tabs;
use super::forward::{ANSWER_BYTES_MAX, Action, Answered, ForwardError};
use crate::executors::context::cut;
use crate::executors::local::{HandlerFuture, Handlers};
use crate::executors::{Handler, JobContext};

/// The kind.
pub const TAB_ACTION: &str = "tab_action";
/// The names in an action's body that parameters cannot take.
pub const RESERVED: [&str; 4] = ["kind", "ref", "selector", "tabId"];
/// A text answer is kept as a JSON text, which may need six letters for one.
const RESULT_BYTES_MAX: usize = 6 * ANSWER_BYTES_MAX + 2;
/// Longest part of an unwelcome answer that is kept, in bytes.
const ERROR_BODY_MAX: usize = 2 << 10;

/// What a job of the kind is asked to do. Fields that are not known are left alone: they are its submitter's.
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
    /// The handlers that run tab actions: the one kind, with room for its results.
    pub fn handlers(&self) -> Handlers {
        let tabs = self.clone();
        let handler: Handler = Arc::new(move |context: JobContext| {
            let tabs = tabs.clone();
            Box::pin(async move { tabs.run(&context).await }) as HandlerFuture
        });
        let mut handlers = Handlers::new().result_len_max(RESULT_BYTES_MAX);
        handlers.insert(laneway_core::Name::fixed(TAB_ACTION), handler);
        handlers
    }

    async fn run(&self, context: &JobContext) -> Outcome {
        let asked: TabAction = match context.json() {
            Ok(asked) => asked,
            Err(failure) => return Outcome::Failed(failure),
        };
        if asked.tab_id.is_empty() {
            return failed("no_tab", "tabId is required for task execution");
        }
        let body = asked.body();
        let agent = asked.agent_id.unwrap_or_else(|| context.agent().to_string());
        let action = Action {
            tab: asked.tab_id,
            agent: Some(agent),
            scheduled: true,
            body,
            time_left: context.time_left(),
        };
        match self.forward(&action, context.cancellation()).await {
            Ok(answered) => outcome_of(answered),
            Err(ForwardError::Canceled) => Outcome::Canceled,
            Err(error @ ForwardError::Unresolved { .. }) => failed("tab_not_found", &error.to_string()),
            Err(error) => failed("executor_failed", &error.to_string()),
        }
    }
}

fn outcome_of(answered: Answered) -> Outcome {
    let Answered { status, content_type: _, body } = answered;
    match status {
        200..300 if serde_json::from_slice::<serde::de::IgnoredAny>(&body).is_ok() => {
            Outcome::Succeeded(Some(Bytes::from(body)))
        }
        200..300 => {
            let text = Value::from(String::from_utf8_lossy(&body));
            Outcome::Succeeded(Some(Bytes::from(text.to_string().into_bytes())))
        }
        300..400 => {
            failed("executor_status", &format!("executor returned {status}: redirects are not followed"))
        }
        _ => {
            let body = String::from_utf8_lossy(&body);
            let body = cut(&body, ERROR_BODY_MAX);
            failed("executor_status", &format!("executor returned {status}: {body}"))
        }
    }
}

/// An action is never tried again by itself: it may have been done all the same.
fn failed(code: &'static str, message: &str) -> Outcome {
    Outcome::Failed(Failure::permanent(code, message))
}
