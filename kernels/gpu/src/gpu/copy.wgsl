// Strided copy with one thread per element, or per vector of four neighbouring elements; 256 threads per group.
//
// Declared by copy.rs: x, y, source_of(index) and target_of(index), offsets in elements; WIDTH; parameters.count (in elements,
// or in vectors), .source_start and .target_start, the offsets of the first element.

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let at = (group.y * groups.x + group.x) * 256u + thread;
    if at < parameters.count {
        let index = at * WIDTH;
        y[(parameters.target_start + target_of(index)) / WIDTH] =
            x[(parameters.source_start + source_of(index)) / WIDTH];
    }
}
