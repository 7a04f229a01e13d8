"""Exports networks of the package transformers, with seeded random weights, as PyTorch's exporter writes them.

    python bench/peers/exports.py DIRECTORY [NAME …]

It needs torch, transformers and onnx, and no network: only the configurations' defaults are used. No network here was used to
choose or to tune a kernel. Each is exported in a process of its own, and one that fails is named and left out. Beside each
model are its inputs, as `run` in this directory reads them.
"""

import subprocess
import sys
from pathlib import Path

IMAGES = {
    "resnet50_hf": ("ResNet", {}),
    "regnet": ("RegNet", {}),
    "convnextv2": ("ConvNextV2", {}),
    "mobilenet_v1": ("MobileNetV1", {}),
    "efficientnet": ("EfficientNet", {"width_coefficient": 1.1, "depth_coefficient": 1.2, "hidden_dim": 1408}),
    "swin": ("Swin", {}),
    "segformer": ("Segformer", {}),
    "poolformer": ("PoolFormer", {}),
    "levit": ("Levit", {}),
    "mobilevit": ("MobileViT", {}),
    "pvt": ("Pvt", {}),
    "focalnet": ("FocalNet", {}),
}
TEXTS = {
    "distilbert": ("DistilBert", {}),
    "albert": ("Albert", {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072}),
    "mobilebert": ("MobileBert", {}),
    "mpnet": ("MPNet", {}),
    "opt": ("OPT", {"num_hidden_layers": 6, "use_cache": False}),
    "squeezebert": ("SqueezeBert", {}),
}


def main():
    directory = Path(sys.argv[1])
    directory.mkdir(parents=True, exist_ok=True)
    names = sys.argv[2:] or [*IMAGES, *TEXTS]
    jobs = {
        name: subprocess.Popen([sys.executable, __file__, "--one", name, directory], stdout=sys.stderr, stderr=subprocess.PIPE, text=True)
        for name in names
    }
    for name, job in jobs.items():
        said = job.communicate()[1].strip().splitlines()
        print(f"{name}: {'exported' if job.returncode == 0 else 'failed: ' + (said or ['?'])[-1]}", file=sys.stderr)


def export(name, directory):
    import numpy
    import torch
    import transformers

    torch.manual_seed(1)
    torch.set_num_threads(1)
    kind, changed = (IMAGES | TEXTS)[name]
    config = getattr(transformers, f"{kind}Config")(**changed)
    config._attn_implementation = "eager"
    model = getattr(transformers, f"{kind}Model")(config).eval()
    if name in IMAGES:
        inputs = {"pixel_values": torch.rand(1, 3, 224, 224) * 2 - 1}
    else:
        inputs = {"input_ids": torch.randint(1, 1000, (1, 128)), "attention_mask": torch.ones(1, 128, dtype=torch.int64)}

    class First(torch.nn.Module):
        """The model with its first output alone."""

        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, *values):
            return self.model(**dict(zip(inputs, values)), return_dict=False)[0]

    file = directory / f"{name}.onnx"
    with torch.no_grad():
        try:
            torch.onnx.export(First(), tuple(inputs.values()), str(file), input_names=list(inputs), opset_version=17, dynamo=False)
        except Exception as problem:
            print(f"{name}: {problem!r:.300}; the other exporter is tried", file=sys.stderr)
            torch.onnx.export(First(), tuple(inputs.values()), str(file), input_names=list(inputs), dynamo=True, external_data=False)
    numpy.savez(file.with_suffix(".npz"), **{f"in__{name}": value.numpy() for name, value in inputs.items()})


if sys.argv[1] == "--one":
    export(sys.argv[2], Path(sys.argv[3]))
else:
    main()
