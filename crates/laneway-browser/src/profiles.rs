//! Browser profiles: records of the scheduler's store, and one data directory each.
//!
//! A profile is created, changed, put into the recycle bin, restored and deleted here. Its directory is
//! `<root>/<tenant>/<profile id>`; both names are checked or escaped, so that no path leaves the root. A profile whose
//! directory is in use is neither trashed nor deleted.

mod directories;
mod profile;
pub(crate) mod record;
#[cfg(test)]
mod tests;

use std::io;
use std::path::PathBuf;

use laneway_core::{Name, Origin, Record, RecordName, Span, Wall};
use laneway_runtime::config::SecretKey;
use laneway_runtime::records::{RECORDS_LISTED_MAX, RecordError};
use laneway_runtime::{Scheduler, Stopped};
use thiserror::Error;

use crate::kinds::{BadPayload, PayloadProblem};
use crate::uses::{Use, Uses};
use record::{Codec, Decoded, VERSION};

pub(crate) use directories::Directories;
pub use profile::{
    ID_LEN_MAX, NAME_LEN_MAX, Profile, ProfileFields, ProfileId, ProfilePatch, ProfileStatus, ProxySpec,
    WINDOW_SIDE_MAX, WINDOW_SIDE_MIN,
};

/// The collection of the records.
const COLLECTION: &str = "profiles";
/// How often a change is tried again when another caller changed the profile in between.
const CHANGES_MAX: u32 = 5;

/// The profiles of every tenant. Cheap to clone.
#[derive(Clone)]
pub struct Profiles {
    scheduler: Scheduler,
    codec: Codec,
    pub(crate) directories: Directories,
    uses: Uses,
}

/// Which profiles a list has.
#[derive(Clone, Debug, Default)]
pub struct ProfileQuery {
    /// Only those whose id or name holds this text, in whatever case. `None`: all.
    pub search: Option<String>,
    /// Only those with this status. `None`: all.
    pub status: Option<ProfileStatus>,
    /// How many are left out at the beginning.
    pub offset: usize,
    /// Most profiles of the page.
    pub limit: usize,
}

/// A page of a list.
#[derive(Clone, Debug)]
pub struct ProfilePage {
    /// The profiles, newest first.
    pub profiles: Vec<Profile>,
    /// How many there are on all pages.
    pub total: usize,
}

