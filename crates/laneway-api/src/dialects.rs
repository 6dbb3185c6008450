//! The gate in front of the routes of dialects, which come from other crates.
//!
//! A dialect has its own paths, bodies and errors. This file authenticates and authorizes its callers in the same way as
//! those of the native routes. It sees handlers and rights, and knows nothing of what a dialect translates.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::header::{ALLOW, AUTHORIZATION, HeaderName};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use futures_util::FutureExt;
use laneway_core::{EventKind, Name};
use laneway_runtime::Caller;
use laneway_runtime::caller::{Denied, Right};
use laneway_runtime::dialect::{Dialect, Route};
use thiserror::Error;

use crate::api::Api;
use crate::audit;
use crate::auth;
use crate::authority::Authority;
use crate::cors;
use crate::error::{ApiError, Code};
use crate::gate;
use crate::hidden;
use crate::paced_body;
use crate::rate::{Party, RateLimit};
use crate::router::{only, router, routes};
use crate::serve::Peer;

/// The header that carries the id of a request, as dialects name it.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Longest request id of a client. A longer one is replaced.
const REQUEST_ID_LEN_MAX: usize = 64;

/// Two routes of one port would answer the same path.
#[derive(Debug, Error, PartialEq, Eq)]
#[error(
    "the dialect {dialect} would answer {path}, which {other} answers already; give it a prefix (dialects.{dialect}.prefix) \
     or an address of its own (dialects.{dialect}.listen)"
)]
pub struct Clash {
    dialect: &'static str,
    path: String,
    other: &'static str,
}

