"""Operators that compute each element alone: of one, two and more operands, and casts."""

import numpy as np
from case import EXACT, INNER, MIDDLE, SIZES, Case, Constant, flags, floats, integers, rows

UNARY = (
    "Abs Acos Acosh Asin Asinh Atan Atanh Ceil Celu Cos Cosh Elu Erf Exp Floor Gelu HardSigmoid HardSwish Identity IsInf IsNaN LeakyRelu Log Mish Neg "
    "Reciprocal Relu Round Selu Shrink Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Tan Tanh ThresholdedRelu"
).split()
#: Values at which functions are often wrong.
SPECIAL = np.array([np.nan, np.inf, -np.inf, -0.0, 0.0, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 1e-40, -1e-40, 3e38, -3e38, 1e-7, 88.8, -104.0, 1.0, -1.0, 0.9999999, 8388609.0], np.float32)
#: Operators whose operands lie in another range than -1 to 1.
RANGES = {"Acosh": (1.0, 9.0), "ThresholdedRelu": (-3.0, 3.0), "HardSigmoid": (-5.0, 5.0), "HardSwish": (-5.0, 5.0), "Log": (0.1, 9.0), "Sqrt": (0.0, 9.0), "Reciprocal": (0.5, 2.0), "Round": (-9.0, 9.0), "Ceil": (-9.0, 9.0), "Floor": (-9.0, 9.0)}
WHOLE_UNARY = "Abs Neg Sign".split()
BINARY = "Add Sub Mul Div Pow Min Max PRelu Equal Greater GreaterOrEqual Less LessOrEqual".split()
WHOLE_BINARY = "Add Sub Mul Div Mod Min Max Equal Less BitwiseAnd BitwiseOr BitwiseXor".split()
TYPES = {
    "float": np.float32, "double": np.float64, "half": np.float16, "int8": np.int8, "int16": np.int16, "int32": np.int32, "int64": np.int64,
    "uint8": np.uint8, "uint16": np.uint16, "uint32": np.uint32, "uint64": np.uint64, "bool": np.bool_,
}
ONNX = {"float": 1, "double": 11, "half": 10, "int8": 3, "int16": 5, "int32": 6, "int64": 7, "uint8": 2, "uint16": 4, "uint32": 12, "uint64": 13, "bool": 9}


def cases():
    yield from unary()
    yield from binary()
    yield from wider()
    yield from casts()


def unary():
    for op in UNARY:
        low, high = RANGES.get(op, (-1.0, 1.0))
        for size in SIZES:
            yield Case(op, f"f32 {size}", [floats(size, low=low, high=high)])
        yield Case(op, "f32, special values", [SPECIAL], timed=False)
    for op in WHOLE_UNARY:
        for name in ("int8", "int32", "int64"):
            yield Case(op, f"{name} {MIDDLE}", [integers(MIDDLE, low=-50, high=50, dtype=TYPES[name])])
    for op in ("Exp", "Sqrt", "Abs", "Neg", "Relu"):
        yield Case(op, f"f64 {MIDDLE}", [floats(MIDDLE, low=0.1, dtype=np.float64)], tolerance=1e-13)
    yield Case("Not", f"{MIDDLE}", [flags(MIDDLE)])
    yield Case("BitwiseNot", f"int32 {MIDDLE}", [integers(MIDDLE, dtype=np.int32)])
    yield Case("Clip", f"f32 {MIDDLE}", [floats(MIDDLE), Constant(-0.5, np.float32), Constant(0.5, np.float32)])
    yield Case("Clip", f"int32 {MIDDLE}", [integers(MIDDLE, dtype=np.int32), Constant(20, np.int32), Constant(50, np.int32)])


