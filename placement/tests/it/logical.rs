//! Logical graphs: every construct, rejected graphs, and the reference's pipelines.

use anabranch_placement::footprint::check::check_partitioning;
use anabranch_placement::footprint::{Capacity, Problem, zero_edges};
use anabranch_placement::format::{Loaded, Refusal};
use anabranch_placement::logical::{DropKind, MAX_DROPS, PhysicalGraph, Workload, parse};
use anabranch_placement::pipeline::Link;
use serde_json::{Value, json};

fn data(key: i32, group: i32) -> Value {
    json!({"key": key, "name": format!("d{key}"), "category": "Memory", "categoryType": "Data", "group": group,
        "fields": [{"name": "data_volume", "value": "7"}]})
}

fn app(key: i32, group: i32, fields: &[(&str, &str)]) -> Value {
    let fields: Vec<Value> = fields.iter().map(|(name, value)| json!({"name": name, "value": value})).collect();
    json!({"key": key, "name": format!("a{key}"), "category": "PythonApp", "categoryType": "Application", "group": group, "fields": fields})
}

fn group(key: i32, category: &str, group: i32, field: (&str, &str)) -> Value {
    json!({"key": key, "name": format!("g{key}"), "category": category, "categoryType": "Construct", "group": group,
        "isGroup": true, "fields": [{"name": field.0, "value": field.1}]})
}

fn text(nodes: &[Value], links: &[(i32, i32)]) -> String {
    let links: Vec<Value> = links.iter().map(|(from, to)| json!({"from": from, "to": to, "loop_aware": "0"})).collect();
    json!({"modelData": {}, "nodeDataArray": nodes, "linkDataArray": links}).to_string()
}

fn unrolled(nodes: &[Value], links: &[(i32, i32)]) -> PhysicalGraph {
    parse("test", text(nodes, links).as_bytes()).and_then(|graph| graph.unroll()).unwrap()
}

fn refused(nodes: &[Value], links: &[(i32, i32)]) -> String {
    let refusal: Refusal = parse("test", text(nodes, links).as_bytes()).and_then(|graph| graph.unroll()).unwrap_err();
    refusal.to_string()
}

/// Returns the links as pairs of ids.
fn links(graph: &PhysicalGraph) -> Vec<String> {
    let id = |place: usize| graph.drops()[place].id.as_str();
    let mut links: Vec<String> = graph.links().iter().map(|&(from, to)| format!("{} {}", id(from), id(to))).collect();
    links.sort();
    links
}

#[test]
fn scatters_nest_and_their_drops_follow_their_own() {
    let nodes = [
        data(1, 0),
        group(2, "Scatter", 0, ("num_of_copies", "2")),
        app(3, 2, &[("num_cpus", "4"), ("execution_time", "2.5")]),
        data(4, 2),
        group(5, "Scatter", 2, ("num_of_splits", "2")),
        app(6, 5, &[]),
    ];
    let graph = unrolled(&nodes, &[(1, 3), (3, 4), (4, 6)]);
    let expected = [
        "1_0 3_0-0",
        "1_0 3_0-1",
        "3_0-0 4_0-0",
        "3_0-1 4_0-1",
        "4_0-0 6_0-0-0",
        "4_0-0 6_0-0-1",
        "4_0-1 6_0-1-0",
        "4_0-1 6_0-1-1",
    ];
    assert_eq!(links(&graph), expected);
    let wide = graph.drops().iter().find(|drop| drop.id == "3_0-1").unwrap();
    assert_eq!((wide.cores, wide.time, wide.volume, wide.kind), (4, 2.5, 0, DropKind::Application));
    let workload = graph.workload(0).unwrap();
    assert_eq!(
        (workload.cores.iter().sum::<u64>(), workload.times.iter().sum::<f64>()),
        (2 * 4 + 4, 2.0 * 2.5 + 4.0 * 5.0)
    );
    // A datum is shared by all its readers.
    assert_eq!(workload.graph.datum_count(), 1 + 2 + 2);
}

