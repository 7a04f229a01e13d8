// Cell of a GRU for recurrent.wgsl; gates z, r, h. RESET_AFTER: the reset gate is applied after the product.

fn first_kept(index: u32) -> f32 {
    return 0.0;
}

fn last_kept(index: u32) -> f32 {
    return 0.0;
}

fn keep_last(index: u32, value: f32) {}

fn advance(first: u32, thread: u32) {
    for (var unit = thread; unit < UNITS; unit = unit + 256u) {
        let update = sigmoid(p[first + unit] + gate_of_hidden(0u, unit));
        let reset = sigmoid(p[first + UNITS + unit] + gate_of_hidden(1u, unit));
        if RESET_AFTER == 1u {
            let proposed = tanh_of(p[first + 2u * UNITS + unit] + reset * gate_of_hidden(2u, unit));
            next[unit] = opaque(1.0 - update, 2097152u) * proposed + update * hidden[unit];
        } else {
            kept[unit] = update;
            next[unit] = reset * hidden[unit];
        }
    }
    if RESET_AFTER == 1u {
        return;
    }
    workgroupBarrier();
    // From here on a thread reads only its own units of the hidden state, so that they may be replaced.
    for (var unit = thread; unit < UNITS; unit = unit + 256u) {
        let proposed = tanh_of(p[first + 2u * UNITS + unit] + gate_of_next(2u, unit));
        hidden[unit] = opaque(1.0 - kept[unit], 2097152u) * proposed + kept[unit] * hidden[unit];
    }
    workgroupBarrier();
    for (var unit = thread; unit < UNITS; unit = unit + 256u) {
        next[unit] = hidden[unit];
    }
}
