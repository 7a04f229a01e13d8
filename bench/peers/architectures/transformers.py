"""Transformers: ViT-S/16, BERT, GPT-2 with and without a cache, Llama's layers, Whisper's encoder; MLP-Mixer-S/16."""

import numpy

from graph import Graph

BRANCH = 0.3  # the gain of what is added in a residual block


def heads_of(graph, x, tokens, heads, size):
    """[1, tokens, heads · size] as [1, heads, tokens, size]."""
    return graph.transpose(graph.reshape(x, 1, tokens, heads, size), 0, 2, 1, 3)


def joined(graph, x, tokens, width):
    return graph.reshape(graph.transpose(x, 0, 2, 1, 3), 1, tokens, width)


def attention(graph, q, k, v, size, masked=None):
    """Of heads; the keys are transposed here, and the queries scaled behind the product."""
    scores = graph.node("MatMul", q, graph.transpose(k, 0, 1, 3, 2))
    scores = graph.node("Div", scores, graph.scalar(size**0.5))
    weights = graph.node("Softmax", masked(scores) if masked else scores, axis=-1)
    return graph.node("MatMul", weights, v)


def separate(graph, x, tokens, width, heads, masked=None):
    """Self-attention whose queries, keys and values are a product each."""
    q, k, v = (heads_of(graph, graph.linear(x, width, width), tokens, heads, width // heads) for _ in range(3))
    mixed = joined(graph, attention(graph, q, k, v, width // heads, masked), tokens, width)
    return graph.linear(mixed, width, width, BRANCH)


def feed_forward(graph, x, width, activation):
    return graph.linear(activation(graph.linear(x, width, 4 * width)), 4 * width, width, BRANCH)


def vit(directory, width=384, heads=6, layers=12, patches=14 * 14):
    """ViT-S/16 (Dosovitskiy et al. 2021): queries, keys and values are one product."""
    graph, size = Graph("vit_small"), width // heads
    x = graph.conv(graph.input("image", 1, 3, 224, 224), 3, width, 16, stride=16, pad=0, gain=1)
    x = graph.transpose(graph.reshape(x, 1, width, patches), 0, 2, 1)
    tokens = patches + 1
    x = graph.node("Concat", graph.weight(1, 1, width, terms=1), x, axis=1)
    x = graph.node("Add", x, graph.weight(1, tokens, width, terms=10))
    for _ in range(layers):
        together = graph.linear(graph.layer_norm(x, width, 1e-6), width, 3 * width)
        together = graph.transpose(graph.reshape(together, 1, tokens, 3, heads, size), 2, 0, 3, 1, 4)
        q, k, v = (graph.node("Gather", together, graph.index(at), axis=0) for at in range(3))
        mixed = joined(graph, attention(graph, q, k, v, size), tokens, width)
        x = graph.node("Add", x, graph.linear(mixed, width, width, BRANCH))
        x = graph.node("Add", x, feed_forward(graph, graph.layer_norm(x, width, 1e-6), width, graph.gelu))
    x = graph.node("Gather", graph.layer_norm(x, width, 1e-6), graph.index(0), axis=1)
    graph.save(directory, graph.gemm(x, width, 1000))


def bert(directory, width=768, heads=12, layers=12, tokens=128, vocabulary=30522):
    """BERT-base (Devlin et al. 2019), with a mask of the tokens that are there."""
    graph = Graph("bert_base")
    words, mask = graph.input("tokens", 1, tokens, below=vocabulary), graph.input("mask", 1, tokens, below=2)
    there = graph.node("Cast", graph.node("Unsqueeze", mask, graph.integers(1, 2)), to=1)
    hidden = graph.node("Mul", graph.node("Sub", graph.scalar(1), there), graph.scalar(numpy.finfo(numpy.float32).min))
    table = graph.weight(vocabulary, width, terms=1)
    x = graph.node("Add", graph.node("Gather", table, words), graph.weight(1, tokens, width, terms=1))
    x = graph.layer_norm(x, width, 1e-12)
    for _ in range(layers):
        y = separate(graph, x, tokens, width, heads, lambda scores: graph.node("Add", scores, hidden))
        x = graph.layer_norm(graph.node("Add", y, x), width, 1e-12)
        x = graph.layer_norm(graph.node("Add", feed_forward(graph, x, width, graph.gelu), x), width, 1e-12)
    graph.save(directory, x)


def gpt2(directory, tokens, past, width=768, heads=12, layers=6, vocabulary=8192):
    """Six layers of GPT-2 (Radford et al. 2019) over some tokens behind others, whose keys and values are in a cache."""
    graph, size = Graph("gpt2_cached" if past else "gpt2"), width // heads
    dense = lambda x, rows, columns, gain=1: graph.reshape(
        graph.gemm(graph.reshape(x, -1, rows), rows, columns, gain), 1, tokens, columns)
    words, presents = graph.input("tokens", 1, tokens, below=vocabulary), []
    x = graph.node("Gather", graph.weight(vocabulary, width, terms=1), words)
    x = graph.node("Add", x, graph.weight(1, tokens, width, terms=1))
    masked = causal(graph, tokens) if tokens > 1 else None
    for layer in range(layers):
        together = dense(graph.layer_norm(x, width), width, 3 * width)
        parts = graph.outputs_of("Split", 3, together, graph.integers(width, width, width), axis=2)
        q, k, v = (heads_of(graph, part, tokens, heads, size) for part in parts)
        if past:
            before = [graph.input(f"past_{part}_{layer}", 1, heads, past, size) for part in ("key", "value")]
            k, v = (graph.node("Concat", old, new, axis=2) for old, new in zip(before, (k, v)))
            presents += [k, v]
        mixed = joined(graph, attention(graph, q, k, v, size, masked), tokens, width)
        x = graph.node("Add", dense(mixed, width, width, BRANCH), x)
        y = gelu_by_tanh(graph, dense(graph.layer_norm(x, width), width, 4 * width))
        x = graph.node("Add", x, dense(y, 4 * width, width, BRANCH))
    head = graph.weight(width, vocabulary, terms=width)
    graph.save(directory, graph.node("MatMul", graph.layer_norm(x, width), head), *presents)


def causal(graph, tokens):
    """What puts the least number in the place of what a token must not see."""
    seen = graph.array(numpy.tril(numpy.ones((1, 1, tokens, tokens), bool)))
    return lambda scores: graph.node("Where", seen, scores, graph.scalar(numpy.finfo(numpy.float32).min))


def gelu_by_tanh(graph, x):
    cube = graph.node("Mul", graph.node("Pow", x, graph.scalar(3)), graph.scalar(0.044715))
    inner = graph.node("Mul", graph.node("Add", x, cube), graph.scalar((2 / numpy.pi) ** 0.5))
    gate = graph.node("Add", graph.node("Tanh", inner), graph.scalar(1))
    return graph.node("Mul", graph.node("Mul", x, graph.scalar(0.5)), gate)


def llama(directory, width=1024, heads=16, groups=4, hidden=2816, layers=2, tokens=128):
    """Layers of Llama (Touvron et al. 2023) with grouped queries (Ainslie et al. 2023)."""
    graph, size = Graph("llama"), width // heads
    product = lambda x, rows, columns, gain=1: graph.node("MatMul", x, graph.weight(rows, columns, terms=rows, gain=gain))
    rotate, masked = rotary(graph, tokens, size), causal_sum(graph, tokens)
    x = graph.input("x", 1, tokens, width)
    for _ in range(layers):
        y = rms_norm(graph, x, width)
        q = rotate(heads_of(graph, product(y, width, width), tokens, heads, size))
        k = rotate(heads_of(graph, product(y, width, groups * size), tokens, groups, size))
        v = heads_of(graph, product(y, width, groups * size), tokens, groups, size)
        k, v = (repeated(graph, part, tokens, heads, groups, size) for part in (k, v))
        mixed = joined(graph, attention(graph, q, k, v, size, masked), tokens, width)
        x = graph.node("Add", x, product(mixed, width, width, BRANCH))
        y = rms_norm(graph, x, width)
        y = graph.node("Mul", graph.silu(product(y, width, hidden)), product(y, width, hidden))
        x = graph.node("Add", x, product(y, hidden, width, BRANCH))
    graph.save(directory, rms_norm(graph, x, width))


def rms_norm(graph, x, width):
    mean = graph.node("ReduceMean", graph.node("Pow", x, graph.scalar(2)), axes=[-1], keepdims=1)
    root = graph.node("Sqrt", graph.node("Add", mean, graph.scalar(1e-5)))
    scaled = graph.node("Mul", x, graph.node("Div", graph.scalar(1), root))
    return graph.node("Mul", graph.near_one(width), scaled)


def rotary(graph, tokens, size):
    """Rotary positions (Su et al. 2021): pairs that are half a head apart are turned by angles that grow with the position."""
    angles = numpy.outer(numpy.arange(tokens), 10000.0 ** (-numpy.arange(0, size, 2) / size))
    angles = numpy.concatenate([angles, angles], axis=1)[None, None].astype(numpy.float32)
    cosines, sines = graph.array(numpy.cos(angles)), graph.array(numpy.sin(angles))
    part = lambda x, start, end: graph.node("Slice", x, graph.integers(start), graph.integers(end), graph.integers(3),
                                            graph.integers(1))

    def rotate(x):
        turned = graph.node("Concat", graph.node("Neg", part(x, size // 2, 2**63 - 1)), part(x, 0, size // 2), axis=-1)
        return graph.node("Add", graph.node("Mul", x, cosines), graph.node("Mul", turned, sines))

    return rotate


def causal_sum(graph, tokens):
    least = numpy.finfo(numpy.float32).min
    mask = graph.array(numpy.triu(numpy.full((1, 1, tokens, tokens), least, numpy.float32), 1))
    return lambda scores: graph.node("Add", scores, mask)


def repeated(graph, x, tokens, heads, groups, size):
    """Every group's keys or values for each of its heads."""
    wide = graph.integers(1, groups, heads // groups, tokens, size)
    return graph.reshape(graph.node("Expand", graph.node("Unsqueeze", x, graph.integers(2)), wide), 1, heads, tokens, size)


def whisper(directory, width=384, heads=6, layers=4, frames=1000):
    """The encoder of Whisper tiny (Radford et al. 2022) over a third of its 3,000 frames."""
    graph, tokens = Graph("whisper_encoder"), frames // 2
    x = graph.gelu(graph.conv(graph.input("mel", 1, 80, frames), 80, width, [3]))
    x = graph.transpose(graph.gelu(graph.conv(x, width, width, [3], stride=2)), 0, 2, 1)
    x = graph.node("Add", x, graph.weight(tokens, width, terms=10))
    for _ in range(layers):
        x = graph.node("Add", x, separate(graph, graph.layer_norm(x, width), tokens, width, heads))
        x = graph.node("Add", x, feed_forward(graph, graph.layer_norm(x, width), width, graph.gelu))
    graph.save(directory, graph.layer_norm(x, width))


def mixer(directory, width=512, layers=8, patches=14 * 14):
    """MLP-Mixer-S/16 (Tolstikhin et al. 2021): half of the layers mix patches."""
    graph = Graph("mixer_s16")
    x = graph.conv(graph.input("image", 1, 3, 224, 224), 3, width, 16, stride=16, pad=0, gain=1)
    x = graph.transpose(graph.reshape(x, 1, width, patches), 0, 2, 1)
    for _ in range(layers):
        y = graph.transpose(graph.layer_norm(x, width, 1e-6), 0, 2, 1)
        y = graph.linear(graph.gelu(graph.linear(y, patches, width // 2)), width // 2, patches, BRANCH)
        x = graph.node("Add", x, graph.transpose(y, 0, 2, 1))
        x = graph.node("Add", x, feed_forward(graph, graph.layer_norm(x, width, 1e-6), width, graph.gelu))
    x = graph.node("ReduceMean", graph.layer_norm(x, width, 1e-6), axes=[1], keepdims=0)
    graph.save(directory, graph.gemm(x, width, 1000))


def write(directory):
    vit(directory)
    bert(directory)
    gpt2(directory, tokens=64, past=0)
    gpt2(directory, tokens=1, past=128)
    llama(directory)
    whisper(directory)
    mixer(directory)
