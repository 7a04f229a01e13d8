"""The provider in ONNX Runtime as installed: results, partition, options, errors, threads.

    python plugin/ort/tests/provider.py target/debug/libanabranch_ort.so
"""

import json
import os
import sys
import tempfile
import threading
import unittest
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper

NAME = "AnabranchExecutionProvider"
DATA = Path(__file__).resolve().parents[3] / "tests" / "data"


def choices():
    return [device for device in ort.get_ep_devices() if device.ep_name == NAME]


def session(model, options=None, fallback=False, **entries):
    """A session on the CPU devices of the provider; without `fallback`, all of the model has to be claimed."""
    settings = ort.SessionOptions()
    settings.log_severity_level = 3
    if not fallback:
        settings.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    for key, value in entries.items():
        setattr(settings, key, value)
    cpus = [device for device in choices() if device.ep_metadata["anabranch.kind"] == "cpu"]
    settings.add_provider_for_devices(cpus, options or {})
    # Without the Python package's own fallback, which would run the model without the provider after an error.
    return ort.InferenceSession(model if isinstance(model, bytes) else str(model), settings, enable_fallback=False)


def built(nodes, inputs, outputs, initializers=(), opset=18):
    """The bytes of a model of named tensors: (name, type, shape)."""
    values = [[helper.make_tensor_value_info(*value) for value in side] for side in (inputs, outputs)]
    graph = helper.make_graph(nodes, "graph", *values, initializer=list(initializers))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    model.ir_version = 10
    return model.SerializeToString()


F32 = TensorProto.FLOAT