/// Why something was not done with a profile. Nothing changed.
#[derive(Debug, Error)]
pub enum ProfileError {
    /// The tenant has no such profile.
    #[error("there is no profile {0:?}")]
    NotFound(String),
    /// It is in the recycle bin.
    #[error("the profile {0:?} is in the recycle bin; restore it first")]
    Trashed(String),
    /// It is not in the recycle bin.
    #[error("the profile {0:?} is not in the recycle bin")]
    NotTrashed(String),
    /// Its directory is in use.
    #[error("the profile {id:?} is in use: {by}")]
    InUse {
        /// Which one.
        id: String,
        /// For what.
        by: Use,
    },
    /// There is one with this id already.
    #[error("there is a profile {0:?} already")]
    Exists(String),
    /// A field is not valid.
    #[error(transparent)]
    Invalid(#[from] BadPayload),
    /// The tenant has too many profiles, or storage is low.
    #[error("the profile was not stored: {0}")]
    Rejected(String),
    /// Others changed it again and again.
    #[error("the profile {0:?} is changed by others at the same time; try again")]
    Conflict(String),
    /// Its record cannot be read.
    #[error("the record of the profile {id:?} {reason}")]
    Unreadable {
        /// Which one.
        id: String,
        /// Why.
        reason: String,
    },
    /// Its directory or its password cannot be written or read.
    #[error("the files of the profile cannot be used: {0}")]
    Io(#[from] io::Error),
    /// The scheduler has stopped.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

impl Profiles {
    pub(crate) fn new(scheduler: Scheduler, root: PathBuf, key: Option<SecretKey>, uses: Uses) -> Profiles {
        Profiles { scheduler, codec: Codec { key }, directories: Directories::new(root), uses }
    }

    /// Creates a profile. Without an id it gets a random one.
    pub async fn create(
        &self,
        tenant: &Name,
        id: Option<ProfileId>,
        fields: ProfileFields,
        origin: Origin,
    ) -> Result<Profile, ProfileError> {
        let id = id.map_or_else(fresh_id, Ok)?;
        let profile = new_profile(id, fields);
        self.insert(tenant, profile, origin).await
    }

    /// Stores a profile that is not there yet.
    pub(crate) async fn insert(
        &self,
        tenant: &Name,
        profile: Profile,
        origin: Origin,
    ) -> Result<Profile, ProfileError> {
        profile.fields.validate()?;
        match self.put(tenant, &profile, 0, origin).await {
            Err(ProfileError::Conflict(id)) => Err(ProfileError::Exists(id)),
            stored => stored,
        }
    }

    /// The profile with this id, also from the recycle bin.
    pub async fn get(&self, tenant: &Name, id: &ProfileId) -> Result<Profile, ProfileError> {
        let found = self.scheduler.record(record_name(tenant, id)).await?;
        let record = found.ok_or_else(|| ProfileError::NotFound(id.to_string()))?;
        self.decode(&record).map(|decoded| decoded.profile)
    }

    /// The profile with this id, unless it is in the recycle bin.
    pub async fn active(&self, tenant: &Name, id: &ProfileId) -> Result<Profile, ProfileError> {
        let profile = self.get(tenant, id).await?;
        match profile.status() {
            ProfileStatus::Active => Ok(profile),
            ProfileStatus::Trashed => Err(ProfileError::Trashed(id.to_string())),
        }
    }

    /// A page of the profiles, newest first. A record that cannot be read is left out, with a warning in the log.
    pub async fn list(&self, tenant: &Name, query: &ProfileQuery) -> Result<ProfilePage, ProfileError> {
        let ProfileQuery { search, status, offset, limit } = query;
        let search = search.as_ref().map(|text| text.to_lowercase());
        let mut found: Vec<Profile> = Vec::new();
        for record in self.records(tenant).await? {
            match self.decode(&record) {
                Ok(decoded) => found.push(decoded.profile),
                Err(error) => tracing::warn!(%tenant, %error, "a profile is left out of a list"),
            }
        }
        found.retain(|profile| {
            let holds = |text: &String| {
                profile.id.as_str().contains(text.as_str())
                    || profile.fields.name.to_lowercase().contains(text.as_str())
            };
            search.as_ref().is_none_or(holds) && status.is_none_or(|status| profile.status() == status)
        });
        found.sort_by(|a, b| b.created_at.cmp(&a.created_at).then_with(|| a.id.cmp(&b.id)));
        let total = found.len();
        Ok(ProfilePage { profiles: found.into_iter().skip(*offset).take(*limit).collect(), total })
    }

    /// Changes fields of a profile. An open browser keeps the values that it was started with.
    pub async fn update(
        &self,
        tenant: &Name,
        id: &ProfileId,
        patch: ProfilePatch,
        origin: Origin,
    ) -> Result<Profile, ProfileError> {
        self.change(tenant, id, origin, |profile| {
            if profile.status() == ProfileStatus::Trashed {
                return Err(ProfileError::Trashed(profile.id.to_string()));
            }
            profile.fields = patch.clone().over(&profile.fields);
            Ok(profile.fields.validate()?)
        })
        .await
    }

    /// Puts a profile into the recycle bin.
    pub async fn trash(
        &self,
        tenant: &Name,
        id: &ProfileId,
        origin: Origin,
    ) -> Result<Profile, ProfileError> {
        let _taken = self.take(tenant, id)?;
        let now = self.scheduler.wall();
        self.change(tenant, id, origin, |profile| match profile.trashed_at {
            Some(_) => Err(ProfileError::Trashed(profile.id.to_string())),
            None => {
                profile.trashed_at = Some(now);
                Ok(())
            }
        })
        .await
    }

    /// Takes a profile out of the recycle bin.
    pub async fn restore(
        &self,
        tenant: &Name,
        id: &ProfileId,
        origin: Origin,
    ) -> Result<Profile, ProfileError> {
        let _taken = self.take(tenant, id)?;
        self.change(tenant, id, origin, |profile| match profile.trashed_at.take() {
            Some(_) => Ok(()),
            None => Err(ProfileError::NotTrashed(profile.id.to_string())),
        })
        .await
    }

    /// Deletes a profile of the recycle bin, and its directory. The directory goes first: a profile without files can be
    /// deleted again, files without a profile could not.
    pub async fn delete(&self, tenant: &Name, id: &ProfileId, origin: Origin) -> Result<(), ProfileError> {
        let _taken = self.take(tenant, id)?;
        let profile = self.get(tenant, id).await?;
        if profile.status() == ProfileStatus::Active {
            return Err(ProfileError::NotTrashed(id.to_string()));
        }
        self.directories.remove(tenant, id).await?;
        match self.scheduler.delete_record(record_name(tenant, id), Some(profile.version), origin).await {
            Ok(_) | Err(RecordError::NotFound) => Ok(()),
            Err(error) => Err(of_record(error, id)),
        }
    }

    /// Deletes the profiles that have been in the recycle bin for at least `retention`. Those in use are left for the next time.
    /// Returns the ids of the deleted ones.
    pub async fn expire(
        &self,
        tenant: &Name,
        retention: Span,
        origin: &Origin,
    ) -> Result<Vec<ProfileId>, ProfileError> {
        let now = self.scheduler.wall();
        let mut deleted = Vec::new();
        for record in self.records(tenant).await? {
            let profile = self.decode(&record)?.profile;
            let is_over = |at: Wall| now.since(at) >= retention;
            if !profile.trashed_at.is_some_and(is_over) {
                continue;
            }
            match self.delete(tenant, &profile.id, origin.clone()).await {
                Ok(()) => deleted.push(profile.id),
                // It was restored or deleted meanwhile, or is in use.
                Err(
                    ProfileError::NotTrashed(_)
                    | ProfileError::NotFound(_)
                    | ProfileError::InUse { .. }
                    | ProfileError::Conflict(_),
                ) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(deleted)
    }

    /// Rewrites records of an earlier version. Returns how many there are, and how many were rewritten.
    pub(crate) async fn migrate(
        &self,
        tenant: &Name,
        origin: &Origin,
    ) -> Result<(usize, usize), ProfileError> {
        let records = self.records(tenant).await?;
        let (count, mut migrated) = (records.len(), 0);
        for record in records {
            let Decoded { profile, version, plain_password } = self.decode(&record)?;
            if version == VERSION && !plain_password {
                continue;
            }
            match self.put(tenant, &profile, record.version, origin.clone()).await {
                Ok(_) => migrated += 1,
                // The other caller wrote the present version.
                Err(ProfileError::Conflict(_) | ProfileError::NotFound(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok((count, migrated))
    }

    async fn records(&self, tenant: &Name) -> Result<Vec<Record>, ProfileError> {
        let (mut all, mut after) = (Vec::new(), None);
        loop {
            let collection = Name::fixed(COLLECTION);
            let page = self.scheduler.records(tenant.clone(), collection, after, RECORDS_LISTED_MAX).await?;
            let Some(last) = page.last() else { return Ok(all) };
            after = Some(last.name.id.clone());
            all.extend(page);
        }
    }

    fn decode(&self, record: &Record) -> Result<Decoded, ProfileError> {
        let unreadable = |reason| ProfileError::Unreadable { id: record.name.id.to_string(), reason };
        self.codec.decode(record).map_err(unreadable)
    }

    /// Reads, changes and stores a profile, again if another caller was faster.
    async fn change(
        &self,
        tenant: &Name,
        id: &ProfileId,
        origin: Origin,
        change: impl Fn(&mut Profile) -> Result<(), ProfileError>,
    ) -> Result<Profile, ProfileError> {
        for _ in 0..CHANGES_MAX {
            let mut profile = self.get(tenant, id).await?;
            change(&mut profile)?;
            match self.put(tenant, &profile, profile.version, origin.clone()).await {
                Err(ProfileError::Conflict(_)) => {}
                stored => return stored,
            }
        }
        Err(ProfileError::Conflict(id.to_string()))
    }

    async fn put(
        &self,
        tenant: &Name,
        profile: &Profile,
        expected: u64,
        origin: Origin,
    ) -> Result<Profile, ProfileError> {
        let codec = self.codec.clone();
        let (owner, plain) = (tenant.to_string(), profile.clone());
        // The key is a file.
        let body = tokio::task::spawn_blocking(move || codec.encode(&owner, &plain));
        let body = body.await.unwrap_or_else(|error| Err(io::Error::other(error)))?;
        let name = record_name(tenant, &profile.id);
        let stored = self.scheduler.put_record(name, Some(expected), body, origin).await;
        let record = stored.map_err(|error| of_record(error, &profile.id))?;
        self.decode(&record).map(|decoded| decoded.profile)
    }

    fn take(&self, tenant: &Name, id: &ProfileId) -> Result<crate::uses::Taken, ProfileError> {
        let in_use = |by| ProfileError::InUse { id: id.to_string(), by };
        self.uses.take(tenant, id, Use::Changing).map_err(in_use)
    }
}

/// A profile that is not stored yet.
pub(crate) fn new_profile(id: ProfileId, fields: ProfileFields) -> Profile {
    Profile {
        id,
        fields,
        trashed_at: None,
        cloned_from: None,
        created_at: Wall(0),
        updated_at: Wall(0),
        version: 0,
        made_by: None,
    }
}

fn record_name(tenant: &Name, id: &ProfileId) -> RecordName {
    RecordName { tenant: tenant.clone(), collection: Name::fixed(COLLECTION), id: id.name().clone() }
}

fn of_record(error: RecordError, id: &ProfileId) -> ProfileError {
    match error {
        RecordError::Conflict { .. } => ProfileError::Conflict(id.to_string()),
        RecordError::NotFound => ProfileError::NotFound(id.to_string()),
        RecordError::Rejected(rejection) => ProfileError::Rejected(rejection.to_string()),
        RecordError::Stopped(stopped) => ProfileError::Stopped(stopped),
    }
}

/// A random id: `p-` and 24 hexadecimal digits.
fn fresh_id() -> Result<ProfileId, ProfileError> {
    let mut bytes = [0; 12];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    ProfileId::parse(&format!("p-{digits}"))
        .map_err(|bad| BadPayload::new("id", PayloadProblem::Range, bad.message).into())
}
