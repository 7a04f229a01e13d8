"""Products, convolutions, pooling and recurrent layers, in floats."""

import numpy as np
from case import SUM, Case, Constant, floats, integers
from draw import also, by

MICROSOFT = "com.microsoft"
#: Multiplications of a drawn case.
MOST = 1 << 26
EINSUMS = (
    ("bhid,bhjd->bhij", ((2, 8, 64, 32), (2, 8, 64, 32))), ("ij,jk->ik", ((64, 64), (64, 64))), ("bi,bj->bij", ((64, 32), (64, 32))),
    ("ii->i", ((256, 256),)), ("ij->ji", ((256, 256),)), ("bij->b", ((64, 32, 32),)),
)


def products(pick):
    sizes = ((1, 1, 1), (1, 64, 64), (1, 1024, 1024), (3, 7, 5), (16, 16, 16), (64, 64, 64), (128, 768, 768), (1000, 3, 3), (3, 1000, 3), (3, 3, 1000), (512, 512, 512), (31, 257, 63))
    for m, k, n in pick(sizes, drawn_product, 20):
        one, other = floats(m, k), floats(k, n, seed=2)
        yield Case("MatMul", f"f32 {m} × {k} × {n}", [one, other], tolerance=SUM)
        yield Case("MatMul", f"f32 {m} × {k} × {n}, weights", [one, Constant(other)], tolerance=SUM)
        yield Case("Gemm", f"f32 {m} × {k} × {n}, transposed weights", [one, Constant(other.T.copy()), Constant(floats(n, seed=3))], {"transB": 1}, tolerance=SUM)
    for (m, k, n), options, bias in pick([], drawn_gemm, 8):
        one = floats(*((k, m) if options.get("transA") else (m, k)))
        other = floats(*((n, k) if options.get("transB") else (k, n)), seed=2)
        added = [] if bias is None else [floats(*bias, seed=3)]
        yield Case("Gemm", f"f32 {m} × {k} × {n} and {'nothing' if bias is None else by(bias)}{also(options)}", [one, other, *added], options, tolerance=SUM)
    batches = [(f"f32 {batch} of {m} × {k} × {n}", (batch, m, k), (batch, k, n)) for batch, m, k, n in ((64, 4, 4, 4), (12, 128, 64, 128), (1000, 1, 16, 16), (8, 64, 64, 64))]
    for label, one, other in pick(batches, drawn_batches, 12):
        yield Case("MatMul", label, [floats(*one), floats(*other, seed=2)], tolerance=SUM)
    for m, k, n in pick([(64, 64, 64)], drawn_product, 5):
        yield Case("MatMul", f"f64 {m} × {k} × {n}", [floats(m, k, dtype=np.float64), floats(k, n, seed=2, dtype=np.float64)], tolerance=1e-13)
        yield Case("MatMul", f"int32 {m} × {k} × {n}", [integers(m, k, dtype=np.int32), integers(k, n, seed=2, dtype=np.int32)])
    for equation, shapes in pick(EINSUMS, drawn_sum, 16):
        given = [floats(*shape, seed=seed) for seed, shape in enumerate(shapes)]
        yield Case("Einsum", f"{equation} {given[0].shape}", given, {"equation": equation}, tolerance=SUM)
    for many, size in pick([(64, 4)], lambda draw: (draw.log(1, 256), draw.whole(1, 8))):
        yield Case("Det", f"f32 {many} of {size} × {size}", [floats(many, size, size)], tolerance=1e-5 if size == 4 else SUM)
    for m, k, n in pick([(128, 64, 128)], drawn_product):
        given = [floats(m, k), floats(n, k, seed=2)]
        yield Case("FusedMatMul", f"f32 {m} × {k} × {n}, transposed", given, {"transB": 1, "alpha": 0.5}, domain=MICROSOFT, tolerance=SUM)
        yield Case("TransposeMatMul", f"f32 {m} × {k} × {n}", given, {"transB": 1}, domain=MICROSOFT, tolerance=SUM)
    for m, k, n in pick([(64, 64, 64)], drawn_product):
        fused = [floats(m, k), Constant(floats(k, n, seed=2)), Constant(floats(n, seed=3))]
        yield Case("FusedGemm", f"f32 {m} × {k} × {n}, Relu", fused, {"activation": "Relu"}, domain=MICROSOFT, tolerance=SUM)


