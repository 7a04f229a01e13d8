"""One process of llama.cpp through its Python package: rates of a GGUF file, or the time to the first token. Prints JSON."""

import argparse
import json
import time

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("file")
parser.add_argument("--threads", type=int, required=True)
parser.add_argument("--bench", action="append", default=[], help="P,N: tokens of a prompt, and tokens that follow")
parser.add_argument("--repeat", type=int, default=3)
arguments = parser.parse_args()

import llama_cpp  # noqa: E402

wanted = [tuple(map(int, bench.split(","))) for bench in arguments.bench] or [(1, 0)]
longest = max(prompt + follow for prompt, follow in wanted)
model = llama_cpp.Llama(
    arguments.file,
    n_ctx=longest + 8,
    n_batch=512,
    n_threads=arguments.threads,
    n_threads_batch=arguments.threads,
    verbose=False,
)


def tokens(count):
    return [number * 2654435761 % 31000 for number in range(1, count + 1)]


def generated(prompt, follow):
    """Seconds of the prompt, and of the tokens that follow. Tokens are given, and none is chosen."""
    model.reset()
    given = tokens(prompt + follow)
    begun = time.perf_counter()
    model.eval(given[:prompt])
    first = time.perf_counter()
    for token in given[prompt:]:
        model.eval([token])
    return first - begun, time.perf_counter() - first


if not arguments.bench:
    generated(1, 0)
rates = {}
for prompt, follow in wanted if arguments.bench else []:
    generated(prompt, follow)
    seconds = [generated(prompt, follow) for _ in range(arguments.repeat)]
    rates[f"prefill {prompt}"] = [prompt / one for one, _ in seconds]
    if follow:
        rates[f"decode {prompt}"] = [follow / other for _, other in seconds]
print(json.dumps(rates))
