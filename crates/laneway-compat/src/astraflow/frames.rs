//! Frames: the position of a node among containers, and its name in the run.
//!
//! The subgraph of a container is expanded into the run: each of its nodes is a node of the run, in a group with
//! the container's name. The name of a node within its subgraph, and its path, follow from its name and from the
//! tags of its job; nothing else is stored.

use laneway_core::{JobSpec, Name, Span};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::error::Problem;

/// The deepest nesting of containers: each level takes two tags of a job.
pub const DEPTH_MAX: usize = 7;

/// The prefix of tags that hold the path to a node: the workflow, then container and subgraph of each level.
const WAY_TAG: &str = "frame:";
/// The prefix of the tag with the title of a subgraph.
const TITLE_TAG: &str = "subgraph:";
/// The separator between the parts of names.
const BETWEEN: &str = "::";
/// The number of digits that replace a path that is too long for a name.
const DIGITS: usize = 16;

/// The subgraph that is being expanded; the workflow itself at the top level.
#[derive(Clone, Debug, Default)]
pub struct Frame {
    /// Workflow, container, subgraph, container, subgraph, …; empty for the workflow itself.
    way: Vec<String>,
    /// The title of the subgraph.
    title: Option<String>,
    /// The shortest timeout of the enclosing containers.
    pub timeout: Option<Span>,
    /// The container's name in the run.
    pub group: Option<Name>,
}

impl Frame {
    /// The number of enclosing containers.
    pub fn depth(&self) -> usize {
        self.way.len() / 2
    }

    /// The name of a node of the subgraph in the run.
    pub fn name(&self, id: &str) -> String {
        named(&self.way, id)
    }

    /// The frame of a container's subgraph. `workflow` is the id of the whole workflow.
    pub fn enter(
        &self,
        workflow: &str,
        container: &str,
        subgraph: &str,
        title: Option<&str>,
        timeout: Option<Span>,
    ) -> Frame {
        let mut way = if self.way.is_empty() { vec![workflow.to_owned()] } else { self.way.clone() };
        way.extend([container.to_owned(), subgraph.to_owned()]);
        let timeout = [self.timeout, timeout].into_iter().flatten().min();
        let group = Name::new(&self.name(container)).ok();
        Frame { way, title: title.map(str::to_owned), timeout, group }
    }

    /// The tags of a node's job.
    pub fn tags(&self, field: &str) -> Result<Vec<Name>, Problem> {
        let way = self.way.iter().map(|part| {
            let fault = |error: laneway_core::NameError| {
                Problem::field(
                    field,
                    format!("{part:?} is on the path to this node and is not a valid name: {error}"),
                )
            };
            Name::new(&format!("{WAY_TAG}{part}")).map_err(fault)
        });
        let mut tags = way.collect::<Result<Vec<Name>, Problem>>()?;
        // For people only: a title that is not a valid name is left out and stays in the definition.
        let title = self.title.as_ref().and_then(|title| Name::new(&format!("{TITLE_TAG}{title}")).ok());
        tags.extend(title);
        Ok(tags)
    }
}

/// The name of a node in the run: its enclosing containers, and its own id.
fn named(way: &[String], id: &str) -> String {
    if way.is_empty() {
        return id.to_owned();
    }
    let prefix = containers(way).join(BETWEEN);
    let whole = format!("{prefix}{BETWEEN}{id}");
    if whole.len() <= Name::LEN_MAX {
        return whole;
    }
    format!("{}{BETWEEN}{id}", short(&prefix))
}

fn containers(way: &[String]) -> Vec<&str> {
    way.iter().skip(1).step_by(2).map(String::as_str).collect()
}

/// A digest for a path that is too long for a name.
fn short(prefix: &str) -> String {
    let digest = Sha256::digest(prefix.as_bytes());
    let digits: String = digest.iter().take(DIGITS / 2).map(|byte| format!("{byte:02x}")).collect();
    format!("~{digits}")
}

