// A matrix product by matrix units: a group of four subgroups computes GROUP_M × GROUP_N sums, each subgroup ROWS × COLUMNS
// of them, in fragments of SIDE × SIDE.
//
// Subgroups load fragments of both operands straight from memory, where an earlier dispatch left them. A module with
// cooperative matrices has Vulkan's memory model, under which naga 30 lets no invocation see what another one writes. So
// nothing goes through workgroup memory, and no invocation reads what this dispatch writes. `halves` and `sums` are parts of
// one buffer, which have nothing in common.
//
// With two terms, products of the high terms are added up for CHUNK elements of the inner dimension and then added to the
// sums. Matrix units may cut off sums instead of rounding them, and cut off much less this way. Products of a low term
// have sums of their own.
//
// Declared by half.rs: the constants, and the text in double braces; parameters.k, .depth and .groups (of one part), .parts,
// .first and .batches, .tiles_m, .tiles_n, .columns (of the padded result), .result (sums of one padded matrix),
// .a_halves, .b_halves, .a_lines and .b_lines (of a padded matrix), .a_area, .b_area, .sums (offset), a_batch and b_batch.

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(subgroup_id) subgroup: u32,
) {
    let all = group.y * groups.x + group.x;
    let part = all / parameters.groups;
    let number = all % parameters.groups;
    if part >= parameters.parts {
        return;
    }
    let first_k = part * parameters.depth;
    let end = min(first_k + parameters.depth, parameters.k);
    // Four rows of groups at a time, column by column, so that groups that run together share lines of both operands.
    let batch = number / (parameters.tiles_m * parameters.tiles_n);
    let inside = number % (parameters.tiles_m * parameters.tiles_n);
    let strip = inside / (4u * parameters.tiles_n);
    let strip_rows = min(parameters.tiles_m - strip * 4u, 4u);
    let in_strip = inside % (4u * parameters.tiles_n);
    let row = (strip * 4u + in_strip % strip_rows) * GROUP_M + subgroup / 2u * ROWS;
    let column = in_strip / strip_rows * GROUP_N + subgroup % 2u * COLUMNS;

    let step = parameters.k / SIDE * (TERMS * AREA);
    let a_line = a_batch(parameters.first + batch) / parameters.a_area * parameters.a_lines + row;
    let b_line = b_batch(parameters.first + batch) / parameters.b_area * parameters.b_lines + column;
    let a_first = parameters.a_halves + a_line / SIDE * step;
    let b_first = parameters.b_halves + b_line / SIDE * step;
{{accumulators}}
    for (var chunk = first_k; chunk < end; chunk = chunk + CHUNK) {
{{begin_chunk}}
        let chunk_end = min(chunk + CHUNK, end);
        for (var k = chunk; k < chunk_end; k = k + SIDE) {
            let a_at = a_first + k / SIDE * (TERMS * AREA);
            let b_at = b_first + k / SIDE * (TERMS * AREA);
{{multiply}}
        }
{{end_chunk}}
    }
    let stride = parameters.columns;
    let corner = parameters.sums + (part * parameters.batches + batch) * parameters.result + row * stride + column;
{{store}}
}
