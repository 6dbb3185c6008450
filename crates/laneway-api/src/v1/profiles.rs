//! Browser profiles: created, listed, shown, changed, put into the recycle bin, restored and deleted.
//!
//! A profile belongs to one tenant. The password of its proxy is never shown.

use axum::http::header::{HeaderValue, LOCATION};
use axum::http::{HeaderMap, StatusCode};
use laneway_browser::profiles::{NAME_LEN_MAX, ProfileQuery, ProfileStatus};
use laneway_browser::{
    Browsers, Profile as Stored, ProfileError, ProfileFields, ProfileId, ProfilePatch, ProxySpec,
};
use laneway_core::Name;
use laneway_runtime::config::Secret;
use laneway_wire::{
    Problem, Profile, ProfileList, ProfilePatchRequest, ProfileProxy, ProfileRequest, ProfileWindow,
    ProxyRequest,
};

use crate::api::Api;
use crate::error::{ApiError, Code};
use crate::query::{Call, JsonBody, NoBody, NoInput, NoParameters, OptionalBody, Parameters, PathProfile};
use crate::render;
use crate::reply::{self, Answer};
use crate::v1::submit;

/// Lists profiles, newest first.
#[utoipa::path(
    get, path = "/v1/profiles", operation_id = "list_profiles", tag = "profiles",
    params(
        ("search" = Option<String>, Query, description = "Only profiles whose id or name contains this text, in upper or lower case"),
        ("status" = Option<String>, Query, description = "Only profiles with this status"),
        ("limit" = Option<usize>, Query, description = "1 to 500; 50 when absent"),
        ("cursor" = Option<String>, Query, description = "`next` of the previous page; keep every filter unchanged"),
    ),
    responses((status = 200, body = ProfileList), (status = 400, description = "invalid_field, unknown_field, invalid_cursor", body = Problem))
)]
pub async fn list_profiles(Call(api, caller): Call, list: Parameters) -> Answer {
    let list = list.only(&["search", "status", "limit", "cursor"])?;
    let search = list.get("search").filter(|text| !text.is_empty());
    if search.is_some_and(|text| text.len() > NAME_LEN_MAX) {
        return Err(ApiError::field("search", format!("must have at most {NAME_LEN_MAX} bytes")));
    }
    let status = list.get("status").map(parse_status).transpose()?;
    let name = format!("profiles {} {search:?} {status:?}", caller.tenant);
    let offset = list.get("cursor").map(|cursor| api.cursors.read(&name, cursor)).transpose()?.unwrap_or(0);
    let query = ProfileQuery {
        search: search.map(str::to_owned),
        status,
        offset: usize::try_from(offset).unwrap_or(usize::MAX),
        limit: list.limit()?,
    };
    let browsers = browsers(&api)?;
    let page = browsers.profiles().list(&caller.tenant, &query).await.map_err(not_done)?;
    let end = query.offset.saturating_add(page.profiles.len());
    let next = (end < page.total && !page.profiles.is_empty()).then(|| api.cursors.write(&name, end as u64));
    let profiles = page.profiles.iter().map(|profile| shown(browsers, &caller.tenant, profile)).collect();
    reply::ok(&ProfileList { profiles, total: page.total as u64, next })
}

/// Creates a profile.
#[utoipa::path(
    post, path = "/v1/profiles", operation_id = "create_profile", tag = "profiles",
    request_body(content = ProfileRequest, description = "May be omitted."),
    responses(
        (status = 201, description = "The new profile", body = Profile),
        (status = 400, description = "malformed_json, invalid_field, unknown_field", body = Problem),
        (status = 409, description = "already_exists", body = Problem),
        (status = 429, description = "too_many", body = Problem),
        (status = 507, description = "storage_low", body = Problem),
    )
)]
pub async fn create_profile(
    Call(api, caller): Call,
    headers: HeaderMap,
    OptionalBody(request): OptionalBody<ProfileRequest>,
) -> Answer {
    let remedy = "is not accepted for profiles; choose an id: a second profile with the same id is rejected";
    submit::reject_key(&headers, remedy)?;
    let ProfileRequest { id, name, proxy, window, user_agent, locale, time_zone } = request;
    let id = id.as_deref().map(ProfileId::parse).transpose().map_err(invalid)?;
    let name = name.or_else(|| id.as_ref().map(ProfileId::to_string));
    let fields = ProfileFields {
        name: name.unwrap_or_else(|| "unnamed".to_owned()),
        proxy: proxy.map(proxy_spec),
        window: window.map(sides),
        user_agent,
        locale,
        time_zone,
    };
    let browsers = browsers(&api)?;
    let created = browsers.profiles().create(&caller.tenant, id, fields, caller.origin()).await;
    let profile = created.map_err(not_done)?;
    let mut response = reply::json(StatusCode::CREATED, &shown(browsers, &caller.tenant, &profile))?;
    let location = format!("/v1/profiles/{}", profile.id);
    response.headers_mut().insert(LOCATION, HeaderValue::from_str(&location).map_err(ApiError::internal)?);
    Ok(response)
}

