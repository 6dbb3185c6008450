//! Where requests go: to the routers of this process, to the owner, or nowhere for now.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, Method, StatusCode};
use axum::response::Response;
use laneway_api::{ApiError, Code, Peer};
use laneway_core::{Name, Span};
use tokio::sync::watch;
use tokio::time::Instant;
use tower::{Service, service_fn};

use crate::envelope::{Origin, Secret, strip};
use crate::forward::{self, Forwarded};
use crate::link::{Link, OwnerAddress};
use crate::replay::Replay;
use crate::sse::{self, Source};
use crate::waits::Waits;

/// How long a request waits for an owner.
pub const WAIT_MAX: Duration = Duration::from_secs(10);
/// The pause between two attempts to connect to an owner.
const RECONNECT_PAUSE: Duration = Duration::from_millis(100);

/// The listener of the API.
const MAIN: &str = "main";

/// The routers of the process, by listener: `main`, and the name of each dialect with its own port.
pub type Apps = BTreeMap<String, Router>;

/// Where requests go.
#[derive(Clone, Default)]
pub enum Place {
    /// No node owns the domain, as far as this node knows, or the owner cannot be reached. Requests wait.
    #[default]
    Nowhere,
    /// This node becomes the owner. Requests wait, those of other nodes included.
    Starting,
    /// This node owns the domain.
    Here(Here),
    /// Another node owns it.
    There(Arc<Link>),
}

/// The routers of this process, as long as they may be used.
#[derive(Clone)]
pub struct Here {
    apps: Arc<Apps>,
    /// True while this node owns the domain.
    owns: Arc<dyn Fn() -> bool + Send + Sync>,
    /// True: the node hands over. Requests that change something wait for the next owner.
    leaving: bool,
}

impl Place {
    /// This node owns the domain as long as `owns` returns true.
    pub fn here(apps: Apps, owns: impl Fn() -> bool + Send + Sync + 'static) -> Place {
        Place::Here(Here { apps: Arc::new(apps), owns: Arc::new(owns), leaving: false })
    }
}

/// Sends requests to where they are served. Clones share it.
#[derive(Clone)]
pub struct Switch {
    inner: Arc<Inner>,
}

struct Inner {
    place: watch::Sender<Place>,
    waits: Waits,
    secret: Secret,
    /// Called when the connection to the owner was lost.
    lost: Box<dyn Fn() + Send + Sync>,
    requests: AtomicU64,
}

impl Switch {
    /// A switch that leads nowhere yet. `lost` is called when the connection to an owner has ended.
    pub fn new(secret: &[u8; 32], lost: impl Fn() + Send + Sync + 'static) -> Switch {
        let inner = Inner {
            place: watch::Sender::new(Place::Nowhere),
            waits: Waits::default(),
            secret: Secret::new(secret),
            lost: Box::new(lost),
            requests: AtomicU64::new(0),
        };
        Switch { inner: Arc::new(inner) }
    }

    /// Leads requests there from now on.
    pub fn set(&self, place: Place) {
        self.inner.place.send_replace(place);
    }

    /// This node hands over: from now on it only reads.
    pub fn leave(&self) {
        self.inner.place.send_modify(|place| {
            if let Place::Here(here) = place {
                here.leaving = true;
            }
        });
    }

    /// Connects to the owner, and again whenever the connection is lost, until this is dropped.
    pub async fn follow(&self, owner: &OwnerAddress) {
        loop {
            let connected = match Link::connect(owner).await {
                Ok(link) => forward::greet(self, &link).await.map(|()| link),
                Err(error) => Err(error),
            };
            match connected {
                Ok(link) => {
                    tracing::info!(owner = owner.address, epoch = owner.epoch, "connected to the owner");
                    let link = Arc::new(link);
                    // Also when this is dropped: what an earlier owner still does is of no use to anyone.
                    let _end = EndOnDrop(Arc::clone(&link));
                    self.set(Place::There(Arc::clone(&link)));
                    link.ended().await;
                    self.set(Place::Nowhere);
                    tracing::info!(owner = owner.address, "the connection to the owner has ended");
                }
                Err(error) => tracing::debug!(owner = owner.address, %error, "the owner cannot be reached"),
            }
            (self.inner.lost)();
            tokio::time::sleep(RECONNECT_PAUSE).await;
        }
    }

