// A matrix product, M × K by K × N, in tiles through workgroup memory and registers.
//
// A group computes TILE_M × TILE_N outputs, and a thread THREAD_M × THREAD_N of them, held in vectors of four along N.
// Per step, TILE_K columns of A and rows of B are in workgroup memory, A transposed. `shared_tile` holds TILE_K rows of
// A_STRIDE vectors along M, then TILE_K rows of B_STRIDE vectors along N. A row has one vector more than it needs, so
// that the threads that store a column of vectors do not meet in one bank. While a step is computed, the next step's
// elements are loaded into registers. A thread of an 8 × 8 block owns 4 × 4 blocks in each quarter of the tile, so that
// neighbouring threads read neighbouring vectors. At the end rows of outputs pass through workgroup memory once more,
// so that they are stored in order and the epilogue is compiled once.
//
// Declared by product.rs: parameters.m, .n, .batches, .groups (of one part), .parts and .depth (of the inner dimension). By
// tile.rs: parameters.k, .tiles_m, .tiles_n, the constants, and the text in double braces. By the kernel: Line,
// line_of(batch, row), a_at(line, k); Column, column_of(batch, column), Tap, tap_of(k), b_at(column, tap);
// store(batch, row, column, value). Elements beyond M, N and K are 0 to a_at and b_at.

var<workgroup> shared_tile: array<vec4<f32>, SHARED_VECTORS>;

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
    // Eight rows of tiles at a time, column by column, so that groups that run together share A's rows and B's columns.
    let batch = number / (parameters.tiles_m * parameters.tiles_n);
    let within = number % (parameters.tiles_m * parameters.tiles_n);
    let strip = within / (8u * parameters.tiles_n);
    let strip_rows = min(parameters.tiles_m - strip * 8u, 8u);
    let in_strip = within % (8u * parameters.tiles_n);
    let first_row = (strip * 8u + in_strip % strip_rows) * TILE_M;
    let first_column = in_strip / strip_rows * TILE_N;

    let thread_m = thread / (TILE_N / THREAD_N);
    let thread_n = thread % (TILE_N / THREAD_N);
{{places}}
{{accumulators}}
{{fetch_first}}
    for (var k0 = first_k; k0 < end; k0 = k0 + TILE_K) {
        workgroupBarrier();
{{keep}}
        workgroupBarrier();
        if k0 + TILE_K < end {
{{fetch_next}}
        }
        for (var k = 0u; k < TILE_K; k = k + UNROLL) {
{{multiply}}
        }
    }

    for (var line = 0u; line < THREAD_M; line = line + 1u) {
        workgroupBarrier();
        switch line {
{{stage}}
            default: {}
        }
        workgroupBarrier();
        for (var i = thread; i < TILE_M / THREAD_M * TILE_N; i = i + THREADS) {
            let row = first_row + line / 4u * (TILE_M / 2u) + i / TILE_N * 4u + line % 4u;
            let column = first_column + i % TILE_N;
            if row < parameters.m && column < parameters.n {
                store(part * parameters.batches + batch, row, column, shared_tile[i / 4u][i % 4u]);
            }
        }
    }
}
