// Convolutions with few channels per group, such as depthwise ones: one thread per output; 256 threads per group.
//
// Declared by conv.rs: x, w, y, WINDOW_Y … PAD_LEFT, finish; parameters.count (outputs), .channels and .out_channels (of
// one group), .groups, .height, .width, .out_height, .out_width.

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
    let area = parameters.out_height * parameters.out_width;
    let pixel = index % area;
    let channel = index / area % (parameters.out_channels * parameters.groups);
    let image = index / area / (parameters.out_channels * parameters.groups);
    // Coordinates before the first row or column wrap around to values beyond the last.
    let top = pixel / parameters.out_width * STRIDE_Y - PAD_TOP;
    let left = pixel % parameters.out_width * STRIDE_X - PAD_LEFT;
    let in_area = parameters.height * parameters.width;
    let first = channel / parameters.out_channels * parameters.channels;
    var x_base = (image * parameters.groups * parameters.channels + first) * in_area;
    var w_base = channel * parameters.channels * WINDOW_Y * WINDOW_X;
    var value = 0.0;
    for (var c = 0u; c < parameters.channels; c = c + 1u) {
        for (var ky = 0u; ky < WINDOW_Y; ky = ky + 1u) {
            let row = top + ky * DILATION_Y;
            if row >= parameters.height { continue; }
            for (var kx = 0u; kx < WINDOW_X; kx = kx + 1u) {
                let column = left + kx * DILATION_X;
                if column >= parameters.width { continue; }
                let weight = w[w_base + ky * WINDOW_X + kx];
                value = fma(x[x_base + row * parameters.width + column], weight, value);
            }
        }
        x_base = x_base + in_area;
        w_base = w_base + WINDOW_Y * WINDOW_X;
    }
    y[index] = finish(value, index, image, channel, pixel);
}
