"""Networks with grouped layers and split channels for images of 224 × 224: ResNeXt-50, RegNetX-800MF, Res2Net-50, NFNet-L0."""

from convolutional import RESIDUAL
from graph import Graph


def stem(graph, maps=64):
    """A 7 × 7 layer and a pool: 56 × 56."""
    x = graph.relu(graph.conv(graph.input("image", 1, 3, 224, 224), 3, maps, 7, stride=2))
    return graph.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])


def joined(graph, x, y, channels, maps, stride):
    """What a residual block adds: the input as it is, or by a layer of its own."""
    if (channels, stride) != (maps, 1):
        x = graph.conv(x, channels, maps, stride=stride, gain=1)
    return graph.relu(graph.node("Add", y, x))


def resnext50(directory):
    graph = Graph("resnext50_32x4d")
    x, channels = stem(graph), 64
    for stage, depth in enumerate([3, 4, 6, 3]):
        width, maps = 128 << stage, 256 << stage
        for at in range(depth):
            stride = 2 if stage and not at else 1
            y = graph.relu(graph.conv(x, channels, width))
            y = graph.relu(graph.conv(y, width, width, 3, stride, group=32))
            x, channels = joined(graph, x, graph.conv(y, width, maps, gain=RESIDUAL), channels, maps, stride), maps
    graph.save(directory, graph.gemm(graph.pooled(x), channels, 1000))


def regnet_x_800mf(directory):
    """Groups of 16 channels (Radosavovic et al. 2020)."""
    graph = Graph("regnet_x_800mf")
    x, channels = graph.relu(graph.conv(graph.input("image", 1, 3, 224, 224), 3, 32, 3, stride=2)), 32
    for maps, depth in [(64, 1), (128, 3), (288, 7), (672, 5)]:
        for at in range(depth):
            stride = 1 if at else 2
            y = graph.relu(graph.conv(x, channels, maps))
            y = graph.relu(graph.conv(y, maps, maps, 3, stride, group=maps // 16))
            x, channels = joined(graph, x, graph.conv(y, maps, maps, gain=RESIDUAL), channels, maps, stride), maps
    graph.save(directory, graph.gemm(graph.pooled(x), channels, 1000))


def res2net50(directory):
    """Four parts of 26 channels; each part adds the result of the one before (Gao et al. 2019)."""
    graph = Graph("res2net50_26w_4s")
    x, channels = stem(graph), 64
    for stage, depth in enumerate([3, 4, 6, 3]):
        width, maps = 26 << stage, 256 << stage
        for at in range(depth):
            stride = 2 if stage and not at else 1
            y = graph.relu(graph.conv(x, channels, 4 * width))
            parts = graph.outputs_of("Split", 4, y, graph.integers(*[width] * 4), axis=1)
            made = []
            for number, part in enumerate(parts[:3]):
                part = part if not (at and number) else graph.node("Add", part, made[-1])
                made.append(graph.relu(graph.conv(part, width, width, 3, stride)))
            last = parts[3]
            if not at:
                last = graph.node("AveragePool", last, kernel_shape=[3, 3], strides=[stride] * 2, pads=[1] * 4,
                                  count_include_pad=1)
            y = graph.conv(graph.node("Concat", *made, last, axis=1), 4 * width, maps, gain=RESIDUAL)
            x, channels = joined(graph, x, y, channels, maps, stride), maps
    graph.save(directory, graph.gemm(graph.pooled(x), channels, 1000))


def nfnet_l0(directory):
    """No normalisation, groups of 64 channels, squeeze and excitation (Brock et al. 2021, the light form)."""
    graph = Graph("nfnet_l0")
    x, channels = graph.input("image", 1, 3, 224, 224), 3
    for maps, stride in [(16, 2), (32, 1), (64, 1), (128, 2)]:
        x = graph.conv(x, channels, maps, 3, stride)
        x, channels = (graph.silu(x) if maps < 128 else x), maps
    for maps, depth, stage_stride in [(256, 1, 1), (512, 2, 2), (1536, 6, 2), (1536, 3, 2)]:
        for at in range(depth):
            stride, width = (1 if at else stage_stride), maps // 4
            y = graph.node("Mul", graph.silu(x), graph.scalar(0.9))
            if not at:
                x = y if stride == 1 else graph.node("AveragePool", y, kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1)
                x = graph.conv(x, channels, maps, gain=1)
            y = graph.silu(graph.conv(y, channels, width))
            y = graph.silu(graph.conv(y, width, width, 3, stride, group=width // 64))
            y = graph.silu(graph.conv(y, width, width, 3, group=width // 64))
            y = graph.conv(y, width, maps, gain=RESIDUAL)
            gate = graph.relu(graph.conv(graph.node("ReduceMean", y, axes=[2, 3], keepdims=1), maps, maps // 4))
            y = graph.node("Mul", y, graph.node("Sigmoid", graph.conv(gate, maps // 4, maps, gain=1)))
            y = graph.node("Mul", y, graph.scalar(0.4))
            x, channels = graph.node("Add", y, x), maps
    x = graph.silu(graph.conv(x, channels, 2304))
    graph.save(directory, graph.gemm(graph.pooled(x), 2304, 1000))


def write(directory):
    resnext50(directory)
    regnet_x_800mf(directory)
    res2net50(directory)
    nfnet_l0(directory)
