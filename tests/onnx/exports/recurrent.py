"""Recurrent and other layers of PyTorch itself that no package above contains."""

import torch
from torch import nn

from architecture import Architecture


class Tagger(nn.Module):
    """Words, a recurrent layer in both directions, and a label for each word."""

    def __init__(self, layer):
        super().__init__()
        self.words, self.layer = nn.Embedding(50, 16), layer(16, 24, 2, batch_first=True, bidirectional=True)
        self.labels = nn.Linear(48, 7)

    def forward(self, ids):
        return self.labels(self.layer(self.words(ids))[0]).log_softmax(-1)


def tagger(layer):
    dynamic = {"ids": {0: "batch", 1: "length"}}
    return lambda: Architecture(Tagger(layer), {"ids": torch.randint(0, 50, (3, 11))}, dynamic)


def transformer():
    module = nn.Transformer(32, 4, 2, 2, 64, batch_first=True)
    inputs = {"source": torch.randn(2, 9, 32), "target": torch.randn(2, 5, 32)}
    return Architecture(module, inputs, {"source": {0: "batch", 1: "read"}, "target": {0: "batch", 1: "written"}})


def volumes():
    layers = [nn.Conv3d(1, 8, 3, padding=1), nn.InstanceNorm3d(8, affine=True), nn.LeakyReLU(), nn.MaxPool3d(2),
              nn.Conv3d(8, 16, 3, padding=1), nn.PReLU(16), nn.ConvTranspose3d(16, 8, 2, 2), nn.ELU(), nn.Conv3d(8, 2, 1)]
    return Architecture(nn.Sequential(*layers), {"volume": torch.randn(1, 1, 8, 12, 12)}, {"volume": {0: "batch"}})


def upscaler():
    layers = [nn.Conv2d(3, 16, 3, padding=1, padding_mode="reflect"), nn.Mish(), nn.Conv2d(16, 48, 3, padding=1),
              nn.PixelShuffle(4), nn.Upsample(scale_factor=1.5, mode="bicubic"), nn.AdaptiveAvgPool2d((8, 8)), nn.Hardtanh()]
    return Architecture(nn.Sequential(*layers), {"image": torch.randn(2, 3, 16, 16)}, {"image": {0: "batch"}})


ALL = {
    "gru_tagger": tagger(nn.GRU),
    "lstm_tagger": tagger(nn.LSTM),
    "torch_transformer": transformer,
    "upscaler": upscaler,
    "volume_network": volumes,
}