#[test]
fn gathers_take_so_many_each_and_their_applications_all_of_these() {
    let gather = |width: &str| {
        let mut gather = group(4, "Gather", 0, ("num_of_inputs", width));
        gather["inputApplicationType"] = json!("PythonApp");
        gather["name"] = json!("join");
        [group(1, "Scatter", 0, ("num_of_copies", "4")), app(2, 1, &[]), data(3, 1), gather, data(5, 4)]
    };
    let graph = unrolled(&gather("2"), &[(2, 3), (3, 4), (4, 5)]);
    let into: Vec<String> = links(&graph).into_iter().filter(|link| link.starts_with("3_")).collect();
    assert_eq!(into, ["3_0-0 4_0-0", "3_0-1 4_0-0", "3_0-2 4_0-1", "3_0-3 4_0-1"]);
    assert_eq!(graph.drops().iter().filter(|drop| drop.name == "join").count(), 2);
    let graph = unrolled(&gather("3"), &[(2, 3), (3, 4), (4, 5)]);
    let into: Vec<String> = links(&graph).into_iter().filter(|link| link.starts_with("3_")).collect();
    assert_eq!(into, ["3_0-0 4_0-0", "3_0-1 4_0-0", "3_0-2 4_0-0", "3_0-3 4_0-1"]);
}

#[test]
fn group_bys_collect_what_has_their_index() {
    let nodes = |keys: &str| {
        [
            group(1, "Scatter", 0, ("num_of_copies", "2")),
            group(2, "Scatter", 1, ("num_of_copies", "3")),
            app(3, 2, &[]),
            data(4, 2),
            group(5, "GroupBy", 0, ("group_key", keys)),
            app(6, 5, &[]),
        ]
    };
    let graph = unrolled(&nodes("None"), &[(3, 4), (4, 5)]);
    let into: Vec<String> = links(&graph).into_iter().filter(|link| link.starts_with("4_")).collect();
    assert_eq!(
        into,
        ["4_0-0-0 5_0-0", "4_0-0-1 5_0-1", "4_0-0-2 5_0-2", "4_0-1-0 5_0-0", "4_0-1-1 5_0-1", "4_0-1-2 5_0-2"]
    );
    assert!(links(&graph).contains(&"5_0-1-grp-data 6_0-1".into()));
    let grouped = graph.drops().iter().find(|drop| drop.id == "5_0-0-grp-data").unwrap();
    assert_eq!((grouped.volume, grouped.kind), (14, DropKind::Data));
    let both = unrolled(&nodes("2,1"), &[(3, 4), (4, 5)]);
    assert_eq!(both.drops().iter().filter(|drop| drop.id.starts_with("6_")).count(), 6);
    // The innermost scatter is the slowest digit.
    assert!(links(&both).contains(&"4_0-1-0 5_0-1".into()) && links(&both).contains(&"4_0-0-1 5_0-2".into()));
}

#[test]
fn loops_go_from_iteration_to_iteration() {
    let nodes = [
        data(1, 0),
        group(2, "Loop", 0, ("num_of_iter", "3")),
        app(3, 2, &[("group_start", "1")]),
        {
            let mut end = data(4, 2);
            end["fields"] = json!([{"name": "group_end", "value": true}]);
            end
        },
        app(5, 0, &[]),
    ];
    let all = unrolled(&nodes, &[(1, 3), (3, 4), (4, 5)]);
    let between = ["4_0-0 3_0-1", "4_0-1 3_0-2"];
    assert!(between.iter().all(|link| links(&all).contains(&(*link).into())), "{:?}", links(&all));
    assert_eq!(links(&all).len(), 3 + 3 + 2 + 3);
    let aware = text(&nodes, &[(1, 3), (3, 4), (4, 5)]).replace("\"loop_aware\":\"0\"", "\"loop_aware\":\"1\"");
    let aware = parse("test", aware.as_bytes()).and_then(|graph| graph.unroll()).unwrap();
    assert_eq!(links(&aware).len(), 1 + 3 + 2 + 1);
    assert!(links(&aware).contains(&"1_0 3_0-0".into()) && links(&aware).contains(&"4_0-2 5_0".into()));
}

#[test]
fn applications_that_follow_each_other_stream() {
    let graph = unrolled(&[app(1, 0, &[]), app(2, 0, &[])], &[(1, 2)]);
    assert_eq!(links(&graph), ["1_0 1_0-2_0-stream", "1_0-2_0-stream 2_0"]);
    assert_eq!(graph.drops()[2].volume, 0);
}

