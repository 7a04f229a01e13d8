"""Runs ONNX models on all the devices of this machine together, by a plan that is made before the run.

    import anabranch as ab

    session = ab.Session("model.onnx", place="auto")
    outputs = session.run({"x": array})

A session places the model's nodes on CPU devices and GPUs, plans their order, transfers and memory, and runs that plan. `Session.plan`
returns the plan, `Session.profile` the times of runs, and `Session.compare` the times of several configurations. `Session.refine`
learns real costs. `devices` lists the devices of this machine. `place` is the placement simulator, also for devices that this machine
does not have. `Flow` runs graphs of Python functions. `Generator` generates text with a language model. `cluster` divides a model over the
nodes of a Ray cluster, and runs flows there.

Errors are exceptions of `anabranch.errors`, all below `AnabranchError`.
"""

from typing import Any

from . import errors
from .errors import AnabranchError
from .flow import Flow, FlowReport
from .generator import Answer, Completion, Generator, Token
from .laboratory import Schedule, place, strategies
from .pipeline import Pipeline
from .session import Session, Value, devices
from .views import Comparison, Devices, Plan, Profile, Refinement, Rows

__all__ = [
    "AnabranchError",
    "Answer",
    "Completion",
    "Comparison",
    "Devices",
    "Flow",
    "FlowReport",
    "Generator",
    "Pipeline",
    "Plan",
    "Profile",
    "Refinement",
    "Rows",
    "Schedule",
    "Session",
    "Token",
    "Value",
    "devices",
    "errors",
    "place",
    "strategies",
]


def __getattr__(name: str) -> Any:
    """Imports `anabranch.cluster` when it is used first: it needs the package ray."""
    if name == "cluster":
        import importlib

        return importlib.import_module(".cluster", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
