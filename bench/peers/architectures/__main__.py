"""Writes known architectures with seeded random weights, as PyTorch's exporter writes them (opset 17), and inputs beside them.

    python bench/peers/architectures DIRECTORY

needs onnx and numpy alone; the Python environment that `bench/peers/run` makes has both. All files together have 2.7 GB.
"""

import sys
from pathlib import Path

import branched
import convolutional
import depthwise
import grouped
import recurrent
import transformers
import unet

if len(sys.argv) != 2:
    sys.exit(__doc__)
directory = Path(sys.argv[1])
directory.mkdir(parents=True, exist_ok=True)
for family in (convolutional, depthwise, grouped, branched, unet, transformers, recurrent):
    family.write(directory)
