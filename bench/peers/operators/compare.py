"""Compares results of two engines."""

import numpy as np


def difference(ours, theirs, case):
    """Returns how our results differ from theirs; empty if they do not."""
    if len(ours) != len(theirs):
        return f"{len(ours)} outputs instead of {len(theirs)}"
    for at, (one, other) in enumerate(zip(ours, theirs)):
        if why := different(one, other, case):
            return f"output {at}: {why}"
    return ""


def different(one, other, case):
    if type(one) is not type(other):
        return f"{type(one).__name__} instead of {type(other).__name__}"
    if isinstance(other, list):
        return difference(one, other, case)
    if not isinstance(other, np.ndarray):
        return "" if one == other else f"{one} instead of {other}"
    if one.dtype != other.dtype or one.shape != other.shape:
        return f"{one.dtype}{list(one.shape)} instead of {other.dtype}{list(other.shape)}"
    if other.dtype.kind in "iu" and case.off_by:
        same = np.abs(one.astype(np.int64) - other.astype(np.int64)) <= case.off_by
    elif other.dtype.kind == "f" and case.tolerance:
        same = close(one.astype(np.float64), other.astype(np.float64), bound(other.dtype, case.tolerance))
    else:
        same = (one == other) | ((one != one) & (other != other))
    if np.all(same):
        return ""
    first = int(np.argmin(same))
    return f"{one.flat[first]:.9g} instead of {other.flat[first]:.9g} at {first}, {np.count_nonzero(~same)} of {same.size} in all"


def bound(dtype, tolerance):
    """A half has three digits."""
    return max(tolerance, 2e-3) if dtype == np.float16 else tolerance


def close(one, other, tolerance):
    finite = other[np.isfinite(other)]
    greatest = np.abs(finite[np.abs(finite) < 1e30]).max(initial=0)
    return np.isclose(one, other, rtol=tolerance, atol=tolerance * min(greatest, 1e3), equal_nan=True)
