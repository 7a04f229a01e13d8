"""Pipelines: the same results in the same order."""

import numpy as np
import pytest
from conftest import DATA, reference, session

import anabranch as ab


@pytest.mark.parametrize("stages", ["all", "together", "replicated", "pipelined"])
def test_a_stream_gives_what_runs_give_in_order(stages):
    own = session(DATA / "mlp.onnx", cpu_devices="core")
    (name, x), = reference("mlp")[0].items()
    frames = [x * np.float32(at) for at in range(30)]
    with own.pipeline({name: x}, stages=stages, measure=False) as pipeline:
        found = list(pipeline.map({name: frame} for frame in frames))
        assert pipeline.plan["period"] > 0 and pipeline.measured["data_sets"] == 30
    for frame, outputs in zip(frames, found, strict=True):
        for key, array in own.run({name: frame}).items():
            np.testing.assert_allclose(outputs[key], array, rtol=1e-5, atol=1e-6)


def test_a_pipeline_says_what_is_wrong_and_ends():
    own = session(DATA / "mlp.onnx")
    (name, x), = reference("mlp")[0].items()
    with pytest.raises(ab.errors.InputError, match="goal"):
        own.pipeline({name: x}, goal="fame")
    pipeline = own.pipeline({name: x}, measure=False)
    with pytest.raises(ab.AnabranchError):
        list(pipeline.map([{name: x[..., :1]}]))
    assert len(list(pipeline.map([{name: x}]))) == 1
    pipeline.close()
    with pytest.raises(ab.AnabranchError):
        list(pipeline.map([{name: x}]))


def test_what_a_map_leaves_is_not_the_next_ones():
    own = session(DATA / "mlp.onnx", cpu_devices="core")
    (name, x), = reference("mlp")[0].items()
    frames = [{name: x * np.float32(at)} for at in range(12)]
    (output,) = [value.name for value in own.outputs]
    expected = [own.run(frame)[output] for frame in frames]
    with own.pipeline({name: x}, stages="together", measure=False) as pipeline:

        def check():
            for outputs, array in zip(pipeline.map(frames), expected, strict=True):
                np.testing.assert_allclose(outputs[output], array, rtol=1e-5, atol=1e-6)

        # A `map` that is left in the middle, repeatedly, so that it would fill the pipeline.
        for _ in range(20):
            for _ in pipeline.map(reversed(frames)):
                break
        check()
        # A `map` with inputs that are rejected.
        with pytest.raises(ab.errors.InputError):
            list(pipeline.map([frames[3], frames[4], {name: x[..., :1]}]))
        check()
        # Two at a time.
        first = pipeline.map(frames)
        next(first)
        with pytest.raises(ab.errors.InputError, match="another"):
            next(pipeline.map(frames))
        np.testing.assert_allclose(next(first)[output], expected[1], rtol=1e-5, atol=1e-6)
        first.close()
        check()
