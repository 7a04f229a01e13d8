// One thread per output; 256 threads per group.
//
// Declared by pool.rs: x, y, WINDOW_Y … PAD_LEFT, MAX (1 for the greatest, 0 for the mean), COUNT_PADDING;
// parameters.count (outputs), .height, .width, .out_height, .out_width, .padded_height and .padded_width (extent in
// which padding counts, from the first padded row and column).

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
    let row = index / parameters.out_width;
    let plane = row / parameters.out_height;
    let top = row % parameters.out_height * STRIDE_Y;
    let left = index % parameters.out_width * STRIDE_X;
    let base = plane * parameters.height * parameters.width;
    var value = select(0.0, negative_infinity(), MAX == 1u);
    var counted = 0u;
    for (var ky = 0u; ky < WINDOW_Y; ky = ky + 1u) {
        for (var kx = 0u; kx < WINDOW_X; kx = kx + 1u) {
            // Coordinates in the padded image; before its first row they wrap around to values beyond the last.
            let py = top + ky * DILATION_Y;
            let px = left + kx * DILATION_X;
            let inside = py - PAD_TOP < parameters.height && px - PAD_LEFT < parameters.width;
            if inside {
                let element = x[base + (py - PAD_TOP) * parameters.width + (px - PAD_LEFT)];
                if MAX == 1u { value = maximum(value, element); } else { value = value + element; }
            }
            let padded = py < parameters.padded_height && px < parameters.padded_width;
            counted = counted + select(0u, 1u, inside || (COUNT_PADDING == 1u && padded));
        }
    }
    y[index] = select(value / f32(max(counted, 1u)), value, MAX == 1u);
}
