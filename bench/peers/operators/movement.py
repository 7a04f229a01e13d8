"""Operators that move and select elements."""

import numpy as np
from case import EXACT, INNER, MIDDLE, SIZES, SMALL, SUM, Case, Constant, flags, floats, integers, rows


def cases():
    for case in (*joined(), *arranged(), *indexed(), *selected()):
        if "reduction" not in case.attributes:
            case.tolerance = EXACT
        yield case
    yield from sequences()
    yield from spatial()


def joined():
    for inner in INNER:
        many = rows(inner)
        for parts in (2, 5):
            given = [floats(many // parts + 1, inner, seed=seed) for seed in range(parts)]
            yield Case("Concat", f"{parts} of f32 {given[0].shape[0]} × {inner}, last axis", given, {"axis": -1})
            yield Case("Concat", f"{parts} of f32 {given[0].shape[0]} × {inner}, first axis", given, {"axis": 0})
        if inner > 1:
            sizes = Constant([inner // 2, inner - inner // 2], np.int64)
            yield Case("Split", f"f32 {many} × {inner}, last axis", [floats(many, inner), sizes], {"axis": -1}, outputs=2)
        yield Case("Split", f"f32 {2 * many} × {inner}, first axis", [floats(2 * many, inner), Constant([many, many], np.int64)], {"axis": 0}, outputs=2)
        yield Case("Tile", f"f32 {many // 4 + 1} × {inner}, 4 along the last", [floats(many // 4 + 1, inner), Constant([1, 4], np.int64)])
        yield Case("Tile", f"f32 {many // 4 + 1} × {inner}, 4 along the first", [floats(many // 4 + 1, inner), Constant([4, 1], np.int64)])
        yield Case("Pad", f"f32 {many} × {inner}, 1 on all sides", [floats(many, inner), Constant([1, 1, 1, 1], np.int64)])
    for mode in ("constant", "reflect", "edge", "wrap"):
        yield Case("Pad", f"f32 4 × 16 × 32 × 32 by 2, {mode}", [floats(4, 16, 32, 32), Constant([0, 0, 2, 2, 0, 0, 2, 2], np.int64)], {"mode": mode})


def arranged():
    for inner in INNER:
        many = rows(inner)
        yield Case("Transpose", f"f32 {many} × {inner}", [floats(many, inner)], {"perm": [1, 0]})
        step = [Constant(values, np.int64) for values in ([0], [many], [0], [2])]
        yield Case("Slice", f"f32 {many} × {inner}, each second row", [floats(many, inner), *step])
        if inner > 2:
            inside = [Constant(values, np.int64) for values in ([1], [inner - 1], [1])]
            yield Case("Slice", f"f32 {many} × {inner}, without both ends", [floats(many, inner), *inside])
            back = [Constant(values, np.int64) for values in ([-1], [-inner - 1], [1], [-1])]
            yield Case("Slice", f"f32 {many} × {inner}, backwards", [floats(many, inner), *back])
    for shape, perm in (((8, 64, 12, 64), (0, 2, 1, 3)), ((4, 3, 128, 128), (0, 2, 3, 1)), ((4, 128, 128, 3), (0, 3, 1, 2)), ((32, 32, 64), (2, 1, 0)), ((64, 8, 8, 16), (3, 2, 1, 0))):
        for dtype in (np.float32, np.uint8, np.float16, np.int64):
            yield Case("Transpose", f"{np.dtype(dtype).name} {' × '.join(map(str, shape))} by {perm}", [integers(*shape, dtype=dtype)], {"perm": perm})
    for mode in ("DCR", "CRD"):
        yield Case("DepthToSpace", f"f32 4 × 64 × 16 × 16, {mode}", [floats(4, 64, 16, 16)], {"blocksize": 2, "mode": mode})
    yield Case("SpaceToDepth", "f32 4 × 16 × 32 × 32", [floats(4, 16, 32, 32)], {"blocksize": 2})
    yield Case("Reshape", f"f32 {MIDDLE}", [floats(MIDDLE), Constant([256, -1], np.int64)])
    yield Case("Trilu", "f32 256 × 256", [floats(256, 256)])
    yield Case("Trilu", "int64 64 × 32 × 32, lower", [integers(64, 32, 32)], {"upper": 0})
    yield Case("ReverseSequence", "f32 128 × 8 × 64", [floats(128, 8, 64), integers(8, high=128)], {"time_axis": 0, "batch_axis": 1})
    yield Case("Shape", f"f32 {MIDDLE}", [floats(256, 256)])
    yield Case("ConstantOfShape", f"{MIDDLE}", [np.array([256, 256], np.int64)])
    yield Case("EyeLike", "256 × 256", [floats(256, 256)])
    yield Case("Squeeze", f"f32 {MIDDLE}", [floats(1, MIDDLE, 1), Constant([0, 2], np.int64)])
    yield Case("Unsqueeze", f"f32 {MIDDLE}", [floats(MIDDLE), Constant([0, 2], np.int64)])
    yield Case("Flatten", f"f32 {MIDDLE}", [floats(16, 64, 64)])
    yield Case("Size", f"f32 {MIDDLE}", [floats(256, 256)])
    yield Case("TensorScatter", "f32 8 × 64 × 256 × 16, one position", [floats(8, 64, 256, 16), floats(8, 64, 1, 16, seed=2), integers(8, high=256)], opset=24)
    yield Case("Range", f"int64 {MIDDLE}", [np.array(0, np.int64), np.array(MIDDLE, np.int64), np.array(1, np.int64)])
    yield Case("CenterCropPad", "f32 64 × 64 × 16 to 32 × 80", [floats(64, 64, 16), Constant([32, 80], np.int64)], {"axes": [0, 1]})


def indexed():
    for inner in INNER:
        many = rows(inner)
        yield Case("Gather", f"f32 {many} × {inner}, 4,096 rows", [floats(many, inner), integers(4096, high=many)])
        yield Case("Gather", f"f32 {many} × {inner}, half of the last axis", [floats(many, inner), integers(max(1, inner // 2), high=inner)], {"axis": 1})
        yield Case("GatherND", f"f32 {many} × {inner}, 4,096 rows", [floats(many, inner), integers(4096, 1, high=many)])
        for axis in (0, 1):
            positions = integers(many, inner, high=(many, inner)[axis])
            yield Case("GatherElements", f"f32 {many} × {inner}, axis {axis}", [floats(many, inner), positions], {"axis": axis})
            unlike = np.argsort(floats(many, inner, seed=3), axis)
            yield Case("ScatterElements", f"f32 {many} × {inner}, axis {axis}", [floats(many, inner), unlike, floats(many, inner, seed=2)], {"axis": axis})
            for reduction in ("add", "max"):
                given = [floats(many, inner), positions, floats(many, inner, seed=2)]
                yield Case("ScatterElements", f"f32 {many} × {inner}, axis {axis}, {reduction}", given, {"axis": axis, "reduction": reduction})
        unlike = np.random.default_rng(3).permutation(many)[: many // 2 + 1].reshape(-1, 1)
        yield Case("ScatterND", f"f32 {many} × {inner}, half of the rows", [floats(many, inner), unlike, floats(many // 2 + 1, inner, seed=2)])
        given = [floats(many, inner), integers(many, 1, high=many), floats(many, inner, seed=2)]
        yield Case("ScatterND", f"f32 {many} × {inner}, all rows, add", given, {"reduction": "add"}, tolerance=SUM)
        yield Case("OneHot", f"{rows(inner)} of {inner}", [integers(rows(inner), high=inner), Constant(inner, np.int64), Constant([0, 1], np.float32)])


def selected():
    for size in SIZES:
        yield Case("NonZero", f"f32 {size}, half", [floats(size).clip(0)])
        yield Case("Compress", f"f32 {size}, half", [floats(size), flags(size)])
        yield Case("TopK", f"f32 {size}, 10", [floats(1, size), Constant([10], np.int64)], outputs=2)
    for inner in INNER:
        many = rows(inner)
        yield Case("Compress", f"f32 {many} × {inner}, half of the rows", [floats(many, inner), flags(many)], {"axis": 0})
        yield Case("TopK", f"f32 {many} × {inner}, half of the last axis", [floats(many, inner), Constant([max(1, inner // 2)], np.int64)], outputs=2)
    for size in (SMALL, MIDDLE):
        yield Case("Unique", f"int64 {size}", [integers(size, high=size // 4)], outputs=4)
        yield Case("Unique", f"f32 {size}", [np.round(floats(size) * 100)], outputs=4)
    boxes = np.sort(floats(1, 1000, 2, 2, low=0, high=100), axis=2).reshape(1, 1000, 4)
    limits = [Constant([100], np.int64), Constant([0.5], np.float32), Constant([0.1], np.float32)]
    yield Case("NonMaxSuppression", "1,000 boxes", [boxes, floats(1, 1, 1000, low=0), *limits])
    yield Case("NonMaxSuppression", "1,000 boxes, 20 classes", [boxes, floats(1, 20, 1000, low=0), *limits])


def sequences():
    parts = [floats(64, 64, seed=seed) for seed in range(8)]
    yield Case("SplitToSequence", "f32 64 × 64 in 8", [floats(64, 64), Constant(8, np.int64)], tolerance=EXACT, makes_sequence=True)
    yield Case("SequenceConstruct", "8 of f32 64 × 64", parts, tolerance=EXACT, makes_sequence=True)


def spatial():
    yield Case("MaxUnpool", "f32 64 × 16² to 32²", [floats(1, 64, 16, 16), np.arange(64 * 16 * 16).reshape(1, 64, 16, 16) * 4], {"kernel_shape": [2, 2], "strides": [2, 2]}, tolerance=EXACT)
    yield Case("Upsample", "f32 16 × 64² by 2", [floats(1, 16, 64, 64), Constant([1, 1, 2, 2], np.float32)], {"mode": "nearest"}, opset=9, tolerance=EXACT)
    for channels, side in ((3, 64), (64, 16), (16, 128)):
        image = floats(1, channels, side, side)
        shape = f"f32 {channels} × {side} × {side}"
        for mode, where in (("nearest", "asymmetric"), ("linear", "half_pixel"), ("linear", "align_corners"), ("cubic", "half_pixel")):
            for factor in (2.0, 0.5, 1.3):
                # ONNX Runtime aligns corners to the rounded size, the standard to the size before it is rounded.
                if (where, factor) == ("align_corners", 1.3):
                    continue
                given = [image, None, Constant([1, 1, factor, factor], np.float32)]
                options = {"mode": mode, "coordinate_transformation_mode": where}
                if mode == "nearest":
                    options["nearest_mode"] = "floor"
                yield Case("Resize", f"{shape} by {factor}, {mode} {where}", given, options, tolerance=SUM)
        grid = floats(1, side, side, 2, seed=2, low=-1.1, high=1.1)
        for mode in ("linear", "nearest", "cubic"):
            yield Case("GridSample", f"{shape}, {mode}", [image, grid], {"mode": mode}, tolerance=SUM)
        regions = np.sort(floats(20, 2, 2, low=0, high=side), axis=1).reshape(20, 4)
        yield Case("RoiAlign", f"{shape}, 20 regions", [image, regions, np.zeros(20, np.int64)], {"output_height": 7, "output_width": 7, "sampling_ratio": 2}, opset=21, tolerance=SUM)
        yield Case("AffineGrid", f"{side} × {side}", [floats(1, 2, 3), Constant([1, channels, side, side], np.int64)])
    columns = floats(1, 16 * 9, 32 * 32)
    yield Case("Col2Im", "f32 16 × 34 × 34, 3 × 3", [columns, Constant([34, 34], np.int64), Constant([3, 3], np.int64)])
