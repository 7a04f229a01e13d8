// Attention over a cache by one query for each list of keys: attention.wgsl, which takes four queries, would leave three
// quarters of its arithmetic without work. Here a vector holds four features of the query, and then four of a value.
// One group takes a query and one part of the keys. Keys pass in tiles of 256, a thread for each.
//
// Declared by attention.rs: queries (vectors of four features), first, filled, bounded(halves), key_at(index) and
// value_at(index) (four features), summand(item, list, place, key), finish(row, part, column, sum, peak, total),
// greatest_of(value, at) and total_of(value, at) of all threads; KEY_VECTORS and VALUE_VECTORS (vectors of a key and of
// a value), SPAN and PARTS (threads along the vectors of a value, and along keys), RUNS (times that SPAN covers
// VALUE_VECTORS), SPLITS (parts of the keys), CAP, BEFORE and AFTER (1 if there is a limit); parameters.count (groups), .heads, .capacity, .known (keys with summands), .scale and .cap (the
// bits of floats), .before, .after, and .b0 to .b3 (how far summands are apart along batch, heads, queries and keys).

const LOWEST = -3.4028234e38;

// Its exponential is 0.
const VANISHING = -104.0;

var<workgroup> chosen: array<vec4<f32>, KEY_VECTORS>;

// Weights of a tile's keys.
var<workgroup> board: array<f32, 256>;

// Sums of values of threads.
var<workgroup> joint: array<vec4<f32>, 256>;

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let number = workgroup.y * groups.x + workgroup.x;
    if number >= parameters.count {
        return;
    }
    let part = number % SPLITS;
    let row = number / SPLITS;
    let item = row / parameters.heads;
    let list = row % parameters.heads;

    // The keys that the query sees.
    let full = clamp(bounded(filled[item]), 0, i32(parameters.known));
    let position = bounded(first[item]);
    var start = 0;
    var end = full;
    if AFTER == 1u {
        end = clamp(position + i32(parameters.after) + 1, 0, full);
    }
    if BEFORE == 1u {
        start = clamp(position - i32(parameters.before), 0, end);
    }
    let reach = u32(end);

    for (var i = thread; i < KEY_VECTORS; i = i + 256u) {
        chosen[i] = queries[row * KEY_VECTORS + i];
    }
    workgroupBarrier();

    let feature = thread % SPAN;
    let lane_of_keys = thread / SPAN;
    var sums: array<vec4<f32>, RUNS>;
    var peak = LOWEST;
    var total = 0.0;
    // Parts take tiles in turn, so that all have work however few keys there are.
    let last = (reach + 255u) / 256u;
    let near_begin = u32(start) / 256u;
    for (var tile = near_begin + (part + SPLITS - near_begin % SPLITS) % SPLITS; tile < last; tile = tile + SPLITS) {
        let key = tile * 256u + thread;
        var score = LOWEST;
        var is_counted = false;
        if i32(key) >= start && i32(key) < end {
            let base = (row * parameters.capacity + key) * KEY_VECTORS;
            var products = vec4<f32>(0.0);
            for (var i = 0u; i < KEY_VECTORS; i = i + 1u) {
                products = products + chosen[i] * key_at(base + i);
            }
            score = (products.x + products.y + (products.z + products.w)) * bitcast<f32>(parameters.scale);
            if CAP == 1u {
                let cap = bitcast<f32>(parameters.cap);
                score = tanh_of(score / cap) * cap;
            }
            let own = summand(item, list, vec2<u32>(0u), key);
            // A key that is left out has no part in the result, even if its score is not finite.
            let is_out = is_infinite(own) && own < 0.0;
            score = score + select(own, 0.0, is_out);
            is_counted = !is_out && !(is_infinite(score) && score < 0.0);
            score = select(LOWEST, score, is_counted);
        }
        let next = maximum(peak, greatest_of(score, vec2<u32>(0u, thread)));
        let factor = exp(max(peak - next, VANISHING));
        let weight = select(0.0, exp(max(score - next, VANISHING)), is_counted);
        peak = next;
        total = total * factor + weight;
        board[thread] = weight;
        workgroupBarrier();
        let near = min(256u, reach - tile * 256u);
        for (var run = 0u; run < RUNS; run = run + 1u) {
            var sum = sums[run] * factor;
            let column = feature + run * SPAN;
            if column < VALUE_VECTORS {
                let base = (row * parameters.capacity + tile * 256u) * VALUE_VECTORS + column;
                for (var i = lane_of_keys; i < near; i = i + PARTS) {
                    let share = board[i];
                    // The value of a key that the query does not see may be anything.
                    sum = sum + select(vec4<f32>(0.0), share * value_at(base + i * VALUE_VECTORS), share > 0.0);
                }
            }
            sums[run] = sum;
        }
        workgroupBarrier();
    }
    total = total_of(total, vec2<u32>(0u, thread));

    for (var run = 0u; run < RUNS; run = run + 1u) {
        joint[thread] = sums[run];
        workgroupBarrier();
        let column = feature + run * SPAN;
        if lane_of_keys == 0u && column < VALUE_VECTORS {
            var sum = joint[feature];
            for (var other = 1u; other < PARTS; other = other + 1u) {
                sum = sum + joint[other * SPAN + feature];
            }
            for (var lane = 0u; lane < 4u; lane = lane + 1u) {
                finish(row, part, column * 4u + lane, sum[lane], peak, total);
            }
        }
        workgroupBarrier();
    }
}
