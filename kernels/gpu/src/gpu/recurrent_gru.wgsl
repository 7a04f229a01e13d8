// Cell of a GRU for recurrent.wgsl that applies the reset gate before the product; gates z, r, h.

fn advance(first: u32, thread: u32) {
    for (var unit = thread; unit < UNITS; unit = unit + 256u) {
        let gates = gates(unit);
        let reset = sigmoid(bounded(p[first + UNITS + unit] + gates.y));
        kept[unit] = sigmoid(bounded(p[first + unit] + gates.x));
        next[unit / 4u][unit % 4u] = reset * hidden[unit / 4u][unit % 4u];
    }
    workgroupBarrier();
    // From here on a thread reads only its own units of the hidden state, so that they may be replaced.
    for (var unit = thread; unit < UNITS; unit = unit + 256u) {
        let proposed = tanh_of(bounded(p[first + 2u * UNITS + unit] + proposal(unit)));
        let old = hidden[unit / 4u][unit % 4u];
        hidden[unit / 4u][unit % 4u] = opaque(1.0 - kept[unit], 2097152u) * proposed + kept[unit] * old;
    }
    workgroupBarrier();
    for (var unit = thread; unit < UNITS; unit = unit + 256u) {
        next[unit / 4u][unit % 4u] = hidden[unit / 4u][unit % 4u];
    }
}
