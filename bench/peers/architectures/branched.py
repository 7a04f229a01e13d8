"""Networks with branches and plain ones for images: HRNet-W18 small, CSPDarknet-53, RepVGG-A0, MnasNet, a detector like YOLOv8n."""

from convolutional import RESIDUAL
from depthwise import inverted
from graph import Graph


def hrnet_w18_small(directory):
    """Branches of four resolutions, each added to all (Wang et al. 2020)."""
    graph = Graph("hrnet_w18_small")
    x, channels = graph.input("image", 1, 3, 224, 224), 3
    for _ in range(2):
        x, channels = graph.relu(graph.conv(x, channels, 64, 3, stride=2)), 64
    y = graph.relu(graph.conv(graph.relu(graph.conv(x, 64, 32)), 32, 32, 3))
    x = graph.relu(graph.node("Add", graph.conv(y, 32, 128, gain=RESIDUAL), graph.conv(x, 64, 128, gain=1)))
    branches, widths = [x], [128]
    for count in (2, 3, 4):
        wanted = [16 << at for at in range(count)]
        first = [graph.relu(graph.conv(value, old, new, 3)) if old != new else value
                 for value, old, new in zip(branches, widths, wanted)]
        branches = first + [graph.relu(graph.conv(branches[-1], widths[-1], wanted[-1], 3, stride=2))]
        widths = wanted
        branches = fused(graph, [blocks(graph, value, width) for value, width in zip(branches, widths)], widths)
    graph.save(directory, graph.gemm(head(graph, branches, widths), 2048, 1000))


def blocks(graph, x, width):
    for _ in range(2):
        y = graph.conv(graph.relu(graph.conv(x, width, width, 3)), width, width, 3, gain=RESIDUAL)
        x = graph.relu(graph.node("Add", y, x))
    return x


def fused(graph, branches, widths):
    """Adds to each branch all others, made larger or smaller."""
    made = []
    for to, width in enumerate(widths):
        total = None
        for at, (x, channels) in enumerate(zip(branches, widths)):
            if at > to:
                scales = graph.floats(1, 1, 2.0 ** (at - to), 2.0 ** (at - to))
                x = graph.node("Resize", graph.conv(x, channels, width, gain=0.5), "", scales, mode="nearest",
                               coordinate_transformation_mode="asymmetric", nearest_mode="floor")
            for step in range(to - at):
                last = step == to - at - 1
                x = graph.conv(x, channels, width if last else channels, 3, stride=2, gain=0.5 if last else 2)
                x, channels = (x if last else graph.relu(x)), (width if last else channels)
            total = x if total is None else graph.node("Add", total, x)
        made.append(graph.relu(total))
    return made


