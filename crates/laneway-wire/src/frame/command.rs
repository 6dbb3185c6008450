//! Frames with commands of the scheduler: run a task, stop a task, drain.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::text::{self, JsonObject, List, Text, Timestamp};

/// The largest number of resources of a task.
pub const RESOURCE_REFS_MAX: usize = 64;
/// The largest number of middlewares of a host.
pub const MIDDLEWARES_MAX: usize = 64;

/// Run this task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Dispatch {
    /// The run that the task is part of.
    pub run_id: Text,
    /// The task; with the envelope's `seq` it names one attempt.
    pub task_id: Text,
    /// The node of the workflow.
    pub node_id: Text,
    /// The type of the job. It selects the handler.
    pub node_type: Text,
    /// The package that the handler comes from.
    pub package_name: Text,
    /// That package's version.
    pub package_version: Text,
    /// The input of the handler.
    pub parameters: JsonObject,
    /// The limits of the attempt.
    #[serde(deserialize_with = "text::object")]
    pub constraints: Constraints,
    /// A lower number runs sooner. A worker may use it to order its tasks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<i32>,
    /// The node that the middleware chain belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::present")]
    #[schemars(with = "Text")]
    pub host_node_id: Option<Text>,
    /// The middlewares of the host, outermost first.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::present")]
    #[schemars(with = "List<Text, 0, MIDDLEWARES_MAX>")]
    pub middleware_chain: Option<List<Text, 0, MIDDLEWARES_MAX>>,
    /// The index of this task in the chain. Absent or `null` for the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chain_index: Option<u32>,
    /// Tasks with the same key never run at the same time.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::present")]
    #[schemars(with = "Text")]
    pub concurrency_key: Option<Text>,
    /// Resources that must be on the worker.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::present_objects")]
    #[schemars(with = "List<ResourceRef, 0, RESOURCE_REFS_MAX>")]
    pub resource_refs: Option<List<ResourceRef, 0, RESOURCE_REFS_MAX>>,
    /// The preferred worker of the task.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::present_object")]
    #[schemars(with = "Affinity")]
    pub affinity: Option<Affinity>,
    /// The place of the attempt in its trace (W3C Trace Context), for calls that the handler makes.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::present")]
    #[schemars(with = "Text")]
    pub traceparent: Option<Text>,
    /// The `tracestate` that belongs to `traceparent`.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::present")]
    #[schemars(with = "Text")]
    pub tracestate: Option<Text>,
}

impl Dispatch {
    /// The contradiction between the middleware fields, if there is one: the field, and what is wrong with it.
    pub fn middleware_error(&self) -> Option<(&'static str, &'static str)> {
        let Some(chain) = self.middleware_chain.as_deref().filter(|chain| !chain.is_empty()) else {
            let alone = self.chain_index.map(|_| ("chain_index", "is set without a `middleware_chain`"));
            return alone;
        };
        let Some(host) = &self.host_node_id else {
            return Some(("host_node_id", "is missing; a `middleware_chain` requires it"));
        };
        match self.chain_index {
            None if *host == self.node_id => None,
            None => Some(("chain_index", "is missing for a middleware")),
            Some(_) if *host == self.node_id => Some(("chain_index", "must be absent for the host")),
            Some(index) => match chain.get(index as usize) {
                Some(node) if *node == self.node_id => None,
                Some(_) => Some(("chain_index", "does not name this node in the `middleware_chain`")),
                None => Some(("chain_index", "is beyond the end of the `middleware_chain`")),
            },
        }
    }
}

/// The limits of an attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Constraints {
    /// How long it may run.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "at_least_one_ms")]
    #[schemars(with = "u64", range(min = 1))]
    pub timeout_ms: Option<u64>,
}

/// A resource that must be on the worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ResourceRef {
    /// Its id.
    pub resource_id: Text,
    /// The worker that has it.
    pub worker_id: Text,
    /// The type of the resource.
    pub r#type: Text,
    /// How long it is kept: `run` or `session`.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::present")]
    #[schemars(with = "Text")]
    pub scope: Option<Text>,
    /// When it expires.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::present")]
    #[schemars(with = "Timestamp")]
    pub expires_at: Option<Timestamp>,
    /// Further metadata.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::present")]
    #[schemars(with = "JsonObject")]
    pub metadata: Option<JsonObject>,
}

/// The preferred worker of a task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Affinity {
    /// Tasks with the same key go to the same worker.
    pub key: Text,
    /// Whether another worker may run the task.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::present")]
    #[schemars(with = "AffinityMode")]
    pub mode: Option<AffinityMode>,
    /// When the affinity ends.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::present")]
    #[schemars(with = "Timestamp")]
    pub expires_at: Option<Timestamp>,
}

/// Whether another worker may run a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AffinityMode {
    /// The task waits for that worker.
    Sticky,
    /// Another worker runs the task when that worker is busy.
    Preferred,
}

/// Stop this task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Cancel {
    /// The run that the task is part of.
    pub run_id: Text,
    /// The task. The envelope's `seq` names the attempt; without it, every attempt is meant.
    pub task_id: Text,
    /// The reason, for people.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::present")]
    #[schemars(with = "String")]
    pub reason: Option<String>,
}

/// Accept no more tasks, finish the running ones, then close the connection.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Drain {
    /// The reason, for people.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::present")]
    #[schemars(with = "String")]
    pub reason: Option<String>,
    /// How long running tasks may take before they are stopped. Absent: as long as the worker allows.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "at_least_one_ms")]
    #[schemars(with = "u64", range(min = 1))]
    pub limit_ms: Option<u64>,
}

fn at_least_one_ms<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    match u64::deserialize(deserializer)? {
        0 => Err(serde::de::Error::custom("must be at least 1")),
        number => Ok(Some(number)),
    }
}
