"""Writes two tiny encoder-decoder models with random weights and, next to each, greedy tokens of ONNX Runtime.

    pip install onnx==1.23.2 onnxruntime==1.32.0 numpy
    python3 seq2seq.py

Both have names, shapes and files of optimum's exports. `t5` is an encoder of tokens and two decoders, one for the first
step and one with a cache: relative positions, RMS normalisation, no scale. `whisper` is an encoder of features and a
merged decoder, whose `use_cache_branch` chooses between two graphs with the same weights. Its branch with a cache makes
no cross-attention cache, but tensors without elements instead.
"""

import json
from itertools import count

import numpy as np
import onnxruntime
from generate import BOOL, F32, HERE, I64, STEPS, VOCABULARY, Graph
from onnx import helper

LAYERS, WIDTH, HEADS, DEPTH, INNER = 2, 24, 3, 8, 48
MELS, FRAMES, POSITIONS = 8, 40, 256
# Chosen so that there are many different tokens, and each leads by more than rounding.
SEEDS = {"t5": 43, "whisper": 3}


class Part(Graph):
    """A graph of a model in several parts, which share weights by name. Branches share a graph's initializers, too."""

    def __init__(self, name, shared, initializers=None):
        super().__init__(name)
        self.shared, self.count = shared, count()
        self.initializers = [] if initializers is None else initializers

    def constant(self, value, name):
        if all(own.name != name for own in self.initializers):
            super().constant(value, name)
        return name

    def weights(self, name, *dims, scale=None):
        if name not in self.shared:
            values = self.shared["random"].standard_normal(dims) * (scale or 1.6 / np.sqrt(dims[0]))
            self.shared[name] = values.astype(np.float32)
        return self.constant(self.shared[name], name)

    def whole(self, value):
        value = np.array(value, np.int64)
        return self.constant(value, f"whole_{'_'.join(map(str, value.ravel()))}_{value.ndim}".replace("-", "m"))

    def real(self, value):
        return self.constant(np.array(value, np.float32), f"real_{value}")

    def op(self, kind, *inputs, made=None, **attributes):
        """A node with a name of its own; `made` names its output."""
        name = f"/{self.name}/{kind}_{next(self.count)}"
        return self.node(kind, list(inputs), name, [made] if made else 1, **attributes)

    def size(self, value, at):
        return self.op("Gather", self.op("Shape", value), self.whole(at))

    def linear(self, x, name, rows, columns, bias=False, made=None):
        if not bias:
            return self.op("MatMul", x, self.weights(f"{name}.weight", rows, columns), made=made)
        product = self.op("MatMul", x, self.weights(f"{name}.weight", rows, columns))
        return self.op("Add", product, self.weights(f"{name}.bias", columns, scale=0.1), made=made)

    def by_head(self, x):
        x = self.op("Reshape", x, self.whole([0, -1, HEADS, DEPTH]))
        return self.op("Transpose", x, perm=[0, 2, 1, 3])

    def attention(self, q, k, v, bias, scale):
        scores = self.op("MatMul", q, self.op("Transpose", k, perm=[0, 1, 3, 2]))
        scores = self.op("Mul", scores, self.real(scale)) if scale != 1 else scores
        scores = self.op("Add", scores, bias) if bias else scores
        mixed = self.op("MatMul", self.op("Softmax", scores, axis=-1), v)
        mixed = self.op("Transpose", mixed, perm=[0, 2, 1, 3])
        return self.op("Reshape", mixed, self.whole([0, 0, HEADS * DEPTH]))

    def rows_and_columns(self, rows, columns, begin):
        """The positions of queries and of keys, to be subtracted from each other."""
        one, zero = self.whole(1), self.whole(0)
        queries = self.op("Range", begin, self.op("Add", begin, rows), one)
        keys = self.op("Range", zero, columns, one)
        return self.op("Unsqueeze", queries, self.whole([1])), self.op("Unsqueeze", keys, self.whole([0]))

    def causal(self, queries, keys):
        hidden = self.op("Greater", keys, queries)
        return self.op("Where", hidden, self.real(float(np.finfo(np.float32).min)), self.real(0.0))

    def cached(self, at, kind, new, past):
        """Self-attention's keys or values, after those of the cache if there is one."""
        present = f"present.{at}.decoder.{kind}"
        if past:
            return self.op("Concat", f"past_key_values.{at}.decoder.{kind}", new, axis=2, made=present)
        return self.op("Identity", new, made=present)

    def crossed(self, at, kind, hidden, project, past):
        """Cross-attention's keys or values: the cache, or the projected hidden states."""
        if past:
            return f"past_key_values.{at}.encoder.{kind}"
        return self.op("Identity", self.by_head(project(hidden)), made=f"present.{at}.encoder.{kind}")