def head(graph, branches, widths):
    total = None
    for at, (x, width) in enumerate(zip(branches, widths)):
        middle, maps = 32 << at, 128 << at
        y = graph.relu(graph.conv(graph.relu(graph.conv(x, width, middle)), middle, middle, 3))
        x = graph.relu(graph.node("Add", graph.conv(y, middle, maps), graph.conv(x, width, maps, gain=1)))
        if total is not None:
            x = graph.node("Add", x, graph.relu(graph.conv(total, maps // 2, maps, 3, stride=2)))
        total = x
    return graph.pooled(graph.relu(graph.conv(total, 1024, 2048)))


def cspdarknet53(directory):
    """Half of the channels pass by the residual blocks of a stage (Wang et al. 2020)."""
    graph = Graph("cspdarknet53")
    act = lambda x: graph.node("LeakyRelu", x, alpha=0.1)
    x, channels = act(graph.conv(graph.input("image", 1, 3, 256, 256), 3, 32, 3)), 32
    for maps, depth in [(64, 1), (128, 2), (256, 8), (512, 8), (1024, 4)]:
        x = act(graph.conv(x, channels, maps, 3, stride=2))
        wide = 2 * maps if maps == 64 else maps
        x = act(graph.conv(x, maps, wide))
        half = wide // 2
        by, y = graph.outputs_of("Split", 2, x, graph.integers(half, half), axis=1)
        for _ in range(depth):
            z = act(graph.conv(y, half, half // 2 if maps == 64 else half))
            y = graph.node("Add", act(graph.conv(z, half // 2 if maps == 64 else half, half, 3, gain=RESIDUAL)), y)
        y = act(graph.conv(y, half, half))
        x, channels = act(graph.conv(graph.node("Concat", by, y, axis=1), wide, maps)), maps
    graph.save(directory, graph.gemm(graph.pooled(x), channels, 1000))


def repvgg_a0(directory):
    """Plain 3 × 3 layers, as they are after training (Ding et al. 2021)."""
    graph = Graph("repvgg_a0")
    x, channels = graph.input("image", 1, 3, 224, 224), 3
    for maps, depth in [(48, 1), (48, 2), (96, 4), (192, 14), (1280, 1)]:
        for at in range(depth):
            x, channels = graph.relu(graph.conv(x, channels, maps, 3, stride=1 if at else 2)), maps
    graph.save(directory, graph.gemm(graph.pooled(x), channels, 1000))


def mnasnet1_0(directory):
    graph = Graph("mnasnet1_0")
    x = graph.relu(graph.conv(graph.input("image", 1, 3, 224, 224), 3, 32, 3, stride=2))
    x = graph.conv(graph.relu(graph.conv(x, 32, 32, 3, group=32)), 32, 16, gain=1)
    channels = 16
    for window, expansion, maps, depth, stride in [(3, 3, 24, 3, 2), (5, 3, 40, 3, 2), (5, 6, 80, 3, 2), (3, 6, 96, 2, 1),
                                                   (5, 6, 192, 4, 2), (3, 6, 320, 1, 1)]:
        for at in range(depth):
            x = inverted(graph, x, (channels, expansion * channels, maps), window, 1 if at else stride, graph.relu)
            channels = maps
    graph.save(directory, graph.gemm(graph.pooled(graph.relu(graph.conv(x, 320, 1280))), 1280, 1000))


def detector(directory):
    """Stages that keep all their parts, and a path of three resolutions, as in YOLOv8n."""
    graph = Graph("detector_n")

    def conv(x, channels, maps, window=3, stride=1):
        return graph.silu(graph.conv(x, channels, maps, window, stride))

    def parts(x, channels, maps, depth, adds):
        half = maps // 2
        kept = graph.outputs_of("Split", 2, conv(x, channels, maps, 1), graph.integers(half, half), axis=1)
        for _ in range(depth):
            y = conv(conv(kept[-1], half, half), half, half)
            kept.append(graph.node("Add", kept[-1], y) if adds else y)
        return conv(graph.node("Concat", *kept, axis=1), (2 + depth) * half, maps, 1)

    def larger(x):
        return graph.node("Resize", x, "", graph.floats(1, 1, 2, 2), mode="nearest",
                          coordinate_transformation_mode="asymmetric", nearest_mode="floor")

    x = conv(conv(graph.input("images", 1, 3, 320, 320), 3, 16, stride=2), 16, 32, stride=2)
    x = conv(parts(x, 32, 32, 1, True), 32, 64, stride=2)
    small = parts(x, 64, 64, 2, True)
    middle = parts(conv(small, 64, 128, stride=2), 128, 128, 2, True)
    x = parts(conv(middle, 128, 256, stride=2), 256, 256, 1, True)
    pooled = [conv(x, 256, 128, 1)]
    for _ in range(3):
        pooled.append(graph.node("MaxPool", pooled[-1], kernel_shape=[5, 5], strides=[1, 1], pads=[2, 2, 2, 2]))
    large = conv(graph.node("Concat", *pooled, axis=1), 512, 256, 1)
    up = parts(graph.node("Concat", larger(large), middle, axis=1), 384, 128, 1, False)
    first = parts(graph.node("Concat", larger(up), small, axis=1), 192, 64, 1, False)
    second = parts(graph.node("Concat", conv(first, 64, 64, stride=2), up, axis=1), 192, 128, 1, False)
    third = parts(graph.node("Concat", conv(second, 128, 128, stride=2), large, axis=1), 384, 256, 1, False)
    made = []
    for x, channels, places in [(first, 64, 1600), (second, 128, 400), (third, 256, 100)]:
        boxes = graph.conv(conv(conv(x, channels, 64), 64, 64), 64, 64, gain=1)
        kinds = graph.conv(conv(conv(x, channels, 80), 80, 80), 80, 80, gain=1)
        made.append(graph.reshape(graph.node("Concat", boxes, kinds, axis=1), 1, 144, places))
    graph.save(directory, graph.node("Concat", *made, axis=2))


def write(directory):
    hrnet_w18_small(directory)
    cspdarknet53(directory)
    repvgg_a0(directory)
    mnasnet1_0(directory)
    detector(directory)
