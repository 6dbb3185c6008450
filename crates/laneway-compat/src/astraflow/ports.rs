//! Ports: what an edge between two of them means for the data of their nodes.
//!
//! A port is a name for a place in a node's parameters or results. `mw:<id>:input:<key>` and `mw:<id>:output:<key>` are
//! ports of a middleware, written at the node that it is attached to.

use super::error::Problem;
use super::workflow::{Node, Port};

/// Which end of an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Where data comes from.
    Source,
    /// Where data goes to.
    Target,
}

impl End {
    fn word(self) -> &'static str {
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

    /// Where data may come from, or go to. Other places are the editor's own.
    fn roots(self) -> &'static [&'static str] {
        match self {
            End::Source => &["results", "parameters"],
            End::Target => &["parameters"],
        }
    }
}

/// What a port stands for.
#[derive(Debug, PartialEq, Eq)]
pub struct Place<'a> {
    /// The node, or the middleware of it.
    pub node: &'a str,
    /// The middleware's host is the node of the edge; `None` for a port of the node itself.
    pub host: Option<&'a str>,
    /// The place, as a JSON pointer. `None`: it carries no data, only order.
    pub pointer: Option<String>,
}

/// Finds the place that `port` of `node` stands for. `field`: where the port is written.
pub fn resolve<'a>(node: &'a Node, port: &str, end: End, field: &str) -> Result<Place<'a>, Problem> {
    let Some(rest) = port.strip_prefix("mw:") else {
        let pointer = pointer_of(end.ports(node), port, end, field)?;
        return Ok(Place { node: &node.id, host: None, pointer });
    };
    let parts = rest.split_once(&format!(":{}:", end.word()));
    let Some((id, key)) = parts.filter(|(id, key)| !id.is_empty() && !key.is_empty()) else {
        let form = format!("a middleware's port here is written mw:<id>:{}:<key>", end.word());
        return Err(Problem::field(field, form));
    };
    let Some(middleware) = node.middlewares.iter().find(|middleware| middleware.id == id) else {
        let what = format!("node {:?} has no middleware {id:?}; name one of its `middlewares`", node.id);
        return Err(Problem::field(field, what));
    };
    let pointer = pointer_of(end.ports(middleware), key, end, field)?;
    Ok(Place { node: &middleware.id, host: Some(&node.id), pointer })
}

fn pointer_of(ports: &[Port], key: &str, end: End, field: &str) -> Result<Option<String>, Problem> {
    let Some(port) = ports.iter().find(|port| port.key == key) else {
        // A node that declares no ports gives order and nothing else; one that declares others was meant differently.
        if ports.is_empty() {
            return Ok(None);
        }
        let known: Vec<&str> = ports.iter().map(|port| port.key.as_str()).collect();
        let what = format!("the node has no {} port {key:?}; it has {}", end.word(), known.join(", "));
        return Err(Problem::field(field, what));
    };
    let pointer = port.binding.as_ref().map(|binding| pointer(&binding.path));
    let is_data = |pointer: &String| {
        let root = pointer.split('/').nth(1).unwrap_or_default();
        end.roots().contains(&root)
    };
    Ok(pointer.filter(is_data))
}

/// The JSON pointer of a path that is one already, or has dots between its parts.
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

    use super::{End, pointer, resolve};
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

    fn place(port: &str, end: End) -> Result<(String, Option<String>), String> {
        let node = node();
        let place = resolve(&node, port, end, "edges[0]").map_err(|problem| format!("{problem:?}"))?;
        assert_eq!(place.host.is_some(), place.node != "host");
        Ok((place.node.to_owned(), place.pointer))
    }

    #[test]
    fn ports_are_places_in_nodes_and_middlewares() {
        let at = |node: &str, pointer: &str| Ok((node.to_owned(), Some(pointer.to_owned())));
        assert_eq!(place("p", End::Source), at("host", "/results/out"));
        assert_eq!(place("p", End::Target), at("host", "/parameters/deep/text"));
        assert_eq!(place("mw:m:1:input:p", End::Target), at("m:1", "/parameters/limit"));
        assert_eq!(place("mw:m:1:output:p", End::Source), Ok(("m:1".to_owned(), None)), "no place of data");
        for (port, end) in
            [("q", End::Source), ("mw:m:1:input:p", End::Source), ("mw:m2:input:p", End::Target)]
        {
            assert!(place(port, end).unwrap_err().contains("edges[0]"), "{port}");
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
