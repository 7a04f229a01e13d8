// One thread per element of the output; 256 threads per group. The indices are constants, packed when the kernel was
// compiled.
//
// Declared by gather.rs: x, indices, y, OFFSETS (1 if each output has its own offset); parameters.count (elements),
// .inner (elements of one slice), .chosen (indices), .size (of the axis of the indices).

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
    if OFFSETS == 1u {
        y[index] = x[indices[index]];
        return;
    }
    let slice = index / parameters.inner;
    let outer = slice / parameters.chosen;
    let line = outer * parameters.size + indices[slice % parameters.chosen];
    y[index] = x[line * parameters.inner + index % parameters.inner];
}
