// LANES threads per output, ROWS outputs per group. A long reduction is cut into parts. Each part is an output of a
// first dispatch, and a second dispatch combines their states.
//
// Declared by reduce.rs: y (of State if the other dispatch applies `lower`), LANES, ROWS, place, total, State,
// identity, load(offset), lift(element, index), combine, lower; start(output) and step(index), the offsets of an output's first element
// and of the element `index` after it; parameters.first and .count (outputs), .length (elements of an output), .parts
// and .chunk (elements of a part), .divisor.

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let at = place(thread);
    let number = (group.y * groups.x + group.x) * ROWS + at.x;
    let total_count = parameters.count * parameters.parts;
    let own = min(number, total_count - 1u);
    // Neighbouring rows of the group are neighbouring outputs, which may lie side by side.
    let part = own / parameters.count;
    let output = own % parameters.count;
    let begin = part * parameters.chunk;
    let end = min(begin + parameters.chunk, parameters.length);

    let base = start(parameters.first + output);
    var state = identity();
    for (var i = begin + at.y; i < end; i = i + LANES) {
        state = combine(state, lift(load(base + step(i)), i));
    }
    state = total(state, at);
    if number < total_count && at.y == 0u {
        y[select(output * parameters.parts + part, parameters.first + output, parameters.parts == 1u)] = lower(state);
    }
}
