"""One process of onnxruntime-genai: rates of a folder, or the time to the first token. Prints JSON."""

import argparse
import json
import time

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("folder")
parser.add_argument("--threads", type=int, required=True)
parser.add_argument("--bench", action="append", default=[], help="P,N: tokens of a prompt, and tokens that follow")
parser.add_argument("--repeat", type=int, default=3)
arguments = parser.parse_args()

import numpy as np  # noqa: E402
import onnxruntime_genai as genai  # noqa: E402

config = genai.Config(arguments.folder)
config.overlay(json.dumps({"model": {"decoder": {"session_options": {"intra_op_num_threads": arguments.threads}}}}))
model = genai.Model(config)


def tokens(count):
    return (np.arange(1, count + 1, dtype=np.uint64) * 2654435761 % 31000).astype(np.int32)


def generated(prompt, follow):
    """Seconds of the prompt with its first token, and of the tokens that follow."""
    parameters = genai.GeneratorParams(model)
    parameters.set_search_options(max_length=prompt + follow + 2, min_length=prompt + follow + 2, do_sample=False)
    generator = genai.Generator(model, parameters)
    begun = time.perf_counter()
    generator.append_tokens(tokens(prompt))
    generator.generate_next_token()
    first = time.perf_counter()
    for _ in range(follow):
        generator.generate_next_token()
    return first - begun, time.perf_counter() - first


if not arguments.bench:
    generated(1, 0)
rates = {}
for bench in arguments.bench:
    prompt, follow = map(int, bench.split(","))
    generated(prompt, follow)
    seconds = [generated(prompt, follow) for _ in range(arguments.repeat)]
    rates[f"prefill {prompt}"] = [prompt / one for one, _ in seconds]
    if follow:
        rates[f"decode {prompt}"] = [follow / other for _, other in seconds]
print(json.dumps(rates))
