//! Browser tabs: the instances that have them, and the executor of jobs of the kind `tab_action`.
//!
//! `instances.rs` is the section `[instances]` of the configuration, `tabs.rs` finds the instance that has a tab, `forward.rs`
//! sends an action to it, and `action.rs` does so for a job. The crate reports errors as enums; their texts for clients
//! belong to the dialect. It does not decide which job runs when.

pub mod action;
pub mod forward;
pub mod instances;
mod tabs;
#[cfg(test)]
mod tests;

pub use action::{ActionError, TAB_ACTION, TabAction};
pub use forward::{Action, Answered, ForwardError};
pub use instances::{INSTANCES, Instance, InstancePatch, TAB_LEN_MAX};
pub use tabs::{NoTab, Owner, Tabs};
