"""Networks of the package `diffusers`: denoisers and autoencoders of images."""

import torch
import diffusers

from architecture import Architecture


def unet():
    blocks = {"down_block_types": ("DownBlock2D", "AttnDownBlock2D"), "up_block_types": ("AttnUpBlock2D", "UpBlock2D")}
    sizes = {"block_out_channels": (16, 32), "layers_per_block": 1, "norm_num_groups": 8, "attention_head_dim": 8}
    module = diffusers.UNet2DModel(sample_size=16, in_channels=3, out_channels=3, **blocks, **sizes)
    inputs = {"sample": torch.randn(2, 3, 16, 16), "step": torch.tensor([7])}
    return Architecture(module, inputs, {"sample": {0: "batch"}})


def conditioned():
    blocks = {"down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D"), "up_block_types": ("UpBlock2D", "CrossAttnUpBlock2D")}
    sizes = {"block_out_channels": (16, 32), "layers_per_block": 1, "norm_num_groups": 8, "attention_head_dim": 4}
    module = diffusers.UNet2DConditionModel(sample_size=16, cross_attention_dim=24, **blocks, **sizes)
    inputs = {"sample": torch.randn(2, 4, 16, 16), "step": torch.tensor([7]), "text": torch.randn(2, 6, 24)}
    return Architecture(module, inputs, {"sample": {0: "batch"}, "text": {0: "batch", 1: "length"}})


class Half(torch.nn.Module):
    def __init__(self, whole, half):
        super().__init__()
        self.whole, self.half = whole, half

    def forward(self, x):
        if self.half == "encoder":
            return self.whole.encode(x).latent_dist.parameters
        return self.whole.decode(x).sample


def autoencoder(half, channels):
    def build():
        kinds = {"down_block_types": ("DownEncoderBlock2D",) * 2, "up_block_types": ("UpDecoderBlock2D",) * 2}
        whole = diffusers.AutoencoderKL(block_out_channels=(16, 32), norm_num_groups=8, latent_channels=4, **kinds)
        dynamic = {"image": {0: "batch", 2: "height", 3: "width"}}
        return Architecture(Half(whole, half), {"image": torch.randn(1, channels, 16, 24)}, dynamic)
    return build


def transformer():
    sizes = {"num_attention_heads": 2, "attention_head_dim": 16, "in_channels": 4, "num_layers": 2, "sample_size": 8}
    module = diffusers.DiTTransformer2DModel(num_embeds_ada_norm=10, out_channels=8, norm_num_groups=8, **sizes)
    inputs = {"sample": torch.randn(2, 4, 8, 8), "step": torch.tensor([7, 7]), "label": torch.tensor([1, 4])}
    return Architecture(module, inputs, {name: {0: "batch"} for name in inputs})


ALL = {
    "autoencoder_decoder": autoencoder("decoder", 4),
    "autoencoder_encoder": autoencoder("encoder", 3),
    "diffusion_transformer": transformer,
    "unet_2d": unet,
    "unet_2d_condition": conditioned,
}
