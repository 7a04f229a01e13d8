// One thread per output; 256 threads per group. Compiling the kernel computed the inputs and weights of each row and
// column of the output.
//
// Declared by resize.rs: x, y, rows and columns, TAPS pairs of (index, bits of the weight) for each row and column of the
// output; parameters.count (outputs), .height, .width, .out_height, .out_width.

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
    let line = index / parameters.out_width;
    let column = index % parameters.out_width * TAPS;
    let row = line % parameters.out_height * TAPS;
    let base = line / parameters.out_height * parameters.height * parameters.width;
    var value = 0.0;
    for (var i = 0u; i < TAPS; i = i + 1u) {
        let start = base + rows[row + i].x * parameters.width;
        var along = 0.0;
        for (var j = 0u; j < TAPS; j = j + 1u) {
            along = along + x[start + columns[column + j].x] * bitcast<f32>(columns[column + j].y);
        }
        value = value + along * bitcast<f32>(rows[row + i].y);
    }
    y[index] = value;
}
