//! Expands a workflow into the nodes of a run: containers become their subgraphs, edges become dependencies and
//! bindings.

use std::collections::BTreeMap;

use laneway_core::call::Chain;
use laneway_core::{Binding, Member, Name, RunSpec, Settings, Span};

use super::error::Problem;
use super::frames::{DEPTH_MAX, Frame};
use super::ports::{End, Hint, PortTarget, resolve};
use super::workflow::{EdgeEnd, Node, Subgraph, Workflow, name};

/// The nodes of the run of a workflow.
pub fn members(workflow: &Workflow, run: &RunSpec, settings: &Settings) -> Result<Vec<Member>, Problem> {
    if !workflow.nodes.iter().any(|node| node.has_package() || node.is_container()) {
        let remedy = "no node has a package with name and version, so that there is nothing to run";
        return Err(Problem::field("workflow.nodes", remedy));
    }
    let root = workflow.id.as_deref().filter(|id| !id.is_empty()).unwrap_or("root");
    let mut layout = Layout { root, run, settings, members: Vec::new(), positions: BTreeMap::new() };
    let scope = Scope { graph: workflow, field: "workflow".to_owned(), frame: Frame::default(), outer: None };
    layout.lay(&scope)?;
    Ok(layout.members)
}

/// A workflow or subgraph that is being expanded.
struct Scope<'a> {
    graph: &'a Workflow,
    /// Its path in the request, for errors.
    field: String,
    frame: Frame,
    outer: Option<&'a Scope<'a>>,
}

impl<'a> Scope<'a> {
    /// The subgraph with this id, of this workflow or of an enclosing one, and its path in the request.
    fn subgraph(&self, id: &str) -> Option<(&'a Subgraph, String)> {
        let own = self.graph.subgraphs.iter().flatten().enumerate();
        match own.into_iter().find(|(_, subgraph)| subgraph.id == id) {
            Some((at, subgraph)) => Some((subgraph, format!("{}.subgraphs[{at}].definition", self.field))),
            None => self.outer.and_then(|outer| outer.subgraph(id)),
        }
    }

    fn node(&self, id: &str) -> Option<&'a Node> {
        self.graph.nodes.iter().find(|node| node.id == id)
    }

    /// The subgraph of a container.
    fn enter(&'a self, node: &'a Node, field: &str, root: &str) -> Result<Scope<'a>, Problem> {
        let container = node.container(field)?;
        let part = |part: &str| format!("{field}.parameters.__container.{part}");
        if let Some((what, remedy)) = container.unsupported() {
            return Err(Problem::field(part(what), remedy));
        }
        let id = container.subgraph_id.as_deref().map(str::trim).filter(|id| !id.is_empty());
        let id =
            id.ok_or_else(|| Problem::field(part("subgraphId"), "is missing: name one of `subgraphs`"))?;
        let (subgraph, written) = self.subgraph(id).ok_or_else(|| {
            Problem::field(
                part("subgraphId"),
                format!("there is no subgraph {id:?}; name one of `subgraphs`"),
            )
        })?;
        if self.frame.depth() >= DEPTH_MAX {
            let remedy = format!("containers are nested more than {DEPTH_MAX} deep; flatten some of them");
            return Err(Problem::field(part("subgraphId"), remedy));
        }
        let timeout = match container.timeout_seconds {
            None => None,
            Some(seconds) if seconds > 0.0 && seconds <= 1e9 => Some(Span((seconds * 1_000.0).ceil() as u64)),
            Some(_) => {
                return Err(Problem::field(part("timeoutSeconds"), "must be more than 0 and at most 1e9"));
            }
        };
        let graph = &subgraph.definition;
        let title = graph.metadata.as_ref().and_then(|metadata| metadata.name.as_deref());
        let frame = self.frame.enter(root, &node.id, id, title, timeout);
        Ok(Scope { graph, field: written, frame, outer: Some(self) })
    }
}

struct Layout<'r> {
    root: &'r str,
    run: &'r RunSpec,
    settings: &'r Settings,
    members: Vec<Member>,
    positions: BTreeMap<Name, usize>,
}