#[test]
fn what_cannot_be_unrolled_is_refused_by_name() {
    let cases = [
        (refused(&[data(1, 0)], &[(1, 9)]), "\"9\""),
        (refused(&[data(1, 0), data(1, 0)], &[]), "twice"),
        (refused(&[data(1, 8)], &[]), "group \"8\""),
        (refused(&[group(1, "Scatter", 1, ("num_of_copies", "2"))], &[]), "within itself"),
        (refused(&[group(1, "Scatter", 0, ("num_of_copies", "0"))], &[]), "num_of_copies of node \"g1\""),
        (refused(&[group(1, "Scatter", 0, ("num_of_copies", "many"))], &[]), "num_of_copies of node \"g1\""),
        (
            refused(&[group(1, "Scatter", 0, ("num_of_copies", "2.7"))], &[]),
            "num_of_copies of node \"g1\" (1) is \"2.7\"",
        ),
        (refused(&[app(1, 0, &[("execution_time", "-1")])], &[]), "execution_time of node \"a1\""),
        (refused(&[group(1, "Gather", 0, ("num_of_inputs", "2"))], &[]), "has no input"),
        (refused(&[data(1, 0), group(2, "GroupBy", 0, ("group_key", "None"))], &[(1, 2)]), "in no scatter"),
        (refused(&[group(1, "MKN", 0, ("k", "2"))], &[]), "cannot be unrolled: it is a MKN"),
        (refused(&[app(1, 0, &[]), data(2, 0)], &[(1, 2), (2, 1)]), "cycle"),
        (refused(&[app(1, 0, &[])], &[(1, 1)]), "cycle: a1 -> a1"),
        (refused(&[app(1, 0, &[]), app(2, 0, &[])], &[(1, 2), (2, 1)]), "cycle: a2 -> a1 -> a2"),
        (refused(&[data(1, 0), group(2, "Scatter", 0, ("num_of_copies", "2"))], &[(1, 2)]), "link its application"),
    ];
    for (refusal, expected) in cases {
        assert!(refusal.contains(expected), "{expected}: {refusal}");
    }
    let nest = |key: i32| group(key, "Scatter", key - 1, ("num_of_copies", "1000"));
    let too_many = refused(&[nest(1), nest(2), nest(3), app(4, 3, &[])], &[]);
    assert!(too_many.contains("drops, but the limit is"), "{too_many}");
}

/// Each copy is one drop, so more than half of the limit is allowed.
#[test]
fn a_scatter_beyond_half_of_the_most_drops_is_unrolled() {
    let copies = MAX_DROPS / 2 + 1;
    let count = copies.to_string();
    let nodes = [group(1, "Scatter", 0, ("num_of_copies", count.as_str())), app(2, 1, &[])];
    assert_eq!(unrolled(&nodes, &[]).drops().len() as u64, copies);
}

/// Gathers and group-bys accept several inputs only if their groups are equal, because the first input determines the
/// number of copies.
#[test]
fn inputs_of_different_groups_are_refused_by_name() {
    let nodes = |kind: &str, field: (&str, &str)| {
        [
            data(1, 0),
            group(2, "Scatter", 0, ("num_of_copies", "4")),
            app(3, 2, &[]),
            data(4, 2),
            group(5, kind, 0, field),
        ]
    };
    let gather = nodes("Gather", ("num_of_inputs", "1"));
    for links in [[(1, 5), (3, 5)], [(3, 5), (1, 5)]] {
        let refusal = refused(&gather, &links);
        assert!(refusal.contains("in other groups than its input"), "{refusal}");
    }
    assert!(
        refused(&gather, &[(3, 5), (2, 5)])
            .contains("node \"g2\" (2) cannot be unrolled: it is a construct with a link")
    );
    let by = nodes("GroupBy", ("group_key", "None"));
    assert!(refused(&by, &[(3, 5), (1, 5)]).contains("node \"d1\" (1) cannot be unrolled: it is an input of"));
    assert!(refused(&by, &[(3, 5), (2, 5)]).contains("a construct with a link"));
    // Inputs of equal groups are dealt out equally.
    assert_eq!(unrolled(&gather, &[(3, 5), (4, 5)]).drops().len(), 9);
}

