//! The two transports: standard input and output, and streamable HTTP without sessions.
//!
//! Over HTTP every request stands alone: it carries its token, and nothing is kept between two requests. So there is no
//! session that could be stolen, and none that fills the memory. The gate of the server has checked the caller, the host and
//! the origin before a request arrives here.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use rmcp::ServiceExt;
use rmcp::service::ServerInitializeError;
use rmcp::transport::StreamableHttpServerConfig;
use rmcp::transport::streamable_http_server::StreamableHttpService;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use tokio_util::sync::CancellationToken;

use crate::api::ApiClient;
use crate::handler::Handler;

/// How often a stream that waits shows that it is alive.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// The bytes of a message around the body of its API request.
const ENVELOPE_MAX: usize = 64 * 1024;

/// Serves one client over standard input and output, until it closes the input.
pub async fn serve_stdio(api: Arc<dyn ApiClient>) -> io::Result<()> {
    let service = match Handler::new(api).serve(rmcp::transport::stdio()).await {
        Ok(service) => service,
        // The client left without a word.
        Err(ServerInitializeError::ConnectionClosed(_)) => return Ok(()),
        Err(error) => return Err(io::Error::other(error)),
    };
    service.waiting().await.map(drop).map_err(io::Error::other)
}

/// The endpoint for streamable HTTP. Clones share it.
#[derive(Clone)]
pub struct HttpEndpoint {
    handler: Handler,
    sessions: Arc<NeverSessionManager>,
    stop: CancellationToken,
}

impl HttpEndpoint {
    /// An endpoint whose streams end with `stop`.
    pub fn new(api: Arc<dyn ApiClient>, stop: CancellationToken) -> HttpEndpoint {
        HttpEndpoint { handler: Handler::new(api), sessions: Arc::default(), stop }
    }

    /// Answers a request. `body_max` is the largest body of the API.
    pub async fn answer(&self, request: Request, body_max: usize) -> Response {
        let config = StreamableHttpServerConfig::default()
            .with_legacy_session_mode(false)
            .with_json_response(true)
            .with_sse_keep_alive(Some(KEEP_ALIVE))
            .with_max_request_body_bytes(body_max.saturating_add(ENVELOPE_MAX))
            // The gate checks hosts and origins by the rules of the whole server.
            .disable_allowed_hosts()
            .with_cancellation_token(self.stop.clone());
        let handler = self.handler.clone();
        let service =
            StreamableHttpService::new(move || Ok(handler.clone()), Arc::clone(&self.sessions), config);
        service.handle(request).await.map(Body::new)
    }
}

#[cfg(test)]
mod tests;
