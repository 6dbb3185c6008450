//! Browsers and their tabs: Chromium on this machine, instances elsewhere, and the executor of jobs of the kind `tab_action`.
//!
//! `chromium.rs` starts and stops browsers, `devtools.rs` speaks with them, `page.rs` acts on a tab, `script.rs` runs a list of
//! steps, and `proxy.rs` tests a proxy. These know no jobs.
//!
//! `profiles.rs` has browser profiles, `fleet.rs` the open browsers, `kinds.rs` the handlers of the built-in kinds of jobs,
//! `settings.rs` the section `[browsers]`, and `browsers.rs` brings them together.
//!
//! `instances.rs` is the section `[instances]` of the configuration, `tabs.rs` finds the instance that has a tab, `forward.rs`
//! sends an action to it, `own_tabs.rs` does it on a tab of this machine, and `action.rs` does so for a job. The crate reports errors as enums; their texts for clients
//! belong to the dialect. It does not decide which job runs when.

pub mod action;
mod browsers;
pub mod chromium;
pub mod devtools;
mod fleet;
pub mod forward;
pub mod instances;
pub mod kinds;
mod own_tabs;
pub mod page;
pub mod profiles;
pub mod proxy;
pub mod script;
mod settings;
mod tabs;
#[cfg(test)]
mod tests;
mod uses;

pub use action::{ActionError, TAB_ACTION, TabAction};
pub use browsers::{Browsers, BrowsersError};
pub use chromium::{Browser, Chromium, LaunchError, LaunchOptions, NotFound};
pub use devtools::DevToolsError;
pub use fleet::OpenBrowser;
pub use forward::{Action, Answered, ForwardError};
pub use instances::{INSTANCES, Instance, InstancePatch, TAB_LEN_MAX};
pub use kinds::{BadPayload, PayloadProblem};
pub use page::{Page, PageAction, PageError, PageLimits};
pub use profiles::{Profile, ProfileError, ProfileFields, ProfileId, ProfilePatch, Profiles, ProxySpec};
pub use proxy::Proxy;
pub use script::{Script, ScriptError, ScriptOutput};
pub use settings::{BROWSERS, BrowserSettings};
pub use tabs::{NoTab, Owner, Tabs};
pub use uses::Use;
