// A convolution as a matrix product for tile.wgsl, one per group of channels. The rows of the weights are output
// channels; the columns of the windows are output pixels of all images. The second matrix is never stored: b_at finds
// its elements in x.
//
// Declared by conv.rs: x, w, WINDOW_Y … PAD_LEFT; parameters.channels (of one group), .all_channels (of x), .height, .width,
// .out_width, .out_area.

struct Line {
    offset: u32,
    inside: bool,
}

// Upper left corner of a window; it wraps around if it is in the padding before the first row or column.
struct Column {
    offset: u32,
    top: u32,
    left: u32,
    inside: bool,
}

fn line_of(batch: u32, row: u32) -> Line {
    return Line((batch * parameters.m + row) * parameters.k, row < parameters.m);
}

fn a_at(line: Line, k: u32) -> f32 {
    if line.inside && k < parameters.k {
        return w[line.offset + k];
    }
    return 0.0;
}

fn column_of(batch: u32, column: u32) -> Column {
    let image = column / parameters.out_area;
    let pixel = column % parameters.out_area;
    let channel = image * parameters.all_channels + batch * parameters.channels;
    return Column(
        channel * parameters.height * parameters.width,
        pixel / parameters.out_width * STRIDE_Y - PAD_TOP,
        pixel % parameters.out_width * STRIDE_X - PAD_LEFT,
        column < parameters.n,
    );
}

// Channel of the group, and position in the window.
fn tap_of(k: u32) -> Column {
    let channel = k / (WINDOW_Y * WINDOW_X);
    let place = k % (WINDOW_Y * WINDOW_X);
    return Column(
        channel * parameters.height * parameters.width,
        place / WINDOW_X * DILATION_Y,
        place % WINDOW_X * DILATION_X,
        k < parameters.k,
    );
}

fn b_at(column: Column, tap: Column) -> f32 {
    let row = column.top + tap.top;
    let place = column.left + tap.left;
    if column.inside && tap.inside && row < parameters.height && place < parameters.width {
        return x[column.offset + tap.offset + row * parameters.width + place];
    }
    return 0.0;
}
