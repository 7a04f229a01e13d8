"""Conversion between arrays and the bytes of the compiled part."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from numbers import Number
from typing import Any

import numpy as np

from . import _native, errors
from .errors import InputError

# Names of element types in the library, and NumPy's types.
_NUMPY = {
    "f32": "float32",
    "f64": "float64",
    "f16": "float16",
    "i8": "int8",
    "i16": "int16",
    "i32": "int32",
    "i64": "int64",
    "u8": "uint8",
    "u16": "uint16",
    "u32": "uint32",
    "u64": "uint64",
    "bool": "bool",
}
# Types that the package ml_dtypes adds to NumPy.
_ADDED = {
    "bf16": "bfloat16",
    "f8e4m3fn": "float8_e4m3fn",
    "f8e4m3fnuz": "float8_e4m3fnuz",
    "f8e5m2": "float8_e5m2",
    "f8e5m2fnuz": "float8_e5m2fnuz",
    "f4e2m1": "float4_e2m1fn",
    "i4": "int4",
    "u4": "uint4",
    "i2": "int2",
    "u2": "uint2",
}
_FLOATS = {"f16", "f32", "f64", "bf16", "f8e4m3fn", "f8e4m3fnuz", "f8e5m2", "f8e5m2fnuz", "f4e2m1"}
_NAMES = {theirs: ours for ours, theirs in (_NUMPY | _ADDED).items()}
_DTYPES = {ours: np.dtype(theirs) for ours, theirs in _NUMPY.items()}
# The library's names of types. NumPy takes longer to name a type than a small model takes to run.
_NAME_OF_DTYPE = {dtype: ours for ours, dtype in _DTYPES.items()}
# NumPy's own types in the processor's order of bytes: their arrays are given as they are.
_NAME_OF_PLAIN = dict(_NAME_OF_DTYPE)
_UNDECLARED = (None, "tensor")


def dumps(value: Mapping[str, Any]) -> str:
    """JSON of options, also of NumPy's numbers, of paths, and of mappings and iterables that are no dictionaries and lists."""
    try:
        return json.dumps(value, default=_plain, allow_nan=False)
    except ValueError:
        for name, own in value.items():
            if "NaN" in (text := json.dumps(own, default=_plain)) or "Infinity" in text:
                raise InputError(f"option `{name}` = {own!r} has a number that is not finite; give a finite one") from None
        raise


def _plain(value: Any) -> Any:
    if isinstance(value, (np.generic, np.ndarray)):
        return value.tolist()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Iterable) and not isinstance(value, (bytes, bytearray, memoryview)):
        return list(value)
    raise InputError(f"{value!r} is not a number, a string, a list or a dictionary")


Given = tuple[str, str, tuple[int, ...], Any]


def dtype_name(name: str) -> str:
    """What NumPy, or ml_dtypes, calls one of the library's types."""
    return (_NUMPY | _ADDED)[name]


def numpy_dtype(name: str) -> np.dtype[Any]:
    """NumPy's type for one of the library's."""
    if (known := _DTYPES.get(name)) is not None:
        return known
    try:
        import ml_dtypes
    except ImportError as error:
        raise InputError(f"elements of type {name} need the package ml_dtypes: pip install ml_dtypes") from error
    added: np.dtype[Any] = np.dtype(getattr(ml_dtypes, _ADDED[name]))
    return _DTYPES.setdefault(name, added)


def _name_of(dtype: np.dtype[Any]) -> str | None:
    """What the library calls a type of NumPy's, in any order of bytes; None if it has no such type."""
    known = _NAME_OF_DTYPE.get(dtype)
    if known is None and (known := _NAMES.get(dtype.name)) is not None:
        _NAME_OF_DTYPE[dtype] = known
    return known


