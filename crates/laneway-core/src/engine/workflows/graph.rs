//! Which node of a run waits for which: checked once, before anything of the run exists.

use std::collections::BTreeMap;

use crate::call::{CHAIN_MAX, Chain};
use crate::engine::jobs::submit::reject;
use crate::engine::workflows::groups::{Within, enclosing, flow, lower};
use crate::engine::workflows::open_runs::Link;
use crate::run::{BINDINGS_MAX, POINTER_LEN_MAX};
use crate::{Member, Name, Rejection, RejectionCode, RunSettings};

/// The dependencies of a run by the positions of its nodes. One that exists has no cycle.
pub(super) struct Graph {
    /// For each node, those it waits for, each once.
    pub(super) depends_on: Vec<Box<[u32]>>,
    /// For each node, its position in a chain.
    pub(super) links: Vec<Option<Link>>,
    /// For each node, the group that it is in.
    pub(super) within: Within,
    /// For each node, those that end before it, called groups included.
    flow: Vec<Box<[u32]>>,
}

impl Graph {
    /// Reads the graph of the nodes, or rejects it with the wrong node and a remedy. `defined`: how long the definition is.
    pub(super) fn of(members: &[Member], defined: usize, limits: &RunSettings) -> Result<Graph, Rejection> {
        if members.is_empty() {
            return Err(invalid("nodes: a run has at least one; add a node".into()));
        }
        if members.len() > limits.nodes_max as usize {
            let message = format!(
                "nodes: the run has {}, at most {} are allowed (runs.nodes_max); split it",
                members.len(),
                limits.nodes_max
            );
            return Err(invalid(message));
        }
        let payloads = members.iter().map(|member| member.payload.len());
        let bytes = payloads.chain([defined]).map(|len| len as u64).sum::<u64>();
        if bytes > limits.payload_bytes_max {
            let message = format!(
                "nodes: their payloads and the definition have {bytes} bytes, at most {} are allowed (runs.payload_bytes_max); pass \
                 addresses instead of data",
                limits.payload_bytes_max
            );
            return Err(invalid(message));
        }
        let positions = positions(members)?;
        let links = links(members, &positions)?;
        let within = enclosing(members, &positions, &links)?;
        let mut depends_on = dependencies(members, &positions, limits)?;
        lower(members, &links, &within, &mut depends_on, limits)?;
        join_chains(members, &links, &mut depends_on)?;
        let mut graph = Graph { depends_on, links, within, flow: Vec::new() };
        graph.flow = flow(&graph, members);
        let order = graph.order(members)?;
        graph.check_depth(members, &order, limits)?;
        graph.check_bindings(members, &positions, &order)?;
        Ok(graph)
    }

    /// The nodes in an order in which every node follows its dependencies; a cycle has none.
    fn order(&self, members: &[Member]) -> Result<Vec<u32>, Rejection> {
        let dependents = dependents(&self.flow);
        let mut missing: Vec<usize> = self.flow.iter().map(|nodes| nodes.len()).collect();
        let mut order: Vec<u32> =
            (0..).zip(&missing).filter(|(_, missing)| **missing == 0).map(|(node, _)| node).collect();
        let mut next = 0;
        while let Some(&node) = order.get(next) {
            next += 1;
            for &dependent in dependents[node as usize].iter() {
                missing[dependent as usize] -= 1;
                if missing[dependent as usize] == 0 {
                    order.push(dependent);
                }
            }
        }
        if order.len() == members.len() {
            return Ok(order);
        }
        let cycle: Vec<&str> =
            self.cycle(&missing).into_iter().map(|node| members[node as usize].node.as_str()).collect();
        Err(invalid(format!(
            "node {:?}: depends_on leads back to itself ({}); take one of these dependencies away",
            cycle[0],
            cycle.join(" -> ")
        )))
    }

    /// A cycle among the nodes with missing dependencies: from any of them, back along the missing ones.
    fn cycle(&self, missing: &[usize]) -> Vec<u32> {
        let start = missing.iter().position(|missing| *missing > 0).expect("a node is left over");
        let mut way = vec![start as u32];
        loop {
            let last = way[way.len() - 1] as usize;
            let before = self.flow[last].iter().copied().find(|node| missing[*node as usize] > 0);
            let before = before.expect("a node that misses something waits for one that does, too");
            if let Some(at) = way.iter().position(|node| *node == before) {
                let mut cycle = way.split_off(at);
                cycle.push(before);
                return cycle;
            }
            way.push(before);
        }
    }

