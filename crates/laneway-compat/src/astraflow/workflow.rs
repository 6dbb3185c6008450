//! Reads workflows, and makes runs of them: nodes become jobs, edges become dependencies and bindings.
//!
//! Only form is judged here: what a field must be, and that everything an edge names is there. Whether the graph has a
//! cycle, is too large or finds no room is the engine's answer.

use std::collections::{BTreeMap, BTreeSet};

use laneway_core::call::{CHAIN_MAX, Chain};
use laneway_core::job::IdempotencyKey;
use laneway_core::worker::Package;
use laneway_core::{
    Binding, Bytes, FailurePolicy, JobSpec, Member, Name, RetryPolicy, RunSpec, RunSubmission, Settings,
    Wants,
};
use laneway_runtime::Caller;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use serde_json::value::RawValue;

use super::LANE;
use super::canonical::{digest, hex};
use super::error::Problem;
use super::ports::{End, Place, resolve};

/// Longest key for a repeated start, in characters.
const KEY_LEN_MAX: usize = 64;
/// What the tag of a run begins with that says the hash of its workflow.
const HASH_TAG: &str = "sha256:";

/// What a client sends to start a run.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct StartRequest<'a> {
    #[serde(borrow)]
    workflow: Option<&'a RawValue>,
    client_id: Option<String>,
}

/// A workflow, as far as it is understood. What only its editor needs is left alone, and kept in the definition.
#[derive(Deserialize)]
pub struct Workflow {
    metadata: Option<Metadata>,
    nodes: Vec<Node>,
    #[serde(default)]
    edges: Vec<Edge>,
    #[serde(default)]
    subgraphs: Option<Vec<IgnoredAny>>,
}

#[derive(Deserialize)]
struct Metadata {
    name: Option<String>,
}

/// A node, or a middleware of one.
#[derive(Deserialize)]
pub struct Node {
    /// Its id, unique within the workflow.
    pub id: String,
    /// What it does.
    pub r#type: String,
    role: Option<String>,
    package: Option<NodePackage>,
    parameters: Option<Box<RawValue>>,
    /// Its ports.
    pub ui: Option<Ui>,
    /// What is called before it, the outermost first.
    #[serde(default)]
    pub middlewares: Vec<Node>,
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
    /// Where data comes in.
    #[serde(default)]
    pub input_ports: Vec<Port>,
    /// Where data goes out.
    #[serde(default)]
    pub output_ports: Vec<Port>,
}

/// A port.
#[derive(Deserialize)]
pub struct Port {
    /// Its name at the node.
    pub key: String,
    /// What it stands for.
    pub binding: Option<PortBinding>,
}

/// What a port stands for.
#[derive(Deserialize)]
pub struct PortBinding {
    /// A place in the node's parameters or results.
    pub path: String,
}

#[derive(Deserialize)]
struct Edge {
    source: EdgeEnd,
    target: EdgeEnd,
}

#[derive(Deserialize)]
struct EdgeEnd {
    node: String,
    port: String,
}

/// The run that a request asks for.
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
        tenant: caller.tenant.clone(),
        // For people: what is no name is left out and stays in the definition.
        name: title.and_then(|title| Name::new(title.trim()).ok()),
        lane: Name::fixed(LANE),
        failure: FailurePolicy::Stop,
        client: Some(client),
        idempotency,
        tags: vec![Name::new(&format!("{HASH_TAG}{}", hex(&hash))).expect("hex digits are a name")],
    };
    let members = workflow.members(&spec, settings)?;
    let definition = Some(Bytes::from(raw.get().as_bytes()));
    Ok(RunSubmission { spec, members, definition, origin: caller.origin(), prior: None })
}

/// The hash of the workflow that a run was started with; empty for a run that was not started here.
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

impl Workflow {
    fn members(&self, run: &RunSpec, settings: &Settings) -> Result<Vec<Member>, Problem> {
        if self.subgraphs.as_ref().is_some_and(|subgraphs| !subgraphs.is_empty()) {
            let remedy = "subgraphs are not run here; put their nodes into the workflow itself";
            return Err(Problem::field("workflow.subgraphs", remedy));
        }
        if !self.nodes.iter().any(Node::has_package) {
            let remedy = "no node has a package with name and version, so that there is nothing to run";
            return Err(Problem::field("workflow.nodes", remedy));
        }
        let mut members = Vec::with_capacity(self.nodes.len());
        let mut positions: BTreeMap<&str, usize> = BTreeMap::new();
        for (at, node) in self.nodes.iter().enumerate() {
            let field = format!("workflow.nodes[{at}]");
            let chain = node.chain(&field)?;
            for (index, (node, field)) in node.with_middlewares(&field)?.into_iter().enumerate() {
                if positions.insert(&node.id, members.len()).is_some() {
                    let remedy =
                        format!("{:?} is the id of another node already; give it one of its own", node.id);
                    return Err(Problem::field(format!("{field}.id"), remedy));
                }
                let mut member = node.member(&field, run, settings)?;
                // The host comes first and has no index.
                let index = u32::try_from(index).ok().and_then(|index| index.checked_sub(1));
                member.chain = chain.clone().map(|chain| Chain { index, ..chain });
                members.push(member);
            }
        }
        let nodes: BTreeMap<&str, &Node> = self.nodes.iter().map(|node| (node.id.as_str(), node)).collect();
        for (at, edge) in self.edges.iter().enumerate() {
            let field = format!("workflow.edges[{at}]");
            let source = edge.source.place(&nodes, End::Source, &format!("{field}.source"))?;
            let target = edge.target.place(&nodes, End::Target, &format!("{field}.target"))?;
            connect(&mut members[positions[target.node]], &source, target.pointer);
        }
        Ok(members)
    }
}

