//! What a node adds to a request that it forwards: the secret of the cluster, and where the request came from.

use std::net::SocketAddr;

use axum::http::{HeaderMap, HeaderName, HeaderValue, Uri};
use laneway_api::{Identity, Peer};
use serde::{Deserialize, Serialize};
use subtle::ConstantTimeEq;

/// The secret of the cluster, in hexadecimal digits.
const SECRET: HeaderName = HeaderName::from_static("laneway-cluster-secret");
/// Where the request came from, as JSON.
const ORIGIN: HeaderName = HeaderName::from_static("laneway-cluster-origin");
/// Set on a response of a node that does not own the domain: the request was not processed.
pub const NOT_OWNER: HeaderName = HeaderName::from_static("laneway-cluster-not-owner");

/// The secret of the cluster. It is never printed.
#[derive(Clone)]
pub struct Secret([u8; 64]);

impl Secret {
    /// The secret of these bytes.
    pub fn new(bytes: &[u8; 32]) -> Secret {
        let mut digits = [0; 64];
        for (pair, byte) in digits.chunks_exact_mut(2).zip(bytes) {
            pair[0] = digit(byte >> 4);
            pair[1] = digit(byte & 15);
        }
        Secret(digits)
    }
}

fn digit(half: u8) -> u8 {
    if half < 10 { b'0' + half } else { b'a' + half - 10 }
}

/// Where a request came from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// The listener: `main`, or the name of a dialect with its own port.
    pub app: String,
    /// The client.
    pub address: SocketAddr,
    /// The identity in its certificate.
    pub identity: Option<String>,
    /// True when clients of the listener must present certificates.
    pub shows_certificates: bool,
    /// True when only the machine of the node can reach the listener.
    pub listens_on_loopback: bool,
    /// The path and query of a request whose own target is needed for something else.
    pub target: Option<String>,
}

impl Origin {
    /// The origin of a request that reached this node.
    pub fn of(app: &str, peer: &Peer) -> Origin {
        Origin {
            app: app.to_owned(),
            address: peer.address,
            identity: peer.identity.as_ref().map(Identity::uri),
            shows_certificates: peer.shows_certificates,
            listens_on_loopback: peer.listens_on_loopback,
            target: None,
        }
    }

    /// What a node says when it has connected.
    pub fn greeting() -> Origin {
        Origin::of("", &Peer::from(SocketAddr::from(([0, 0, 0, 0], 0))))
    }

    /// True for that.
    pub fn is_greeting(&self) -> bool {
        self.app.is_empty()
    }

    /// The client, as the owner sees it.
    pub fn peer(&self) -> Peer {
        Peer {
            identity: self.identity.as_deref().and_then(Identity::parse),
            shows_certificates: self.shows_certificates,
            listens_on_loopback: self.listens_on_loopback,
            ..Peer::from(self.address)
        }
    }

    /// The target of the request, if it is apart.
    pub fn target(&self) -> Option<Uri> {
        self.target.as_ref().and_then(|target| target.parse().ok())
    }
}

/// Adds the secret and the origin.
pub fn seal(headers: &mut HeaderMap, secret: &Secret, origin: &Origin) {
    let Secret(digits) = secret;
    let mut value = HeaderValue::from_bytes(digits).expect("hexadecimal digits are a valid value");
    value.set_sensitive(true);
    headers.insert(SECRET, value);
    let origin = serde_json::to_string(origin).expect("an origin has only texts and flags");
    let origin =
        HeaderValue::from_bytes(origin.as_bytes()).expect("JSON without control characters is a valid value");
    headers.insert(ORIGIN, origin);
}

/// Takes the secret and the origin out. `None`: another node did not send this.
pub fn open(headers: &mut HeaderMap, secret: &Secret) -> Option<Origin> {
    let shown = headers.remove(SECRET)?;
    let origin = headers.remove(ORIGIN)?;
    let Secret(digits) = secret;
    if !bool::from(shown.as_bytes().ct_eq(digits)) {
        return None;
    }
    serde_json::from_slice(origin.as_bytes()).ok()
}

/// Removes what only nodes may say, from a request of a client or from a response to it.
pub fn strip(headers: &mut HeaderMap) {
    for name in [SECRET, ORIGIN, NOT_OWNER] {
        headers.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin() -> Origin {
        let mut peer = Peer::from(SocketAddr::from(([10, 0, 0, 7], 81)));
        peer.identity = Identity::parse("laneway://tenant/acme/role/submitter");
        peer.shows_certificates = true;
        Origin::of("main", &peer)
    }

    #[test]
    fn the_origin_arrives_as_it_was() {
        let (secret, mut headers) = (Secret::new(&[7; 32]), HeaderMap::new());
        seal(&mut headers, &secret, &origin());
        let opened = open(&mut headers, &secret).unwrap();
        assert_eq!(opened, origin());
        assert!(headers.is_empty(), "the owner passes nothing of it on");
        let peer = opened.peer();
        assert_eq!(peer.identity, Identity::parse("laneway://tenant/acme/role/submitter"));
        assert!(peer.shows_certificates && !peer.listens_on_loopback);
    }

    #[test]
    fn another_secret_opens_nothing() {
        let mut headers = HeaderMap::new();
        seal(&mut headers, &Secret::new(&[7; 32]), &origin());
        assert!(open(&mut headers.clone(), &Secret::new(&[8; 32])).is_none());
        headers.insert(SECRET, HeaderValue::from_static("07"));
        assert!(open(&mut headers, &Secret::new(&[7; 32])).is_none());
        assert!(open(&mut HeaderMap::new(), &Secret::new(&[7; 32])).is_none());
    }
}
