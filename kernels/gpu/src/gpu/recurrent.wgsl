// One workgroup per sequence, which loops over time with the hidden state in workgroup memory; a thread computes every
// 256-th unit. The sums of a unit run over the weights in order. A long sequence takes several dispatches, which pass
// the state in the outputs.
//
// Declared by recurrent.rs: p, r, bias, h0, y, last_h and for an LSTM c0 and last_c; UNITS, GATES, REVERSE, and the cell:
// first_kept, last_kept, keep_last and advance, which computes `next`; parameters.steps, .batches, .r_row and .r_depth
// (strides of r), .first_step and .end_step of this dispatch.

var<workgroup> hidden: array<f32, UNITS>;
// The next hidden state, or the hidden state after the reset gate.
var<workgroup> next: array<f32, UNITS>;
// A GRU's update gate or an LSTM's cell state.
var<workgroup> kept: array<f32, UNITS>;

// The recurrent part of a gate's input: row `gate · UNITS + unit` of r times the state, plus the bias.
fn gate_of_hidden(gate: u32, unit: u32) -> f32 {
    let row = gate * UNITS + unit;
    var sum = 0.0;
    for (var k = 0u; k < UNITS; k = k + 1u) {
        sum = fma(r[row * parameters.r_row + k * parameters.r_depth], hidden[k], sum);
    }
    return sum + bias[row];
}

fn gate_of_next(gate: u32, unit: u32) -> f32 {
    let row = gate * UNITS + unit;
    var sum = 0.0;
    for (var k = 0u; k < UNITS; k = k + 1u) {
        sum = fma(r[row * parameters.r_row + k * parameters.r_depth], next[k], sum);
    }
    return sum + bias[row];
}

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
            hidden[unit] = h0[at];
            kept[unit] = first_kept(at);
        } else {
            hidden[unit] = last_h[at];
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
            hidden[unit] = next[unit];
            y[at * UNITS + unit] = next[unit];
        }
        workgroupBarrier();
    }
    for (var unit = thread; unit < UNITS; unit = unit + 256u) {
        last_h[batch * UNITS + unit] = hidden[unit];
        keep_last(batch * UNITS + unit, kept[unit]);
    }
}
