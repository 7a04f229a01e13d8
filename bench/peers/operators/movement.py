"""Operators that move and select elements."""

import functools

import numpy as np
from case import EXACT, INNER, MIDDLE, SIZES, SMALL, SUM, Case, Constant, filled, flags, floats, integers, rows
from draw import Drawn, also, by, told


def exact(builder):
    """Gives the cases of a builder no tolerance, unless they compute."""

    @functools.wraps(builder)
    def cases(pick):
        for case in builder(pick):
            if "reduction" not in case.attributes:
                case.tolerance = EXACT
            yield case

    return cases


def typed(draw, least=1, most=5):
    """A type and a shape with axes."""
    return draw.type(), draw.shape(least, most, scalars=False)


def int64s(values):
    return Constant(values, np.int64)


@exact
def joined(pick):
    for label, dtype, shapes, axis in pick(concatenations(), drawn_concatenation, 16):
        yield Case("Concat", label, [filled(shape, dtype, seed=seed) for seed, shape in enumerate(shapes)], {"axis": axis})
    for label, dtype, shape, axis, parts in pick(splits(), drawn_split, 12):
        yield Case("Split", label, [filled(shape, dtype), int64s(parts)], {"axis": axis}, outputs=len(parts))
    for label, dtype, shape, repeats in pick(tiles(), drawn_tile, 12):
        yield Case("Tile", label, [filled(shape, dtype), int64s(repeats)])
    for label, dtype, shape, pads, options in pick(pads_by_mode(), drawn_pad, 16):
        yield Case("Pad", label, [filled(shape, dtype), int64s(pads)], options)


