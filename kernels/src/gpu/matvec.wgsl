// A matrix times a vector: LANES threads an output, ROWS outputs a group. Each lane adds up every LANES-th product, then the
// lanes are added in a tree.
//
// Declared by matmul.rs: a, b, y, a_batch and b_batch, LANES, ROWS, place, total, finish; parameters.first (batch), .count (outputs
// of the batches at hand), .m, .n (one of which is 1), .k, .a_row, .a_depth, .b_column, .b_depth.

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let at = place(thread);
    let number = (group.y * groups.x + group.x) * ROWS + at.x;
    let index = parameters.first * parameters.m * parameters.n + min(number, parameters.count - 1u);
    let batch = index / (parameters.m * parameters.n);
    let row = index / parameters.n % parameters.m;
    let column = index % parameters.n;
    let a_base = a_batch(batch) + row * parameters.a_row;
    let b_base = b_batch(batch) + column * parameters.b_column;
    var sum = 0.0;
    for (var k = at.y; k < parameters.k; k = k + LANES) {
        sum = fma(a[a_base + k * parameters.a_depth], b[b_base + k * parameters.b_depth], sum);
    }
    sum = total(sum, at);
    if number < parameters.count && at.y == 0u {
        y[index] = finish(sum, index, batch, row, column);
    }
}