def drawn_product(draw):
    """Three sizes with at most so many multiplications, of which a third are near a power of two."""
    while True:
        sizes = tuple(draw.one(draw.log(1, 1500), draw.log(1, 1500), (1 << draw.whole(1, 10)) + draw.whole(-1, 1)) for _ in range(3))
        sizes = (1, *sizes[1:]) if draw.chance(0.15) else sizes
        if 1 << 8 <= np.prod(sizes) <= MOST:
            return sizes


def drawn_gemm(draw):
    m, k, n = drawn_product(draw)
    options = draw.options({"transA": [0, 1], "transB": [0, 1], "alpha": (0.2, 2.0), "beta": (0.2, 2.0)})
    return (m, k, n), options, draw.one(None, (n,), (m, n), (1, n), (m, 1), (1, 1), (1,), ())


def drawn_batches(draw):
    """Matrices or vectors whose batches are broadcast."""
    m, k, n = (draw.log(1, 200) for _ in range(3))
    batch = [draw.whole(1, 8) for _ in range(draw.whole(1, 3))]
    one, other = ([draw.one(1, each, each) for each in batch][draw.one(0, 0, draw.whole(0, len(batch))) :] for _ in range(2))
    one, other = draw.one(((*one, m, k), (*other, k, n)), ((*one, m, k), (*batch, k, n)), ((*batch, m, k), (k, n)), ((k,), (*other, k, n)), ((*one, m, k), (k,)))
    return f"f32 {by(one)} and {by(other)}", one, other


def drawn_sum(draw):
    equation = draw.one(*dict(EINSUMS), "bhij,bhjd->bhid", "bij,bjk->bik", "bij,kj->bik", "ij,kj->ik", "ji,jk->ki", "i,j->ij", "bij,bij->bi", "ij,ij->", "bihd,bjhd->bhij", "ijk,k->ji", "iij->j", "ij,jk,kl->il", "...ij,...jk->...ik", "bij,jk")
    lengths = {letter: draw.log(2, 40) for letter in "bdhijkl"}
    kept = [part.replace("...", "bh") for part in equation.split("->")[0].split(",")]
    return equation, tuple(tuple(lengths[letter] for letter in part) for part in kept)


