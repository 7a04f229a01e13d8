"""Llama models with random weights, as a folder of onnxruntime-genai and as a GGUF file with the same 4-bit numbers."""

import json
import shutil
import sys
from pathlib import Path

import numpy as np
from onnx import numpy_helper

ROOT = Path(__file__).resolve().parents[3]
FIXTURES = ROOT / "tests/data/language"
sys.path.insert(0, str(FIXTURES))
import generate  # noqa: E402

# Sizes by name: about 0.1 and 0.45 billion parameters.
SIZES = {
    "0.1b": dict(layers=12, width=768, heads=12, own=4, depth=64, inner=2048, positions=4096, vocabulary=32000),
    "0.45b": dict(layers=20, width=1280, heads=20, own=4, depth=64, inner=3840, positions=4096, vocabulary=32000),
}
# Weights that share a scale.
BLOCK = 32


def make(directory, name):
    """Writes the models of a size, unless they are there. Returns the folders by accuracy level, and the GGUF file."""
    folders = {level: directory / f"llama-{name}-level{level}" for level in (0, 4)}
    gguf = directory / f"llama-{name}.gguf"
    if gguf.exists() and all((folder / "model.onnx").exists() for folder in folders.values()):
        return folders, gguf
    for level, folder in folders.items():
        products = (("accuracy_level", level),) if level else ()
        sizes = generate.Llama(name=f"llama-{name}", products=products, **SIZES[name])
        model = generate.llama(sizes)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "model.onnx").write_bytes(model.SerializeToString())
        (folder / "genai_config.json").write_text(json.dumps(config(sizes), indent=1) + "\n")
        for file in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(FIXTURES / "llama" / file, folder / file)
    # Written last: its presence says that everything is there.
    write_gguf(gguf, sizes, {value.name: numpy_helper.to_array(value) for value in model.graph.initializer})
    return folders, gguf


def config(sizes):
    """The configuration of the fixture with these sizes. No token ends the text."""
    config = json.loads((FIXTURES / "llama/genai_config.json").read_text())
    model, decoder = config["model"], config["model"]["decoder"]
    model.update(context_length=sizes.positions, vocab_size=sizes.vocabulary, eos_token_id=sizes.vocabulary - 1)
    model.update(pad_token_id=sizes.vocabulary - 1, bos_token_id=sizes.vocabulary - 2)
    decoder.update(head_size=sizes.depth, hidden_size=sizes.width, num_attention_heads=sizes.heads)
    decoder.update(num_hidden_layers=sizes.layers, num_key_value_heads=sizes.own)
    decoder["session_options"] = {"provider_options": []}
    config["search"]["max_length"] = sizes.positions
    return config


def write_gguf(path, sizes, weights):
    import gguf

    writer = gguf.GGUFWriter(path.with_suffix(".part"), "llama")
    writer.add_block_count(sizes.layers)
    writer.add_context_length(sizes.positions)
    writer.add_embedding_length(sizes.width)
    writer.add_feed_forward_length(sizes.inner)
    writer.add_head_count(sizes.heads)
    writer.add_head_count_kv(sizes.own)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(sizes.depth)
    writer.add_vocab_size(sizes.vocabulary)
    writer.add_tokenizer_model("none")
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q4_0)

    def narrow(name, base, heads=None):
        blocks = q4_0(weights[f"{base}.qweight"], weights[f"{base}.scales"])
        if heads:
            blocks = interleaved(blocks, heads)
        writer.add_tensor(name, blocks, raw_dtype=gguf.GGMLQuantizationType.Q4_0)

    writer.add_tensor("token_embd.weight", weights["model.embed_tokens.weight"])
    for layer in range(sizes.layers):
        at, to = f"model.layers.{layer}", f"blk.{layer}"
        writer.add_tensor(f"{to}.attn_norm.weight", weights[f"{at}.input_layernorm.weight"])
        writer.add_tensor(f"{to}.ffn_norm.weight", weights[f"{at}.post_attention_layernorm.weight"])
        narrow(f"{to}.attn_q.weight", f"{at}.attn.q_proj", sizes.heads)
        narrow(f"{to}.attn_k.weight", f"{at}.attn.k_proj", sizes.own)
        narrow(f"{to}.attn_v.weight", f"{at}.attn.v_proj")
        narrow(f"{to}.attn_output.weight", f"{at}.attn.o_proj")
        for part in ("gate", "up", "down"):
            narrow(f"{to}.ffn_{part}.weight", f"{at}.mlp.{part}_proj")
    writer.add_tensor("output_norm.weight", weights["model.norm.weight"])
    narrow("output.weight", "lm_head")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    path.with_suffix(".part").rename(path)


def q4_0(packed, scales):
    """Blocks of GGML: a scale in binary16, then 16 bytes, each with a number of the first and of the second half."""
    columns, blocks, _ = packed.shape
    numbers = np.stack([packed & 15, packed >> 4], axis=-1).reshape(columns, blocks, BLOCK)
    halves = numbers[..., : BLOCK // 2] | numbers[..., BLOCK // 2 :] << 4
    scales = scales.reshape(columns, blocks, 1).astype(np.float16).view(np.uint8)
    return np.concatenate([scales, halves], axis=-1).reshape(columns, -1)


def interleaved(rows, heads):
    """Rows of each head, of which two neighbours are turned together: ONNX turns a row and that half a head further."""
    return rows.reshape(heads, 2, -1, rows.shape[-1]).swapaxes(1, 2).reshape(rows.shape)
