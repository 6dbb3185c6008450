//! Ports: what an edge between two of them means for the data of their nodes.
//!
//! A port names a position in a node's parameters or results. `mw:<id>:input:<key>` and `mw:<id>:output:<key>`
//! are ports of a middleware, written at its host node.

use super::error::Problem;
use super::workflow::{BindingScope, Node, Port, PortBinding};

/// An end of an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The source of data.
    Source,
    /// The target of data.
    Target,
}

impl End {
    fn as_str(self) -> &'static str {
        match self {
            End::Source => "output",
            End::Target => "input",
        }
    }

    fn ports(self, node: &Node) -> &[Port] {
        let ui = node.ui.as_ref();
        match self {
            End::Source => ui.map_or(&[], |ui| &ui.output_ports),
            End::Target => ui.map_or(&[], |ui| &ui.input_ports),
        }
    }

    /// The root fields of sources or targets. Other fields belong to the editor.
    fn roots(self) -> &'static [&'static str] {
        match self {
            End::Source => &["results", "parameters"],
            End::Target => &["parameters"],
        }
    }
}

/// The target of a port.
#[derive(Debug, PartialEq, Eq)]
pub struct PortTarget<'a> {
    /// The node, or its middleware.
    pub node: &'a str,
    /// The host of the middleware; `None` for a port of the node itself.
    pub host: Option<&'a str>,
    /// The JSON pointer of the data. `None`: the edge carries no data, only order.
    pub pointer: Option<String>,
    /// Set when the port refers to data of another node.
    pub hint: Option<Hint>,
}

/// A reference to another node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hint {
    /// The subgraphs on the path, starting at the container of the port. Empty: a node beside it.
    pub subgraphs: Vec<String>,
    /// The node.
    pub node: Option<String>,
}

impl Hint {
    /// Parses `@subgraph.subgraph.#node` or `#node`.
    fn parse(prefix: &str) -> Option<Hint> {
        let prefix = prefix.trim();
        let (is_inside, rest) = match prefix.strip_prefix('@') {
            Some(rest) => (true, rest),
            None => (false, prefix.strip_prefix('#').map(|_| prefix)?),
        };
        // Ids may contain dots; the part after `#` is one id.
        let (way, node) = match rest.split_once('#') {
            Some((way, node)) => (way, Some(node.to_owned()).filter(|node| !node.is_empty())),
            None => (rest, None),
        };
        let subgraphs: Vec<String> =
            way.split('.').filter(|part| !part.is_empty() && is_inside).map(str::to_owned).collect();
        (!subgraphs.is_empty() || node.is_some()).then_some(Hint { subgraphs, node })
    }

    fn of(binding: &PortBinding) -> Option<Hint> {
        let PortBinding { path: _, prefix, scope } = binding;
        let Some(BindingScope { kind, subgraph_aliases, node_id, prefix: raw }) = scope else {
            return prefix.as_deref().and_then(Hint::parse);
        };
        let subgraphs = subgraph_aliases.clone().unwrap_or_default();
        if kind.as_deref() == Some("subgraph") && !subgraphs.is_empty() {
            return Some(Hint { subgraphs, node: node_id.clone() });
        }
        match node_id {
            Some(node) => Some(Hint { subgraphs: Vec::new(), node: Some(node.clone()) }),
            None => raw.as_deref().or(prefix.as_deref()).and_then(Hint::parse),
        }
    }
}

/// Resolves `port` of `node`. `field`: where the port is written.
pub fn resolve<'a>(node: &'a Node, port: &str, end: End, field: &str) -> Result<PortTarget<'a>, Problem> {
    let Some(rest) = port.strip_prefix("mw:") else {
        let (pointer, hint) = pointer_of(end.ports(node), port, end, field)?;
        return Ok(PortTarget { node: &node.id, host: None, pointer, hint });
    };
    let parts = rest.split_once(&format!(":{}:", end.as_str()));
    let Some((id, key)) = parts.filter(|(id, key)| !id.is_empty() && !key.is_empty()) else {
        let form = format!("a middleware's port here is written mw:<id>:{}:<key>", end.as_str());
        return Err(Problem::field(field, form));
    };
    let Some(middleware) = node.middlewares.iter().find(|middleware| middleware.id == id) else {
        let what = format!("node {:?} has no middleware {id:?}; name one of its `middlewares`", node.id);
        return Err(Problem::field(field, what));
    };
    let (pointer, hint) = pointer_of(end.ports(middleware), key, end, field)?;
    Ok(PortTarget { node: &middleware.id, host: Some(&node.id), pointer, hint })
}

