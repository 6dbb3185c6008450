//! The gate in front of every operation: gives the request its id, says who calls and whether they may, writes errors, and
//! lets pages of allowed origins read the answer.
//!
//! It is one layer, so that a request passes as little as possible. A panic behind it becomes a 500 and the server lives.

use std::panic::AssertUnwindSafe;
use std::time::Instant;

use axum::extract::{Request, State};
use axum::http::header::HeaderName;
use axum::http::{HeaderMap, HeaderValue, Method};
use axum::middleware::Next;
use axum::response::Response;
use futures_util::FutureExt;
use laneway_core::{Name, Span};
use laneway_runtime::Caller;
use laneway_runtime::caller::{Credentials, Denied, Doorkeeper};

use crate::api::Api;
use crate::audit;
use crate::auth::{self, Principal};
use crate::authority::{self, Authority, Who};
use crate::cors;
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
    pub authority: Authority,
}

/// Lets a request in, or not.
pub async fn pass(State(gate): State<Gate>, mut request: Request, next: Next) -> Response {
    let Gate { api, authority } = gate;
    let id = api.next_request();
    let origin = cors::allowed_origin(&api, request.headers());
    let measured =
        is_measured(&authority, &request).then(|| (api.scheduler.api_meter().begin(), Instant::now()));
    let mut response = match admit(&api, &authority, &request, &id) {
        Err((who, error)) => fail(&api, authority, who, error, &id).await,
        Ok(caller) => {
            request.extensions_mut().insert(caller.clone());
            let mut response = match AssertUnwindSafe(next.run(request)).catch_unwind().await {
                Ok(response) => response,
                Err(_) => {
                    axum::response::IntoResponse::into_response(ApiError::internal("a handler panicked"))
                }
            };
            match response.extensions_mut().remove::<ApiError>() {
                Some(error) => fail(&api, authority, caller.into(), error, &id).await,
                None => response,
            }
        }
    };
    if let Some((_in_flight, began)) = measured {
        let micros = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
        api.scheduler.api_meter().record(response.status().as_u16(), micros);
    }
    stamp(&mut response, &id);
    cors::allow(&mut response, origin);
    response
}

/// Does the time of this call say something about the machine? Not of one that waits on purpose, nor of what probes ask.
fn is_measured(authority: &Authority, request: &Request) -> bool {
    let waits = request.uri().query().is_some_and(|query| query.contains("wait="));
    // How long an artifact takes says something about its worker only.
    let waits = waits || matches!(authority.operation, "stream_events" | "get_artifact");
    !waits && !matches!(authority.who, Who::Anyone)
}

async fn fail(api: &Api, authority: Authority, who: audit::Who, error: ApiError, id: &Name) -> Response {
    tracing::debug!(operation = authority.operation, request = %id, code = error.code.word(), "a call was not done");
    audit::note_failure(api, authority, who, &error).await;
    error.to_response(id)
}

/// Answers what no operation answers: unknown paths and methods.
pub fn turn_away(api: &Api, headers: &HeaderMap, error: &ApiError) -> Response {
    let id = api.next_request();
    let mut response = error.to_response(&id);
    stamp(&mut response, &id);
    cors::allow(&mut response, cors::allowed_origin(api, headers));
    response
}

/// Answers a browser that asks what a page may do, if the page is of an allowed origin.
pub fn answer_preflight(api: &Api, method: &Method, headers: &HeaderMap) -> Option<Response> {
    let origin = cors::allowed_origin(api, headers);
    let mut response = cors::preflight(method, headers, origin.as_ref())?;
    stamp(&mut response, &api.next_request());
    cors::allow(&mut response, origin);
    Some(response)
}

fn stamp(response: &mut Response, id: &Name) {
    let value = HeaderValue::from_str(id.as_str()).expect("request ids are ASCII");
    response.headers_mut().insert(REQUEST_ID, value);
}

/// Says who calls, and whether they may; if not, who it was as far as it is known, and why not.
pub fn admit(
    api: &Api,
    authority: &Authority,
    request: &Request,
    id: &Name,
) -> Result<Caller, (audit::Who, ApiError)> {
    let stranger = || audit::Who { actor: Name::fixed("unknown"), tenant: None, request: id.clone() };
    let principal = match authority.who {
        // Answers that anybody may have give nothing away and change nothing, so nobody is asked who they are.
        Who::Anyone => api.open.clone(),
        Who::Roles(_) => authenticate(api, request).map_err(|error| (stranger(), error))?,
    };
    let named = auth::named_tenant(request.headers(), &principal).map_err(|error| {
        let Principal { actor, bound, .. } = principal.clone();
        (audit::Who { actor, tenant: bound, request: id.clone() }, error)
    })?;
    let caller = caller_of(api, principal, named, id);
    if authority.allows(caller.role, caller.is_server_wide()) {
        return Ok(caller);
    }
    let detail = match authority.allows(caller.role, true) {
        true => "this touches the whole server: it needs a server-wide token (tenant *)".to_owned(),
        false => format!("role {} may not do this; ask for a token with more rights", caller.role.word()),
    };
    Err((caller.into(), ApiError::new(Code::Forbidden, detail)))
}

/// Who acts, for which tenant, in which call.
fn caller_of(api: &Api, principal: Principal, named: Option<Name>, id: &Name) -> Caller {
    let tenant = principal.bound.as_ref().or(named.as_ref());
    Caller {
        sees_one_tenant: tenant.is_some(),
        tenant: tenant.unwrap_or(&api.names.tenant).clone(),
        actor: principal.actor,
        role: principal.role,
        bound: principal.bound,
        request: id.clone(),
        expires_at: principal.expires_at,
        by_token: principal.by_token,
    }
}

