//! Parses workflows and makes runs of them: nodes become jobs, edges become dependencies and bindings.
//!
//! Only the form is checked here: the type of each field, and that every name in an edge exists. The engine
//! checks cycles, sizes and limits.

use jiff::Timestamp;
use laneway_core::call::{CHAIN_MAX, Chain};
use laneway_core::job::IdempotencyKey;
use laneway_core::worker::{Affinity, AffinityMode, Package, ResourceRef};
use laneway_core::{
    Bytes, JobSpec, Member, Name, Placement, RetryPolicy, RunSpec, RunSubmission, Settings, Wall,
};
use laneway_runtime::Caller;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::canonical::{digest, hex};
use super::error::Problem;
use super::frames::Frame;
use super::{LANE, layout};

/// The type of a node that contains a subgraph.
const CONTAINER: &str = "workflow.container";
/// Longest idempotency key, in characters.
const KEY_LEN_MAX: usize = 64;
/// The prefix of a run's tag with the hash of its workflow.
const HASH_TAG: &str = "sha256:";

/// The body of a start request.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct StartRequest<'a> {
    #[serde(borrow)]
    workflow: Option<&'a RawValue>,
    client_id: Option<String>,
}

/// A workflow, as far as the scheduler uses it. Fields of the editor are ignored, and kept in the definition.
#[derive(Deserialize)]
pub struct Workflow {
    /// Its id.
    pub id: Option<String>,
    /// Its title.
    pub metadata: Option<Metadata>,
    /// Its nodes.
    pub nodes: Vec<Node>,
    /// Its edges.
    #[serde(default)]
    pub edges: Vec<Edge>,
    /// The subgraphs of containers.
    #[serde(default)]
    pub subgraphs: Option<Vec<Subgraph>>,
}

/// A subgraph of containers.
#[derive(Deserialize)]
pub struct Subgraph {
    /// Its id, as containers name it.
    pub id: String,
    /// The workflow.
    pub definition: Workflow,
}

/// The visible part of a workflow's metadata.
#[derive(Deserialize)]
pub struct Metadata {
    /// Its name.
    pub name: Option<String>,
}

/// A node, or a middleware of one.
#[derive(Deserialize)]
pub struct Node {
    /// Its id, unique within the workflow.
    pub id: String,
    /// Its type, the kind of its job.
    pub r#type: String,
    role: Option<String>,
    package: Option<NodePackage>,
    parameters: Option<Box<RawValue>>,
    /// Its ports.
    pub ui: Option<Ui>,
    /// Its middlewares, the outermost first.
    #[serde(default)]
    pub middlewares: Vec<Node>,
    /// Resources on a worker that it uses.
    #[serde(rename = "resourceRefs", alias = "resource_refs")]
    resource_refs: Option<Vec<NodeResource>>,
    /// Its affinity.
    affinity: Option<NodeAffinity>,
}

/// A resource on a worker, with the field names of the run view or of the worker protocol.
#[derive(Deserialize)]
struct NodeResource {
    #[serde(rename = "resourceId", alias = "resource_id")]
    resource_id: String,
    #[serde(rename = "workerId", alias = "worker_id")]
    worker_id: String,
    r#type: String,
    scope: Option<String>,
    #[serde(rename = "expiresAt", alias = "expires_at")]
    expires_at: Option<String>,
}

/// The affinity of a node.
#[derive(Deserialize)]
struct NodeAffinity {
    key: String,
    mode: Option<String>,
    #[serde(rename = "expiresAt", alias = "expires_at")]
    expires_at: Option<String>,
}

#[derive(Deserialize)]
struct NodePackage {
    name: Option<String>,
    version: Option<String>,
}

/// The ports of a node.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ui {
    /// The ports for input.
    #[serde(default)]
    pub input_ports: Vec<Port>,
    /// The ports for output.
    #[serde(default)]
    pub output_ports: Vec<Port>,
}

/// A port.
#[derive(Deserialize)]
pub struct Port {
    /// Its name at the node.
    pub key: String,
    /// What it is bound to.
    pub binding: Option<PortBinding>,
}

