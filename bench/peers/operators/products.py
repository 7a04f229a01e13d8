"""Products, convolutions, pooling and recurrent layers, in floats."""

import numpy as np
from case import SUM, Case, Constant, floats, integers


def cases():
    yield from products()
    yield from convolutions()
    yield from pools()
    yield from recurrent()
    yield from attention()
    yield from transforms()


def products():
    for m, k, n in ((1, 1, 1), (1, 64, 64), (1, 1024, 1024), (3, 7, 5), (16, 16, 16), (64, 64, 64), (128, 768, 768), (1000, 3, 3), (3, 1000, 3), (3, 3, 1000), (512, 512, 512), (31, 257, 63)):
        one, other = floats(m, k), floats(k, n, seed=2)
        yield Case("MatMul", f"f32 {m} × {k} × {n}", [one, other], tolerance=SUM)
        yield Case("MatMul", f"f32 {m} × {k} × {n}, weights", [one, Constant(other)], tolerance=SUM)
        yield Case("Gemm", f"f32 {m} × {k} × {n}, transposed weights", [one, Constant(other.T.copy()), Constant(floats(n, seed=3))], {"transB": 1}, tolerance=SUM)
    for batch, m, k, n in ((64, 4, 4, 4), (12, 128, 64, 128), (1000, 1, 16, 16), (8, 64, 64, 64)):
        yield Case("MatMul", f"f32 {batch} of {m} × {k} × {n}", [floats(batch, m, k), floats(batch, k, n, seed=2)], tolerance=SUM)
    yield Case("MatMul", "f64 64 × 64 × 64", [floats(64, 64, dtype=np.float64), floats(64, 64, seed=2, dtype=np.float64)], tolerance=1e-13)
    yield Case("MatMul", "int32 64 × 64 × 64", [integers(64, 64, dtype=np.int32), integers(64, 64, seed=2, dtype=np.int32)])
    for equation, shapes in (("bhid,bhjd->bhij", ((2, 8, 64, 32), (2, 8, 64, 32))), ("ij,jk->ik", ((64, 64), (64, 64))), ("bi,bj->bij", ((64, 32), (64, 32))), ("ii->i", ((256, 256),)), ("ij->ji", ((256, 256),)), ("bij->b", ((64, 32, 32),))):
        given = [floats(*shape, seed=seed) for seed, shape in enumerate(shapes)]
        yield Case("Einsum", f"{equation} {given[0].shape}", given, {"equation": equation}, tolerance=SUM)
    yield Case("Det", "f32 64 of 4 × 4", [floats(64, 4, 4)])
    yield Case("FusedMatMul", "f32 128 × 64 × 128, transposed", [floats(128, 64), floats(128, 64, seed=2)], {"transB": 1, "alpha": 0.5}, domain="com.microsoft", tolerance=SUM)


    yield Case("TransposeMatMul", "f32 128 × 64 × 128", [floats(128, 64), floats(128, 64, seed=2)], {"transB": 1}, domain="com.microsoft", tolerance=SUM)
    fused = [floats(64, 64), Constant(floats(64, 64, seed=2)), Constant(floats(64, seed=3))]
    yield Case("FusedGemm", "f32 64 × 64 × 64, Relu", fused, {"activation": "Relu"}, domain="com.microsoft", tolerance=SUM)


