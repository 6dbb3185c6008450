//! The kind `cache_clear_cloud`: there is no cloud behind this server, so its jobs fail and say so.

use laneway_core::{Failure, Outcome};
use laneway_runtime::executors::JobContext;

use super::{NoPayload, NotDone};
use crate::browsers::Browsers;

/// The code of the failure.
const OUT_OF_SCOPE: &str = "out_of_scope";

pub(super) async fn run(_: Browsers, context: JobContext) -> Result<Outcome, NotDone> {
    NoPayload::parse(context.payload())?;
    let message = "out of scope: profiles are on this machine only, and there is no cloud cache to clear; use cache_clear_local";
    Err(Failure::permanent(OUT_OF_SCOPE, message).into())
}