/// What a port is bound to.
#[derive(Deserialize)]
pub struct PortBinding {
    /// A position in the node's parameters or results.
    pub path: String,
    /// Another node that holds the position: `@subgraph.#node`, `#node`.
    pub prefix: Option<String>,
    /// The same, parsed.
    pub scope: Option<BindingScope>,
}

/// The node that a binding refers to.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BindingScope {
    /// `local` or `subgraph`.
    pub kind: Option<String>,
    /// The subgraphs on the path.
    pub subgraph_aliases: Option<Vec<String>>,
    /// The node.
    pub node_id: Option<String>,
    /// The path as it was written.
    pub prefix: Option<String>,
}

/// An edge from a port to a port.
#[derive(Deserialize)]
pub struct Edge {
    /// Its source.
    pub source: EdgeEnd,
    /// Its target.
    pub target: EdgeEnd,
}

/// An end of an edge.
#[derive(Deserialize)]
pub struct EdgeEnd {
    /// The node.
    pub node: String,
    /// Its port.
    pub port: String,
}

/// The part of a container's parameters that is meant for the scheduler.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Container {
    /// Its subgraph.
    pub subgraph_id: Option<String>,
    /// Its timeout.
    pub timeout_seconds: Option<f64>,
    r#loop: Option<Loop>,
    retry: Option<Retry>,
}

#[derive(Deserialize)]
struct Loop {
    enabled: Option<bool>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Retry {
    max_attempts: Option<u32>,
}

impl Container {
    /// A feature that is not supported: the field, and what to do instead.
    pub fn unsupported(&self) -> Option<(&'static str, &'static str)> {
        if self.r#loop.as_ref().is_some_and(|of| of.enabled == Some(true)) {
            return Some(("loop", "a subgraph runs once; put a node that loops into it"));
        }
        if self.retry.as_ref().is_some_and(|of| of.max_attempts.is_some_and(|max| max > 1)) {
            return Some(("retry", "a subgraph runs once; start another run when this one has failed"));
        }
        None
    }
}

/// The run that a request starts.
pub fn run_of(
    body: &[u8],
    key: Option<&str>,
    caller: &Caller,
    settings: &Settings,
) -> Result<RunSubmission, Problem> {
    let StartRequest { workflow, client_id } = read(body, "")?;
    let raw = workflow.ok_or_else(|| Problem::field("workflow", "is missing: it says what to run"))?;
    let client_id = client_id
        .ok_or_else(|| Problem::field("clientId", "is missing: it says whose events the run's are"))?;
    let client = name("clientId", &client_id)?;
    let form: Value = read(raw.get().as_bytes(), "workflow.")?;
    let workflow: Workflow = read(raw.get().as_bytes(), "workflow.")?;
    let hash = digest(&form);
    let idempotency = key.map(|key| idempotency(key, &hash, &client)).transpose()?;
    let title = workflow.metadata.as_ref().and_then(|metadata| metadata.name.as_deref());
    let spec = RunSpec {
        // For people only: a title that is not a valid name is left out and stays in the definition.
        name: title.and_then(|title| Name::new(title.trim()).ok()),
        lane: Name::fixed(LANE),
        client: Some(client),
        idempotency,
        tags: vec![Name::new(&format!("{HASH_TAG}{}", hex(&hash))).expect("hex digits are a name")],
        ..RunSpec::new(caller.tenant.clone())
    };
    let members = layout::members(&workflow, &spec, settings)?;
    let definition = Some(Bytes::from(raw.get().as_bytes()));
    Ok(RunSubmission { spec, members, definition, origin: caller.origin(), prior: None, strict_lanes: false })
}

/// The hash of the workflow that a run was started with; empty for a run of another API.
pub fn definition_hash(spec: &RunSpec) -> &str {
    spec.tags.iter().find_map(|tag| tag.as_str().strip_prefix(HASH_TAG)).unwrap_or_default()
}