def given(inputs: Mapping[str, Any] | None, declared: Mapping[str, tuple[str | None, str]]) -> list[Given]:
    """What the compiled part is given for these inputs. `declared`: type and kind of each input of the model."""
    if inputs is None:
        return []
    # A test of an abstract class takes longer than the rest of a small input.
    if type(inputs) is not dict and not isinstance(inputs, Mapping):
        raise InputError(f"inputs must be a dictionary from names to arrays, not {type(inputs).__name__}")
    parts: list[Given] = []
    for name, value in inputs.items():
        dtype, kind = entry = declared.get(name, _UNDECLARED)
        if entry is _UNDECLARED and not isinstance(name, str):
            raise InputError(f"`inputs` has the name {name!r}; names of inputs are strings: {', '.join(declared)}")
        if kind != "tensor" or value is None:
            parts += _parts(name, value, dtype, kind)
        elif (
            type(value) is np.ndarray
            and (plain := _NAME_OF_PLAIN.get(value.dtype)) is not None
            and (shape := value.shape)  # The compiled part cannot read a buffer without dimensions.
            and value.flags.c_contiguous
        ):
            parts.append((name, plain, shape, value))
        else:
            parts.append(_given(name, value, dtype))
    return parts


def refuse_unknown(inputs: Mapping[str, Any], declared: Mapping[str, tuple[str | None, str]]) -> None:
    """Refuses inputs that the model does not have, as a session does. A pipeline would ignore them."""
    for name in inputs:
        if name not in declared:
            raise errors.of("Input", f"the model has no input `{name}`; its inputs are {', '.join(declared)}", None, None, None, name)


def _parts(name: str, value: Any, declared: str | None, kind: str) -> list[Given]:
    """An input as the compiled part takes it: the elements of a sequence, and marks for what has none, have names of their own."""
    if value is None and kind.startswith("optional"):
        return [_given(f"{name}[absent]", np.empty(0, np.uint8), None)]
    if value is None:
        raise InputError(f"input `{name}` is None, but the model does not declare an optional; give a value")
    if not kind.endswith("sequence"):
        return [_given(name, value, declared)]
    if not isinstance(value, (list, tuple)):
        raise InputError(f"input `{name}` is a sequence; give a list of arrays, not {type(value).__name__}")
    if not value:
        return [_given(f"{name}[]", np.empty(0, np.uint8), None)]
    return [_given(f"{name}[{at}]", element, declared) for at, element in enumerate(value)]


def _given(name: str, value: Any, declared: str | None) -> Given:
    array = _array(name, value, declared)
    ours = _name_of(array.dtype)
    if ours is None:
        raise InputError(f"input `{name}`: elements of type {array.dtype} are not supported; convert them, for example with astype")
    if ours in ("i4", "i2"):
        # ml_dtypes keeps only the lowest bits; kernels read a whole byte with its sign.
        array = array.astype(np.int8)
    if not (array.flags.c_contiguous and array.dtype.isnative):
        # `ascontiguousarray` would turn an array without dimensions into one with a dimension.
        array = array.astype(array.dtype.newbyteorder("="), order="C", subok=False)
    return name, ours, array.shape, array.reshape(-1).view(np.uint8)


def _array(name: str, value: Any, declared: str | None) -> np.ndarray[Any, Any]:
    if isinstance(value, np.ma.MaskedArray):
        raise InputError(f"input `{name}` is a masked array, but a model has no masks; fill it, for example with filled(0)")
    if isinstance(value, np.ndarray):
        return value
    if hasattr(value, "__dlpack__"):
        try:
            return np.from_dlpack(value)
        except (BufferError, RuntimeError, TypeError, ValueError) as error:
            # NumPy accepts CPU tensors without a gradient, of types that it has.
            raise InputError(f"input `{name}`: NumPy cannot read this {type(value).__name__} by DLPack: {error}") from error
    if declared is None or hasattr(value, "__array__") or isinstance(value, (bytearray, memoryview)):
        return np.asarray(value)
    try:
        # A number, or lists of numbers, which have no type of their own.
        numbers = np.asarray(value)
        with np.errstate(over="ignore"):
            made = np.asarray(value, numpy_dtype(declared))
    except (OverflowError, TypeError, ValueError) as error:
        raise InputError(f"input `{name}`: {error}; give numbers of type {dtype_name(declared)}, or an array of the type") from error
    for wrong in _changed(value, numbers, made):
        step = "give numbers that it has, or an array of the type"
        raise InputError(f"input `{name}`: {wrong!r} is no number of type {dtype_name(declared)}; {step}")
    return made


