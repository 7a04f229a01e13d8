"""The families of operators, and the cases of each."""

import control
import elementwise
import movement
import products
import quantized
import reductions

FAMILIES = {module.__name__: module for module in (elementwise, reductions, movement, products, quantized, control)}


def cases(families, pick):
    """Cases of some families, with parameters of tables or drawn ones."""
    for family in families:
        for builder in FAMILIES[family].BUILDERS:
            for case in builder(pick.of(f"{family}.{builder.__name__}")):
                case.family = family
                yield case
