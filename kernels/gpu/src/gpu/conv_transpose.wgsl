// One thread per output, which gathers the inputs that reach it; 256 threads per group.
//
// Declared by conv.rs: x, w, y, WINDOW_Y … PAD_LEFT, finish; parameters.count (outputs), .channels and
// .out_channels (of one group), .groups, .height, .width, .out_height, .out_width.

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
    let part = channel / parameters.out_channels;
    let top = pixel / parameters.out_width + PAD_TOP;
    let left = pixel % parameters.out_width + PAD_LEFT;
    let in_area = parameters.height * parameters.width;
    let first = part * parameters.channels;
    let x_base = (image * parameters.groups * parameters.channels + first) * in_area;
    let w_step = parameters.out_channels * WINDOW_Y * WINDOW_X;
    let w_base = first * w_step + channel % parameters.out_channels * WINDOW_Y * WINDOW_X;
    var value = 0.0;
    for (var ky = 0u; ky < WINDOW_Y; ky = ky + 1u) {
        let ty = top - ky * DILATION_Y;
        if top < ky * DILATION_Y || ty % STRIDE_Y != 0u || ty / STRIDE_Y >= parameters.height { continue; }
        for (var kx = 0u; kx < WINDOW_X; kx = kx + 1u) {
            let tx = left - kx * DILATION_X;
            if left < kx * DILATION_X || tx % STRIDE_X != 0u || tx / STRIDE_X >= parameters.width { continue; }
            let x_first = x_base + ty / STRIDE_Y * parameters.width + tx / STRIDE_X;
            let w_first = w_base + ky * WINDOW_X + kx;
            for (var c = 0u; c < parameters.channels; c = c + 1u) {
                value = fma(x[x_first + c * in_area], w[w_first + c * w_step], value);
            }
        }
    }
    y[index] = finish(value, index, image, channel, pixel);
}
