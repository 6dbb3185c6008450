//! Calls of the native API inside of this process, with the credentials of the reader of a page.
//!
//! A call carries what the browser's request carried: the peer of the connection, which the gate of the API checks, the host
//! and the origin. The token of the session is added. The router of the API answers as it answers a client.

use std::fmt;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, HOST, ORIGIN};
use axum::http::{Extensions, HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode};
use axum::response::Response;
use laneway_wire::Problem;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::de::DeserializeOwned;
use tower::ServiceExt;

/// The largest answer that becomes a page, in bytes. Lists have at most 500 entries.
const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;

/// The headers of the browser that the gate of the API looks at.
const COPIED: [HeaderName; 5] = [
    HOST,
    ORIGIN,
    HeaderName::from_static("sec-fetch-site"),
    HeaderName::from_static("sec-fetch-mode"),
    HeaderName::from_static("sec-fetch-dest"),
];

/// What stays as it is in a segment of a path.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Calls the API for one reader.
#[derive(Clone)]
pub struct Caller {
    router: Router,
    extensions: Extensions,
    headers: HeaderMap,
}

impl Caller {
    /// Calls for the sender of a request, with the token of the session.
    pub fn new(router: &Router, extensions: &Extensions, from: &HeaderMap, token: Option<&str>) -> Caller {
        let mut headers = HeaderMap::new();
        for name in COPIED {
            if let Some(value) = from.get(&name) {
                headers.insert(name, value.clone());
            }
        }
        if let Some(value) = token.and_then(|token| HeaderValue::from_str(&format!("Bearer {token}")).ok()) {
            headers.insert(AUTHORIZATION, value);
        }
        Caller { router: router.clone(), extensions: extensions.clone(), headers }
    }

    /// The same calls for one tenant only. A reader that is bound to another tenant is denied by the API.
    pub fn only_of(mut self, tenant: &str) -> Result<Caller, Failure> {
        let value = HeaderValue::from_str(tenant)
            .map_err(|_| Failure::new(StatusCode::BAD_REQUEST, "a tenant is a plain name"))?;
        self.headers.insert(HeaderName::from_static("laneway-tenant"), value);
        Ok(self)
    }

    /// Reads a resource.
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        parse(&self.bytes(Method::GET, path, None).await?)
    }

    /// Reads a resource that the reader may not be allowed to see, or that may not exist.
    pub async fn get_if_allowed<T: DeserializeOwned>(&self, path: &str) -> Result<Option<T>, Failure> {
        match self.get(path).await {
            Ok(value) => Ok(Some(value)),
            Err(failure) if matches!(failure.status.as_u16(), 403 | 404) => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// Changes something, with a JSON body.
    pub async fn send<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: &impl serde::Serialize,
    ) -> Result<T, Failure> {
        let body = serde_json::to_vec(body).map_err(|error| Failure::internal(&error))?;
        parse(&self.bytes(method, path, Some(body.into())).await?)
    }

    /// Changes something, with a JSON body. The answer is not read: it may have no content.
    pub async fn send_only(
        &self,
        method: Method,
        path: &str,
        body: &impl serde::Serialize,
    ) -> Result<(), Failure> {
        let body = serde_json::to_vec(body).map_err(|error| Failure::internal(&error))?;
        self.bytes(method, path, Some(body.into())).await.map(drop)
    }

    /// Changes something, without a body.
    pub async fn post(&self, path: &str) -> Result<Bytes, Failure> {
        self.bytes(Method::POST, path, None).await
    }

    /// The answer as bytes.
    pub async fn bytes(&self, method: Method, path: &str, body: Option<Bytes>) -> Result<Bytes, Failure> {
        let response = self.respond(method, path, body, None).await?;
        let status = response.status();
        let bytes = axum::body::to_bytes(response.into_body(), ANSWER_BYTES_MAX)
            .await
            .map_err(|error| Failure::internal(&error))?;
        if status.is_success() { Ok(bytes) } else { Err(Failure::of(status, &bytes)) }
    }

    /// The answer as it is, for streams and downloads.
    pub async fn respond(
        &self,
        method: Method,
        path: &str,
        body: Option<Bytes>,
        header: Option<(HeaderName, HeaderValue)>,
    ) -> Result<Response, Failure> {
        let mut request = Request::new(body.clone().map_or_else(Body::empty, Body::from));
        *request.method_mut() = method;
        *request.uri_mut() = path.parse().map_err(|error| Failure::internal(&error))?;
        *request.extensions_mut() = self.extensions.clone();
        *request.headers_mut() = self.headers.clone();
        if body.is_some() {
            request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        if let Some((name, value)) = header {
            request.headers_mut().insert(name, value);
        }
        match self.router.clone().oneshot(request).await {
            Ok(response) => Ok(response),
            Err(never) => match never {},
        }
    }
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Failure> {
    serde_json::from_slice(bytes).map_err(|error| Failure::internal(&error))
}

/// One segment of a path.
pub fn segment(text: &str) -> impl fmt::Display + '_ {
    utf8_percent_encode(text, SEGMENT)
}

/// A query of these pairs, with a `?` if there are any. Pairs without a value are left out.
pub fn query<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    for (name, value) in pairs.into_iter().filter(|(_, value)| !value.is_empty()) {
        query.append_pair(name, value);
    }
    let query = query.finish();
    if query.is_empty() { query } else { format!("?{query}") }
}

/// Why the API did not answer as hoped.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The status of the answer.
    pub status: StatusCode,
    /// What went wrong, for people.
    pub detail: String,
    /// The stable code.
    pub code: String,
    /// The field that is wrong.
    pub field: Option<String>,
}

impl Failure {
    fn of(status: StatusCode, body: &[u8]) -> Failure {
        match serde_json::from_slice::<Problem>(body) {
            Ok(problem) => Failure {
                status,
                detail: problem.detail,
                code: problem.code.into_owned(),
                field: problem.field,
            },
            Err(_) => Failure::new(status, "the server gave no reason"),
        }
    }

    /// A failure of the dashboard itself.
    pub fn new(status: StatusCode, detail: &str) -> Failure {
        Failure { status, detail: detail.to_owned(), code: String::new(), field: None }
    }

    fn internal(error: &dyn fmt::Display) -> Failure {
        tracing::error!(%error, "the dashboard cannot use an answer of the API");
        Failure::new(StatusCode::INTERNAL_SERVER_ERROR, "the dashboard cannot read the answer of the server")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_and_queries_cannot_leave_their_place() {
        assert_eq!(segment("a/b?c#d é").to_string(), "a%2Fb%3Fc%23d%20%C3%A9");
        assert_eq!(segment("agent:main-1_x.y~").to_string(), "agent%3Amain-1_x.y~");
        assert_eq!(query([("a", "1&2"), ("b", ""), ("c", "ü")]), "?a=1%262&c=%C3%BC");
        assert_eq!(query([("a", "")]), "");
    }
}
