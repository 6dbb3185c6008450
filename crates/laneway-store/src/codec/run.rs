//! The part of a run's row that no list filters by, and the membership of a job in a run.

use laneway_core::{Binding, Chain, FailurePolicy, MemberOf, Name, RunId, RunRow, RunSpec};

use super::{Input, put_bytes, put_name, put_names, put_u64};
use crate::StoreError;

const VERSION: u8 = 1;

// One bit for each part that may be missing.
const NAME: u64 = 1 << 0;
const CLIENT: u64 = 1 << 1;
const ALL: u64 = (1 << 2) - 1;

/// What [`read_run`] gives back: the fields of a [`RunRow`] that have no column of their own.
#[derive(Debug)]
pub(crate) struct RunRest {
    pub submitted_by: Name,
    pub failure: FailurePolicy,
    pub name: Option<Name>,
    pub client: Option<Name>,
    pub tags: Vec<Name>,
    pub nodes: Vec<Name>,
}

/// Appends the form of `row` to `out`.
pub(crate) fn write_run(out: &mut Vec<u8>, row: &RunRow) {
    // Parts with an underscore have columns of their own.
    let RunRow { first: _, id: _, spec, nodes, created_at: _, submitted_by, state: _, finished_at: _ } = row;
    let RunSpec { tenant: _, name, lane: _, failure, client, idempotency: _, tags } = spec;
    let flag = |present: bool, bit: u64| if present { bit } else { 0 };
    out.push(VERSION);
    put_u64(out, flag(name.is_some(), NAME) | flag(client.is_some(), CLIENT));
    put_name(out, submitted_by);
    out.push(failure.code());
    for name in [name, client].into_iter().flatten() {
        put_name(out, name);
    }
    put_names(out, tags);
    put_names(out, nodes);
}

/// Reads a form back.
pub(crate) fn read_run(bytes: &[u8]) -> Result<RunRest, StoreError> {
    let mut input = Input::new("the spec of a run", bytes);
    let rest = read_run_part(&mut input)?;
    input.end()?;
    Ok(rest)
}

/// Reads a form back that other parts may follow.
pub(super) fn read_run_part(input: &mut Input<'_>) -> Result<RunRest, StoreError> {
    input.version(VERSION)?;
    let flags = input.u64()?;
    if flags & !ALL != 0 {
        return Err(input.damaged("it has parts that this program does not know"));
    }
    let has = |bit: u64| flags & bit != 0;
    let submitted_by = input.name()?;
    let failure = FailurePolicy::from_code(input.u8()?);
    // Evaluated in the order in which the parts are written.
    Ok(RunRest {
        submitted_by,
        failure: failure.ok_or_else(|| input.damaged("there is no such failure policy"))?,
        name: has(NAME).then(|| input.name()).transpose()?,
        client: has(CLIENT).then(|| input.name()).transpose()?,
        tags: read_names(input)?,
        nodes: read_names(input)?,
    })
}

/// Appends the form of `member` to `out`.
pub(super) fn write_member(out: &mut Vec<u8>, member: &MemberOf) {
    let MemberOf { run, node, depends_on, bindings, chain, group, within } = member;
    out.extend_from_slice(&run.0.to_be_bytes());
    put_name(out, node);
    put_names(out, depends_on);
    put_u64(out, bindings.len() as u64);
    for Binding { from, source, target } in bindings {
        put_name(out, from);
        put_bytes(out, source.as_bytes());
        put_bytes(out, target.as_bytes());
    }
    // 0: no chain, 1: the host of one, 2 and more: a middleware and its position.
    match chain {
        None => out.push(0),
        Some(Chain { host, middlewares, index }) => {
            put_u64(out, index.map_or(1, |index| u64::from(index) + 2));
            put_name(out, host);
            put_names(out, middlewares);
        }
    }
    out.push(u8::from(*group));
    put_names(out, within.as_slice());
}

/// Reads a form back.
pub(super) fn read_member(input: &mut Input<'_>) -> Result<MemberOf, StoreError> {
    let run = RunId(u128::from_be_bytes(input.array()?));
    let (node, depends_on) = (input.name()?, read_names(input)?);
    let bindings = input.list(|input| {
        Ok(Binding { from: input.name()?, source: input.text()?.into(), target: input.text()?.into() })
    })?;
    let chain = match input.u64()? {
        0 => None,
        position => {
            let index = position.checked_sub(2).map(u32::try_from).transpose();
            let index = index.map_err(|_| input.damaged("a position in a chain is too large"))?;
            Some(Chain { host: input.name()?, middlewares: read_names(input)?, index })
        }
    };
    let (group, within) = (input.u8()? != 0, read_names(input)?.pop());
    Ok(MemberOf { run, node, depends_on, bindings, chain, group, within })
}

fn read_names(input: &mut Input<'_>) -> Result<Vec<Name>, StoreError> {
    input.list(Input::name)
}