impl EdgeEnd {
    fn place<'a>(
        &self,
        nodes: &BTreeMap<&str, &'a Node>,
        end: End,
        field: &str,
    ) -> Result<Place<'a>, Problem> {
        let Some(node) = nodes.get(self.node.as_str()) else {
            let remedy = format!("there is no node {:?}; name one of `nodes`", self.node);
            return Err(Problem::field(format!("{field}.node"), remedy));
        };
        resolve(node, &self.port, end, &format!("{field}.port"))
    }
}

/// What an edge means for the node that it leads to.
fn connect(member: &mut Member, source: &Place<'_>, target: Option<String>) {
    // Both were names when the nodes were read.
    let names = [Some(source.node), source.host].into_iter().flatten();
    let above: BTreeSet<Name> = names.filter_map(|name| Name::new(name).ok()).collect();
    let Some(from) = Name::new(source.node).ok() else { return };
    for name in above {
        if !member.depends_on.contains(&name) {
            member.depends_on.push(name);
        }
    }
    if let (Some(source), Some(target)) = (&source.pointer, target) {
        let binding = Binding { from, source: source.as_str().into(), target: target.into() };
        member.bindings.push(binding);
    }
}

impl Node {
    fn has_package(&self) -> bool {
        let package = self.package.as_ref();
        package.is_some_and(|package| package.name.is_some() && package.version.is_some())
    }

    /// The node and its middlewares, each with where it is written.
    fn with_middlewares(&self, field: &str) -> Result<Vec<(&Node, String)>, Problem> {
        if !matches!(self.role.as_deref(), None | Some("node")) {
            let remedy = "must be `node`: containers are not run here, and middlewares stand in a node's `middlewares`";
            return Err(Problem::field(format!("{field}.role"), remedy));
        }
        let mut all = vec![(self, field.to_owned())];
        for (at, middleware) in self.middlewares.iter().enumerate() {
            let field = format!("{field}.middlewares[{at}]");
            if !matches!(middleware.role.as_deref(), None | Some("middleware")) {
                return Err(Problem::field(format!("{field}.role"), "must be `middleware`"));
            }
            if !middleware.middlewares.is_empty() {
                let remedy =
                    "a middleware has none of its own; put them into the node's list, the outermost first";
                return Err(Problem::field(format!("{field}.middlewares"), remedy));
            }
            all.push((middleware, field));
        }
        Ok(all)
    }

    /// The chain that the node is the host of.
    fn chain(&self, field: &str) -> Result<Option<Chain>, Problem> {
        if self.middlewares.is_empty() {
            return Ok(None);
        }
        if self.middlewares.len() > CHAIN_MAX {
            let remedy = format!("has {}, at most {CHAIN_MAX} are allowed", self.middlewares.len());
            return Err(Problem::field(format!("{field}.middlewares"), remedy));
        }
        let middlewares = self.middlewares.iter().enumerate();
        let names = middlewares.map(|(at, node)| name(&format!("{field}.middlewares[{at}].id"), &node.id));
        let host = name(&format!("{field}.id"), &self.id)?;
        Ok(Some(Chain { host, middlewares: names.collect::<Result<_, _>>()?, index: None }))
    }

    /// The job that the node is, without what edges mean for it.
    fn member(&self, field: &str, run: &RunSpec, settings: &Settings) -> Result<Member, Problem> {
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
        let parameters = self.parameters.as_ref().map_or("{}", |parameters| match parameters.get() {
            "null" => "{}",
            text => text,
        });
        if !parameters.starts_with('{') {
            return Err(Problem::field(part("parameters"), "must be an object"));
        }
        // A node that fails is not tried again: its run has failed. One that is lost with its worker is.
        let retry = RetryPolicy { retries_max: 0, ..settings.retry.clone() };
        let client = run.client.clone();
        let spec = JobSpec {
            tenant: run.tenant.clone(),
            kind: name(&part("type"), &self.r#type)?,
            // Sessions get fair shares, and streams find what is theirs.
            agent: client.unwrap_or_else(|| Name::fixed("default")),
            lane: run.lane.clone(),
            session: None,
            keys: Vec::new(),
            priority: 0,
            not_before: None,
            deadline: None,
            queue_timeout: None,
            timeout: None,
            retry: Some(retry),
            idempotency: None,
            retry_of: None,
            tags: Vec::new(),
            schedule: None,
            callback: None,
            needs: Default::default(),
            member: None,
            wants: Some(Box::new(Wants { package: Some(package), ..Wants::default() })),
        };
        Ok(Member {
            node: name(&part("id"), &self.id)?,
            spec,
            payload: parameters.as_bytes().into(),
            depends_on: Vec::new(),
            bindings: Vec::new(),
            chain: None,
        })
    }
}

fn name(field: &str, text: &str) -> Result<Name, Problem> {
    Name::new(text).map_err(|error| Problem::field(field, error.to_string()))
}

/// Reads JSON; a refusal names the field. `within`: what stands before the field.
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
