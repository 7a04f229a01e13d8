"""Networks of torchvision that say something of every place of an image: segmentation, detection, flow, video."""

import torch
from torchvision import models
from torchvision.models import detection, optical_flow, segmentation

from architecture import BATCH, Architecture, image


def segmented(name):
    def build():
        module = segmentation.__dict__[name](weights=None, weights_backbone=None, num_classes=5)
        return Architecture(module, image(64, 96), {"image": {0: "batch", 2: "height", 3: "width"}})
    return build


class Detector(torch.nn.Module):
    """Boxes, scores and labels of the one image."""

    def __init__(self, name, **others):
        super().__init__()
        sizes = {"min_size": 64, "max_size": 96} if "ssd" not in name else {}
        self.detector = detection.__dict__[name](weights=None, weights_backbone=None, num_classes=5, **sizes, **others)

    def forward(self, image):
        found = self.detector([image[0]])[0]
        return found["boxes"], found["scores"], found["labels"]


class Heads(torch.nn.Module):
    """What a detector computes of every anchor, ahead of the choice among boxes."""

    def __init__(self, name):
        super().__init__()
        self.detector = detection.__dict__[name](weights=None, weights_backbone=None, num_classes=5)

    def forward(self, image):
        return self.detector.head(list(self.detector.backbone(image).values()))


def detector(module, size=64):
    return lambda: Architecture(module(), image(size, 80 if size == 64 else size))


class Flow(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.flow = optical_flow.raft_small(weights=None)

    def forward(self, before, after):
        return self.flow(before, after, num_flow_updates=2)[-1]


def raft():
    return Architecture(Flow(), {name: torch.rand(1, 3, 128, 128) * 2 - 1 for name in ("before", "after")})


def video():
    module = models.video.r2plus1d_18(weights=None, num_classes=10)
    return Architecture(module, {"clip": torch.randn(1, 3, 4, 32, 32)}, {"clip": {0: "batch"}})


ALL = {
    "deeplab_v3": segmented("deeplabv3_mobilenet_v3_large"),
    "faster_rcnn": detector(lambda: Detector("fasterrcnn_mobilenet_v3_large_320_fpn")),
    "fcn": segmented("fcn_resnet50"),
    "lraspp": segmented("lraspp_mobilenet_v3_large"),
    "r2plus1d": video,
    "raft": raft,
    "retinanet": detector(lambda: Detector("retinanet_resnet50_fpn")),
    "retinanet_heads": detector(lambda: Heads("retinanet_resnet50_fpn_v2")),
    "ssdlite": detector(lambda: Detector("ssdlite320_mobilenet_v3_large"), 320),
    "ssdlite_heads": detector(lambda: Heads("ssdlite320_mobilenet_v3_large"), 320),
}