def convolutions():
    fused = [floats(1, 16, 32, 32), Constant(floats(16, 16, 3, 3, seed=2)), Constant(floats(16, seed=3))]
    yield Case("FusedConv", "f32 16 × 32², 16 of 3², Relu", fused, {"pads": [1] * 4, "activation": "Relu"}, domain="com.microsoft", tolerance=SUM)
    for channels, side, filters, kernel, group, stride in (
        (3, 64, 16, 3, 1, 2), (16, 32, 16, 3, 1, 1), (64, 16, 64, 3, 1, 1), (256, 8, 256, 1, 1, 1), (64, 16, 64, 3, 64, 1), (64, 32, 64, 5, 64, 2),
        (32, 16, 32, 3, 8, 1), (64, 14, 64, 3, 32, 1), (1, 128, 4, 7, 1, 1), (8, 7, 8, 3, 1, 1), (3, 224, 64, 7, 1, 2), (512, 1, 512, 1, 1, 1),
    ):
        given = [floats(1, channels, side, side), Constant(floats(filters, channels // group, kernel, kernel, seed=2)), Constant(floats(filters, seed=3))]
        options = {"pads": [kernel // 2] * 4, "group": group, "strides": [stride] * 2}
        yield Case("Conv", f"f32 {channels} × {side}², {filters} of {kernel}², groups {group}, stride {stride}", given, options, tolerance=SUM)
    for channels, length, filters, kernel, dilation in ((1, 16000, 16, 25, 1), (64, 512, 64, 3, 1), (64, 512, 64, 3, 8), (512, 32, 512, 1, 1)):
        given = [floats(1, channels, length), Constant(floats(filters, channels, kernel, seed=2))]
        yield Case("Conv", f"f32 {channels} × {length}, {filters} of {kernel}, dilation {dilation}", given, {"dilations": [dilation]}, tolerance=SUM)
    yield Case("Conv", "f32 4 × 8³, 8 of 3³", [floats(1, 4, 8, 8, 8), Constant(floats(8, 4, 3, 3, 3, seed=2))], {"pads": [1] * 6}, tolerance=SUM)
    for channels, side, filters, kernel, stride in ((16, 16, 8, 2, 2), (64, 8, 64, 4, 2), (8, 32, 8, 3, 1), (64, 1, 16, 8, 1)):
        given = [floats(1, channels, side, side), Constant(floats(channels, filters, kernel, kernel, seed=2))]
        yield Case("ConvTranspose", f"f32 {channels} × {side}², {filters} of {kernel}², stride {stride}", given, {"strides": [stride] * 2}, tolerance=SUM)
    given = [floats(1, 16, 16, 16), Constant(floats(8, 16, 3, 3, seed=2)), Constant(floats(1, 18, 14, 14, seed=3))]
    yield Case("DeformConv", "f32 16 × 16², 8 of 3²", given, tolerance=SUM)


def pools():
    for op in ("MaxPool", "AveragePool", "LpPool"):
        for channels, side, kernel, stride in ((64, 56, 3, 2), (64, 32, 2, 2), (16, 16, 3, 1), (256, 7, 7, 7), (3, 64, 5, 1)):
            yield Case(op, f"f32 {channels} × {side}², {kernel}² by {stride}", [floats(1, channels, side, side)], {"kernel_shape": [kernel] * 2, "strides": [stride] * 2}, tolerance=SUM)
        yield Case(op, "f32 64 × 1024, 4 by 4", [floats(1, 64, 1024)], {"kernel_shape": [4], "strides": [4]})
    for op in ("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"):
        for channels, side in ((1280, 7), (64, 32), (2048, 1)):
            yield Case(op, f"f32 {channels} × {side}²", [floats(1, channels, side, side)], tolerance=SUM, opset=21)


def recurrent():
    for op, gates in (("LSTM", 4), ("GRU", 3), ("RNN", 1)):
        for steps, batch, size, hidden in ((1, 1, 16, 16), (32, 1, 32, 32), (32, 1, 128, 128), (64, 8, 64, 64), (16, 1, 256, 512)):
            weights = [Constant(floats(1, gates * hidden, of, seed=seed, low=-0.2, high=0.2)) for seed, of in ((5, size), (6, hidden))]
            bias = Constant(floats(1, 2 * gates * hidden, seed=3))
            yield Case(op, f"f32 {steps} steps, {batch} × {size} to {hidden}", [floats(steps, batch, size), *weights, bias], {"hidden_size": hidden}, outputs=2, tolerance=SUM)
    weights = [Constant(floats(2, 4 * 64, of, seed=of, low=-0.2, high=0.2)) for of in (32, 64)]
    yield Case("LSTM", "f32 32 steps, 1 × 32 to 64, both directions", [floats(32, 1, 32), *weights], {"hidden_size": 64, "direction": "bidirectional"}, outputs=2, tolerance=SUM)


def attention():
    for batch, length, heads, size in ((1, 16, 4, 32), (1, 128, 12, 64), (4, 64, 8, 32), (1, 512, 8, 64)):
        given = [floats(batch, length, heads * size, seed=seed) for seed in (1, 2, 3)]
        shape = f"f32 {batch} × {length}, {heads} heads of {size}"
        yield Case("MultiHeadAttention", shape, given, {"num_heads": heads}, domain="com.microsoft", tolerance=SUM)
        split = [each.reshape(batch, length, heads, size).transpose(0, 2, 1, 3).copy() for each in given]
        yield Case("Attention", shape, split, tolerance=SUM)
        width = heads * size
        weights = [Constant(floats(width, 3 * width, seed=6, low=-0.1, high=0.1)), Constant(floats(3 * width, seed=7))]
        yield Case("Attention", shape, [given[0], *weights], {"num_heads": heads}, domain="com.microsoft", tolerance=SUM)
        past = [np.zeros((batch, heads, 0, size), np.float32)] * 2
        lengths = [np.full(batch, length - 1, np.int32), np.array(length, np.int32)]
        yield Case("GroupQueryAttention", shape, [*given, *past, *lengths], {"num_heads": heads, "kv_num_heads": heads}, outputs=3, domain="com.microsoft", tolerance=SUM)
        angles = [Constant(floats(length, size // 2, seed=seed)) for seed in (4, 5)]
        positions = np.tile(np.arange(length), (batch, 1))
        yield Case("RotaryEmbedding", shape, [split[0], positions, *angles], domain="com.microsoft")


def transforms():
    for length in (64, 1000, 1021):
        signal = floats(8, length, 1)
        # ONNX Runtime's error is up to 0.015 unless the length is a power of two.
        yield Case("DFT", f"f32 8 × {length}", [signal, None, Constant(1, np.int64)], tolerance=1e-3)
        yield Case("DFT", f"f32 8 × {length}, onesided", [signal, None, Constant(1, np.int64)], {"onesided": 1}, tolerance=SUM)
    for window in ("HannWindow", "HammingWindow", "BlackmanWindow"):
        yield Case(window, "1,024", [np.array(1024, np.int64)])
    yield Case("MelWeightMatrix", "80 × 257", [np.array(80), np.array(512), np.array(16000), np.array(0, np.float32), np.array(8000, np.float32)], tolerance=SUM)
    window = Constant(np.hanning(400).astype(np.float32))
    yield Case("STFT", "f32 16,000 by 160, window of 400", [floats(1, 16000, 1), Constant(160, np.int64), window], tolerance=SUM)
