"""Networks of torchvision that classify images, small where their constructors allow."""

import torch
from torchvision import models
from torchvision.models import convnext, efficientnet, maxvit, swin_transformer

from architecture import BATCH, Architecture, image


def classifier(module, size=64, batch=2):
    return Architecture(module, image(size, batch=batch), BATCH)


def known(name, size=64, **others):
    return lambda: classifier(models.get_model(name, weights=None, num_classes=10, **others), size)


def small_convnext():
    blocks = [convnext.CNBlockConfig(24, 48, 2), convnext.CNBlockConfig(48, None, 2)]
    return classifier(models.ConvNeXt(blocks, num_classes=10, layer_scale=0.5))


def small_efficientnet():
    block, fused = efficientnet.MBConvConfig, efficientnet.FusedMBConvConfig
    blocks = [fused(1, 3, 1, 16, 16, 1), fused(4, 3, 2, 16, 32, 2), block(4, 3, 2, 32, 64, 2)]
    return classifier(models.EfficientNet(blocks, dropout=0.2, num_classes=10, last_channel=128))


def small_swin(version):
    block = swin_transformer.SwinTransformerBlockV2 if version == 2 else None
    merging = swin_transformer.PatchMergingV2 if version == 2 else swin_transformer.PatchMerging
    sizes = {"embed_dim": 24, "depths": [2, 2], "num_heads": [2, 4], "num_classes": 10}
    return classifier(
        models.SwinTransformer([4, 4], window_size=[4, 4], block=block, downsample_layer=merging, **sizes), 56, 1
    )


def small_maxvit():
    sizes = {"stem_channels": 16, "block_channels": [16, 32], "block_layers": [1, 1], "head_dim": 8}
    return classifier(maxvit.MaxVit((64, 64), partition_size=4, stochastic_depth_prob=0, num_classes=10, **sizes))


def small_vit():
    return classifier(models.VisionTransformer(32, 8, 2, 4, 32, 64, num_classes=10), 32)


ALL = {
    "alexnet": known("alexnet", 96),
    "densenet": lambda: classifier(models.DenseNet(8, (2, 2, 2), 16, num_classes=10)),
    "efficientnet_v2": small_efficientnet,
    "googlenet": known("googlenet", 96, init_weights=True, aux_logits=False),
    "inception_v3": known("inception_v3", 128, init_weights=True, aux_logits=False),
    "maxvit": small_maxvit,
    "mnasnet": known("mnasnet0_5"),
    "mobilenet_v3": known("mobilenet_v3_small"),
    "regnet_y": known("regnet_y_400mf"),
    "resnext": lambda: classifier(models.ResNet(models.resnet.Bottleneck, [1, 1, 1, 1], 10, groups=8, width_per_group=4)),
    "shufflenet": known("shufflenet_v2_x0_5"),
    "convnext": small_convnext,
    "swin": lambda: small_swin(1),
    "swin_v2": lambda: small_swin(2),
    "vision_transformer": small_vit,
}
