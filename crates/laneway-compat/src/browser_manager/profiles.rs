//! Profiles: create, list, move to the recycle bin and restore. These calls are carried out at once and enqueue nothing.

use axum::extract::{Path, RawQuery, Request};
use laneway_browser::kinds::{PayloadProblem, ProxyTestPayload, TestedProxy};
use laneway_browser::profiles::{
    Profile, ProfileError, ProfileFields, ProfileId, ProfileQuery, ProfileStatus, ProxySpec,
};
use laneway_core::{Name, Span};
use laneway_runtime::Caller;
use serde_json::json;

use super::BrowserManager;
use super::decode::Fields;
use super::env::bytes;
use super::error::{Answer, Code, Problem, ok};
use super::translate::time;
use super::wire::{NotRemoved, ProfilePage, ProfileView, Removed, Window};
use crate::body::Call;

/// Longest text of a field of a profile, in bytes; the profile has its own limits.
const TEXT_MAX: usize = 4_096;
/// Most profiles that one call moves to the recycle bin.
const BATCH_MAX: usize = 100;
/// Largest side of a window that can be written; the profile has its own limits.
const SIDE_MAX: u64 = u32::MAX as u64;

/// The values of `status` in a list.
const STATUSES: [(&str, Option<ProfileStatus>); 3] =
    [("active", Some(ProfileStatus::Active)), ("trashed", Some(ProfileStatus::Trashed)), ("all", None)];

/// Creates a profile.
pub async fn create_env(Call(browser_manager, caller): Call<BrowserManager>, request: Request) -> Answer {
    let mut fields = Fields::of_request(request).await?;
    let id = fields.opt_text("id", TEXT_MAX)?.map(|id| ProfileId::parse(&id)).transpose();
    // The id of a new profile is a field like any other.
    let id = id.map_err(|bad| {
        let code = if bad.problem == PayloadProblem::TooLong { Code::TooLong } else { Code::OutOfRange };
        Problem::new(code, format!("id {}", bad.message))
    })?;
    let name = fields.opt_text("name", TEXT_MAX)?;
    let profile = ProfileFields {
        name: name.unwrap_or_else(|| format!("Profile {}", time(browser_manager.scheduler.wall()))),
        proxy: proxy(&mut fields)?,
        window: window(&mut fields)?,
        user_agent: fields.opt_text("userAgent", TEXT_MAX)?,
        locale: fields.opt_text("locale", TEXT_MAX)?,
        time_zone: fields.opt_text("timeZone", TEXT_MAX)?,
    };
    let profiles = browser_manager.browsers.profiles();
    let profile = profiles.create(&caller.tenant, id, profile, caller.origin()).await?;
    ok(&browser_manager.view(&caller.tenant, &profile))
}

fn proxy(fields: &mut Fields) -> Result<Option<ProxySpec>, Problem> {
    let Some(proxy) = fields.value("proxy") else { return Ok(None) };
    match ProxyTestPayload::parse(&bytes(&json!({"proxy": proxy})))?.proxy {
        TestedProxy::Given(proxy) => Ok(Some(proxy)),
        TestedProxy::OfProfile(_) => Ok(None),
    }
}

fn window(fields: &mut Fields) -> Result<Option<(u32, u32)>, Problem> {
    let Some(window) = fields.opt_object("window")? else { return Ok(None) };
    let mut window = Fields::of_object(window);
    let mut side = |name: &str| {
        let side = window.opt_number(name, 1, SIDE_MAX)?;
        let side = side.ok_or_else(|| Problem::missing(&format!("window.{name}")))?;
        Ok::<u32, Problem>(u32::try_from(side).unwrap_or(u32::MAX))
    };
    Ok(Some((side("width")?, side("height")?)))
}

