// A matrix times a vector: LANES threads per output, ROWS outputs per group. Each lane sums every LANES-th product;
// then the lanes are added in a tree.
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
    let a_base = a_batch(parameters.first + batch) + row * parameters.a_row;
    let b_base = b_batch(parameters.first + batch) + column * parameters.b_column;
    let end = min((part + 1u) * parameters.depth, parameters.k);
    var sum = 0.0;
    for (var k = part * parameters.depth + at.y; k < end; k = k + LANES) {
        sum = fma(a[a_base + k * parameters.a_depth], weight(b_base + k * parameters.b_depth), sum);
    }
    sum = total(sum, at);
    if part < parameters.parts && output == own && at.y == 0u {
        store(part * parameters.batches + batch, row, column, sum);
    }
}
