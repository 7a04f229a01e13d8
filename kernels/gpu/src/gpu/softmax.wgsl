// LANES threads per row, ROWS rows per group; three passes over the row: greatest element, sum of exponentials, result.
//
// Declared by softmax.rs: x, y, LANES, ROWS, LOG, place, greatest, total; parameters.first and .count (rows), .length and
// .inner (elements of a row, and how far they are apart).

fn element(base: u32, index: u32) -> u32 {
    return base + index * parameters.inner;
}

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let at = place(thread);
    let number = (group.y * groups.x + group.x) * ROWS + at.x;
    // Threads without a row repeat the work of the last one, so that all threads reach the barriers.
    let row = parameters.first + min(number, parameters.count - 1u);
    let base = row / parameters.inner * parameters.length * parameters.inner + row % parameters.inner;

    var peak = negative_infinity();
    for (var i = at.y; i < parameters.length; i = i + LANES) {
        peak = maximum(peak, x[element(base, i)]);
    }
    peak = greatest(peak, at);

    var sum = 0.0;
    for (var i = at.y; i < parameters.length; i = i + LANES) {
        sum = sum + exp(x[element(base, i)] - peak);
    }
    sum = total(sum, at);

    if number >= parameters.count {
        return;
    }
    // A row with NaN or infinity, or of minus infinity alone, is NaN. The sum does not show this, because some drivers
    // make 0 of exp(NaN).
    let is_lost = is_nan(peak) || is_infinite(peak);
    let logarithm_of_sum = logarithm(sum);
    for (var i = at.y; i < parameters.length; i = i + LANES) {
        let shifted = x[element(base, i)] - peak;
        let value = select(exp(shifted) / sum, shifted - logarithm_of_sum, LOG == 1u);
        y[element(base, i)] = select(value, nan_from(peak), is_lost);
    }
}
