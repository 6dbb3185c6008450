//! Webhook deliveries and the order in which they are handed out.

pub(in crate::engine) mod deliveries;
pub(in crate::engine) mod fair_queue;
