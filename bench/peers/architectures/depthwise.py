"""Networks of depthwise convolutions for images of 224 × 224: MobileNet V2 and V3, EfficientNet-B0, ConvNeXt-T."""

import numpy

from graph import Graph

BRANCH = 0.3  # the gain of what is added in a residual block

# Window, expansion, output channels, stride, squeeze-and-excitation, hard swish: MobileNet V3 large (Howard et al. 2019, table 1).
MOBILE_V3 = [
    (3, 16, 16, 1, 0, 0), (3, 64, 24, 2, 0, 0), (3, 72, 24, 1, 0, 0), (5, 72, 40, 2, 1, 0), (5, 120, 40, 1, 1, 0),
    (5, 120, 40, 1, 1, 0), (3, 240, 80, 2, 0, 1), (3, 200, 80, 1, 0, 1), (3, 184, 80, 1, 0, 1), (3, 184, 80, 1, 0, 1),
    (3, 480, 112, 1, 1, 1), (3, 672, 112, 1, 1, 1), (5, 672, 160, 2, 1, 1), (5, 960, 160, 1, 1, 1), (5, 960, 160, 1, 1, 1),
]

# Expansion, output channels, depth, stride: MobileNet V2 (Sandler et al. 2018, table 2).
MOBILE_V2 = [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)]

# Expansion, window, output channels, depth, stride: EfficientNet-B0 (Tan and Le 2019, table 1).
EFFICIENT = [(1, 3, 16, 1, 1), (6, 3, 24, 2, 2), (6, 5, 40, 2, 2), (6, 3, 80, 3, 2), (6, 5, 112, 3, 1), (6, 5, 192, 4, 2),
             (6, 3, 320, 1, 1)]


def inverted(graph, x, sizes, window, stride, activation, squeeze=None):
    """Channels are expanded, convolved one by one, squeezed and excited, and projected."""
    channels, wide, maps = sizes
    y = x if wide == channels else activation(graph.conv(x, channels, wide))
    y = activation(graph.conv(y, wide, wide, window, stride, group=wide))
    y = graph.conv(squeeze(y, wide) if squeeze else y, wide, maps, gain=1 if (channels, stride) != (maps, 1) else BRANCH)
    return y if (channels, stride) != (maps, 1) else graph.node("Add", x, y)


def squeeze_excite(graph, x, channels, middle, activation, gate, **attributes):
    y = activation(graph.conv(graph.node("GlobalAveragePool", x), channels, middle))
    return graph.node("Mul", graph.node(gate, graph.conv(y, middle, channels, gain=1), **attributes), x)


def mobilenet_v2(directory):
    graph = Graph("mobilenet_v2")
    clip = lambda x: graph.node("Clip", x, graph.scalar(0), graph.scalar(6))
    x, channels = clip(graph.conv(graph.input("image", 1, 3, 224, 224), 3, 32, 3, stride=2)), 32
    for expansion, maps, depth, stride in MOBILE_V2:
        for at in range(depth):
            x = inverted(graph, x, (channels, expansion * channels, maps), 3, 1 if at else stride, clip)
            channels = maps
    x = graph.pooled(clip(graph.conv(x, channels, 1280)))
    graph.save(directory, graph.gemm(x, 1280, 1000))


def mobilenet_v3(directory):
    graph = Graph("mobilenet_v3")
    swish = lambda x: graph.node("HardSwish", x)
    x, channels = swish(graph.conv(graph.input("image", 1, 3, 224, 224), 3, 16, 3, stride=2)), 16

    def squeeze(y, wide):
        return squeeze_excite(graph, y, wide, (wide // 4 + 7) // 8 * 8, graph.relu, "HardSigmoid", alpha=1 / 6)

    for window, wide, maps, stride, squeezed, hard in MOBILE_V3:
        activation, squeezed = swish if hard else graph.relu, squeeze if squeezed else None
        x, channels = inverted(graph, x, (channels, wide, maps), window, stride, activation, squeezed), maps
    x = graph.pooled(swish(graph.conv(x, channels, 960)))
    graph.save(directory, graph.gemm(swish(graph.gemm(x, 960, 1280, gain=2)), 1280, 1000))


def efficientnet(directory):
    graph = Graph("efficientnet_b0")
    x, channels = graph.silu(graph.conv(graph.input("image", 1, 3, 224, 224), 3, 32, 3, stride=2)), 32
    for expansion, window, maps, depth, stride in EFFICIENT:
        for at in range(depth):
            squeeze = lambda y, wide, middle=channels // 4: squeeze_excite(graph, y, wide, middle, graph.silu, "Sigmoid")
            sizes = (channels, expansion * channels, maps)
            x = inverted(graph, x, sizes, window, 1 if at else stride, graph.silu, squeeze)
            channels = maps
    x = graph.pooled(graph.silu(graph.conv(x, channels, 1280)))
    graph.save(directory, graph.gemm(x, 1280, 1000))


def convnext(directory):
    graph = Graph("convnext_tiny")
    to_end, back = (0, 2, 3, 1), (0, 3, 1, 2)
    norm = lambda x, width: graph.transpose(graph.layer_norm(graph.transpose(x, *to_end), width, 1e-6), *back)
    x, channels = norm(graph.conv(graph.input("image", 1, 3, 224, 224), 3, 96, 4, stride=4, pad=0, gain=1), 96), 96
    for stage, depth in enumerate([3, 3, 9, 3]):
        if stage:
            x = graph.conv(norm(x, channels), channels, 2 * channels, 2, stride=2, pad=0, gain=1)
            channels *= 2
        for _ in range(depth):
            y = graph.transpose(graph.conv(x, channels, channels, 7, group=channels, gain=1), *to_end)
            y = graph.gelu(graph.linear(graph.layer_norm(y, channels, 1e-6), channels, 4 * channels))
            y = graph.transpose(graph.linear(y, 4 * channels, channels), *back)
            scale = graph.array(numpy.full((channels, 1, 1), 0.3, numpy.float32))
            x = graph.node("Add", graph.node("Mul", scale, y), x)
    x = norm(graph.node("GlobalAveragePool", x), channels)
    graph.save(directory, graph.gemm(graph.node("Flatten", x, axis=1), channels, 1000))


def write(directory):
    mobilenet_v2(directory)
    mobilenet_v3(directory)
    efficientnet(directory)
    convnext(directory)
