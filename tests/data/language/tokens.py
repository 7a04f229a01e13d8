"""Writes a tokenizer and the exporters' configurations next to the tiny language models.

    python3 tokens.py

All models have a byte-level vocabulary of 128 tokens: ASCII, the two bytes of é, merges, and special tokens at the end.
`llama` gets the files of onnxruntime-genai, with a chat template, `gpt2` those of optimum, and `optimum` those with a
chat template. `t5` and `whisper` get those of optimum for encoders with decoders. `t5` adds a token to the end of each
text, and `whisper` has special tokens for languages and tasks.
"""

import json
import pathlib

HERE = pathlib.Path(__file__).parent
SPECIAL = ["<|system|>", "<|assistant|>", "<|user|>", "<|end|>"]
SPEECH = ["<|startoftranscript|>", "<|en|>", "<|de|>", "<|transcribe|>", "<|notimestamps|>", "<|endoftext|>"]
MERGES = (
    "t h, th e, i n, e r, a n, o u, o n, r e, a t, e n, n d, in g, o r, i s, i t, e s, a r, Ġ a, Ġ s, Ġ w, Ġ the, an d, Ġ o, Ġ c, Ġ b, v er"
).split(", ")
TEMPLATE = (
    "{% for message in messages %}{{ '<|' + message['role'] + '|>' + message['content'] + eos_token }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% endif %}"
)


def tokenizer(special=SPECIAL, end=None):
    tokens = [chr(byte) for byte in range(0x21, 0x7F)] + ["Ġ", "Ċ", "Ã", "©"]
    merges = MERGES[: 128 - len(tokens) - len(special)]
    tokens += [merge.replace(" ", "") for merge in merges] + special
    assert len(tokens) == len(set(tokens)) == 128
    tokens = {token: at for at, token in enumerate(tokens)}
    added = dict(single_word=False, lstrip=False, rstrip=False, normalized=False, special=True)
    bytes_ = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": tokens[token], "content": token, **added} for token in special],
        "normalizer": None,
        "pre_tokenizer": bytes_,
        "post_processor": end and ending(end, tokens[end]),
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
            "merges": [merge.split() for merge in merges],
        },
    }


def ending(token, number):
    """Adds a token to the end of each text."""
    single = [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": token, "type_id": 0}}]
    pair = single + [{"Sequence": {"id": "B", "type_id": 1}}, {"SpecialToken": {"id": token, "type_id": 1}}]
    known = {token: {"id": token, "ids": [number], "tokens": [token]}}
    return {"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": known}


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
T5 = {
    "model_type": "t5",
    "is_encoder_decoder": True,
    "d_model": 24,
    "d_kv": 8,
    "num_heads": 3,
    "num_layers": 2,
    "num_decoder_layers": 2,
    "n_positions": 512,
    "vocab_size": 128,
}
WHISPER = {
    "model_type": "whisper",
    "is_encoder_decoder": True,
    "d_model": 24,
    "encoder_attention_heads": 3,
    "decoder_attention_heads": 3,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "num_mel_bins": 8,
    "max_source_positions": 40,
    "max_target_positions": 256,
    "vocab_size": 128,
}
SPOKEN = {
    "decoder_start_token_id": 122,
    "eos_token_id": 127,
    "forced_decoder_ids": [[1, None], [2, 125], [3, 126]],
    "lang_to_id": {"<|en|>": 123, "<|de|>": 124},
    "no_timestamps_token_id": 126,
    "suppress_tokens": [1, 2, 7, 9, 122, 123, 124, 125, 126],
    "begin_suppress_tokens": [94, 127],
    "max_length": 64,
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
        "t5/config.json": T5,
        "t5/generation_config.json": {"decoder_start_token_id": 124, "eos_token_id": 127, "max_length": 64},
        "t5/tokenizer.json": tokenizer(end="<|end|>"),
        "whisper/config.json": WHISPER,
        "whisper/generation_config.json": SPOKEN,
        "whisper/tokenizer.json": tokenizer(SPEECH),
        "llama/tokenizer.json": tokenizer(),
        "optimum/tokenizer.json": tokenizer(),
        "gpt2/tokenizer.json": tokenizer(),
    }
    for name, content in files.items():
        (HERE / name).parent.mkdir(exist_ok=True)
        (HERE / name).write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
