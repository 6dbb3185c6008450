//! Environments: start, close, clear and clone the browser of a profile.

use axum::extract::Request;
use laneway_browser::kinds::{self, ClonePayload, ProfilePayload, StartPayload};
use laneway_browser::profiles::ProfileId;
use laneway_runtime::Caller;
use serde_json::{Map, Value, json};

use super::BrowserManager;
use super::error::{Answer, Code, Problem};
use super::submit::{Order, Work};
use crate::body::Call;

/// Longest field that is passed on to a payload, in bytes; the payload has its own limits.
const PASSED_MAX: usize = 4_096;

/// Starts the browser of a profile.
pub async fn start_env(Call(browser_manager, caller): Call<BrowserManager>, request: Request) -> Answer {
    let mut order = Order::read(&browser_manager, &caller, request).await?;
    let fail_fast = order.fields.flag("failFast")?;
    let payload = json!({
        "profileId": order.fields.text("id")?,
        "headless": order.fields.value("headless"),
        "url": order.fields.opt_text("url", PASSED_MAX)?,
    });
    let payload = StartPayload::parse(&bytes(&payload))?;
    if let Some(answer) = browser_manager.repeated(&caller, &order).await? {
        return answer;
    }
    browser_manager.must_be_active(&caller, &payload.profile_id).await?;
    browser_manager.must_be_closed(&caller, &payload.profile_id)?;
    if fail_fast {
        browser_manager.must_have_place(&caller)?;
    }
    let work = Work { kind: kinds::BROWSER_START, payload: payload.to_json(), timeout: None };
    browser_manager.enqueue(&caller, order, work).await
}

/// Closes the browser of a profile.
pub async fn close_env(Call(browser_manager, caller): Call<BrowserManager>, request: Request) -> Answer {
    let mut order = Order::read(&browser_manager, &caller, request).await?;
    let payload = ProfilePayload::parse(&bytes(&json!({"profileId": order.fields.text("id")?})))?;
    if let Some(answer) = browser_manager.repeated(&caller, &order).await? {
        return answer;
    }
    // A profile that was moved to the recycle bin while it was open can still be closed.
    browser_manager.must_exist(&caller, &payload.profile_id).await?;
    let work = Work { kind: kinds::BROWSER_STOP, payload: payload.to_json(), timeout: None };
    browser_manager.enqueue(&caller, order, work).await
}

/// Closes every browser of the caller's tenant.
pub async fn close_all_envs(Call(browser_manager, caller): Call<BrowserManager>, request: Request) -> Answer {
    let order = Order::read(&browser_manager, &caller, request).await?;
    browser_manager.enqueue_without_payload(&caller, order, kinds::BROWSER_STOP_ALL).await
}

/// Clears the cache of a profile. While its browser is open, the job is tried again until its retries are used up.
pub async fn remove_local_cache(
    Call(browser_manager, caller): Call<BrowserManager>,
    request: Request,
) -> Answer {
    let mut order = Order::read(&browser_manager, &caller, request).await?;
    let payload = ProfilePayload::parse(&bytes(&json!({"profileId": order.fields.text("id")?})))?;
    if let Some(answer) = browser_manager.repeated(&caller, &order).await? {
        return answer;
    }
    browser_manager.must_be_active(&caller, &payload.profile_id).await?;
    let work = Work { kind: kinds::CACHE_CLEAR_LOCAL, payload: payload.to_json(), timeout: None };
    browser_manager.enqueue(&caller, order, work).await
}

/// There is no cloud. Nothing is enqueued.
pub async fn clean_cloud_cache() -> Answer {
    Err(Problem::new(Code::NotImplemented, "there is no cloud cache here"))
}

/// Copies a profile with its data directory.
pub async fn clone_env(Call(browser_manager, caller): Call<BrowserManager>, request: Request) -> Answer {
    let mut order = Order::read(&browser_manager, &caller, request).await?;
    let payload = json!({
        "profileId": order.fields.text("id")?,
        "name": order.fields.opt_text("name", PASSED_MAX)?,
        "newProfileId": order.fields.opt_text("newId", PASSED_MAX)?,
    });
    let payload = ClonePayload::parse(&bytes(&payload))?;
    if let Some(answer) = browser_manager.repeated(&caller, &order).await? {
        return answer;
    }
    browser_manager.must_be_active(&caller, &payload.profile_id).await?;
    let work = Work { kind: kinds::PROFILE_CLONE, payload: payload.to_json(), timeout: None };
    browser_manager.enqueue(&caller, order, work).await
}

impl BrowserManager {
    /// Enqueues a job of a kind whose payload is empty.
    pub async fn enqueue_without_payload(&self, caller: &Caller, order: Order, kind: &'static str) -> Answer {
        if let Some(answer) = self.repeated(caller, &order).await? {
            return answer;
        }
        let payload = Value::Object(Map::new());
        self.enqueue(caller, order, Work { kind, payload, timeout: None }).await
    }

    /// The profile exists and is not in the recycle bin.
    pub async fn must_be_active(&self, caller: &Caller, id: &ProfileId) -> Result<(), Problem> {
        self.browsers.profiles().active(&caller.tenant, id).await?;
        Ok(())
    }

    async fn must_exist(&self, caller: &Caller, id: &ProfileId) -> Result<(), Problem> {
        self.browsers.profiles().get(&caller.tenant, id).await?;
        Ok(())
    }

    fn must_be_closed(&self, caller: &Caller, id: &ProfileId) -> Result<(), Problem> {
        match self.browsers.open_of(&caller.tenant, id).is_some() {
            true => Err(Problem::new(Code::ProfileAlreadyOpen, format!("id {:?}", id.as_str()))),
            false => Ok(()),
        }
    }

    fn must_have_place(&self, caller: &Caller) -> Result<(), Problem> {
        let place = self.browsers.has_place(&caller.tenant);
        place.map_err(|detail| Problem::new(Code::MaxConcurrentProfiles, detail))
    }
}

/// A payload as bytes, as the kinds parse it.
pub fn bytes(payload: &Value) -> Vec<u8> {
    payload.to_string().into_bytes()
}
