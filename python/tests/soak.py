"""Generates text until it is terminated, for `scripts/soak`.

    scripts/soak 3600 target/python/bin/python python/tests/soak.py

A Llama, a T5 and a Whisper of tests/data are kept open, and each round opens a further Llama. A round answers a prompt of random length, abandons
another answer in the middle, computes a batch and each of its prompts alone, runs the encoders on inputs of random lengths, and compares greedy tokens
with the references. The program ends with an error at the first token that differs.
"""

import random
import signal
import sys

import numpy as np
from conftest import DATA

import anabranch as ab

LANGUAGE = DATA / "language"


def opened(name, threads):
    return ab.Generator(LANGUAGE / name, gpu=False, threads=threads)


def chosen(answer, count=None):
    """The tokens of an answer, or only its first `count` ones."""
    tokens = []
    while count is None or len(tokens) < count:
        token = next(answer, None)
        if token is None:
            break
        tokens.extend([token.id] if token.id is not None else [])
    return tokens


def require(holds, number, what):
    if not holds:
        sys.exit(f"soak: round {number}: {what}; one_round({number}, …) repeats it")


def is_reference(generator, name, count):
    """Whether the first `count` greedy tokens are those of the reference."""
    greedy = np.load(LANGUAGE / name / "greedy.npz")
    if "features" in greedy:
        answer = generator.generate(features=greedy["features"], max_length=count + 1)
    else:
        prompt = greedy["prompt"].tolist()
        answer = generator.generate(prompt, max_length=count + (len(prompt) if name == "llama" else 1))
    return chosen(answer) == greedy["tokens"][:count].tolist()


def one_round(number, kept):
    """Returns the number of tokens."""
    draw = random.Random(number)
    llama, drawn = kept["llama"], dict(temperature=1.0, seed=number)
    prompt = [draw.randrange(1, 120) for _ in range(draw.randrange(1, 300))]
    length = len(prompt) + draw.randrange(2, 200)
    whole = chosen(llama.generate(prompt, max_length=length, **drawn))
    # There is none if the first token that is drawn ends the text.
    require(len(whole) <= length - len(prompt), number, f"{len(whole)} tokens")
    part = draw.randrange(len(whole) + 1)
    require(chosen(llama.generate(prompt, max_length=length, **drawn), part) == whole[:part], number, "an answer has other tokens when it is repeated")
    prompts = [prompt[:20], llama.encode("The river"), [5]]
    batch = llama.batch(prompts, temperature=1.0, seed=number, max_length=40)
    for at, answer in enumerate(batch):
        alone = chosen(llama.generate(prompts[at], temperature=1.0, seed=number + at, max_length=40))
        require(answer.tokens == alone, number, f"prompt {at} of a batch has other tokens alone")
    tokens = len(whole) + part + 2 * sum(len(answer.tokens) for answer in batch)
    source = [draw.randrange(1, 120) for _ in range(draw.randrange(1, 60))]
    tokens += len(chosen(kept["t5"].generate(source, max_length=draw.randrange(2, 40))))
    for name in kept:
        require(is_reference(kept[name], name, 20), number, f"{name} makes other tokens than its reference")
    require(is_reference(opened("llama", 1 + number % 2), "llama", 20), number, "a new generator makes other tokens than the reference")
    return tokens + 80


def main():
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    rounds, tokens = 0, 0
    try:
        kept = {name: opened(name, 1) for name in ("llama", "t5", "whisper")}
        while True:
            tokens += one_round(rounds, kept)
            rounds += 1
    except KeyboardInterrupt:
        print(f"soak: {rounds} rounds, {tokens} tokens, all of them right", file=sys.stderr)


if __name__ == "__main__":
    main()
