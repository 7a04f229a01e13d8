"""Part of scripts/release: tests of what Python uses, in a folder with convnet.onnx and convnet.npz.

    python smoke.py wheel VERSION
    python smoke.py provider LIBRARY
    python smoke.py sbom FILE VERSION
"""
import json
import os
import sys


def reference():
    """Returns the inputs and the expected outputs of the network."""
    import numpy as np

    arrays = np.load("convnet.npz")
    side = lambda prefix: {name[len(prefix) :]: arrays[name] for name in arrays if name.startswith(prefix)}
    return side("in__"), side("out__")


def compare(found, expected):
    import numpy as np

    assert found.keys() == expected.keys() and expected, (found.keys(), expected.keys())
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-3, atol=1e-4)


def wheel(version):
    import importlib.metadata

    import anabranch

    assert importlib.metadata.version("anabranch") == version
    inputs, expected = reference()
    compare(anabranch.Session("convnet.onnx", place="auto").run(inputs), expected)
    with open("/proc/self/maps", encoding="utf-8") as maps:
        hwloc = {line.split()[-1] for line in maps if "hwloc" in line}
    assert hwloc and all("anabranch.libs" in path for path in hwloc), f"hwloc is not the wheel's: {hwloc}"
    files = {file.name for file in importlib.metadata.files("anabranch")}
    assert {"LICENSE-MIT", "LICENSE-APACHE", "THIRD-PARTY.txt", "py.typed"} <= files, files
    modules = {str(file) for file in importlib.metadata.files("anabranch")}
    assert "anabranch/cluster/__init__.py" in modules, modules
    assert "ray" in importlib.metadata.metadata("anabranch").get_all("Provides-Extra")
    bundled = {file.name.split("-")[0] for file in importlib.metadata.files("anabranch") if "anabranch.libs" in str(file)}
    assert bundled == {"libhwloc", "libudev"}, f"THIRD-PARTY.txt has the licences of libhwloc and libudev, but {bundled} are inside"


def provider(library):
    import onnxruntime

    # ONNX Runtime looks for a relative path in its own folder.
    onnxruntime.register_execution_provider_library("anabranch", os.path.abspath(library))
    devices = [
        device
        for device in onnxruntime.get_ep_devices()
        if device.ep_name == "AnabranchExecutionProvider" and device.ep_metadata["anabranch.kind"] == "cpu"
    ]
    options = onnxruntime.SessionOptions()
    # Without this, ONNX Runtime would compute what the provider does not take.
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    options.add_provider_for_devices(devices, {})
    session = onnxruntime.InferenceSession("convnet.onnx", options, enable_fallback=False)
    inputs, expected = reference()
    names = [output.name for output in session.get_outputs()]
    compare(dict(zip(names, session.run(None, inputs), strict=True)), expected)


def sbom(path, version):
    with open(path, encoding="utf-8") as file:
        bill = json.load(file)
    assert bill["bomFormat"] == "CycloneDX", bill["bomFormat"]
    assert bill["metadata"]["component"]["version"] == version, bill["metadata"]["component"]
    names = {component["name"] for component in bill["components"]}
    assert {"anabranch", "hwloc2", "wgpu"} <= names, f"{path} lacks dependencies: {sorted(names)}"


if __name__ == "__main__":
    {"wheel": wheel, "provider": provider, "sbom": sbom}[sys.argv[1]](*sys.argv[2:])
