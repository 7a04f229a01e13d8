"""Control flow with small bodies, and operators of classical models."""

import numpy as np
from case import SUM, Case, Constant, TensorProto, floats, integers
from onnx import helper

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
ML = "ai.onnx.ml"


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


def loops(pick):
    going = Constant(True, np.bool_)
    for trips, size in pick([(trips, size) for trips in (10, 1000) for size in (1, 1024)], lambda draw: (draw.log(1, 1000), draw.length(2000)), 6):
        given = [Constant(trips, np.int64), going, floats(size)]
        yield Case("Loop", f"{trips} trips, f32 {size}", given, {"body": loop(size)}, tolerance=SUM)
        given = [floats(size), floats(trips, size, seed=2, low=-0.01, high=0.01)]
        yield Case("Scan", f"{trips} steps, f32 {size}", given, {"body": scan(size), "num_scan_inputs": 1}, outputs=2, tolerance=SUM)
    for begin in pick([0.0], lambda draw: draw.uniform(0.0, 3.0)):
        given = [Constant(1000, np.int64), going, np.full(16, begin, np.float32)]
        trips = round((50 / 16 - begin) / 0.05, -1)
        yield Case("Loop", f"until a sum is reached, about {trips:.0f} trips", given, {"body": until()}, tolerance=SUM)
    for size, which in pick([(64, True)], lambda draw: (draw.length(), draw.one(True, False))):
        branches = {}
        for name, op in (("then_branch", "Exp"), ("else_branch", "Neg")):
            branches[name] = helper.make_graph([helper.make_node(op, ["x1"], [name])], name, [], [named(name, [size])])
        yield Case("If", f"f32 {size}", [np.array(which), floats(size)], branches, taken=1)


def trees(pick):
    """Trees with random thresholds."""
    for depth, count, features, many in pick([(6, 100, 20, (1, 100, 10000))], drawn_forest, 6):
        random = np.random.default_rng(5)
        nodes, leaves = forest(random, depth, count, features)
        ids = {"treeids": np.repeat(np.arange(count), len(leaves)).tolist(), "nodeids": np.tile(leaves, count).tolist()}
        weights = random.uniform(-1, 1, count * len(leaves)).astype(np.float32).tolist()
        targets = {f"target_{name}": of for name, of in ids.items()} | {"target_ids": [0] * len(weights), "target_weights": weights}
        classes = {f"class_{name}": of for name, of in ids.items()} | {"class_ids": random.integers(0, 3, len(weights)).tolist(), "class_weights": weights}
        for rows in many:
            label, given = f"{rows} rows, {count} trees", [floats(rows, features)]
            yield Case("TreeEnsembleRegressor", label, given, nodes | targets | {"n_targets": 1}, domain=ML, tolerance=SUM)
            yield Case("TreeEnsembleClassifier", label, given, nodes | classes | {"classlabels_int64s": [0, 1, 2], "post_transform": "SOFTMAX"}, outputs=2, domain=ML, tolerance=SUM)


def forest(random, depth, count, features):
    """Attributes of trees' nodes, and the numbers of their leaves."""
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
    return nodes, np.flatnonzero(is_leaf)


def drawn_forest(draw):
    # ONNX Runtime never answers a class that no tree votes for, so there are many trees.
    return draw.whole(1, 8), draw.log(30, 100), draw.log(1, 50), (draw.log(1, 3000),)


def others(pick):
    for rows, width in pick([(1, 20), (1000, 20)], lambda draw: (draw.log(1, 3000), draw.length(100)), 5):
        given = [floats(rows, width)]
        label = f"{rows} rows{'' if width == 20 else f' of {width}'}"
        coefficients = {"coefficients": floats(3 * width, seed=2).tolist(), "intercepts": floats(3, seed=3).tolist()}
        yield Case("LinearRegressor", label, given, coefficients | {"targets": 3}, domain=ML)
        yield Case("LinearClassifier", label, given, coefficients | {"classlabels_ints": [0, 1, 2], "post_transform": "SOFTMAX"}, outputs=2, domain=ML)
        yield Case("Scaler", label, given, {"offset": floats(width, seed=2).tolist(), "scale": floats(width, seed=3).tolist()}, domain=ML)
        for norm in ("MAX", "L1", "L2"):
            yield Case("Normalizer", f"{label}, {norm}", given, {"norm": norm}, domain=ML)
        holes = given[0].copy()
        holes[:, ::3] = np.nan
        yield Case("Imputer", label, [holes], {"imputed_value_floats": [0.5], "replaced_value_float": float("nan")}, domain=ML)
        yield Case("Binarizer", label, given, {"threshold": 0.1}, domain=ML)
        for kinds in pick([8], lambda draw: draw.log(2, 100), 1):
            names, texts = f"{rows} rows{'' if kinds == 8 else f', {kinds} kinds'}", list(range(kinds))
            yield Case("OneHotEncoder", names, [integers(rows, high=kinds)], {"cats_int64s": texts}, domain=ML)
            yield Case("LabelEncoder", names, [integers(rows, high=kinds)], {"keys_int64s": texts, "values_floats": floats(kinds).tolist()}, domain=ML)
        for places in pick([[1, 5, 7]], lambda draw: [draw.whole(0, width - 1) for _ in range(draw.whole(1, 9))], 1):
            yield Case("ArrayFeatureExtractor", label, [given[0], Constant(places, np.int64)], domain=ML)
        support = {"support_vectors": floats(50 * width, seed=2).tolist(), "coefficients": floats(50, seed=3).tolist(), "rho": [0.1], "n_supports": 50, "kernel_type": "RBF", "kernel_params": [0.1, 0.0, 3.0]}
        yield Case("SVMRegressor", f"{label}, 50 vectors", given, support, domain=ML, tolerance=SUM)


BUILDERS = (loops, trees, others)
