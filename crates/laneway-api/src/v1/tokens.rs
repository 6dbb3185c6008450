//! Tokens: created, listed, rotated and revoked.
//!
//! An admin that is bound to a tenant sees and creates tokens of that tenant only. Two rules keep owners from locking
//! themselves out: the first token, which closes an open server, must belong to a server-wide admin and not expire,
//! and the last such token can neither be revoked nor be replaced by one that expires.

use axum::extract::Request;
use axum::http::StatusCode;
use laneway_core::{Name, Reply, Role, Span, TokenRecord, Wall};
use laneway_wire::{
    Caller as WireCaller, Problem, RotateTokenRequest, Token, TokenList, TokenRequest, TokenSecret,
};

use crate::api::Api;
use crate::auth::{self, Caller, is_active};
use crate::body;
use crate::convert;
use crate::error::{ApiError, Code};
use crate::json;
use crate::query::{Call, JsonBody, NoInput, NoParameters, PathName};
use crate::render;
use crate::reply::{self, Answer};

/// The longest note, in bytes.
const NOTE_MAX: usize = 200;

/// Shows the caller, as the server authenticated it.
#[utoipa::path(get, path = "/v1/caller", operation_id = "get_caller", tag = "tokens", responses((status = 200, body = WireCaller)))]
pub async fn get_caller(caller: Caller, _: NoParameters) -> Answer {
    reply::ok(&WireCaller {
        actor: caller.actor.to_string(),
        role: caller.role.as_str().to_owned(),
        tenant: caller.bound.as_ref().map_or_else(|| "*".to_owned(), Name::to_string),
    })
}

/// Lists tokens, with expired and revoked ones.
#[utoipa::path(get, path = "/v1/tokens", operation_id = "list_tokens", tag = "tokens", responses((status = 200, body = TokenList)))]
pub async fn list_tokens(Call(api, caller): Call, _: NoParameters) -> Answer {
    let now = api.scheduler.wall();
    let table = api.scheduler.tokens();
    let tokens =
        table.iter().filter(|record| is_visible(&caller, record)).map(|record| render::token(record, now));
    reply::ok(&TokenList { tokens: tokens.collect() })
}

/// Shows a token, without its secret.
#[utoipa::path(
    get, path = "/v1/tokens/{id}", operation_id = "get_token", tag = "tokens", params(("id" = String, Path)),
    responses((status = 200, body = Token), (status = 404, description = "not_found", body = Problem))
)]
pub async fn get_token(Call(api, caller): Call, PathName(id): PathName, _: NoParameters) -> Answer {
    reply::ok(&render::token(&find(&api, &caller, &id)?, api.scheduler.wall()))
}

/// Creates a token. Its secret is shown only once, unless the request contains it.
#[utoipa::path(
    post, path = "/v1/tokens", operation_id = "create_token", tag = "tokens", request_body = TokenRequest,
    responses((status = 201, body = TokenSecret), (status = 400, description = "invalid_field, unknown_field", body = Problem), (status = 403, description = "forbidden: another tenant", body = Problem), (status = 409, description = "conflict: the first token must be one of a server-wide admin; already_exists: another token has this secret", body = Problem), (status = 429, description = "too_many", body = Problem))
)]
pub async fn create_token(Call(api, caller): Call, JsonBody(asked): JsonBody<TokenRequest>) -> Answer {
    let role = Role::parse(&asked.role)
        .ok_or_else(|| ApiError::field("role", "must be admin, operator, submitter, worker or viewer"))?;
    let tenant = tenant_of(&caller, asked.tenant.as_deref())?;
    let note = asked.note.as_deref().unwrap_or("");
    if note.len() > NOTE_MAX || note.chars().any(char::is_control) {
        return Err(ApiError::field(
            "note",
            format!("must have at most {NOTE_MAX} bytes and no control characters"),
        ));
    }
    let now = api.scheduler.wall();
    let expires_at =
        asked.expires_in.as_deref().map(|text| convert::positive_span("expires_in", text)).transpose()?;
    let is_first = api.scheduler.tokens().is_empty();
    if is_first && !(role == Role::Admin && tenant.is_none() && expires_at.is_none()) {
        let detail = "the first token closes the open server: create one with role admin, tenant * and no expiry first, \
                      or no caller could create more";
        return Err(ApiError::new(Code::Conflict, detail));
    }
    let expires_at = expires_at.map(|span| now + span);
    let Some(brought) = &asked.secret else {
        let secret = put_new(&api, &caller, tenant, role, note, expires_at).await?;
        return reply::json(StatusCode::CREATED, &secret);
    };
    let record = auth::import(brought, tenant, role, note, now, expires_at)
        .map_err(|why| ApiError::field("secret", why))?;
    let token = render::token(&record, now);
    put(&api, &caller, record).await?;
    reply::json(StatusCode::CREATED, &TokenSecret { secret: None, token, replaces: None })
}

/// Revokes a token: the next request with it is rejected, and its open streams are closed.
#[utoipa::path(
    delete, path = "/v1/tokens/{id}", operation_id = "revoke_token", tag = "tokens", params(("id" = String, Path)),
    responses((status = 200, description = "The revoked token", body = Token), (status = 404, description = "not_found", body = Problem), (status = 409, description = "conflict: the last token of a server-wide admin", body = Problem))
)]
pub async fn revoke_token(Call(api, caller): Call, PathName(id): PathName, _: NoInput) -> Answer {
    let record = find(&api, &caller, &id)?;
    if is_last_admin(&api, &record) {
        let detail = "this is the last token of a server-wide admin that does not expire; create another one without expiry first, or \
                      no caller could create more";
        return Err(ApiError::new(Code::Conflict, detail));
    }
    revoke(&api, &caller, &record).await?;
    reply::ok(&render::token(&find(&api, &caller, &id)?, api.scheduler.wall()))
}