impl Layout<'_> {
    fn lay(&mut self, scope: &Scope<'_>) -> Result<(), Problem> {
        let Scope { graph, field, frame, .. } = scope;
        if graph.nodes.is_empty() && frame.depth() > 0 {
            return Err(Problem::field(
                format!("{field}.nodes"),
                "is empty: a container needs at least one node",
            ));
        }
        for (at, node) in graph.nodes.iter().enumerate() {
            let field = format!("{field}.nodes[{at}]");
            self.put(node, &field, frame)?;
            if node.is_container() {
                let inner = scope.enter(node, &field, self.root)?;
                self.lay(&inner)?;
            }
        }
        for (at, edge) in graph.edges.iter().enumerate() {
            let field = format!("{field}.edges[{at}]");
            let source = self.end(scope, &edge.source, End::Source, &format!("{field}.source"))?;
            let target = self.end(scope, &edge.target, End::Target, &format!("{field}.target"))?;
            self.connect(&source, &target);
        }
        Ok(())
    }

    /// Adds a node and its middlewares to the run.
    fn put(&mut self, node: &Node, field: &str, frame: &Frame) -> Result<(), Problem> {
        let chain = node.chain(field, frame)?;
        for (index, (node, field)) in node.with_middlewares(field)?.into_iter().enumerate() {
            // Many containers of one subgraph multiply its nodes, so the limit is checked while
            // expanding.
            if self.members.len() >= self.settings.runs.nodes_max as usize {
                let most = self.settings.runs.nodes_max;
                let remedy = format!(
                    "the workflow has more than {most} nodes (runs.nodes_max), those of containers included"
                );
                return Err(Problem::field("workflow.nodes", remedy));
            }
            let mut member = node.member(&field, self.run, self.settings, frame)?;
            if self.positions.insert(member.node.clone(), self.members.len()).is_some() {
                let remedy =
                    format!("{:?} is the id of another node already; give it one of its own", node.id);
                return Err(Problem::field(format!("{field}.id"), remedy));
            }
            // The host comes first and has no index.
            let index = u32::try_from(index).ok().and_then(|index| index.checked_sub(1));
            member.chain = chain.clone().map(|chain| Chain { index, ..chain });
            self.members.push(member);
        }
        Ok(())
    }

    /// Resolves an end of an edge: the nodes of the run that it orders, and the node and pointer of its data.
    fn end(&self, scope: &Scope<'_>, end: &EdgeEnd, which: End, field: &str) -> Result<Meant, Problem> {
        let Some(node) = scope.node(&end.node) else {
            let remedy = format!("there is no node {:?}; name one of `nodes`", end.node);
            return Err(Problem::field(format!("{field}.node"), remedy));
        };
        let field = format!("{field}.port");
        let PortTarget { node: own, host, pointer, hint } = resolve(node, &end.port, which, &field)?;
        let frame = &scope.frame;
        let mut meant = Meant::default();
        for id in [Some(own), host].into_iter().flatten() {
            meant.orders.push(name(&field, &frame.name(id))?);
        }
        let owner = match hint {
            None if node.is_container() && host.is_none() => None,
            None => Some(frame.name(own)),
            Some(hint) => self.hinted(scope, node, &hint, &field)?,
        };
        if let (Some(owner), Some(pointer)) = (owner, pointer) {
            let owner = name(&field, &owner)?;
            if !self.positions.contains_key(&owner) {
                let remedy = format!("it refers to the node {:?}, which does not exist", owner.as_str());
                return Err(Problem::field(field, remedy));
            }
            meant.orders.push(owner.clone());
            meant.data = Some((owner, pointer));
        }
        meant.orders.dedup();
        Ok(meant)
    }

    /// The node that a port of another node refers to, by its name in the run.
    fn hinted(
        &self,
        scope: &Scope<'_>,
        node: &Node,
        hint: &Hint,
        field: &str,
    ) -> Result<Option<String>, Problem> {
        let Hint { subgraphs, node: Some(id) } = hint else { return Ok(None) };
        let Some((first, rest)) = subgraphs.split_first() else { return Ok(Some(scope.frame.name(id))) };
        let no_way = || {
            let way = subgraphs.join(".");
            Problem::field(
                field,
                format!("it leads into {way:?}, which is not what container {:?} runs", node.id),
            )
        };
        let stands_for = |node: &&Node, subgraph: &str| {
            let container = node.is_container().then(|| node.container(field).ok()).flatten();
            container.and_then(|container| container.subgraph_id).is_some_and(|id| id.trim() == subgraph)
        };
        if !stands_for(&node, first) {
            return Err(no_way());
        }
        let mut inner = scope.enter(node, field, self.root)?;
        let mut way = Vec::new();
        for subgraph in rest {
            let next = inner.graph.nodes.iter().find(|node| stands_for(node, subgraph));
            way.push((next.ok_or_else(no_way)?, subgraph));
            let (next, _) = way[way.len() - 1];
            let (graph, _) = inner.subgraph(subgraph).ok_or_else(no_way)?;
            let frame = inner.frame.enter(self.root, &next.id, subgraph, None, None);
            inner = Scope { graph: &graph.definition, field: String::new(), frame, outer: inner.outer };
        }
        Ok(Some(inner.frame.name(id)))
    }

    /// Adds an edge: the order of the nodes, and the binding of data.
    fn connect(&mut self, source: &Meant, target: &Meant) {
        for node in &target.orders {
            let Some(&at) = self.positions.get(node) else { continue };
            for above in &source.orders {
                if above != node && !self.members[at].depends_on.contains(above) {
                    self.members[at].depends_on.push(above.clone());
                }
            }
        }
        if let (Some((from, source)), Some((into, pointer))) = (&source.data, &target.data)
            && let Some(&at) = self.positions.get(into)
        {
            let binding = Binding {
                from: from.clone(),
                source: source.as_str().into(),
                target: pointer.as_str().into(),
            };
            self.members[at].bindings.push(binding);
        }
    }
}

/// A resolved end of an edge.
#[derive(Default)]
struct Meant {
    /// The nodes that it orders.
    orders: Vec<Name>,
    /// The node and the JSON pointer of its data.
    data: Option<(Name, String)>,
}
