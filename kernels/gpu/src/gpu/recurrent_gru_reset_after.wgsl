// Cell of a GRU for recurrent.wgsl that applies the reset gate after the product; gates z, r, h.

fn advance(first: u32, thread: u32) {
    for (var unit = thread; unit < UNITS; unit = unit + 256u) {
        let gates = gates(unit);
        let update = sigmoid(bounded(p[first + unit] + gates.x));
        let reset = sigmoid(bounded(p[first + UNITS + unit] + gates.y));
        let proposed = tanh_of(bounded(p[first + 2u * UNITS + unit] + reset * gates.z));
        let old = hidden[unit / 4u][unit % 4u];
        next[unit / 4u][unit % 4u] = opaque(1.0 - update, 2097152u) * proposed + update * old;
    }
}
