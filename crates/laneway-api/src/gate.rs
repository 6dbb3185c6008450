//! The gate in front of every operation: gives the request its id, says who calls and whether they may, and writes errors.
//!
//! It is one layer, so that a request passes as little as possible. A panic behind it becomes a 500 and the server lives.

use std::panic::AssertUnwindSafe;
use std::time::Instant;

use axum::extract::{Request, State};
use axum::http::header::HeaderName;
use axum::http::{HeaderMap, HeaderValue};
use axum::middleware::Next;
use axum::response::Response;
use futures_util::FutureExt;
use laneway_core::{Name, Role, Span};

use crate::api::Api;
use crate::audit;
use crate::auth::{self, Caller, Principal};
use crate::authority::{Authority, Who};
use crate::error::{ApiError, Code};
use crate::serve::Peer;

/// The header that carries the id of a call.
pub const REQUEST_ID: HeaderName = HeaderName::from_static("request-id");

/// What one operation's gate knows.
#[derive(Clone)]
pub struct Gate {
    /// The API.
    pub api: Api,
    /// What the operation asks of its caller.
    pub authority: &'static Authority,
}

/// Lets a request in, or not.
pub async fn pass(State(gate): State<Gate>, mut request: Request, next: Next) -> Response {
    let Gate { api, authority } = gate;
    let id = api.next_request();
    let mut who = audit::Who { actor: Name::fixed("unknown"), tenant: None, request: id.clone() };
    let mut response = match admit(&api, authority, &request, &id, &mut who) {
        Err(error) => fail(&api, authority, who, error, &id).await,
        Ok(caller) => {
            request.extensions_mut().insert(caller);
            let mut response = match AssertUnwindSafe(next.run(request)).catch_unwind().await {
                Ok(response) => response,
                Err(_) => {
                    axum::response::IntoResponse::into_response(ApiError::internal("a handler panicked"))
                }
            };
            match response.extensions_mut().remove::<ApiError>() {
                Some(error) => fail(&api, authority, who, error, &id).await,
                None => response,
            }
        }
    };
    stamp(&mut response, &id);
    response
}

async fn fail(
    api: &Api,
    authority: &'static Authority,
    who: audit::Who,
    error: ApiError,
    id: &Name,
) -> Response {
    tracing::debug!(operation = authority.operation, request = %id, code = error.code.word(), "a call was not done");
    audit::note_failure(api, authority, who, &error).await;
    error.to_response(id)
}

/// Answers what no operation answers: unknown paths and methods.
pub async fn turn_away(State(api): State<Api>, error: ApiError) -> Response {
    let id = api.next_request();
    let mut response = error.to_response(&id);
    stamp(&mut response, &id);
    response
}

fn stamp(response: &mut Response, id: &Name) {
    let value = HeaderValue::from_str(id.as_str()).expect("request ids are ASCII");
    response.headers_mut().insert(REQUEST_ID, value);
}

/// Says who calls, and whether they may.
fn admit(
    api: &Api,
    authority: &Authority,
    request: &Request,
    id: &Name,
    who: &mut audit::Who,
) -> Result<Caller, ApiError> {
    let peer =
        request.extensions().get::<Peer>().ok_or_else(|| ApiError::internal("a connection has no peer"))?;
    let principal = match authority.who {
        // Answers that anybody may have give nothing away and change nothing, so nobody is asked who they are.
        Who::Anyone => Principal { role: Role::Viewer, ..Principal::open() },
        Who::Roles(_) => authenticate(api, request.headers(), peer)?,
    };
    who.actor = principal.actor.clone();
    who.tenant = principal.bound.clone();
    let named = auth::named_tenant(request.headers(), &principal)?;
    let caller = Caller {
        actor: principal.actor,
        role: principal.role,
        bound: principal.bound,
        named,
        request: id.clone(),
        expires_at: principal.expires_at,
        by_token: principal.by_token,
    };
    who.tenant = Some(caller.tenant());
    if authority.allows(caller.role, caller.is_server_wide()) {
        return Ok(caller);
    }
    let detail = match authority.allows(caller.role, true) {
        true => "this touches the whole server: it needs a server-wide token (tenant *)".to_owned(),
        false => format!("role {} may not do this; ask for a token with more rights", caller.role.word()),
    };
    Err(ApiError::new(Code::Forbidden, detail))
}

/// Says who calls: the token's owner, else the certificate's, else anybody while the server is open.
fn authenticate(api: &Api, headers: &HeaderMap, peer: &Peer) -> Result<Principal, ApiError> {
    if let Some(token) = auth::bearer(headers)? {
        let tokens = api.scheduler.tokens();
        return auth::verify(&tokens, token, api.scheduler.wall()).ok_or_else(|| bad_token(api, peer));
    }
    let config = api.config.current();
    if let Some(identity) = &peer.identity {
        // A browser shows its certificate to every page's requests, so the page must be ours.
        auth::check_site(headers, &config.server, true)?;
        return Ok(identity.principal());
    }
    if peer.listens_on_loopback && !peer.shows_certificates && api.scheduler.tokens().is_empty() {
        auth::check_site(headers, &config.server, false)?;
        return Ok(Principal::open());
    }
    Err(auth::unauthorized(
        "send a token as Authorization: Bearer lw_…; an admin makes one with `laneway token create`",
    ))
}

fn bad_token(api: &Api, peer: &Peer) -> ApiError {
    match api.bad_tokens.count(peer.address.ip(), Instant::now()) {
        None => auth::unauthorized("the token is not known, has expired or was revoked; ask for a new one"),
        Some(wait) => {
            let mut error = ApiError::new(
                Code::TooManyAttempts,
                "too many bad tokens came from this address; wait, then send a good one",
            );
            error.retry_after = Some(Span(u64::try_from(wait.as_millis()).unwrap_or(60_000)));
            error
        }
    }
}