def concatenations():
    for inner in INNER:
        for parts in (2, 5):
            shape = (rows(inner) // parts + 1, inner)
            yield f"{parts} of f32 {by(shape)}, last axis", np.float32, [shape] * parts, -1
            yield f"{parts} of f32 {by(shape)}, first axis", np.float32, [shape] * parts, 0


def drawn_concatenation(draw):
    dtype, shape = typed(draw)
    axis = draw.axis(shape)
    at = axis % len(shape)
    shapes = [(*shape[:at], length, *shape[at + 1 :]) for length in draw.parted(shape[at])]
    return f"{told(dtype)} {', '.join(map(by, shapes))}, axis {axis}", dtype, shapes, axis


def splits():
    for inner in INNER:
        many = rows(inner)
        if inner > 1:
            yield f"f32 {many} × {inner}, last axis", np.float32, (many, inner), -1, [inner // 2, inner - inner // 2]
        yield f"f32 {2 * many} × {inner}, first axis", np.float32, (2 * many, inner), 0, [many, many]


def drawn_split(draw):
    dtype, shape = typed(draw)
    axis = draw.axis(shape)
    parts = draw.parted(shape[axis])
    return f"{told(dtype)} {by(shape)}, axis {axis} in {parts}", dtype, shape, axis, parts


def tiles():
    for inner in INNER:
        shape = (rows(inner) // 4 + 1, inner)
        yield f"f32 {by(shape)}, 4 along the last", np.float32, shape, [1, 4]
        yield f"f32 {by(shape)}, 4 along the first", np.float32, shape, [4, 1]


def drawn_tile(draw):
    dtype, shape = draw.type(), draw.shape(scalars=False, elements=1 << 16)
    repeats = [draw.one(1, 1, 2, 3, 5) for _ in shape]
    return f"{told(dtype)} {by(shape)}, {repeats} times", dtype, shape, repeats


def pads_by_mode():
    for inner in INNER:
        yield f"f32 {rows(inner)} × {inner}, 1 on all sides", np.float32, (rows(inner), inner), [1, 1, 1, 1], {}
    for mode in ("constant", "reflect", "edge", "wrap"):
        yield f"f32 4 × 16 × 32 × 32 by 2, {mode}", np.float32, (4, 16, 32, 32), [0, 0, 2, 2, 0, 0, 2, 2], {"mode": mode}


def drawn_pad(draw):
    dtype, shape, mode = draw.type((np.float32, np.float64, np.int32, np.int64, np.uint8, np.int8)), draw.shape(scalars=False), draw.one("constant", "reflect", "edge", "wrap")
    least = -1 if mode == "constant" else 0
    pads = [draw.one(0, draw.whole(least, 3)) for _ in range(2 * len(shape))]
    pads = [min(pad, length - 1) if length > 2 else 0 for pad, length in zip(pads, shape * 2)]
    return f"{told(dtype)} {by(shape)} by {pads}, {mode}", dtype, shape, pads, {"mode": mode}


@exact
def arranged(pick):
    for label, dtype, shape, perm in pick([(f"f32 {rows(inner)} × {inner}", np.float32, (rows(inner), inner), [1, 0]) for inner in INNER], lambda draw: drawn_permutation(draw, (2, 2))):
        yield Case("Transpose", label, [filled(shape, dtype)], {"perm": perm})
    for label, dtype, shape, bounds in pick(slices(), drawn_slice, 20):
        yield Case("Slice", label, [filled(shape, dtype), *map(int64s, bounds)])
    for label, dtype, shape, perm in pick(permutations(), lambda draw: drawn_permutation(draw, (3, 5)), 20):
        yield Case("Transpose", label, [integers(*shape, dtype=dtype)], {"perm": perm})
    for label, shape, block, mode in pick([(f"f32 4 × 64 × 16 × 16, {mode}", (4, 64, 16, 16), 2, mode) for mode in ("DCR", "CRD")], drawn_depth, 5):
        yield Case("DepthToSpace", label, [floats(*shape)], {"blocksize": block, "mode": mode})
    for label, shape, block in pick([("f32 4 × 16 × 32 × 32", (4, 16, 32, 32), 2)], drawn_space):
        yield Case("SpaceToDepth", label, [floats(*shape)], {"blocksize": block})
    for label, dtype, shape, target in pick([(f"f32 {MIDDLE}", np.float32, (MIDDLE,), [256, -1])], drawn_reshape):
        yield Case("Reshape", label, [filled(shape, dtype), int64s(target)])
    for label, dtype, shape, upper, diagonal in pick([("f32 256 × 256", np.float32, (256, 256), 1, None), ("int64 64 × 32 × 32, lower", np.int64, (64, 32, 32), 0, None)], drawn_triangle, 5):
        yield Case("Trilu", label, [filled(shape, dtype)] + ([] if diagonal is None else [np.array(diagonal)]), {} if upper else {"upper": 0})
    for dtype, shape, time in pick([(np.float32, (128, 8, 64), 0)], lambda draw: (draw.type(), draw.shape(2, 4), draw.whole(0, 1))):
        lengths = integers(shape[1 - time], high=shape[time])
        yield Case("ReverseSequence", f"{told(dtype)} {by(shape)}{', batch first' * time}", [filled(shape, dtype), lengths], {"time_axis": time, "batch_axis": 1 - time})
    for label, dtype, shape in pick([(f"f32 {MIDDLE}", np.float32, (256, 256))], drawn_array):
        yield Case("Shape", label, [filled(shape, dtype)])
        yield Case("Size", label, [filled(shape, dtype)])
    for label, _, shape in pick([(f"{MIDDLE}", None, (256, 256))], drawn_array):
        yield Case("ConstantOfShape", label, [np.array(shape, np.int64)])
    for label, dtype, shape, options in pick([("256 × 256", np.float32, (256, 256), {})], drawn_eye):
        yield Case("EyeLike", label, [filled(shape, dtype)], options)
    for label, dtype, shape, axes in pick([(f"f32 {MIDDLE}", np.float32, (MIDDLE,), [0, 2])], drawn_ones):
        yield Case("Squeeze", label, [np.expand_dims(filled(shape, dtype), tuple(axes)), int64s(axes)])
        yield Case("Unsqueeze", label, [filled(shape, dtype), int64s(axes)])
    for label, dtype, shape, options in pick([(f"f32 {MIDDLE}", np.float32, (16, 64, 64), {})], drawn_flat):
        yield Case("Flatten", label, [filled(shape, dtype)], options)
    for shape, steps in pick([((8, 64, 256, 16), 1)], lambda draw: ((draw.whole(1, 8), draw.log(1, 64), draw.log(8, 256), draw.log(1, 64)), draw.whole(1, 4))):
        given = [floats(*shape), floats(*shape[:2], steps, shape[3], seed=2), integers(shape[0], high=shape[2] - steps + 1)]
        yield Case("TensorScatter", f"f32 {by(shape)}, {'one position' if steps == 1 else f'{steps} positions'}", given, opset=24)
    for dtype, begin, end, step in pick([(np.int64, 0, MIDDLE, 1)], lambda draw: (draw.one(np.int32, np.int64, np.float32, np.float64, np.int16), draw.whole(-9, 9), draw.log(10, 30000), draw.whole(1, 4))):
        yield Case("Range", f"{told(dtype)} {end if (begin, step) == (0, 1) else f'{begin} to {end} by {step}'}", [np.array(each, dtype) for each in (begin, end, step)])
    for shape, sizes, axes in pick([((64, 64, 16), [32, 80], [0, 1])], drawn_crop):
        yield Case("CenterCropPad", f"f32 {by(shape)} to {by(sizes)}{'' if axes == [0, 1] else f', axes {axes}'}", [floats(*shape), int64s(sizes)], {"axes": axes})


def slices():
    for inner in INNER:
        many = rows(inner)
        yield f"f32 {many} × {inner}, each second row", np.float32, (many, inner), ([0], [many], [0], [2])
        if inner > 2:
            yield f"f32 {many} × {inner}, without both ends", np.float32, (many, inner), ([1], [inner - 1], [1])
            yield f"f32 {many} × {inner}, backwards", np.float32, (many, inner), ([-1], [-inner - 1], [1], [-1])


def drawn_slice(draw):
    dtype, shape = typed(draw)
    axes = draw.axes(len(shape))
    bounds = []
    for axis in axes:
        begin, step = draw.whole(0, shape[axis] // 2), draw.one(1, 1, 2, 3, 7)
        end = draw.whole(begin + 1, shape[axis] + 2)
        bounds.append((begin, end, axis - draw.one(0, len(shape)), step) if draw.chance(0.7) else (end - 1 - shape[axis] if end < shape[axis] else -1, -shape[axis] - 1 + begin, axis, -step))
    bounds = tuple(list(each) for each in zip(*bounds))
    return f"{told(dtype)} {by(shape)} from {bounds[0]} to {bounds[1]}, axes {bounds[2]} by {bounds[3]}", dtype, shape, bounds


def permutations():
    for shape, perm in (((8, 64, 12, 64), (0, 2, 1, 3)), ((4, 3, 128, 128), (0, 2, 3, 1)), ((4, 128, 128, 3), (0, 3, 1, 2)), ((32, 32, 64), (2, 1, 0)), ((64, 8, 8, 16), (3, 2, 1, 0))):
        for dtype in (np.float32, np.uint8, np.float16, np.int64):
            yield f"{np.dtype(dtype).name} {by(shape)} by {perm}", dtype, shape, perm


def drawn_permutation(draw, ranks):
    dtype, shape = typed(draw, *ranks)
    perm = draw.random.sample(range(len(shape)), len(shape))
    return f"{told(dtype)} {by(shape)} by {tuple(perm)}", dtype, shape, perm


def drawn_depth(draw):
    block, mode = draw.one(2, 3, 4), draw.one("DCR", "CRD")
    shape = (draw.whole(1, 4), block * block * draw.log(1, 16), draw.log(1, 40), draw.log(1, 40))
    return f"f32 {by(shape)}, {mode}, blocks of {block}", shape, block, mode


def drawn_space(draw):
    block = draw.one(2, 3, 4)
    shape = (draw.whole(1, 4), draw.log(1, 16), block * draw.log(1, 40), block * draw.log(1, 40))
    return f"f32 {by(shape)}, blocks of {block}", shape, block


def drawn_reshape(draw):
    dtype, shape = typed(draw)
    target = [draw.one(0, shape[0]), -1, *shape[2:]] if draw.chance(0.5) else [*reversed(shape)]
    return f"{told(dtype)} {by(shape)} to {target}", dtype, shape, target


def drawn_triangle(draw):
    dtype, shape, upper, diagonal = draw.type((np.float32, np.float64, np.int64)), draw.shape(2, 4), draw.whole(0, 1), draw.one(None, draw.whole(-9, 9))
    return f"{told(dtype)} {by(shape)}, {'upper' if upper else 'lower'} of {diagonal}", dtype, shape, upper, diagonal


def drawn_array(draw):
    dtype, shape = typed(draw)
    return f"{told(dtype)} {by(shape)}", dtype, shape


def drawn_eye(draw):
    dtype, shape, options = draw.one(np.float32, np.int64), draw.shape(2, 2), {"k": draw.whole(-5, 5)}
    return f"{told(dtype)} {by(shape)}{also(options)}", dtype, shape, options


def drawn_ones(draw):
    dtype, shape = typed(draw, 1, 3)
    axes = draw.axes(len(shape) + 2)[:2]
    axes = axes if len(axes) == 2 else [0, len(shape) + 1]
    return f"{told(dtype)} {by(shape)}, axes {axes}", dtype, shape, axes


def drawn_flat(draw):
    dtype, shape = typed(draw)
    options = {"axis": draw.axis(shape)}
    return f"{told(dtype)} {by(shape)}{also(options)}", dtype, shape, options


def drawn_crop(draw):
    shape = draw.shape(2, 4, elements=1 << 18)
    axes = draw.axes(len(shape))
    return shape, [max(1, shape[axis] + draw.whole(-9, 9)) for axis in axes], axes


@exact
def indexed(pick):
    for label, dtype, shape, axis, least, chosen in pick(gathers(), drawn_gather, 20):
        yield Case("Gather", label, [filled(shape, dtype), integers(*chosen, low=least, high=shape[axis])], {"axis": axis} if axis else {})
    table = ((f"f32 {rows(inner)} × {inner}, 4,096 rows", np.float32, (rows(inner), inner), (4096, 1)) for inner in INNER)
    for label, dtype, shape, chosen in pick(table, drawn_tuples):
        yield Case("GatherND", label, [filled(shape, dtype), integers(*chosen, high=shape[: chosen[-1]])])
    for label, shape, axis in pick(elements(), drawn_elements, 10):
        length = shape[axis]
        positions = integers(*shape, high=length)
        yield Case("GatherElements", label, [floats(*shape), positions], {"axis": axis})
        unlike = np.argsort(floats(*shape, seed=3), axis)
        yield Case("ScatterElements", label, [floats(*shape), unlike, floats(*shape, seed=2)], {"axis": axis})
        for reduction in ("add", "max"):
            given = [floats(*shape), positions, floats(*shape, seed=2)]
            yield Case("ScatterElements", f"{label}, {reduction}", given, {"axis": axis, "reduction": reduction})
    for shape in pick([(rows(inner), inner) for inner in INNER], lambda draw: draw.shape(1, 4, scalars=False, elements=1 << 18)):
        many, behind = shape[0], shape[1:]
        unlike = np.random.default_rng(3).permutation(many)[: many // 2 + 1].reshape(-1, 1)
        yield Case("ScatterND", f"f32 {by(shape)}, half of the rows", [floats(*shape), unlike, floats(len(unlike), *behind, seed=2)])
        given = [floats(*shape), integers(many, 1, high=many), floats(*shape, seed=2)]
        yield Case("ScatterND", f"f32 {by(shape)}, all rows, add", given, {"reduction": "add"}, tolerance=SUM)
    for label, shape, depth, options in pick([(f"{rows(inner)} of {inner}", (rows(inner),), inner, {}) for inner in INNER], drawn_hot):
        yield Case("OneHot", label, [integers(*shape, high=depth), int64s(depth), Constant([0, 1], np.float32)], options)


def gathers():
    for inner in INNER:
        many = rows(inner)
        yield f"f32 {many} × {inner}, 4,096 rows", np.float32, (many, inner), 0, 0, (4096,)
        yield f"f32 {many} × {inner}, half of the last axis", np.float32, (many, inner), 1, 0, (max(1, inner // 2),)


def drawn_gather(draw):
    dtype, shape = typed(draw, 1, 4)
    axis = draw.axis(shape)
    each = max(1, int(np.prod(shape)) // shape[axis])
    chosen = draw.one((), (draw.log(1, max(1, (1 << 18) // each)),), (draw.log(1, 16), draw.log(1, max(1, (1 << 14) // each))))
    return f"{told(dtype)} {by(shape)}, axis {axis} at {by(chosen)}, from either end", dtype, shape, axis, -shape[axis], chosen


def drawn_tuples(draw):
    dtype, shape = typed(draw, 1, 4)
    depth = draw.whole(1, len(shape))
    chosen = (draw.log(1, max(1, (1 << 18) // int(np.prod(shape[depth:])))), depth)
    return f"{told(dtype)} {by(shape)} at {by(chosen)}", dtype, shape, chosen


def elements():
    for inner in INNER:
        for axis in (0, 1):
            yield f"f32 {rows(inner)} × {inner}, axis {axis}", (rows(inner), inner), axis


def drawn_elements(draw):
    shape = draw.shape(1, 4, scalars=False, elements=1 << 17)
    axis = draw.axis(shape)
    return f"f32 {by(shape)}, axis {axis}", shape, axis


def drawn_hot(draw):
    shape, depth = draw.shape(1, 3, scalars=False, elements=1 << 12), draw.length(100)
    options = {"axis": draw.whole(-len(shape) - 1, len(shape))}
    return f"{by(shape)} of {depth}{also(options)}", shape, depth, options


@exact
def selected(pick):
    for shape in pick([(size,) for size in SIZES], Drawn.shape, 5):
        yield Case("NonZero", f"f32 {by(shape)}, half", [floats(*shape).clip(0)])
    for shape in pick([(size,) for size in SIZES], lambda draw: draw.shape(scalars=False)):
        yield Case("Compress", f"f32 {by(shape)}, half", [floats(*shape), flags(int(np.prod(shape)))])
    for label, shape, many, options in pick([(f"f32 {size}, 10", (1, size), 10, {}) for size in SIZES], drawn_top, 5):
        yield Case("TopK", label, [floats(*shape), int64s([many])], options, outputs=2)
    for label, dtype, shape, axis in pick([(f"f32 {rows(inner)} × {inner}, half of the rows", np.float32, (rows(inner), inner), 0) for inner in INNER], drawn_compression):
        yield Case("Compress", label, [filled(shape, dtype), flags(shape[axis])], {"axis": axis})
    for label, shape, many, options in pick([(f"f32 {rows(inner)} × {inner}, half of the last axis", (rows(inner), inner), max(1, inner // 2), {}) for inner in INNER], drawn_top):
        yield Case("TopK", label, [floats(*shape), int64s([many])], options, outputs=2)
    for size, options in pick([(SMALL, {}), (MIDDLE, {})], lambda draw: (draw.log(10, 1 << 16), draw.options({"sorted": [0, 1]}))):
        yield Case("Unique", f"int64 {size}{also(options)}", [integers(size, high=max(1, size // 4))], options, outputs=4)
        yield Case("Unique", f"f32 {size}{also(options)}", [np.round(floats(size) * 100)], options, outputs=4)
    for boxes, classes in pick([(1000, 1), (1000, 20)], lambda draw: (draw.log(10, 2000), draw.whole(1, 20))):
        corners = np.sort(floats(1, boxes, 2, 2, low=0, high=100), axis=2).reshape(1, boxes, 4)
        limits = [int64s([100]), Constant([0.5], np.float32), Constant([0.1], np.float32)]
        yield Case("NonMaxSuppression", f"{boxes:,} boxes{f', {classes} classes' if classes > 1 else ''}", [corners, floats(1, classes, boxes, low=0), *limits])


def drawn_top(draw):
    shape = draw.shape(scalars=False)
    axis = draw.axis(shape)
    many = draw.log(1, shape[axis])
    options = {"axis": axis} | draw.options({"largest": [0, 1]})
    return f"f32 {by(shape)}, {many}{also(options)}", shape, many, options


def drawn_compression(draw):
    dtype, shape = typed(draw)
    axis = draw.axis(shape)
    return f"{told(dtype)} {by(shape)}, half of axis {axis}", dtype, shape, axis


def sequences(pick):
    for label, shape, options, parts in pick([("f32 64 × 64 in 8", (64, 64), {}, 8)], drawn_sequence):
        yield Case("SplitToSequence", label, [floats(*shape), int64s(parts)], options, tolerance=EXACT, makes_sequence=True)
    for shape, count in pick([((64, 64), 8)], lambda draw: (draw.shape(1, 4, elements=1 << 14), draw.whole(1, 20))):
        yield Case("SequenceConstruct", f"{count} of f32 {by(shape)}", [floats(*shape, seed=seed) for seed in range(count)], tolerance=EXACT, makes_sequence=True)


def drawn_sequence(draw):
    shape = draw.shape(scalars=False)
    axis = draw.axis(shape)
    parts = draw.parted(shape[axis], 9)
    return f"f32 {by(shape)}, axis {axis} in {parts}", shape, {"axis": axis}, parts


def spatial(pick):
    for channels, side, kernel in pick([(64, 16, 2)], lambda draw: (draw.log(1, 64), draw.log(1, 40), draw.one(2, 3))):
        positions = np.arange(channels * side * side).reshape(1, channels, side, side) * kernel * kernel
        options = {"kernel_shape": [kernel] * 2, "strides": [kernel] * 2}
        yield Case("MaxUnpool", f"f32 {channels} × {side}² to {side * kernel}²", [floats(1, channels, side, side), positions], options, tolerance=EXACT)
    for channels, side, scale in pick([(16, 64, 2)], lambda draw: (draw.log(1, 32), draw.log(1, 100), draw.whole(2, 4))):
        given = [floats(1, channels, side, side), Constant([1, 1, scale, scale], np.float32)]
        yield Case("Upsample", f"f32 {channels} × {side}² by {scale}", given, {"mode": "nearest"}, opset=9, tolerance=EXACT)
    for (batch, channels, height, width), resizes in pick([((1, channels, side, side), RESIZES) for channels, side in ((3, 64), (64, 16), (16, 128))], drawn_image, 7):
        image = floats(batch, channels, height, width)
        square = batch == 1 and height == width
        shape = f"f32 {by((channels, height, width) if square else image.shape)}"
        for how, scales, sizes, options in resizes:
            given = [image, None, *([Constant([1, 1, *scales], np.float32)] if scales else [None, Constant([batch, channels, *sizes], np.int64)])]
            yield Case("Resize", f"{shape} {how}", given, options, tolerance=SUM)
        grid = floats(batch, height, width, 2, seed=2, low=-1.1, high=1.1)
        for mode in ("linear", "nearest", "cubic"):
            # ONNX Runtime's cubic mode differs from the standard at a border.
            paddings = ["zeros", "reflection"] if mode == "cubic" else ["zeros", "border", "reflection"]
            for options in pick([{}], lambda draw: draw.options({"padding_mode": paddings, "align_corners": [0, 1]}), 1):
                yield Case("GridSample", f"{shape}, {mode}{also(options)}", [image, grid], {"mode": mode} | options, tolerance=SUM)
        regions = np.sort(floats(20, 2, 2, low=0, high=min(height, width)), axis=1).reshape(20, 4)
        for more, options in pick([("", {"output_height": 7, "output_width": 7, "sampling_ratio": 2})], drawn_regions, 1):
            yield Case("RoiAlign", f"{shape}, 20 regions{more}", [image, regions, integers(20, high=batch)], options, opset=21, tolerance=SUM)
        for options in pick([{}], lambda draw: draw.options({"align_corners": [0, 1]}), 1):
            sizes = Constant([batch, channels, height, width], np.int64)
            yield Case("AffineGrid", f"{height} × {width}{also(options)}", [floats(batch, 2, 3), sizes], options)
    for channels, sides, kernel, options in pick([(16, (34, 34), (3, 3), {})], drawn_columns, 6):
        strides, dilations, pads = options.get("strides", [1, 1]), options.get("dilations", [1, 1]), options.get("pads", [0] * 4)
        places = [(side + pads[at] + pads[at + 2] - dilations[at] * (kernel[at] - 1) - 1) // strides[at] + 1 for at, side in enumerate(sides)]
        given = [floats(1, channels * int(np.prod(kernel)), int(np.prod(places))), int64s(sides), int64s(kernel)]
        yield Case("Col2Im", f"f32 {channels} × {by(sides)}, {by(kernel)}{also(options)}", given, options)


#: Labels, scales, sizes and attributes. ONNX Runtime aligns corners to the rounded size, the standard to the size before it is rounded.
RESIZES = [
    (f"by {factor}, {mode} {where}", [factor] * 2, None, {"mode": mode, "coordinate_transformation_mode": where} | ({"nearest_mode": "floor"} if mode == "nearest" else {}))
    for mode, where in (("nearest", "asymmetric"), ("linear", "half_pixel"), ("linear", "align_corners"), ("cubic", "half_pixel"))
    for factor in (2.0, 0.5, 1.3)
    if (where, factor) != ("align_corners", 1.3)
]


def drawn_image(draw):
    """A shape, and sizes to which images of it are changed."""
    height, width = draw.log(3, 128), draw.log(3, 128)
    channels = draw.log(1, max(1, min(128, (1 << 17) // (height * width))))
    return (draw.whole(1, 3), channels, height, width), [drawn_resize(draw, height, width) for _ in range(6)]


def drawn_resize(draw, height, width):
    mode = draw.one("nearest", "linear", "linear", "cubic")
    where = draw.one("asymmetric", "half_pixel", "align_corners", "pytorch_half_pixel")
    # Nearest elements of sizes without an exact scale depend on how positions are rounded, which engines do unlike.
    where = "half_pixel" if (mode, where) == ("nearest", "pytorch_half_pixel") else where
    options = {"mode": mode, "coordinate_transformation_mode": where}
    if mode == "nearest":
        options["nearest_mode"] = draw.one("floor", "ceil", "round_prefer_floor", "round_prefer_ceil")
    if mode == "cubic":
        options |= draw.options({"cubic_coeff_a": (-0.75, -0.4), "exclude_outside": [0, 1]})
    # With scales, ONNX Runtime takes a size that it has not rounded in these two modes.
    if where in ("align_corners", "pytorch_half_pixel") or mode != "nearest" and where == "half_pixel" and draw.chance(0.5):
        if mode != "nearest" and draw.chance(0.2):
            options["antialias"] = 1
        sizes = [max(1, round(side * draw.uniform(0.3, 3.0))) for side in (height, width)]
        return f"to {sizes}{also(options)}", None, sizes, options
    # Eighths are exact.
    scales = [draw.one(0.5, 2.0, 3.0, draw.whole(3, 24) / 8) for _ in range(2)]
    return f"by {scales}{also(options)}", scales, None, options


def drawn_regions(draw):
    options = {"output_height": draw.whole(1, 9), "output_width": draw.whole(1, 9), "sampling_ratio": draw.whole(0, 3)}
    options |= draw.options({"mode": ["avg", "max"], "spatial_scale": (0.5, 1.0), "coordinate_transformation_mode": ["half_pixel", "output_half_pixel"]})
    return also(options), options


def drawn_columns(draw):
    kernel = [draw.one(1, 2, 3, 5) for _ in range(2)]
    options = draw.options({"strides": [[1, 1], [2, 2], [2, 1]], "dilations": [[1, 1], [2, 1], [2, 2]], "pads": [[0, 0, 0, 0], [1, 1, 1, 1], [0, 1, 2, 0]]})
    return draw.log(1, 32), [draw.whole(10, 50) for _ in range(2)], kernel, options


BUILDERS = (joined, arranged, indexed, selected, sequences, spatial)
