// One thread per element of the output; 256 threads per group. Elements are copied as bits.
//
// Declared by gather.rs: x, y, source_of(index), the place in x of an element of y; parameters.count (elements), .inner
// (elements of one slice), .chosen (indices), .size (of the axis of the indices).

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let index = (group.y * groups.x + group.x) * 256u + thread;
    if index < parameters.count {
        y[index] = x[source_of(index)];
    }
}
