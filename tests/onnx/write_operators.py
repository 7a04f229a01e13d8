"""Writes standard.txt: each operator of the standard, of ai.onnx.ml and of the previews with the versions that changed it, and the names of com.microsoft.

    python tests/onnx/write_operators.py tests/onnx/standard.txt
"""

import sys

import onnx.defs
from onnxruntime.capi import onnxruntime_pybind11_state as runtime

versions = {}
for schema in onnx.defs.get_all_schemas_with_history():
    if schema.domain in ("", "ai.onnx.ml", "ai.onnx.preview"):
        versions.setdefault((schema.domain or "ai.onnx", schema.name), set()).add(schema.since_version)
for schema in runtime.get_all_operator_schema():
    if schema.domain == "com.microsoft":
        versions.setdefault((schema.domain, schema.name), set()).add(schema.since_version)
with open(sys.argv[1], "w") as file:
    for (domain, name), since in sorted(versions.items()):
        print(domain, name, *sorted(since), file=file)
