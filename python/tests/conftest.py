"""Models and small helpers that the tests share."""

import signal
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import anabranch as ab

DATA = Path(__file__).resolve().parents[2] / "tests" / "data"


def built(nodes, inputs, outputs, initializers=(), opset=18):
    """The bytes of a model of named tensors: (name, type, shape)."""
    values = [[helper.make_tensor_value_info(*value) for value in side] for side in (inputs, outputs)]
    graph = helper.make_graph(nodes, "graph", *values, initializer=list(initializers))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    model.ir_version = 10
    return model.SerializeToString()


def unary(operator, shape, dtype=TensorProto.FLOAT, out=None):
    """A model of one operator from x to y."""
    return built([helper.make_node(operator, ["x"], ["y"])], [("x", dtype, shape)], [("y", out or dtype, shape)])


def chain(length, size):
    """Products of square matrices, one after the other, that take a while."""
    weight = helper.make_tensor("w", TensorProto.FLOAT, [size, size], np.full(size * size, 1.0 / size, np.float32))
    nodes = [helper.make_node("MatMul", [f"v{at}" if at else "x", "w"], [f"v{at + 1}"]) for at in range(length)]
    shape = [size, size]
    return built(nodes, [("x", TensorProto.FLOAT, shape)], [(f"v{length}", TensorProto.FLOAT, shape)], [weight])


def session(model, **options):
    """A session without GPUs, whatever the machine has."""
    return ab.Session(model, **{"gpu": False, **options})


def reference(name):
    """Inputs and outputs of one of the models in the repository."""
    members = dict(np.load(DATA / f"{name}.npz"))
    part = lambda prefix: {key.removeprefix(prefix): value for key, value in members.items() if key.startswith(prefix)}
    return part("in__"), part("out__")


@pytest.fixture
def mlp():
    return session(DATA / "mlp.onnx", dims={"batch": 2})


@pytest.fixture
def interruptible():
    """An interrupt is raised here: a process in the background of a shell begins with none."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session")
def nodes():
    """A Ray cluster of three nodes on this machine, and its nodes beside the head."""
    ray = pytest.importorskip("ray", reason="ray is not installed")
    from ray.cluster_utils import Cluster

    common = {"num_cpus": 1, "object_store_memory": 80 << 20}
    # Dead nodes are noticed after seconds. Ray's usual niceness would make the tests wait for other work on the machine.
    config = {"worker_niceness": 0, "health_check_period_ms": 500}
    head = {"node_ip_address": "127.0.0.2", "include_dashboard": False, "_system_config": config, **common}
    made = Cluster(initialize_head=True, head_node_args=head)
    added = [made.add_node(node_ip_address=f"127.0.0.{number}", **common) for number in (3, 4)]
    ray.init(address=made.address, _node_ip_address="127.0.0.2", log_to_driver=False, logging_level="ERROR")
    yield made, added
    ray.shutdown()
    made.shutdown()


def with_memory(platform, bytes):
    """The platform of a cluster with this much memory on each device."""
    data = platform.dict()
    for node in data["nodes"]:
        for device in node["devices"]:
            device["memory"] = bytes
    return type(platform)._of(data)


ONE_CPU = {"gpu": False, "threads": 1}


def equal(results, given, model):
    """Whether there is a result for each input; each must have the names, types, shapes and bits of one session's."""
    session = ab.Session(model, **ONE_CPU)
    count = 0
    for outputs, inputs in zip(results, given, strict=True):
        wanted = session.run(inputs)
        assert list(outputs) == list(wanted)
        for name, array in wanted.items():
            assert (outputs[name].dtype, outputs[name].shape) == (array.dtype, array.shape), name
            assert outputs[name].tobytes() == array.tobytes(), name
        count += 1
    return count == len(given)
"""Options of sessions on the nodes of a cluster."""
WIDTH, LAYERS = 64, 6
"""Sizes of the models that are divided over a cluster."""


@pytest.fixture(scope="module")
def platform(nodes):
    from anabranch import cluster

    return cluster.Platform.measure(**ONE_CPU)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A chain of products with a value that passes all of them, a constant output, and an integer output."""
    random_numbers = np.random.default_rng(0)
    nodes, weights, value = [], [], "x"
    for layer in range(LAYERS):
        weight = random_numbers.standard_normal((WIDTH, WIDTH), dtype=np.float32) / WIDTH**0.5
        weights.append(numpy_helper.from_array(weight, f"w{layer}"))
        nodes += [helper.make_node("MatMul", [value, f"w{layer}"], [f"p{layer}"], name=f"product{layer}")]
        nodes += [helper.make_node("Tanh", [f"p{layer}"], [f"t{layer}"], name=f"tanh{layer}")]
        value = f"t{layer}"
    nodes.append(helper.make_node("Add", [value, "x"], ["y"], name="sum"))
    nodes.append(helper.make_node("ArgMax", ["y"], ["best"], name="best", axis=1))
    nodes.append(helper.make_node("Constant", [], ["fixed"], name="fixed", value=numpy_helper.from_array(np.arange(3))))
    outputs = [("y", TensorProto.FLOAT, [4, WIDTH]), ("best", TensorProto.INT64, [4, 1]), ("fixed", TensorProto.INT64, [3])]
    graph = helper.make_graph(
        nodes,
        "chain",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, WIDTH])],
        [helper.make_tensor_value_info(*output) for output in outputs],
        weights,
    )
    path = tmp_path_factory.mktemp("cluster") / "chain.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def samples(count, seed=0):
    """Inputs of these models."""
    random_numbers = np.random.default_rng(seed)
    return [{"x": random_numbers.standard_normal((4, WIDTH), dtype=np.float32)} for _ in range(count)]
