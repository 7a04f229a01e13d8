// A matrix times a vector: LANES threads per output, ROWS outputs per group. Each lane sums every LANES-th product, and
// loads four at a time; then the lanes are added in a tree.
//
// Declared by product.rs: parameters.first (batch), .batches, .m, .n (one of which is 1), .groups (of one part), .parts, .depth.
// By matmul.rs: a, weight (an element of B), a_batch and b_batch, LANES, ROWS, place, total, store; parameters.k, .a_row, .a_depth, .b_column, .b_depth.

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let at = place(thread);
    let number = group.y * groups.x + group.x;
    let part = number / parameters.groups;
    let output = number % parameters.groups * ROWS + at.x;
    let area = parameters.m * parameters.n;
    // Threads without an output repeat the work of the last one, so that all threads reach the barriers.
    let own = min(output, parameters.batches * area - 1u);
    let batch = own / area;
    let row = own / parameters.n % parameters.m;
    let column = own % parameters.n;
    let start = part * parameters.depth + at.y;
    let end = min((part + 1u) * parameters.depth, parameters.k);
    let a_step = LANES * parameters.a_depth;
    let b_step = LANES * parameters.b_depth;
    var a_at = a_batch(parameters.first + batch) + row * parameters.a_row + start * parameters.a_depth;
    var b_at = b_batch(parameters.first + batch) + column * parameters.b_column + start * parameters.b_depth;
    var k = start;
    var sum = 0.0;
    for (; k + 3u * LANES < end; k = k + 4u * LANES) {
        let a0 = a[a_at];
        let a1 = a[a_at + a_step];
        let a2 = a[a_at + 2u * a_step];
        let a3 = a[a_at + 3u * a_step];
        let b0 = weight(b_at);
        let b1 = weight(b_at + b_step);
        let b2 = weight(b_at + 2u * b_step);
        let b3 = weight(b_at + 3u * b_step);
        sum = fma(a3, b3, fma(a2, b2, fma(a1, b1, fma(a0, b0, sum))));
        a_at = a_at + 4u * a_step;
        b_at = b_at + 4u * b_step;
    }
    for (; k < end; k = k + LANES) {
        sum = fma(a[a_at], weight(b_at), sum);
        a_at = a_at + a_step;
        b_at = b_at + b_step;
    }
    sum = total(sum, at);
    if part < parameters.parts && output == own && at.y == 0u {
        store(part * parameters.batches + batch, row, column, sum);
    }
}
