"""Operators that compute each element alone: of one, two and more operands, and casts."""

import numpy as np
from case import EXACT, INNER, MIDDLE, SIZES, Case, Constant, filled, flags, floats, integers, rows
from draw import FLOATS, SIGNED, WHOLE, Drawn, also, by, told

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
NAMED = {
    "float": np.float32, "double": np.float64, "half": np.float16, "int8": np.int8, "int16": np.int16, "int32": np.int32, "int64": np.int64,
    "uint8": np.uint8, "uint16": np.uint16, "uint32": np.uint32, "uint64": np.uint64, "bool": np.bool_,
}
ONNX = {"float": 1, "double": 11, "half": 10, "int8": 3, "int16": 5, "int32": 6, "int64": 7, "uint8": 2, "uint16": 4, "uint32": 12, "uint64": 13, "bool": 9}

#: Types that ONNX Runtime has, unless it has all.
SINGLE = (np.float32, np.float16)
HAS = dict.fromkeys("Acos Acosh Asin Asinh Atan Atanh Cosh Elu Erf Gelu HardSigmoid HardSwish LeakyRelu Mean Mish PRelu Selu Sinh Softplus Softsign Tan ThresholdedRelu".split(), SINGLE) | {"Celu": (np.float32,)}
HAS_WHOLE = {"Max": (np.int8, np.int32, np.int64, np.uint8, np.uint32, np.uint64), "BitShift": (np.uint8, np.uint32, np.uint64)}
HAS_WHOLE["Min"] = HAS_WHOLE["Max"]
#: Attributes that are drawn.
OPTIONS = {
    "Celu": {"alpha": (0.2, 2.0)}, "Elu": {"alpha": (0.2, 2.0)}, "Gelu": {"approximate": ["none", "tanh"]}, "HardSigmoid": {"alpha": (0.1, 0.5), "beta": (0.1, 0.9)},
    "IsInf": {"detect_negative": [0, 1], "detect_positive": [0, 1]}, "LeakyRelu": {"alpha": (-0.5, 0.5)}, "Selu": {"alpha": (0.5, 2.0), "gamma": (0.5, 2.0)},
    "Shrink": {"lambd": (0.1, 0.9), "bias": (0.0, 0.5)}, "ThresholdedRelu": {"alpha": (-1.0, 2.0)},
}


def unary(pick):
    for op in UNARY:
        low, high = RANGES.get(op, (-1.0, 1.0))
        table = [(np.float32, (size,), {}) for size in SIZES]
        for dtype, shape, options in pick(table, lambda draw: (draw.type(HAS.get(op, FLOATS)), draw.shape(), draw.options(OPTIONS.get(op, {}))), 5):
            yield Case(op, f"{told(dtype)} {by(shape)}{also(options)}", [floats(*shape, low=low, high=high, dtype=dtype)], options)
        for special in pick([SPECIAL], lambda draw: draw.shuffled(SPECIAL), 1):
            yield Case(op, "f32, special values", [special], timed=False)
    for op in WHOLE_UNARY:
        for dtype, shape in pick([(dtype, (MIDDLE,)) for dtype in (np.int8, np.int32, np.int64)], lambda draw: (draw.one(*SIGNED), draw.shape())):
            yield Case(op, f"{told(dtype)} {by(shape)}", [integers(*shape, low=-50, high=50, dtype=dtype)])
    for op in ("Exp", "Sqrt", "Abs", "Neg", "Relu"):
        for shape in pick([(MIDDLE,)], Drawn.shape, 1):
            yield Case(op, f"f64 {by(shape)}", [floats(*shape, low=0.1, dtype=np.float64)], tolerance=1e-13)
    for shape in pick([(MIDDLE,)], Drawn.shape):
        yield Case("Not", by(shape), [flags(*shape)])
    for dtype, shape in pick([(np.int32, (MIDDLE,))], lambda draw: (draw.one(*WHOLE), draw.shape())):
        yield Case("BitwiseNot", f"{told(dtype)} {by(shape)}", [integers(*shape, dtype=dtype)])
    for dtype, shape, low, high in pick([(np.float32, (MIDDLE,), -0.5, 0.5)], lambda draw: (draw.type(FLOATS), draw.shape(), draw.one(None, -0.3), draw.one(None, 0.2))):
        yield Case("Clip", f"{told(dtype)} {by(shape)}", [floats(*shape, dtype=dtype), limit(low, dtype), limit(high, dtype)])
    for dtype, shape, low, high in pick([(np.int32, (MIDDLE,), 20, 50)], lambda draw: (draw.one(np.int8, np.uint8, np.int32, np.int64), draw.shape(), draw.one(None, 11), draw.one(None, 70))):
        yield Case("Clip", f"{told(dtype)} {by(shape)}", [integers(*shape, dtype=dtype), limit(low, dtype), limit(high, dtype)])