def declare(part, past, encoder_length):
    """Inputs of a cache and outputs of a decoder, as optimum declares them."""
    now = "past_decoder_sequence_length + 1" if past else "decoder_sequence_length"
    part.output("logits", F32, ["batch_size", "decoder_sequence_length", VOCABULARY])
    for layer in range(LAYERS):
        for side in ("decoder", "encoder"):
            for kind in ("key", "value"):
                length = "past_decoder_sequence_length" if side == "decoder" else encoder_length
                if past:
                    dims = ["batch_size", HEADS, length, DEPTH]
                    part.input(f"past_key_values.{layer}.{side}.{kind}", F32, dims)
                if side == "decoder" or not past:
                    dims = ["batch_size", HEADS, now if side == "decoder" else encoder_length, DEPTH]
                    part.output(f"present.{layer}.{side}.{kind}", F32, dims)


def rms(part, x, name):
    scale = part.weights(f"{name}.weight", WIDTH, scale=1.0)
    mean = part.op("ReduceMean", part.op("Pow", x, part.real(2.0)), part.whole([-1]))
    root = part.op("Sqrt", part.op("Add", mean, part.real(1e-6)))
    return part.op("Mul", scale, part.op("Div", x, root))


def relative(part, name, queries, keys, both):
    """T5's bias of relative positions: 8 buckets up to a distance of 16."""
    buckets, most = 8, 16
    apart = part.op("Sub", keys, queries)
    if both:
        buckets //= 2
        offset = part.op("Mul", part.op("Cast", part.op("Greater", apart, part.whole(0)), to=I64), part.whole(buckets))
        apart = part.op("Abs", apart)
    else:
        apart = part.op("Neg", part.op("Min", apart, part.whole(0)))
    exact = buckets // 2
    floats = part.op("Cast", part.op("Max", apart, part.whole(1)), to=F32)
    far = part.op("Log", part.op("Div", floats, part.real(float(exact))))
    far = part.op("Mul", far, part.real(float((buckets - exact) / np.log(most / exact))))
    far = part.op("Add", part.op("Cast", far, to=I64), part.whole(exact))
    far = part.op("Min", far, part.whole(buckets - 1))
    bucket = part.op("Where", part.op("Less", apart, part.whole(exact)), apart, far)
    bucket = part.op("Add", bucket, offset) if both else bucket
    table = part.weights(f"{name}.relative_attention_bias.weight", 8, HEADS, scale=1.0)
    bias = part.op("Transpose", part.op("Gather", table, bucket), perm=[2, 0, 1])
    return part.op("Unsqueeze", bias, part.whole([0]))


def hiding(part, mask):
    """0 for keys that a mask shows, and the lowest number for others."""
    mask = part.op("Cast", part.op("Unsqueeze", mask, part.whole([1, 2])), to=F32)
    lowest = part.real(float(np.finfo(np.float32).min))
    return part.op("Mul", part.op("Sub", part.real(1.0), mask), lowest)


def t5_encoder(shared):
    part = Part("encoder", shared)
    ids = part.input("input_ids", I64, ["batch_size", "encoder_sequence_length"])
    mask = part.input("attention_mask", I64, ["batch_size", "encoder_sequence_length"])
    part.output("last_hidden_state", F32, ["batch_size", "encoder_sequence_length", WIDTH])
    x = part.op("Gather", part.weights("shared.weight", VOCABULARY, WIDTH, scale=1.0), ids)
    length = part.size(ids, 1)
    queries, keys = part.rows_and_columns(length, length, part.whole(0))
    bias = part.op("Add", relative(part, "encoder", queries, keys, both=True), hiding(part, mask))
    for layer in range(LAYERS):
        at = f"encoder.block.{layer}"
        n = rms(part, x, f"{at}.layer.0.layer_norm")
        q, k, v = (part.by_head(part.linear(n, f"{at}.layer.0.SelfAttention.{w}", WIDTH, WIDTH)) for w in "qkv")
        mixed = part.attention(q, k, v, bias, 1)
        x = part.op("Add", x, part.linear(mixed, f"{at}.layer.0.SelfAttention.o", WIDTH, WIDTH))
        x = forward(part, x, at, 1)
    x = rms(part, x, "encoder.final_layer_norm")
    part.op("Identity", x, made="last_hidden_state")
    return part


