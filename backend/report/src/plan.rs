//! A plan as a graph for Graphviz.

use anabranch::device::format_bytes;
use anabranch::planning::Planned;
use anabranch::program::Origin;
use std::fmt::Write;

/// Returns the program in Graphviz' language. Edges that cross devices are bold and labelled with their bytes.
pub fn dot(planned: &Planned) -> String {
    let (program, plan) = (&planned.program, planned.plan());
    let quoted = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"");
    let mut text = String::from("digraph plan {\n  node [shape=box, style=filled, colorscheme=set312];\n");
    for id in program.node_ids() {
        let (node, device) = (program.node(id), plan.device_of(id));
        let _ = writeln!(
            text,
            "  n{} [label=\"{}\\n{} on {}\", fillcolor={}];",
            id.0,
            quoted(&node.name),
            node.spec.op.name(),
            quoted(&plan.device(device).name),
            device.0 % 12 + 1
        );
    }
    for id in program.node_ids() {
        for input in &program.node(id).inputs {
            let Origin::Node(from) = program.value(*input).origin else { continue };
            let bytes = program.value(*input).spec.bytes() as u64;
            let style = match plan.device_of(from) == plan.device_of(id) {
                true => String::new(),
                false => format!(" [penwidth=2, label=\"{}\"]", format_bytes(bytes)),
            };
            let _ = writeln!(text, "  n{} -> n{}{style};", from.0, id.0);
        }
    }
    text.push_str("}\n");
    text
}