    /// The requests of a listener.
    pub fn app(&self, name: &str) -> Router {
        let (switch, name) = (self.clone(), Arc::<str>::from(name));
        Router::new().fallback_service(service_fn(move |request: Request| {
            let (switch, name) = (switch.clone(), Arc::clone(&name));
            async move { Ok::<_, Infallible>(switch.answer(&name, request).await) }
        }))
    }

    pub(crate) fn secret(&self) -> &Secret {
        &self.inner.secret
    }

    /// Responds to a request of a client of this node.
    async fn answer(&self, app: &str, mut request: Request) -> Response {
        strip(request.headers_mut());
        if let Some(response) = self.probe(app, &request) {
            return response;
        }
        if let Place::Here(here) = self.place()
            && here.serves(request.method())
        {
            return self.call_here(&here, app, request).await;
        }
        let Some(peer) = request.extensions().get::<Peer>().cloned() else {
            return self.reject(&ApiError::internal("a connection has no peer"));
        };
        let origin = Origin::of(app, &peer);
        let mut request = match Replay::new(request).await {
            Ok(request) => request,
            Err(_) => return self.reject(&ApiError::new(Code::MalformedJson, "the body did not arrive")),
        };
        let until = Instant::now() + WAIT_MAX;
        loop {
            let place = match self.settled(&peer, &request.parts().method, until).await {
                Ok(place) => place,
                Err(error) => return self.reject(&error),
            };
            let link = match place {
                Place::There(link) => link,
                Place::Here(here) => {
                    return match request.into_request() {
                        Some(request) => self.call_here(&here, app, request).await,
                        None => self.reject(&lost_body()),
                    };
                }
                Place::Nowhere | Place::Starting => continue,
            };
            match forward::forward(self, &link, &mut request, &origin).await {
                Forwarded::Answered(response) => return response,
                // It was not processed, or may be processed twice.
                Forwarded::Again if Instant::now() < until => self.changed(&link).await,
                Forwarded::Again => return self.reject(&no_owner()),
                Forwarded::Lost => return self.reject(&ApiError::unavailable()),
                Forwarded::Unsendable => return self.reject(&lost_body()),
            }
        }
    }

    /// Responds to a request that another node forwarded. `None`: this node does not own the domain.
    pub(crate) async fn answer_peer(&self, origin: &Origin, request: Request) -> Option<Response> {
        let mut place = self.inner.place.subscribe();
        let ready = place.wait_for(|place| !matches!(place, Place::Starting));
        let place = tokio::time::timeout(WAIT_MAX, ready).await.ok()?.ok()?.clone();
        match place {
            Place::Here(here) if here.serves(request.method()) => Some(here.call(&origin.app, request).await),
            _ => None,
        }
    }

    /// Waits until requests can go somewhere, at most until then.
    async fn settled(&self, peer: &Peer, method: &Method, until: Instant) -> Result<Place, ApiError> {
        let usable = |place: &Place| match place {
            Place::Here(here) => here.serves(method),
            Place::There(_) => true,
            Place::Nowhere | Place::Starting => false,
        };
        let now = self.place();
        if usable(&now) {
            return Ok(now);
        }
        let Some(_wait) = self.inner.waits.enter(peer.address.ip()) else { return Err(no_owner()) };
        let mut place = self.inner.place.subscribe();
        match tokio::time::timeout_at(until, place.wait_for(usable)).await {
            Ok(Ok(place)) => Ok(place.clone()),
            _ => Err(no_owner()),
        }
    }

    /// Waits until requests no longer go over this connection, or for a moment.
    async fn changed(&self, link: &Arc<Link>) {
        let mut place = self.inner.place.subscribe();
        let other = place.wait_for(|place| !matches!(place, Place::There(now) if Arc::ptr_eq(now, link)));
        let _ = tokio::time::timeout(RECONNECT_PAUSE, other).await;
    }

