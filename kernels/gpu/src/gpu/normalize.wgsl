// LANES threads per row, ROWS rows per group: first the mean, then the mean of the squared deviations from it, then the
// result.
//
// Declared by normalize.rs: x, y, LANES, ROWS, CENTER, place, total, finish; parameters.first and .count (rows), .length
// (elements of a row) and .epsilon (the bits of a float).

const SMALL = 8.271806125530277e-25; // 2⁻⁸⁰

const GREATEST = 3.4028234e38;

// Distance, or half of it. It is kept opaque: otherwise the compiler may add the mean to the pivot first, or halve
// after it has subtracted.
fn distance_of(x: f32, pivot: f32, is_far: bool) -> f32 {
    return opaque(select(x - pivot, opaque(0.5 * x, 2097152u) - opaque(0.5 * pivot, 2097153u), is_far), 2097154u);
}

fn both(a: vec2<f32>, b: vec2<f32>) -> vec2<f32> {
    return a + b;
}

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

    // If the mean is far from zero, distances from the first element are exact, while a sum would lose them. If
    // distances are beyond the greatest number, those of halves are not.
    let pivot = select(0.0, x[base], CENTER == 1u);
    var mean = 0.0;
    var is_far = false;
    if CENTER == 1u {
        var sums = vec2<f32>(0.0);
        for (var i = at.y; i < parameters.length; i = i + LANES) {
            sums = sums + vec2<f32>(distance_of(x[base + i], pivot, false), distance_of(x[base + i], pivot, true)) / length;
        }
        let means = total(sums, at);
        is_far = !(abs(means.x) <= GREATEST);
        mean = select(means.x, means.y, is_far);
    }

    // The second sum is of numbers so small that their squares are finite.
    var sums = vec2<f32>(0.0);
    for (var i = at.y; i < parameters.length; i = i + LANES) {
        let deviation = distance_of(x[base + i], pivot, is_far) - mean;
        let small = opaque(deviation * SMALL, 2097155u);
        sums = sums + vec2<f32>(deviation * deviation, small * small);
    }
    let squares = total(sums, at);

    if number >= parameters.count {
        return;
    }
    // Compared with squares that are not finite, epsilon is negligible.
    let is_finite = squares.x <= GREATEST;
    let epsilon = select(0.0, bitcast<f32>(parameters.epsilon), is_finite);
    let factor = 1.0 / sqrt(select(squares.y, squares.x, is_finite) / length + epsilon);
    for (var i = at.y; i < parameters.length; i = i + LANES) {
        let deviation = distance_of(x[base + i], pivot, is_far) - mean;
        // The product is kept opaque, because the factor of large deviations alone is subnormal.
        y[base + i] = finish(opaque(select(deviation * SMALL, deviation, is_finite), 2097156u) * factor, base + i, base + i);
    }
}
