// Cell without gates for recurrent.wgsl.

fn advance(first: u32, thread: u32) {
    for (var unit = thread; unit < UNITS; unit = unit + 256u) {
        next[unit / 4u][unit % 4u] = tanh_of(bounded(p[first + unit] + gates(unit)));
    }
}
