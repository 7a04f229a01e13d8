// A matrix product, M × K by K × N, in tiles through workgroup memory and registers.
//
// A group computes TILE_M × TILE_N outputs, and a thread THREAD_M × THREAD_N of them, held in vectors of four along N.
// 32 neighbouring threads compute 4 × 8 such blocks, which need few different vectors of a step. A thread of an 8 × 8
// block owns four blocks of 4 × 4, so that neighbouring threads read neighbouring vectors.
//
// Per step, TILE_K columns of A and rows of B are in workgroup memory, A transposed. There are two buffers: while a step
// is computed from one of them, the next step's elements are loaded into registers and stored to the other, so that a
// step needs one barrier. An operand whose inner dimension is contiguous is stored by components. The vectors of its
// upper four k are then swapped (`^ 4`), so that threads that store together meet in no bank.
//
// Rows and columns beyond the last are read from the last, and are not stored. A step beyond the last reads the last
// again. Only the last step has elements beyond K, which become 0 in both operands.
//
// Declared by product.rs: parameters.m, .n, .batches, .groups (of one part), .parts and .depth (of the inner dimension).
// By tile.rs: parameters.k, .tiles_m, .tiles_n, the constants, and the text in double braces. By the kernel, for a dense
// operand: a_place(batch, row, k) or b_place(batch, column, k), an offset in elements; parameters.a_depth or .b_depth,
// the elements from one k to the next; and a_at(place) or b_at(place), an element or a vector of four. By a kernel that
// reads windows: Column, column_of(batch, column), b_taps, b_at(column, tap), which is read before a step is computed, and
// b_masked(column, tap, value), which is 0 in the padding, and is called after the step, as it waits for the value. By
// both: store(batch, row, column, value), an element or a vector of four.

var<workgroup> a_tile: array<array<array<{{a_four}}, VECTORS_M>, TILE_K>, 2>;
var<workgroup> b_tile: array<array<array<{{b_four}}, VECTORS_N>, TILE_K>, 2>;

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let all = group.y * groups.x + group.x;
    let part = all / parameters.groups;
    let number = all % parameters.groups;
    if part >= parameters.parts {
        return;
    }
    let first_k = part * parameters.depth;
    let end = min(first_k + parameters.depth, parameters.k);
    let last = first_k + (end - first_k - 1u) / TILE_K * TILE_K;
    // Eight rows of tiles at a time, column by column, so that groups that run together share A's rows and B's columns.
    let batch = number / (parameters.tiles_m * parameters.tiles_n);
    let within = number % (parameters.tiles_m * parameters.tiles_n);
    let strip = within / (8u * parameters.tiles_n);
    let strip_rows = min(parameters.tiles_m - strip * 8u, 8u);
    let in_strip = within % (8u * parameters.tiles_n);
    let first_row = (strip * 8u + in_strip % strip_rows) * TILE_M;
    let first_column = in_strip / strip_rows * TILE_N;

    // The thread's first vectors of A and B.
    let squad = thread / 32u;
    let thread_m = squad / SQUADS_N * THREAD_M + thread % 32u / 8u;
    let thread_n = squad % SQUADS_N * (2u * THREAD_N) + thread % 8u;
{{places}}
{{accumulators}}
{{fetch_first}}
{{windows_first}}
    if first_k == last {
{{mask_first}}
    }
{{keep_first}}
    workgroupBarrier();
    var buffer = 0u;
    for (var k0 = first_k; k0 < end; k0 = k0 + TILE_K) {
        let next = min(k0 + TILE_K, last);
{{fetch_next}}
{{multiply}}
{{windows_next}}
        if next == last {
{{mask_next}}
        }
        buffer = 1u - buffer;
{{keep_next}}
        workgroupBarrier();
    }

    for (var piece = 0u; piece < PIECES; piece = piece + 1u) {
        var values = vec4<f32>();
        switch piece {
{{pieces}}
            default: {}
        }
        let line = piece / (THREAD_N / 4u);
        let row = first_row + (thread_m + line / 4u * 4u) * 4u + line % 4u;
        let column = first_column + (thread_n + piece % (THREAD_N / 4u) * 8u) * 4u;
        let stored_batch = part * parameters.batches + batch;
{{store}}
    }
}
