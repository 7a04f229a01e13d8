"""Writes ONNX exports of many architectures with seeded random weights, and ONNX Runtime's outputs, to a folder.

    python tests/onnx/exports/write.py target/onnx-exports [NAME…]

Each architecture is exported by both exporters of PyTorch: `NAME.ts.onnx` by the one that traces TorchScript, `NAME.dy.onnx` by
`torch.export`. Beside each its inputs (`in__NAME`) and outputs (`out__NAME`) in an .npz, or in a .txt why there is none.
"""

import concurrent.futures
import functools
import logging
import multiprocessing
import os
import pathlib
import re
import sys
import time
import warnings

import numpy as np
import onnxruntime
import torch

import classification
import dense
import derived
import generation
import perception
import recurrent
import text

ALL = {**classification.ALL, **dense.ALL, **generation.ALL, **perception.ALL, **recurrent.ALL, **text.ALL}


def export(architecture, traced, path):
    arguments, names = tuple(architecture.inputs.values()), list(architecture.inputs)
    axes = [architecture.dynamic.get(name, {}) for name in names]
    if traced:
        options = {"dynamic_axes": architecture.dynamic, "opset_version": architecture.opset, "dynamo": False}
    else:
        options = {"dynamic_shapes": (tuple(axes),), "dynamo": True, "external_data": False, "verbose": False}
    with torch.no_grad():
        torch.onnx.export(architecture.module, arguments, path, input_names=names, **options)


def reference(path, inputs):
    """Writes inputs and outputs beside a model; outputs that are the same everywhere would prove nothing."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    read = {info.name for info in session.get_inputs()}
    given = {name: value for name, value in inputs.items() if name in read}
    outputs = dict(zip([info.name for info in session.get_outputs()], session.run(None, given)))
    if not any(np.ptp(value) > 0 for value in outputs.values()):
        raise ValueError("all its outputs are constant")
    arrays = {f"in__{name}": value for name, value in given.items()}
    np.savez(path.with_suffix(".npz"), **arrays, **{f"out__{name}": value for name, value in outputs.items()})


def attempt(path, inputs, make):
    for old in (path, path.with_suffix(".npz"), path.with_suffix(".txt")):
        old.unlink(missing_ok=True)
    try:
        make()
        reference(path, inputs)
    except Exception as error:  # Exporters raise whatever they like.
        path.unlink(missing_ok=True)
        # Without colours, and what follows the first sentences.
        text = re.sub(r"\x1b\[[0-9;]*m", "", str(error)).strip().partition("\n")[0][:150]
        path.with_suffix(".txt").write_text(f"{type(error).__name__}: {text}\n")


def write(name, folder):
    """All exports of one architecture, from a seed of its own."""
    began = time.time()
    torch.set_num_threads(1)
    torch.backends.mha.set_fastpath_enabled(False)  # Its operators have no ONNX form.
    torch.manual_seed(sum(name.encode()))
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    architecture = ALL[name]()
    settle(architecture.module)
    inputs = {key: value.numpy() for key, value in architecture.inputs.items()}
    for kind in ("ts", "dy"):
        path = folder / f"{name}.{kind}.onnx"
        attempt(path, inputs, lambda: export(architecture, kind == "ts", path))
        if name in derived.SOURCES and path.exists():
            for form, make in derived.forms(name):
                other = folder / f"{name}-{form}.{kind}.onnx"
                attempt(other, inputs, lambda: make(path, other, inputs))
    return f"{name}: {time.time() - began:.0f} s"


def settle(module):
    """Weights as after some training: normalisations that are not the identity, biases and gates that are not zero."""
    for part in module.modules():
        if isinstance(part, torch.nn.modules.batchnorm._BatchNorm) and part.running_mean is not None:
            part.running_mean.normal_(0, 0.1)
            part.running_var.uniform_(0.5, 1.5)
    for name, parameter in module.named_parameters():
        if name.endswith("bias") or not parameter.any():
            torch.nn.init.normal_(parameter, std=0.1)


def main():
    folder = pathlib.Path(sys.argv[1]).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    names = sys.argv[2:] or sorted(ALL)
    # What exporters leave in memory ends with their processes; executors that replace these themselves hung in Python 3.11.
    cores, fresh = os.cpu_count(), multiprocessing.get_context("spawn")
    for first in range(0, len(names), 6 * cores):
        with concurrent.futures.ProcessPoolExecutor(cores, fresh) as pool:
            for line in pool.map(functools.partial(write, folder=folder), names[first : first + 6 * cores]):
                print(line, flush=True)


if __name__ == "__main__":
    main()
