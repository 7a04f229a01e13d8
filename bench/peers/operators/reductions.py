"""Reductions, scans and normalisations, over several axes and lengths."""

import numpy as np
from case import INNER, LARGE, MIDDLE, SMALL, STEP, SUM, Case, Constant, filled, floats, integers, rows
from draw import FLOATS, also, by, told

REDUCTIONS = "ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceSumSquare".split()


def reductions(pick):
    for op in REDUCTIONS:
        for label, dtype, shape, axes, options in pick(folds(), lambda draw: drawn_fold(draw, FLOATS), 14):
            folded = int(np.prod([shape[axis] for axis in axes])) if axes else int(np.prod(shape))
            given = [spread(op, folded, *shape).astype(dtype)] + ([Constant(axes, np.int64)] if axes else [])
            # Roundings of products near 1 are biased.
            yield Case(op, label, given, options, tolerance=1e-3 if op == "ReduceProd" and len(axes or shape) == len(shape) else SUM)
        # ONNX Runtime's greatest element of a row with NaN depends on where it stands.
        if op == "ReduceSum":
            for shape in pick([(64, 16)], lambda draw: draw.shape(2, 2)):
                special = floats(*shape)
                special[::3, 5 % shape[1]], special[::5, 15 % shape[1]], special[::7, 0] = np.nan, np.inf, -np.inf
                yield Case(op, f"f32 {by(shape)} with NaN and infinities", [special, Constant([-1], np.int64)], timed=False)
    for op in ("ReduceSum", "ReduceMax", "ReduceMean", "ReduceProd"):
        table = [(f"{told(dtype)} {rows(16)} × 16, last axis", dtype, (rows(16), 16), [-1], {}) for dtype in (np.int32, np.int64)]
        for label, dtype, shape, axes, options in pick(table, lambda draw: drawn_fold(draw, (np.int32, np.int64), 30 if op == "ReduceProd" else None), 4):
            yield Case(op, label, [integers(*shape, low=1, high=3, dtype=dtype)] + ([Constant(axes, np.int64)] if axes else []), options)
    for op in ("ArgMax", "ArgMin"):
        table = [(f"f32 {rows(inner)} × {inner}, axis {axis}", np.float32, (rows(inner), inner), {"axis": axis}) for inner in INNER for axis in (0, 1)]
        for label, dtype, shape, options in pick(table, drawn_search, 12):
            yield Case(op, label, [filled(shape, dtype)], options)


def folds():
    for inner in INNER:
        many = rows(inner)
        yield f"f32 {many} × {inner}, last axis", np.float32, (many, inner), [-1], {"keepdims": 0}
        yield f"f32 {many} × {inner}, first axis", np.float32, (many, inner), [0], {"keepdims": 0}
    for inner in (1, 4, 64):
        shape = (16, rows(inner * 16), inner)
        yield f"f32 {by(shape)}, middle axis", np.float32, shape, [1], {}
    for size in (SMALL, MIDDLE, LARGE):
        yield f"f32 all of {size}", np.float32, (size,), None, {}


def drawn_fold(draw, types, most=None):
    """A label, a type, a shape, some axes or None for all, and attributes. At most `most` elements are folded into one."""
    while True:
        dtype, shape = draw.type(types), draw.shape(scalars=False)
        axes = None if draw.chance(0.1) else [axis - draw.one(0, len(shape)) for axis in draw.axes(len(shape))]
        if most is None or np.prod([shape[axis] for axis in axes or range(len(shape))]) <= most:
            break
    options = draw.options({"keepdims": [0, 1]})
    return f"{told(dtype)} {by(shape)}, axes {axes or 'all'}{also(options)}", dtype, shape, axes, options


def drawn_search(draw):
    dtype, shape = draw.type((*FLOATS, np.int8, np.uint8, np.int32, np.int64)), draw.shape(scalars=False)
    options = {"axis": draw.axis(shape)} | draw.options({"keepdims": [0, 1], "select_last_index": [0, 1]})
    return f"{told(dtype)} {by(shape)}{also(options)}", dtype, shape, options


def spread(op, length, *shape):
    """Elements of which `length` have a product that is neither 0 nor infinite."""
    half = 1 / np.sqrt(length) if op == "ReduceProd" else 0.5
    return floats(*shape, low=1 - half, high=1 + half)


def scans(pick):
    table = [(f"f32 {rows(inner)} × {inner}, axis {axis}", np.float32, (rows(inner), inner), axis, {}) for inner in INNER for axis in (0, 1)]
    for label, dtype, shape, axis, options in pick(table, lambda draw: drawn_scan(draw, (np.float32, np.float64)), 12):
        yield Case("CumSum", label, [floats(*shape, dtype=dtype), Constant(axis, np.int64)], options, tolerance=SUM)
    for label, dtype, shape, axis, options in pick([("f32 64 × 1024, axis 1", np.float32, (64, 1024), 1, {})], lambda draw: drawn_scan(draw, (np.float32, np.float64))):
        given = [spread("ReduceProd", shape[axis], *shape).astype(dtype), Constant(axis, np.int64)]
        yield Case("CumProd", label, given, options, tolerance=SUM, opset=26)
    for label, dtype, shape, axis, options in pick([("int64 64 × 1024, axis 1", np.int64, (64, 1024), 1, {})], lambda draw: drawn_scan(draw, (np.int32, np.int64))):
        yield Case("CumSum", label, [integers(*shape, dtype=dtype), Constant(axis, np.int64)], options)


def drawn_scan(draw, types):
    dtype, shape = draw.type(types), draw.shape(scalars=False)
    axis, options = draw.axis(shape), draw.options({"exclusive": [0, 1], "reverse": [0, 1]})
    return f"{told(dtype)} {by(shape)}, axis {axis}{also(options)}", dtype, shape, axis, options