    fn check_depth(&self, members: &[Member], order: &[u32], limits: &RunSettings) -> Result<(), Rejection> {
        let mut depth = vec![0u32; order.len()];
        for &node in order {
            let above = self.flow[node as usize].iter().map(|node| depth[*node as usize]);
            let mine = above.max().unwrap_or(0) + 1;
            if mine > limits.depth_max {
                return Err(invalid(format!(
                    "node {:?}: waits for {} nodes in a row, at most {} are allowed (runs.depth_max); join some",
                    members[node as usize].node.as_str(),
                    mine - 1,
                    limits.depth_max - 1
                )));
            }
            depth[node as usize] = mine;
        }
        Ok(())
    }

    /// Checks that bindings read only from nodes that have ended by then.
    fn check_bindings(
        &self,
        members: &[Member],
        positions: &BTreeMap<&Name, u32>,
        order: &[u32],
    ) -> Result<(), Rejection> {
        if members.iter().all(|member| member.bindings.is_empty()) {
            return Ok(());
        }
        let words = members.len().div_ceil(64);
        let mut above = vec![vec![0u64; words]; members.len()];
        for &node in order {
            let mut mine = vec![0u64; words];
            for &before in self.flow[node as usize].iter() {
                mine.iter_mut().zip(&above[before as usize]).for_each(|(mine, theirs)| *mine |= theirs);
                mine[before as usize / 64] |= 1 << (before % 64);
            }
            above[node as usize] = mine;
        }
        for (member, above) in members.iter().zip(&above) {
            let fault =
                |what: String| Err(invalid(format!("node {:?}: bindings: {what}", member.node.as_str())));
            if member.bindings.len() > BINDINGS_MAX {
                return fault(format!("at most {BINDINGS_MAX} are allowed"));
            }
            for binding in &member.bindings {
                let is_above = positions
                    .get(&binding.from)
                    .is_some_and(|from| above[*from as usize / 64] & (1 << (from % 64)) != 0);
                if !is_above {
                    let from = binding.from.as_str();
                    return fault(format!("it does not depend on {from:?}; add that to its depends_on"));
                }
                let root = |pointer: &str, roots: &[&str]| {
                    let begins = |root: &&str| {
                        pointer
                            .strip_prefix(*root)
                            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
                    };
                    pointer.len() <= POINTER_LEN_MAX && roots.iter().any(begins)
                };
                if !root(&binding.source, &["/results", "/parameters"]) {
                    return fault(format!(
                        "{:?} is no source; give a pointer that begins with /results or /parameters and has at most \
                         {POINTER_LEN_MAX} bytes",
                        binding.source
                    ));
                }
                if !root(&binding.target, &["/parameters"]) {
                    return fault(format!(
                        "{:?} is no target; give a pointer that begins with /parameters and has at most \
                         {POINTER_LEN_MAX} bytes",
                        binding.target
                    ));
                }
            }
        }
        Ok(())
    }
}

/// For each node, those that wait for it.
pub(super) fn dependents(depends_on: &[Box<[u32]>]) -> Vec<Box<[u32]>> {
    let mut dependents = vec![Vec::new(); depends_on.len()];
    for (node, above) in (0u32..).zip(depends_on) {
        for &above in above.iter() {
            dependents[above as usize].push(node);
        }
    }
    dependents.into_iter().map(Vec::into_boxed_slice).collect()
}

fn positions(members: &[Member]) -> Result<BTreeMap<&Name, u32>, Rejection> {
    let mut positions = BTreeMap::new();
    for (position, member) in (0u32..).zip(members) {
        if positions.insert(&member.node, position).is_some() {
            let node = member.node.as_str();
            return Err(invalid(format!("node {node:?}: the run has two of that name; rename one")));
        }
    }
    Ok(positions)
}

fn dependencies(
    members: &[Member],
    positions: &BTreeMap<&Name, u32>,
    limits: &RunSettings,
) -> Result<Vec<Box<[u32]>>, Rejection> {
    let named: usize = members.iter().map(|member| member.depends_on.len()).sum();
    if named > limits.dependencies_max as usize {
        let message = format!(
            "nodes: they have {named} dependencies, at most {} are allowed (runs.dependencies_max); leave out those \
             that follow from others",
            limits.dependencies_max
        );
        return Err(invalid(message));
    }
    let mut all = Vec::with_capacity(members.len());
    for (position, member) in (0u32..).zip(members) {
        let node = member.node.as_str();
        let mut mine = Vec::with_capacity(member.depends_on.len());
        for name in &member.depends_on {
            match positions.get(name) {
                Some(&other) if other == position => {
                    let message = format!("node {node:?}: depends_on names the node itself; take it away");
                    return Err(invalid(message));
                }
                Some(&other) => mine.push(other),
                None => {
                    let name = name.as_str();
                    return Err(invalid(format!(
                        "node {node:?}: depends_on names {name:?}, which the run does not have; add that node or take \
                         the name away"
                    )));
                }
            }
        }
        mine.sort_unstable();
        mine.dedup();
        all.push(mine.into_boxed_slice());
    }
    Ok(all)
}

