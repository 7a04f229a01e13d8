"""Control flow with small bodies, and operators of classical models."""

import numpy as np
from case import SUM, Case, Constant, TensorProto, floats, integers
from onnx import helper

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
ML = "ai.onnx.ml"


def cases():
    yield from loops()
    yield from trees()
    yield from others()


def graph(nodes, inputs, outputs):
    """A body; each input and output has a name and a shape, and a type if it is no f32."""
    return helper.make_graph(nodes, "body", [named(*each) for each in inputs], [named(*each) for each in outputs])


def named(name, shape, of=FLOAT):
    return helper.make_tensor_value_info(name, of, shape)


def loop(size):
    """Doubles a state."""
    node = helper.make_node
    nodes = [node("Identity", ["going"], ["go_on"]), node("Add", ["state", "state"], ["doubled"]), node("Tanh", ["doubled"], ["next"])]
    inputs = [("trip", [], INT64), ("going", [], BOOL), ("state", [size])]
    return graph(nodes, inputs, [("go_on", [], BOOL), ("next", [size])])


def scan(size):
    """Adds each row to a state."""
    nodes = [helper.make_node("Add", ["state", "part"], ["next"]), helper.make_node("Tanh", ["next"], ["made"])]
    return graph(nodes, [("state", [size]), ("part", [size])], [("next", [size]), ("made", [size])])


def until():
    """Goes on until a sum is reached, which only a run knows."""
    node = helper.make_node
    nodes = [
        node("ReduceSum", ["state"], ["sum"], keepdims=0),
        node("Constant", [], ["most"], value_float=50.0),
        node("Less", ["sum", "most"], ["go_on"]),
        node("Constant", [], ["step"], value_float=0.05),
        node("Add", ["state", "step"], ["next"]),
    ]
    inputs = [("trip", [], INT64), ("going", [], BOOL), ("state", [16])]
    return graph(nodes, inputs, [("go_on", [], BOOL), ("next", [16])])


def loops():
    going = Constant(True, np.bool_)
    for trips in (10, 1000):
        for size in (1, 1024):
            given = [Constant(trips, np.int64), going, floats(size)]
            yield Case("Loop", f"{trips} trips, f32 {size}", given, {"body": loop(size)}, tolerance=SUM)
            given = [floats(size), floats(trips, size, seed=2, low=-0.01, high=0.01)]
            yield Case("Scan", f"{trips} steps, f32 {size}", given, {"body": scan(size), "num_scan_inputs": 1}, outputs=2, tolerance=SUM)
    given = [Constant(1000, np.int64), going, np.zeros(16, np.float32)]
    yield Case("Loop", "until a sum is reached, about 60 trips", given, {"body": until()}, tolerance=SUM)
    branches = {}
    for name, op in (("then_branch", "Exp"), ("else_branch", "Neg")):
        branches[name] = helper.make_graph([helper.make_node(op, ["x1"], [name])], name, [], [named(name, [64])])
    yield Case("If", "f32 64", [np.array(True), floats(64)], branches, taken=1)


def trees():
    """A hundred trees of depth six over 20 features, with random thresholds."""
    random = np.random.default_rng(5)
    depth, count, features = 6, 100, 20
    inner, all_nodes = 2**depth - 1, 2 ** (depth + 1) - 1
    numbers = np.arange(all_nodes)
    is_leaf = numbers >= inner
    true = np.where(is_leaf, 0, 2 * numbers + 1)
    false = np.where(is_leaf, 0, 2 * numbers + 2)
    nodes = {
        "nodes_treeids": np.repeat(np.arange(count), all_nodes).tolist(),
        "nodes_nodeids": np.tile(numbers, count).tolist(),
        "nodes_featureids": random.integers(0, features, count * all_nodes).tolist(),
        "nodes_values": random.uniform(-1, 1, count * all_nodes).astype(np.float32).tolist(),
        "nodes_modes": ["LEAF" if leaf else "BRANCH_LEQ" for leaf in np.tile(is_leaf, count)],
        "nodes_truenodeids": np.tile(true, count).tolist(),
        "nodes_falsenodeids": np.tile(false, count).tolist(),
    }
    leaves = np.flatnonzero(is_leaf)
    ids = {"treeids": np.repeat(np.arange(count), len(leaves)).tolist(), "nodeids": np.tile(leaves, count).tolist()}
    weights = random.uniform(-1, 1, count * len(leaves)).astype(np.float32).tolist()
    targets = {f"target_{name}": of for name, of in ids.items()} | {"target_ids": [0] * len(weights), "target_weights": weights}
    classes = {f"class_{name}": of for name, of in ids.items()} | {"class_ids": random.integers(0, 3, len(weights)).tolist(), "class_weights": weights}
    for rows in (1, 100, 10000):
        given = [floats(rows, features)]
        yield Case("TreeEnsembleRegressor", f"{rows} rows, 100 trees", given, nodes | targets | {"n_targets": 1}, domain=ML, tolerance=SUM)
        yield Case("TreeEnsembleClassifier", f"{rows} rows, 100 trees", given, nodes | classes | {"classlabels_int64s": [0, 1, 2], "post_transform": "SOFTMAX"}, outputs=2, domain=ML, tolerance=SUM)


def others():
    for rows in (1, 1000):
        given = [floats(rows, 20)]
        coefficients = {"coefficients": floats(60, seed=2).tolist(), "intercepts": floats(3, seed=3).tolist()}
        yield Case("LinearRegressor", f"{rows} rows", given, coefficients | {"targets": 3}, domain=ML)
        yield Case("LinearClassifier", f"{rows} rows", given, coefficients | {"classlabels_ints": [0, 1, 2], "post_transform": "SOFTMAX"}, outputs=2, domain=ML)
        yield Case("Scaler", f"{rows} rows", given, {"offset": floats(20, seed=2).tolist(), "scale": floats(20, seed=3).tolist()}, domain=ML)
        for norm in ("MAX", "L1", "L2"):
            yield Case("Normalizer", f"{rows} rows, {norm}", given, {"norm": norm}, domain=ML)
        holes = given[0].copy()
        holes[:, ::3] = np.nan
        yield Case("Imputer", f"{rows} rows", [holes], {"imputed_value_floats": [0.5], "replaced_value_float": float("nan")}, domain=ML)
        yield Case("Binarizer", f"{rows} rows", given, {"threshold": 0.1}, domain=ML)
        yield Case("OneHotEncoder", f"{rows} rows", [integers(rows, high=8)], {"cats_int64s": list(range(8))}, domain=ML)
        yield Case("ArrayFeatureExtractor", f"{rows} rows", [given[0], Constant([1, 5, 7], np.int64)], domain=ML)
        yield Case("LabelEncoder", f"{rows} rows", [integers(rows, high=8)], {"keys_int64s": list(range(8)), "values_floats": floats(8).tolist()}, domain=ML)
        support = {"support_vectors": floats(50 * 20, seed=2).tolist(), "coefficients": floats(50, seed=3).tolist(), "rho": [0.1], "n_supports": 50, "kernel_type": "RBF", "kernel_params": [0.1, 0.0, 3.0]}
        yield Case("SVMRegressor", f"{rows} rows, 50 vectors", given, support, domain=ML, tolerance=SUM)
