//! Text of graphs in Graphviz's language.

/// Returns the beginning of a directed graph, whose nodes are boxes.
pub(crate) fn beginning(name: &str) -> String {
    format!(
        "digraph \"{}\" {{\n  rankdir=LR;\n  node [shape=box, fontname=\"sans-serif\"];\n",
        escape(name)
    )
}

/// Escapes a text for a quoted string.
pub(crate) fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"")
}
