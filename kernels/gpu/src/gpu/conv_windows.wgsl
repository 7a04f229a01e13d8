// Elements of a convolution's windows for tile.wgsl, found by a table of taps.
//
// Declared by conv.rs: x, b_taps (offset, row and column of each element of a window), IS_INSIDE (1 if no window reaches
// into the padding), and the names of conv.wgsl.

// Upper left corner of a window, and its offset in x; they wrap around if they are before the first row or column.
struct Column {
    offset: u32,
    top: u32,
    left: u32,
}

fn column_of(batch: u32, column: u32) -> Column {
    let channel = column / parameters.out_area * parameters.all_channels + batch * parameters.channels;
    let pixel = column % parameters.out_area;
    let top = pixel / parameters.out_width * STRIDE_Y - PAD_TOP;
    let left = pixel % parameters.out_width * STRIDE_X - PAD_LEFT;
    return Column((channel * parameters.height + top) * parameters.width + left, top, left);
}

// An element in the padding is 0. Its offset may be anywhere, and is read nevertheless: reads are checked.
fn b_at(column: Column, tap: vec4<u32>) -> f32 {
    let value = x[column.offset + tap.x];
    let inside = column.top + tap.y < parameters.height && column.left + tap.z < parameters.width;
    return select(0.0, value, IS_INSIDE == 1u || inside);
}