def normalisations(pick):
    for op in ("Softmax", "LogSoftmax", "Hardmax"):
        table = [(f"f32 {rows(inner)} × {inner}, last axis", (rows(inner), inner), -1) for inner in INNER]
        for label, shape, axis in pick(table, drawn_axis):
            yield Case(op, label, [floats(*shape, low=-5, high=5)], {"axis": axis}, tolerance=along(shape[axis]))
        table = [("f32 16 × 64 × 64, axis 1", (16, 64, 64), 1), ("f32 8 × 21 × 64 × 64, axis 1", (8, 21, 64, 64), 1), (f"f32 {SMALL}", (1, SMALL), -1)]
        for label, shape, axis in pick(table, drawn_axis):
            yield Case(op, label, [floats(*shape)], {"axis": axis}, tolerance=along(shape[axis]))
    for label, shape, axis, options in pick(((f"f32 {rows(inner)} × {inner}", (rows(inner), inner), -1, {}) for inner in INNER), drawn_norm, 10):
        inner = shape[axis:]
        given = [floats(*shape, low=-5, high=5), floats(*inner, seed=2), floats(*inner, seed=3)]
        behind = {} if axis == -1 else {"axis": axis}
        # Elements of a row of one or two may be equal: then a result is a division by the epsilon's root.
        if np.prod(inner) > 2:
            yield Case("LayerNormalization", label, given, behind | options, tolerance=SUM)
        yield Case("RMSNormalization", label, given[:2], behind | options)
        yield Case("LpNormalization", label, given[:1], behind | {"p": 2}, tolerance=along(shape[axis]))
    for label, shape, groups in pick(images(), drawn_images, 10):
        channels, spatial = shape[1], int(np.prod(shape[2:]))
        image, scale, bias = floats(*shape), floats(channels, seed=2), floats(channels, seed=3)
        statistics = [floats(channels, seed=4), floats(channels, seed=5, low=0.5)]
        yield Case("BatchNormalization", label, [image, scale, bias, *statistics])
        if spatial > 2:
            yield Case("InstanceNormalization", label, [image, scale, bias], tolerance=SUM)
            if len(shape) == 4:
                yield Case("MeanVarianceNormalization", label, [image], tolerance=SUM)
            if groups:
                yield Case("GroupNormalization", label, [image, scale, bias], {"num_groups": groups}, tolerance=SUM)
    for label, shape, options in pick([(label, shape, {"size": 5}) for label, shape, _ in images()], drawn_window):
        yield Case("LRN", label, [floats(*shape)], options)
    for loss in ("SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"):
        for label, shape, weighted, options in pick([("f32 512 × 100", (512, 100), False, {})], drawn_loss, 5):
            targets = integers(shape[0], *shape[2:], high=shape[1])
            weights = [floats(shape[1], seed=2, low=0.1)] if weighted else []
            yield Case(loss, label, [floats(*shape, low=-5, high=-0.1), targets, *weights], options, tolerance=SUM)
    for batch, many, inner in pick([(1, 1, 768), (1, 128, 768), (1, 512, 64)], lambda draw: (draw.whole(1, 8), draw.log(1, 100), draw.length())):
        given = [floats(batch, many, inner), floats(batch, many, inner, seed=2), floats(inner, seed=3), floats(inner, seed=4), floats(inner, seed=5)]
        label = f"f32 {by((many, inner) if batch == 1 else (batch, many, inner))}"
        if inner > 2:
            yield Case("SkipLayerNormalization", label, given, domain="com.microsoft", tolerance=SUM)
        yield Case("SkipSimplifiedLayerNormalization", label, given[:3], domain="com.microsoft", tolerance=SUM)
        yield Case("SimplifiedLayerNormalization", label, [given[0], given[2]], {"axis": -1})


def along(length):
    """ONNX Runtime adds up a long row in single precision, one element after another."""
    return SUM if length > 1 << 16 else STEP


def drawn_axis(draw):
    shape = draw.shape(scalars=False)
    axis = draw.one(-1, draw.axis(shape))
    return f"f32 {by(shape)}, axis {axis}", shape, axis


def drawn_norm(draw):
    label, shape, axis = drawn_axis(draw)
    options = draw.options({"epsilon": (0.001, 0.1)})
    return label + also(options), shape, axis, options


def images():
    """Labels, shapes, and groups of channels, or 0."""
    for channels, side in ((3, 64), (64, 16), (512, 4), (16, 1)):
        shape = (4, channels, side, side)
        yield f"f32 {by(shape)}", shape, 0 if channels % 8 else 8


def drawn_images(draw, axes=None):
    groups, sides = draw.log(1, 32), [draw.length(64) for _ in range(axes or draw.one(1, 2, 2, 2, 3))]
    most = max(1, (1 << 18) // (groups * int(np.prod(sides))))
    each = draw.log(1, min(64, most))
    shape = (draw.whole(1, min(8, max(1, most // each))), groups * each, *sides)
    return f"f32 {by(shape)}, {groups} groups", shape, groups


def drawn_window(draw):
    label, shape, _ = drawn_images(draw, 2)
    options = {"size": draw.one(1, 3, 5, 7)} | draw.options({"alpha": (0.0001, 0.1), "beta": (0.5, 1.0), "bias": (1.0, 2.0)})
    return label + also(options), shape, options


def drawn_loss(draw):
    shape = draw.shape(2, 4, elements=1 << 17)
    weighted, options = draw.chance(0.4), draw.options({"reduction": ["none", "mean", "sum"], "ignore_index": [0, -1]})
    return f"f32 {by(shape)}{', weighted' * weighted}{also(options)}", shape, weighted, options


BUILDERS = (reductions, scans, normalisations)