def convolutions(pick):
    for channels, side, filters, kernel in pick([(16, 32, 16, 3)], lambda draw: (draw.log(1, 64), draw.log(5, 40), draw.log(1, 64), draw.one(1, 3, 5))):
        fused = [floats(1, channels, side, side), Constant(floats(filters, channels, kernel, kernel, seed=2)), Constant(floats(filters, seed=3))]
        yield Case("FusedConv", f"f32 {channels} × {side}², {filters} of {kernel}², Relu", fused, {"pads": [kernel // 2] * 4, "activation": "Relu"}, domain=MICROSOFT, tolerance=SUM)
    for label, shape, filters, kernel, options in pick(convolved(), drawn_convolution, 50):
        given = [floats(*shape), Constant(floats(filters, shape[1] // options["group"], *kernel, seed=2)), Constant(floats(filters, seed=3))]
        yield Case("Conv", f"f32 {label}", given, options, tolerance=SUM)
    for channels, length, filters, kernel, dilation in pick([(1, 16000, 16, 25, 1), (64, 512, 64, 3, 1), (64, 512, 64, 3, 8), (512, 32, 512, 1, 1)], drawn_line, 8):
        given = [floats(1, channels, length), Constant(floats(filters, channels, kernel, seed=2))]
        yield Case("Conv", f"f32 {channels} × {length}, {filters} of {kernel}, dilation {dilation}", given, {"dilations": [dilation]}, tolerance=SUM)
    for channels, side, filters, kernel in pick([(4, 8, 8, 3)], lambda draw: (draw.log(1, 16), draw.log(3, 16), draw.log(1, 16), draw.whole(1, 3)), 5):
        given = [floats(1, channels, side, side, side), Constant(floats(filters, channels, kernel, kernel, kernel, seed=2))]
        yield Case("Conv", f"f32 {channels} × {side}³, {filters} of {kernel}³", given, {"pads": [kernel // 2] * 6}, tolerance=SUM)
    table = [
        (f"f32 {channels} × {side}², {filters} of {kernel}², stride {stride}", (1, channels, side, side), filters, [kernel] * 2, {"strides": [stride] * 2})
        for channels, side, filters, kernel, stride in ((16, 16, 8, 2, 2), (64, 8, 64, 4, 2), (8, 32, 8, 3, 1), (64, 1, 16, 8, 1))
    ]
    for label, shape, filters, kernel, options in pick(table, drawn_transposed, 14):
        given = [floats(*shape), Constant(floats(shape[1], filters // options.get("group", 1), *kernel, seed=2))]
        yield Case("ConvTranspose", label, given, options, tolerance=SUM)
    for channels, side, filters, kernel in pick([(16, 16, 8, 3)], lambda draw: (draw.log(1, 32), draw.log(5, 24), draw.log(1, 32), draw.one(1, 2, 3, 5)), 4):
        made = side - kernel + 1
        given = [floats(1, channels, side, side), Constant(floats(filters, channels, kernel, kernel, seed=2)), Constant(floats(1, 2 * kernel * kernel, made, made, seed=3))]
        yield Case("DeformConv", f"f32 {channels} × {side}², {filters} of {kernel}²", given, tolerance=SUM)


def convolved():
    for channels, side, filters, kernel, group, stride in (
        (3, 64, 16, 3, 1, 2), (16, 32, 16, 3, 1, 1), (64, 16, 64, 3, 1, 1), (256, 8, 256, 1, 1, 1), (64, 16, 64, 3, 64, 1), (64, 32, 64, 5, 64, 2),
        (32, 16, 32, 3, 8, 1), (64, 14, 64, 3, 32, 1), (1, 128, 4, 7, 1, 1), (8, 7, 8, 3, 1, 1), (3, 224, 64, 7, 1, 2), (512, 1, 512, 1, 1, 1),
    ):
        options = {"pads": [kernel // 2] * 4, "group": group, "strides": [stride] * 2}
        yield f"{channels} × {side}², {filters} of {kernel}², groups {group}, stride {stride}", (1, channels, side, side), filters, [kernel] * 2, options


def drawn_convolution(draw):
    """Images and kernels of one to three axes: plain, in groups, or a channel at a time."""
    while True:
        axes = draw.one(1, 2, 2, 2, 2, 3)
        sides = [draw.log(1, (2000, 120, 20)[axes - 1])] * axes if draw.chance(0.5) else [draw.log(1, (2000, 120, 20)[axes - 1]) for _ in range(axes)]
        kernel = [draw.one(1, 2, 3, 3, 5, 7)] * axes if draw.chance(0.7) else [draw.one(1, 2, 3, 5, 7) for _ in range(axes)]
        group = draw.one(1, 1, draw.whole(2, 8), draw.log(2, 128))
        within, made = (1, draw.one(1, 1, 2)) if group > 8 else (draw.log(1, 256), draw.log(1, 256))
        strides, dilations = [draw.one(1, 1, 2, 3)] * axes, [draw.one(1, 1, 1, 2, 3)] * axes
        pads = [draw.one(0, of // 2) for of in kernel] * 2 if draw.chance(0.8) else [draw.whole(0, of - 1) for of in kernel * 2]
        shape = (draw.one(1, 1, draw.whole(1, 8)), group * within, *sides)
        out = [(side + pads[at] + pads[at + axes] - dilations[at] * (kernel[at] - 1) - 1) // strides[at] + 1 for at, side in enumerate(sides)]
        if min(out) > 0 and 1 << 10 <= shape[0] * np.prod(out) * np.prod(kernel) * group * within * made <= MOST and np.prod(shape) <= 1 << 20:
            break
    options = {"pads": pads, "group": group, "strides": strides, "dilations": dilations}
    return f"{by(shape)}, {group * made} of {by(kernel)}{also(options)}", shape, group * made, kernel, options


def drawn_line(draw):
    kernel, dilation = draw.one(1, 2, 3, 5, 9, 25), draw.one(1, 1, 2, 5)
    return draw.log(1, 128), draw.log(kernel * dilation, 1000), draw.log(1, 128), kernel, dilation


def drawn_transposed(draw):
    while True:
        _, shape, made, kernel, options = drawn_convolution(draw)
        options["output_padding"] = [draw.whole(0, stride - 1) for stride in options["strides"]]
        out = [(side - 1) * options["strides"][at] + options["dilations"][at] * (kernel[at] - 1) + 1 - options["pads"][at] - options["pads"][at + len(kernel)] for at, side in enumerate(shape[2:])]
        if min(out) > 0 and shape[0] * np.prod(shape[1:]) * made // options["group"] * np.prod(kernel) <= MOST:
            return f"f32 {by(shape)}, {made} of {by(kernel)}{also(options)}", shape, made, kernel, options


def pools(pick):
    for op in ("MaxPool", "AveragePool", "LpPool"):
        for label, shape, options in pick(pooled(), lambda draw: drawn_pool(draw, op), 12):
            yield Case(op, label, [floats(*shape)], options, tolerance=SUM if len(shape) > 3 else 1e-5)
    for op in ("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"):
        table = [(f"f32 {channels} × {side}²", (1, channels, side, side)) for channels, side in ((1280, 7), (64, 32), (2048, 1))]
        for label, shape in pick(table, drawn_image, 6):
            yield Case(op, label, [floats(*shape)], tolerance=SUM, opset=21)


def pooled():
    for channels, side, kernel, stride in ((64, 56, 3, 2), (64, 32, 2, 2), (16, 16, 3, 1), (256, 7, 7, 7), (3, 64, 5, 1)):
        yield f"f32 {channels} × {side}², {kernel}² by {stride}", (1, channels, side, side), {"kernel_shape": [kernel] * 2, "strides": [stride] * 2}
    yield "f32 64 × 1024, 4 by 4", (1, 64, 1024), {"kernel_shape": [4], "strides": [4]}


def drawn_image(draw):
    axes = draw.one(1, 2, 2, 2, 3)
    sides = [draw.log(1, (1000, 100, 16)[axes - 1]) for _ in range(axes)]
    shape = (draw.one(1, 1, draw.whole(1, 8)), draw.log(1, max(1, min(1024, (1 << 17) // int(np.prod(sides))))), *sides)
    return f"f32 {by(shape)}", shape


def drawn_pool(draw, op):
    label, shape = drawn_image(draw)
    sides = shape[2:]
    kernel = [draw.one(1, 2, 2, 3, 3, 5, 7)] * len(sides) if draw.chance(0.7) else [draw.one(1, 2, 3, 5) for _ in sides]
    kernel = [min(one, side) for one, side in zip(kernel, sides)]
    options = {"kernel_shape": kernel, "strides": [draw.one(1, 2, 3)] * len(sides), "pads": [draw.one(0, (of - 1) // 2) for of in kernel] * 2}
    kinds = {"MaxPool": {"ceil_mode": [0, 1]}, "AveragePool": {"ceil_mode": [0, 1], "count_include_pad": [0, 1]}, "LpPool": {"p": [1, 2, 3]}}
    options |= draw.options(kinds[op])
    return label + also(options), shape, options


def recurrent(pick):
    for op, gates in (("LSTM", 4), ("GRU", 3), ("RNN", 1)):
        for steps, batch, size, hidden in pick([(1, 1, 16, 16), (32, 1, 32, 32), (32, 1, 128, 128), (64, 8, 64, 64), (16, 1, 256, 512)], drawn_layer):
            weights = [Constant(floats(1, gates * hidden, of, seed=seed, low=-0.2, high=0.2)) for seed, of in ((5, size), (6, hidden))]
            bias = Constant(floats(1, 2 * gates * hidden, seed=3))
            yield Case(op, f"f32 {steps} steps, {batch} × {size} to {hidden}", [floats(steps, batch, size), *weights, bias], {"hidden_size": hidden}, outputs=2, tolerance=SUM)
    table = [("LSTM", 4, (32, 1, 32, 64), ", both directions", {"direction": "bidirectional"})]
    for op, gates, (steps, batch, size, hidden), more, options in pick(table, drawn_directions, 9):
        directions = 2 if options["direction"] == "bidirectional" else 1
        weights = [Constant(floats(directions, gates * hidden, of, seed=of, low=-0.2, high=0.2)) for of in (size, hidden)]
        label = f"f32 {steps} steps, {batch} × {size} to {hidden}{more}"
        yield Case(op, label, [floats(steps, batch, size), *weights], {"hidden_size": hidden} | options, outputs=2, tolerance=SUM)


def drawn_layer(draw):
    return draw.log(1, 50), draw.one(1, 1, draw.whole(1, 8)), draw.log(1, 200), draw.log(1, 200)


def drawn_directions(draw):
    op, gates = draw.one(("LSTM", 4), ("GRU", 3), ("RNN", 1))
    more = {"LSTM": {"input_forget": [0, 1]}, "GRU": {"linear_before_reset": [0, 1]}, "RNN": {}}[op]
    options = {"direction": draw.one("forward", "reverse", "bidirectional")} | draw.options(more | {"clip": (0.5, 3.0)})
    return op, gates, drawn_layer(draw), also(options), options


def attention(pick):
    for batch, length, heads, size in pick([(1, 16, 4, 32), (1, 128, 12, 64), (4, 64, 8, 32), (1, 512, 8, 64)], drawn_heads, 10):
        given = [floats(batch, length, heads * size, seed=seed) for seed in (1, 2, 3)]
        shape = f"f32 {batch} × {length}, {heads} heads of {size}"
        yield Case("MultiHeadAttention", shape, given, {"num_heads": heads}, domain=MICROSOFT, tolerance=SUM)
        split = [each.reshape(batch, length, heads, size).transpose(0, 2, 1, 3).copy() for each in given]
        for options in pick([{}], lambda draw: draw.options({"is_causal": [0, 1], "scale": (0.1, 1.0), "softcap": (1.0, 9.0)}), 1):
            yield Case("Attention", shape + also(options), split, options, tolerance=SUM)
        width = heads * size
        weights = [Constant(floats(width, 3 * width, seed=6, low=-0.1, high=0.1)), Constant(floats(3 * width, seed=7))]
        yield Case("Attention", shape, [given[0], *weights], {"num_heads": heads}, domain=MICROSOFT, tolerance=SUM)
        lengths = [np.full(batch, length - 1, np.int32), np.array(length, np.int32)]
        for shared in pick([1], lambda draw: draw.one(*(each for each in (1, 2, 3, 4) if heads % each == 0)), 1):
            keys = [each[:, :, : width // shared].copy() for each in given[1:]]
            label = shape + (f", {shared} share a key" if shared > 1 else "")
            options = {"num_heads": heads, "kv_num_heads": heads // shared}
            past = [np.zeros((batch, heads // shared, 0, size), np.float32)] * 2
            yield Case("GroupQueryAttention", label, [given[0], *keys, *past, *lengths], options, outputs=3, domain=MICROSOFT, tolerance=SUM)
        angles = [Constant(floats(length, size // 2, seed=seed)) for seed in (4, 5)]
        positions = np.tile(np.arange(length), (batch, 1))
        yield Case("RotaryEmbedding", shape, [split[0], positions, *angles], domain=MICROSOFT)


def drawn_heads(draw):
    return draw.one(1, 1, draw.whole(1, 8)), draw.log(2, 200), draw.whole(1, 12), 8 * draw.whole(1, 12)


def transforms(pick):
    for batch, length in pick([(8, 64), (8, 1000), (8, 1021)], lambda draw: (draw.whole(1, 16), draw.length(1200) + 1), 6):
        signal = floats(batch, length, 1)
        # ONNX Runtime's error is up to 0.015 unless the length is a power of two.
        yield Case("DFT", f"f32 {batch} × {length}", [signal, None, Constant(1, np.int64)], tolerance=1e-3)
        yield Case("DFT", f"f32 {batch} × {length}, onesided", [signal, None, Constant(1, np.int64)], {"onesided": 1}, tolerance=SUM)
    for window in ("HannWindow", "HammingWindow", "BlackmanWindow"):
        for size, options in pick([(1024, {})], lambda draw: (draw.log(5, 2000), draw.options({"periodic": [0, 1]}))):
            yield Case(window, f"{size:,}{also(options)}", [np.array(size, np.int64)], options)
    for bins, size, rate in pick([(80, 512, 16000)], lambda draw: (draw.whole(5, 100), draw.one(256, 400, 512, 1024), draw.one(8000, 16000, 22050))):
        given = [np.array(bins), np.array(size), np.array(rate), np.array(0, np.float32), np.array(rate // 2, np.float32)]
        yield Case("MelWeightMatrix", f"{bins} × {size // 2 + 1}", given, tolerance=SUM)
    for length, step, size in pick([(16000, 160, 400)], lambda draw: (draw.log(1000, 16000), draw.whole(50, 200), draw.one(128, 255, 256, 400))):
        window = Constant(np.hanning(size).astype(np.float32))
        yield Case("STFT", f"f32 {length:,} by {step}, window of {size}", [floats(1, length, 1), Constant(step, np.int64), window], tolerance=SUM)


BUILDERS = (products, convolutions, pools, recurrent, attention, transforms)