def forward(part, x, at, layer):
    n = rms(part, x, f"{at}.layer.{layer}.layer_norm")
    n = part.op("Relu", part.linear(n, f"{at}.layer.{layer}.DenseReluDense.wi", WIDTH, INNER))
    return part.op("Add", x, part.linear(n, f"{at}.layer.{layer}.DenseReluDense.wo", INNER, WIDTH))


def t5_decoder(shared, past):
    part = Part("decoder_with_past" if past else "decoder", shared)
    mask = part.input("encoder_attention_mask", I64, ["batch_size", "encoder_sequence_length"])
    ids = part.input("input_ids", I64, ["batch_size", 1 if past else "decoder_sequence_length"])
    hidden = None
    if not past:
        hidden = part.input("encoder_hidden_states", F32, ["batch_size", "encoder_sequence_length", WIDTH])
    declare(part, past, "encoder_sequence_length_out")
    x = part.op("Gather", part.weights("shared.weight", VOCABULARY, WIDTH, scale=1.0), ids)
    begin = part.size("past_key_values.0.decoder.key", 2) if past else part.whole(0)
    new = part.size(ids, 1)
    queries, keys = part.rows_and_columns(new, part.op("Add", begin, new), begin)
    bias = part.op("Add", relative(part, "decoder", queries, keys, both=False), part.causal(queries, keys))
    across = hiding(part, mask)
    for layer in range(LAYERS):
        at = f"decoder.block.{layer}"
        n = rms(part, x, f"{at}.layer.0.layer_norm")
        project = lambda x, w: part.linear(x, f"{at}.layer.0.SelfAttention.{w}", WIDTH, WIDTH)
        q, k, v = (part.by_head(project(n, w)) for w in "qkv")
        k, v = part.cached(layer, "key", k, past), part.cached(layer, "value", v, past)
        x = part.op("Add", x, project(part.attention(q, k, v, bias, 1), "o"))
        n = rms(part, x, f"{at}.layer.1.layer_norm")
        project = lambda x, w: part.linear(x, f"{at}.layer.1.EncDecAttention.{w}", WIDTH, WIDTH)
        q = part.by_head(project(n, "q"))
        k = part.crossed(layer, "key", hidden, lambda x: project(x, "k"), past)
        v = part.crossed(layer, "value", hidden, lambda x: project(x, "v"), past)
        x = part.op("Add", x, project(part.attention(q, k, v, across, 1), "o"))
        x = forward(part, x, at, 2)
    x = part.op("Mul", rms(part, x, "decoder.final_layer_norm"), part.real(float(WIDTH**-0.5)))
    part.linear(x, "lm_head", WIDTH, VOCABULARY, made="logits")
    return part


def normal(part, x, name):
    scale, bias = (part.weights(f"{name}.{what}", WIDTH, scale=1.0) for what in ("weight", "bias"))
    return part.op("LayerNormalization", x, scale, bias, axis=-1, epsilon=1e-5)


def halves(part, x, at):
    n = normal(part, x, f"{at}.final_layer_norm")
    n = part.op("Gelu", part.linear(n, f"{at}.fc1", WIDTH, INNER, bias=True))
    return part.op("Add", x, part.linear(n, f"{at}.fc2", INNER, WIDTH, bias=True))


def projected(part, name):
    return lambda x, which: part.linear(x, f"{name}.{which}_proj", WIDTH, WIDTH, bias=which != "k")