/// Lists profiles, newest first.
pub async fn list_envs(
    Call(browser_manager, caller): Call<BrowserManager>,
    RawQuery(query): RawQuery,
) -> Answer {
    let mut fields = Fields::of_query(query.as_deref());
    let paging = fields.paging()?;
    let search = fields.opt_query_text("search")?;
    let status = fields.opt_one_of("status", &STATUSES)?.unwrap_or(Some(ProfileStatus::Active));
    let query = ProfileQuery { search, status, offset: paging.skipped(), limit: paging.len_max() };
    let page = browser_manager.browsers.profiles().list(&caller.tenant, &query).await?;
    let view = |profile: &Profile| browser_manager.view(&caller.tenant, profile);
    ok(&ProfilePage {
        list: page.profiles.iter().map(view).collect(),
        page_num: paging.page_num,
        page_size: paging.page_size,
        total: page.total,
    })
}

/// Moves profiles to the recycle bin, each for itself.
pub async fn recycle_envs(Call(browser_manager, caller): Call<BrowserManager>, request: Request) -> Answer {
    let mut fields = Fields::of_request(request).await?;
    let ids = fields.texts("ids", BATCH_MAX)?;
    let (mut removed, mut failed) = (Vec::new(), Vec::new());
    for id in ids {
        match browser_manager.recycle(&caller, &id).await {
            Ok(()) => removed.push(id),
            Err(problem) => {
                let (code, _, _) = problem.code().row();
                failed.push(NotRemoved { id, code, msg: problem.message() });
            }
        }
    }
    ok(&Removed { removed, failed })
}

/// Takes a profile out of the recycle bin. One that is not there stays as it is.
pub async fn restore_profile(
    Call(browser_manager, caller): Call<BrowserManager>,
    Path(id): Path<String>,
) -> Answer {
    let (profiles, id) = (browser_manager.browsers.profiles(), ProfileId::parse(&id)?);
    let profile = match profiles.restore(&caller.tenant, &id, caller.origin()).await {
        Err(ProfileError::NotTrashed(_)) => profiles.get(&caller.tenant, &id).await?,
        restored => restored?,
    };
    ok(&browser_manager.view(&caller.tenant, &profile))
}

impl BrowserManager {
    async fn recycle(&self, caller: &Caller, id: &str) -> Result<(), Problem> {
        let id = ProfileId::parse(id)?;
        self.browsers.profiles().trash(&caller.tenant, &id, caller.origin()).await?;
        Ok(())
    }

    fn view(&self, tenant: &Name, profile: &Profile) -> ProfileView {
        let ProfileFields { name, proxy, window, user_agent, locale, time_zone } = profile.fields.clone();
        ProfileView {
            id: profile.id.to_string(),
            name,
            status: profile.status().as_str(),
            is_open: self.browsers.open_of(tenant, &profile.id).is_some(),
            proxy: proxy.as_ref().map(ProxySpec::shown),
            window: window.map(|(width, height)| Window { width, height }),
            user_agent,
            locale,
            time_zone,
            cloned_from: profile.cloned_from.as_ref().map(ToString::to_string),
            created_at: time(profile.created_at),
            updated_at: time(profile.updated_at),
            trashed_at: profile.trashed_at.map(time),
        }
    }
}

impl From<ProfileError> for Problem {
    fn from(error: ProfileError) -> Problem {
        let message = error.to_string();
        match error {
            ProfileError::NotFound(_) => Problem::new(Code::ProfileNotFound, message),
            ProfileError::Trashed(_) => Problem::new(Code::ProfileInRecycleBin, message),
            ProfileError::InUse { .. } => Problem::new(Code::ProfileAlreadyOpen, message),
            ProfileError::Exists(_) | ProfileError::NotTrashed(_) => Problem::new(Code::OutOfRange, message),
            ProfileError::Invalid(bad) => bad.into(),
            ProfileError::Rejected(_) => Problem::new(Code::InsufficientStorage, message),
            ProfileError::Conflict(_) => Problem::new(Code::Database, message).retry_after(Span::secs(1)),
            ProfileError::Unreadable { .. } | ProfileError::Io(_) => Problem::internal(&message),
            ProfileError::Stopped(stopped) => stopped.into(),
        }
    }
}
