//! Converts the placement constraints of a job.

use laneway_core::Name;
use laneway_core::worker::{
    Affinity, AffinityMode, PLACEMENT_LIST_MAX, Package, Placement, RESOURCES_MAX, ResourceRef,
};
use laneway_wire::{AffinityConstraint, ResourceConstraint, WorkerConstraints};

use super::{name, time};
use crate::error::ApiError;

/// Converts `worker` of a job. Names on workers may contain any printable character.
pub fn placement(asked: &WorkerConstraints<'_>) -> Result<Placement, ApiError> {
    let WorkerConstraints { package, features, labels, affinity, resources } = asked;
    let package = package.as_ref().map(|package| {
        let (name, version) = (&package.name, &package.version);
        Ok::<_, ApiError>(Package {
            name: loose("worker.package.name", name)?,
            version: loose("worker.package.version", version)?,
        })
    });
    let features = features.as_deref().unwrap_or_default();
    at_most("worker.features", features.len(), PLACEMENT_LIST_MAX)?;
    let labels = labels.iter().flatten();
    at_most("worker.labels", labels.clone().count(), PLACEMENT_LIST_MAX)?;
    let resources = resources.as_deref().unwrap_or_default();
    at_most("worker.resources", resources.len(), RESOURCES_MAX)?;
    if let Some(pair) = resources.windows(2).find(|pair| pair[0].worker != pair[1].worker) {
        let message = format!(
            "are on workers {:?} and {:?}; a job runs on one worker, so use resources of one worker",
            pair[0].worker, pair[1].worker
        );
        return Err(ApiError::field("worker.resources", message));
    }
    let labels =
        labels.map(|(key, value)| Ok((loose("worker.labels", key)?, loose("worker.labels", value)?)));
    Ok(Placement {
        package: package.transpose()?,
        features: features.iter().map(|text| loose("worker.features", text)).collect::<Result<_, _>>()?,
        labels: labels.collect::<Result<_, ApiError>>()?,
        affinity: affinity.as_ref().map(of_affinity).transpose()?,
        resources: resources.iter().map(of_resource).collect::<Result<_, _>>()?,
    })
}

fn of_affinity(asked: &AffinityConstraint<'_>) -> Result<Affinity, ApiError> {
    let mode = match asked.mode.as_deref() {
        None => AffinityMode::Preferred,
        Some(text) => AffinityMode::parse(text)
            .ok_or_else(|| ApiError::field("worker.affinity.mode", "must be sticky or preferred"))?,
    };
    let expires_at =
        asked.expires_at.as_deref().map(|text| time("worker.affinity.expires_at", text)).transpose()?;
    Ok(Affinity { key: loose("worker.affinity.key", &asked.key)?, mode, expires_at })
}

fn of_resource(asked: &ResourceConstraint<'_>) -> Result<ResourceRef, ApiError> {
    let expires_at =
        asked.expires_at.as_deref().map(|text| time("worker.resources.expires_at", text)).transpose()?;
    Ok(ResourceRef {
        id: loose("worker.resources.id", &asked.id)?,
        worker: loose("worker.resources.worker", &asked.worker)?,
        sort: loose("worker.resources.type", &asked.sort)?,
        scope: asked.scope.as_deref().map(|text| name("worker.resources.scope", text)).transpose()?,
        expires_at,
    })
}

fn at_most(field: &str, count: usize, max: usize) -> Result<(), ApiError> {
    if count <= max {
        return Ok(());
    }
    Err(ApiError::field(field, format!("has {count} entries; at most {max} are allowed")))
}

fn loose(field: &str, text: &str) -> Result<Name, ApiError> {
    Name::new(text).map_err(|error| ApiError::field(field, error))
}
