// Tiles of 32 × 32 through workgroup memory. Both reads along the source's innermost axis and writes along the target's
// are of neighbouring elements. There are 32 × 8 threads, each with four elements. Rows of the tile are 33 elements
// long, so that a column's elements are in different banks.
//
// Declared by transpose.rs: x, y, source_of(batch) and target_of(batch), the offsets of a batch's first element;
// parameters.lines (size of the source's innermost axis), .columns (of the target's), .source_stride (of a step along the
// target's innermost axis), .target_stride (of a step along the source's), .tiles, .line_tiles, .column_tiles.

var<workgroup> tile: array<f32, 1056>;

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let number = group.y * groups.x + group.x;
    if number >= parameters.tiles {
        return;
    }
    let batch = number / (parameters.line_tiles * parameters.column_tiles);
    let within = number % (parameters.line_tiles * parameters.column_tiles);
    let first_line = within / parameters.column_tiles * 32u;
    let first_column = within % parameters.column_tiles * 32u;
    let source = source_of(batch);
    let destination = target_of(batch);
    let fast = thread % 32u;
    for (var slow = thread / 32u; slow < 32u; slow = slow + 8u) {
        let line = first_line + fast;
        let column = first_column + slow;
        if line < parameters.lines && column < parameters.columns {
            tile[slow * 33u + fast] = x[source + column * parameters.source_stride + line];
        }
    }
    workgroupBarrier();
    for (var slow = thread / 32u; slow < 32u; slow = slow + 8u) {
        let line = first_line + slow;
        let column = first_column + fast;
        if line < parameters.lines && column < parameters.columns {
            y[destination + line * parameters.target_stride + column] = tile[fast * 33u + slow];
        }
    }
}