def whisper_encoder(shared):
    part = Part("encoder", shared)
    features = part.input("input_features", F32, ["batch_size", MELS, 2 * FRAMES])
    part.output("last_hidden_state", F32, ["batch_size", FRAMES, WIDTH])
    convolve = lambda x, name, channels, stride: part.op(
        "Gelu",
        part.op(
            "Conv",
            x,
            part.weights(f"encoder.{name}.weight", WIDTH, channels, 3, scale=0.4),
            part.weights(f"encoder.{name}.bias", WIDTH, scale=0.1),
            kernel_shape=[3],
            strides=[stride],
            pads=[1, 1],
        ),
    )
    x = convolve(convolve(features, "conv1", MELS, 1), "conv2", WIDTH, 2)
    x = part.op("Transpose", x, perm=[0, 2, 1])
    x = part.op("Add", x, part.weights("encoder.embed_positions.weight", FRAMES, WIDTH, scale=0.3))
    for layer in range(LAYERS):
        at = f"encoder.layers.{layer}"
        project = projected(part, f"{at}.self_attn")
        n = normal(part, x, f"{at}.self_attn_layer_norm")
        q, k, v = (part.by_head(project(n, w)) for w in "qkv")
        x = part.op("Add", x, project(part.attention(q, k, v, None, DEPTH**-0.5), "out"))
        x = halves(part, x, at)
    part.op("Identity", normal(part, x, "encoder.layer_norm"), made="last_hidden_state")
    return part


def whisper_decoder(shared, past, initializers):
    part = Part("decoder_with_past" if past else "decoder", shared, initializers)
    declare(part, past, "encoder_sequence_length_out")
    x = part.op("Gather", part.weights("decoder.embed_tokens.weight", VOCABULARY, WIDTH, scale=0.4), "input_ids")
    places = part.weights("decoder.embed_positions.weight", POSITIONS, WIDTH, scale=1.0)
    x = part.op("Add", x, part.op("Gather", places, "cache_position"))
    begin = part.size("past_key_values.0.decoder.key", 2) if past else part.whole(0)
    new = part.size("input_ids", 1)
    bias = part.causal(*part.rows_and_columns(new, part.op("Add", begin, new), begin))
    for layer in range(LAYERS):
        at = f"decoder.layers.{layer}"
        project = projected(part, f"{at}.self_attn")
        n = normal(part, x, f"{at}.self_attn_layer_norm")
        q, k, v = (part.by_head(project(n, w)) for w in "qkv")
        k, v = part.cached(layer, "key", k, past), part.cached(layer, "value", v, past)
        x = part.op("Add", x, project(part.attention(q, k, v, bias, DEPTH**-0.5), "out"))
        across = projected(part, f"{at}.encoder_attn")
        n = normal(part, x, f"{at}.encoder_attn_layer_norm")
        q = part.by_head(across(n, "q"))
        k = part.crossed(layer, "key", "encoder_hidden_states", lambda x: across(x, "k"), past)
        v = part.crossed(layer, "value", "encoder_hidden_states", lambda x: across(x, "v"), past)
        x = part.op("Add", x, across(part.attention(q, k, v, None, DEPTH**-0.5), "out"))
        x = halves(part, x, at)
    head = part.op("Transpose", "decoder.embed_tokens.weight", perm=[1, 0])
    part.op("MatMul", normal(part, x, "decoder.layer_norm"), head, made="logits")
    if past:
        empty = np.zeros((0, HEADS, 1, DEPTH), np.float32)
        for layer in range(LAYERS):
            for kind in ("key", "value"):
                name = f"present.{layer}.encoder.{kind}"
                part.op("Identity", part.constant(empty, "no_cache"), made=name)
                part.output(name, F32, [0, HEADS, 1, DEPTH])
    return part


def whisper_merged(shared):
    """One `If` with two graphs, whose weights are the model's."""
    whole = Part("decoder_merged", shared)
    first, later = (whisper_decoder(shared, past, whole.initializers) for past in (False, True))
    order = sorted(output.name for output in first.outputs)
    graphs = [
        helper.make_graph(part.nodes, part.name, [], sorted(part.outputs, key=lambda output: output.name))
        for part in (later, first)
    ]
    whole.input("input_ids", I64, ["batch_size", "decoder_sequence_length"])
    whole.input("encoder_hidden_states", F32, ["batch_size", FRAMES, WIDTH])
    whole.inputs += later.inputs
    whole.input("cache_position", I64, ["decoder_sequence_length"])
    whole.input("use_cache_branch", BOOL, [1])
    # Self-attention's cache is declared as the later steps have it, and cross-attention's as the first has.
    declared = {output.name: output for output in first.outputs}
    declared |= {output.name: output for output in later.outputs if ".encoder." not in output.name}
    whole.outputs = [declared[name] for name in order]
    branches = dict(then_branch=graphs[0], else_branch=graphs[1])
    whole.node("If", ["use_cache_branch"], "optimum::if", order, **branches)
    return whole


