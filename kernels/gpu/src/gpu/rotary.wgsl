// Rotary position embedding: one thread per element of the result.
//
// Declared by cache.rs: x, cosines, sines, places, y, bounded(halves); INTERLEAVED (1 if the pairs of features are
// neighbours), BY_HEAD (1 if heads come before positions in x), OWN (1 if each query has a position of its own);
// parameters.count (elements), .heads, .length (queries of a head), .depth (features), .positions (that have angles) and
// .pairs (of features that are turned).

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let index = (group.y * groups.x + group.x) * 256u + thread;
    if index >= parameters.count {
        return;
    }
    let feature = index % parameters.depth;
    let row = index / parameters.depth;
    let query = row % parameters.length;
    let head = row / parameters.length % parameters.heads;
    let item = row / parameters.length / parameters.heads;
    var row_of_x = row;
    if BY_HEAD == 0u {
        row_of_x = (item * parameters.length + query) * parameters.heads + head;
    }
    let base = row_of_x * parameters.depth;
    if feature >= 2u * parameters.pairs {
        y[index] = x[base + feature];
        return;
    }
    var pair = feature % parameters.pairs;
    var is_second = feature >= parameters.pairs;
    var one = base + pair;
    var other = one + parameters.pairs;
    if INTERLEAVED == 1u {
        pair = feature / 2u;
        is_second = feature % 2u == 1u;
        one = base + 2u * pair;
        other = one + 1u;
    }
    var place = 0;
    if OWN == 1u {
        place = bounded(places[item * parameters.length + query]);
    } else {
        place = bounded(places[item]) + i32(query);
    }
    let at = u32(clamp(place, 0, i32(parameters.positions) - 1)) * parameters.pairs + pair;
    let turned = x[one] * cosines[at] - x[other] * sines[at];
    y[index] = select(turned, x[one] * sines[at] + x[other] * cosines[at], is_second);
}
