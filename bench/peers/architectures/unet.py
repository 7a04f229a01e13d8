"""U-Nets on images of 128 × 128: with transposed convolutions (Ronneberger et al. 2015), and with resizing."""

from graph import Graph


def with_transposed(directory, widths=(32, 64, 128, 256, 512)):
    graph = Graph("unet_transposed")

    def twice(x, channels, maps):
        return graph.relu(graph.conv(graph.relu(graph.conv(x, channels, maps, 3)), maps, maps, 3))

    x, channels, kept = graph.input("image", 1, 3, 128, 128), 3, []
    for width in widths:
        if kept:
            x = graph.node("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
        x, channels = twice(x, channels, width), width
        kept.append(x)
    for width, skipped in zip(widths[-2::-1], kept[-2::-1]):
        weights = graph.weight(channels, width, 2, 2, terms=channels)
        x = graph.node("ConvTranspose", x, weights, graph.bias(width), kernel_shape=[2, 2], strides=[2, 2])
        x, channels = twice(graph.node("Concat", skipped, x, axis=1), 2 * width, width), width
    graph.save(directory, graph.conv(x, channels, 2, gain=1))


def with_resize(directory, widths=(32, 64, 128, 256)):
    graph = Graph("unet_resize")

    def normalised(x, width, side):
        """Group normalisation of 8 groups, as the exporter writes it."""
        groups = [graph.floats(*[1] * 8), graph.floats(*[0] * 8)]
        y = graph.node("InstanceNormalization", graph.reshape(x, 0, 8, -1), *groups, epsilon=1e-5)
        y = graph.node("Mul", graph.reshape(y, 1, width, side, side), graph.near_one(width, 1, 1))
        return graph.silu(graph.node("Add", y, graph.weight(width, 1, 1, terms=100)))

    def twice(x, channels, maps, side):
        y = normalised(graph.conv(x, channels, maps, 3), maps, side)
        return normalised(graph.conv(y, maps, maps, 3), maps, side)

    x, channels, side, kept = graph.input("image", 1, 4, 128, 128), 4, 128, []
    for width in widths:
        if kept:
            x, side = graph.conv(x, channels, channels, 3, stride=2), side // 2
        x, channels = twice(x, channels, width, side), width
        kept.append(x)
    for at, (width, skipped) in enumerate(zip(widths[-2::-1], kept[-2::-1])):
        x, side = resized(graph, x, "linear" if at else "nearest"), 2 * side
        x, channels = twice(graph.node("Concat", x, skipped, axis=1), channels + width, width, side), width
    graph.save(directory, graph.conv(x, channels, 4, 3, gain=1))


def resized(graph, x, mode):
    """Twice the size."""
    coordinates = {"linear": "half_pixel", "nearest": "asymmetric"}[mode]
    rounding = {"nearest_mode": "floor"} if mode == "nearest" else {}
    return graph.node("Resize", x, "", graph.floats(1, 1, 2, 2), mode=mode, coordinate_transformation_mode=coordinates, **rounding)


def write(directory):
    with_transposed(directory)
    with_resize(directory)
