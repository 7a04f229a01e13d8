"""Anabranch: one ONNX model over all the devices of this machine, by a plan that is made before it runs.

    import anabranch as ab

    session = ab.Session("model.onnx", place="auto")
    outputs = session.run({"x": array})

A session places the model's nodes on CPU devices and GPUs, plans order, transfers and memory, and runs that plan. It tells the plan
(`Session.plan`), what runs take (`Session.profile`), how configurations compare (`Session.compare`), and learns real costs
(`Session.refine`). `devices` lists what is there; `place` is the placement simulator for graphs and platforms that need not be. `Flow` runs graphs of Python functions. `Generator` makes text with a language model.

Errors are those of `anabranch.errors`, all below `AnabranchError`.
"""

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
