"""One process of another runtime: rates of a model, or the time to its first token. Prints JSON.

    peer.py genai FOLDER --threads 2 --bench 128,64
    peer.py llama.cpp FILE.gguf --threads 2 --bench 128,64
"""

import argparse
import json
import time


class Genai:
    """onnxruntime-genai, which computes the logits of all tokens of a prompt, and chooses the most probable token."""

    def __init__(self, folder, threads, _longest):
        import onnxruntime_genai

        self.genai = onnxruntime_genai
        config = self.genai.Config(folder)
        options = {"intra_op_num_threads": threads}
        config.overlay(json.dumps({"model": {"decoder": {"session_options": options}}}))
        self.model = self.genai.Model(config)

    def begin(self, length):
        parameters = self.genai.GeneratorParams(self.model)
        parameters.set_search_options(max_length=length + 2, min_length=length + 2, do_sample=False)
        self.generator = self.genai.Generator(self.model, parameters)

    def read(self, prompt):
        self.generator.append_tokens(prompt)
        self.generator.generate_next_token()

    def follow(self, tokens):
        for _ in tokens:
            self.generator.generate_next_token()


class LlamaCpp:
    """llama.cpp through its Python package: tokens are given, and the logits of the last one are computed."""

    def __init__(self, file, threads, longest):
        import llama_cpp

        sizes = {"n_ctx": longest + 8, "n_batch": 512, "n_threads": threads, "n_threads_batch": threads}
        self.model = llama_cpp.Llama(file, verbose=False, **sizes)

    def begin(self, _length):
        self.model.reset()

    def read(self, prompt):
        self.model.eval(prompt)

    def follow(self, tokens):
        for token in tokens:
            self.model.eval([token])


def generated(peer, prompt, follow):
    """Seconds of the prompt, and of the tokens that follow."""
    tokens = [number * 2654435761 % 31000 for number in range(1, prompt + follow + 1)]
    peer.begin(prompt + follow)
    begun = time.perf_counter()
    peer.read(tokens[:prompt])
    first = time.perf_counter()
    peer.follow(tokens[prompt:])
    return first - begun, time.perf_counter() - first


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runtime", choices=("genai", "llama.cpp"))
    parser.add_argument("model")
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--bench", action="append", default=[], help="P,N: tokens of a prompt, and tokens that follow")
    parser.add_argument("--repeat", type=int, default=3)
    arguments = parser.parse_args()
    wanted = [tuple(map(int, bench.split(","))) for bench in arguments.bench]
    longest = max((prompt + follow for prompt, follow in wanted), default=1)
    peer = (Genai if arguments.runtime == "genai" else LlamaCpp)(arguments.model, arguments.threads, longest)
    if not wanted:
        generated(peer, 1, 0)
    rates = {}
    for prompt, follow in wanted:
        generated(peer, prompt, follow)
        seconds = [generated(peer, prompt, follow) for _ in range(arguments.repeat)]
        rates[f"prefill {prompt}"] = [prompt / one for one, _ in seconds]
        if follow:
            rates[f"decode {prompt}"] = [follow / other for _, other in seconds]
    print(json.dumps(rates))


main()