def binary():
    for op in BINARY:
        one, other = ((0.5, 2.0), (-2.0, 2.0)) if op == "Pow" else ((-1.0, 1.0), (0.5, 2.0))
        for size in SIZES:
            yield Case(op, f"f32 {size}", [floats(size, low=one[0], high=one[1]), floats(size, seed=2, low=other[0], high=other[1])])
    for op in ("Add", "Mul", "Div", "Less", "PRelu"):
        for inner in INNER:
            many = rows(inner)
            yield Case(op, f"f32 {many} × {inner} and a row", [floats(many, inner), floats(inner, seed=2, low=0.5, high=2.0)])
            if op != "PRelu":
                yield Case(op, f"f32 {many} × {inner} and a column", [floats(many, inner), floats(many, 1, seed=2, low=0.5, high=2.0)])
        channels = [floats(16, 64, 8, 8), floats(64, 1, 1, seed=2, low=0.5, high=2.0)]
        yield Case(op, "f32 16 × 64 × 8 × 8 and channels", channels)
        pairs = [np.repeat(SPECIAL, SPECIAL.size), np.tile(SPECIAL, SPECIAL.size)]
        yield Case(op, "f32, pairs of special values", pairs, timed=False)
    for op in WHOLE_BINARY:
        for name in ("int32", "int64", "uint8"):
            yield Case(op, f"{name} {MIDDLE}", [integers(MIDDLE, dtype=TYPES[name]), integers(MIDDLE, seed=2, low=1, dtype=TYPES[name])])
    for op in ("Add", "Mul", "Div"):
        yield Case(op, f"f64 {MIDDLE}", [floats(MIDDLE, dtype=np.float64), floats(MIDDLE, seed=2, low=0.5, dtype=np.float64)], tolerance=1e-15)
    for op in ("And", "Or", "Xor"):
        yield Case(op, f"{MIDDLE}", [flags(MIDDLE), flags(MIDDLE, seed=2)])
    for direction in ("LEFT", "RIGHT"):
        shifted = [integers(MIDDLE, dtype=np.uint32), integers(MIDDLE, seed=2, high=8, dtype=np.uint32)]
        yield Case("BitShift", f"{direction} uint32 {MIDDLE}", shifted, {"direction": direction})
    yield Case("Mod", f"f32 {MIDDLE}", [floats(MIDDLE, low=-9, high=9), floats(MIDDLE, seed=2, low=0.5, high=2.0)], {"fmod": 1})


def wider():
    for op in ("Sum", "Mean", "Max", "Min"):
        for size in SIZES:
            yield Case(op, f"three of f32 {size}", [floats(size, seed=seed) for seed in (1, 2, 3)])
    for size in SIZES:
        yield Case("Where", f"f32 {size}", [flags(size), floats(size), floats(size, seed=2)])
    for inner in INNER:
        many = rows(inner)
        yield Case("Where", f"f32 {many} × {inner}, a column decides", [flags(many, 1), floats(many, inner), floats(many, inner, seed=2)])
        yield Case("Expand", f"f32 {many} × 1 to {inner}", [floats(many, 1), Constant([many, inner], np.int64)], tolerance=EXACT)
        yield Case("Expand", f"f32 1 × {inner} to {many}", [floats(1, inner), Constant([many, inner], np.int64)], tolerance=EXACT)
    yield Case("Swish", f"f32 {MIDDLE}", [floats(MIDDLE)], opset=24)
    yield Case("CastLike", f"f32 to int32 {MIDDLE}", [floats(MIDDLE, low=-99, high=99), np.zeros(1, np.int32)], tolerance=EXACT)
    yield Case("Dropout", f"f32 {MIDDLE}", [floats(MIDDLE)], tolerance=EXACT)
    yield Case("BitCast", f"f32 to int32 {MIDDLE}", [floats(MIDDLE)], {"to": 6}, tolerance=EXACT, opset=26)
    for name in ("Gelu", "QuickGelu", "FastGelu"):
        yield Case(name, f"f32 {MIDDLE}", [floats(64, 1024)], domain="com.microsoft")
    yield Case("BiasGelu", "f32 64 × 1024", [floats(64, 1024), floats(1024, seed=2)], domain="com.microsoft")


def casts():
    for source, dtype in TYPES.items():
        for target, number in ONNX.items():
            if source != target:
                given = flags(MIDDLE) if source == "bool" else integers(MIDDLE, high=100, dtype=dtype)
                yield Case("Cast", f"{source} to {target} {MIDDLE}", [given], {"to": number}, tolerance=EXACT)
    for target in ("double", "half", "int32", "int64", "int8", "bool"):
        given = SPECIAL if target in ("double", "half", "bool") else floats(100, low=-100, high=100)
        yield Case("Cast", f"float to {target}, special values", [given], {"to": ONNX[target]}, tolerance=EXACT, timed=False)