class Provider(unittest.TestCase):
    def close(self, found, expected):
        bound = 1e-4 * np.abs(expected).max(initial=0) + 1e-5
        self.assertEqual(found.shape, expected.shape)
        self.assertLessEqual(np.abs(found.astype(np.float64) - expected).max(initial=0), bound)

    def test_devices_are_listed_with_what_they_are(self):
        first = choices()[0]
        self.assertEqual(first.ep_vendor, "Anabranch")
        self.assertEqual(first.ep_metadata["anabranch.device"], "cpu0")
        self.assertGreater(int(first.ep_metadata["anabranch.memory_bytes"]), 0)

    def test_models_run_whole_and_agree_with_their_references(self):
        models = sorted(DATA.glob("*.onnx"))
        self.assertGreater(len(models), 8)
        for path in models:
            with self.subTest(path.name):
                reference = dict(np.load(path.with_suffix(".npz")))
                own = session(path)
                inputs = {one.name: reference["in__" + one.name] for one in own.get_inputs()}
                for _ in range(3):
                    for one, found in zip(own.get_outputs(), own.run(None, inputs)):
                        self.close(found, reference["out__" + one.name])

    def test_shapes_may_differ_from_run_to_run(self):
        weights = np.arange(12, dtype=np.float32).reshape(4, 3)
        model = built(
            [helper.make_node("MatMul", ["x", "w"], ["z"]), helper.make_node("Relu", ["z"], ["y"])],
            [("x", F32, ["batch", 4])], [("y", F32, ["batch", 3])],
            [onnx.numpy_helper.from_array(weights, "w")])
        own = session(model)
        for batch in (1, 7, 0, 2, 7):
            x = np.random.default_rng(batch).standard_normal((batch, 4)).astype(np.float32)
            self.close(own.run(None, {"x": x})[0], np.maximum(x @ weights, 0))

    def test_what_is_not_ours_stays_with_others(self):
        # `c` and `a` cannot be one part, because a node of another provider makes the text between them.
        nodes = [
            helper.make_node("Cast", ["x"], ["text"], to=TensorProto.STRING, name="to_text"),
            helper.make_node("Cast", ["text"], ["back"], to=F32, name="from_text"),
            helper.make_node("Relu", ["x"], ["positive"], name="before"),
            helper.make_node("Add", ["positive", "back"], ["y"], name="after"),
        ]
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder) / "report.json"
            own = session(built(nodes, [("x", F32, [3])], [("y", F32, [3])]), {"report": str(report)}, fallback=True)
            x = np.array([-1.5, 0, 2], np.float32)
            self.close(own.run(None, {"x": x})[0], np.maximum(x, 0) + x)
            told = json.loads(report.read_text())
        self.assertEqual({other["node"] for other in told["others"]}, {"to_text", "from_text"})
        self.assertEqual(sorted(part["nodes"] for part in told["parts"]), [["after"], ["before"]])
        self.assertEqual(told["devices"], ["cpu0"])

    @unittest.skipIf(ort.__version__.startswith("1.23."), "1.23 gives the parts of both branches one name, and refuses them")
    def test_branches_that_a_run_decides_are_others_or_right(self):
        def branch(name, op):
            node = helper.make_node(op, ["x"], [name])
            return helper.make_graph([node], name, [], [helper.make_tensor_value_info(name, F32, [2])])
        nodes = [helper.make_node("If", ["c"], ["y"], then_branch=branch("t", "Neg"), else_branch=branch("e", "Exp"))]
        model = built(nodes, [("c", TensorProto.BOOL, []), ("x", F32, [2])], [("y", F32, [2])])
        own = session(model, fallback=True)
        x = np.array([1, 2], np.float32)
        for condition in (True, False, True):
            expected = -x if condition else np.exp(x)
            self.close(own.run(None, {"c": np.array(condition), "x": x})[0], expected)

    def test_elements_that_decide_shapes_may_differ_from_run_to_run(self):
        nodes = [helper.make_node("Reshape", ["x", "shape"], ["z"]), helper.make_node("Relu", ["z"], ["y"])]
        model = built(nodes, [("x", F32, [6]), ("shape", TensorProto.INT64, [2])], [("y", F32, None)])
        own = session(model, fallback=True)
        x = np.arange(-3, 3, dtype=np.float32)
        for shape in ([2, 3], [3, 2], [2, 3]):
            found = own.run(None, {"x": x, "shape": np.array(shape, np.int64)})[0]
            self.close(found, np.maximum(x, 0).reshape(shape))

    def test_threads_may_run_one_session(self):
        reference = dict(np.load(DATA / "vit.npz"))
        own = session(DATA / "vit.onnx")
        inputs = {one.name: reference["in__" + one.name] for one in own.get_inputs()}
        expected = own.run(None, inputs)
        wrong = []

        def work():
            for _ in range(20):
                found = own.run(None, inputs)
                if not all(np.array_equal(a, b) for a, b in zip(found, expected)):
                    wrong.append("other bits")
        threads = [threading.Thread(target=work) for _ in range(4)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        self.assertEqual(wrong, [])

    def test_sessions_in_threads_of_their_own_are_right(self):
        names = ["vit", "mlp", "convnet", "lstm"]
        wrong = []

        def work(name):
            try:
                reference = dict(np.load(DATA / f"{name}.npz"))
                for _ in range(3):
                    own = session(DATA / f"{name}.onnx")
                    inputs = {one.name: reference["in__" + one.name] for one in own.get_inputs()}
                    first = own.run(None, inputs)
                    for _ in range(5):
                        for one, found, same in zip(own.get_outputs(), own.run(None, inputs), first):
                            self.close(found, reference["out__" + one.name])
                            self.assertTrue(np.array_equal(found, same))
            except BaseException as error:
                wrong.append((name, error))
        threads = [threading.Thread(target=work, args=[name]) for name in names]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        self.assertEqual(wrong, [])

    def test_any_number_of_nodes_may_be_others(self):
        # More obstacles than lowering reports at once.
        count = 1200
        nodes = [helper.make_node("Relu", ["x"], ["v0"], name="first")]
        nodes += [helper.make_node("RandomNormalLike", [f"v{n}"], [f"v{n + 1}"], name=f"other{n}") for n in range(count)]
        nodes += [helper.make_node("Neg", [f"v{count}"], ["y"], name="last")]
        with tempfile.TemporaryDirectory() as folder:
            report = Path(folder) / "report.json"
            session(built(nodes, [("x", F32, [3])], [("y", F32, [3])]), {"report": str(report)}, fallback=True)
            told = json.loads(report.read_text())
        self.assertEqual({other["node"] for other in told["others"]}, {f"other{n}" for n in range(count)})
        self.assertEqual(sorted(part["nodes"] for part in told["parts"]), [["first"], ["last"]])

    def test_what_no_elements_would_help_is_not_taken_on_trust(self):
        nodes = [
            helper.make_node("Reshape", ["x", "shape"], ["z"], name="reshape"),
            helper.make_node("Dropout", ["m", "ratio", "training"], ["d"], name="dropout"),
            helper.make_node("Add", ["z", "d"], ["y"], name="add"),
        ]
        given = [("ratio", np.array(0, np.float32)), ("training", np.array(True))]
        model = built(nodes, [("x", F32, [6]), ("shape", TensorProto.INT64, [2]), ("m", F32, [3])], [("y", F32, None)],
                      [onnx.numpy_helper.from_array(value, name) for name, value in given])
        own = session(model, fallback=True)
        x, m = np.arange(6, dtype=np.float32), np.array([1, 2, 3], np.float32)
        found = own.run(None, {"x": x, "shape": np.array([2, 3]), "m": m})[0]
        self.close(found, x.reshape(2, 3) + m)

    def test_an_output_that_is_kept_is_not_written_again(self):
        model = built([helper.make_node("Neg", ["x"], ["y"])], [("x", F32, [5000])], [("y", F32, [5000])])
        own = session(model)
        kept = [own.run(None, {"x": np.full(5000, value, np.float32)})[0] for value in range(5)]
        self.assertEqual([out[0] for out in kept], [-0.0, -1, -2, -3, -4])

    def test_an_input_may_be_an_output(self):
        model = built([helper.make_node("Reshape", ["x", "s"], ["y"])], [("x", F32, [2, 3000])],
                      [("y", F32, [6000])], [onnx.numpy_helper.from_array(np.array([6000]), "s")])
        own = session(model, fallback=True)
        x = np.random.default_rng(0).standard_normal((2, 3000)).astype(np.float32)
        self.assertTrue(np.array_equal(own.run(None, {"x": x})[0], x.reshape(-1)))

    def test_wrong_options_are_refused_with_those_that_are_known(self):
        path = DATA / "mlp.onnx"
        for options, text in [({"speed": "1"}, "option `speed`"), ({"threads": "none"}, "option `threads`"),
                              ({"devices": "tpu0"}, "there is no device `tpu0`")]:
            with self.assertRaises(Exception) as caught:
                own = session(path, options)
                own.run(None, {one.name: np.load(path.with_suffix(".npz"))["in__" + one.name]
                               for one in own.get_inputs()})
            self.assertIn(text, str(caught.exception))

    def test_what_does_not_fit_is_an_error_that_says_so(self):
        path = DATA / "vit.onnx"
        reference = dict(np.load(path.with_suffix(".npz")))
        own = session(path, {"memory": "cpu0=64KiB"})
        with self.assertRaises(Exception) as caught:
            own.run(None, {one.name: reference["in__" + one.name] for one in own.get_inputs()})
        self.assertIn("cpu0", str(caught.exception))

    def test_the_software_gpu_computes_the_same(self):
        reference = dict(np.load(DATA / "mlp.npz"))
        own = session(DATA / "mlp.onnx", {"software_gpu": "1", "place": "gpu"})
        inputs = {one.name: reference["in__" + one.name] for one in own.get_inputs()}
        for one, found in zip(own.get_outputs(), own.run(None, inputs)):
            self.close(found, reference["out__" + one.name])


if __name__ == "__main__":
    ort.set_default_logger_severity(3)
    ort.register_execution_provider_library("anabranch", os.path.abspath(sys.argv.pop(1)))
    unittest.main()
