// Cell of an LSTM for recurrent.wgsl; gates i, o, f, c.

fn first_kept(index: u32) -> f32 {
    return c0[index];
}

fn last_kept(index: u32) -> f32 {
    return last_c[index];
}

fn keep_last(index: u32, value: f32) {
    last_c[index] = value;
}

fn advance(first: u32, thread: u32) {
    for (var unit = thread; unit < UNITS; unit = unit + 256u) {
        let gates = gates(unit);
        let take = sigmoid(bounded(p[first + unit] + gates.x));
        let give = sigmoid(bounded(p[first + UNITS + unit] + gates.y));
        var retain = opaque(1.0 - take, 2097152u);
        if COUPLED == 0u {
            retain = sigmoid(bounded(p[first + 2u * UNITS + unit] + gates.z));
        }
        let proposed = tanh_of(bounded(p[first + 3u * UNITS + unit] + gates.w));
        let cell = retain * kept[unit] + take * proposed;
        kept[unit] = cell;
        next[unit / 4u][unit % 4u] = give * tanh_of(bounded(cell));
    }
}