/// Shows a profile, also one of the recycle bin.
#[utoipa::path(
    get, path = "/v1/profiles/{id}", operation_id = "get_profile", tag = "profiles", params(("id" = String, Path)),
    responses((status = 200, body = Profile), (status = 400, description = "invalid_id", body = Problem), (status = 404, description = "not_found", body = Problem))
)]
pub async fn get_profile(Call(api, caller): Call, PathProfile(id): PathProfile, _: NoParameters) -> Answer {
    let browsers = browsers(&api)?;
    let profile = browsers.profiles().get(&caller.tenant, &id).await.map_err(not_done)?;
    reply::ok(&shown(browsers, &caller.tenant, &profile))
}

/// Changes a profile. An absent field keeps its value, `null` removes it. An open browser is not changed.
#[utoipa::path(
    patch, path = "/v1/profiles/{id}", operation_id = "update_profile", tag = "profiles", params(("id" = String, Path)),
    request_body = ProfilePatchRequest,
    responses(
        (status = 200, description = "The changed profile", body = Profile),
        (status = 400, description = "malformed_json, invalid_field, unknown_field, invalid_id", body = Problem),
        (status = 404, description = "not_found", body = Problem),
        (status = 409, description = "conflict: it is in the recycle bin", body = Problem),
    )
)]
pub async fn update_profile(
    Call(api, caller): Call,
    PathProfile(id): PathProfile,
    JsonBody(request): JsonBody<ProfilePatchRequest>,
) -> Answer {
    let ProfilePatchRequest { name, proxy, window, user_agent, locale, time_zone } = request;
    let patch = ProfilePatch {
        name,
        proxy: proxy.map(|proxy| proxy.map(proxy_spec)),
        window: window.map(|window| window.map(sides)),
        user_agent,
        locale,
        time_zone,
    };
    let browsers = browsers(&api)?;
    let changed = browsers.profiles().update(&caller.tenant, &id, patch, caller.origin()).await;
    reply::ok(&shown(browsers, &caller.tenant, &changed.map_err(not_done)?))
}

/// Puts a profile into the recycle bin. Its browser must be closed.
#[utoipa::path(
    post, path = "/v1/profiles/{id}/trash", operation_id = "trash_profile", tag = "profiles", params(("id" = String, Path)),
    responses((status = 200, body = Profile), (status = 404, description = "not_found", body = Problem), (status = 409, description = "conflict: it is in use, or in the recycle bin already", body = Problem))
)]
pub async fn trash_profile(Call(api, caller): Call, PathProfile(id): PathProfile, _: NoInput) -> Answer {
    let browsers = browsers(&api)?;
    let trashed = browsers.profiles().trash(&caller.tenant, &id, caller.origin()).await;
    reply::ok(&shown(browsers, &caller.tenant, &trashed.map_err(not_done)?))
}

/// Takes a profile out of the recycle bin.
#[utoipa::path(
    post, path = "/v1/profiles/{id}/restore", operation_id = "restore_profile", tag = "profiles", params(("id" = String, Path)),
    responses((status = 200, body = Profile), (status = 404, description = "not_found", body = Problem), (status = 409, description = "conflict: it is not in the recycle bin", body = Problem))
)]
pub async fn restore_profile(Call(api, caller): Call, PathProfile(id): PathProfile, _: NoInput) -> Answer {
    let browsers = browsers(&api)?;
    let restored = browsers.profiles().restore(&caller.tenant, &id, caller.origin()).await;
    reply::ok(&shown(browsers, &caller.tenant, &restored.map_err(not_done)?))
}