/// The position of a node, as pages see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stand {
    /// Its id within its subgraph.
    pub node: String,
    /// Its task id: the whole path, and its id.
    pub task: String,
    /// The path; empty for a node of the workflow itself.
    way: Vec<String>,
    title: Option<String>,
}

impl Stand {
    /// The position of a job that is a node of a run.
    pub fn of(spec: &JobSpec) -> Stand {
        let name = spec.member.as_ref().map_or("", |member| member.node.as_str());
        let tagged = |prefix: &str| {
            let parts = spec.tags.iter().filter_map(|tag| tag.as_str().strip_prefix(prefix));
            parts.map(str::to_owned).collect::<Vec<String>>()
        };
        // A job without a group was not expanded from a subgraph, even if its tags look like it.
        let is_framed = spec.member.as_ref().is_some_and(|member| member.within.is_some());
        let way = if is_framed { tagged(WAY_TAG) } else { Vec::new() };
        let prefix = containers(&way).join(BETWEEN);
        let own = |prefix: &str| name.strip_prefix(prefix)?.strip_prefix(BETWEEN);
        let node = own(&prefix).or_else(|| own(&short(&prefix))).filter(|_| !way.is_empty()).unwrap_or(name);
        let task = match way.is_empty() {
            true => node.to_owned(),
            false => format!("{}{BETWEEN}{node}", way.join(BETWEEN)),
        };
        Stand { node: node.to_owned(), task, title: tagged(TITLE_TAG).pop().filter(|_| is_framed), way }
    }

    /// The fields that pages group nodes by; `None` for a node of the workflow itself.
    pub fn metadata(&self) -> Option<Value> {
        let [.., container, subgraph] = &self.way[..] else { return None };
        let mut frame = Map::from_iter([
            ("frameId".to_owned(), Value::from(self.way.join(BETWEEN))),
            ("containerNodeId".to_owned(), container.as_str().into()),
            ("subgraphId".to_owned(), subgraph.as_str().into()),
            ("aliasChain".to_owned(), json!(self.way)),
        ]);
        frame.extend(self.title.as_ref().map(|title| ("subgraphName".to_owned(), title.as_str().into())));
        Some(frame.into())
    }

    /// The enclosing containers, innermost first: the name in the run, the id and the task id of each.
    pub fn around(&self) -> Vec<(String, String, String)> {
        let depths = (0..self.way.len() / 2).rev();
        let container = |depth: usize| {
            let way = if depth == 0 { &[][..] } else { &self.way[..1 + 2 * depth] };
            let id = &self.way[1 + 2 * depth];
            let task = match way.is_empty() {
                true => id.clone(),
                false => format!("{}{BETWEEN}{id}", way.join(BETWEEN)),
            };
            (named(way, id), id.clone(), task)
        };
        depths.map(container).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{BETWEEN, Frame, named, short};

    #[test]
    fn names_hold_the_containers_or_stand_for_them() {
        let frame = Frame::default().enter("wf", "c1", "s1", Some("one"), None);
        assert_eq!((frame.depth(), frame.name("n").as_str()), (1, "c1::n"));
        assert_eq!(frame.group.as_ref().unwrap().as_str(), "c1");
        let inner = frame.enter("wf", "c2", "s2", None, None);
        assert_eq!((inner.depth(), inner.name("n").as_str()), (2, "c1::c2::n"));
        assert_eq!(inner.group.as_ref().unwrap().as_str(), "c1::c2");
        let tags: Vec<String> = inner.tags("x").unwrap().iter().map(ToString::to_string).collect();
        assert_eq!(tags, ["frame:wf", "frame:c1", "frame:s1", "frame:c2", "frame:s2"]);
        let long = "x".repeat(70);
        let deep = Frame::default().enter("wf", &long, "s", None, None).enter("wf", &long, "s", None, None);
        let name = deep.name("node");
        assert_eq!(name, format!("{}{BETWEEN}node", short(&format!("{long}::{long}"))));
        assert_eq!(named(&[], "n"), "n");
    }
}