/// Small files that would take much memory or deep recursion.
#[test]
fn hostile_graphs_are_refused() {
    let mut long = data(1, 0);
    long["name"] = json!("x".repeat(2000));
    let refusal = refused(&[long], &[]);
    assert!(refusal.contains("2000 bytes in a key, name or category"), "{refusal}");

    let nest = |depth: i32| -> Vec<Value> {
        (1..=depth).map(|key| group(key, "Scatter", key - 1, ("num_of_copies", "1"))).collect()
    };
    assert_eq!(unrolled(&nest(64), &[]).drops().len(), 0);
    assert!(refused(&nest(66), &[]).contains("more than 64 groups"));

    // The last gather comes first, so each count waits for the one before it.
    let mut chain: Vec<Value> = (1..=2000).rev().map(|key| group(key, "Gather", 0, ("num_of_inputs", "1"))).collect();
    chain.push(data(5000, 0));
    let links: Vec<(i32, i32)> = std::iter::once((5000, 1)).chain((1..2000).map(|key| (key, key + 1))).collect();
    let refusal = refused(&chain, &links);
    assert!(refusal.contains("fed by a chain of more than 200 constructs"), "{refusal}");

    // Each of many ends of a loop is linked to each of many starts.
    let mut ends = vec![group(1, "Loop", 0, ("num_of_iter", "2"))];
    ends.extend((2..2102).map(|key| app(key, 1, &[("group_start", "1")])));
    ends.extend((3000..5100).map(|key| app(key, 1, &[("group_end", "1")])));
    let refusal = refused(&ends, &[]);
    assert!(refusal.contains("links, but the limit is"), "{refusal}");
}

/// If a file is cut off or overwritten anywhere, parsing returns a graph or an error.
#[test]
fn damaged_graphs_never_panic() {
    let source = text(
        &[
            data(1, 0),
            group(2, "Scatter", 0, ("num_of_copies", "2")),
            app(3, 2, &[]),
            group(4, "Gather", 0, ("num_of_inputs", "2")),
        ],
        &[(1, 3), (3, 4)],
    );
    arbtest::arbtest(|random| {
        let mut bytes = source.clone().into_bytes();
        for _ in 0..random.int_in_range(1..=3u8)? {
            let at = random.choose_index(bytes.len())?;
            bytes[at] = *random.choose(b"\"{}[],:-0129 GScg")?;
        }
        if let Ok(graph) = parse("damaged", &bytes) {
            let _ = graph.unroll();
        }
        Ok(())
    })
    .budget_ms(400);
}

#[test]
fn the_laboratory_reads_logical_graphs_and_daliuge_their_drops() {
    let nodes = [
        data(1, 0),
        group(2, "Scatter", 0, ("num_of_copies", "3")),
        app(3, 2, &[("command", "sort %i0 > %o0")]),
        data(4, 2),
    ];
    let source = text(&nodes, &[(1, 3), (3, 4)]);
    let Ok(Loaded::Graph(loaded)) = anabranch_placement::format::parse("pipe.graph", source.as_bytes()) else {
        panic!()
    };
    assert_eq!((loaded.name.as_str(), loaded.graph.task_count()), ("pipe", 7));

    let physical = parse("pipe", source.as_bytes()).and_then(|graph| graph.unroll()).unwrap();
    let workload = physical.workload(1).unwrap();
    let capacity = Capacity { cores: 1, memory: None };
    let link = Link { latency: 0.0, bandwidth: 1.0 };
    let problem = Problem::new(&workload.graph, workload.cores, workload.times, capacity, link).unwrap();
    let partitioning = zero_edges(&problem);
    assert_eq!((check_partitioning(&problem, &partitioning), partitioning.parts.len()), (vec![], 3));
    let mut written = Vec::new();
    physical.write(Some(&partitioning), &mut written).unwrap();
    let drops: Vec<Value> = serde_json::from_slice(&written).unwrap();
    let drop = |id: &str| drops.iter().find(|drop| drop["oid"] == id).unwrap();
    assert_eq!(drop("1_0")["consumers"], json!(["3_0-0", "3_0-1", "3_0-2"]));
    let application = drop("3_0-2");
    assert_eq!((&application["inputs"], &application["outputs"]), (&json!(["1_0"]), &json!(["4_0-2"])));
    assert_eq!((&application["command"], &application["rank"]), (&json!("sort %i0 > %o0"), &json!([0, 2])));
    assert_eq!((&drop("4_0-2")["node"], &drop("4_0-2")["island"]), (&application["node"], &json!("#0")));
    assert!(drops.iter().all(|drop| drop["node"].as_str().is_some_and(|node| node.starts_with('#'))));
}

