//! Sample dispatches for tests.

use laneway_wire::frame::{Constraints, Dispatch, JsonObject, Text};

/// A plain dispatch.
pub(crate) fn dispatch(task_id: &str, kind: &str) -> Dispatch {
    Dispatch {
        run_id: Text::fixed("r1"),
        task_id: Text::fixed(task_id),
        node_id: Text::fixed("n1"),
        node_type: Text::fixed(kind),
        package_name: Text::fixed("builtin"),
        package_version: Text::fixed("1"),
        parameters: JsonObject::empty(),
        constraints: Constraints::default(),
        priority: None,
        host_node_id: None,
        middleware_chain: None,
        chain_index: None,
        concurrency_key: None,
        resource_refs: None,
        affinity: None,
        traceparent: None,
        tracestate: None,
    }
}
