"""Integers that stand for floats: products, convolutions and what lies between them, and weights of few bits."""

import numpy as np
from case import MIDDLE, SUM, Case, Constant, floats, integers
from draw import Drawn, by
from products import drawn_convolution, drawn_product

MICROSOFT = "com.microsoft"


def u8(*shape, seed=1):
    return integers(*shape, seed=seed, high=256, dtype=np.uint8)


def i8(*shape, seed=2):
    """Weights so small that sums of two products never saturate 16 bits, as they do in ONNX Runtime without VNNI."""
    return integers(*shape, seed=seed, low=-63, high=64, dtype=np.int8)


def scale(value):
    return Constant(value, np.float32)


def between(pick):
    for shape in pick([(256,), (MIDDLE,)], Drawn.shape, 5):
        size = by(shape)
        for point in pick([128], lambda draw: draw.whole(0, 255), 1):
            zero = Constant(point, np.uint8)
            yield Case("QuantizeLinear", f"f32 {size} to uint8", [floats(*shape, low=-2, high=2), scale(0.01), zero], off_by=1)
            yield Case("QuantizeLinear", f"f32 {size} to int8", [floats(*shape, low=-2, high=2), scale(0.01), Constant(0, np.int8)], off_by=1)
            yield Case("DequantizeLinear", f"uint8 {size}", [u8(*shape), scale(0.01), zero])
            yield Case("DequantizeLinear", f"int8 {size}", [i8(*shape), scale(0.01), Constant(0, np.int8)])
            yield Case("DequantizeLinear", f"int32 {size}", [integers(*shape, dtype=np.int32), scale(0.01)])
            yield Case("DynamicQuantizeLinear", f"f32 {size}", [floats(*shape)], outputs=3, off_by=1)
    for shape, axis in pick([((16, 64, 8, 8), 1)], drawn_channels, 5):
        scales, zeros = Constant(floats(shape[axis], low=0.005, high=0.02)), Constant(np.zeros(shape[axis], np.int8))
        label = f"{by(shape)}, a scale per {'channel' if axis == 1 else f'position of axis {axis}'}"
        yield Case("QuantizeLinear", f"f32 {label}", [floats(*shape), scales, zeros], {"axis": axis}, off_by=1)
    for shape, axis in pick([], drawn_channels, 5):
        scales, zeros = Constant(floats(shape[axis], low=0.005, high=0.02)), Constant(u8(shape[axis], seed=3))
        yield Case("DequantizeLinear", f"uint8 {by(shape)}, a scale per position of axis {axis}", [u8(*shape), scales, zeros], {"axis": axis})


def drawn_channels(draw):
    shape = draw.shape(scalars=False)
    return shape, draw.axis(shape)


def products(pick):
    for m, k, n in pick([(1, 64, 64), (1, 768, 768), (64, 64, 64), (128, 768, 768), (3, 7, 5)], drawn_product, 12):
        name = f"{m} × {k} × {n}"
        yield Case("MatMulInteger", f"uint8 by int8 {name}", [u8(m, k), Constant(i8(k, n)), Constant(128, np.uint8)])
        yield Case("MatMulInteger", f"uint8 by uint8 {name}", [u8(m, k), Constant(u8(k, n, seed=2)), Constant(128, np.uint8), Constant(128, np.uint8)])
        given = [u8(m, k), scale(0.01), Constant(128, np.uint8), Constant(i8(k, n)), scale(0.01), Constant(0, np.int8), scale(0.2), Constant(128, np.uint8)]
        yield Case("QLinearMatMul", f"uint8 by int8 {name}", given, off_by=1)
        given = [floats(m, k), Constant(i8(k, n)), scale(0.01), Constant(0, np.int8)]
        yield Case("DynamicQuantizeMatMul", f"f32 by int8 {name}", given, domain=MICROSOFT, tolerance=5e-3)


