//! The kind `recycle_bin_cleanup`: deletes the profiles of the tenant that were in the recycle bin for too long.

use laneway_core::{Origin, Outcome, Span};
use laneway_runtime::executors::JobContext;
use serde_json::json;

use super::{CleanupPayload, NotDone, succeeded};
use crate::browsers::Browsers;
use crate::profiles::ProfileId;

pub(super) async fn run(browsers: Browsers, context: JobContext) -> Result<Outcome, NotDone> {
    let CleanupPayload { retention_days } = CleanupPayload::parse(context.payload())?;
    let retention =
        retention_days.map_or(browsers.settings().recycle_bin_retention, |days| Span::hours(24 * days));
    let origin = Origin::server(super::RECYCLE_BIN_CLEANUP);
    let deleted = browsers.profiles().expire(context.tenant(), retention, &origin).await?;
    let deleted: Vec<&str> = deleted.iter().map(ProfileId::as_str).collect();
    context.log(&format!("{} profiles deleted from the recycle bin", deleted.len()));
    succeeded(&json!({"deleted": deleted}))
}
