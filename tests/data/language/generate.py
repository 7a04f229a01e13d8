"""Writes three tiny language models with random weights and, next to each, greedy tokens of ONNX Runtime.

    pip install onnx==1.23.2 onnxruntime==1.31.1 numpy
    python3 generate.py

`llama` has the graph that onnxruntime-genai's builder writes: GroupQueryAttention with lengths that the attention mask
gives, rotary embedding within, RMS normalisation with skips, weights of 4 bits. `gpt2` has the graph of a Hugging Face
export: a cache that each step concatenates, a causal mask made of ranges, weights in f32, embeddings tied to the head.
`optimum` is a Llama as such an export has it: angles of the positions, keys and values repeated by Expand, and a mask
that padding is added to.
"""

import pathlib
import zlib
from dataclasses import dataclass

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

HERE = pathlib.Path(__file__).parent
F32, I64, I32, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.INT32, TensorProto.BOOL
VOCABULARY, LAYERS, PROMPT, STEPS = 128, 2, 9, 200
# Chosen so that there are many different tokens, and each leads by more than rounding.
SEEDS = {"llama": 1, "gpt2": 8, "optimum": 12}


class Graph:
    """A graph in the making: `node` adds a node and returns the name of its first output."""

    def __init__(self, name):
        self.name, self.random = name, np.random.default_rng(zlib.crc32(name.encode()) + SEEDS.get(name, 0))
        self.nodes, self.initializers, self.inputs, self.outputs = [], [], [], []

    def node(self, kind, inputs, name, outputs=1, domain="", **attributes):
        results = [f"{name}/output_{at}" for at in range(outputs)] if isinstance(outputs, int) else outputs
        self.nodes.append(helper.make_node(kind, inputs, results, name=name, domain=domain, **attributes))
        return results[0]

    def constant(self, value, name):
        self.initializers.append(numpy_helper.from_array(value, name))
        return name

    def weights(self, name, *dims, scale=None):
        values = self.random.standard_normal(dims) * (scale or (1.6 / np.sqrt(dims[0]) if len(dims) > 1 else 0.1))
        return self.constant(values.astype(np.float32), name)

    def input(self, name, kind, dims):
        self.inputs.append(helper.make_tensor_value_info(name, kind, dims))
        return name

    def output(self, name, kind, dims):
        self.outputs.append(helper.make_tensor_value_info(name, kind, dims))

    def caches(self, heads, depth, layers=LAYERS):
        for layer in range(layers):
            for part in ("key", "value"):
                past, present = f"past_key_values.{layer}.{part}", f"present.{layer}.{part}"
                self.input(past, F32, ["batch_size", heads, "past_sequence_length", depth])
                self.output(present, F32, ["batch_size", heads, "total_sequence_length", depth])

    def model(self, opset):
        graph = helper.make_graph(self.nodes, self.name, self.inputs, self.outputs, self.initializers)
        opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=10, producer_name="anabranch")
        return model


@dataclass
class Llama:
    """Sizes of a Llama: two layers, 64 wide, 4 heads of 16 that share 2 of keys and values."""

    name: str = "llama"
    layers: int = LAYERS
    width: int = 64
    heads: int = 4
    own: int = 2
    depth: int = 16
    inner: int = 96
    positions: int = 2048
    vocabulary: int = VOCABULARY
    # Attributes of each product with narrow weights.
    products: tuple = ()


