// Elements of a convolution's windows for tile.wgsl, found by a table of taps.
//
// Declared by conv.rs: x; b_taps, for each element of a window its offset, row, column, and bits of both; WINDOW_Y …
// PAD_LEFT; IS_INSIDE (1 if no window reaches into the padding); HAS_BITS (1 if the rows and columns of a window are at
// most 32 together); and the names of conv.wgsl.

// Upper left corner of a window, and its offset in x; they wrap around if they are before the first row or column. Each
// row and column of the window that is inside x has a bit in `inside`.
struct Column {
    offset: u32,
    top: u32,
    left: u32,
    inside: u32,
}

fn column_of(batch: u32, column: u32) -> Column {
    let channel = column / parameters.out_area * parameters.all_channels + batch * parameters.channels;
    let pixel = column % parameters.out_area;
    let top = pixel / parameters.out_width * STRIDE_Y - PAD_TOP;
    let left = pixel % parameters.out_width * STRIDE_X - PAD_LEFT;
    var inside = 0u;
    if IS_INSIDE == 0u && HAS_BITS == 1u {
        for (var row = 0u; row < WINDOW_Y; row = row + 1u) {
            inside = inside | select(0u, 1u << row, top + row * DILATION_Y < parameters.height);
        }
        for (var place = 0u; place < WINDOW_X; place = place + 1u) {
            inside = inside | select(0u, 1u << (WINDOW_Y + place), left + place * DILATION_X < parameters.width);
        }
    }
    return Column((channel * parameters.height + top) * parameters.width + left, top, left, inside);
}

// The offset of an element in the padding may be anywhere, and is read nevertheless: reads are checked.
fn b_at(column: Column, tap: vec4<u32>) -> f32 {
    return x[column.offset + tap.x];
}

// An element in the padding is 0.
fn b_masked(column: Column, tap: vec4<u32>, value: f32) -> f32 {
    if IS_INSIDE == 1u {
        return value;
    }
    if HAS_BITS == 1u {
        return select(0.0, value, (column.inside & tap.w) == tap.w);
    }
    let inside = column.top + tap.y < parameters.height && column.left + tap.z < parameters.width;
    return select(0.0, value, inside);
}
