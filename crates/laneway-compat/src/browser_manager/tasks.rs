//! Work on profiles and on the agent: scripts, proxy tests, the cleanup of the recycle bin, migrations.

use axum::extract::Request;
use laneway_browser::kinds::{
    self, CleanupPayload, ProxyTestPayload, SCRIPT_TIMEOUT_MAX_SECS, ScriptPayload, TestedProxy,
};
use laneway_core::Span;
use serde_json::json;

use super::BrowserManager;
use super::env::bytes;
use super::error::{Answer, Code, Problem};
use super::submit::{Order, Work};
use crate::body::Call;

/// Longest field that is passed on to a payload, in bytes; the payload has its own limits.
const PASSED_MAX: usize = 4_096;

/// Runs a script or a program in the browser of a profile.
pub async fn run_script(Call(browser_manager, caller): Call<BrowserManager>, request: Request) -> Answer {
    if !browser_manager.browsers.may_script(caller.role) {
        let detail = format!("the role {} may not run scripts (browsers.script_role)", caller.role.as_str());
        return Err(Problem::new(Code::PermissionDenied, detail));
    }
    let mut order = Order::read(&browser_manager, &caller, request).await?;
    let fields = &mut order.fields;
    let timeout = match fields.opt_number("timeout", 1, SCRIPT_TIMEOUT_MAX_SECS)? {
        Some(seconds) => Some(seconds),
        None => fields.opt_number("timeoutSeconds", 1, SCRIPT_TIMEOUT_MAX_SECS)?,
    };
    let payload = json!({
        "profileId": fields.text("id")?,
        "tabId": fields.opt_text("tabId", PASSED_MAX)?,
        "script": fields.value("script"),
        "program": fields.value("program"),
    });
    let payload = ScriptPayload::parse(&bytes(&payload))?;
    if let Some(answer) = browser_manager.repeated(&caller, &order).await? {
        return answer;
    }
    browser_manager.must_be_active(&caller, &payload.profile_id).await?;
    let timeout = timeout.map(Span::secs);
    let work = Work { kind: kinds::SCRIPT_RUN, payload: payload.to_json(), timeout };
    browser_manager.enqueue(&caller, order, work).await
}

/// Tests a proxy, or that of a profile.
pub async fn test_proxy(Call(browser_manager, caller): Call<BrowserManager>, request: Request) -> Answer {
    let mut order = Order::read(&browser_manager, &caller, request).await?;
    let payload = json!({
        "profileId": order.fields.opt_text("id", PASSED_MAX)?,
        "proxy": order.fields.value("proxy"),
        "url": order.fields.opt_text("url", PASSED_MAX)?,
    });
    let payload = ProxyTestPayload::parse(&bytes(&payload))?;
    if let Some(answer) = browser_manager.repeated(&caller, &order).await? {
        return answer;
    }
    if let TestedProxy::OfProfile(id) = &payload.proxy {
        browser_manager.must_be_active(&caller, id).await?;
    }
    let work = Work { kind: kinds::PROXY_TEST, payload: payload.to_json(), timeout: None };
    browser_manager.enqueue(&caller, order, work).await
}

/// Deletes profiles that were in the recycle bin for too long.
pub async fn clean_recycle_bin(
    Call(browser_manager, caller): Call<BrowserManager>,
    request: Request,
) -> Answer {
    let mut order = Order::read(&browser_manager, &caller, request).await?;
    let payload =
        CleanupPayload::parse(&bytes(&json!({"retentionDays": order.fields.value("retentionDays")})))?;
    if let Some(answer) = browser_manager.repeated(&caller, &order).await? {
        return answer;
    }
    let work = Work { kind: kinds::RECYCLE_BIN_CLEANUP, payload: payload.to_json(), timeout: None };
    browser_manager.enqueue(&caller, order, work).await
}

/// Rewrites stored profiles of an earlier version.
pub async fn migrate_db(Call(browser_manager, caller): Call<BrowserManager>, request: Request) -> Answer {
    let order = Order::read(&browser_manager, &caller, request).await?;
    browser_manager.enqueue_without_payload(&caller, order, kinds::DB_MIGRATION).await
}
