"""Reductions, scans and normalisations, over several axes and lengths."""

import numpy as np
from case import INNER, LARGE, MIDDLE, SMALL, SUM, Case, Constant, floats, integers, rows

REDUCTIONS = "ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceSumSquare".split()


def cases():
    yield from reductions()
    yield from scans()
    yield from normalisations()


def reductions():
    for op in REDUCTIONS:
        for inner in INNER:
            many = rows(inner)
            yield Case(op, f"f32 {many} × {inner}, last axis", [spread(op, inner, many, inner), Constant([-1], np.int64)], {"keepdims": 0}, tolerance=SUM)
            yield Case(op, f"f32 {many} × {inner}, first axis", [spread(op, many, many, inner), Constant([0], np.int64)], {"keepdims": 0}, tolerance=SUM)
        for inner in (1, 4, 64):
            shape = (16, rows(inner * 16), inner)
            yield Case(op, f"f32 {' × '.join(map(str, shape))}, middle axis", [spread(op, shape[1], *shape), Constant([1], np.int64)], tolerance=SUM)
        for size in (SMALL, MIDDLE, LARGE):
            # Roundings of products near 1 are biased.
            yield Case(op, f"f32 all of {size}", [spread(op, size, size)], tolerance=1e-3 if op == "ReduceProd" else SUM)
        # ONNX Runtime's greatest element of a row with NaN depends on where it stands.
        if op == "ReduceSum":
            special = floats(64, 16)
            special[::3, 5], special[::5, 15], special[::7, 0] = np.nan, np.inf, -np.inf
            yield Case(op, "f32 64 × 16 with NaN and infinities", [special, Constant([-1], np.int64)], timed=False)
    for op in ("ReduceSum", "ReduceMax", "ReduceMean", "ReduceProd"):
        for dtype in (np.int32, np.int64):
            yield Case(op, f"{dtype.__name__} {rows(16)} × 16, last axis", [integers(rows(16), 16, low=1, high=3, dtype=dtype), Constant([-1], np.int64)])
    for op in ("ArgMax", "ArgMin"):
        for inner in INNER:
            for axis in (0, 1):
                yield Case(op, f"f32 {rows(inner)} × {inner}, axis {axis}", [floats(rows(inner), inner)], {"axis": axis})


def spread(op, length, *shape):
    """Elements of which `length` have a product that is neither 0 nor infinite."""
    half = 1 / np.sqrt(length) if op == "ReduceProd" else 0.5
    return floats(*shape, low=1 - half, high=1 + half)


def scans():
    for inner in INNER:
        for axis in (0, 1):
            given = [floats(rows(inner), inner), Constant(axis, np.int64)]
            yield Case("CumSum", f"f32 {rows(inner)} × {inner}, axis {axis}", given, tolerance=SUM)
    yield Case("CumProd", "f32 64 × 1024, axis 1", [spread("ReduceProd", 1024, 64, 1024), Constant(1, np.int64)], tolerance=SUM, opset=26)
    yield Case("CumSum", "int64 64 × 1024, axis 1", [integers(64, 1024), Constant(1, np.int64)])


def normalisations():
    for op in ("Softmax", "LogSoftmax", "Hardmax"):
        for inner in INNER:
            yield Case(op, f"f32 {rows(inner)} × {inner}, last axis", [floats(rows(inner), inner, low=-5, high=5)], {"axis": -1})
        yield Case(op, "f32 16 × 64 × 64, axis 1", [floats(16, 64, 64)], {"axis": 1})
        yield Case(op, "f32 8 × 21 × 64 × 64, axis 1", [floats(8, 21, 64, 64)], {"axis": 1})
        yield Case(op, f"f32 {SMALL}", [floats(1, SMALL)], {"axis": -1})
    for inner in INNER:
        many = rows(inner)
        given = [floats(many, inner, low=-5, high=5), floats(inner, seed=2), floats(inner, seed=3)]
        # Elements of a row of one or two may be equal: then a result is a division by the epsilon's root.
        if inner > 2:
            yield Case("LayerNormalization", f"f32 {many} × {inner}", given, tolerance=SUM)
        yield Case("RMSNormalization", f"f32 {many} × {inner}", given[:2])
        yield Case("LpNormalization", f"f32 {many} × {inner}", given[:1], {"p": 2})
    for channels, side in ((3, 64), (64, 16), (512, 4), (16, 1)):
        image = floats(4, channels, side, side)
        scale, bias = floats(channels, seed=2), floats(channels, seed=3)
        shape = f"f32 4 × {channels} × {side} × {side}"
        statistics = [floats(channels, seed=4), floats(channels, seed=5, low=0.5)]
        yield Case("BatchNormalization", shape, [image, scale, bias, *statistics])
        if side > 1:
            yield Case("InstanceNormalization", shape, [image, scale, bias], tolerance=SUM)
            yield Case("MeanVarianceNormalization", shape, [image], tolerance=SUM)
        if channels % 8 == 0 and side > 1:
            yield Case("GroupNormalization", shape, [image, scale, bias], {"num_groups": 8}, tolerance=SUM)
        yield Case("LRN", shape, [image], {"size": 5})
    for loss in ("SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"):
        yield Case(loss, "f32 512 × 100", [floats(512, 100, low=-5, high=-0.1), integers(512, high=100)], tolerance=SUM)
    for many, inner in ((1, 768), (128, 768), (512, 64)):
        given = [floats(1, many, inner), floats(1, many, inner, seed=2), floats(inner, seed=3), floats(inner, seed=4), floats(inner, seed=5)]
        yield Case("SkipLayerNormalization", f"f32 {many} × {inner}", given, domain="com.microsoft", tolerance=SUM)
        yield Case("SkipSimplifiedLayerNormalization", f"f32 {many} × {inner}", given[:3], domain="com.microsoft", tolerance=SUM)
        yield Case("SimplifiedLayerNormalization", f"f32 {many} × {inner}", [given[0], given[2]], {"axis": -1})