/// Nine of the reference's pipelines have equal drops and links, by name, time, volume and cores.
#[test]
fn the_references_pipelines_are_unrolled_alike() {
    let golden: Vec<Value> = serde_json::from_str(include_str!("../data/footprint/pipelines.json")).unwrap();
    let files = [
        ("ArrayLoop.graph", include_str!("../data/footprint/logical/ArrayLoop.graph")),
        ("ExampleSubgraphNoInput.graph", include_str!("../data/footprint/logical/ExampleSubgraphNoInput.graph")),
        ("HelloWorld_simple.graph", include_str!("../data/footprint/logical/HelloWorld_simple.graph")),
        ("SharedMemoryTest_update.graph", include_str!("../data/footprint/logical/SharedMemoryTest.graph")),
        ("branchTest.graph", include_str!("../data/footprint/logical/branchTest.graph")),
        ("eagle_gather_simple_update.graph", include_str!("../data/footprint/logical/eagle_gather_simple.graph")),
        ("earth_location.graph", include_str!("../data/footprint/logical/earth_location.graph")),
        ("test-20190830-110556.graph", include_str!("../data/footprint/logical/test-20190830-110556.graph")),
        ("test_grpby_gather.graph", include_str!("../data/footprint/logical/test_grpby_gather.graph")),
    ];
    for (name, text) in files {
        let reference = golden.iter().find(|case| case["graph"] == name).unwrap();
        let graph = parse(name, text.as_bytes()).and_then(|graph| graph.unroll()).unwrap();
        let Workload { graph: tasks, cores, times } = graph.workload(1).unwrap();
        let ours = |place: usize| format!("{} {} {}", graph.drops()[place].name, times[place], cores[place]);
        let theirs = |place: &Value| {
            let place = place.as_u64().unwrap() as usize;
            let [time, cores] = [0, 1].map(|at| reference["nodes"][place][at].as_u64().unwrap());
            format!("{} {time} {cores}", reference["names"][place].as_str().unwrap())
        };
        let mut expected: Vec<String> = reference["edges"]
            .as_array()
            .unwrap()
            .iter()
            .map(|edge| format!("{} -> {} {}", theirs(&edge[0]), theirs(&edge[1]), edge[2]))
            .collect();
        let volume = |from: usize, to: usize| graph.drops()[from].volume.max(graph.drops()[to].volume);
        let mut found: Vec<String> = graph
            .links()
            .iter()
            .map(|&(from, to)| format!("{} -> {} {}", ours(from), ours(to), volume(from, to)))
            .collect();
        expected.sort();
        found.sort();
        assert_eq!(found, expected, "{name}");
        assert_eq!(tasks.task_count(), reference["nodes"].as_array().unwrap().len(), "{name}");
        // Parallelism and longest path equal the reference's.
        let capacity = Capacity { cores: 64, memory: None };
        let problem = Problem::new(&tasks, cores, times, capacity, Link { latency: 0.0, bandwidth: 1.0 }).unwrap();
        assert_eq!(json!(problem.parallelism()), reference["parallelism"], "{name}");
        let apart = problem.longest_path(|_, _| true);
        assert_eq!(json!(apart as u64), reference["runs"][0]["before"][0], "{name}");
    }
}

/// Three nested loops, with links into and out of them.
#[test]
fn nested_loops_are_unrolled() {
    let text = include_str!("../data/footprint/logical/cont_img.graph");
    let graph = parse("cont_img", text.as_bytes()).and_then(|graph| graph.unroll()).unwrap();
    let copies = |name: &str| graph.drops().iter().filter(|drop| drop.name.starts_with(name)).count();
    assert_eq!(copies("Identify"), 2 * 2 * 3);
    assert!(graph.workload(0).is_ok());
}
