//! Draws the graph of a run: nodes in columns by their distance from the start, and lines between them.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// A node to draw.
pub struct Node<'a> {
    /// Its name, unique within the run.
    pub name: &'a str,
    /// The state of its job.
    pub state: &'a str,
    /// The nodes that it depends on, and the group that contains it.
    pub after: Vec<&'a str>,
    /// Where a click leads.
    pub href: String,
}

/// Most nodes that are drawn. A larger run is shown as a table only.
pub const NODES_MAX: usize = 200;

const NODE_WIDTH: usize = 128;
const NODE_HEIGHT: usize = 38;
const COLUMN: usize = NODE_WIDTH + 36;
const ROW: usize = NODE_HEIGHT + 18;
/// The longest name in a node, in characters.
const NAME_CHARS_MAX: usize = 15;

/// The graph as SVG. Empty text for no nodes, or too many.
pub fn draw(nodes: &[Node<'_>]) -> String {
    if nodes.is_empty() || nodes.len() > NODES_MAX {
        return String::new();
    }
    let index: BTreeMap<&str, usize> = nodes.iter().enumerate().map(|(at, node)| (node.name, at)).collect();
    let columns = columns(nodes, &index);
    let mut rows = vec![0; nodes.len()];
    let mut heights: BTreeMap<usize, usize> = BTreeMap::new();
    for (at, column) in columns.iter().enumerate() {
        let height = heights.entry(*column).or_default();
        rows[at] = *height;
        *height += 1;
    }
    let width = columns.iter().max().map_or(0, |last| last * COLUMN + NODE_WIDTH) + 8;
    let tallest = heights.values().max().copied().unwrap_or(1);
    let height = tallest * ROW;
    let place = |at: usize| {
        let column = columns[at];
        let free = (tallest - heights.get(&column).copied().unwrap_or(1)) * ROW / 2;
        (column * COLUMN + 4, rows[at] * ROW + free + (ROW - NODE_HEIGHT) / 2)
    };
    let mut svg = format!(
        "<svg class=\"graph\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" role=\"img\" \
         aria-label=\"The nodes of the run and their dependencies\">"
    );
    for (at, node) in nodes.iter().enumerate() {
        let (x2, y2) = place(at);
        for before in node.after.iter().filter_map(|before| index.get(before)) {
            let (x1, y1) = place(*before);
            let (x1, y1, y2) = (x1 + NODE_WIDTH, y1 + NODE_HEIGHT / 2, y2 + NODE_HEIGHT / 2);
            let (m1, m2) = (x1 + 18, x2.saturating_sub(18));
            let _ = write!(svg, "<path class=\"edge\" d=\"M{x1} {y1}C{m1} {y1} {m2} {y2} {x2} {y2}\"/>");
        }
    }
    for (at, node) in nodes.iter().enumerate() {
        draw_node(&mut svg, node, place(at));
    }
    svg.push_str("</svg>");
    svg
}

fn draw_node(svg: &mut String, node: &Node<'_>, (x, y): (usize, usize)) {
    let name: String = if node.name.chars().count() > NAME_CHARS_MAX {
        node.name.chars().take(NAME_CHARS_MAX - 1).chain(['…']).collect()
    } else {
        node.name.to_owned()
    };
    let _ = write!(
        svg,
        "<a href=\"{}\"><g class=\"node s-{}\"><title>{}: {}</title><rect x=\"{x}\" y=\"{y}\" width=\"{NODE_WIDTH}\" \
         height=\"{NODE_HEIGHT}\" rx=\"8\"/><circle cx=\"{}\" cy=\"{}\" r=\"4.5\"/><svg x=\"{}\" y=\"{y}\" width=\"{}\" height=\"{NODE_HEIGHT}\"><text y=\"{}\">{}</text></svg></g></a>",
        escape(&node.href),
        escape(node.state),
        escape(node.name),
        escape(node.state),
        x + 15,
        y + NODE_HEIGHT / 2,
        // A part of its own, so that wide letters end at its edge.
        x + 27,
        NODE_WIDTH - 33,
        NODE_HEIGHT / 2 + 4,
        escape(&name),
    );
}

/// The column of each node: one more than the last of those that it depends on.
fn columns(nodes: &[Node<'_>], index: &BTreeMap<&str, usize>) -> Vec<usize> {
    let mut columns = vec![0; nodes.len()];
    // The API rejects cycles; the bound keeps even one from holding the page up.
    for _ in 0..nodes.len() {
        let mut moved = false;
        for (at, node) in nodes.iter().enumerate() {
            let before =
                node.after.iter().filter_map(|before| index.get(before)).map(|before| columns[*before] + 1);
            let column = before.max().unwrap_or(0).min(nodes.len() - 1);
            moved |= column != columns[at];
            columns[at] = column;
        }
        if !moved {
            break;
        }
    }
    columns
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node<'a>(name: &'a str, after: &[&'a str]) -> Node<'a> {
        Node { name, state: "queued", after: after.to_vec(), href: format!("../jobs/{name}") }
    }

    #[test]
    fn nodes_stand_to_the_right_of_what_they_depend_on() {
        let nodes = [node("d", &["b", "c"]), node("a", &[]), node("b", &["a"]), node("c", &["b"])];
        let index = nodes.iter().enumerate().map(|(at, node)| (node.name, at)).collect();
        assert_eq!(columns(&nodes, &index), [3, 0, 1, 2]);
        let svg = draw(&nodes);
        assert_eq!((svg.matches("<rect").count(), svg.matches("class=\"edge\"").count()), (4, 4));
    }

    #[test]
    fn hostile_names_and_cycles_do_no_harm() {
        let svg = draw(&[node("<script>", &["\"x\""]), node("\"x\"", &["<script>"])]);
        assert!(!svg.contains("<script>") && svg.contains("&lt;script&gt;"));
    }
}
