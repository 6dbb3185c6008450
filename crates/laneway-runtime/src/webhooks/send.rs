//! One call: checks the address, renders the job, signs it, and posts it to exactly what was checked.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use laneway_core::{JobId, Name, SpanOf, TraceContext, TryOutcome};
use laneway_store::JobView;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};

use super::format::{Ended, Formats, Rendered};
use super::guard::{Checked, Guard};
use super::sign::{plain_signature, signatures};
use super::{DueDelivery, guard};
use crate::config::WebhookConfig;
use crate::executors::context::cut;
use crate::scheduler::{ReadError, Scheduler};

/// How long a receiver may take to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How much of the body of an answer is read, so that a short one can end normally. It is not kept.
const ANSWER_MAX: usize = 4 << 10;
/// Longest text about what went wrong, in bytes.
const ERROR_MAX: usize = 512;

/// The parts that every request needs.
#[derive(Clone)]
pub(super) struct Sender {
    pub(super) scheduler: Scheduler,
    pub(super) formats: Formats,
    pub(super) guard: Guard,
}

/// How a call ended, and where it went.
pub(super) struct Sent {
    pub(super) outcome: TryOutcome,
    /// The address without what must not be logged.
    pub(super) url: String,
    pub(super) tenant: Option<Name>,
    /// The trace context that the receiver got.
    pub(super) trace: Option<Box<TraceContext>>,
}

impl Sender {
    /// Makes the call. Never fails: whatever happens is an outcome.
    pub(super) async fn send(&self, delivery: DueDelivery, config: &WebhookConfig) -> Sent {
        let found = self
            .scheduler
            .read(move |reader| {
                let Some(job) = reader.job(delivery.job)? else { return Ok(None) };
                Ok(reader.payload(delivery.seq)?.map(|payload| (job, payload)))
            })
            .await;
        let nowhere = |outcome| Sent { outcome, url: String::new(), tenant: None, trace: None };
        let (job, payload) = match found {
            Ok(Some(found)) => found,
            Ok(None) => return nowhere(TryOutcome::NotAllowed("the job is not kept any more".into())),
            Err(error) => return nowhere(unreadable(&error)),
        };
        let tenant = Some(job.row.spec.tenant.clone());
        let trace = self.scheduler.shared.trace_below(&job.row, SpanOf::Webhook(delivery.number));
        let Some(callback) = job.row.spec.callback.clone() else {
            return nowhere(TryOutcome::NotAllowed("the job has no callback".into()));
        };
        let url = guard::redacted(&callback.url);
        let Some(format) = self.formats.get(&callback.format) else {
            let why = format!("the format {:?} is not known here", callback.format.as_str());
            return Sent { outcome: TryOutcome::NotAllowed(why.into()), url, tenant, trace };
        };
        // A format is code of another crate: its panic must not end the dispatcher.
        let render = AssertUnwindSafe(|| format.render(&Ended { job: &job, payload: &payload }));
        let Ok(rendered) = catch_unwind(render) else {
            let why = "its format could not write the job down";
            return Sent { outcome: TryOutcome::NotAllowed(why.into()), url, tenant, trace };
        };
        let outcome = match self.guard.on_behalf_of(&job.row.spec.tenant).check(&callback.url).await {
            Ok(checked) => self.post(checked, &job, rendered, (trace.as_deref(), config)).await,
            Err(error) if error.may_pass() => TryOutcome::Unanswered(error.to_string().into()),
            Err(error) => TryOutcome::NotAllowed(error.to_string().into()),
        };
        Sent { outcome, url, tenant, trace }
    }

    async fn post(
        &self,
        checked: Checked,
        job: &JobView,
        rendered: Rendered,
        (trace, config): (Option<&TraceContext>, &WebhookConfig),
    ) -> TryOutcome {
        let Checked { url, host, addresses } = checked;
        // A client of its own for every call: it has the checked addresses, and resolves no others.
        let client = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .referer(false)
            .http1_only()
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(config.timeout)
            .pool_max_idle_per_host(0)
            .dns_resolver(Arc::new(NoResolver))
            .resolve_to_addrs(&host, &addresses)
            .user_agent(concat!("laneway/", env!("CARGO_PKG_VERSION")))
            .build();
        let client = match client {
            Ok(client) => client,
            Err(error) => return unanswered(&error),
        };
        let timestamp = self.scheduler.wall().0.div_euclid(1_000);
        let mut headers = headers(job, &rendered, timestamp, config);
        add_trace(&mut headers, trace);
        match client.post(url).headers(headers).body(rendered.body).send().await {
            Ok(answer) => {
                let status = answer.status().as_u16();
                skim(answer).await;
                TryOutcome::Answered(status)
            }
            Err(error) => unanswered(&error),
        }
    }
}

/// The name of a delivery for its receiver: the same for every try, so that a retry is not mistaken for a new delivery.
pub(super) fn webhook_id(job: JobId) -> String {
    format!("dlv_{}", job.to_string().replace('-', ""))
}

fn headers(job: &JobView, rendered: &Rendered, timestamp: i64, config: &WebhookConfig) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in &rendered.headers {
        if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_str(value))
        {
            headers.insert(name, value);
        }
    }
    let id = webhook_id(job.row.id);
    let mut set = |name: &'static str, value: &str| {
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.insert(HeaderName::from_static(name), value);
        }
    };
    set("webhook-id", &id);
    set("webhook-timestamp", &timestamp.to_string());
    let secrets = config.secrets_of(&job.row.spec.tenant);
    if let Some(signature) = signatures(secrets, &id, timestamp, &rendered.body) {
        set("webhook-signature", &signature);
    }
    if let Some(names) = rendered.signed {
        set(names.timestamp, &timestamp.to_string());
        if let Some(signature) = plain_signature(secrets, &rendered.body) {
            set(names.signature, &signature);
        }
    }
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(rendered.content_type));
    headers
}

fn add_trace(headers: &mut HeaderMap, trace: Option<&TraceContext>) {
    let Some(trace) = trace else { return };
    let state = trace.state.as_deref().unwrap_or_default();
    for (name, value) in [("traceparent", trace.parent().as_str()), ("tracestate", state)] {
        if let Ok(value) = HeaderValue::from_str(value)
            && !value.is_empty()
        {
            headers.insert(HeaderName::from_static(name), value);
        }
    }
}

/// Reads a little of the body and drops the rest, connection and all.
async fn skim(mut answer: reqwest::Response) {
    let mut read = 0;
    while read < ANSWER_MAX
        && let Ok(Some(chunk)) = answer.chunk().await
    {
        read += chunk.len();
    }
}

/// Resolves nothing: whatever may be called is known before.
struct NoResolver;

impl reqwest::dns::Resolve for NoResolver {
    fn resolve(&self, _name: reqwest::dns::Name) -> reqwest::dns::Resolving {
        Box::pin(async { Err("this name was not checked".into()) })
    }
}

fn unreadable(error: &ReadError) -> TryOutcome {
    TryOutcome::Unanswered(format!("the job could not be read: {error}").into())
}

/// The error with its causes, without the address: that may contain a secret.
fn unanswered(error: &reqwest::Error) -> TryOutcome {
    if error.is_timeout() {
        return TryOutcome::Unanswered("the receiver did not answer in time".into());
    }
    let mut why = String::from("the receiver could not be reached");
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        why.push_str(": ");
        why.push_str(&error.to_string());
        cause = error.source();
    }
    TryOutcome::Unanswered(cut(&why, ERROR_MAX).into())
}
