//! Runs: what a client sends to submit one, and how the server shows it.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Job, JobRequest, object};

/// Most nodes of a run that a request may hold; `runs.nodes_max` is never above it.
pub const RUN_NODES_MAX: usize = 10_000;

/// A run to submit: jobs that depend on one another. Only `nodes` is required.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RunRequest<'a> {
    /// What people call it.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub name: Option<Cow<'a, str>>,
    /// The lane of its jobs that name none, and whose retention it is kept by. Defaults to `main`.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub lane: Option<Cow<'a, str>>,
    /// What a failed node means for the others: `stop` (they are canceled) or `continue` (only those that wait for it are).
    /// Defaults to `stop`.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    #[schema(example = "continue")]
    pub failure: Option<Cow<'a, str>>,
    /// The client that asks, by a name of its own choice.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub client: Option<Cow<'a, str>>,
    /// The client's own name for this request: sent again, it returns the first run. The header `Idempotency-Key` says
    /// the same. Keys of runs and keys of jobs are apart.
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
    /// Its job. Sessions and idempotency keys are not for nodes.
    #[serde(borrow)]
    pub job: JobRequest<'a>,
    /// Nodes that must have succeeded before it may start.
    #[serde(borrow, default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<Cow<'a, str>>,
    /// Where parts of its payload come from.
    #[serde(borrow, default, skip_serializing_if = "Vec::is_empty")]
    pub bindings: Vec<NodeBinding<'a>>,
    /// Its place in a middleware chain. Every node of a chain names all of it.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "object::optional")]
    pub middleware: Option<NodeChain<'a>>,
    /// True for a group: it runs nothing and gets no payload, and succeeds when all nodes in it have.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub group: bool,
    /// The group that it is in. It starts when the group may, and is canceled when the group is.
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub within: Option<Cow<'a, str>>,
}

/// A node's place in a middleware chain.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NodeChain<'a> {
    /// The node that the chain is around. It starts only when the last middleware calls it.
    pub host: Cow<'a, str>,
    /// The middlewares, the outermost first.
    pub chain: Vec<Cow<'a, str>>,
    /// Which of them the node is, from 0; absent for the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<u32>,
}

/// Data that goes from one node to another. Where the source is not there, nothing is written.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NodeBinding<'a> {
    /// The node that it comes from; this one depends on it, itself or through others.
    #[serde(borrow)]
    pub from: Cow<'a, str>,
    /// A JSON pointer that begins with `/results` (what the node gave back) or `/parameters` (what it got).
    #[serde(borrow)]
    #[schema(example = "/results/rows/0")]
    pub source: Cow<'a, str>,
    /// A JSON pointer that begins with `/parameters`: where in this node's payload it goes.
    #[serde(borrow)]
    #[schema(example = "/parameters/row")]
    pub target: Cow<'a, str>,
}

/// A run. Fields without a value are left out.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Run<'a> {
    /// Its id.
    #[schema(example = "run_0190a5b0-7c1e-7d3a-8f00-3b1d5e6f7a80")]
    pub id: Cow<'a, str>,
    /// `queued`, `running`, `succeeded`, `failed` or `canceled`: rolled up from its jobs.
    pub state: Cow<'a, str>,
    /// What people call it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<Cow<'a, str>>,
    /// The lane whose retention it is kept by.
    pub lane: Cow<'a, str>,
    /// What a failed node means for the others: `stop` or `continue`.
    pub failure: Cow<'a, str>,
    /// The client that asked.
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
    /// Who submitted it: a token's id, or `open` where the server asks for no token.
    pub submitted_by: Cow<'a, str>,
    /// How many nodes it has.
    pub node_count: usize,
    /// The failure that came first. Not in lists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<RunError>,
    /// Its nodes with their jobs. Not in lists.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<RunNode<'a>>,
    /// True when this answer names a run that an equal request made earlier. Only in answers to a submit.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub existing: bool,
}

/// A node of a run and its job.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct RunNode<'a> {
    /// Its name.
    pub node: Cow<'a, str>,
    /// Nodes that must have succeeded before it may start.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<Cow<'a, str>>,
    /// Its place in a middleware chain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub middleware: Option<NodeChain<'a>>,
    /// True for a group.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub group: bool,
    /// The group that it is in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<Cow<'a, str>>,
    /// Which attempt of the run its open attempt is: 1, 2, 3, … over all nodes. Absent while none is open.
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
    /// Why, in a word for programs: the code of its failure, or the reason of its end.
    pub code: String,
    /// A sentence for people.
    pub message: String,
}

/// Runs, newest first.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct RunList<'a> {
    /// A page of runs. It may be short, or empty, while there is still a `next`.
    pub runs: Vec<Run<'a>>,
    /// Pass it as `cursor`, with the same filters, for the next page. Absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}
