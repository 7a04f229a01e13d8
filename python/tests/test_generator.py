"""Text from language models: the tokens of the reference, and answers that end as they should."""

import numpy as np
import pytest
from conftest import DATA

import anabranch as ab

LLAMA = DATA / "language" / "llama"


def opened(folder=LLAMA, **options):
    return ab.Generator(folder, **{"gpu": False, "threads": 1, **options})


def test_tokens_are_those_of_the_reference_and_their_texts_the_text():
    generator = opened(memory={"cpu0": "1GiB"})
    greedy = np.load(LLAMA / "greedy.npz")
    answer = generator.generate(greedy["prompt"].tolist(), max_length=9 + 20)
    tokens = list(answer)
    chosen = [token.id for token in tokens if token.id is not None]
    assert chosen == greedy["tokens"][:20].tolist()
    assert "".join(token.text for token in tokens) == generator.decode(chosen)
    assert answer.data["ended"] == "length" and answer.data["first_token"] > 0
    assert generator.config["context"] == 2048 and generator.config["vocabulary"] == 128


def test_encoders_of_text_and_of_features_give_the_tokens_of_the_reference():
    for name, given in (("t5", "prompt"), ("whisper", "features")):
        folder = DATA / "language" / name
        greedy = np.load(folder / "greedy.npz")
        prompt = {given: greedy[given].tolist() if given == "prompt" else greedy[given]}
        tokens = [token.id for token in opened(folder).generate(**prompt, max_length=21)]
        assert [token for token in tokens if token is not None] == greedy["tokens"][:20].tolist()
    whisper = opened(folder)
    with pytest.raises(ab.errors.InputError, match="features="):
        whisper.generate("x")
    with pytest.raises(ab.errors.InputError, match="1×8×79"):
        whisper.generate(features=greedy["features"][:, :, :79])
    with pytest.raises(ab.errors.InputError, match="no encoder"):
        opened().generate("x", features=greedy["features"])


def test_a_batch_has_the_answers_of_each_prompt_alone():
    prompts, options = ["The river", [5], "Where the sea is"], dict(temperature=2.0, seed=3, max_length=24)
    made = opened().batch(prompts, **options)
    generator = opened()
    for at, answer in enumerate(made):
        alone = generator.generate(prompts[at], **{**options, "seed": 3 + at})
        assert answer.tokens == [token.id for token in alone if token.id is not None]
        assert answer.ended == alone.data["ended"] and generator.decode(answer.tokens) == answer.text
    with pytest.raises(ab.errors.InputError, match="one prompt at a time"):
        opened(DATA / "language" / "t5").batch(["a", "b"])


def test_a_seed_decides_the_draws():
    generator = opened()
    draw = lambda seed: generator.generate("The river", temperature=2.0, seed=seed, max_length=20).read()
    assert draw(1) == draw(1) != draw(2)


def test_the_next_answer_ends_the_one_before():
    generator = opened()
    first = generator.chat([{"role": "user", "content": "Hi"}], max_length=40)
    next(first)
    second = generator.generate("Hi", max_length=8)
    with pytest.raises(ab.errors.InputError, match="another answer"):
        next(first)
    next(second)
    second.cancel()
    assert not [token for token in second if token.id is not None]
    assert second.data["ended"] == "cancelled"


def test_what_cannot_be_generated_is_said(tmp_path):
    with pytest.raises(ab.errors.ModelError, match="genai_config.json"):
        opened(tmp_path)
    generator = opened()
    with pytest.raises(ab.errors.InputError, match="temperature"):
        generator.generate("x", temperature=-1.0)
    with pytest.raises(ab.errors.InputError, match="length"):
        generator.generate("The river", max_length=2)
    with pytest.raises(ab.AnabranchError, match="warmth"):
        generator.chat([{"role": "user", "content": "x"}], warmth=1)
