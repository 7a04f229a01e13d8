// LANES threads a row, ROWS rows a group; the mean first, then the mean of the squared deviations from it, then the result.
//
// Declared by normalize.rs: x, y, LANES, ROWS, CENTER, place, total, finish; parameters.first and .count (rows), .length
// (elements of a row) and .epsilon (the bits of a float).

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let at = place(thread);
    let number = (group.y * groups.x + group.x) * ROWS + at.x;
    let base = (parameters.first + min(number, parameters.count - 1u)) * parameters.length;
    let length = f32(parameters.length);

    // Distances from the first element are exact where the mean is far from zero and a sum would lose them.
    let pivot = select(0.0, x[base], CENTER == 1u);
    var mean = 0.0;
    if CENTER == 1u {
        var sum = 0.0;
        for (var i = at.y; i < parameters.length; i = i + LANES) {
            sum = sum + (x[base + i] - pivot);
        }
        mean = total(sum, at) / length;
    }

    var squares = 0.0;
    for (var i = at.y; i < parameters.length; i = i + LANES) {
        let deviation = (x[base + i] - pivot) - mean;
        squares = squares + deviation * deviation;
    }
    let variance = total(squares, at) / length;

    if number >= parameters.count {
        return;
    }
    let factor = 1.0 / sqrt(variance + bitcast<f32>(parameters.epsilon));
    for (var i = at.y; i < parameters.length; i = i + LANES) {
        y[base + i] = finish(((x[base + i] - pivot) - mean) * factor, base + i, base + i);
    }
}
