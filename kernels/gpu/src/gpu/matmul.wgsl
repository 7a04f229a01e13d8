// A and B of a matrix product for tile.wgsl: dense matrices with any strides.
//
// Declared by matmul.rs: a, weight (an element of B), a_batch and b_batch (offsets of a batch's matrices); parameters.a_row and .a_depth, .b_column
// and .b_depth (strides).

struct Line {
    offset: u32,
    inside: bool,
}

fn line_of(batch: u32, row: u32) -> Line {
    return Line(a_batch(parameters.first + batch) + row * parameters.a_row, row < parameters.m);
}

fn a_at(line: Line, k: u32) -> f32 {
    if line.inside && k < parameters.k {
        return a[line.offset + k * parameters.a_depth];
    }
    return 0.0;
}

fn column_of(batch: u32, column: u32) -> Line {
    return Line(b_batch(parameters.first + batch) + column * parameters.b_column, column < parameters.n);
}

fn tap_of(k: u32) -> Line {
    return Line(k * parameters.b_depth, k < parameters.k);
}

fn b_at(column: Line, tap: Line) -> f32 {
    if column.inside && tap.inside {
        return weight(column.offset + tap.offset);
    }
    return 0.0;
}
