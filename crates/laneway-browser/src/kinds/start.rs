//! The kind `browser_start`: starts the browser of a profile. It succeeds when DevTools has answered, and keeps the key
//! `browser`, so that the browser holds its slot until it is closed or has crashed.

use std::time::Duration;

use laneway_core::{Bytes, Failure, Name, Outcome};
use laneway_runtime::executors::JobContext;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{BROWSER_KEY, NotDone, StartPayload};
use crate::browsers::Browsers;
use crate::chromium::{Browser, LaunchError, LaunchOptions};
use crate::fleet::{Running, Started};
use crate::page::{PageAction, PageLimits};
use crate::profiles::{Profile, ProfileId};
use crate::uses::{NoPlace, Taken, Use};

/// How long a start may take, if the job has no timeout.
const START_LIMIT: Duration = Duration::from_secs(30);
/// The start ends a little before the attempt does, so that it can say what it waited for and leaves nothing behind.
const MARGIN: Duration = Duration::from_secs(1);
/// How long a browser of an earlier attempt may take to close.
const LEFT_OVER_GRACE: Duration = Duration::from_secs(2);
/// How long the empty page that the browser opens by itself may take to load.
const EMPTY_PAGE_LIMIT: Duration = Duration::from_secs(2);

pub(super) async fn run(browsers: Browsers, context: JobContext) -> Result<Outcome, NotDone> {
    let payload = StartPayload::parse(context.payload())?;
    let (tenant, id) = (context.tenant(), &payload.profile_id);
    let profile = browsers.profiles().active(tenant, id).await?;
    close_left_over(&browsers, &context, id).await;
    let taken = browsers.uses().take_place(tenant, id, browsers.settings().open_max);
    let taken = taken.map_err(|why| match why {
        NoPlace::InUse(by) => in_use(id, by),
        full @ NoPlace::Full { .. } => Failure::permanent("browsers_max", full.to_string()),
    })?;
    if browsers.fleet().is_closing() {
        return Ok(Outcome::HandedBack);
    }
    let browser = launch(&browsers, &context, &profile, &payload).await?;
    let running = add(&browsers, &context, browser, taken, id);
    let tab = match first_tab(&running, &payload, context.cancellation()).await {
        Ok(tab) => tab,
        Err(not_done) => {
            running.close(LEFT_OVER_GRACE).await;
            return Err(not_done);
        }
    };
    let result = Bytes::from(result_of(&running, tab).to_string().into_bytes());
    Ok(Outcome::SucceededKeeping { result: Some(result), keys: vec![Name::fixed(BROWSER_KEY)] })
}

/// An earlier attempt of this job may have started a browser that the engine did not wait for.
async fn close_left_over(browsers: &Browsers, context: &JobContext, id: &ProfileId) {
    if let Some(running) = browsers.fleet().get(context.tenant(), id)
        && running.job == context.job()
        && running.attempt < context.attempt()
    {
        running.close(LEFT_OVER_GRACE).await;
    }
}

fn in_use(id: &ProfileId, by: Use) -> Failure {
    match by {
        Use::Open | Use::Starting => {
            Failure::permanent("already_open", format!("the profile {id} cannot be started: {by}"))
        }
        Use::Clearing | Use::Copying | Use::Changing => {
            Failure::retryable("profile_in_use", format!("the profile {id} cannot be started now: {by}"))
        }
    }
}

async fn launch(
    browsers: &Browsers,
    context: &JobContext,
    profile: &Profile,
    payload: &StartPayload,
) -> Result<Browser, NotDone> {
    let settings = browsers.settings();
    let chromium =
        browsers.chromium().map_err(|missing| Failure::permanent("browser_missing", missing.to_string()))?;
    let data_dir = browsers.profiles().directories.checked(context.tenant(), &profile.id).await;
    let data_dir = data_dir.map_err(|error| Failure::permanent("data_dir", error.to_string()))?;
    let fields = &profile.fields;
    let options = LaunchOptions {
        data_dir,
        proxy: fields.proxy.as_ref().map(|proxy| proxy.to_proxy()).transpose()?,
        window: fields.window,
        user_agent: fields.user_agent.clone(),
        locale: fields.locale.clone(),
        time_zone: fields.time_zone.clone(),
        headless: payload.headless.unwrap_or(settings.headless),
        allow_downloads: settings.allow_downloads,
        allow_file_urls: settings.allow_file_urls,
        start_limit: context.time_left().unwrap_or(START_LIMIT).saturating_sub(MARGIN),
    };
    match chromium.launch(&options, context.cancellation()).await {
        Ok(browser) => Ok(browser),
        Err(LaunchError::Canceled) => Err(NotDone::Canceled),
        Err(error) => {
            // A dialect may show less than that.
            context.log(&error.to_string());
            let failure = Failure::permanent(error.code(), error.to_string());
            Err(Failure { retryable: error.retryable(), ..failure }.into())
        }
    }
}

fn add(
    browsers: &Browsers,
    context: &JobContext,
    browser: Browser,
    taken: Taken,
    id: &ProfileId,
) -> std::sync::Arc<Running> {
    browsers.fleet().add(Started {
        tenant: context.tenant().clone(),
        profile: id.clone(),
        job: context.job(),
        attempt: context.attempt(),
        browser,
        taken,
    })
}

/// The id of the first tab, with the page that the job asks for.
async fn first_tab(
    running: &Running,
    payload: &StartPayload,
    stop: &CancellationToken,
) -> Result<Option<String>, NotDone> {
    let tabs = running.browser.tabs().await.map_err(|error| {
        Failure::retryable("browser_crashed", format!("the browser does not list its tabs: {error}"))
    })?;
    let Some(tab) = tabs.into_iter().next() else { return Ok(None) };
    if let Some(url) = &payload.url {
        let page = running.browser.page(&tab.id).await;
        let page = page.map_err(|error| Failure::retryable("browser_crashed", error.to_string()))?;
        let action = PageAction::parse(&json!({"kind": "navigate", "url": url}));
        let action = action.map_err(|bad| Failure::permanent("bad_payload", format!("url: {bad}")))?;
        // The load of the empty page would abort a navigation that comes before its end.
        if let Err(error) = page.first_load(EMPTY_PAGE_LIMIT).await {
            tracing::info!(profile = %running.profile, %error, "the empty page of the first tab did not load");
        }
        // A page that does not load is no reason to have no browser.
        match page.act(&action, &PageLimits::default(), stop).await {
            Ok(_) => {}
            Err(_) if stop.is_cancelled() => return Err(NotDone::Canceled),
            Err(error) => tracing::info!(profile = %running.profile, %error, "the first page did not load"),
        }
    }
    Ok(Some(tab.id))
}

fn result_of(running: &Running, tab: Option<String>) -> Value {
    let view = running.view();
    json!({
        "profileId": view.profile.as_str(),
        "pid": view.pid,
        "debugPort": view.debug_port,
        "devtoolsUrl": view.devtools_url,
        "tabId": tab,
    })
}
