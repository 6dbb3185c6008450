//! Waiting jobs: the tree in which they wait, the gates that hold them back, and the order in which they start.

pub(in crate::engine) mod dispatch;
pub(in crate::engine) mod explain;
pub(in crate::engine) mod gates;
pub(in crate::engine) mod interning;
pub(in crate::engine) mod shared_classes;
pub(in crate::engine) mod shares;
pub(in crate::engine) mod tree;