def _changed(value: Any, numbers: np.ndarray[Any, Any], made: np.ndarray[Any, Any]) -> list[Any]:
    """The numbers in lists that have another value as elements of `made`. `numbers`: what NumPy makes of the lists by itself. Floats may
    be rounded to floats."""
    if numbers.dtype == made.dtype:
        return []
    is_float, floats = (_name_of(of.dtype) in _FLOATS for of in (made, numbers))
    if numbers.dtype.kind == "O":
        if not all(isinstance(number, Number) for number in numbers.reshape(-1)):
            return list(numbers.reshape(-1).tolist())
    elif numbers.dtype.kind not in "biu" and not floats:
        return list(numbers.reshape(-1).tolist())
    elif is_float and not floats:
        # Objects of all numbers take long: usual ones are exact. A float of so many bytes has all integers up to this one.
        most = {2: 2**8, 4: 2**24, 8: 2**53}.get(made.dtype.itemsize, 0)
        if not numbers.size or -most <= int(numbers.min()) and int(numbers.max()) <= most:
            return []
    if is_float and floats:
        numbers = numbers.astype(np.float64)
        wrong = np.isfinite(numbers) & ~np.isfinite(made.astype(np.float64))
    else:
        # Objects are compared exactly: NumPy would compare large integers with floats as floats.
        numbers = np.asarray(value, object)
        exact = made.astype(np.float64 if is_float else np.int64 if made.dtype.itemsize < 8 else made.dtype)
        wrong = np.asarray(exact.astype(object) != numbers, bool)
    return list(numbers[wrong].tolist())


def seconds(name: str, value: Any) -> float | None:
    """A limit of time as the compiled part takes it."""
    if value is None or isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool):
        return value
    raise InputError(f"option `{name}` = {value!r}: give a number of seconds, or None for no limit")


def array(dtype: str, shape: list[int], memory: _native.Memory) -> np.ndarray[Any, Any]:
    """The array over an output's memory."""
    if (element := _DTYPES.get(dtype)) is None:
        element = numpy_dtype(dtype)
    # NumPy makes no array over an empty buffer.
    return np.empty(shape, element) if 0 in shape else np.ndarray(shape, element, memory)


def state(feed: Any, sequences: Any) -> tuple[list[tuple[str, str]], int]:
    """Bound outputs and inputs, and the number of sequences, as the compiled part takes them."""
    if feed is not None and not (isinstance(feed, Mapping) and all(isinstance(name, str) for pair in feed.items() for name in pair)):
        raise InputError(f"option `feed` = {feed!r}: give a dictionary from outputs to inputs")
    if isinstance(sequences, bool) or not isinstance(sequences, int) or not 0 < sequences < 1 << 31:
        raise InputError(f"option `sequences` = {sequences!r}: give a whole number of at least 1")
    return list((feed or {}).items()), sequences


def assembled(made: Iterable[tuple[str, np.ndarray[Any, Any]]], kinds: Mapping[str, str]) -> dict[str, Any]:
    """Outputs from what the compiled part gives: arrays, lists of arrays for sequences, and None for optionals that hold nothing."""
    outputs: dict[str, Any] = {}
    for name, array in made:
        if name in kinds:
            outputs[name] = array
            continue
        output, _, part = name.rpartition("[")
        if part == "absent]":
            outputs[output] = None
        else:
            outputs.setdefault(output, []).extend([] if part == "]" else [array])
    return outputs


def labelled(array: np.ndarray[Any, Any], labels: dict[str, Any] | None) -> Any:
    """An output as what its numbers stand for: strings for indices, a list of dictionaries for the columns of a map."""
    if labels is None:
        return array
    ((kind, names),) = labels.items()
    if kind == "texts":
        return np.array(names, dtype=object)[array]
    if array.shape[-1] != len(names):
        raise InputError(f"a map has {len(names)} keys, but {array.shape[-1]} columns")
    return [dict(zip(names, row.tolist())) for row in array.reshape(-1, len(names))]
