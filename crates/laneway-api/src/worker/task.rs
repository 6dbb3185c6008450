//! Converts a job to a `cmd.dispatch`.

use laneway_core::worker::{self, AffinityMode};
use laneway_core::{Bytes, JobSpec, Name, Wall};
use laneway_runtime::WorkerTask;
use laneway_wire::frame::{self, Constraints, Dispatch, JsonObject, List, Text, Timestamp};
use serde_json::value::RawValue;

use super::chain::ChainPosition;
use super::dispatch::task_id;

/// The key by which jobs also exclude one another on workers.
pub const CONCURRENCY_KEY: &str = "concurrency_key";
/// The package of a job without one: the worker's own handlers.
pub const NO_PACKAGE: (&str, &str) = ("builtin", "0");

/// The payload of the frame. `None` when the job's payload is not JSON.
pub fn dispatch_of(task: &WorkerTask) -> Option<Dispatch> {
    let work = &task.work;
    let spec = &work.row.spec;
    let placement = spec.placement.as_deref();
    let package = placement.and_then(|placement| placement.package.as_ref());
    let (package_name, package_version) = match package {
        Some(package) => (text(&package.name), text(&package.version)),
        None => (Text::fixed(NO_PACKAGE.0), Text::fixed(NO_PACKAGE.1)),
    };
    let id = task_id(task.task);
    // A single job is a run with one node.
    let (run_id, node_id) = match spec.member.as_deref() {
        Some(member) => (Text::fixed(&member.run.to_string()), text(&member.node)),
        None => (id.clone(), id.clone()),
    };
    let position = ChainPosition::of(spec);
    Some(Dispatch {
        run_id,
        task_id: id,
        node_id,
        node_type: text(&spec.kind),
        package_name,
        package_version,
        parameters: parameters(&work.payload, &work.merged)?,
        constraints: Constraints { timeout_ms: work.timeout.map(|timeout| timeout.0).filter(|ms| *ms > 0) },
        priority: (spec.priority != 0).then_some(spec.priority),
        host_node_id: position.as_ref().map(ChainPosition::host),
        middleware_chain: position.as_ref().map(ChainPosition::chain),
        chain_index: position.as_ref().and_then(|position| position.index),
        concurrency_key: concurrency_key(spec),
        resource_refs: placement.map(|placement| refs(&placement.resources)).filter(|refs| !refs.is_empty()),
        affinity: placement.and_then(|placement| placement.affinity.as_ref()).map(affinity),
        traceparent: work.trace.as_ref().map(|trace| Text::fixed(&trace.parent())),
        tracestate: work.trace.as_ref().and_then(|trace| trace.state.as_deref()).map(Text::fixed),
    })
}

/// The input of the handler: the payload if it is an object, else the payload as `value`. The payloads of merged jobs
/// are a list, in their order.
fn parameters(payload: &Bytes, merged: &[Bytes]) -> Option<JsonObject> {
    let raw = |payload: &Bytes| {
        let json =
            if payload.is_empty() { "{}".to_owned() } else { std::str::from_utf8(payload).ok()?.to_owned() };
        RawValue::from_string(json).ok()
    };
    let own = raw(payload)?;
    if merged.is_empty() {
        return match JsonObject::from_raw(own.clone()) {
            Ok(object) => Some(object),
            Err(_) => JsonObject::of(&serde_json::json!({"value": own})).ok(),
        };
    }
    let all: Option<Vec<_>> = std::iter::once(Some(own)).chain(merged.iter().map(raw)).collect();
    JsonObject::of(&serde_json::json!({"payloads": all?})).ok()
}

fn concurrency_key(spec: &JobSpec) -> Option<Text> {
    let own = spec.keys.iter().find(|key| key.name.as_str() == CONCURRENCY_KEY).map(|key| text(&key.value));
    let of_node =
        || spec.member.as_deref().map(|member| Text::fixed(&format!("{}:{}", member.run, member.node)));
    own.or_else(of_node)
}

fn refs(resources: &[worker::ResourceRef]) -> List<frame::ResourceRef, 0, { frame::RESOURCE_REFS_MAX }> {
    let refs = resources.iter().map(|resource| frame::ResourceRef {
        resource_id: text(&resource.id),
        worker_id: text(&resource.worker),
        r#type: text(&resource.sort),
        scope: resource.scope.as_ref().map(text),
        expires_at: resource.expires_at.and_then(timestamp),
        metadata: None,
    });
    List::new(refs.collect()).unwrap_or_default()
}

fn affinity(affinity: &worker::Affinity) -> frame::Affinity {
    frame::Affinity {
        key: text(&affinity.key),
        mode: Some(match affinity.mode {
            AffinityMode::Sticky => frame::AffinityMode::Sticky,
            AffinityMode::Preferred => frame::AffinityMode::Preferred,
        }),
        expires_at: affinity.expires_at.and_then(timestamp),
    }
}

/// The limit of names is below the limit of texts.
fn text(name: &Name) -> Text {
    Text::fixed(name.as_str())
}

fn timestamp(at: Wall) -> Option<Timestamp> {
    jiff::Timestamp::from_millisecond(at.0).ok().map(Timestamp)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(text: &str) -> Bytes {
        text.as_bytes().into()
    }

    #[test]
    fn parameters_are_always_an_object() {
        let shown = |payload: &str| parameters(&bytes(payload), &[]).map(|object| object.get().to_owned());
        assert_eq!(shown(r#"{"a": 1}"#).as_deref(), Some(r#"{"a": 1}"#));
        assert_eq!(shown("[1]").as_deref(), Some(r#"{"value":[1]}"#));
        assert_eq!(shown("").as_deref(), Some("{}"));
        assert_eq!(shown("no json"), None);
        let merged = parameters(&bytes("1"), &[bytes("2"), bytes("{}")]).unwrap();
        assert_eq!(merged.get(), r#"{"payloads":[1,2,{}]}"#);
    }
}
