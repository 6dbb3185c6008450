//! The template of a schedule's jobs, in one column.

use laneway_core::{CapacityRequest, JobSpec, Name};

use super::spec::{SpecRest, read_spec, write_rest};
use super::{Input, put_bytes, put_i64, put_u64};
use crate::StoreError;

/// The first one had no cost.
const VERSION: u8 = 2;

/// Appends the form of `spec` to `out`. Its tenant has a column of its own.
pub(crate) fn write_template(out: &mut Vec<u8>, spec: &JobSpec) {
    out.push(VERSION);
    put_i64(out, spec.priority.into());
    put_u64(out, spec.capacity.cost.into());
    for name in [&spec.kind, &spec.agent, &spec.lane] {
        put_bytes(out, name.as_str().as_bytes());
    }
    // No name is empty, so an empty one says that there is none.
    let session = spec.session.as_ref().map_or("", |session| session.key.as_str());
    put_bytes(out, session.as_bytes());
    write_rest(out, spec, 0, &spec.agent, 0);
}

/// Reads a form back.
pub(crate) fn read_template(
    tenant: Name,
    bytes: &[u8],
    intern: &mut dyn FnMut(&str) -> Result<Name, StoreError>,
) -> Result<JobSpec, StoreError> {
    let mut input = Input::new("the template of a schedule", bytes);
    let version = input.version_up_to(VERSION)?;
    let priority = i32::try_from(input.i64()?).map_err(|_| input.damaged("a priority is too large"))?;
    let cost = if version > 1 { input.u32()? } else { 0 };
    let (kind, agent, lane) = (intern(input.text()?)?, intern(input.text()?)?, intern(input.text()?)?);
    let session = input.text()?;
    let rest = read_spec(input.take(input.left())?, intern)?;
    let SpecRest {
        payload_len: _,
        submitted_by: _,
        position: _,
        session: session_rest,
        keys,
        not_before,
        deadline,
        queue_timeout,
        timeout,
        retry,
        idempotency,
        retry_of,
        tags,
        schedule,
        callback,
        needs,
        member,
        wants,
    } = rest;
    let session = match (session, session_rest) {
        ("", None) => None,
        (key, Some(rest)) => Some(rest.with_key(intern(key)?)),
        _ => return Err(StoreError::Damaged("a template has half a session".into())),
    };
    Ok(JobSpec {
        tenant,
        kind,
        agent,
        lane,
        session,
        keys,
        priority,
        not_before,
        deadline,
        queue_timeout,
        timeout,
        retry,
        idempotency,
        retry_of,
        tags,
        schedule,
        callback,
        capacity: CapacityRequest { cost, ..needs },
        member,
        placement: wants,
    })
}
