//! The kind `db_migration`: rewrites the profile records of the tenant that an earlier version stored. Running it again changes
//! nothing. The tables of the server itself are migrated when it starts.

use laneway_core::{Failure, Origin, Outcome};
use laneway_runtime::executors::JobContext;
use serde_json::json;

use super::{NoPayload, NotDone, succeeded};
use crate::browsers::Browsers;

pub(super) async fn run(browsers: Browsers, context: JobContext) -> Result<Outcome, NotDone> {
    NoPayload::parse(context.payload())?;
    let origin = Origin::server(super::DB_MIGRATION);
    let migrated = browsers.profiles().migrate(context.tenant(), &origin).await;
    // Never retried: what one attempt cannot read, another one cannot either.
    let (checked, migrated) =
        migrated.map_err(|error| Failure::permanent("migration_failed", error.to_string()))?;
    context.log(&format!("{checked} records checked, {migrated} migrated"));
    succeeded(&json!({"checked": checked, "migrated": migrated}))
}