fn idempotency(key: &str, hash: &[u8; 32], client: &Name) -> Result<IdempotencyKey, Problem> {
    if key.chars().count() > KEY_LEN_MAX {
        return Err(Problem::field("Idempotency-Key", format!("has more than {KEY_LEN_MAX} characters")));
    }
    let asked = serde_json::json!({"workflow": hex(hash), "clientId": client.as_str()});
    Ok(IdempotencyKey { key: name("Idempotency-Key", key)?, digest: digest(&asked) })
}

impl Node {
    /// True when the node names a package.
    pub fn has_package(&self) -> bool {
        let package = self.package.as_ref();
        package.is_some_and(|package| package.name.is_some() && package.version.is_some())
    }

    /// True for a node that contains a subgraph.
    pub fn is_container(&self) -> bool {
        self.r#type == CONTAINER || self.role.as_deref() == Some("container")
    }

    /// The parameters of a container.
    pub fn container(&self, field: &str) -> Result<Container, Problem> {
        #[derive(Default, Deserialize)]
        struct Parameters {
            #[serde(rename = "__container")]
            container: Option<Container>,
        }
        let parameters = self.parameters.as_ref().map_or("{}", |parameters| parameters.get());
        let read: Option<Parameters> = read(parameters.as_bytes(), &format!("{field}.parameters."))?;
        Ok(read.and_then(|read| read.container).unwrap_or_default())
    }

    /// The node and its middlewares, each with its path in the request.
    pub fn with_middlewares(&self, field: &str) -> Result<Vec<(&Node, String)>, Problem> {
        if !matches!(self.role.as_deref(), None | Some("node" | "container")) {
            let remedy = "must be `node` or `container`; put middlewares into a node's `middlewares`";
            return Err(Problem::field(format!("{field}.role"), remedy));
        }
        let mut all = vec![(self, field.to_owned())];
        for (at, middleware) in self.middlewares.iter().enumerate() {
            let field = format!("{field}.middlewares[{at}]");
            if !matches!(middleware.role.as_deref(), None | Some("middleware")) || middleware.is_container() {
                return Err(Problem::field(format!("{field}.role"), "must be `middleware`"));
            }
            if !middleware.middlewares.is_empty() {
                let remedy =
                    "a middleware has no middlewares; put them into the node's list, the outermost first";
                return Err(Problem::field(format!("{field}.middlewares"), remedy));
            }
            all.push((middleware, field));
        }
        Ok(all)
    }

    /// The chain whose host is this node.
    pub fn chain(&self, field: &str, frame: &Frame) -> Result<Option<Chain>, Problem> {
        if self.middlewares.is_empty() {
            return Ok(None);
        }
        if self.middlewares.len() > CHAIN_MAX {
            let remedy = format!("has {}, at most {CHAIN_MAX} are allowed", self.middlewares.len());
            return Err(Problem::field(format!("{field}.middlewares"), remedy));
        }
        let middlewares = self.middlewares.iter().enumerate();
        let names = middlewares
            .map(|(at, node)| name(&format!("{field}.middlewares[{at}].id"), &frame.name(&node.id)));
        let host = name(&format!("{field}.id"), &frame.name(&self.id))?;
        Ok(Some(Chain { host, middlewares: names.collect::<Result<_, _>>()?, index: None }))
    }

