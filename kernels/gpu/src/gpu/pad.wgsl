// One thread per element; 256 threads per group.
//
// Declared by pad.rs: x, y, `element(index)`, which finds or makes up element `index` of the output; parameters.count.

// Index of the axis for an index outside of it, mirrored at the edges as often as needed.
fn reflected(index: i32, size: i32) -> u32 {
    if size == 1 { return 0u; }
    let period = 2 * (size - 1);
    let within = abs(index) % period;
    return u32(select(within, period - within, within >= size));
}

// Index of the axis for an index outside of it, as if the axis was repeated.
fn wrapped(index: i32, size: i32) -> u32 {
    return u32((index % size + size) % size);
}

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let index = (group.y * groups.x + group.x) * 256u + thread;
    if index < parameters.count {
        y[index] = element(index);
    }
}
