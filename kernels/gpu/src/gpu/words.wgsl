// Up to eight rows times narrow weights whose depth lies side by side: LANES threads per OUTPUTS columns. A lane takes
// every LANES-th chunk of each column; then the lanes are added in a tree.
//
// Declared by product.rs: parameters.m, .n. By words.rs: a, b, a_at and what the slots use, LANES, ROWS (teams of lanes
// per group), OUTPUTS, place, total; parameters.chunks; the slots. By matmul.rs: store.

fn sum_of_vectors(a: vec4<f32>, b: vec4<f32>) -> vec4<f32> {
    return a + b;
}

fn sum_of_elements(v: vec4<f32>) -> f32 {
    return (v.x + v.y) + (v.z + v.w);
}

// Stores four sums, those of OUTPUTS columns for each row: one per lane.
fn keep(first_row: u32, first_column: u32, sums: vec4<f32>, lane: u32) {
    let row = first_row + lane / OUTPUTS;
    let column = first_column + lane % OUTPUTS;
    if lane < 4u && row < parameters.m && column < parameters.n {
        store(0u, row, column, sums[lane]);
    }
}

@compute @workgroup_size(64)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let at = place(thread);
    let first = ((group.y * groups.x + group.x) * ROWS + at.x) * OUTPUTS;
    let chunks = parameters.chunks;
{{starts}}    for (var chunk = at.y; chunk < chunks; chunk = chunk + LANES) {
{{chunk}}    }
{{ends}}}