/// Judges those who say who they are once their request was let in. A token that the request itself brought is theirs,
/// too, unless they give another one.
pub fn doorkeeper(api: &Api, request: &Request, id: &Name) -> Result<Doorkeeper, ApiError> {
    let (api, id, headers) = (api.clone(), id.clone(), request.headers().clone());
    let peer = peer_of(request)?.clone();
    let judge = move |credentials: Credentials<'_>| {
        let token = match credentials.token {
            Some(token) => Some(token),
            None => auth::bearer(&headers)?,
        };
        let principal = identify(&api, &headers, &peer, token, |peer| bad_token(&api, peer))?;
        let named = credentials.tenant.map(|tenant| auth::tenant_named(tenant, &principal)).transpose()?;
        Ok::<_, ApiError>(caller_of(&api, principal, named, &id))
    };
    Ok(Doorkeeper::new(move |credentials| {
        judge(credentials).map_err(|error| denied_by(&error, credentials.token.is_some()))
    }))
}

/// Says who is at the other end of a worker's connection, and for which tenant it speaks.
pub fn identify_worker(
    api: &Api,
    headers: &HeaderMap,
    peer: &Peer,
    token: Option<&str>,
    tenant: &str,
    id: &Name,
) -> Result<Caller, ApiError> {
    let principal = identify(api, headers, peer, token, |peer| bad_token(api, peer))?;
    let named = auth::tenant_named(tenant, &principal)?;
    Ok(caller_of(api, principal, Some(named), id))
}

/// Why a call is turned away, in the words that dialects translate.
pub fn denied_by(error: &ApiError, shows_token: bool) -> Denied {
    match error.code {
        Code::Unauthorized if shows_token => Denied::BadToken,
        Code::Unauthorized => Denied::MissingToken,
        Code::TooManyAttempts => {
            Denied::TooManyAttempts { retry_after: error.retry_after.unwrap_or(Span::secs(60)) }
        }
        Code::Misdirected | Code::OriginRefused => Denied::Misdirected(error.detail.to_string()),
        Code::Internal => Denied::Internal,
        _ => Denied::Forbidden(error.detail.to_string()),
    }
}

/// May whoever asks see the figures of the whole server? For operations that answer everybody, but not with everything.
pub fn sees_figures(api: &Api, request: &Request) -> bool {
    let rule = authority::of("get_stats").expect("the operation has a row in the table of authority");
    // A bad token is not counted here: probes ask often, and get nothing by it.
    recognize(api, request, |_| auth::unauthorized("the token is not known"))
        .is_ok_and(|principal| principal.bound.is_none() && rule.allows(principal.role, true))
}

/// Says who calls, and counts those who guess.
fn authenticate(api: &Api, request: &Request) -> Result<Principal, ApiError> {
    recognize(api, request, |peer| bad_token(api, peer))
}

/// Says who calls: the token's owner, else the certificate's, else anybody while the server is open.
fn recognize(
    api: &Api,
    request: &Request,
    bad_token: impl FnOnce(&Peer) -> ApiError,
) -> Result<Principal, ApiError> {
    let headers = request.headers();
    identify(api, headers, peer_of(request)?, auth::bearer(headers)?, bad_token)
}

fn peer_of(request: &Request) -> Result<&Peer, ApiError> {
    request.extensions().get::<Peer>().ok_or_else(|| ApiError::internal("a connection has no peer"))
}

/// Says who is at the other end of a connection, with the token that came by it.
fn identify(
    api: &Api,
    headers: &HeaderMap,
    peer: &Peer,
    token: Option<&str>,
    bad_token: impl FnOnce(&Peer) -> ApiError,
) -> Result<Principal, ApiError> {
    if let Some(token) = token {
        let tokens = api.scheduler.tokens();
        return auth::verify(&tokens, token, api.scheduler.wall()).ok_or_else(|| bad_token(peer));
    }
    let config = api.config.current();
    if let Some(identity) = &peer.identity {
        // A browser shows its certificate to every page's requests, so the page must be ours.
        auth::check_site(headers, &config.server, true)?;
        return Ok(identity.principal());
    }
    if peer.listens_on_loopback && !peer.shows_certificates && api.scheduler.tokens().is_empty() {
        auth::check_site(headers, &config.server, false)?;
        return Ok(api.open.clone());
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

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::body::Body;
    use axum::middleware::from_fn_with_state;
    use axum::routing::get;
    use laneway_runtime::config::{Layers, Overrides};
    use laneway_runtime::live_config::LiveConfig;
    use laneway_runtime::{Options, Scheduler};
    use laneway_store::MemoryStore;
    use tower::Service;

    use super::*;

    #[tokio::test]
    async fn a_panic_becomes_a_500_and_the_server_lives() {
        let config = Layers::builtin().resolve(&Overrides::none()).unwrap();
        let options = Options::new(config.settings().clone());
        let (scheduler, _running) = Scheduler::start(Box::new(MemoryStore::new()), options).unwrap();
        let live = LiveConfig::new(Layers::builtin(), Overrides::none(), config, scheduler.clone());
        let gate =
            Gate { api: Api::new(scheduler, live).unwrap(), authority: *authority::of("get_index").unwrap() };
        async fn panics() {
            panic!("a secret of the inside")
        }
        let panics = get(panics).route_layer(from_fn_with_state(gate, pass));
        let mut app: Router = Router::new().route("/", panics);
        for _ in 0..2 {
            let response = app.call(Request::new(Body::empty())).await.unwrap();
            assert_eq!(response.status(), 500);
            assert!(response.headers().contains_key(REQUEST_ID));
            let body = axum::body::to_bytes(response.into_body(), 10_000).await.unwrap();
            let text = std::str::from_utf8(&body).unwrap();
            assert!(text.contains("\"internal\"") && !text.contains("secret"), "{text}");
        }
    }
}
