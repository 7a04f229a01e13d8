// Adds up the sums of a product's parts in order: one thread per output.
//
// Declared by product.rs: sums (those of all outputs for each part), parameters.parts, .count (outputs), .m and .n. By the
// kernel: store(batch, row, column, value).

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
    var sum = sums[index];
    for (var part = 1u; part < parameters.parts; part = part + 1u) {
        sum = sum + sums[part * parameters.count + index];
    }
    let line = index / parameters.n;
    store(line / parameters.m, line % parameters.m, index % parameters.n, sum);
}