def limit(value, dtype):
    return None if value is None else Constant(value, dtype)


def operands(draw, types, count=2, first_whole=False):
    """A label, a type and shapes that are broadcast."""
    dtype, shapes = draw.type(types), draw.broadcast(count, first_whole)
    return f"{told(dtype)} {', '.join(map(by, shapes))}", dtype, shapes


def binary(pick):
    for op in BINARY:
        one, other = ((0.5, 2.0), (-2.0, 2.0)) if op == "Pow" else ((-1.0, 1.0), (0.5, 2.0))
        table = [(f"f32 {size}", np.float32, [(size,), (size,)]) for size in SIZES]
        for label, dtype, shapes in pick(table, lambda draw: operands(draw, HAS.get(op, FLOATS), first_whole=op == "PRelu"), 6):
            yield Case(op, label, [floats(*shapes[0], low=one[0], high=one[1], dtype=dtype), floats(*shapes[1], seed=2, low=other[0], high=other[1], dtype=dtype)])
    for op in ("Add", "Mul", "Div", "Less", "PRelu"):
        for label, dtype, shapes in pick(broadcasts(op), lambda draw: operands(draw, HAS.get(op, FLOATS), first_whole=op == "PRelu")):
            yield Case(op, label, [floats(*shapes[0], dtype=dtype), floats(*shapes[1], seed=2, low=0.5, high=2.0, dtype=dtype)])
        pairs = (np.repeat(SPECIAL, SPECIAL.size), np.tile(SPECIAL, SPECIAL.size))
        for given in pick([pairs], lambda draw: paired(draw, pairs), 1):
            yield Case(op, "f32, pairs of special values", list(given), timed=False)
    for op in WHOLE_BINARY:
        table = [(f"{told(dtype)} {MIDDLE}", dtype, [(MIDDLE,)] * 2) for dtype in (np.int32, np.int64, np.uint8)]
        for label, dtype, shapes in pick(table, lambda draw: operands(draw, HAS_WHOLE.get(op, WHOLE)), 5):
            yield Case(op, label, [integers(*shapes[0], dtype=dtype), integers(*shapes[1], seed=2, low=1, dtype=dtype)])
    for op in ("Add", "Mul", "Div"):
        for label, _, shapes in pick([(f"f64 {MIDDLE}", None, [(MIDDLE,)] * 2)], lambda draw: operands(draw, [np.float64])):
            yield Case(op, label, [floats(*shapes[0], dtype=np.float64), floats(*shapes[1], seed=2, low=0.5, dtype=np.float64)], tolerance=1e-15)
    for op in ("And", "Or", "Xor"):
        for label, _, shapes in pick([(f"{MIDDLE}", None, [(MIDDLE,)] * 2)], lambda draw: operands(draw, [np.bool_])):
            yield Case(op, label, [flags(*shapes[0]), flags(*shapes[1], seed=2)])
    for direction in ("LEFT", "RIGHT"):
        table = [(f"uint32 {MIDDLE}", np.uint32, [(MIDDLE,)] * 2)]
        for label, dtype, shapes in pick(table, lambda draw: operands(draw, HAS_WHOLE["BitShift"])):
            shifted = [integers(*shapes[0], dtype=dtype), integers(*shapes[1], seed=2, high=8, dtype=dtype)]
            yield Case("BitShift", f"{direction} {label}", shifted, {"direction": direction})
    for label, dtype, shapes in pick([(f"f32 {MIDDLE}", np.float32, [(MIDDLE,)] * 2)], lambda draw: operands(draw, FLOATS)):
        yield Case("Mod", label, [floats(*shapes[0], low=-9, high=9, dtype=dtype), floats(*shapes[1], seed=2, low=0.5, high=2.0, dtype=dtype)], {"fmod": 1})


def broadcasts(op):
    for inner in INNER:
        many = rows(inner)
        yield f"f32 {many} × {inner} and a row", np.float32, [(many, inner), (inner,)]
        if op != "PRelu":
            yield f"f32 {many} × {inner} and a column", np.float32, [(many, inner), (many, 1)]
    yield "f32 16 × 64 × 8 × 8 and channels", np.float32, [(16, 64, 8, 8), (64, 1, 1)]


