//! The kind `browser_stop_all`: closes every browser of the tenant. One that is starting is closed by a retry.

use laneway_core::{Failure, Outcome};
use laneway_runtime::executors::JobContext;
use serde_json::json;

use super::{NoPayload, NotDone, succeeded};
use crate::browsers::Browsers;
use crate::fleet::Closed;
use crate::profiles::ProfileId;

pub(super) async fn run(browsers: Browsers, context: JobContext) -> Result<Outcome, NotDone> {
    NoPayload::parse(context.payload())?;
    let mut starting = browsers.uses().starting(context.tenant());
    let all = browsers.fleet().close_all(Some(context.tenant()), browsers.settings().stop_grace).await;
    let (closed, left): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|(_, closed)| !matches!(closed, Closed::StillRunning));
    let ids =
        |list: &[(ProfileId, Closed)]| -> Vec<String> { list.iter().map(|(id, _)| id.to_string()).collect() };
    let (closed, left) = (ids(&closed), ids(&left));
    context.log(&format!("{} browsers closed", closed.len()));
    // One that has opened meanwhile may be among those that were closed, or not.
    let still = browsers.uses().starting(context.tenant());
    starting.retain(|id| still.contains(id) || browsers.fleet().get(context.tenant(), id).is_some());
    let starting: Vec<String> = starting.iter().map(ProfileId::to_string).collect();
    if !starting.is_empty() {
        let message = format!(
            "these browsers are starting; they are closed when they are open: {}",
            starting.join(", ")
        );
        return Err(Failure::retryable("still_running", message).into());
    }
    if !left.is_empty() {
        let message =
            format!("these browsers are still running although they were killed: {}", left.join(", "));
        return Err(Failure::retryable("still_running", message).into());
    }
    succeeded(&json!({"closed": closed}))
}
