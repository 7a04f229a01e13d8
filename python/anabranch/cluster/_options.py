"""Checks of what a pipeline is opened with, before anything is started."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .. import _native
from ..errors import InputError
from . import platform as _platform


def verify(options: Mapping[str, Any], inputs: Any, platform: Any, session: Mapping[str, Any]) -> None:
    """Checks the options of a pipeline, its `inputs` and `platform`, and the options of its sessions.

    Raises:
        InputError: The first that is wrong, by its name.
    """
    for name in ("capacity", "failures", "checkpoint"):
        count = options[name]
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise InputError(f"option `{name}` = {count!r}: give a whole number of at least 1")
    for name in ("hang", "timeout"):
        _platform.seconds(name, options[name])
    if options["goal"] not in ("period", "latency"):
        raise InputError(f"option `goal` = {options['goal']!r}: write period or latency")
    flags = ("branches", "replicate", "measure", "ship")
    if not all(isinstance(options[name], bool) for name in flags):
        raise InputError("options `branches`, `replicate`, `measure` and `ship` are True or False")
    if options["sequences"] != 1 and not options["feed"]:
        raise InputError(f"option `sequences` = {options['sequences']!r} has no meaning without `feed`; give both, or leave it out")
    if decided := [name for name in ("place", "order", "pin", "colocate", "split", "platform") if name in session]:
        raise InputError(f"option `{decided[0]}` has no meaning here: the pipeline decides where nodes run; leave it out")
    if unknown := [name for name in session if name not in _native.option_names()]:
        raise InputError(f"there is no option `{unknown[0]}`; the options are those of Pipeline and of Session")
    if inputs is not None and not isinstance(inputs, Mapping):
        raise InputError(f"`inputs` is {type(inputs).__name__}; give a dictionary from names to arrays")
    if wrong := [name for name in inputs or {} if not isinstance(name, str)]:
        raise InputError(f"`inputs` has the name {wrong[0]!r}; names are texts")
    if platform is not None and not isinstance(platform, _platform.Platform):
        raise InputError("`platform` is not a Platform; Platform.load reads a file")