/// Deletes a profile of the recycle bin with its files, for good.
#[utoipa::path(
    delete, path = "/v1/profiles/{id}", operation_id = "delete_profile", tag = "profiles",
    params(("id" = String, Path), ("force" = Option<bool>, Query, description = "`true`: also when it is not in the recycle bin")),
    responses((status = 204, description = "Deleted"), (status = 404, description = "not_found", body = Problem), (status = 409, description = "conflict: it is in use, or not in the recycle bin", body = Problem))
)]
pub async fn delete_profile(
    Call(api, caller): Call,
    PathProfile(id): PathProfile,
    list: Parameters,
    _: NoBody,
) -> Answer {
    let force = list.only(&["force"])?.flag("force")?;
    let profiles = browsers(&api)?.profiles();
    if force {
        // A profile that cannot be deleted then is in the recycle bin, where the next cleanup finds it.
        match profiles.trash(&caller.tenant, &id, caller.origin()).await {
            Ok(_) | Err(ProfileError::Trashed(_)) => {}
            Err(error) => return Err(not_done(error)),
        }
    }
    profiles.delete(&caller.tenant, &id, caller.origin()).await.map_err(not_done)?;
    reply::no_content()
}

/// The browsers of this server.
pub(super) fn browsers(api: &Api) -> Result<&Browsers, ApiError> {
    api.browsers.get().ok_or_else(|| {
        let detail = "this server has no browsers: the program that embeds it has not enabled them";
        ApiError::new(Code::Invalid, detail)
    })
}

fn parse_status(text: &str) -> Result<ProfileStatus, ApiError> {
    let all = [ProfileStatus::Active, ProfileStatus::Trashed];
    let found = all.into_iter().find(|status| status.as_str() == text);
    found.ok_or_else(|| ApiError::field("status", "must be active or trashed"))
}

fn proxy_spec(request: ProxyRequest) -> ProxySpec {
    let ProxyRequest { scheme, host, port, username, password } = request;
    ProxySpec {
        scheme: scheme.unwrap_or_else(|| "http".to_owned()),
        host,
        port,
        username,
        password: password.map(|password| Secret::new(&password)),
    }
}

fn sides(ProfileWindow { width, height }: ProfileWindow) -> (u32, u32) {
    (width, height)
}

fn shown(browsers: &Browsers, tenant: &Name, profile: &Stored) -> Profile {
    let ProfileFields { name, proxy, window, user_agent, locale, time_zone } = &profile.fields;
    let proxy = proxy.as_ref().map(|proxy| ProfileProxy {
        scheme: proxy.scheme.clone(),
        host: proxy.host.clone(),
        port: proxy.port,
        username: proxy.username.clone(),
        has_password: proxy.password.is_some(),
    });
    Profile {
        id: profile.id.to_string(),
        name: name.clone(),
        status: profile.status().as_str().to_owned(),
        open: browsers.open_of(tenant, &profile.id).is_some(),
        proxy,
        window: window.map(|(width, height)| ProfileWindow { width, height }),
        user_agent: user_agent.clone(),
        locale: locale.clone(),
        time_zone: time_zone.clone(),
        cloned_from: profile.cloned_from.as_ref().map(ProfileId::to_string),
        created_at: render::time(profile.created_at),
        updated_at: render::time(profile.updated_at),
        trashed_at: profile.trashed_at.map(render::time),
    }
}

/// The error for a profile that was not read or changed.
pub(super) fn not_done(error: ProfileError) -> ApiError {
    let detail = error.to_string();
    let code = match error {
        ProfileError::NotFound(_) => Code::NotFound,
        ProfileError::Trashed(_)
        | ProfileError::NotTrashed(_)
        | ProfileError::InUse { .. }
        | ProfileError::Conflict(_) => Code::Conflict,
        ProfileError::Exists(_) => Code::AlreadyExists,
        ProfileError::Invalid(bad) => return invalid(bad),
        ProfileError::Rejected(_) => Code::TooMany,
        ProfileError::Unreadable { .. } => Code::Damaged,
        ProfileError::Io(error) => return ApiError::internal(error),
        ProfileError::Stopped(stopped) => return stopped.into(),
    };
    ApiError::new(code, detail)
}

/// The error for a field, under its name in this API. The payloads of jobs have other names for some fields.
pub(super) fn invalid(bad: laneway_browser::BadPayload) -> ApiError {
    let field = match bad.field.as_str() {
        "profileId" => "id",
        "userAgent" => "user_agent",
        "timeZone" => "time_zone",
        "proxy.user" => "proxy.username",
        other => other,
    };
    ApiError::field(field, bad.message)
}