    /// The job of the node, without the effect of edges.
    pub fn member(
        &self,
        field: &str,
        run: &RunSpec,
        settings: &Settings,
        frame: &Frame,
    ) -> Result<Member, Problem> {
        let part = |part: &str| format!("{field}.{part}");
        let group = self.is_container();
        let wants = if group { None } else { Some(Box::new(self.wants(field)?)) };
        let parameters = self.parameters.as_ref().map_or("{}", |parameters| match parameters.get() {
            "null" => "{}",
            text => text,
        });
        if !parameters.starts_with('{') {
            return Err(Problem::field(part("parameters"), "must be an object"));
        }
        // A failed node is not retried: its run has failed. A node that is lost with its worker is.
        let retry = RetryPolicy { retries_max: 0, ..settings.retry.clone() };
        let client = run.client.clone();
        let kind = name(&part("type"), &self.r#type)?;
        let spec = JobSpec {
            // Sessions are agents: they get fair shares, and streams can filter by them.
            agent: client.unwrap_or_else(|| Name::fixed("default")),
            lane: run.lane.clone(),
            timeout: frame.timeout,
            retry: Some(retry),
            tags: frame.tags(&part("id"))?,
            placement: wants,
            ..JobSpec::new(run.tenant.clone(), kind)
        };
        Ok(Member {
            group,
            within: frame.group.clone(),
            ..Member::new(name(&part("id"), &frame.name(&self.id))?, spec, parameters.as_bytes().into())
        })
    }

    /// The placement constraints of the node.
    fn wants(&self, field: &str) -> Result<Placement, Problem> {
        let part = |part: &str| format!("{field}.{part}");
        let of_package = |which: &str, text: Option<&String>| {
            let field = part(&format!("package.{which}"));
            let text = text.ok_or_else(|| {
                Problem::field(&field, "is missing: it says which workers can run the node")
            })?;
            name(&field, text)
        };
        let package = self.package.as_ref();
        let package = Package {
            name: of_package("name", package.and_then(|package| package.name.as_ref()))?,
            version: of_package("version", package.and_then(|package| package.version.as_ref()))?,
        };
        let resource = |(at, resource): (usize, &NodeResource)| {
            let part = |part: &str| format!("{field}.resourceRefs[{at}].{part}");
            let scope = resource.scope.as_deref().map(|scope| name(&part("scope"), scope));
            Ok(ResourceRef {
                id: name(&part("resourceId"), &resource.resource_id)?,
                worker: name(&part("workerId"), &resource.worker_id)?,
                sort: name(&part("type"), &resource.r#type)?,
                scope: scope.transpose()?,
                expires_at: time(&part("expiresAt"), resource.expires_at.as_deref())?,
            })
        };
        let affinity = |affinity: &NodeAffinity| {
            let mode = affinity.mode.as_deref().map_or(Some(AffinityMode::Sticky), AffinityMode::parse);
            Ok::<Affinity, Problem>(Affinity {
                key: name(&part("affinity.key"), &affinity.key)?,
                mode: mode
                    .ok_or_else(|| Problem::field(part("affinity.mode"), "must be sticky or preferred"))?,
                expires_at: time(&part("affinity.expiresAt"), affinity.expires_at.as_deref())?,
            })
        };
        let resources = self.resource_refs.iter().flatten().enumerate().map(resource);
        Ok(Placement {
            package: Some(package),
            affinity: self.affinity.as_ref().map(affinity).transpose()?,
            resources: resources.collect::<Result<_, Problem>>()?,
            ..Placement::default()
        })
    }
}

/// A valid name, or an error.
pub fn name(field: &str, text: &str) -> Result<Name, Problem> {
    Name::new(text).map_err(|error| Problem::field(field, error.to_string()))
}

fn time(field: &str, text: Option<&str>) -> Result<Option<Wall>, Problem> {
    let read = |text: &str| {
        let at = text.parse::<Timestamp>().map_err(|_| {
            Problem::field(field, format!("{text:?} is not a time; write it like 2030-01-31T12:00:00Z"))
        })?;
        Ok(Wall(at.as_millisecond()))
    };
    text.map(read).transpose()
}

/// Parses JSON. A rejection names the field. `within`: the path before the field.
pub fn read<'de, T: Deserialize<'de>>(bytes: &'de [u8], within: &str) -> Result<T, Problem> {
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let value = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let path = error.path().to_string();
        let field = match path.as_str() {
            "." => within.trim_end_matches('.'),
            path => &format!("{within}{path}"),
        };
        let field = if field.is_empty() { "(the body)" } else { field };
        Problem::field(field, error.inner().to_string())
    })?;
    json.end().map_err(|error| Problem::field("(the body)", error.to_string()))?;
    Ok(value)
}
