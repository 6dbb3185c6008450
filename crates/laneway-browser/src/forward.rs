//! Sends an action to the instance that has the tab, or does it on a tab of this machine, and returns the answer, within limits of
//! size and time.

use std::time::Duration;

use laneway_core::Name;
use laneway_runtime::executors::http::answer::{Body, read_body, with_causes};
use laneway_runtime::executors::http::printable;
use reqwest::header::{CONTENT_TYPE, HeaderValue};
use tokio_util::sync::CancellationToken;

use crate::own_tabs;
use crate::tabs::{NoTab, Owner, Tabs, url_below};

/// Largest answer of an instance, in bytes.
pub const ANSWER_BYTES_MAX: usize = 1 << 20;

/// An action on a tab.
#[derive(Clone, Debug)]
pub struct Action {
    /// The tab.
    pub tab: String,
    /// The tenant of the caller: tabs of this machine are found for the tenant of their browser only.
    pub tenant: Name,
    /// True: the caller may run code in tabs of this machine. Instances elsewhere have their own rules.
    pub may_script: bool,
    /// On whose behalf.
    pub agent: Option<String>,
    /// True: the action belongs to a job. The instance gets a header that says so.
    pub scheduled: bool,
    /// What to do, as JSON.
    pub body: Vec<u8>,
    /// How long it may take. `None`: without limit.
    pub time_left: Option<Duration>,
}

/// The answer of the instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answered {
    /// The status.
    pub status: u16,
    /// The content type of the body.
    pub content_type: Option<String>,
    /// The body.
    pub body: Vec<u8>,
}

/// Why there is no answer. The dialect has the texts.
#[derive(Debug)]
pub enum ForwardError {
    /// No instance has the tab.
    Unresolved {
        /// The tab.
        tab: String,
        /// Why no instance has it.
        source: NoTab,
    },
    /// The instance could not be reached, or broke off before it answered.
    Request(String),
    /// The time limit passed.
    Deadline,
    /// The caller canceled the action.
    Canceled,
    /// The answer broke off, or is too large.
    Read(String),
}

impl Tabs {
    /// Sends the action and waits for the answer. A `stop` and the end of its time close the connection.
    pub async fn forward(&self, action: &Action, stop: &CancellationToken) -> Result<Answered, ForwardError> {
        let time_is_over = async {
            match action.time_left {
                Some(time_left) => tokio::time::sleep(time_left).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = stop.cancelled() => Err(ForwardError::Canceled),
            answered = self.act_or_exchange(action, stop) => answered,
            () = time_is_over => Err(ForwardError::Deadline),
        }
    }

    /// Acts on a tab of this machine, or sends the action to the instance that has the tab.
    async fn act_or_exchange(
        &self,
        action: &Action,
        stop: &CancellationToken,
    ) -> Result<Answered, ForwardError> {
        if let Some(page) = self.own_page(&action.tenant, &action.tab).await {
            return own_tabs::act(page, action, stop).await.ok_or(ForwardError::Canceled);
        }
        self.exchange(action).await
    }

    async fn exchange(&self, action: &Action) -> Result<Answered, ForwardError> {
        let Owner { id, instance } = self
            .find(&action.tab)
            .await
            .map_err(|source| ForwardError::Unresolved { tab: action.tab.clone(), source })?;
        let url = url_below(&instance.url, &["tabs", &action.tab, "action"]);
        let mut request = self.inner.client.inner().post(url).body(action.body.clone());
        request = request.header(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if action.scheduled {
            request = request.header("x-pinchtab-source", "scheduler");
        }
        request = request.header("x-pinchtab-tab-id", header_text(&action.tab));
        if let Some(agent) = &action.agent {
            request = request.header("x-agent-id", header_text(agent));
        }
        if let Some(token) = &instance.token {
            request = request.bearer_auth(token.reveal());
        }
        let response =
            request.send().await.map_err(|error| ForwardError::Request(printable(&with_causes(error))))?;
        let status = response.status().as_u16();
        let content_type = response.headers().get(CONTENT_TYPE);
        let content_type = content_type.and_then(|value| value.to_str().ok()).map(str::to_owned);
        if status == 404 {
            self.doubt(&id, &action.tab);
        }
        match read_body(response, ANSWER_BYTES_MAX).await {
            Ok(Body::Whole(body)) => Ok(Answered { status, content_type, body }),
            Ok(Body::Cut(_)) => {
                Err(ForwardError::Read(format!("the answer has more than {ANSWER_BYTES_MAX} bytes")))
            }
            Err(error) => Err(ForwardError::Read(printable(&with_causes(error)))),
        }
    }
}

/// A text as a header's value: as it is where it can be, else escaped.
fn header_text(text: &str) -> HeaderValue {
    HeaderValue::from_bytes(text.as_bytes()).unwrap_or_else(|_| {
        HeaderValue::from_str(&text.escape_default().to_string()).expect("escaped texts are plain ASCII")
    })
}
