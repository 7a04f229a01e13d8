"""What an export is made of: a module, its inputs by name, and which of their axes may have another size."""

import torch


class Architecture:
    """A module that takes tensors by position and returns a tuple of tensors."""

    def __init__(self, module, inputs, dynamic=None, opset=17):
        self.module = Flat(module).eval()
        self.inputs = inputs
        self.dynamic = dynamic or {}
        self.opset = opset


class Flat(torch.nn.Module):
    """The tensors of whatever a module returns: exporters name outputs by position."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, *inputs):
        return tuple(tensors(self.module(*inputs)))


def tensors(value):
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        yield from tensors(list(value.values()))
    elif isinstance(value, (tuple, list)):
        for part in value:
            yield from tensors(part)


class Named(torch.nn.Module):
    """A module of the package `transformers` whose inputs are known by name."""

    def __init__(self, model, *names, **others):
        super().__init__()
        self.model, self.names, self.others = model, names, others

    def forward(self, *inputs):
        return self.model(**dict(zip(self.names, inputs)), **self.others, return_dict=False)


def image(height, width=None, batch=1, channels=3):
    return {"image": torch.randn(batch, channels, height, width or height)}


BATCH = {"image": {0: "batch"}}


def words(count, batch, length):
    """Ids and a mask that hides the end of all texts but the first."""
    mask = torch.ones(batch, length, dtype=torch.int64)
    mask[1:, length - 3:] = 0
    return {"input_ids": torch.randint(3, count, (batch, length)), "attention_mask": mask}


WORDS = {name: {0: "batch", 1: "length"} for name in ("input_ids", "attention_mask")}
