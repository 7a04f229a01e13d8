"""The comparison with ONNX Runtime, layer by layer."""

import json

import numpy as np
import onnx
import pytest
from conftest import DATA, built
from onnx import TensorProto, helper

import anabranch as ab
from anabranch import layers

pytest.importorskip("onnxruntime")

SHAPE = [3, 4]


def model():
    """Two products and a rectifier, of which the command would fuse the last two."""
    weight = helper.make_tensor("w", TensorProto.FLOAT, [4, 4], np.linspace(-1, 1, 16, dtype=np.float32))
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name="first"),
        helper.make_node("MatMul", ["a", "w"], ["b"], name="second"),
        helper.make_node("Relu", ["b"], ["y"]),
    ]
    return built(nodes, [("x", TensorProto.FLOAT, SHAPE)], [("y", TensorProto.FLOAT, SHAPE)], [weight])


def inputs():
    return {"x": np.random.default_rng(1).standard_normal(SHAPE).astype(np.float32)}


class Faulty(ab.Session):
    """A session that computes one output wrongly."""

    wrong = "b"

    def run(self, inputs, **options):
        outputs = dict(super().run(inputs, **options))
        if self.wrong in outputs:
            outputs[self.wrong] = outputs[self.wrong] + np.float32(0.5)
        return outputs


def test_right_results_agree():
    found = layers.compare(onnx.ModelProto.FromString(model()), inputs(), gpu=False)
    assert found.agrees and found.first is None
    assert [(layer.node, layer.operator, layer.output) for layer in found.layers] == [
        ("first", "MatMul", "a"),
        ("second", "MatMul", "b"),
        ("number 2", "Relu", "y"),
    ]
    assert [layer.output for layer in found.whole] == ["y"]
    assert "all 3 outputs of nodes agree" in str(found)


def test_the_first_node_that_differs_is_named(monkeypatch):
    monkeypatch.setattr(layers, "Session", Faulty)
    found = layers.compare(onnx.ModelProto.FromString(model()), inputs(), gpu=False)
    assert not found.agrees and found.first is not None
    assert (found.first.node, found.first.share) == ("second", 1.0) and abs(found.first.absolute - 0.5) < 1e-6
    assert "the first is 'b' of node 'second'" in str(found)


def test_a_fault_of_fusion_alone_is_told(monkeypatch):
    class Fused(Faulty):
        wrong = "y"

        def run(self, inputs, **options):
            outputs = super().run(inputs, **options)
            return outputs if len(outputs) == 1 else ab.Session.run(self, inputs, **options)

    monkeypatch.setattr(layers, "Session", Fused)
    found = layers.compare(onnx.ModelProto.FromString(model()), inputs(), gpu=False)
    assert found.first is None and not found.agrees and "look at fusions" in str(found)


def test_outputs_are_computed_in_groups_of_bounded_size(monkeypatch):
    monkeypatch.setattr(layers, "MOST_BYTES", 8 * 12)
    found = layers.compare(onnx.ModelProto.FromString(model()), inputs(), gpu=False)
    assert found.agrees and len(found.layers) == 3


@pytest.mark.parametrize(
    ("ours", "theirs", "share", "absolute"),
    [
        ([1.0, 2.0], [1.0, 2.0], 0.0, 0.0),
        ([1.0, np.nan], [1.0, np.nan], 0.0, 0.0),
        ([1.0, np.nan], [1.0, 2.0], 0.5, np.inf),
        ([np.inf, 1.0], [-np.inf, 1.0], 0.5, np.inf),
        ([3, 4], [3, 5], 0.5, 1.0),
        ([], [], 0.0, 0.0),
        ([1.0], [1.0, 2.0], 1.0, np.inf),
        ([1.0], [1], 1.0, np.inf),
    ],
)
def test_differences(ours, theirs, share, absolute):
    layer = layers._layer("y", None, np.array(ours), np.array(theirs), 1e-3, 1e-5)
    assert (layer.share, layer.absolute) == (share, absolute)


def test_the_command(tmp_path, capsys):
    file = str(DATA / "convnet.onnx")
    assert layers.main([file, "--no-gpu"]) == 0
    assert "agree" in capsys.readouterr().out
    assert layers.main([file, "--no-gpu", "--json", "--rtol", "0", "--atol", "0"]) == 3
    report = json.loads(capsys.readouterr().out)
    assert report["first"] in [layer["output"] for layer in report["layers"]]
    assert layers.main([str(tmp_path / "none.onnx")]) == 2
    assert "none.onnx" in capsys.readouterr().err
    for wrong, said in [(["--dim", "batch"], "NAME=N"), (["--dim", "bacth=2"], "bacth"), (["--input", "none.npy"], "none.npy")]:
        assert layers.main([file, "--no-gpu", *wrong]) == 2
        assert said in capsys.readouterr().err


def test_infinite_differences_are_null_in_json():
    layer = layers._layer("y", None, np.array([1.0]), np.array([1.0, 2.0]), 1e-3, 1e-5)
    assert json.loads(json.dumps(layers._entry(layer), allow_nan=False))["absolute"] is None


def test_what_is_not_compared_is_told():
    nodes = [helper.make_node("Unknown", ["x"], ["u"], domain="own")]
    model = onnx.ModelProto.FromString(built(nodes, [("x", TensorProto.FLOAT, SHAPE)], [("u", TensorProto.FLOAT, SHAPE)]))
    with pytest.raises((layers.ReferenceFailure, ab.AnabranchError)):
        layers.compare(model, inputs(), gpu=False)
    found = layers.Layers((), (), ("u",))
    assert "not compared: 1" in str(found)
