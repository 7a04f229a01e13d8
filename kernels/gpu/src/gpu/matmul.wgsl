// A and B of a matrix product for tile.wgsl: dense matrices with any strides.
//
// Declared by matmul.rs: a_batch and b_batch (offsets of a batch's matrices); parameters.a_row and .a_depth, .b_column
// and .b_depth (strides).

fn a_place(batch: u32, row: u32, k: u32) -> u32 {
    return a_batch(parameters.first + batch) + row * parameters.a_row + k * parameters.a_depth;
}

fn b_place(batch: u32, column: u32, k: u32) -> u32 {
    return b_batch(parameters.first + batch) + column * parameters.b_column + k * parameters.b_depth;
}
