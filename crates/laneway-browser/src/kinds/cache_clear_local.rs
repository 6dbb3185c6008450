//! The kind `cache_clear_local`: removes the caches in the data directory of a profile that is not open.

use std::io;

use laneway_core::{Failure, Outcome};
use laneway_runtime::executors::JobContext;
use serde_json::json;

use super::{NotDone, ProfilePayload, succeeded};
use crate::browsers::Browsers;
use crate::uses::Use;

pub(super) async fn run(browsers: Browsers, context: JobContext) -> Result<Outcome, NotDone> {
    let ProfilePayload { profile_id } = ProfilePayload::parse(context.payload())?;
    let tenant = context.tenant();
    browsers.profiles().active(tenant, &profile_id).await?;
    let _taken = browsers.uses().take(tenant, &profile_id, Use::Clearing).map_err(|by| {
        // The files are locked by their present user, which may end.
        Failure::retryable("file_locked", format!("the files of the profile {profile_id} are in use: {by}"))
    })?;
    let cleared = browsers.profiles().directories.clear_caches(tenant, &profile_id).await;
    let tally = cleared.map_err(|error| failure(&error))?;
    context.log(&format!("{} files with {} bytes removed", tally.files, tally.bytes));
    succeeded(&json!({"profileId": profile_id.as_str(), "files": tally.files, "bytes": tally.bytes}))
}

/// Only a file that another process holds can be free later.
fn failure(error: &io::Error) -> Failure {
    let message = format!("the cache cannot be removed: {error}");
    match error.kind() {
        io::ErrorKind::ResourceBusy
        | io::ErrorKind::ExecutableFileBusy
        | io::ErrorKind::WouldBlock
        | io::ErrorKind::PermissionDenied
        | io::ErrorKind::DirectoryNotEmpty => Failure::retryable("file_locked", message),
        _ => Failure::permanent("cache_not_cleared", message),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_locked_files_are_tried_again() {
        for (kind, retryable) in [
            (io::ErrorKind::ResourceBusy, true),
            (io::ErrorKind::PermissionDenied, true),
            (io::ErrorKind::DirectoryNotEmpty, true),
            (io::ErrorKind::StorageFull, false),
            (io::ErrorKind::Other, false),
        ] {
            assert_eq!(failure(&kind.into()).retryable, retryable, "{kind:?}");
        }
    }
}
