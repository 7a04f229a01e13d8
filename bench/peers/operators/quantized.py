"""Integers that stand for floats: products, convolutions and what lies between them, and weights of few bits."""

import numpy as np
from case import MIDDLE, SUM, Case, Constant, floats, integers

MICROSOFT = "com.microsoft"


def u8(*shape, seed=1):
    return integers(*shape, seed=seed, high=256, dtype=np.uint8)


def i8(*shape, seed=2):
    """Weights so small that sums of two products never saturate 16 bits, as they do in ONNX Runtime without VNNI."""
    return integers(*shape, seed=seed, low=-63, high=64, dtype=np.int8)


def scale(value):
    return Constant(value, np.float32)


def cases():
    yield from between()
    yield from products()
    yield from convolutions()
    yield from contributed()


def between():
    for size in (256, MIDDLE):
        yield Case("QuantizeLinear", f"f32 {size} to uint8", [floats(size, low=-2, high=2), scale(0.01), Constant(128, np.uint8)], off_by=1)
        yield Case("QuantizeLinear", f"f32 {size} to int8", [floats(size, low=-2, high=2), scale(0.01), Constant(0, np.int8)], off_by=1)
        yield Case("DequantizeLinear", f"uint8 {size}", [u8(size), scale(0.01), Constant(128, np.uint8)])
        yield Case("DequantizeLinear", f"int8 {size}", [i8(size), scale(0.01), Constant(0, np.int8)])
        yield Case("DequantizeLinear", f"int32 {size}", [integers(size, dtype=np.int32), scale(0.01)])
        yield Case("DynamicQuantizeLinear", f"f32 {size}", [floats(size)], outputs=3, off_by=1)
    channels = [floats(16, 64, 8, 8), Constant(floats(64, low=0.005, high=0.02)), Constant(np.zeros(64, np.int8))]
    yield Case("QuantizeLinear", "f32 16 × 64 × 8 × 8, a scale per channel", channels, {"axis": 1}, off_by=1)


def products():
    for m, k, n in ((1, 64, 64), (1, 768, 768), (64, 64, 64), (128, 768, 768), (3, 7, 5)):
        name = f"{m} × {k} × {n}"
        yield Case("MatMulInteger", f"uint8 by int8 {name}", [u8(m, k), Constant(i8(k, n)), Constant(128, np.uint8)])
        yield Case("MatMulInteger", f"uint8 by uint8 {name}", [u8(m, k), Constant(u8(k, n, seed=2)), Constant(128, np.uint8), Constant(128, np.uint8)])
        given = [u8(m, k), scale(0.01), Constant(128, np.uint8), Constant(i8(k, n)), scale(0.01), Constant(0, np.int8), scale(0.2), Constant(128, np.uint8)]
        yield Case("QLinearMatMul", f"uint8 by int8 {name}", given, off_by=1)
        given = [floats(m, k), Constant(i8(k, n)), scale(0.01), Constant(0, np.int8)]
        yield Case("DynamicQuantizeMatMul", f"f32 by int8 {name}", given, domain=MICROSOFT, tolerance=5e-3)


