//! The template of a schedule's jobs, in one column.

use laneway_core::{JobSpec, Name};

use super::spec::{SpecColumns, read_rest, write_rest};
use super::{Input, Intern, put_bytes, put_i64, put_name, put_u64};
use crate::StoreError;

const VERSION: u8 = 1;

/// Appends the form of `spec` to `out`. Its tenant has a column of its own. First come the fields that have columns in the
/// row of a job, then the form of the others.
pub(crate) fn write_template(out: &mut Vec<u8>, spec: &JobSpec) {
    out.push(VERSION);
    write_columns(out, spec);
    write_rest(out, spec, 0, &spec.agent, 0);
}

/// Appends the fields that have columns in the row of a job, except for the tenant.
pub(super) fn write_columns(out: &mut Vec<u8>, spec: &JobSpec) {
    put_i64(out, spec.priority.into());
    put_u64(out, spec.capacity.cost.into());
    for name in [&spec.kind, &spec.agent, &spec.lane] {
        put_name(out, name);
    }
    // No name is empty, so an empty one says that there is none.
    let session = spec.session.as_ref().map_or("", |session| session.key.as_str());
    put_bytes(out, session.as_bytes());
}

/// Reads a form back.
pub(crate) fn read_template(
    tenant: Name,
    bytes: &[u8],
    intern: &mut Intern<'_>,
) -> Result<JobSpec, StoreError> {
    let mut input = Input::new("the template of a schedule", bytes);
    let spec = read_template_part(tenant, &mut input, intern)?;
    input.end()?;
    Ok(spec)
}

/// Reads a form back that other parts may follow.
pub(super) fn read_template_part(
    tenant: Name,
    input: &mut Input<'_>,
    intern: &mut Intern<'_>,
) -> Result<JobSpec, StoreError> {
    input.version(VERSION)?;
    let columns = read_columns(tenant, input, intern)?;
    read_rest(input, intern)?.with_columns(columns)
}

/// Reads what [`write_columns`] appends.
pub(super) fn read_columns(
    tenant: Name,
    input: &mut Input<'_>,
    intern: &mut Intern<'_>,
) -> Result<SpecColumns, StoreError> {
    let priority = i32::try_from(input.i64()?).map_err(|_| input.damaged("a priority is too large"))?;
    let cost = input.u32()?;
    let (kind, agent, lane) = (intern(input.text()?)?, intern(input.text()?)?, intern(input.text()?)?);
    let session = match input.text()? {
        "" => None,
        key => Some(intern(key)?),
    };
    Ok(SpecColumns { tenant, kind, agent, lane, session, priority, cost })
}
