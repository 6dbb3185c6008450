//! The kind `browser_stop_all`: closes every browser of the tenant.

use laneway_core::{Failure, Outcome};
use laneway_runtime::executors::JobContext;
use serde_json::json;

use super::{NoPayload, NotDone, succeeded};
use crate::browsers::Browsers;
use crate::fleet::Closed;
use crate::profiles::ProfileId;

pub(super) async fn run(browsers: Browsers, context: JobContext) -> Result<Outcome, NotDone> {
    NoPayload::parse(context.payload())?;
    let all = browsers.fleet().close_all(Some(context.tenant()), browsers.settings().stop_grace).await;
    let (closed, left): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|(_, closed)| !matches!(closed, Closed::StillRunning));
    let ids =
        |list: &[(ProfileId, Closed)]| -> Vec<String> { list.iter().map(|(id, _)| id.to_string()).collect() };
    let (closed, left) = (ids(&closed), ids(&left));
    context.log(&format!("{} browsers closed", closed.len()));
    if !left.is_empty() {
        let message =
            format!("these browsers are still running although they were killed: {}", left.join(", "));
        return Err(Failure::retryable("still_running", message).into());
    }
    succeeded(&json!({"closed": closed}))
}
