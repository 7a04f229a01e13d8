"""Transformers for images, speech, and both beside text."""

import torch
import transformers as package

from architecture import BATCH, Architecture, Named, image, words
from text import SMALL, model

PATCHES = {"image_size": 32, "patch_size": 8}


def vision(name, head="Model", size=32, dynamic=BATCH, **others):
    return lambda: Architecture(Named(model(name, head, **others), "pixel_values"), image(size, batch=2), dynamic)


def clip():
    text = {**SMALL, "max_position_embeddings": 32}
    config = package.CLIPConfig(text_config=text, vision_config={**SMALL, **PATCHES}, projection_dim=16)
    inputs = {"input_ids": torch.randint(3, 90, (2, 9)), **image(32, batch=2)}
    inputs["attention_mask"] = words(99, 2, 9)["attention_mask"]
    dynamic = {"input_ids": {0: "texts", 1: "length"}, "attention_mask": {0: "texts", 1: "length"}, "image": {0: "images"}}
    return Architecture(Named(package.CLIPModel(config), "input_ids", "pixel_values", "attention_mask"), inputs, dynamic)


CONVOLUTIONS = {"conv_dim": (16, 16, 16), "conv_kernel": (10, 3, 2), "conv_stride": (5, 2, 2),
                "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 2, "num_feat_extract_layers": 3}


def waves(name, head="Model", **others):
    def build():
        module = model(name, head, **{**SMALL, **CONVOLUTIONS, **others})
        inputs, dynamic = {"waves": torch.randn(2, 800)}, {"waves": {0: "batch", 1: "samples"}}
        return Architecture(Named(module, "input_values"), inputs, dynamic)
    return build


def whisper():
    sizes = {"d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
             "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "vocab_size": 99, "num_mel_bins": 20, "max_source_positions": 50,
             "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
    module = model("Whisper", "ForConditionalGeneration", **sizes)
    inputs = {"features": torch.randn(2, 20, 100), "decoder_input_ids": torch.randint(3, 99, (2, 5))}
    dynamic = {"features": {0: "batch"}, "decoder_input_ids": {0: "batch", 1: "written"}}
    return Architecture(Named(module, "input_features", "decoder_input_ids", use_cache=False), inputs, dynamic)


STAGES = {"depths": [1, 1, 1, 1], "hidden_sizes": [16, 32, 32, 64], "num_attention_heads": [1, 2, 2, 4],
          "decoder_hidden_size": 32, "sr_ratios": [4, 2, 2, 1], "num_labels": 5}

ALL = {
    "beit": vision("Beit", **{**SMALL, **PATCHES}),
    "clip": clip,
    "deit": vision("DeiT", "ForImageClassification", **{**SMALL, **PATCHES}),
    "dpt": vision("DPT", "ForDepthEstimation", **{**SMALL, **PATCHES, "num_hidden_layers": 4},
                            backbone_out_indices=[0, 1, 2, 3], neck_hidden_sizes=[8, 16, 16, 16], fusion_hidden_size=16),
    "dinov2": vision("Dinov2", **{**SMALL, **PATCHES}),
    "hubert": waves("Hubert"),
    "mobilevit": vision("MobileViT", "ForImageClassification", 64, image_size=64, hidden_sizes=[24, 32, 40],
                        neck_hidden_sizes=[8, 16, 24, 24, 32, 40, 64]),
    "segformer": vision("Segformer", "ForSemanticSegmentation", 64, **STAGES),
    "swin_hf": vision("Swin", "ForImageClassification", 32, image_size=32, patch_size=4, embed_dim=16, depths=[2, 2],
                                num_heads=[2, 4], window_size=4),
    "vit": vision("ViT", "ForImageClassification", **{**SMALL, **PATCHES}),
    "wav2vec2": waves("Wav2Vec2", "ForCTC"),
    "wavlm": waves("WavLM"),
    "whisper": whisper,
}