def llama(sizes=Llama()):
    graph, width, heads, own = Graph(sizes.name), sizes.width, sizes.heads, sizes.own
    depth, inner, positions = sizes.depth, sizes.inner, sizes.positions
    contributed = {"domain": "com.microsoft"}

    def narrow(x, name, rows, columns):
        blocks = rows // 32
        packed = graph.random.integers(0, 256, (columns, blocks, 16)).astype(np.uint8)
        scales = (graph.random.uniform(0.5, 1.5, columns * blocks) * 0.35 / np.sqrt(rows)).astype(np.float32)
        base = name.strip("/").replace("/", ".")
        inputs = [x, graph.constant(packed, f"{base}.qweight"), graph.constant(scales, f"{base}.scales")]
        described = {"K": rows, "N": columns, "bits": 4, "block_size": 32, **dict(sizes.products)}
        return graph.node("MatMulNBits", inputs, f"{name}/MatMul_Q4", **described, **contributed)

    graph.input("input_ids", I64, ["batch_size", "sequence_length"])
    mask = graph.input("attention_mask", I64, ["batch_size", "total_sequence_length"])
    graph.output("logits", F32, ["batch_size", "sequence_length", sizes.vocabulary])
    graph.caches(own, depth, sizes.layers)
    one, first, single = graph.constant(np.array([1], np.int64), "one"), "gather_axis", "minus_one"
    graph.constant(np.array(1, np.int64), first)
    base = "/model/attn_mask_reformat/attn_mask_subgraph"
    total = graph.node("ReduceSum", [mask, one], f"{base}/ReduceSum", keepdims=0)
    last = graph.node("Sub", [total, one], f"{base}/Sub")
    last = graph.node("Cast", [last], f"{base}/Sub/Cast", to=I32)
    shape = graph.node("Shape", [mask], f"{base}/Shape")
    length = graph.node("Gather", [shape, first], f"{base}/Gather", axis=0)
    length = graph.node("Cast", [length], f"{base}/Gather/Cast", to=I32)
    angles = np.outer(np.arange(positions), 10_000.0 ** (-np.arange(0, depth, 2) / depth))
    caches = [graph.constant(of(angles).astype(np.float32), f"{of.__name__}_cache") for of in (np.cos, np.sin)]

    scale = lambda name: graph.constant((1 + graph.random.standard_normal(width) * 0.1).astype(np.float32), name)
    x = graph.node(
        "Gather",
        [graph.weights("model.embed_tokens.weight", sizes.vocabulary, width), "input_ids"],
        "/model/embed_tokens/Gather",
    )
    skip, added = x, None
    for layer in range(sizes.layers):
        at, to = f"/model/layers.{layer}", f"model.layers.{layer}"
        if added is None:
            x = graph.node(
                "SimplifiedLayerNormalization",
                [skip, scale(f"{to}.input_layernorm.weight")],
                f"{at}/input_layernorm/LayerNorm",
                axis=-1,
                epsilon=1e-5,
                stash_type=1,
            )
        else:
            x, skip = skipped(
                graph, skip, added, scale(f"{to}.input_layernorm.weight"), f"{at}/input_layernorm/SkipLayerNorm"
            )
        qkv = [
            narrow(x, f"{at}/attn/{part}_proj", width, count * depth)
            for part, count in (("q", heads), ("k", own), ("v", own))
        ]
        past = [f"past_key_values.{layer}.{part}" for part in ("key", "value")]
        present = [f"present.{layer}.{part}" for part in ("key", "value")]
        name = f"{at}/attn/GroupQueryAttention"
        x = graph.node(
            "GroupQueryAttention",
            [*qkv, *past, last, length, *caches],
            name,
            [f"{name}/output_0", *present],
            num_heads=heads,
            kv_num_heads=own,
            scale=float(depth**-0.5),
            do_rotary=1,
            rotary_interleaved=0,
            local_window_size=-1,
            **contributed,
        )
        added = narrow(x, f"{at}/attn/o_proj", heads * depth, width)
        x, skip = skipped(
            graph,
            skip,
            added,
            scale(f"{to}.post_attention_layernorm.weight"),
            f"{at}/post_attention_layernorm/SkipLayerNorm",
        )
        gate, up = narrow(x, f"{at}/mlp/gate_proj", width, inner), narrow(x, f"{at}/mlp/up_proj", width, inner)
        active = graph.node(
            "Mul", [gate, graph.node("Sigmoid", [gate], f"{at}/mlp/act_fn/Sigmoid")], f"{at}/mlp/act_fn/Mul"
        )
        added = narrow(graph.node("Mul", [active, up], f"{at}/mlp/Mul"), f"{at}/mlp/down_proj", inner, width)
    final = f"/model/layers.{sizes.layers}/final_norm_layernorm/SkipLayerNorm"
    x, _ = skipped(graph, skip, added, scale("model.norm.weight"), final, last=True)
    narrow(x, "/lm_head", width, sizes.vocabulary)
    graph.nodes[-1].output[0] = "logits"
    return graph.model(21)


