"""Writes a tokenizer and the exporters' configurations next to the three tiny language models.

    python3 tokens.py

All models share a byte-level vocabulary of 128 tokens: ASCII, the two bytes of é, 26 merges and four special tokens. `llama` gets the files of
onnxruntime-genai, with a chat template, `gpt2` those of optimum, and `optimum` those with a chat template.
"""

import json
import pathlib

HERE = pathlib.Path(__file__).parent
SPECIAL = ["<|system|>", "<|assistant|>", "<|user|>", "<|end|>"]
MERGES = (
    "t h, th e, i n, e r, a n, o u, o n, r e, a t, e n, n d, in g, o r, i s, i t, e s, a r, Ġ a, Ġ s, Ġ w, Ġ the, an d, Ġ o, Ġ c, Ġ b, v er"
).split(", ")
TEMPLATE = (
    "{% for message in messages %}{{ '<|' + message['role'] + '|>' + message['content'] + eos_token }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


def vocabulary():
    tokens = [chr(byte) for byte in range(0x21, 0x7F)] + ["Ġ", "Ċ", "Ã", "©"]
    tokens += [merge.replace(" ", "") for merge in MERGES] + SPECIAL
    assert len(tokens) == len(set(tokens)) == 128
    return {token: at for at, token in enumerate(tokens)}


def tokenizer():
    tokens = vocabulary()
    added = dict(single_word=False, lstrip=False, rstrip=False, normalized=False, special=True)
    bytes_ = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": tokens[token], "content": token, **added} for token in SPECIAL],
        "normalizer": None,
        "pre_tokenizer": bytes_,
        "post_processor": None,
        "decoder": bytes_,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": tokens,
            "merges": [merge.split() for merge in MERGES],
        },
    }


GENAI = {
    "model": {
        "bos_token_id": None,
        "context_length": 2048,
        "decoder": {
            "filename": "model.onnx",
            "head_size": 16,
            "hidden_size": 64,
            "inputs": {
                "input_ids": "input_ids",
                "attention_mask": "attention_mask",
                "past_key_names": "past_key_values.%d.key",
                "past_value_names": "past_key_values.%d.value",
            },
            "outputs": {
                "logits": "logits",
                "present_key_names": "present.%d.key",
                "present_value_names": "present.%d.value",
            },
            "num_attention_heads": 4,
            "num_hidden_layers": 2,
            "num_key_value_heads": 2,
        },
        "eos_token_id": 127,
        "pad_token_id": 127,
        "type": "llama",
        "vocab_size": 128,
    },
    "search": {"do_sample": False, "max_length": 64, "num_beams": 1, "past_present_share_buffer": True},
}
GPT2 = {
    "model_type": "gpt2",
    "n_embd": 32,
    "n_head": 4,
    "n_layer": 2,
    "n_positions": 512,
    "vocab_size": 128,
    "eos_token_id": 127,
}
OPTIMUM = {
    "model_type": "llama",
    "hidden_size": 32,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 2,
    "max_position_embeddings": 2048,
    "vocab_size": 128,
    "eos_token_id": 127,
}

if __name__ == "__main__":
    files = {
        "llama/genai_config.json": GENAI,
        "llama/tokenizer_config.json": {"chat_template": TEMPLATE, "eos_token": "<|end|>"},
        "gpt2/config.json": GPT2,
        "gpt2/generation_config.json": {"eos_token_id": 127, "max_length": 64},
        "optimum/config.json": OPTIMUM,
        "optimum/generation_config.json": {"eos_token_id": 127, "max_length": 64},
        "optimum/tokenizer_config.json": {"chat_template": TEMPLATE, "eos_token": "<|end|>"},
        "llama/tokenizer.json": tokenizer(),
        "optimum/tokenizer.json": tokenizer(),
        "gpt2/tokenizer.json": tokenizer(),
    }
    for name, content in files.items():
        (HERE / name).write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
