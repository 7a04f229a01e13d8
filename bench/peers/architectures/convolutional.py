"""Networks of convolutions for images of 224 × 224: residual 18 and 50, VGG-11, fire modules, DenseNet-121."""

from graph import Graph

RESIDUAL = 0.3  # the gain of what is added in a residual block


def resnet(directory, name, depths, bottleneck):
    graph = Graph(name)
    x = graph.relu(graph.conv(graph.input("image", 1, 3, 224, 224), 3, 64, 7, stride=2))
    x, channels = graph.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]), 64
    for stage, depth in enumerate(depths):
        width = 64 << stage
        maps = 4 * width if bottleneck else width
        for at in range(depth):
            stride = 2 if stage and not at else 1
            y = x
            if bottleneck:
                y = graph.relu(graph.conv(y, channels, width))
                y = graph.relu(graph.conv(y, width, width, 3, stride))
                y = graph.conv(y, width, maps, gain=RESIDUAL)
            else:
                y = graph.relu(graph.conv(y, channels, width, 3, stride))
                y = graph.conv(y, width, maps, 3, gain=RESIDUAL)
            if (channels, stride) != (maps, 1):
                x = graph.conv(x, channels, maps, stride=stride, gain=1)
            x, channels = graph.relu(graph.node("Add", y, x)), maps
    graph.save(directory, graph.gemm(graph.pooled(x), channels, 1000))


def vgg11(directory):
    graph = Graph("vgg11")
    x, channels = graph.input("image", 1, 3, 224, 224), 3
    for maps in [64, "pool", 128, "pool", 256, 256, "pool", 512, 512, "pool", 512, 512, "pool"]:
        if maps == "pool":
            x = graph.node("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
        else:
            x, channels = graph.relu(graph.conv(x, channels, maps, 3)), maps
    x, width = graph.node("Flatten", x), 512 * 7 * 7
    for _ in range(2):
        x, width = graph.relu(graph.gemm(x, width, 4096, gain=2)), 4096
    graph.save(directory, graph.gemm(x, width, 1000))


def squeezenet(directory):
    graph = Graph("squeezenet1_0")
    pool = lambda x: graph.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1)
    x = graph.relu(graph.conv(graph.input("image", 1, 3, 224, 224), 3, 96, 7, stride=2, pad=0))
    x, channels = pool(x), 96
    for squeezed, expanded, pooled in [(16, 64, 0), (16, 64, 0), (32, 128, 1), (32, 128, 0), (48, 192, 0), (48, 192, 0),
                                       (64, 256, 1), (64, 256, 0)]:
        x = graph.relu(graph.conv(x, channels, squeezed))
        halves = [graph.relu(graph.conv(x, squeezed, expanded, window)) for window in (1, 3)]
        x, channels = graph.node("Concat", *halves, axis=1), 2 * expanded
        x = pool(x) if pooled else x
    graph.save(directory, graph.pooled(graph.relu(graph.conv(x, channels, 1000))))


def densenet121(directory):
    """Normalisations stand before their convolutions here, so that those behind a concatenation cannot be folded."""
    graph = Graph("densenet121")
    x = graph.relu(graph.conv(graph.input("image", 1, 3, 224, 224), 3, 64, 7, stride=2))
    x, channels = graph.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]), 64
    for stage, depth in enumerate([6, 12, 24, 16]):
        for _ in range(depth):
            y = graph.relu(graph.conv(graph.relu(normalised(graph, x, channels)), channels, 128))
            x = graph.node("Concat", x, graph.conv(y, 128, 32, 3, gain=1), axis=1)
            channels += 32
        x = graph.relu(normalised(graph, x, channels))
        if stage < 3:
            x, channels = graph.conv(x, channels, channels // 2), channels // 2
            x = graph.node("AveragePool", x, kernel_shape=[2, 2], strides=[2, 2])
    graph.save(directory, graph.gemm(graph.pooled(x), channels, 1000))


def normalised(graph, x, channels):
    parameters = [graph.near_one(channels), graph.bias(channels), graph.bias(channels)]
    variance = graph.array(abs(1 + 0.1 * graph.random.standard_normal(channels, dtype="float32")))
    return graph.node("BatchNormalization", x, *parameters, variance, epsilon=1e-5)


def write(directory):
    resnet(directory, "resnet18", [2, 2, 2, 2], False)
    resnet(directory, "resnet50", [3, 4, 6, 3], True)
    vgg11(directory)
    squeezenet(directory)
    densenet121(directory)