class Session:
    """A model of ONNX Runtime, which takes of all that it is given what it has inputs for."""

    def __init__(self, model):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.own = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        self.inputs = [value.name for value in self.own.get_inputs()]
        self.outputs = [value.name for value in self.own.get_outputs()]

    def __call__(self, given):
        made = self.own.run(None, {name: given[name] for name in self.inputs})
        return dict(zip(self.outputs, made))


def greedy(encoder, first, later, given, start, rules):
    """Greedy tokens, the logits of the first step, and the least lead of a chosen token over the next."""
    hidden = encoder(given)["last_hidden_state"]
    given = given | {"encoder_hidden_states": hidden, "encoder_attention_mask": given.get("attention_mask")}
    for layer in range(LAYERS):
        for side in ("decoder", "encoder"):
            for kind in ("key", "value"):
                given[f"past_key_values.{layer}.{side}.{kind}"] = np.zeros((1, HEADS, 1, DEPTH), np.float32)
    tokens, fed, seen, lead, shown = [], np.array([[start]]), 0, np.inf, None
    for step in range(1, STEPS + 1):
        given["input_ids"], given["cache_position"] = fed, np.arange(seen, seen + 1)
        given["use_cache_branch"] = np.array([step > 1])
        made = (later if step > 1 else first)(given)
        given |= {
            name.replace("present", "past_key_values"): value
            for name, value in made.items()
            if name.startswith("present") and value.size
        }
        logits = made["logits"][0, -1].copy()
        shown = made["logits"] if shown is None else shown
        rules(step, logits)
        order = np.sort(logits)
        lead = min(lead, order[-1] - order[-2])
        tokens.append(int(logits.argmax()))
        fed, seen = np.array([tokens[-1:]]), seen + 1
    return np.array(tokens), shown, lead


def configured(name):
    """The rules of a configuration as Hugging Face describes them: what is forbidden gets a logit of −∞."""
    config = json.loads((HERE / name / "generation_config.json").read_text(encoding="utf-8"))
    forced = dict(config.get("forced_decoder_ids", []))

    def rules(step, logits):
        allowed = np.ones(len(logits), bool)
        allowed[config.get("suppress_tokens", [])] = False
        if step == len(forced) + 1:
            allowed[config.get("begin_suppress_tokens", [])] = False
        if step in forced:
            allowed[:] = False
            allowed[list(config["lang_to_id"].values()) if forced[step] is None else forced[step]] = True
        logits[~allowed] = -np.inf

    return config["decoder_start_token_id"], rules


def made(name, seed):
    shared, random = {"random": np.random.default_rng(seed)}, np.random.default_rng(7)
    if name == "t5":
        models = {
            "encoder_model": t5_encoder(shared).model(18),
            "decoder_model": t5_decoder(shared, False).model(18),
            "decoder_with_past_model": t5_decoder(shared, True).model(18),
        }
        prompt = random.integers(0, VOCABULARY, (1, 11))
        given = {"input_ids": prompt, "attention_mask": np.ones_like(prompt)}
        arrays = {"prompt": prompt[0]}
    else:
        models = {
            "encoder_model": whisper_encoder(shared).model(20),
            "decoder_model_merged": whisper_merged(shared).model(20),
        }
        features = random.standard_normal((1, MELS, 2 * FRAMES)).astype(np.float32)
        given, arrays = {"input_features": features}, {"features": features}
    sessions = [Session(model) for model in models.values()]
    tokens, logits, lead = greedy(sessions[0], sessions[1], sessions[-1], given, *configured(name))
    return models, arrays | {"tokens": tokens, "logits": logits}, lead


if __name__ == "__main__":
    for name, seed in SEEDS.items():
        models, arrays, lead = made(name, seed)
        for file, model in models.items():
            (HERE / name / f"{file}.onnx").write_bytes(model.SerializeToString())
        np.savez(HERE / name / "greedy.npz", **arrays)
        different = len(set(arrays["tokens"].tolist()))
        print(name, sum(model.ByteSize() for model in models.values()), "bytes,", different, "tokens, least lead", lead)
