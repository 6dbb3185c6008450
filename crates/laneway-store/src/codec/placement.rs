//! The placement constraints of a job, as a part of its spec.

use laneway_core::worker::{Affinity, AffinityMode, Package, ResourceRef};
use laneway_core::{Placement, Wall};

use super::{Input, Intern, put_i64, put_name, put_names, put_u64};
use crate::StoreError;

// One bit for each part that may be missing.
const PACKAGE: u8 = 1 << 0;
const AFFINITY: u8 = 1 << 1;
const ALL: u8 = (1 << 2) - 1;

// The same for what may be missing of a resource or an affinity.
const SCOPE: u8 = 1 << 0;
const EXPIRES: u8 = 1 << 1;
const ALL_OF_PART: u8 = (1 << 2) - 1;

/// Appends the form of `placement` to `out`.
pub(super) fn write_placement(out: &mut Vec<u8>, placement: &Placement) {
    let Placement { package, features, labels, affinity, resources } = placement;
    let flag = |present: bool, bit: u8| if present { bit } else { 0 };
    out.push(flag(package.is_some(), PACKAGE) | flag(affinity.is_some(), AFFINITY));
    if let Some(Package { name, version }) = package {
        put_name(out, name);
        put_name(out, version);
    }
    put_names(out, features);
    put_u64(out, labels.len() as u64);
    for (name, value) in labels {
        put_name(out, name);
        put_name(out, value);
    }
    if let Some(Affinity { key, mode, expires_at }) = affinity {
        out.extend_from_slice(&[flag(expires_at.is_some(), EXPIRES), mode.code()]);
        put_name(out, key);
        put_time(out, *expires_at);
    }
    put_u64(out, resources.len() as u64);
    for ResourceRef { id, worker, sort, scope, expires_at } in resources {
        out.push(flag(scope.is_some(), SCOPE) | flag(expires_at.is_some(), EXPIRES));
        for name in [id, worker, sort].into_iter().chain(scope) {
            put_name(out, name);
        }
        put_time(out, *expires_at);
    }
}

fn put_time(out: &mut Vec<u8>, time: Option<Wall>) {
    if let Some(time) = time {
        put_i64(out, time.0);
    }
}

/// Reads a form back.
pub(super) fn read_placement(
    input: &mut Input<'_>,
    intern: &mut Intern<'_>,
) -> Result<Placement, StoreError> {
    let flags = input.u8()?;
    if flags & !ALL != 0 {
        return Err(input.damaged("its placement constraints have parts that this program does not know"));
    }
    let package = match flags & PACKAGE {
        0 => None,
        _ => Some(Package { name: intern(input.text()?)?, version: intern(input.text()?)? }),
    };
    let mut features = Vec::new();
    for _ in 0..input.count()? {
        features.push(intern(input.text()?)?);
    }
    let mut labels = Vec::new();
    for _ in 0..input.count()? {
        labels.push((intern(input.text()?)?, intern(input.text()?)?));
    }
    let affinity = if flags & AFFINITY == 0 { None } else { Some(read_affinity(input, intern)?) };
    let mut resources = Vec::new();
    for _ in 0..input.count()? {
        resources.push(read_resource(input, intern)?);
    }
    Ok(Placement { package, features, labels, affinity, resources })
}

fn read_affinity(input: &mut Input<'_>, intern: &mut Intern<'_>) -> Result<Affinity, StoreError> {
    let flags = read_flags(input)?;
    let mode = input.u8()?;
    Ok(Affinity {
        mode: AffinityMode::from_code(mode).ok_or_else(|| input.damaged("there is no such affinity"))?,
        key: intern(input.text()?)?,
        expires_at: read_time(input, flags)?,
    })
}

fn read_resource(input: &mut Input<'_>, intern: &mut Intern<'_>) -> Result<ResourceRef, StoreError> {
    let flags = read_flags(input)?;
    Ok(ResourceRef {
        id: intern(input.text()?)?,
        worker: intern(input.text()?)?,
        sort: intern(input.text()?)?,
        scope: if flags & SCOPE == 0 { None } else { Some(intern(input.text()?)?) },
        expires_at: read_time(input, flags)?,
    })
}

fn read_flags(input: &mut Input<'_>) -> Result<u8, StoreError> {
    let flags = input.u8()?;
    if flags & !ALL_OF_PART == 0 {
        return Ok(flags);
    }
    Err(input.damaged("its placement constraints have parts that this program does not know"))
}

fn read_time(input: &mut Input<'_>, flags: u8) -> Result<Option<Wall>, StoreError> {
    if flags & EXPIRES == 0 { Ok(None) } else { Ok(Some(Wall(input.i64()?))) }
}