def convolutions(pick):
    for label, shape, filters, kernel, options in pick(convolved(), drawn_convolution, 20):
        weights = (filters, shape[1] // options["group"], *kernel)
        given = [u8(*shape), scale(0.01), Constant(128, np.uint8), Constant(i8(*weights)), scale(0.01), Constant(0, np.int8), scale(0.1), Constant(128, np.uint8)]
        yield Case("QLinearConv", f"uint8 by int8 {label}", given, options, off_by=1)
        yield Case("ConvInteger", f"uint8 by uint8 {label}", [u8(*shape), Constant(u8(*weights)), Constant(128, np.uint8)], options)


def convolved():
    for channels, side, filters, kernel, group in ((3, 64, 16, 3, 1), (64, 16, 64, 3, 1), (256, 8, 256, 1, 1), (64, 16, 64, 3, 64)):
        options = {"pads": [kernel // 2] * 4, "group": group}
        yield f"{channels} × {side}², {filters} of {kernel}², groups {group}", (1, channels, side, side), filters, [kernel] * 2, options


def contributed(pick):
    for label, one, other in pick([(f"uint8 {MIDDLE}", (16, 4096), (16, 4096))], drawn_pair, 5):
        given = [u8(*one), scale(0.01), Constant(128, np.uint8), u8(*other, seed=2), scale(0.02), Constant(100, np.uint8), scale(0.03), Constant(128, np.uint8)]
        for op in ("QLinearAdd", "QLinearMul"):
            yield Case(op, label, given, domain=MICROSOFT, off_by=1)
    for label, shape in pick([(f"uint8 {MIDDLE}", (16, 4096))], drawn_bytes):
        one = [u8(*shape), scale(0.03), Constant(128, np.uint8), scale(1 / 256), Constant(0, np.uint8)]
        for op in ("QLinearSigmoid", "QLinearLeakyRelu"):
            yield Case(op, label, one, domain=MICROSOFT, off_by=1)
    for channels, side, kernel in pick([(64, 32, 2)], lambda draw: (draw.log(1, 128), draw.log(4, 40), draw.one(1, 2, 3))):
        image = [u8(1, channels, side, side), scale(0.01), Constant(128, np.uint8), scale(0.001), Constant(120, np.uint8)]
        yield Case("QLinearGlobalAveragePool", f"uint8 {channels} × {side}²", image, {"channels_last": 0}, domain=MICROSOFT, off_by=1)
        options = {"kernel_shape": [kernel] * 2, "strides": [kernel] * 2}
        yield Case("QLinearAveragePool", f"uint8 {channels} × {side}², {kernel}² by {kernel}", image, options, domain=MICROSOFT, off_by=1)
    for m, n in pick([(64, 512)], lambda draw: (draw.log(1, 500), draw.length())):
        parts = [scale(0.02), Constant(128, np.uint8), u8(m, n), scale(0.01), Constant(120, np.uint8), u8(m, n, seed=2), scale(0.03), Constant(110, np.uint8)]
        yield Case("QLinearConcat", f"two of uint8 {m} × {n}", parts, {"axis": 1}, domain=MICROSOFT, off_by=1)
    # ONNX Runtime's answer to 1 is 0 if the row has one element.
    for m, n in pick([(64, 100)], lambda draw: (draw.log(1, 500), draw.length() + 1)):
        given = [u8(m, n), scale(0.05), Constant(128, np.uint8), scale(1 / 256), Constant(0, np.uint8)]
        yield Case("QLinearSoftmax", f"uint8 {m} × {n}", given, {"axis": 1, "opset": 13}, domain=MICROSOFT, off_by=1)
    for m, n in pick([(64, 512)], lambda draw: (draw.log(1, 500), draw.length())):
        sides = [u8(m, n), scale(0.01), Constant(120, np.uint8), u8(m, n, seed=3), scale(0.03), Constant(110, np.uint8), scale(0.02), Constant(128, np.uint8)]
        yield Case("QLinearWhere", f"uint8 {m} × {n}", [integers(m, n, high=2, dtype=np.bool_), *sides], domain=MICROSOFT, off_by=1)
    for m, k, n in pick([(64, 64, 64)], drawn_product):
        given = [u8(m, k), Constant(i8(k, n)), Constant(0.01, np.float32), Constant(0.01, np.float32), Constant(128, np.uint8)]
        yield Case("MatMulIntegerToFloat", f"{m} × {k} × {n}", given, domain=MICROSOFT, tolerance=SUM)
    for k, n, block, bits, many in pick([(64, 64, 32, 4, (1, 32)), (768, 768, 32, 4, (1, 32)), (1024, 3072, 128, 4, (1, 32))], drawn_blocks, 8):
        blocks = -(-k // block)
        weights = Constant(u8(n, blocks, block * bits // 8, seed=2))
        for rows in many:
            for level in (0, 4):
                options = {"K": k, "N": n, "bits": bits, "block_size": block, "accuracy_level": level}
                given = [floats(rows, k), weights, Constant(floats(n * blocks, seed=3, low=0.01, high=0.1))]
                label = f"f32 {rows} × {k} by {n} of {bits} bits, blocks of {block}, level {level}"
                yield Case("MatMulNBits", label, given, options, domain=MICROSOFT, tolerance=SUM if level == 0 else 5e-3 if bits == 4 else 1e-2)
    for steps, size, hidden in pick([(32, 32, 32), (32, 128, 128)], lambda draw: (draw.log(1, 50), draw.log(1, 200), draw.log(1, 200))):
        weights = [Constant(i8(1, of, 4 * hidden, seed=seed)) for seed, of in ((5, size), (6, hidden))]
        given = [floats(steps, 1, size), *weights, Constant(floats(1, 8 * hidden, seed=3)), None, None, None, None]
        given += [Constant([0.002], np.float32), Constant([0], np.int8), Constant([0.002], np.float32), Constant([0], np.int8)]
        yield Case("DynamicQuantizeLSTM", f"{steps} steps, {size} to {hidden}", given, {"hidden_size": hidden}, domain=MICROSOFT, outputs=2, tolerance=5e-3)


def drawn_pair(draw):
    one, other = draw.broadcast(2)
    return f"uint8 {by(one)} and {by(other)}", one, other


def drawn_bytes(draw):
    shape = draw.shape()
    return f"uint8 {by(shape)}", shape


def drawn_blocks(draw):
    return draw.whole(1, 1500), draw.log(1, 1500), draw.one(16, 32, 64, 128), draw.one(4, 4, 8), (draw.log(1, 40),)


BUILDERS = (between, products, convolutions, contributed)
