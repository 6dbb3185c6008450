//! Pull workers: claims, leases by id, and how a lease is renewed.

pub(in crate::engine) mod by_id;
pub(in crate::engine) mod claim;
pub(in crate::engine) mod renew;
