// One workgroup per sequence, which loops over time with the hidden state in workgroup memory; a thread computes every
// 256-th unit. The sums of a unit run over the weights in order. A long sequence takes several dispatches, which pass
// the state in the outputs.
//
// Declared by recurrent.rs: p, r, bias, h0, y, last_h and for an LSTM c0 and last_c; UNITS, GATES, REVERSE, COUPLED,
// R_ROW and R_DEPTH (strides of r), bounded, and the cell: first_kept, last_kept, keep_last and advance, which computes
// `next`; parameters.steps, .batches, .first_step and .end_step of this dispatch.

// The hidden state by fours, whose index is checked once. They are no vectors: a thread that writes one component of a
// vector may write the others, too.
var<workgroup> hidden: array<array<f32, 4>, (UNITS + 3u) / 4u>;
// The next hidden state, or the hidden state after the reset gate.
var<workgroup> next: array<array<f32, 4>, (UNITS + 3u) / 4u>;
// A GRU's update gate or an LSTM's cell state.
var<workgroup> kept: array<f32, UNITS>;

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let batch = group.y * groups.x + group.x;
    if batch >= parameters.batches {
        return;
    }
    for (var unit = thread; unit < UNITS; unit = unit + 256u) {
        let at = batch * UNITS + unit;
        if parameters.first_step == 0u {
            hidden[unit / 4u][unit % 4u] = h0[at];
            kept[unit] = first_kept(at);
        } else {
            hidden[unit / 4u][unit % 4u] = last_h[at];
            kept[unit] = last_kept(at);
        }
    }
    workgroupBarrier();
    for (var step = parameters.first_step; step < parameters.end_step; step = step + 1u) {
        let time = select(step, parameters.steps - 1u - step, REVERSE == 1u);
        let at = time * parameters.batches + batch;
        advance(at * GATES * UNITS, thread);
        workgroupBarrier();
        for (var unit = thread; unit < UNITS; unit = unit + 256u) {
            hidden[unit / 4u][unit % 4u] = next[unit / 4u][unit % 4u];
            y[at * UNITS + unit] = next[unit / 4u][unit % 4u];
        }
        workgroupBarrier();
    }
    for (var unit = thread; unit < UNITS; unit = unit + 256u) {
        last_h[batch * UNITS + unit] = hidden[unit / 4u][unit % 4u];
        keep_last(batch * UNITS + unit, kept[unit]);
    }
}