/// Reads the chains: all nodes of a chain must describe the same chain.
fn links(members: &[Member], positions: &BTreeMap<&Name, u32>) -> Result<Vec<Option<Link>>, Rejection> {
    for (member, chain) in members.iter().filter_map(|member| Some((member, member.chain.as_ref()?))) {
        check_executor(member, chain)?;
    }
    let mut links = Vec::with_capacity(members.len());
    for member in members {
        let Some(chain) = &member.chain else {
            links.push(None);
            continue;
        };
        check_chain(member, chain, members, positions)?;
        let next = chain.next().and_then(|next| positions.get(next).copied());
        let host = positions.get(&chain.host).copied().expect("the chain was just checked");
        links.push(Some(Link { index: chain.index, next, host }));
    }
    Ok(links)
}

/// Checks the position of a node in its chain.
fn check_executor(member: &Member, chain: &Chain) -> Result<(), Rejection> {
    let fault = |what: String| Err(invalid(format!("node {:?}: middleware: {what}", member.node.as_str())));
    if chain.middlewares.is_empty() || chain.middlewares.len() > CHAIN_MAX {
        return fault(format!("a chain has 1 to {CHAIN_MAX} middlewares"));
    }
    match chain.index {
        None if chain.host != member.node => {
            fault("index is missing; give the node's place in the chain, from 0".into())
        }
        Some(_) if chain.host == member.node => fault("the host has no index; take it away".into()),
        Some(index) if chain.middlewares.get(index as usize) != Some(&member.node) => {
            fault(format!("the chain does not have this node at index {index}"))
        }
        _ => Ok(()),
    }
}

/// Checks that all nodes of a chain describe the same chain.
fn check_chain(
    member: &Member,
    chain: &Chain,
    members: &[Member],
    positions: &BTreeMap<&Name, u32>,
) -> Result<(), Rejection> {
    let same = |name: &Name, index: Option<u32>| {
        let other = positions.get(name).and_then(|at| members[*at as usize].chain.as_ref());
        other.is_some_and(|other| {
            other.host == chain.host && other.middlewares == chain.middlewares && other.index == index
        })
    };
    let inner = (0u32..).zip(&chain.middlewares).find(|(index, name)| !same(name, Some(*index)));
    let odd = inner.map(|(_, name)| name).or((!same(&chain.host, None)).then_some(&chain.host));
    match odd {
        None => Ok(()),
        Some(odd) => Err(invalid(format!(
            "node {:?}: middleware: {:?} is not a node with the same chain; every node of a chain names all of it",
            member.node.as_str(),
            odd.as_str()
        ))),
    }
}

/// The outermost middleware waits for all that nodes of its chain wait for; they wait for it.
fn join_chains(
    members: &[Member],
    links: &[Option<Link>],
    depends_on: &mut [Box<[u32]>],
) -> Result<(), Rejection> {
    for first in 0..members.len() {
        let Some(link) = links[first].filter(|link| link.index == Some(0)) else { continue };
        let mut chain = vec![first as u32];
        let mut next = link.next;
        while let Some(position) = next {
            chain.push(position);
            next = links[position as usize].and_then(|link| link.next);
        }
        let mut above: Vec<u32> =
            chain.iter().flat_map(|node| depends_on[*node as usize].iter().copied()).collect();
        if let Some(within) = above.iter().find(|node| chain.contains(node)) {
            return Err(invalid(format!(
                "node {:?}: a node of its own middleware chain depends on it; the order of a chain is its own, take that \
                 away",
                members[*within as usize].node.as_str()
            )));
        }
        above.sort_unstable();
        above.dedup();
        for node in &chain[1..] {
            depends_on[*node as usize] = [first as u32].into();
        }
        depends_on[first] = above.into();
    }
    Ok(())
}

pub(super) fn invalid(message: String) -> Rejection {
    reject(RejectionCode::Invalid, message)
}
