//! Many nodes on one store: a request that reaches any node is served by the one that owns the domain.
//!
//! A node that owns the domain calls its own routers ([`Switch`]). Any other node forwards the whole request over one HTTP/2
//! connection to the owner ([`forward`]), which accepts it only from a node that knows the secret of the cluster
//! ([`PeerListener`]). There is no policy here: what a request may do is decided by the owner.

mod envelope;
mod forward;
mod headers;
mod link;
mod peers;
mod replay;
mod sse;
mod switch;
mod tls;
mod tunnel;
mod waits;

pub use link::OwnerAddress;
pub use peers::PeerListener;
pub use switch::{Apps, Place, Switch};
pub use tls::{ClusterTls, ClusterTlsError};