def skipped(graph, skip, added, scale, name, last=False):
    """The normalised sum, and the sum itself."""
    outputs = [f"{name}/output_0"] if last else [f"{name}/output_0", "", "", f"{name}/output_3"]
    x = graph.node(
        "SkipSimplifiedLayerNormalization", [skip, added, scale], name, outputs, domain="com.microsoft", epsilon=1e-5
    )
    return x, f"{name}/output_3"


def gpt2():
    """Two layers, 32 wide, 4 heads of 8, positions up to 512."""
    graph, width, heads, depth, positions = Graph("gpt2"), 32, 4, 8, 512
    ids = graph.input("input_ids", I64, ["batch_size", "sequence_length"])
    mask = graph.input("attention_mask", I64, ["batch_size", "total_sequence_length"])
    places = graph.input("position_ids", I64, ["batch_size", "sequence_length"])
    graph.output("logits", F32, ["batch_size", "sequence_length", VOCABULARY])
    graph.caches(heads, depth)
    zero, one = graph.constant(np.array(0, np.int64), "zero"), graph.constant(np.array(1, np.int64), "one")
    least = graph.constant(np.array(np.finfo(np.float32).min, np.float32), "least")
    axes = {
        at: graph.constant(np.array(at, np.int64), name)
        for at, name in (((0, 1, 2), "axes_0_1_2"), ((0, 1, 3), "axes_0_1_3"), ((1, 2), "axes_1_2"))
    }

    table = graph.weights("transformer.wte.weight", VOCABULARY, width, scale=0.5)
    words = graph.node("Gather", [table, ids], "/transformer/wte/Gather")
    x = graph.node(
        "Add",
        [
            words,
            graph.node(
                "Gather",
                [graph.weights("transformer.wpe.weight", positions, width, scale=0.5), places],
                "/transformer/wpe/Gather",
            ),
        ],
        "/transformer/Add",
    )
    size = lambda value, at, name: graph.node(
        "Gather",
        [graph.node("Shape", [value], f"{name}/Shape"), graph.constant(np.array(at, np.int64), f"{name}/at")],
        f"{name}/Gather",
    )
    past, new = size("past_key_values.0.key", 2, "/transformer/past"), size(ids, 1, "/transformer/new")
    total = graph.node("Add", [past, new], "/transformer/Add_1")
    rows = graph.node("Range", [past, total, one], "/transformer/Range")
    queries = graph.node("Unsqueeze", [rows, axes[0, 1, 3]], "/transformer/Unsqueeze")
    columns = graph.node("Range", [zero, total, one], "/transformer/Range_1")
    keys = graph.node("Unsqueeze", [columns, axes[0, 1, 2]], "/transformer/Unsqueeze_1")
    later = graph.node("Greater", [keys, queries], "/transformer/Greater")
    padding = graph.node("Unsqueeze", [mask, axes[1, 2]], "/transformer/Unsqueeze_3")
    padding = graph.node("Equal", [padding, zero], "/transformer/Equal")
    hidden = graph.node("Or", [later, padding], "/transformer/Or")
    bias = graph.node(
        "Where", [hidden, least, graph.constant(np.array(0, np.float32), "nothing")], "/transformer/Where"
    )

    def linear(x, name, rows, columns):
        base = name.strip("/").replace("/", ".")
        product = graph.node("MatMul", [x, graph.weights(f"{base}.weight", rows, columns)], f"{name}/MatMul")
        return graph.node("Add", [product, graph.weights(f"{base}.bias", columns)], f"{name}/Add")

    def normal(x, name):
        base = name.strip("/").replace("/", ".")
        scale = graph.constant((1 + graph.random.standard_normal(width) * 0.1).astype(np.float32), f"{base}.weight")
        return graph.node(
            "LayerNormalization",
            [x, scale, graph.weights(f"{base}.bias", width)],
            f"{name}/LayerNormalization",
            axis=-1,
            epsilon=1e-5,
        )

    into = graph.constant(np.array([0, 0, heads, depth], np.int64), "heads_shape")
    out = graph.constant(np.array([0, 0, width], np.int64), "width_shape")
    sizes = graph.constant(np.array([width] * 3, np.int64), "split_sizes")
    root = graph.constant(np.array(depth**-0.5, np.float32), "scale")
    for layer in range(LAYERS):
        at = f"/transformer/h.{layer}"
        qkv = linear(normal(x, f"{at}/ln_1"), f"{at}/attn/c_attn", width, 3 * width)
        parts = [f"{at}/attn/Split/output_{part}" for part in range(3)]
        graph.node("Split", [qkv, sizes], f"{at}/attn/Split", parts, axis=2)
        parts = [
            graph.node(
                "Transpose",
                [graph.node("Reshape", [part, into], f"{at}/attn/Reshape_{index}")],
                f"{at}/attn/Transpose_{index}",
                perm=[0, 2, 1, 3],
            )
            for index, part in enumerate(parts)
        ]
        cached = [
            graph.node(
                "Concat",
                [f"past_key_values.{layer}.{kind}", part],
                f"{at}/attn/Concat_{kind}",
                [f"present.{layer}.{kind}"],
                axis=2,
            )
            for kind, part in (("key", parts[1]), ("value", parts[2]))
        ]
        across = graph.node("Transpose", [cached[0]], f"{at}/attn/Transpose_3", perm=[0, 1, 3, 2])
        scores = graph.node(
            "Mul", [graph.node("MatMul", [parts[0], across], f"{at}/attn/MatMul"), root], f"{at}/attn/Mul"
        )
        weights = graph.node(
            "Softmax", [graph.node("Add", [scores, bias], f"{at}/attn/Add")], f"{at}/attn/Softmax", axis=-1
        )
        mixed = graph.node(
            "Transpose",
            [graph.node("MatMul", [weights, cached[1]], f"{at}/attn/MatMul_1")],
            f"{at}/attn/Transpose_4",
            perm=[0, 2, 1, 3],
        )
        mixed = graph.node("Reshape", [mixed, out], f"{at}/attn/Reshape_3")
        x = graph.node("Add", [x, linear(mixed, f"{at}/attn/c_proj", width, width)], f"{at}/Add")
        inner = linear(normal(x, f"{at}/ln_2"), f"{at}/mlp/c_fc", width, 4 * width)
        active = graph.node("Gelu", [inner], f"{at}/mlp/act/Gelu", approximate="tanh")
        x = graph.node("Add", [x, linear(active, f"{at}/mlp/c_proj", 4 * width, width)], f"{at}/Add_1")
    x = normal(x, "/transformer/ln_f")
    graph.node(
        "MatMul",
        [x, graph.node("Transpose", [table], "/lm_head/Transpose", perm=[1, 0])],
        "/lm_head/MatMul",
        ["logits"],
    )
    return graph.model(20)