/// The native API and these dialects as one service.
pub fn router_with(api: Api, dialects: Vec<Dialect>) -> Result<Router, Clash> {
    let mut taken: Vec<(String, &'static str)> =
        routes().iter().map(|route| (route.path.to_owned(), "the native API")).collect();
    let mut whole = router(api.clone());
    for mut dialect in dialects {
        leave_out_native_paths(&mut dialect);
        let paths: Vec<String> = dialect.routes.iter().map(|route| full_path(&dialect, route)).collect();
        for path in &paths {
            if let Some((_, other)) = taken.iter().find(|(other, _)| overlap(other, path)) {
                return Err(Clash { dialect: dialect.name, path: path.clone(), other });
            }
        }
        taken.extend(paths.into_iter().map(|path| (path, dialect.name)));
        whole = whole.merge(mounted(&api, dialect));
    }
    Ok(whole)
}

/// Leaves out the routes that give way to a native route of the same path.
fn leave_out_native_paths(dialect: &mut Dialect) {
    let (native, prefix) = (routes(), &dialect.prefix);
    let is_native = |route: &Route| {
        let path = format!("{prefix}{}", route.path);
        native.iter().any(|native| native.path == path)
    };
    dialect.routes.retain(|route| !(route.gives_way && is_native(route)));
}

/// One dialect for an address of its own, with the native operations that its clients expect there.
pub fn router_of(api: &Api, dialect: Dialect) -> Router {
    let (front, native) = (Front { api: api.clone(), denied: dialect.denied }, only(api, dialect.native));
    mounted(api, dialect).merge(native).fallback(move |headers: HeaderMap| async move {
        let id = request_id(&front.api, &headers);
        let mut response = (front.denied)(&Denied::UnknownPath, &id);
        stamp(&mut response, &id);
        response
    })
}

fn mounted(api: &Api, dialect: Dialect) -> Router {
    let front = Front { api: api.clone(), denied: dialect.denied };
    let rates = Arc::new(RateLimit::default());
    let mut mounted: Router<Front> = Router::new();
    for route in &dialect.routes {
        let gate = DialectGate {
            front: front.clone(),
            dialect: dialect.name,
            rates: Arc::clone(&rates),
            right: route.right,
            authority: Authority::of_dialect(route.operation, route.right),
        };
        let handler = route.handler.clone().with_state(()).route_layer(from_fn_with_state(gate, pass));
        mounted = mounted.route(&full_path(&dialect, route), handler);
    }
    mounted.method_not_allowed_fallback(unknown_method).with_state(front)
}

fn full_path(dialect: &Dialect, route: &Route) -> String {
    format!("{}{}", dialect.prefix, route.path)
}

/// True when a path matches both.
fn overlap(one: &str, other: &str) -> bool {
    let (mut one, mut other) = (one.split('/'), other.split('/'));
    loop {
        match (one.next(), other.next()) {
            (None, None) => return true,
            (Some(one), Some(other)) if one == other || one.starts_with('{') || other.starts_with('{') => {}
            _ => return false,
        }
    }
}

/// The state that all routes of a dialect share.
#[derive(Clone)]
struct Front {
    api: Api,
    denied: fn(&Denied, &Name) -> Response,
}

/// The state of the gate of one route.
#[derive(Clone)]
struct DialectGate {
    front: Front,
    dialect: &'static str,
    rates: Arc<RateLimit>,
    right: Right,
    authority: Authority,
}

/// Admits or denies a request as the native gate does, with the dialect's responses.
async fn pass(State(gate): State<DialectGate>, request: Request, next: Next) -> Response {
    let Front { api, denied } = &gate.front;
    let id = request_id(api, request.headers());
    let origin = cors::allowed_origin(api, request.headers());
    let admitted = match gate.right {
        Right::Converse => None,
        _ => Some(
            gate::admit(api, &gate.authority, &request, &id).and_then(|caller| see_payloads(api, caller)),
        ),
    };
    let token = admitted.as_ref().and_then(|admitted| admitted.as_ref().ok()?.token());
    let mut response = match (gate.over_rate(&request, token), admitted) {
        (Some(over), _) => denied(&over, &id),
        (None, None) => gate.begin(request, next, &id).await,
        (None, Some(Err((who, error)))) => {
            let why = why_not(api, &error, request.headers());
            audit::note_failure(api, gate.authority, who, &error).await;
            denied(&why, &id)
        }
        (None, Some(Ok(caller))) => {
            let mut request = paced_body::paced(request, &api.bodies, &caller);
            request.extensions_mut().insert(caller.clone());
            let (request, spending) = gate::count_body(api, &caller, request);
            let ran = AssertUnwindSafe(next.run(request)).catch_unwind().await;
            let over = spending.and_then(|spending| spending.error()).and_then(|over| over.retry_after);
            let over = over.map(|retry_after| denied(&Denied::TooManyAttempts { retry_after }, &id));
            match ran.map(|response| over.unwrap_or(response)) {
                Ok(response) => {
                    note_rejection(api, gate.authority, caller.into(), response.status()).await;
                    response
                }
                Err(_) => {
                    tracing::error!(operation = gate.authority.operation, "a handler panicked");
                    denied(&Denied::Internal, &id)
                }
            }
        }
    };
    stamp(&mut response, &id);
    cors::allow(&mut response, origin);
    response
}

/// Dialects show payloads in forms of their own, so a caller from whom they are hidden sees nothing there.
fn see_payloads(api: &Api, caller: Caller) -> Result<Caller, (audit::Who, ApiError)> {
    match hidden::hides(api, &caller) {
        false => Ok(caller),
        true => {
            let detail = "payloads are hidden from the role viewer (server.viewer_payloads), so it may not use dialects";
            Err((caller.into(), ApiError::new(Code::Forbidden, detail)))
        }
    }
}

impl DialectGate {
    /// Admits a request whose client authenticates later.
    async fn begin(&self, mut request: Request, next: Next, id: &Name) -> Response {
        let Front { api, denied } = &self.front;
        let judged = gate::arrival_of(api, &request)
            .and_then(|arrival| Ok((arrival, gate::authenticator(api, &request, id)?)));
        match judged {
            Ok((arrival, authenticator)) => {
                request.extensions_mut().insert(arrival);
                request.extensions_mut().insert(authenticator);
                next.run(request).await
            }
            Err(error) => denied(&why_not(api, &error, request.headers()), id),
        }
    }

    /// The denial of a caller that exceeds the rate limit. Requests that renew or end a lease are never counted.
    fn over_rate(&self, request: &Request, token: Option<&Name>) -> Option<Denied> {
        if self.right == Right::Report {
            return None;
        }
        let config = self.front.api.config.current();
        let mount = &config.dialects.get(self.dialect)?.mount;
        let party = match token {
            Some(token) => Party::Token(token.clone()),
            None => Party::Address(request.extensions().get::<Peer>()?.address.ip()),
        };
        let (max, window) = (mount.requests_max, mount.requests_window);
        let over = max > 0 && !self.rates.take(party, max, window, Instant::now());
        over.then_some(Denied::TooManyRequests { max, window })
    }
}

/// The request id of the client if it is valid, otherwise a new one. It appears in the audit list and in logs.
fn request_id(api: &Api, headers: &HeaderMap) -> Name {
    let own = headers.get(REQUEST_ID).and_then(|value| value.to_str().ok());
    let own = own.filter(|text| text.len() <= REQUEST_ID_LEN_MAX);
    let own = own.and_then(|text| Name::new(text).ok()).filter(Name::is_plain);
    own.unwrap_or_else(|| {
        let text = api.next_request().as_str().replace('-', "");
        Name::new(&text).expect("hex digits are a name")
    })
}

fn stamp(response: &mut Response, id: &Name) {
    let value = HeaderValue::from_str(id.as_str()).expect("request ids are printable ASCII");
    response.headers_mut().insert(REQUEST_ID, value);
}

fn why_not(api: &Api, error: &ApiError, headers: &HeaderMap) -> Denied {
    let denied = gate::denied_by(error, headers.contains_key(AUTHORIZATION));
    let ended = |token: &str| auth::has_ended(&api.scheduler.tokens(), token, api.scheduler.wall());
    match (denied, auth::bearer(headers)) {
        (Denied::BadToken, Ok(Some(token))) if ended(token) => Denied::EndedToken,
        (denied, _) => denied,
    }
}

/// A rejected request that would have changed something gets an entry in the audit list, as native ones do.
async fn note_rejection(api: &Api, authority: Authority, who: audit::Who, status: StatusCode) {
    if !authority.mutates || status.is_success() {
        return;
    }
    let code = match status {
        StatusCode::NOT_FOUND => Code::NotFound,
        StatusCode::CONFLICT => Code::Conflict,
        StatusCode::PAYLOAD_TOO_LARGE => Code::BodyTooLarge,
        StatusCode::TOO_MANY_REQUESTS => Code::QueueFull,
        status if status.is_server_error() => Code::Unavailable,
        _ => Code::InvalidField,
    };
    let detail = format!("{}: {status}", authority.operation);
    audit::note(api, authority.operation, who, EventKind::CallRejected, code, detail).await;
}

/// No route has OPTIONS, so preflight requests come here, too.
async fn unknown_method(State(front): State<Front>, method: Method, headers: HeaderMap) -> Response {
    let Front { api, denied } = &front;
    if let Some(response) = gate::answer_preflight(api, &method, &headers) {
        return response;
    }
    let id = request_id(api, &headers);
    let mut response = denied(&Denied::UnknownMethod, &id);
    // The router adds the methods of the path.
    response.headers_mut().remove(ALLOW);
    stamp(&mut response, &id);
    cors::allow(&mut response, cors::allowed_origin(api, &headers));
    response
}

#[cfg(test)]
mod tests {
    use super::overlap;

    #[test]
    fn paths_overlap_where_one_request_could_mean_both() {
        for (one, other, expected) in [
            ("/tasks", "/tasks", true),
            ("/tasks/{id}", "/tasks/batch", true),
            ("/{any}", "/tasks", true),
            ("/v1/jobs", "/tasks", false),
            ("/v1/jobs/{id}", "/v1/jobs", false),
            ("/pt/tasks", "/tasks", false),
            ("/", "/tasks", false),
        ] {
            assert_eq!(overlap(one, other), expected, "{one} {other}");
        }
    }
}