type Meaning = (Option<String>, Option<Hint>);

fn pointer_of(ports: &[Port], key: &str, end: End, field: &str) -> Result<Meaning, Problem> {
    let Some(port) = ports.iter().find(|port| port.key == key) else {
        // A node that declares no ports gives only order. A node that declares other ports was meant
        // differently.
        if ports.is_empty() {
            return Ok((None, None));
        }
        let known: Vec<&str> = ports.iter().map(|port| port.key.as_str()).collect();
        let what = format!("the node has no {} port {key:?}; it has {}", end.as_str(), known.join(", "));
        return Err(Problem::field(field, what));
    };
    let pointer = port.binding.as_ref().map(|binding| pointer(&binding.path));
    let is_data = |pointer: &String| {
        let root = pointer.split('/').nth(1).unwrap_or_default();
        end.roots().contains(&root)
    };
    Ok((pointer.filter(is_data), port.binding.as_ref().and_then(Hint::of)))
}

/// The JSON pointer of a path that is a pointer already or has dots between its parts.
fn pointer(path: &str) -> String {
    if path.starts_with('/') {
        return path.trim_end_matches('/').to_owned();
    }
    let escaped = |part: &str| part.replace('~', "~0").replace('/', "~1");
    path.split('.').filter(|part| !part.is_empty()).map(|part| format!("/{}", escaped(part))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{End, Hint, pointer, resolve};
    use crate::astraflow::workflow::Node;

    fn node() -> Node {
        let ports =
            |path: &str| json!([{"key": "p", "label": "P", "binding": {"path": path, "mode": "write"}}]);
        let read = json!({"id": "host", "type": "t",
            "ui": {"inputPorts": ports("parameters.deep.text"), "outputPorts": ports("/results/out")},
            "middlewares": [{"id": "m:1", "type": "t",
                "ui": {"inputPorts": ports("/parameters/limit"), "outputPorts": ports("/state/x")}}]});
        serde_json::from_value(read).unwrap()
    }

    fn target(port: &str, end: End) -> Result<(String, Option<String>), String> {
        let node = node();
        let target = resolve(&node, port, end, "edges[0]").map_err(|problem| format!("{problem:?}"))?;
        assert_eq!(target.host.is_some(), target.node != "host");
        Ok((target.node.to_owned(), target.pointer))
    }

    #[test]
    fn ports_resolve_to_nodes_and_middlewares() {
        let at = |node: &str, pointer: &str| Ok((node.to_owned(), Some(pointer.to_owned())));
        assert_eq!(target("p", End::Source), at("host", "/results/out"));
        assert_eq!(target("p", End::Target), at("host", "/parameters/deep/text"));
        assert_eq!(target("mw:m:1:input:p", End::Target), at("m:1", "/parameters/limit"));
        assert_eq!(
            target("mw:m:1:output:p", End::Source),
            Ok(("m:1".to_owned(), None)),
            "no position of data"
        );
        for (port, end) in
            [("q", End::Source), ("mw:m:1:input:p", End::Source), ("mw:m2:input:p", End::Target)]
        {
            assert!(target(port, end).unwrap_err().contains("edges[0]"), "{port}");
        }
    }

    #[test]
    fn prefixes_name_other_nodes() {
        let hint = |subgraphs: &[&str], node: Option<&str>| {
            let subgraphs = subgraphs.iter().map(|part| (*part).to_owned()).collect();
            Some(Hint { subgraphs, node: node.map(str::to_owned) })
        };
        assert_eq!(Hint::parse("@sg.#n"), hint(&["sg"], Some("n")));
        assert_eq!(Hint::parse("@a.b.#n.1"), hint(&["a", "b"], Some("n.1")));
        assert_eq!(Hint::parse("#n"), hint(&[], Some("n")));
        assert_eq!(Hint::parse("@sg"), hint(&["sg"], None));
        for none in ["", "@", "#", "plain"] {
            assert_eq!(Hint::parse(none), None, "{none}");
        }
    }

    #[test]
    fn paths_have_slashes_or_dots() {
        for (path, expected) in [
            ("/results/a", "/results/a"),
            ("results.a.b/c", "/results/a/b~1c"),
            ("parameters", "/parameters"),
            ("/results/", "/results"),
            ("", ""),
        ] {
            assert_eq!(pointer(path), expected, "{path}");
        }
    }
}
