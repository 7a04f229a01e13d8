// A vector times a matrix whose lines lie side by side: LANES threads per four neighbouring outputs, ROWS times four
// outputs per group. Each lane sums every LANES-th product, and loads four lines at a time; then the lanes are added in
// a tree.
//
// Declared by product.rs: parameters.first (batch), .batches, .m, .n (one of which is 1), .groups (of one part), .parts,
// .depth. By matmul.rs: x (the vector), widened (four elements of the matrix) and grid_of, x_batch and w_batch, LANES,
// ROWS, place, total, store; parameters.k, .x_depth.

fn sum_of_vectors(a: vec4<f32>, b: vec4<f32>) -> vec4<f32> {
    return a + b;
}

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let at = place(thread);
    let number = group.y * groups.x + group.x;
    let part = number / parameters.groups;
    let output = (number % parameters.groups * ROWS + at.x) * 4u;
    let side = parameters.m * parameters.n;
    // Threads without an output repeat the work of the last ones, so that all threads reach the barriers.
    let own = min(output, parameters.batches * side - 4u);
    let batch = own / side;
    let line = own % side;
    let grid = grid_of(line);
    let start = part * parameters.depth + at.y;
    let end = min((part + 1u) * parameters.depth, parameters.k);
    let x_step = LANES * parameters.x_depth;
    let w_step = LANES * side / 4u;
    var x_at = x_batch(parameters.first + batch) + start * parameters.x_depth;
    var w_at = (w_batch(parameters.first + batch) + start * side + line) / 4u;
    var sums = vec4<f32>();
    var k = start;
    for (; k + 3u * LANES < end; k = k + 4u * LANES) {
        let x0 = x[x_at];
        let x1 = x[x_at + x_step];
        let x2 = x[x_at + 2u * x_step];
        let x3 = x[x_at + 3u * x_step];
        let w0 = widened(w_at, grid);
        let w1 = widened(w_at + w_step, grid);
        let w2 = widened(w_at + 2u * w_step, grid);
        let w3 = widened(w_at + 3u * w_step, grid);
        sums = fma(w0, vec4<f32>(x0), sums);
        sums = fma(w1, vec4<f32>(x1), sums);
        sums = fma(w2, vec4<f32>(x2), sums);
        sums = fma(w3, vec4<f32>(x3), sums);
        x_at = x_at + 4u * x_step;
        w_at = w_at + 4u * w_step;
    }
    for (; k < end; k = k + LANES) {
        sums = fma(widened(w_at, grid), vec4<f32>(x[x_at]), sums);
        x_at = x_at + x_step;
        w_at = w_at + w_step;
    }
    sums = total(sums, at);
    if part < parameters.parts && output == own && at.y == 0u {
        let is_row = parameters.m == 1u;
        for (var i = 0u; i < 4u; i = i + 1u) {
            let own_line = line + i;
            store(part * parameters.batches + batch, select(own_line, 0u, is_row), select(0u, own_line, is_row), sums[i]);
        }
    }
}
