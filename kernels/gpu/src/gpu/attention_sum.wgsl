// Joins the parts of attention over a cache, in order: one thread per feature of a result.
//
// Declared by attention.rs: parts (of each row and part: the greatest score, the sum of exponentials, and WIDTH sums of
// values), out, quotient_of_sums(sum, total, peak), WIDTH, SPLITS; parameters.count (elements of the result).

// Its exponential is 0.
const VANISHING = -104.0;

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let index = (group.y * groups.x + group.x) * 256u + thread;
    if index >= parameters.count {
        return;
    }
    let base = index / WIDTH * SPLITS * (WIDTH + 2u);
    var peak = parts[base];
    for (var part = 1u; part < SPLITS; part = part + 1u) {
        peak = maximum(peak, parts[base + part * (WIDTH + 2u)]);
    }
    var total = 0.0;
    var sum = 0.0;
    for (var part = 0u; part < SPLITS; part = part + 1u) {
        let at = base + part * (WIDTH + 2u);
        let factor = exp(max(parts[at] - peak, VANISHING));
        total = total + parts[at + 1u] * factor;
        sum = sum + parts[at + 2u + index % WIDTH] * factor;
    }
    out[index] = quotient_of_sums(sum, total, peak);
}