    /// Waits for the next connection to an owner, or for the routers of this process.
    pub(crate) async fn next_place(&self, until: Instant) -> Option<Place> {
        let mut place = self.inner.place.subscribe();
        let usable = place.wait_for(|place| match place {
            Place::Here(here) => !here.leaving && (here.owns)(),
            Place::There(_) => true,
            Place::Nowhere | Place::Starting => false,
        });
        Some(tokio::time::timeout_at(until, usable).await.ok()?.ok()?.clone())
    }

    /// Probes of a node that does not own the domain, which must not wait: it is alive, and ready when it can forward.
    fn probe(&self, app: &str, request: &Request) -> Option<Response> {
        let place = self.place();
        if app != MAIN || request.method() != Method::GET || matches!(place, Place::Here(_)) {
            return None;
        }
        let ready = matches!(place, Place::There(_));
        let (status, kind, body) = match request.uri().path() {
            "/livez" => (StatusCode::OK, "text/plain; charset=utf-8", "ok\n"),
            "/readyz" if !ready => {
                (StatusCode::SERVICE_UNAVAILABLE, "application/json", "{\"status\":\"no_owner\"}")
            }
            _ => return None,
        };
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = status;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        Some(response)
    }

    /// Calls a router of this process. An event stream goes on at the next owner.
    async fn call_here(&self, here: &Here, app: &str, request: Request) -> Response {
        let streams = request.method() == Method::GET && sse::wants_events(request.headers());
        let again = streams.then(|| (request.extensions().get::<Peer>().cloned(), head_of(&request)));
        let response = here.call(app, request).await;
        match again {
            Some((Some(peer), head)) if sse::is_event_stream(response.headers()) => {
                sse::resume(self.clone(), Source::Here, head, Origin::of(app, &peer), response)
            }
            _ => response,
        }
    }

    /// Waits until the routers of this process are no longer used.
    pub(crate) async fn left(&self) {
        let mut place = self.inner.place.subscribe();
        let _ = place.wait_for(|place| !matches!(place, Place::Here(here) if !here.leaving)).await;
    }

    fn place(&self) -> Place {
        self.inner.place.borrow().clone()
    }

    fn reject(&self, error: &ApiError) -> Response {
        let number = self.inner.requests.fetch_add(1, Ordering::Relaxed);
        let id = Name::new(&format!("gateway-{number:08x}")).expect("hex digits and a hyphen are a name");
        error.to_response(&id)
    }
}

/// Ends a connection.
struct EndOnDrop(Arc<Link>);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl Here {
    /// True when this node may serve requests with this method.
    fn serves(&self, method: &Method) -> bool {
        (self.owns)() && (!self.leaving || matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS))
    }

    /// Calls the router of a listener.
    pub async fn call(&self, app: &str, request: Request) -> Response {
        let Some(mut router) = self.apps.get(app).cloned() else {
            let detail = format!("the owner does not serve {app}; use the same configuration on every node");
            let id = Name::fixed("gateway");
            return ApiError::new(Code::NotFound, detail).to_response(&id);
        };
        match router.call(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        }
    }
}

/// A request without its body and its connection.
fn head_of(request: &Request) -> Request<()> {
    let mut head = Request::new(());
    *head.method_mut() = request.method().clone();
    *head.uri_mut() = request.uri().clone();
    *head.headers_mut() = request.headers().clone();
    head
}

fn no_owner() -> ApiError {
    let detail = "no server owns the jobs at this moment: one is taking over, or the database cannot be reached; nothing was done; \
                  send the request again";
    let mut error = ApiError::new(Code::Unavailable, detail);
    error.retry_after = Some(Span::secs(2));
    error
}

fn lost_body() -> ApiError {
    let detail =
        "the server that owns the jobs changed while the request was sent; nothing was done; send it again";
    let mut error = ApiError::new(Code::Unavailable, detail);
    error.retry_after = Some(Span::secs(1));
    error
}