def convolutions():
    for channels, side, filters, kernel, group in ((3, 64, 16, 3, 1), (64, 16, 64, 3, 1), (256, 8, 256, 1, 1), (64, 16, 64, 3, 64)):
        name = f"{channels} × {side}², {filters} of {kernel}², groups {group}"
        weights = Constant(i8(filters, channels // group, kernel, kernel))
        options = {"pads": [kernel // 2] * 4, "group": group}
        given = [u8(1, channels, side, side), scale(0.01), Constant(128, np.uint8), weights, scale(0.01), Constant(0, np.int8), scale(0.1), Constant(128, np.uint8)]
        yield Case("QLinearConv", f"uint8 by int8 {name}", given, options, off_by=1)
        unsigned = Constant(u8(filters, channels // group, kernel, kernel))
        yield Case("ConvInteger", f"uint8 by uint8 {name}", [u8(1, channels, side, side), unsigned, Constant(128, np.uint8)], options)


def contributed():
    given = [u8(16, 4096), scale(0.01), Constant(128, np.uint8), u8(16, 4096, seed=2), scale(0.02), Constant(100, np.uint8), scale(0.03), Constant(128, np.uint8)]
    for op in ("QLinearAdd", "QLinearMul"):
        yield Case(op, f"uint8 {MIDDLE}", given, domain=MICROSOFT, off_by=1)
    one = [u8(16, 4096), scale(0.03), Constant(128, np.uint8), scale(1 / 256), Constant(0, np.uint8)]
    for op in ("QLinearSigmoid", "QLinearLeakyRelu"):
        yield Case(op, f"uint8 {MIDDLE}", one, domain=MICROSOFT, off_by=1)
    image = [u8(1, 64, 32, 32), scale(0.01), Constant(128, np.uint8), scale(0.001), Constant(120, np.uint8)]
    yield Case("QLinearGlobalAveragePool", "uint8 64 × 32²", image, {"channels_last": 0}, domain=MICROSOFT, off_by=1)
    yield Case("QLinearAveragePool", "uint8 64 × 32², 2² by 2", image, {"kernel_shape": [2, 2], "strides": [2, 2]}, domain=MICROSOFT, off_by=1)
    parts = [scale(0.02), Constant(128, np.uint8), u8(64, 512), scale(0.01), Constant(120, np.uint8), u8(64, 512, seed=2), scale(0.03), Constant(110, np.uint8)]
    yield Case("QLinearConcat", "two of uint8 64 × 512", parts, {"axis": 1}, domain=MICROSOFT, off_by=1)
    yield Case("QLinearSoftmax", "uint8 64 × 100", [u8(64, 100), scale(0.05), Constant(128, np.uint8), scale(1 / 256), Constant(0, np.uint8)], {"axis": 1, "opset": 13}, domain=MICROSOFT, off_by=1)
    sides = [u8(64, 512), scale(0.01), Constant(120, np.uint8), u8(64, 512, seed=3), scale(0.03), Constant(110, np.uint8), scale(0.02), Constant(128, np.uint8)]
    yield Case("QLinearWhere", "uint8 64 × 512", [integers(64, 512, high=2, dtype=np.bool_), *sides], domain=MICROSOFT, off_by=1)
    given = [u8(64, 64), Constant(i8(64, 64)), Constant(0.01, np.float32), Constant(0.01, np.float32), Constant(128, np.uint8)]
    yield Case("MatMulIntegerToFloat", "64 × 64 × 64", given, domain=MICROSOFT, tolerance=SUM)
    for k, n, block in ((64, 64, 32), (768, 768, 32), (1024, 3072, 128)):
        blocks = k // block
        weights = Constant(u8(n, blocks, block // 2, seed=2))
        for rows in (1, 32):
            for level in (0, 4):
                options = {"K": k, "N": n, "bits": 4, "block_size": block, "accuracy_level": level}
                given = [floats(rows, k), weights, Constant(floats(n * blocks, seed=3, low=0.01, high=0.1))]
                yield Case("MatMulNBits", f"f32 {rows} × {k} by {n} of 4 bits, blocks of {block}, level {level}", given, options, domain=MICROSOFT, tolerance=5e-3 if level else SUM)
    for steps, size, hidden in ((32, 32, 32), (32, 128, 128)):
        weights = [Constant(i8(1, of, 4 * hidden, seed=seed)) for seed, of in ((5, size), (6, hidden))]
        given = [floats(steps, 1, size), *weights, Constant(floats(1, 8 * hidden, seed=3)), None, None, None, None]
        given += [Constant([0.002], np.float32), Constant([0], np.int8), Constant([0.002], np.float32), Constant([0], np.int8)]
        yield Case("DynamicQuantizeLSTM", f"{steps} steps, {size} to {hidden}", given, {"hidden_size": hidden}, domain=MICROSOFT, outputs=2, tolerance=5e-3)
