"""Transformers for text: encoders, decoders with and without a cache, and encoders with decoders."""

import torch
import transformers as package
from transformers import DynamicCache

from architecture import WORDS, Architecture, Named, words

SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64, "vocab_size": 99}


def model(name, head="Model", **sizes):
    config = getattr(package, f"{name}Config")(**sizes)
    config._attn_implementation = "sdpa" if getattr(package, f"{name}{head}")._supports_sdpa else "eager"
    return getattr(package, f"{name}{head}")(config)


def encoder(name, head="Model", **others):
    def build():
        module = model(name, head, **{**SMALL, **others})
        return Architecture(Named(module, "input_ids", "attention_mask"), words(99, 2, 12), WORDS)
    return build


class Cached(torch.nn.Module):
    """A decoder that is given the keys and values of earlier tokens, and gives them back with those of the new ones."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, ids, mask, *past):
        cache = DynamicCache(list(zip(past[::2], past[1::2])))
        found = self.model(input_ids=ids, attention_mask=mask, past_key_values=cache, use_cache=True)
        layers = found.past_key_values.layers
        return found.logits, *(tensor for layer in layers for tensor in (layer.keys, layer.values))


def decoder(name, heads=4, width=8, **others):
    """Two new tokens of two texts, after five."""
    def build():
        module = model(name, "ForCausalLM" if name != "GPT2" else "LMHeadModel", **{**SMALL, **others})
        inputs, dynamic = words(99, 2, 7), {**WORDS, "attention_mask": {0: "batch", 1: "total"}}
        inputs["input_ids"] = inputs["input_ids"][:, :2]
        for layer in range(2):
            for what in ("key", "value"):
                inputs[f"past_{what}_{layer}"] = torch.randn(2, heads, 5, width)
                dynamic[f"past_{what}_{layer}"] = {0: "batch", 2: "past"}
        return Architecture(Cached(module), inputs, dynamic)
    return build


def translator(name, **sizes):
    def build():
        module = model(name, "ForConditionalGeneration" if name != "Marian" else "MTModel", **sizes)
        inputs, dynamic = words(99, 2, 9), dict(WORDS)
        inputs["decoder_input_ids"] = torch.randint(3, 99, (2, 4))
        dynamic["decoder_input_ids"] = {0: "batch", 1: "written"}
        return Architecture(Named(module, *inputs, use_cache=False), inputs, dynamic)
    return build


BART = {"d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
        "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "vocab_size": 99, "max_position_embeddings": 64}
T5 = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, "vocab_size": 99}

ALL = {
    "albert": encoder("Albert", embedding_size=16),
    "bart": translator("Bart", **BART),
    "bert_answers": encoder("Bert", "ForQuestionAnswering"),
    "bloom": decoder("Bloom", n_layer=2, n_head=4),
    "deberta_v2": encoder("DebertaV2", relative_attention=True, pos_att_type=["p2c", "c2p"], max_position_embeddings=64),
    "distilbert": encoder("DistilBert", dim=32, hidden_dim=64, n_layers=2, n_heads=4),
    "electra": encoder("Electra", "ForTokenClassification", embedding_size=16),
    "gemma2": decoder("Gemma2", heads=2, num_key_value_heads=2, head_dim=8),
    "gpt2": decoder("GPT2", n_embd=32, n_layer=2, n_head=4, n_positions=64),
    "gpt_neox": decoder("GPTNeoX"),
    "llama": decoder("Llama", heads=2, num_key_value_heads=2),
    "marian": translator("Marian", **{**BART, "pad_token_id": 0, "decoder_start_token_id": 0}),
    "mpnet": encoder("MPNet"),
    "opt": decoder("OPT", ffn_dim=64, max_position_embeddings=64, word_embed_proj_dim=32),
    "phi": decoder("Phi"),
    "qwen2": decoder("Qwen2", heads=2, num_key_value_heads=2),
    "roberta": encoder("Roberta", "ForSequenceClassification", num_labels=3),
    "t5": translator("T5", **T5),
    "xlm_roberta": encoder("XLMRoberta", "ForMaskedLM"),
}
