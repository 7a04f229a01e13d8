"""Text from language models, token by token."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from . import _native
from ._arrays import Given, _given, dumps
from .errors import InputError
from .session import _options


@dataclass(frozen=True)
class Token:
    """A token of an answer.

    Attributes:
        id: Number of the token, or None for text that was held back when the answer ended.
        text: Text that the token completes. It may be empty: some characters take several tokens.
    """

    id: int | None
    text: str


@dataclass(frozen=True)
class Completion:
    """An answer of a batch.

    Attributes:
        tokens: Its tokens.
        text: Their text.
        ended: Reason of the end: ``end``, ``length``, ``context`` (the model's context is full), ``stop`` or ``cancelled``.
    """

    tokens: list[int]
    text: str
    ended: str


class Answer(Iterator[Token]):
    """An answer while it is generated: an iterator of its tokens. The next answer of the same generator ends it.

    `cancel`, Ctrl-C or no further call of ``next`` stops it.
    """

    def __init__(self, generator: _native.Generator, number: int) -> None:
        self._generator = generator
        self._number = number
        self._token = _native.CancelToken()

    def __next__(self) -> Token:
        piece = self._generator.next(self._number, self._token)
        if piece is None:
            raise StopIteration
        return Token(*piece)

    def read(self) -> str:
        """Returns the text of all remaining tokens."""
        return "".join(token.text for token in self)

    def cancel(self) -> None:
        """Ends the answer, also from another thread."""
        self._token.cancel()

    @property
    def data(self) -> dict[str, Any]:
        """Facts about the answer: reason it ``ended`` (``end``, ``length``, ``context``, ``stop``, ``cancelled``, or None before the
        end), computed ``prompt_tokens``, seconds to the ``first_token``, ``tokens_per_second`` after it, and the number of ``plans``
        that the generator has made."""
        return dict(json.loads(self._generator.data(self._number)))


class Generator:
    """A language model in a folder that onnxruntime-genai or optimum exported.

        generator = ab.Generator("model", place="auto", memory={"gpu0": "6GiB"})
        for token in generator.generate("The river"):
            print(token.text, end="", flush=True)

    A model with an encoder (T5, Whisper) has several files, exported by optimum.

    Args:
        folder: Folder with ``genai_config.json`` or ``config.json``, ``tokenizer.json``, and the model.
        model: File of the folder to use instead of the model in its configuration.
        place, order, devices, cpu_devices, threads, gpu, software_gpu, gpu_backend, memory, costs, calibrate, weights, pin, cached, limits:
            As in `Session`.

    Raises:
        ModelError: If a file is missing or cannot be used.
        InputError, PlacementError: If an option is invalid or names a device that does not exist.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        model: str | os.PathLike[str] | None = None,
        place: str | os.PathLike[str] | None = None,
        order: str | None = None,
        devices: Sequence[str] | None = None,
        cpu_devices: str | None = None,
        threads: int | None = None,
        gpu: bool | None = None,
        software_gpu: bool | None = None,
        gpu_backend: str | None = None,
        memory: Mapping[str, int | str] | None = None,
        costs: str | os.PathLike[str] | None = None,
        calibrate: bool = False,
        weights: str | None = None,
        pin: Mapping[str, str] | None = None,
        cached: int | None = None,
        limits: Mapping[str, int | str] | None = None,
    ) -> None:
        options = _options(
            place=None if place is None else os.fspath(place),
            order=order,
            devices=devices,
            cpu_devices=cpu_devices,
            threads=threads,
            gpu=gpu,
            software_gpu=software_gpu,
            gpu_backend=gpu_backend,
            memory=memory,
            costs=None if costs is None else os.fspath(costs),
            calibrate=calibrate,
            weights=weights,
            pin=pin,
            cached=cached,
            limits=limits,
        )
        self._generator = _native.Generator(folder, model, options)

    @property
    def config(self) -> dict[str, Any]:
        """Configuration of the folder: ``model`` (file), ``context`` (in tokens), ``vocabulary`` and ``ends``."""
        return dict(json.loads(self._generator.config()))

    def encode(self, text: str) -> list[int]:
        """Returns the tokens of a text, including those that the tokenizer adds around it."""
        return self._generator.encode(text)

    def decode(self, tokens: Iterable[int]) -> str:
        """Returns the text of tokens."""
        return self._generator.decode(list(tokens))

    def generate(
        self,
        prompt: str | Iterable[int] = "",
        *,
        features: Any = None,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        repetition_penalty: float | None = None,
        seed: int = 0,
        stop: str | Sequence[str] = (),
        max_length: int | None = None,
    ) -> Answer:
        """Starts an answer to a text or to tokens.

        Args:
            prompt: Text, or its tokens. If the model has an encoder for text, the encoder reads it.
            features: For a model whose encoder takes features (Whisper): an array of float32, 1 × mels × frames, as the model's
                processor computes it from sound. The prompt is then the beginning of the decoder's text.
            temperature: Temperature of draws; 0 takes the most probable token. Defaults of this, `top_k`, `top_p`,
                `repetition_penalty` and `max_length` are in the folder's configuration, else greedy.
            top_k: Number of the most probable tokens to draw from.
            top_p: Total probability of the most probable tokens to draw from.
            repetition_penalty: Makes tokens that occurred before less probable by this factor.
            seed: The same seed gives the same tokens, on any number of threads.
            stop: Strings, or one, before which the answer ends.
            max_length: Tokens of prompt and answer together, at most.

        Raises:
            InputError: If an argument is invalid, the prompt leaves no space for an answer, or the encoder does not accept it.
        """
        tokens = self.encode(prompt) if isinstance(prompt, str) else list(prompt)
        given = dict(
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            repetition_penalty=repetition_penalty,
            max_length=max_length,
            stops=_stops(stop),
            seed=seed,
        )
        arrays = [] if features is None else [_given("features", features, None)]
        return self._start(tokens, given, arrays, go_on=False)

    def batch(self, prompts: Iterable[str | Iterable[int]], **options: Any) -> list[Completion]:
        """Answers several prompts together: a step computes one token per prompt. The options are those of `generate`; each further
        prompt adds 1 to the seed. Each prompt has the same tokens as alone, unless logits differ by less than rounding.

        Raises:
            InputError: As for `generate`, and if the model takes only one prompt at a time.
        """
        if isinstance(prompts, str):
            raise InputError(f"prompts must be a list of texts, not the text {prompts!r}; write [{prompts!r}]")
        tokens = [self.encode(prompt) if isinstance(prompt, str) else list(prompt) for prompt in prompts]
        stops = _stops(options.pop("stop", ()))
        made = self._generator.batch(tokens, dumps({**options, "stops": stops}), _native.CancelToken())
        return [Completion(**answer) for answer in json.loads(made)]

    def chat(self, messages: Iterable[Mapping[str, str]], **options: Any) -> Answer:
        """Starts an answer to messages, each with ``role`` and ``content``, by the model's chat template. The options are those of
        `generate`. The beginning that the messages share with the chat before is not computed again.

        Raises:
            ModelError: If the folder has no template, or it fails.
            InputError: As for `generate`.
        """
        said = [(message["role"], message["content"]) for message in messages]
        stops = _stops(options.pop("stop", ()))
        return self._start(self._generator.encode_chat(said), {**options, "stops": stops}, [], go_on=True)

    def _start(self, tokens: list[int], given: dict[str, Any], features: list[Given], go_on: bool) -> Answer:
        return Answer(self._generator, self._generator.start(tokens, features, dumps(given), go_on))


def _stops(stop: str | Iterable[str]) -> list[str]:
    return [stop] if isinstance(stop, str) else list(stop)
