"""One model, or one flow, over several machines, joined by Ray.

    import anabranch as ab
    import ray

    ray.init(address="auto")
    platform = ab.cluster.Platform.measure()
    with ab.cluster.Pipeline("model.onnx", platform=platform) as pipeline:
        for outputs in pipeline.map({"x": frame} for frame in frames):
            ...

`Platform` describes the nodes of a Ray cluster: their devices, and the links between nodes, as measured. `Pipeline` divides a model
into stages on these devices, by the theory of pipelines, and computes a stream of inputs. If a node fails, the model is divided again
over the remaining nodes, and inputs without a result are computed again. `Workers` call the functions of a flow (`Flow.run`), and run the
commands of a graph (`run_graph`).

Needs the package ``ray``: ``pip install ./python[ray]``. All nodes need the same version of this package.
"""

from ._host import ray_module
from .graph import run_graph
from .pipeline import Pipeline
from .platform import Platform
from .workers import Workers

__all__ = ["Pipeline", "Platform", "Workers", "run_graph"]

ray_module()
