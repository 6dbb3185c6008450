//! The kind `profile_clone`: copies a profile with its data directory.
//!
//! A copy that was not finished leaves nothing: its files are removed after a failure, and before the next attempt. The record of
//! the copy comes last, so that there is no profile without its files.

use laneway_core::{Failure, JobId, Origin, Outcome};
use laneway_runtime::executors::JobContext;
use serde_json::json;

use super::{ClonePayload, NotDone, succeeded};
use crate::browsers::Browsers;
use crate::profiles::{NAME_LEN_MAX, Profile, ProfileError, ProfileId, new_profile};
use crate::uses::Use;

pub(super) async fn run(browsers: Browsers, context: JobContext) -> Result<Outcome, NotDone> {
    let ClonePayload { profile_id, name, new_profile_id } = ClonePayload::parse(context.payload())?;
    let (tenant, job) = (context.tenant(), context.job());
    let profiles = browsers.profiles();
    let original = profiles.active(tenant, &profile_id).await?;
    let copy_id = new_profile_id.map_or_else(|| id_of_job(job), Ok)?;
    let in_use = |id: &ProfileId, by| {
        Failure::retryable("profile_in_use", format!("the profile {id} cannot be copied now: {by}"))
    };
    let _original =
        browsers.uses().take(tenant, &profile_id, Use::Copying).map_err(|by| in_use(&profile_id, by))?;
    let _copy = browsers.uses().take(tenant, &copy_id, Use::Copying).map_err(|by| in_use(&copy_id, by))?;
    match profiles.get(tenant, &copy_id).await {
        // An earlier attempt finished, and its report was lost.
        Ok(copy) if copy.made_by == Some(job.to_string()) => return done(&original, &copy, None),
        Ok(_) => return Err(ProfileError::Exists(copy_id.to_string()).into()),
        Err(ProfileError::NotFound(_)) => {}
        Err(error) => return Err(error.into()),
    }
    let stop = context.cancellation().clone();
    let copied = profiles.directories.copy(tenant, &profile_id, &copy_id, job, stop.clone()).await;
    let tally = match copied {
        Ok(tally) => tally,
        Err(_) if stop.is_cancelled() => return Err(NotDone::Canceled),
        Err(error) => {
            let message = format!("the data directory of {profile_id} cannot be copied: {error}");
            return Err(Failure::retryable("copy_failed", message).into());
        }
    };
    let mut fields = original.fields.clone();
    fields.name = name.unwrap_or_else(|| copy_name(&fields.name));
    let copy = Profile {
        cloned_from: Some(profile_id.clone()),
        made_by: Some(job.to_string()),
        ..new_profile(copy_id.clone(), fields)
    };
    match profiles.insert(tenant, copy, Origin::server(super::PROFILE_CLONE)).await {
        Ok(copy) => {
            context.log(&format!(
                "{} files with {} bytes copied, {} of them share their blocks",
                tally.files, tally.bytes, tally.shared
            ));
            done(&original, &copy, Some(tally.bytes))
        }
        Err(error) => {
            if let Err(left) = profiles.directories.remove(tenant, &copy_id).await {
                tracing::warn!(profile = %copy_id, error = %left, "the files of a copy that failed cannot be removed");
            }
            Err(error.into())
        }
    }
}

fn done(original: &Profile, copy: &Profile, bytes: Option<u64>) -> Result<Outcome, NotDone> {
    succeeded(&json!({
        "profileId": copy.id.as_str(),
        "clonedFrom": original.id.as_str(),
        "name": copy.fields.name,
        "bytes": bytes,
    }))
}

/// The same for every attempt of the job.
fn id_of_job(job: JobId) -> Result<ProfileId, NotDone> {
    Ok(ProfileId::parse(&format!("c-{job}"))?)
}

fn copy_name(name: &str) -> String {
    const ADDED: &str = " (copy)";
    let mut end = name.len().min(NAME_LEN_MAX - ADDED.len());
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}{ADDED}", &name[..end])
}
