//! The gate of every operation: it gives the request an id, authenticates the caller, checks permissions, writes
//! errors, and adds CORS headers.
//!
//! It is a single layer, to keep the cost of a request low. A panic of a handler becomes a 500, and the server goes
//! on.

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
use laneway_runtime::caller::{Authenticator, Credentials, Denied};
use laneway_runtime::unauthenticated::{Arrival, Shown};

use crate::api::Api;
use crate::audit;
use crate::auth::{self, Identity, Principal};
use crate::authority::{self, Authority, Who};
use crate::body_budget::Spending;
use crate::cors;
use crate::error::{ApiError, Code};
use crate::hidden;
use crate::paced_body;
use crate::serve::Peer;

/// The header with the id of a request.
pub const REQUEST_ID: HeaderName = HeaderName::from_static("request-id");

/// The gate of one operation.
#[derive(Clone)]
pub struct Gate {
    /// The API.
    pub api: Api,
    /// The permission that the operation requires.
    pub authority: Authority,
}

/// Passes a request on, or rejects it.
pub async fn pass(State(gate): State<Gate>, mut request: Request, next: Next) -> Response {
    let Gate { api, authority } = gate;
    let id = api.next_request();
    let origin = cors::allowed_origin(&api, request.headers());
    let measured =
        is_measured(&authority, &request).then(|| (api.scheduler.api_meter().begin(), Instant::now()));
    let mut response = match admit(&api, &authority, &request, &id) {
        Err((who, error)) => fail(&api, authority, who, error, &id).await,
        Ok(caller) => {
            let hides = hidden::hides(&api, &caller);
            if let Err(error) = hidden::check(authority.operation)
                && hides
            {
                return deny_hidden(&api, authority, caller, error, &id, origin).await;
            }
            request = paced_body::paced(request, &api.bodies, &caller);
            request.extensions_mut().insert(caller.clone());
            let (request, spending) = count_body(&api, &caller, request);
            let mut response = match AssertUnwindSafe(next.run(request)).catch_unwind().await {
                Ok(response) => response,
                Err(_) => {
                    axum::response::IntoResponse::into_response(ApiError::internal("a handler panicked"))
                }
            };
            let over = spending.and_then(|spending| spending.error());
            match over.or(response.extensions_mut().remove::<ApiError>()) {
                Some(error) => fail(&api, authority, caller.into(), error, &id).await,
                None if hides => hidden::strip(authority.operation, response).await,
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

/// Denies an operation that would show what is hidden from the caller.
async fn deny_hidden(
    api: &Api,
    authority: Authority,
    caller: Caller,
    error: ApiError,
    id: &Name,
    origin: Option<HeaderValue>,
) -> Response {
    let mut response = fail(api, authority, caller.into(), error, id).await;
    stamp(&mut response, id);
    cors::allow(&mut response, origin);
    response
}

/// Counts the bytes of the request's body for its caller: for the token, or for the address if there is none.
pub fn count_body(api: &Api, caller: &Caller, request: Request) -> (Request, Option<Spending>) {
    let address = request.extensions().get::<Peer>().map(|peer| peer.address.ip().to_string());
    let by_address = address.filter(|_| caller.actor == api.open.actor);
    let tenant = caller.bound.as_ref().map_or("*", Name::as_str);
    let (parts, body) = request.into_parts();
    let payer = by_address.as_deref().unwrap_or(caller.actor.as_str());
    let (body, spending) = api.body_budget.count(body, tenant, payer);
    (Request::from_parts(parts, body), spending)
}

/// Whether the duration of this request counts as a load reading. Requests that wait on purpose and probes do not.
fn is_measured(authority: &Authority, request: &Request) -> bool {
    let waits = request.uri().query().is_some_and(|query| query.contains("wait="));
    // The duration of a download depends on the worker only.
    let waits = waits || matches!(authority.operation, "stream_events" | "get_artifact");
    !waits && !matches!(authority.who, Who::Anyone)
}

async fn fail(api: &Api, authority: Authority, who: audit::Who, error: ApiError, id: &Name) -> Response {
    tracing::debug!(operation = authority.operation, request = %id, code = error.code.as_str(), "a request failed");
    audit::note_failure(api, authority, who, &error).await;
    error.to_response(id)
}

/// Responds to requests without an operation: unknown paths and methods.
pub fn answer_unrouted(api: &Api, headers: &HeaderMap, error: &ApiError) -> Response {
    let id = api.next_request();
    let mut response = error.to_response(&id);
    stamp(&mut response, &id);
    cors::allow(&mut response, cors::allowed_origin(api, headers));
    response
}

/// Responds to a preflight of an allowed origin.
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

/// Authenticates the caller and checks its permission. The error has the caller, as far as it is known.
pub fn admit(
    api: &Api,
    authority: &Authority,
    request: &Request,
    id: &Name,
) -> Result<Caller, (audit::Who, ApiError)> {
    let unknown = || audit::Who { actor: Name::fixed("unknown"), tenant: None, request: id.clone() };
    let principal = match authority.who {
        // These operations reveal nothing and change nothing, so they require no authentication.
        Who::Anyone => api.open.clone(),
        Who::Roles(_) => authenticate(api, request).map_err(|error| (unknown(), error))?,
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
        true => "this concerns the whole server; use a server-wide token (tenant *)".to_owned(),
        false => format!("the role {} may not do this; use a token with another role", caller.role.as_str()),
    };
    Err((caller.into(), ApiError::new(Code::Forbidden, detail)))
}

/// The caller: its identity, its tenant, and the id of the request.
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

/// The source of a request for a socket, and whether it has already authenticated. A bad token is rejected at once.
pub fn arrival(api: &Api, headers: &HeaderMap, peer: &Peer) -> Result<Arrival, ApiError> {
    let principal = match auth::bearer(headers) {
        Ok(None) => peer.identity.as_ref().map(Identity::principal),
        token => Some(identify(api, headers, peer, token, |peer| bad_token(api, peer))?),
    };
    let shown = principal.map(|Principal { role, bound, .. }| Shown { role, tenant: bound });
    Ok(Arrival { address: peer.address.ip(), budget: peer.budget.clone(), shown })
}

/// The same for a whole request.
pub fn arrival_of(api: &Api, request: &Request) -> Result<Arrival, ApiError> {
    arrival(api, request.headers(), peer_of(request)?)
}

/// Authenticates clients after their request was accepted. The token of the request is used unless the client sends
/// another one.
pub fn authenticator(api: &Api, request: &Request, id: &Name) -> Result<Authenticator, ApiError> {
    let (api, id, headers) = (api.clone(), id.clone(), request.headers().clone());
    let peer = peer_of(request)?.clone();
    let judge = move |credentials: Credentials<'_>| {
        let token = match credentials.token {
            Some(token) => Ok(Some(token)),
            None => auth::bearer(&headers),
        };
        let principal = identify(&api, &headers, &peer, token, |peer| bad_token(&api, peer))?;
        let named = credentials.tenant.map(|tenant| auth::tenant_named(tenant, &principal)).transpose()?;
        Ok::<_, ApiError>(caller_of(&api, principal, named, &id))
    };
    Ok(Authenticator::new(move |credentials| {
        judge(credentials).map_err(|error| denied_by(&error, credentials.token.is_some()))
    }))
}

/// Authenticates a worker, with the tenant that it works for.
pub fn identify_worker(
    api: &Api,
    headers: &HeaderMap,
    peer: &Peer,
    token: Result<Option<&str>, ApiError>,
    tenant: &str,
    id: &Name,
) -> Result<Caller, ApiError> {
    let principal = identify(api, headers, peer, token, |peer| bad_token(api, peer))?;
    let named = auth::tenant_named(tenant, &principal)?;
    Ok(caller_of(api, principal, Some(named), id))
}

/// The reason of a denial, in the form that dialects translate.
pub fn denied_by(error: &ApiError, shows_token: bool) -> Denied {
    match error.code {
        Code::Unauthorized if shows_token => Denied::BadToken,
        Code::Unauthorized => Denied::MissingToken,
        Code::TooManyAttempts => {
            Denied::TooManyAttempts { retry_after: error.retry_after.unwrap_or(Span::secs(60)) }
        }
        Code::Misdirected => Denied::Misdirected(error.detail.to_string()),
        Code::OriginDenied => Denied::ForeignOrigin(error.detail.to_string()),
        Code::Internal => Denied::Internal,
        _ => Denied::Forbidden(error.detail.to_string()),
    }
}

/// Whether the caller may see statistics of the whole server. For operations that respond to everyone, but not with
/// everything.
pub fn sees_server_load(api: &Api, request: &Request) -> bool {
    let rule = authority::of("get_stats").expect("the operation has a row in the permission table");
    // A bad token is not counted here: probes are frequent and learn nothing from it.
    recognize(api, request, |_| auth::unauthorized("the token is unknown"))
        .is_ok_and(|principal| principal.bound.is_none() && rule.allows(principal.role, true))
}

/// Authenticates the caller, and counts bad tokens.
fn authenticate(api: &Api, request: &Request) -> Result<Principal, ApiError> {
    recognize(api, request, |peer| bad_token(api, peer))
}

/// Identifies the caller: by token, else by certificate, else as `open` on an open server.
fn recognize(
    api: &Api,
    request: &Request,
    bad_token: impl FnOnce(&Peer) -> ApiError,
) -> Result<Principal, ApiError> {
    let headers = request.headers();
    identify(api, headers, peer_of(request)?, auth::bearer(headers), bad_token)
}

fn peer_of(request: &Request) -> Result<&Peer, ApiError> {
    request.extensions().get::<Peer>().ok_or_else(|| ApiError::internal("a connection has no peer"))
}

/// Identifies the peer of a connection, with the token that it sent.
fn identify(
    api: &Api,
    headers: &HeaderMap,
    peer: &Peer,
    token: Result<Option<&str>, ApiError>,
    bad_token: impl FnOnce(&Peer) -> ApiError,
) -> Result<Principal, ApiError> {
    let (config, tokens) = (api.config.current(), api.scheduler.tokens());
    // Without a token table there is nothing to check against, so an open server ignores tokens.
    if peer.listens_on_loopback && !peer.shows_certificates && tokens.is_empty() {
        auth::check_site(headers, &config.server, false)?;
        if !matches!(token, Ok(None)) {
            api.unchecked_tokens.call_once(log_unchecked_tokens);
        }
        return Ok(api.open.clone());
    }
    if let Some(token) = token? {
        return auth::verify(&tokens, token, api.scheduler.wall()).ok_or_else(|| bad_token(peer));
    }
    if let Some(identity) = &peer.identity {
        // A browser sends its certificate with the requests of every page, so the page must be ours.
        auth::check_site(headers, &config.server, true)?;
        return Ok(identity.principal());
    }
    Err(auth::unauthorized(
        "send a token as Authorization: Bearer lw_…; an admin creates one with `laneway token create`",
    ))
}

fn log_unchecked_tokens() {
    tracing::warn!(
        "a client sent a token, but this server has no tokens: tokens are not checked, and every request from this machine is an \
         admin's; `laneway token create` or `laneway token import` closes the server"
    );
}

fn bad_token(api: &Api, peer: &Peer) -> ApiError {
    match api.bad_tokens.count(peer.address.ip(), Instant::now()) {
        None => auth::unauthorized("the token is unknown, expired or revoked; request a new one"),
        Some(wait) => {
            let mut error = ApiError::new(
                Code::TooManyAttempts,
                "too many bad tokens came from this address; wait, then send a valid one",
            );
            error.retry_after = Some(Span(u64::try_from(wait.as_millis()).unwrap_or(60_000)));
            error
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use axum::Router;
    use axum::body::Body;
    use axum::middleware::from_fn_with_state;
    use axum::routing::get;
    use laneway_core::Role;
    use laneway_runtime::config::{Layers, Overrides, Schema};
    use laneway_runtime::live_config::LiveConfig;
    use laneway_runtime::{Options, Running, Scheduler};
    use laneway_store::MemoryStore;
    use tower::Service;

    use super::*;

    fn api() -> (Api, Running) {
        let schema = Schema::native();
        let config = Layers::builtin(&schema).resolve(&Overrides::none()).unwrap();
        let options = Options::new(config.settings().clone());
        let (scheduler, running) = Scheduler::start(Box::new(MemoryStore::new()), options).unwrap();
        let live = LiveConfig::new(Layers::builtin(&schema), Overrides::none(), config, scheduler.clone());
        (Api::new(scheduler, live, |_, _, _| true).unwrap(), running)
    }

    #[tokio::test]
    async fn a_panic_becomes_a_500_and_the_server_goes_on() {
        let (api, _running) = api();
        let gate = Gate { api, authority: *authority::of("get_index").unwrap() };
        async fn panics() {
            panic!("an internal secret")
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

    /// Counts warnings.
    #[derive(Clone, Default)]
    struct Warnings(Arc<AtomicU32>);

    impl tracing::Subscriber for Warnings {
        fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
            *metadata.level() == tracing::Level::WARN && metadata.is_event()
        }

        fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
            tracing::span::Id::from_u64(1)
        }

        fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

        fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

        fn event(&self, event: &tracing::Event<'_>) {
            struct Message(bool);
            impl tracing::field::Visit for Message {
                fn record_debug(&mut self, _: &tracing::field::Field, value: &dyn std::fmt::Debug) {
                    self.0 |= format!("{value:?}").contains("tokens are not checked");
                }
            }
            let mut message = Message(false);
            event.record(&mut message);
            self.0.fetch_add(u32::from(message.0), Ordering::Relaxed);
        }

        fn enter(&self, _: &tracing::span::Id) {}

        fn exit(&self, _: &tracing::span::Id) {}
    }

    #[tokio::test]
    async fn defect_14_unchecked_tokens_are_logged_once() {
        let (api, _running) = api();
        let mut peer = Peer::from(SocketAddr::from(([127, 0, 0, 1], 9)));
        peer.listens_on_loopback = true;
        let mut headers = HeaderMap::new();
        headers.insert("host", "localhost".parse().unwrap());
        let warnings = Warnings::default();
        tracing::subscriber::with_default(warnings.clone(), || {
            for (token, logged) in [(None, 0), (Some("dev-token"), 1), (Some("another"), 1), (None, 1)] {
                let called = identify(&api, &headers, &peer, Ok(token), |_| panic!("no token is checked"));
                assert_eq!(called.unwrap().role, Role::Admin);
                assert_eq!(warnings.0.load(Ordering::Relaxed), logged, "{token:?}");
            }
        });
    }
}
