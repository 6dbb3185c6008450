//! Enqueues jobs: the parts that every enqueueing request shares.
//!
//! A request is read and checked first, then its idempotency key is looked up, then the state of its profile is checked, and
//! only then a job is submitted. A request that repeats a key is answered with the job of the first one, whatever its body
//! and whatever became of the profile since.

use axum::extract::Request;
use axum::http::HeaderMap;
use axum::http::header::HeaderName;
use laneway_core::job::{CALLBACK_URL_LEN_MAX, IdempotencyKey};
use laneway_core::{Bytes, Callback, JobSpec, Name, RejectionCode, Span, Submission};
use laneway_runtime::Caller;
use laneway_runtime::store::JobView;
use serde_json::Value;

use super::decode::Fields;
use super::error::{Answer, Code, Problem, ok};
use super::translate::{self, Status};
use super::wire::{Enqueued, Existing};
use super::{BrowserManager, callback};
use crate::names::name_of;

/// The header with the idempotency key. The field `idempotencyKey` is the same.
const KEY: HeaderName = HeaderName::from_static("x-idempotency-key");
/// Longest idempotency key, in bytes.
const KEY_MAX: usize = 255;
/// The prefix of keys in the scheduler: a key of the native API is another key.
const KEY_PREFIX: &str = "browser_manager:";
/// The same for every request: a key stands for its first request, whatever the body of a later one.
const DIGEST: [u8; 32] = [0; 32];

/// An enqueueing request: its fields, and those that all such requests share.
pub struct Order {
    /// The fields that are left to read.
    pub fields: Fields,
    key: Option<Name>,
    callback: Option<String>,
}

/// The job of an order.
pub struct Work {
    /// Its kind.
    pub kind: &'static str,
    /// Its payload.
    pub payload: Value,
    /// How long an attempt may run. `None`: the default of the kind.
    pub timeout: Option<Span>,
}

impl Order {
    /// Reads the body, the idempotency key and the callback.
    pub async fn read(
        browser_manager: &BrowserManager,
        caller: &Caller,
        request: Request,
    ) -> Result<Order, Problem> {
        let header = key_of(request.headers())?;
        let mut fields = Fields::of_request(request).await?;
        let field = fields.opt_text("idempotencyKey", KEY_MAX)?;
        let key = header.or(field).map(|key| name_of(&format!("{KEY_PREFIX}{key}")));
        let callback = fields.opt_text("callbackUrl", CALLBACK_URL_LEN_MAX)?;
        if let Some(url) = &callback {
            let checked = browser_manager.guard.on_behalf_of(&caller.tenant).check(url).await;
            checked.map_err(|error| Problem::new(Code::OutOfRange, format!("callbackUrl: {error}")))?;
        }
        Ok(Order { fields, key, callback })
    }
}

fn key_of(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let Some(value) = headers.get(KEY) else { return Ok(None) };
    let not_text = |_| Problem::new(Code::WrongType, "X-Idempotency-Key has characters that are not ASCII");
    let text = value.to_str().map_err(not_text)?.trim();
    if text.len() > KEY_MAX {
        let detail = format!("X-Idempotency-Key has {} bytes; at most {KEY_MAX} are allowed", text.len());
        return Err(Problem::new(Code::TooLong, detail));
    }
    Ok((!text.is_empty()).then(|| text.to_owned()))
}

impl BrowserManager {
    /// The answer for a repeated key: the job of the first request. `None`: the key is new, or there is none.
    pub async fn repeated(&self, caller: &Caller, order: &Order) -> Result<Option<Answer>, Problem> {
        let Some(key) = order.key.clone() else { return Ok(None) };
        let tenant = caller.tenant.clone();
        let found = self
            .scheduler
            .read(move |reader| match reader.prior(&tenant, &key)? {
                Some(prior) => reader.job(prior.job),
                None => Ok(None),
            })
            .await?;
        Ok(found.map(|view| existing(&view)))
    }

    /// Submits the job of an order.
    pub async fn enqueue(&self, caller: &Caller, order: Order, work: Work) -> Answer {
        let spec = JobSpec {
            timeout: work.timeout,
            idempotency: order.key.clone().map(|key| IdempotencyKey { key, digest: DIGEST }),
            callback: order
                .callback
                .clone()
                .map(|url| Callback { url: url.into(), format: Name::fixed(callback::FORMAT) }),
            ..JobSpec::new(caller.tenant.clone(), Name::fixed(work.kind))
        };
        let payload = Bytes::from(work.payload.to_string().into_bytes());
        match self.scheduler.submit(Submission::new(spec, payload, caller.origin())).await? {
            Ok(submitted) if submitted.existing => {
                let found = self.scheduler.read(move |reader| reader.job(submitted.job)).await?;
                found.map_or_else(|| Err(Problem::of(Code::JobNotFound)), |view| existing(&view))
            }
            Ok(submitted) => ok(&Enqueued {
                job_id: submitted.job.to_string(),
                status: Status::of(submitted.state).as_str(),
            }),
            // A client of the native API used the same key.
            Err(rejection) if rejection.code == RejectionCode::IdempotencyMismatch => {
                let repeated = self.repeated(caller, &order).await?;
                repeated.unwrap_or_else(|| Err(Problem::rejected(&rejection)))
            }
            Err(rejection) => Err(Problem::rejected(&rejection)),
        }
    }
}

fn existing(view: &JobView) -> Answer {
    ok(&Existing {
        job_id: view.row.id.to_string(),
        status: Status::of(view.state()).as_str(),
        result: translate::result(view),
        error_message: view.end.as_ref().and_then(translate::error_message),
        idempotent: true,
    })
}
