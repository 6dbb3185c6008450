//! The path `/mcp` of the server: MCP over streamable HTTP, behind the gate of the API.
//!
//! A tool call becomes a request to the native router in this process, with the connection and the token of the caller. So the
//! API authenticates it again and applies its own permissions, limits and audit entries.

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderName, ORIGIN};
use axum::http::request::Parts;
use axum::http::{HeaderValue, Method, Uri};
use axum::response::Response;
use laneway_api::{Api, ApiError, Code, Peer};
use laneway_core::Name;
use laneway_mcp::{Answering, ApiClient, ApiRequest, ApiResponse, HttpEndpoint, Trace, Unanswered};
use laneway_runtime::caller::{Denied, Right};
use laneway_runtime::dialect::{self, Dialect, Route};
use tokio_util::sync::CancellationToken;
use tower::Service;

/// The largest answer of the API that becomes the result of a tool, in bytes.
pub const ANSWER_MAX: usize = 16 * 1024 * 1024;

/// The headers of a call that say who calls, and from where.
const FORWARDED: [HeaderName; 5] = [
    AUTHORIZATION,
    HOST,
    ORIGIN,
    HeaderName::from_static("sec-fetch-site"),
    HeaderName::from_static("laneway-tenant"),
];

/// The headers of a trace context.
const TRACE: [HeaderName; 2] =
    [HeaderName::from_static("traceparent"), HeaderName::from_static("tracestate")];

/// The route `/mcp`. Its streams end with `stop`.
pub fn endpoint(api: &Api, stop: CancellationToken) -> Dialect {
    let native = Arc::new(InProcess { router: laneway_api::router(api.clone()) });
    let state = Endpoint { api: api.clone(), http: HttpEndpoint::new(native, stop) };
    let route = Route::new(&state, &Method::POST, "/mcp", "call_mcp", Right::Look, call_mcp);
    Dialect { name: "mcp", prefix: String::new(), routes: vec![route], denied, native: &[] }
}

#[derive(Clone)]
struct Endpoint {
    api: Api,
    http: HttpEndpoint,
}

fn call_mcp(State(endpoint): State<Endpoint>, request: Request) -> dialect::Answering {
    Box::pin(async move {
        let body_max = endpoint.api.config().current().server.body_max;
        endpoint.http.answer(request, body_max).await
    })
}

/// Calls the native router in this process.
struct InProcess {
    router: Router,
}

impl ApiClient for InProcess {
    fn call<'a>(&'a self, request: ApiRequest, http: Option<&'a Parts>) -> Answering<'a> {
        Box::pin(async move {
            let request = native_request(request, http).ok_or_else(|| {
                unanswered("internal", "the call has no connection; report this as a defect")
            })?;
            let mut router = self.router.clone();
            let response = match router.call(request).await {
                Ok(response) => response,
                Err(never) => match never {},
            };
            let status = response.status().as_u16();
            let body = to_bytes(response.into_body(), ANSWER_MAX).await.map_err(|_| too_large())?;
            Ok(ApiResponse { status, body: body.into() })
        })
    }
}

/// The request to the native router, with the connection and the credentials of the call.
fn native_request(request: ApiRequest, http: Option<&Parts>) -> Option<Request> {
    let ApiRequest { method, path, body, trace } = request;
    let http = http?;
    let has_body = body.is_some();
    let mut native = Request::new(body.map_or_else(Body::empty, Body::from));
    *native.method_mut() = method_of(method);
    *native.uri_mut() = path.parse::<Uri>().ok()?;
    for name in FORWARDED {
        for value in http.headers.get_all(&name) {
            native.headers_mut().append(&name, value.clone());
        }
    }
    // The trace of the call itself is nearer than that of its transport.
    for (name, value) in trace_headers(trace).unwrap_or_else(|| {
        let of_transport = |name: &HeaderName| Some((name.clone(), http.headers.get(name)?.clone()));
        TRACE.iter().filter_map(of_transport).collect()
    }) {
        native.headers_mut().insert(name, value);
    }
    if has_body {
        native.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    native.extensions_mut().insert(http.extensions.get::<Peer>()?.clone());
    Some(native)
}

/// The headers of a trace context. `None`: the call has none, or it cannot be sent.
pub fn trace_headers(trace: Option<Trace>) -> Option<Vec<(HeaderName, HeaderValue)>> {
    let Trace { parent, state } = trace?;
    let [parent_name, state_name] = TRACE;
    let parent = HeaderValue::try_from(parent).ok()?;
    let state = state.and_then(|state| HeaderValue::try_from(state).ok());
    Some(
        [(parent_name, Some(parent)), (state_name, state)]
            .into_iter()
            .filter_map(|(name, value)| Some((name, value?)))
            .collect(),
    )
}

/// The method of a request.
pub fn method_of(method: laneway_mcp::Method) -> Method {
    match method {
        laneway_mcp::Method::Get => Method::GET,
        laneway_mcp::Method::Post => Method::POST,
    }
}

/// The error for an answer that is too large for a tool.
pub fn too_large() -> Unanswered {
    let message =
        format!("the answer has more than {} MiB; ask for less with limit", ANSWER_MAX / 1024 / 1024);
    unanswered("answer_too_large", message)
}

fn unanswered(code: &'static str, message: impl Into<String>) -> Unanswered {
    Unanswered { code, message: message.into() }
}

/// The errors of the native API for calls that do not reach the endpoint.
fn denied(why: &Denied, request: &Name) -> Response {
    let error = match why {
        Denied::MissingToken => ApiError::new(
            Code::Unauthorized,
            "send a token as Authorization: Bearer lw_…; an admin creates one with `laneway token create`",
        ),
        Denied::BadToken => ApiError::new(Code::Unauthorized, "the token is unknown; request a new one"),
        Denied::EndedToken => {
            ApiError::new(Code::Unauthorized, "the token has expired or was revoked; request a new one")
        }
        Denied::TooManyAttempts { retry_after } => {
            let detail = "too many bad tokens or too many bytes came from this address; wait, then try again";
            let mut error = ApiError::new(Code::TooManyAttempts, detail);
            error.retry_after = Some(*retry_after);
            error
        }
        Denied::TooManyRequests { window, .. } => {
            let mut error = ApiError::new(
                Code::TooMany,
                "too many requests came from this address; wait, then try again",
            );
            error.retry_after = Some(*window);
            error
        }
        Denied::Forbidden(detail) => ApiError::new(Code::Forbidden, detail.clone()),
        Denied::Misdirected(detail) => ApiError::new(Code::Misdirected, detail.clone()),
        Denied::ForeignOrigin(detail) => ApiError::new(Code::OriginDenied, detail.clone()),
        Denied::UnknownMethod => {
            ApiError::new(Code::MethodNotAllowed, "send a POST; this server keeps no sessions of MCP")
        }
        Denied::UnknownPath => ApiError::new(Code::NotFound, "the path does not exist"),
        Denied::Internal => ApiError::internal("a call of MCP failed"),
    };
    error.to_response(request)
}
