//! Forwards one request to the owner.

use std::sync::Arc;

use axum::body::Body;
use axum::http::{HeaderMap, Method, Request, StatusCode, Uri, Version};
use axum::response::Response;
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;

use crate::envelope::{NOT_OWNER, Origin, seal, strip};
use crate::headers::{opens_websocket, strip_hop_by_hop, upgrade_to_websocket};
use crate::link::Link;
use crate::replay::Replay;
use crate::sse::{self, Source};
use crate::switch::Switch;
use crate::tunnel;

/// The host of requests between nodes. The host that the client named is in the header `host`.
const HOST: &str = "laneway.internal";

/// The code of HTTP/2 for a stream that was not processed at all.
const NOT_PROCESSED: u32 = 7;

/// What came of it.
pub enum Forwarded {
    /// The owner responded.
    Answered(Response),
    /// The request can be sent again: it was not processed, or it does no harm to process it twice.
    Again,
    /// The connection was lost; whether the request was processed is not known.
    Lost,
    /// The request was not processed, and its body is gone.
    Unsendable,
}

/// Forwards a request over this connection.
pub async fn forward(switch: &Switch, link: &Arc<Link>, request: &mut Replay, origin: &Origin) -> Forwarded {
    if opens_websocket(&request.parts().headers) {
        return open_tunnel(switch, link, request, origin).await;
    }
    let Some(body) = request.body() else { return Forwarded::Unsendable };
    let parts = request.parts();
    let outgoing = outgoing(switch, &parts.method, &parts.uri, &parts.headers, origin, body);
    let Some(sent) = link.send(outgoing).await else {
        return if request.is_repeatable() { Forwarded::Again } else { Forwarded::Lost };
    };
    match sent {
        Ok(response) if response.headers().contains_key(NOT_OWNER) => Forwarded::Again,
        Ok(response) => {
            let response = incoming(response);
            let streams = request.parts().method == Method::GET && sse::is_event_stream(response.headers());
            Forwarded::Answered(match streams {
                true => {
                    let head = Request::from_parts(request.parts().clone(), ());
                    sse::resume(
                        switch.clone(),
                        Source::There(Arc::clone(link)),
                        head,
                        origin.clone(),
                        response,
                    )
                }
                false => response,
            })
        }
        Err(mut error) => match error.take_message() {
            Some(unsent) => {
                request.put_back(unsent.into_body());
                Forwarded::Again
            }
            None if request.is_repeatable() || was_rejected(error.error()) => Forwarded::Again,
            None => Forwarded::Lost,
        },
    }
}

/// Shows the secret of the cluster. An error: the other end is no node of it.
pub async fn greet(switch: &Switch, link: &Link) -> Result<(), String> {
    let (uri, headers) = (Uri::from_static("/"), HeaderMap::new());
    let greeting = outgoing(switch, &Method::GET, &uri, &headers, &Origin::greeting(), Body::empty());
    match link.send(greeting).await {
        Some(Ok(response)) if response.status() == StatusCode::NO_CONTENT => Ok(()),
        Some(Ok(response)) => Err(format!("it is no node of this cluster: {}", response.status())),
        Some(Err(error)) => Err(error.into_error().to_string()),
        None => Err("the connection has ended".to_owned()),
    }
}

/// True when the owner certainly did not process the request: it said so before it ended the connection.
fn was_rejected(error: &hyper::Error) -> bool {
    let cause = std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<h2::Error>());
    cause.is_some_and(|error| {
        let reason = error.reason();
        reason == Some(NOT_PROCESSED.into())
            || (error.is_go_away() && error.is_remote() && reason == Some(h2::Reason::NO_ERROR))
    })
}

/// The request to the owner.
pub fn outgoing(
    switch: &Switch,
    method: &Method,
    uri: &Uri,
    headers: &HeaderMap,
    origin: &Origin,
    body: Body,
) -> Request<Body> {
    let mut request = Request::new(body);
    *request.method_mut() = method.clone();
    *request.version_mut() = Version::HTTP_2;
    *request.uri_mut() = target(uri);
    *request.headers_mut() = headers.clone();
    strip_hop_by_hop(request.headers_mut());
    seal(request.headers_mut(), switch.secret(), origin);
    request
}

/// The path and query of a request, at the host between nodes.
fn target(uri: &Uri) -> Uri {
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    Uri::builder()
        .scheme("http")
        .authority(HOST)
        .path_and_query(path)
        .build()
        .expect("the path of a request is a valid path")
}

/// The response for the client.
pub fn incoming(response: axum::http::Response<Incoming>) -> Response {
    let mut response = response.map(Body::new);
    *response.version_mut() = Version::HTTP_11;
    strip_hop_by_hop(response.headers_mut());
    strip(response.headers_mut());
    response
}

/// Opens a WebSocket at the owner, and then joins both ends. The bytes pass as they are.
async fn open_tunnel(switch: &Switch, link: &Arc<Link>, request: &mut Replay, origin: &Origin) -> Forwarded {
    let parts = request.parts();
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    let origin = Origin { target: Some(path.to_owned()), ..origin.clone() };
    let mut outgoing = outgoing(switch, &Method::CONNECT, &parts.uri, &parts.headers, &origin, Body::empty());
    *outgoing.uri_mut() = Uri::from_static("laneway.internal:1");
    // Nothing was processed that a client knows of: the socket was not open yet.
    let Some(sent) = link.send(outgoing).await else { return Forwarded::Again };
    match sent {
        Ok(response) if response.headers().contains_key(NOT_OWNER) => Forwarded::Again,
        Ok(response) if response.status() != StatusCode::OK => Forwarded::Answered(incoming(response)),
        Ok(mut response) => {
            let near = request.parts().extensions.get::<OnUpgrade>().cloned();
            let far = hyper::upgrade::on(&mut response);
            let mut response = incoming(response);
            if let Some(near) = near {
                tokio::spawn(tunnel::join(near, far, Arc::clone(link)));
                *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
                upgrade_to_websocket(response.headers_mut());
                *response.body_mut() = Body::empty();
            }
            Forwarded::Answered(response)
        }
        Err(_) => Forwarded::Again,
    }
}
