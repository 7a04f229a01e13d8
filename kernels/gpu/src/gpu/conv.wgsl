// A convolution as a matrix product for tile.wgsl, one per group of channels. The rows of the weights are output
// channels; the columns of the windows are output pixels of all images. The second matrix is never stored: its elements
// are found in x.
//
// Declared by conv.rs: a_at and b_at; WINDOW_Y … PAD_LEFT; parameters.channels (of one group), .all_channels (of x),
// .height, .width, .out_width, .out_area.

fn a_place(batch: u32, row: u32, k: u32) -> u32 {
    return (batch * parameters.m + row) * parameters.k + k;
}

// Offset of an element of windows that have one element each.
fn b_place(batch: u32, column: u32, k: u32) -> u32 {
    let channel = column / parameters.out_area * parameters.all_channels + batch * parameters.channels + k;
    let pixel = column % parameters.out_area;
    let row = pixel / parameters.out_width * STRIDE_Y;
    return (channel * parameters.height + row) * parameters.width + pixel % parameters.out_width * STRIDE_X;
}
