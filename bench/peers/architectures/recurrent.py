"""Recurrent networks over 100 steps of 80 features: two layers of LSTM, and three bidirectional ones of GRU for a batch of 4."""

import numpy

from graph import Graph

GATES = {"LSTM": 4, "GRU": 3}


def recurrent(directory, name, kind, layers, units, batch, directions, steps=100, features=80):
    graph = Graph(name)
    x, wide = graph.transpose(graph.input("x", batch, steps, features), 1, 0, 2), features
    state = graph.array(numpy.zeros((directions, batch, units), numpy.float32))
    states = {"LSTM": [state, state], "GRU": [state]}[kind]
    further = {"GRU": {"linear_before_reset": 1}}.get(kind, {}) | ({"direction": "bidirectional"} if directions == 2 else {})
    for _ in range(layers):
        rows = GATES[kind] * units
        weights = [graph.weight(directions, rows, columns, terms=columns) for columns in (wide, units)]
        weights.append(graph.weight(directions, 2 * rows, terms=100))
        x = graph.outputs_of(kind, 1 + len(states), x, *weights, "", *states, hidden_size=units, **further)[0]
        if directions == 2:
            x = graph.reshape(graph.transpose(x, 0, 2, 1, 3), 0, 0, -1)
        else:
            x = graph.node("Squeeze", x, graph.integers(1))
        wide = directions * units
    graph.save(directory, graph.linear(graph.transpose(x, 1, 0, 2), wide, 40))


def write(directory):
    recurrent(directory, "lstm", "LSTM", layers=2, units=256, batch=1, directions=1)
    recurrent(directory, "gru", "GRU", layers=3, units=192, batch=4, directions=2)