def optimum():
    """Two layers, 32 wide, 4 heads of 8 that share 2 of keys and values, positions up to 2,048."""
    graph, width, heads, own, depth, inner = Graph("optimum"), 32, 4, 2, 8, 48
    ids = graph.input("input_ids", I64, ["batch_size", "sequence_length"])
    mask = graph.input("attention_mask", I64, ["batch_size", "total_sequence_length"])
    places = graph.input("position_ids", I64, ["batch_size", "sequence_length"])
    graph.output("logits", F32, ["batch_size", "sequence_length", VOCABULARY])
    graph.caches(own, depth)
    whole = lambda value, name: graph.constant(np.array(value, np.int64), name)
    real = lambda value, name: graph.constant(np.array(value, np.float32), name)
    zero, one = whole(0, "zero"), whole(1, "one")
    least, nothing = real(np.finfo(np.float32).min, "least"), real(0, "nothing")
    first, second, third, ends = (whole(axes, f"axes_{axes}") for axes in ([0], [1], [2], [1, 2]))

    def size(value, at, name):
        shape = graph.node("Shape", [value], f"{name}/Shape")
        return graph.node("Gather", [shape, whole(at, f"{name}/at")], f"{name}/Gather")

    base = "/model/rotary_emb"
    turns = graph.constant((10_000.0 ** (-np.arange(0, depth, 2) / depth)).astype(np.float32)[None], f"{base}/inv_freq")
    steps = graph.node("Cast", [graph.node("Unsqueeze", [places, third], f"{base}/Unsqueeze")], f"{base}/Cast", to=F32)
    angles = graph.node("MatMul", [steps, turns], f"{base}/MatMul")
    angles = graph.node("Concat", [angles, angles], f"{base}/Concat", axis=-1)
    cosines, sines = (
        graph.node("Unsqueeze", [graph.node(of, [angles], f"{base}/{of}"), second], f"{base}/{of}/Unsqueeze")
        for of in ("Cos", "Sin")
    )

    past, new = size("past_key_values.0.key", 2, "/model/past"), size(ids, 1, "/model/new")
    total = graph.node("Add", [past, new], "/model/Add")
    queries = graph.node("Unsqueeze", [graph.node("Range", [past, total, one], "/model/Range"), second], "/model/rows")
    keys = graph.node("Unsqueeze", [graph.node("Range", [zero, total, one], "/model/Range_1"), first], "/model/columns")
    later = graph.node("Greater", [keys, queries], "/model/Greater")
    causal = graph.node("Where", [later, least, nothing], "/model/Where")
    causal = graph.node("Unsqueeze", [causal, whole([0, 1], "axes_0_1")], "/model/Unsqueeze")
    padding = graph.node("Cast", [graph.node("Unsqueeze", [mask, ends], "/model/Unsqueeze_1")], "/model/Cast", to=F32)
    hidden = graph.node("Equal", [graph.node("Add", [causal, padding], "/model/Add_1"), nothing], "/model/Equal")
    bias = graph.node("Where", [hidden, least, causal], "/model/Where_1")

    two, small = real(2, "two"), real(1e-5, "epsilon")

    def normal(x, name):
        scale = (1 + graph.random.standard_normal(width) * 0.1).astype(np.float32)
        square = graph.node("Pow", [x, two], f"{name}/Pow")
        mean = graph.node("ReduceMean", [square, whole([-1], f"{name}/axis")], f"{name}/ReduceMean")
        root = graph.node("Sqrt", [graph.node("Add", [mean, small], f"{name}/Add")], f"{name}/Sqrt")
        x = graph.node("Div", [x, root], f"{name}/Div")
        scale = graph.constant(scale, f"{name.strip('/').replace('/', '.')}.weight")
        return graph.node("Mul", [scale, x], f"{name}/Mul")

    def linear(x, name, rows, columns):
        weights = graph.weights(f"{name.strip('/').replace('/', '.')}.weight", rows, columns)
        return graph.node("MatMul", [x, weights], f"{name}/MatMul")

    halves = whole([depth // 2] * 2, "halves")

    def by_head(x, count, name):
        x = graph.node("Reshape", [x, whole([0, 0, count, depth], f"{name}/shape")], f"{name}/Reshape")
        return graph.node("Transpose", [x], f"{name}/Transpose", perm=[0, 2, 1, 3])

    def turned(x, name):
        parts = [f"{name}/Split/output_0", f"{name}/Split/output_1"]
        graph.node("Split", [x, halves], f"{name}/Split", parts, axis=3)
        other = graph.node("Concat", [graph.node("Neg", parts[1:], f"{name}/Neg"), parts[0]], f"{name}/Concat", axis=3)
        return graph.node(
            "Add",
            [graph.node("Mul", [x, cosines], f"{name}/Mul"), graph.node("Mul", [other, sines], f"{name}/Mul_1")],
            f"{name}/Add",
        )

    def repeated(x, name):
        x = graph.node("Unsqueeze", [x, third], f"{name}/Unsqueeze")
        x = graph.node("Expand", [x, whole([1, 1, heads // own, 1, 1], f"{name}/repeats")], f"{name}/Expand")
        return graph.node("Reshape", [x, whole([0, heads, -1, depth], f"{name}/merged")], f"{name}/Reshape")

    root, merged = real(depth**-0.5, "scale"), whole([0, 0, heads * depth], "merged_shape")
    table = graph.weights("model.embed_tokens.weight", VOCABULARY, width, scale=0.5)
    x = graph.node("Gather", [table, ids], "/model/embed_tokens/Gather")
    for layer in range(LAYERS):
        at = f"/model/layers.{layer}"
        n = normal(x, f"{at}/input_layernorm")
        q, k, v = (
            by_head(linear(n, f"{at}/self_attn/{part}_proj", width, count * depth), count, f"{at}/self_attn/{part}")
            for part, count in (("q", heads), ("k", own), ("v", own))
        )
        q, k = turned(q, f"{at}/self_attn/q_rotary"), turned(k, f"{at}/self_attn/k_rotary")
        k, v = (
            graph.node(
                "Concat",
                [f"past_key_values.{layer}.{kind}", part],
                f"{at}/self_attn/Concat_{kind}",
                [f"present.{layer}.{kind}"],
                axis=2,
            )
            for kind, part in (("key", k), ("value", v))
        )
        across = repeated(k, f"{at}/self_attn/keys")
        across = graph.node("Transpose", [across], f"{at}/self_attn/Transpose", perm=[0, 1, 3, 2])
        scores = graph.node("MatMul", [q, across], f"{at}/self_attn/MatMul")
        scores = graph.node("Mul", [scores, root], f"{at}/self_attn/Mul")
        scores = graph.node("Add", [scores, bias], f"{at}/self_attn/Add")
        weights = graph.node("Softmax", [scores], f"{at}/self_attn/Softmax", axis=-1)
        mixed = graph.node("MatMul", [weights, repeated(v, f"{at}/self_attn/values")], f"{at}/self_attn/MatMul_1")
        mixed = graph.node("Transpose", [mixed], f"{at}/self_attn/Transpose_1", perm=[0, 2, 1, 3])
        mixed = graph.node("Reshape", [mixed, merged], f"{at}/self_attn/Reshape")
        x = graph.node("Add", [x, linear(mixed, f"{at}/self_attn/o_proj", heads * depth, width)], f"{at}/Add")
        n = normal(x, f"{at}/post_attention_layernorm")
        gate, up = (linear(n, f"{at}/mlp/{part}_proj", width, inner) for part in ("gate", "up"))
        active = graph.node("Sigmoid", [gate], f"{at}/mlp/act_fn/Sigmoid")
        active = graph.node("Mul", [gate, active], f"{at}/mlp/act_fn/Mul")
        down = linear(graph.node("Mul", [active, up], f"{at}/mlp/Mul"), f"{at}/mlp/down_proj", inner, width)
        x = graph.node("Add", [x, down], f"{at}/Add_1")
    linear(normal(x, "/model/norm"), "/lm_head", width, VOCABULARY)
    graph.nodes[-1].output[0] = "logits"
    return graph.model(18)


def greedy(model):
    """A prompt, its greedy tokens, the logits of the prompt, and the least lead of a chosen token over the next."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = {value.name: value for value in session.get_inputs()}
    state = {
        name: np.zeros((1, value.shape[1], 0, value.shape[3]), np.float32)
        for name, value in names.items()
        if name.startswith("past")
    }
    prompt = np.random.default_rng(7).integers(0, VOCABULARY, PROMPT)
    tokens, fed, seen, lead, shown = [], prompt, 0, np.inf, None
    for _ in range(STEPS):
        seen += len(fed)
        inputs = {"input_ids": fed[None], "attention_mask": np.ones((1, seen), np.int64), **state}
        if "position_ids" in names:
            inputs["position_ids"] = np.arange(seen - len(fed), seen)[None]
        logits, *present = session.run(None, inputs)
        state = dict(zip(state, present))
        shown = logits if shown is None else shown
        order = np.sort(logits[0, -1])
        lead = min(lead, order[-1] - order[-2])
        tokens.append(int(logits[0, -1].argmax()))
        fed = np.array(tokens[-1:])
    return prompt, np.array(tokens), shown, lead


if __name__ == "__main__":
    for made in (llama(), gpt2(), optimum()):
        folder = HERE / made.graph.name
        folder.mkdir(exist_ok=True)
        (folder / "model.onnx").write_bytes(made.SerializeToString())
        prompt, tokens, logits, lead = greedy(made)
        np.savez(folder / "greedy.npz", prompt=prompt, tokens=tokens, logits=logits)
        print(
            made.graph.name, made.ByteSize(), "bytes,", len(set(tokens.tolist())), "different tokens, least lead", lead
        )
