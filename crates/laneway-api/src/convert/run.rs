//! Converts the request for a run.

use laneway_core::job::IdempotencyKey;
use laneway_core::{Binding, Bytes, Chain, FailurePolicy, Member, Name, RunId, RunSpec, Settings};
use laneway_wire::{NodeBinding, NodeChain, NodeRequest, RunRequest};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use super::{DefaultNames, name, optional_name, spec_with, tags};
use crate::error::{ApiError, Code};

/// A run's id from a path or a parameter.
pub fn run_id(text: &str) -> Result<RunId, ApiError> {
    RunId::parse(text).ok_or_else(|| {
        let detail =
            "a run id looks like run_0190a5b0-7c1e-7d3a-8f00-3b1d5e6f7a80; the response to the submit has it";
        ApiError::new(Code::InvalidId, detail)
    })
}

/// Converts a request to the spec of a run of `tenant`, without its nodes.
pub fn run_spec(request: &RunRequest<'_>, tenant: &Name, names: &DefaultNames) -> Result<RunSpec, ApiError> {
    let failure = match request.failure.as_deref() {
        None => FailurePolicy::default(),
        Some(text) => FailurePolicy::parse(text)
            .ok_or_else(|| ApiError::field("failure", "must be stop or continue"))?,
    };
    Ok(RunSpec {
        tenant: tenant.clone(),
        name: optional_name("name", &request.name)?,
        lane: optional_name("lane", &request.lane)?.unwrap_or_else(|| names.lane.clone()),
        failure,
        client: optional_name("client", &request.client)?,
        idempotency: idempotency(request)?,
        tags: request.tags.as_deref().map(tags).transpose()?.unwrap_or_default(),
    })
}

/// Converts a node. Its job runs in the run's lane unless it names one.
pub fn run_member(
    request: &NodeRequest<'_>,
    run: &RunSpec,
    settings: &Settings,
    names: &DefaultNames,
) -> Result<Member, ApiError> {
    let node = name("node", &request.node)?;
    let spec = spec_with(&request.job, &run.tenant, settings, names, &run.lane, &settings.retry)
        .map_err(|error| error.within("job"))?;
    let depends_on = request.depends_on.iter().map(|node| name("depends_on", node));
    let binding = |binding: &NodeBinding<'_>| {
        Ok(Binding {
            from: name("bindings", &binding.from)?,
            source: binding.source.as_ref().into(),
            target: binding.target.as_ref().into(),
        })
    };
    let payload: Bytes = request.job.payload.map_or("null", RawValue::get).as_bytes().into();
    Ok(Member {
        node,
        spec,
        payload,
        depends_on: depends_on.collect::<Result<_, _>>()?,
        bindings: request.bindings.iter().map(binding).collect::<Result<_, ApiError>>()?,
        chain: request.middleware.as_ref().map(chain).transpose()?,
        group: request.group,
        within: optional_name("within", &request.within)?,
    })
}

fn chain(request: &NodeChain<'_>) -> Result<Chain, ApiError> {
    Ok(Chain {
        host: name("middleware.host", &request.host)?,
        middlewares: request
            .chain
            .iter()
            .map(|node| name("middleware.chain", node))
            .collect::<Result<_, _>>()?,
        index: request.index,
    })
}

/// The idempotency key, with a digest of the rest of the request, without traces.
fn idempotency(request: &RunRequest<'_>) -> Result<Option<IdempotencyKey>, ApiError> {
    let Some(text) = &request.idempotency_key else { return Ok(None) };
    let key = name("idempotency_key", text)?;
    let mut asked = request.clone();
    asked.idempotency_key = None;
    for node in &mut asked.nodes {
        (node.job.traceparent, node.job.tracestate) = (None, None);
    }
    let bytes = serde_json::to_vec(&asked).map_err(ApiError::internal)?;
    Ok(Some(IdempotencyKey { key, digest: Sha256::digest(&bytes).into() }))
}
