"""Tests of drawn cases: `python -m pytest bench/peers/operators`."""

from collections import Counter

import numpy as np
import pytest
from draw import Drawn, Fixed
from families import FAMILIES, cases


def described(pick, families=FAMILIES):
    return [(case.name, case.label, *(array.shape for array in case.arrays().values())) for case in cases(families, pick)]


@pytest.fixture(scope="module")
def listed():
    return described(Fixed())


@pytest.fixture(scope="module")
def drawn():
    return described(Drawn(3))


def test_a_seed_draws_the_same_cases_again(drawn):
    assert described(Drawn(3)) == drawn


def test_another_seed_draws_other_cases(drawn):
    assert (Counter(described(Drawn(4))) & Counter(drawn)).total() < 0.1 * len(drawn)


def test_cases_of_a_family_do_not_depend_on_the_others(drawn):
    assert described(Drawn(3), [list(FAMILIES)[-1]]) == drawn[-len(described(Drawn(3), [list(FAMILIES)[-1]])) :]


def test_every_operator_of_the_list_is_drawn(listed, drawn):
    assert {case[0] for case in drawn} == {case[0] for case in listed}


def test_few_drawn_cases_are_those_of_the_list(listed, drawn):
    assert len(set(drawn) & set(listed)) < 0.05 * len(drawn)


@pytest.mark.parametrize("most", [1, 2, 7, 1000])
def test_lengths_are_within_bounds(most):
    draw = Drawn(3)
    assert {draw.length(most) for _ in range(1000)} <= set(range(1, most + 1))


def test_shapes_of_operands_are_broadcast():
    draw = Drawn(3)
    for _ in range(200):
        shapes = draw.broadcast(3, first_whole=True)
        assert np.broadcast_shapes(*shapes) == shapes[0]