def paired(draw, pairs):
    """Other pairs of the same values."""
    chosen = [draw.whole(0, pairs[0].size - 1) for _ in range(draw.length(500))]
    return [values[chosen] for values in pairs]


def wider(pick):
    for op in ("Sum", "Mean", "Max", "Min"):
        table = [(f"three of f32 {size}", np.float32, [(size,)] * 3) for size in SIZES]
        for label, dtype, shapes in pick(table, lambda draw: operands(draw, HAS.get(op, FLOATS), draw.whole(1, 5)), 5):
            yield Case(op, label, [floats(*shape, seed=seed, dtype=dtype) for seed, shape in enumerate(shapes, 1)])
    for label, dtype, shapes in pick(choices(), lambda draw: operands(draw, (*FLOATS, np.int32, np.int64, np.uint8), 3)):
        yield Case("Where", label, [flags(*shapes[0]), filled(shapes[1], dtype), filled(shapes[2], dtype, seed=2)])
    for label, dtype, given, shape in pick(expansions(), drawn_expansion):
        yield Case("Expand", label, [filled(given, dtype), Constant(shape, np.int64)], tolerance=EXACT)
    shapes = lambda *table: pick(table, lambda draw: draw.shape(scalars=False))
    for shape in shapes((MIDDLE,)):
        yield Case("Swish", f"f32 {by(shape)}", [floats(*shape)], opset=24)
        yield Case("Dropout", f"f32 {by(shape)}", [floats(*shape)], tolerance=EXACT)
    for shape, dtype in pick([((MIDDLE,), np.int32)], lambda draw: (draw.shape(), draw.one(*SIGNED, np.float64, np.float16))):
        yield Case("CastLike", f"f32 to {told(dtype)} {by(shape)}", [floats(*shape, low=-99, high=99), np.zeros(1, dtype)], tolerance=EXACT)
    for shape, dtype, to in pick([((MIDDLE,), np.float32, 6)], lambda draw: (draw.shape(), *draw.one((np.float32, 12), (np.int32, 1), (np.float64, 7), (np.int8, 2), (np.float16, 5)))):
        name = next(name for name, number in ONNX.items() if number == to)
        yield Case("BitCast", f"{told(dtype)} to {name} {by(shape)}", [filled(shape, dtype)], {"to": to}, tolerance=EXACT, opset=26)
    for name in ("Gelu", "QuickGelu", "FastGelu"):
        for label, shape in pick([(f"f32 {MIDDLE}", (64, 1024))], drawn_shape):
            yield Case(name, label, [floats(*shape)], domain="com.microsoft")
    for shape in shapes((64, 1024)):
        yield Case("BiasGelu", f"f32 {by(shape)}", [floats(*shape), floats(shape[-1], seed=2)], domain="com.microsoft")


def drawn_shape(draw):
    shape = draw.shape(scalars=False)
    return f"f32 {by(shape)}", shape


def choices():
    for size in SIZES:
        yield f"f32 {size}", np.float32, [(size,)] * 3
    for inner in INNER:
        many = rows(inner)
        yield f"f32 {many} × {inner}, a column decides", np.float32, [(many, 1), (many, inner), (many, inner)]


def expansions():
    for inner in INNER:
        many = rows(inner)
        yield f"f32 {many} × 1 to {inner}", np.float32, (many, 1), [many, inner]
        yield f"f32 1 × {inner} to {many}", np.float32, (1, inner), [many, inner]


def drawn_expansion(draw):
    dtype, (given, shape) = draw.type(), draw.broadcast(2)
    return f"{told(dtype)} {by(given)} to {by(shape)}", dtype, given, list(shape)


def casts(pick):
    table = [(source, target, (MIDDLE,)) for source in NAMED for target in NAMED if source != target]
    for source, target, shape in pick(table, drawn_cast, 66):
        given = flags(*shape) if source == "bool" else integers(*shape, high=100, dtype=NAMED[source])
        yield Case("Cast", f"{source} to {target} {by(shape)}", [given], {"to": ONNX[target]}, tolerance=EXACT)
    for target in ("double", "half", "int32", "int64", "int8", "bool"):
        special = SPECIAL if target in ("double", "half", "bool") else floats(100, low=-100, high=100)
        for given in pick([special], lambda draw: draw.shuffled(special), 1):
            yield Case("Cast", f"float to {target}, special values", [given], {"to": ONNX[target]}, tolerance=EXACT, timed=False)


def drawn_cast(draw):
    source, target = draw.random.sample(list(NAMED), 2)
    return source, target, draw.shape()


BUILDERS = (unary, binary, wider, casts)
