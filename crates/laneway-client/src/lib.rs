//! The worker SDK.
