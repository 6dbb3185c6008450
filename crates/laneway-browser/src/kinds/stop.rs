//! The kind `browser_stop`: closes the browser of a profile. A profile that is not open counts as closed.

use laneway_core::{Failure, Outcome};
use laneway_runtime::executors::JobContext;
use serde_json::json;

use super::{NotDone, ProfilePayload, succeeded};
use crate::browsers::Browsers;
use crate::fleet::Closed;

pub(super) async fn run(browsers: Browsers, context: JobContext) -> Result<Outcome, NotDone> {
    let ProfilePayload { profile_id } = ProfilePayload::parse(context.payload())?;
    let tenant = context.tenant();
    // A profile of the recycle bin may still be closed.
    browsers.profiles().get(tenant, &profile_id).await?;
    let closed = browsers.fleet().close(tenant, &profile_id, browsers.settings().stop_grace).await;
    match closed {
        Closed::WasNotOpen => {
            succeeded(&json!({"profileId": profile_id.as_str(), "closed": false, "how": "not_open"}))
        }
        Closed::By(how) => {
            context.log(&format!("the browser ended: {how}"));
            succeeded(&json!({"profileId": profile_id.as_str(), "closed": true, "how": how}))
        }
        Closed::StillRunning => {
            let message = format!("the browser of {profile_id} is still running although it was killed");
            Err(Failure::retryable("still_running", message).into())
        }
        Closed::Starting => {
            let message = format!("the browser of {profile_id} is starting; it is closed when it is open");
            Err(Failure::retryable("still_running", message).into())
        }
    }
}
