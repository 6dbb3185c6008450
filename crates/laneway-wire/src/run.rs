//! Runs: the request that submits one, and the run as the server shows it.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Job, JobRequest, object};

/// The largest number of nodes in a request. `runs.nodes_max` is never above it.
pub const RUN_NODES_MAX: usize = 10_000;

/// A run to submit: jobs that depend on one another. Only `nodes` is required.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RunRequest<'a> {
    /// Its name, for people.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub name: Option<Cow<'a, str>>,
    /// The lane of the jobs that name none. Its retention applies to the run. Defaults to `main`.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub lane: Option<Cow<'a, str>>,
    /// What happens when a node fails: `stop` (the other nodes are canceled) or `continue` (only the nodes that
    /// depend on it are). Defaults to `stop`.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "continue")]
    pub failure: Option<Cow<'a, str>>,
    /// The name of the client, chosen by the client.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub client: Option<Cow<'a, str>>,
    /// The client's own name for this request. A second request with the same key returns the first run. The header
    /// `Idempotency-Key` has the same meaning. Keys of runs and keys of jobs are separate.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<Cow<'a, str>>,
    /// Free labels, at most 16.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub tags: Option<Vec<Cow<'a, str>>>,
    /// The nodes.
    #[serde(borrow, deserialize_with = "object::up_to::<_, _, RUN_NODES_MAX>")]
    pub nodes: Vec<NodeRequest<'a>>,
}

/// A node of a run to submit.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NodeRequest<'a> {
    /// Its name, unique within the run.
    #[serde(borrow)]
    pub node: Cow<'a, str>,
    /// Its job. The job of a node has no session and no idempotency key.
    #[serde(borrow)]
    pub job: JobRequest<'a>,
    /// The nodes that must succeed before it starts.
    #[serde(borrow, default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<Cow<'a, str>>,
    /// The sources of parts of its payload.
    #[serde(borrow, default, skip_serializing_if = "Vec::is_empty")]
    pub bindings: Vec<NodeBinding<'a>>,
    /// Its position in a middleware chain. Every node of a chain names the whole chain.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "object::optional")]
    pub middleware: Option<NodeChain<'a>>,
    /// True for a group. It runs nothing, gets no payload, and succeeds when all nodes in it have succeeded.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub group: bool,
    /// The group that contains it. The node starts when the group may start, and is canceled with the group.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub within: Option<Cow<'a, str>>,
}

/// The position of a node in a middleware chain.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NodeChain<'a> {
    /// The node that the chain wraps. It starts only when the last middleware calls it.
    pub host: Cow<'a, str>,
    /// The middlewares, the outermost first.
    pub chain: Vec<Cow<'a, str>>,
    /// The index of the node in the chain, from 0. Absent for the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<u32>,
}

/// Data that goes from one node to another. When the source does not exist, nothing is written.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NodeBinding<'a> {
    /// The node that the data comes from. This node must depend on it, directly or through others.
    #[serde(borrow)]
    pub from: Cow<'a, str>,
    /// A JSON pointer that begins with `/results` (the node's result) or `/parameters` (its payload).
    #[serde(borrow)]
    #[schema(example = "/results/rows/0")]
    pub source: Cow<'a, str>,
    /// A JSON pointer that begins with `/parameters`: the target in this node's payload.
    #[serde(borrow)]
    #[schema(example = "/parameters/row")]
    pub target: Cow<'a, str>,
}

/// A run. Fields without a value are omitted.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Run<'a> {
    /// Its id.
    #[schema(example = "run_0190a5b0-7c1e-7d3a-8f00-3b1d5e6f7a80")]
    pub id: Cow<'a, str>,
    /// `queued`, `running`, `succeeded`, `failed` or `canceled`, derived from its jobs.
    pub state: Cow<'a, str>,
    /// Its name, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<Cow<'a, str>>,
    /// The lane whose retention applies to it.
    pub lane: Cow<'a, str>,
    /// What happens when a node fails: `stop` or `continue`.
    pub failure: Cow<'a, str>,
    /// The name of the client.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<Cow<'a, str>>,
    /// Free labels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<Cow<'a, str>>,
    /// The tenant that may see it.
    pub tenant: Cow<'a, str>,
    /// When it was submitted.
    pub created_at: Cow<'a, str>,
    /// When its last job ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Cow<'a, str>>,
    /// The caller that submitted it: a token's id, or `open` on a server without tokens.
    pub submitted_by: Cow<'a, str>,
    /// The number of its nodes.
    pub node_count: usize,
    /// The first failure. Not in lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<RunError>,
    /// Its nodes with their jobs. Not in lists.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<RunNode<'a>>,
    /// True when an equal earlier request created this run. Only in responses to a submit.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub existing: bool,
}

/// A node of a run and its job.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct RunNode<'a> {
    /// Its name.
    pub node: Cow<'a, str>,
    /// The nodes that must succeed before it starts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<Cow<'a, str>>,
    /// Its position in a middleware chain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub middleware: Option<NodeChain<'a>>,
    /// True for a group.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub group: bool,
    /// The group that contains it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<Cow<'a, str>>,
    /// The number of its open attempt within the run: 1, 2, 3, … over all nodes. Absent while none is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dispatch_seq: Option<u64>,
    /// Its job, with result or error once it has ended.
    pub job: Job<'a>,
}

/// Why a run failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RunError {
    /// The node that failed first.
    pub node: String,
    /// A code for programs: the code of the failure, or the reason of the job's end.
    pub code: String,
    /// A sentence for people.
    pub message: String,
}

/// Runs, newest first.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct RunList<'a> {
    /// A page of runs. It may be short or empty although there is a `next`.
    pub runs: Vec<Run<'a>>,
    /// Pass it as `cursor`, with the same filters, for the next page. Absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}
