"""The placement simulator: graphs and platforms from files, dictionaries and networkx; schedules and charts out."""

import xml.etree.ElementTree as ElementTree

import networkx as nx
import pytest
from conftest import DATA, session

import anabranch as ab

GRAPH = """id,out,in,colocated,tensor,operations,memory,constraint,name
0,1;2,,,8,4,0,NO,a
1,3,0,,8,4,0,NO,b
2,3,0,,8,4,0,NO,c
3,,1;2,,8,4,0,NO,d
"""


def diamond():
    graph = nx.DiGraph(name="diamond")
    graph.add_nodes_from("abcd", operations=4.0)
    graph.add_edges_from([("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")], bytes=8)
    return graph


def test_a_networkx_graph_is_placed_on_a_list_of_devices():
    schedule = ab.place(diamond(), ["cpu", {"kind": "gpu", "speed": 2.0}], "heft")
    assert schedule.facts["problem"] == "diamond" and schedule.facts["valid"]
    assert set(schedule.placement) == set("abcd") and set(schedule.placement.values()) <= {"cpu0", "gpu0"}
    rows = {row["name"]: row for row in schedule.rows()}
    assert rows["d"]["start"] >= max(rows[name]["end"] for name in "bc") and rows["d"]["end"] == schedule.makespan
    # All tasks on the GPU take 8. With free links, two parallel paths are the fastest.
    assert schedule.facts["bound"] <= schedule.makespan <= 8.0
    ElementTree.fromstring(schedule.svg())
    assert schedule._repr_html_() == schedule.svg()


def test_times_links_and_constraints_count():
    graph = diamond()
    for node in graph:
        graph.nodes[node]["times"] = {"cpu0": 1.0, "gpu0": None if node == "a" else 0.1}
    platform = {
        "platform": {
            "devices": [{"name": "cpu0", "kind": "cpu"}, {"name": "gpu0", "kind": "gpu"}],
            "rate": [[None, 0.1], [0.1, None]],
        }
    }
    far = ab.place(graph, platform, "heft")
    assert far.placement["a"] == "cpu0" and far.makespan <= 4.0
    platform["platform"]["rate"] = [[None, 1e9], [1e9, None]]
    near = ab.place(graph, platform, "mite")
    assert near.placement["b"] == near.placement["c"] == "gpu0" and near.makespan < 1.5
    assert {row["from"] for row in near.transfers()} == {"cpu0"}
    graph.nodes["d"]["pinned"] = 0
    assert ab.place(graph, platform, "heft").placement["d"] == "cpu0"


def test_edges_of_one_datum_are_sent_once():
    graph = diamond()
    platform = ["cpu", "gpu"]
    for node, device in zip("abcd", (0, 1, 1, 1), strict=True):
        graph.nodes[node]["pinned"] = device
    apart = ab.place(graph, platform)
    nx.set_edge_attributes(graph, {("a", "b"): "t", ("a", "c"): "t"}, "datum")
    shared = ab.place(graph, platform)
    assert (len(apart.transfers()), len(shared.transfers())) == (2, 1)


def test_files_are_read(tmp_path):
    graph = tmp_path / "graph.csv"
    graph.write_text(GRAPH)
    schedule = ab.place(graph, ["cpu", "cpu"], "heft")
    assert [row["name"] for row in schedule.rows()] == list("abcd")
    schedule.save_svg(tmp_path / "schedule.svg")
    ElementTree.parse(tmp_path / "schedule.svg")


def test_a_model_is_a_problem_too():
    problem = session(DATA / "fire.onnx", cpu_devices="core").problem()
    for strategy in ("heft", "mite", "auto"):
        schedule = ab.place(problem, place=strategy, evaluations=200)
        assert schedule.facts["time_unit"] == "s" and schedule.facts["valid"]


def test_strategies_are_listed_and_each_places():
    names = ab.strategies()
    assert {"heft", "mite", "auto"} <= set(names)
    for name in names:
        if name not in ("gpu", "auto"):
            assert ab.place(diamond(), ["cpu", "cpu"], name).facts["valid"], name


def test_what_is_wrong_is_said(tmp_path):
    wrong = [
        (lambda: ab.place(diamond(), ["cpu"], "nothing"), "strategy"),
        (lambda: ab.place(diamond(), ["cpu"], order="lifo"), "order|variant"),
        (lambda: ab.place(diamond()), "platform"),
        (lambda: ab.place(nx.Graph([(0, 1)]), ["cpu"]), "DiGraph"),
        (lambda: ab.place(nx.DiGraph([(0, 1), (1, 0)]), ["cpu"]), "cycl"),
        (lambda: ab.place(tmp_path / "none.csv", ["cpu"]), "none.csv"),
        (lambda: ab.place(17, ["cpu"]), "int"),
        (lambda: ab.place({"graph": {"tasks": [{"name": "a", "colour": 1}]}}, ["cpu"]), "colour"),
    ]
    for call, part in wrong:
        with pytest.raises(ab.errors.InputError, match=part):
            call()
