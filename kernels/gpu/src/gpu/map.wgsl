// One thread per element, or per vector of four neighbouring elements if every operand allows it; 256 threads per
// group.
//
// Declared by block.rs: y, the operands, parameters.first and .count (in elements, or in vectors), and `element`,
// which computes element or vector `index` of the output.

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let at = (group.y * groups.x + group.x) * 256u + thread;
    if at < parameters.count {
        let index = parameters.first + at;
        y[index] = element(index);
    }
}
