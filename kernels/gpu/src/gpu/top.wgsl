// Sorts blocks of SIZE pairs in workgroup memory, and keeps the first pairs of each. 256 threads per group, which has
// 1024 / SIZE blocks. A pair is the rank of an element and its index: all pairs of a row differ, and the least comes
// first.
//
// Declared by top.rs: SIZE (a power of two), candidate(row, index), keep(block, place, pair); parameters.rows, .length
// (candidates of a row), .parts (blocks of a row), .kept (elements of a row), .flip.

const PAIRS = 1024u;
var<workgroup> pairs: array<vec2<u32>, PAIRS>;

fn comes_before(a: vec2<u32>, b: vec2<u32>) -> bool {
    return a.x < b.x || (a.x == b.x && a.y < b.y);
}

// Pair `at` of a block; beyond the end of a row a pair that comes after all others.
fn pair_of(block: u32, at: u32) -> vec2<u32> {
    let row = block / parameters.parts;
    let index = block % parameters.parts * SIZE + at;
    if row >= parameters.rows || index >= parameters.length {
        return vec2<u32>(0xffffffffu, 0xffffffffu);
    }
    return candidate(row, index);
}

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let first_block = (group.y * groups.x + group.x) * (PAIRS / SIZE);
    for (var i = thread; i < PAIRS; i = i + 256u) {
        pairs[i] = pair_of(first_block + i / SIZE, i % SIZE);
    }
    // Bitonic sort (Batcher 1968): runs of `width` pairs are sorted, every other one backwards except the last.
    for (var width = 2u; width <= SIZE; width = width * 2u) {
        for (var distance = width / 2u; distance > 0u; distance = distance / 2u) {
            workgroupBarrier();
            for (var i = thread; i < PAIRS / 2u; i = i + 256u) {
                let within = i & (distance - 1u);
                let one = ((i - within) << 1u) + within;
                let other = one + distance;
                let rises = (one & (SIZE - 1u) & width) == 0u;
                let a = pairs[one];
                let b = pairs[other];
                if comes_before(b, a) == rises {
                    pairs[one] = b;
                    pairs[other] = a;
                }
            }
        }
    }
    workgroupBarrier();
    for (var i = thread; i < PAIRS; i = i + 256u) {
        let block = first_block + i / SIZE;
        if i % SIZE < parameters.kept && block < parameters.rows * parameters.parts {
            keep(block, i % SIZE, pairs[i]);
        }
    }
}
