//! Frames by which the scheduler tells a worker what to do: run a task, stop one, take no more.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::text::{self, JsonObject, List, Text, Timestamp};

/// Most resources that one task refers to.
pub const RESOURCE_REFS_MAX: usize = 64;
/// Most middlewares of one host.
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
    /// What sort of work it is; selects the handler.
    pub node_type: Text,
    /// The package that the handler comes from.
    pub package_name: Text,
    /// That package's version.
    pub package_version: Text,
    /// What the handler gets.
    pub parameters: JsonObject,
    /// What the run must keep to.
    #[serde(deserialize_with = "text::object")]
    pub constraints: Constraints,
    /// Lower runs sooner; a worker may use it to order what it holds.
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
    /// Which middleware of the chain this task is; absent or `null` for the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chain_index: Option<u32>,
    /// Tasks with the same key never run at the same time.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::present")]
    #[schemars(with = "Text")]
    pub concurrency_key: Option<Text>,
    /// What must be on the worker already.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::present_objects")]
    #[schemars(with = "List<ResourceRef, 0, RESOURCE_REFS_MAX>")]
    pub resource_refs: Option<List<ResourceRef, 0, RESOURCE_REFS_MAX>>,
    /// Where the task would rather run.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::present_object")]
    #[schemars(with = "Affinity")]
    pub affinity: Option<Affinity>,
}

impl Dispatch {
    /// Why the middleware fields contradict one another, if they do: the field, and what is wrong with it.
    pub fn middleware_error(&self) -> Option<(&'static str, &'static str)> {
        let Some(chain) = self.middleware_chain.as_deref().filter(|chain| !chain.is_empty()) else {
            let alone = self.chain_index.map(|_| ("chain_index", "stands without a `middleware_chain`"));
            return alone;
        };
        let Some(host) = &self.host_node_id else {
            return Some(("host_node_id", "is missing beside a `middleware_chain`"));
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

/// What a run must keep to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Constraints {
    /// How long it may take.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "at_least_one_ms")]
    #[schemars(with = "u64", range(min = 1))]
    pub timeout_ms: Option<u64>,
}

/// Something that must be on the worker already.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ResourceRef {
    /// Which one.
    pub resource_id: Text,
    /// The worker that has it.
    pub worker_id: Text,
    /// What sort of thing it is.
    pub r#type: Text,
    /// How long it lives: `run` or `session`.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::present")]
    #[schemars(with = "Text")]
    pub scope: Option<Text>,
    /// When it is gone.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::present")]
    #[schemars(with = "Timestamp")]
    pub expires_at: Option<Timestamp>,
    /// Whatever else is known of it.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::present")]
    #[schemars(with = "JsonObject")]
    pub metadata: Option<JsonObject>,
}

/// Where a task would rather run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Affinity {
    /// Tasks with the same key want the same worker.
    pub key: Text,
    /// How much they want it.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::present")]
    #[schemars(with = "AffinityMode")]
    pub mode: Option<AffinityMode>,
    /// When the wish ends.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::present")]
    #[schemars(with = "Timestamp")]
    pub expires_at: Option<Timestamp>,
}

/// How much a task wants its worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AffinityMode {
    /// It waits for that worker.
    Sticky,
    /// It takes another one where that one is busy.
    Preferred,
}

/// Stop this task.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Cancel {
    /// The run that the task is part of.
    pub run_id: Text,
    /// The task; the envelope's `seq` names the attempt, without one every attempt is meant.
    pub task_id: Text,
    /// Why, for people.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::present")]
    #[schemars(with = "String")]
    pub reason: Option<String>,
}

/// Take no more tasks, finish those that run, then close.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Drain {
    /// Why, for people.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "text::present")]
    #[schemars(with = "String")]
    pub reason: Option<String>,
    /// How long what runs may still take; then it is stopped. Absent: as long as the worker allows.
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
