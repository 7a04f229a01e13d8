"""The programs of Silva et al. 2016 as flows of Python functions, each checked against a plain loop, on one worker and on two.

    python examples/python/flow_programs.py

A longest common subsequence by blocks (a wavefront), a product of matrices by blocks, and an integral by fork and join and as a pipeline. What NumPy
computes runs side by side; the blocks of the subsequence are plain Python, of which one runs at a time.
"""

import math
import random

import numpy as np

import anabranch as ab


def lcs(first, second, top, left, corner):
    """The last row and column of a block of the table, from the row above it, the column to its left and the number between them."""
    row, column = list(top), []
    for letter, before in zip(second, left, strict=True):
        diagonal, beside = corner, before
        for at, other in enumerate(first):
            above = row[at]
            beside = diagonal + 1 if letter == other else max(above, beside)
            diagonal, row[at] = above, beside
        corner = before
        column.append(beside)
    return row, column


def subsequence(size=240, block=60):
    """Length of the longest common subsequence of two random strings."""
    letters = random.Random(0)
    first, second = ("".join(letters.choices("ACGT", k=size)) for _ in range(2))
    flow, parts = ab.Flow(), range(0, size, block)
    edge = flow.feeder("edge", ([0] * block, [0] * block))
    nodes = {}
    for i in parts:
        for j in parts:
            cut = first[j : j + block], second[i : i + block]
            above, beside, over = (nodes.get(key, edge) for key in ((i - block, j), (i, j - block), (i - block, j - block)))
            function = lambda above, beside, over, cut=cut: lcs(*cut, above[0], beside[1], over[0][-1])
            nodes[i, j] = flow.node(f"block {i // block} {j // block}", function, above, beside, over)
    result = flow.collect("last", nodes[parts[-1], parts[-1]])
    expected = lcs(first, second, [0] * size, [0] * size, 0)[0][-1]
    return flow, lambda: result.pop()[0][-1] == expected


def product(size=512, block=256):
    """A product of random matrices."""
    a, b = np.random.default_rng(0).random((2, size, size))
    flow, parts = ab.Flow(), range(0, size, block)
    left = [flow.feeder(f"a {i // block}", a[i : i + block]) for i in parts]
    right = [flow.feeder(f"b {j // block}", b[:, j : j + block]) for j in parts]
    blocks = [flow.node(f"{row.name} {column.name}", np.matmul, row, column) for row in left for column in right]
    joined = flow.node("joined", lambda *blocks: np.block([list(blocks[at : at + len(right)]) for at in range(0, len(blocks), len(right))]), *blocks)
    result = flow.collect("c", joined)
    return flow, lambda: np.allclose(result.pop(), a @ b)


def area(part, parts, points=100_000):
    """The integral of 4 / (1 + x²) over one of so many parts of [0, 1], by the midpoint rule."""
    x = (part + (np.arange(points) + 0.5) / points) / parts
    return float(np.sum(4 / (1 + x * x)) / (points * parts))


def fork_join(parts=16):
    """π as the sum of the parts' integrals, each a node."""
    flow = ab.Flow()
    start = flow.feeder("start", parts)
    forked = [flow.node(f"part {part}", lambda parts, part=part: area(part, parts), start) for part in range(parts)]
    result = flow.collect("sum", flow.node("join", lambda *sums: math.fsum(sums), *forked))
    return flow, lambda: math.isclose(result.pop(), math.pi, rel_tol=1e-9)


def pipeline(parts=16):
    """The same as a stream of parts."""
    flow = ab.Flow()
    numbers = flow.source("numbers", range(parts))
    sums = flow.collect("sums", flow.node("integrals", lambda part: area(part, parts), numbers))

    def is_right():
        total = math.fsum(sums)
        sums.clear()
        return math.isclose(total, math.pi, rel_tol=1e-9)

    return flow, is_right


for program in (subsequence, product, fork_join, pipeline):
    flow, is_right = program()
    times = []
    for workers in (1, 2):
        report = flow.run(workers=workers)
        assert is_right(), program.__name__
        times.append(f"{report.seconds * 1e3:8.2f} ms on {workers}")
    print(f"{program.__name__:12} {report.tasks:4} tasks {', '.join(times)}")