/// Rotates a token: replaces it by a new one with the same role and tenant. The old one ends at once, or after
/// `grace`.
#[utoipa::path(
    post, path = "/v1/tokens/{id}/rotate", operation_id = "rotate_token", tag = "tokens", params(("id" = String, Path)),
    request_body = RotateTokenRequest,
    responses((status = 201, body = TokenSecret), (status = 404, description = "not_found", body = Problem), (status = 409, description = "conflict: the token has expired or was revoked, or it is the last one of a server-wide admin and the new one would expire", body = Problem))
)]
pub async fn rotate_token(
    Call(api, caller): Call,
    PathName(id): PathName,
    _: NoParameters,
    request: Request,
) -> Answer {
    let (parts, body) = request.into_parts();
    json::check_content_type(&parts.headers)?;
    let bytes = body::read(&parts.headers, body, api.config.current().server.body_max).await?;
    let asked: RotateTokenRequest =
        if bytes.is_empty() { RotateTokenRequest::default() } else { json::parse(&bytes, json::DEPTH_MAX)? };
    let grace =
        asked.grace.as_deref().map(|text| convert::span("grace", text)).transpose()?.unwrap_or(Span(0));
    let lives =
        asked.expires_in.as_deref().map(|text| convert::positive_span("expires_in", text)).transpose()?;
    let (old, now) = (find(&api, &caller, &id)?, api.scheduler.wall());
    if !is_active(&old, now) {
        return Err(ApiError::new(
            Code::Conflict,
            "the token has expired or was revoked; create a new one instead",
        ));
    }
    let lives = lives.or(old.expires_at.map(|at| at.since(old.created_at)));
    if lives.is_some() && old.expires_at.is_none() && is_last_admin(&api, &old) {
        let detail = "this is the last server-wide admin token that does not expire; omit expires_in, or create another \
                      one first, or no caller could create more";
        return Err(ApiError::new(Code::Conflict, detail));
    }
    let expires_at = lives.map(|span| now + span);
    let minted = auth::mint(old.tenant.clone(), old.role, &old.note, now, expires_at);
    let (record, secret) = minted.map_err(ApiError::internal)?;
    let (token, replaces) = (render::token(&record, now), Some(old.id.to_string()));
    answered(api.scheduler.rotate_token(old.id, now + grace, record, caller.origin()).await?)?;
    reply::json(StatusCode::CREATED, &TokenSecret { secret: Some(secret), token, replaces })
}

fn is_visible(caller: &Caller, record: &TokenRecord) -> bool {
    caller.scope().is_none_or(|tenant| record.tenant.as_ref() == Some(tenant))
}

fn find(api: &Api, caller: &Caller, id: &Name) -> Result<TokenRecord, ApiError> {
    let record = api.scheduler.tokens().get(id).filter(|record| is_visible(caller, record)).cloned();
    record.ok_or_else(|| ApiError::new(Code::NotFound, "the token does not exist"))
}

/// The tenant of a new token, if the caller may choose it.
fn tenant_of(caller: &Caller, asked: Option<&str>) -> Result<Option<Name>, ApiError> {
    let tenant = match asked {
        None => Some(caller.tenant.clone()),
        Some("*") => None,
        Some(text) => Some(convert::name("tenant", text)?),
    };
    if caller.scope().is_some_and(|own| tenant.as_ref() != Some(own)) {
        return Err(ApiError::new(
            Code::Forbidden,
            "the caller is bound to a tenant and creates tokens of that tenant only",
        ));
    }
    Ok(tenant)
}

/// True when no other token could create tokens. A token that expires cannot replace one that does not.
fn is_last_admin(api: &Api, record: &TokenRecord) -> bool {
    let now = api.scheduler.wall();
    let rules = |record: &TokenRecord| {
        record.role == Role::Admin && record.tenant.is_none() && is_active(record, now)
    };
    let stands_in = |other: &TokenRecord| {
        other.id != record.id && rules(other) && (other.expires_at.is_none() || record.expires_at.is_some())
    };
    rules(record) && !api.scheduler.tokens().iter().any(stands_in)
}

async fn put_new(
    api: &Api,
    caller: &Caller,
    tenant: Option<Name>,
    role: Role,
    note: &str,
    expires_at: Option<Wall>,
) -> Result<TokenSecret, ApiError> {
    let now = api.scheduler.wall();
    let (record, secret) = auth::mint(tenant, role, note, now, expires_at).map_err(ApiError::internal)?;
    let token = render::token(&record, now);
    put(api, caller, record).await?;
    Ok(TokenSecret { secret: Some(secret), token, replaces: None })
}

async fn put(api: &Api, caller: &Caller, record: TokenRecord) -> Result<(), ApiError> {
    answered(api.scheduler.put_token(record, caller.origin()).await?)
}

async fn revoke(api: &Api, caller: &Caller, record: &TokenRecord) -> Result<(), ApiError> {
    let (tenant, id) = (record.tenant.clone(), record.id.clone());
    answered(api.scheduler.revoke_token(tenant, id, caller.origin()).await?)
}

/// The reply of the engine to a change of a token.
fn answered(reply: Reply) -> Result<(), ApiError> {
    match reply {
        Reply::Done => Ok(()),
        Reply::Rejected(rejection) => Err(rejection.into()),
        Reply::NotFound => Err(ApiError::new(Code::NotFound, "the token does not exist")),
        other => Err(ApiError::internal(format!("the engine answered a change of a token with {other:?}"))),
    }
}
