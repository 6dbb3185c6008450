//! Open browsers: listed, started and stopped. A start and a stop are jobs, and the response is the job.

use axum::http::{HeaderMap, StatusCode};
use laneway_browser::kinds::{self, ProfilePayload, StartPayload};
use laneway_core::JobId;
use laneway_wire::{
    BrowserList, BrowserTab, BrowserTabList, Job, JobRequest, OpenBrowser, Problem, StartBrowserRequest,
};
use serde_json::Value;
use serde_json::value::to_raw_value;

use crate::api::Api;
use crate::auth::Caller;
use crate::error::{ApiError, Code};
use crate::query::{Call, NoInput, NoParameters, OptionalBody, PathProfile};
use crate::render;
use crate::reply::{self, Answer};
use crate::v1::profiles::{browsers, invalid, not_done};
use crate::v1::submit;

/// Lists the open browsers of the caller's tenant.
#[utoipa::path(get, path = "/v1/browsers", operation_id = "list_browsers", tag = "browsers", responses((status = 200, body = BrowserList)))]
pub async fn list_browsers(Call(api, caller): Call, _: NoParameters) -> Answer {
    let browsers = browsers(&api)?;
    let open = browsers.open(Some(&caller.tenant)).into_iter().map(shown).collect();
    reply::ok(&BrowserList { browsers: open, limit: browsers.open_max() })
}

/// Lists the tabs of an open browser.
#[utoipa::path(
    get, path = "/v1/browsers/{profile}/tabs", operation_id = "list_browser_tabs", tag = "browsers", params(("profile" = String, Path)),
    responses((status = 200, body = BrowserTabList), (status = 404, description = "not_found", body = Problem), (status = 409, description = "conflict: its browser is not open", body = Problem))
)]
pub async fn list_browser_tabs(
    Call(api, caller): Call,
    PathProfile(profile): PathProfile,
    _: NoParameters,
) -> Answer {
    let browsers = browsers(&api)?;
    browsers.profiles().get(&caller.tenant, &profile).await.map_err(not_done)?;
    let not_open =
        || ApiError::new(Code::Conflict, format!("the browser of {profile} is not open; start it"));
    let tabs = browsers.tabs_of(&caller.tenant, &profile).await.ok_or_else(not_open)?;
    let tabs = tabs.map_err(|error| {
        ApiError::new(Code::Conflict, format!("the browser of {profile} does not list its tabs: {error}"))
    })?;
    let tabs = tabs.into_iter().map(|tab| BrowserTab { id: tab.id, url: tab.url, title: tab.title });
    reply::ok(&BrowserTabList { tabs: tabs.collect() })
}

/// Starts the browser of a profile: submits a job of the kind `browser_start`.
///
/// The job succeeds when the browser is open. Its result has the address of DevTools. Without Chromium the job fails and
/// says what to install.
#[utoipa::path(
    post, path = "/v1/browsers/{profile}/start", operation_id = "start_browser", tag = "browsers",
    params(("profile" = String, Path), ("Idempotency-Key" = Option<String>, Header, description = "A repeated request with the same key gets the first job.")),
    request_body(content = StartBrowserRequest, description = "May be omitted."),
    responses(
        (status = 202, description = "The new job", body = Job<'_>),
        (status = 200, description = "The job that an equal request created earlier", body = Job<'_>),
        (status = 400, description = "malformed_json, invalid_field, unknown_field, invalid_id", body = Problem),
        (status = 404, description = "not_found", body = Problem),
        (status = 409, description = "conflict: the profile is in the recycle bin, or its browser is open", body = Problem),
        (status = 422, description = "idempotency_mismatch, unknown_kind, unknown_lane", body = Problem),
        (status = 429, description = "queue_full, with Retry-After", body = Problem),
        (status = 503, description = "draining, unavailable, with Retry-After", body = Problem),
        (status = 507, description = "storage_low", body = Problem),
    )
)]
pub async fn start_browser(
    Call(api, caller): Call,
    PathProfile(profile): PathProfile,
    headers: HeaderMap,
    OptionalBody(request): OptionalBody<StartBrowserRequest>,
) -> Answer {
    let StartBrowserRequest { headless, url } = request;
    let browsers = browsers(&api)?;
    browsers.profiles().active(&caller.tenant, &profile).await.map_err(not_done)?;
    let key = submit::key_of_header(&headers, None)?;
    // A repeated request with a key gets the job that opened the browser.
    if key.is_none()
        && let Some(open) = browsers.open_of(&caller.tenant, &profile)
    {
        return Err(already_open(profile.as_str(), open.job));
    }
    if url.as_deref() == Some("") {
        return Err(ApiError::field("url", "must not be empty; leave it out for an empty tab"));
    }
    let payload = StartPayload { profile_id: profile, headless, url }.to_json();
    StartPayload::parse(payload.to_string().as_bytes()).map_err(invalid)?;
    submit_kind(&api, &caller, kinds::BROWSER_START, &payload, key).await
}

/// Closes the browser of a profile: submits a job of the kind `browser_stop`. A browser that is not open counts as closed.
#[utoipa::path(
    post, path = "/v1/browsers/{profile}/stop", operation_id = "stop_browser", tag = "browsers",
    params(("profile" = String, Path), ("Idempotency-Key" = Option<String>, Header, description = "A repeated request with the same key gets the first job.")),
    responses(
        (status = 202, description = "The new job", body = Job<'_>),
        (status = 200, description = "The job that an equal request created earlier", body = Job<'_>),
        (status = 400, description = "invalid_id", body = Problem),
        (status = 404, description = "not_found", body = Problem),
        (status = 422, description = "idempotency_mismatch, unknown_kind, unknown_lane", body = Problem),
        (status = 429, description = "queue_full, with Retry-After", body = Problem),
        (status = 503, description = "draining, unavailable, with Retry-After", body = Problem),
        (status = 507, description = "storage_low", body = Problem),
    )
)]
pub async fn stop_browser(
    Call(api, caller): Call,
    PathProfile(profile): PathProfile,
    headers: HeaderMap,
    _: NoInput,
) -> Answer {
    browsers(&api)?.profiles().get(&caller.tenant, &profile).await.map_err(not_done)?;
    let key = submit::key_of_header(&headers, None)?;
    let payload = ProfilePayload { profile_id: profile }.to_json();
    submit_kind(&api, &caller, kinds::BROWSER_STOP, &payload, key).await
}

/// Submits a job of a built-in kind. The response has its lane and its keys.
async fn submit_kind(
    api: &Api,
    caller: &Caller,
    kind: &'static str,
    payload: &Value,
    key: Option<&str>,
) -> Answer {
    let payload = to_raw_value(payload).map_err(ApiError::internal)?;
    let job = JobRequest {
        kind: kind.into(),
        payload: Some(&payload),
        idempotency_key: key.map(Into::into),
        ..JobRequest::default()
    };
    let mut submission = submit::submission(api, caller, &job).await?;
    kinds::prepare(None, &mut submission.spec, &mut submission.payload);
    submit::submit_one(api, caller, submission, StatusCode::ACCEPTED).await
}

fn already_open(profile: &str, job: JobId) -> ApiError {
    let detail = format!("the browser of {profile} is open already; the job {job} started it");
    ApiError::new(Code::Conflict, detail)
}

fn shown(open: laneway_browser::OpenBrowser) -> OpenBrowser {
    let laneway_browser::OpenBrowser { profile, job, since, pid, debug_port, devtools_url } = open;
    OpenBrowser {
        profile: profile.to_string(),
        pid,
        debug_port,
        devtools_url,
        started_at: render::time(since),
        job_id: job.to_string(),
    }
}
