// Attention over a cache. One group takes up to four queries that share keys and values (QUERIES, all of one list), and
// one part of the keys. Keys pass in tiles of 256, a thread for each. Scores become exponentials relative to the
// greatest so far, and what was summed is scaled when a greater one comes (Milakov and Gimelshein 2018).
//
// Declared by attention.rs: queries, first, filled, bounded(halves), products_with(base) (of the four queries with the
// key whose first feature is element `base`), value_at(index), summand(item, list, place, key), finish(row, part,
// column, sum, peak, total); DEPTH and WIDTH (features of a key and of a value), SPAN and PARTS (threads along the
// features of a value, and along keys), RUNS (times that SPAN covers WIDTH), SPLITS (parts of the keys), CAP, BEFORE and
// AFTER (1 if there is a limit); parameters.count (groups), .blocks (groups of a list and a part), .heads, .group (heads
// of a list), .length (queries of a head), .capacity, .known (keys with summands), .scale and .cap (the bits of floats),
// .before, .after, and .b0 to .b3 (how far summands are apart along batch, heads, queries and keys).

const LOWEST = -3.4028234e38;

// Its exponential is 0.
const VANISHING = -104.0;

var<workgroup> chosen: array<vec4<f32>, DEPTH>;

// Values of threads: of a reduction, the weights of a tile's keys, and sums of values.
var<workgroup> board: array<vec4<f32>, 256>;

fn maximum4(a: vec4<f32>, b: vec4<f32>) -> vec4<f32> {
    return vec4<f32>(maximum(a.x, b.x), maximum(a.y, b.y), maximum(a.z, b.z), maximum(a.w, b.w));
}

// Returns the sum or the maximum of the values of all threads, which must all call it; a tree.
fn joined(value: vec4<f32>, thread: u32, adds: bool) -> vec4<f32> {
    board[thread] = value;
    for (var width = 128u; width > 0u; width = width / 2u) {
        workgroupBarrier();
        if thread < width {
            let other = board[thread + width];
            if adds {
                board[thread] = board[thread] + other;
            } else {
                board[thread] = maximum4(board[thread], other);
            }
        }
    }
    workgroupBarrier();
    let result = board[0];
    workgroupBarrier();
    return result;
}

// Head and position of a query among those that share keys.
fn member(block: u32, lane: u32) -> vec2<u32> {
    let at = min(block * 4u + lane, parameters.group * parameters.length - 1u);
    return vec2<u32>(at / parameters.length, at % parameters.length);
}

fn query(item: u32, list: u32, block: u32, lane: u32, feature: u32) -> f32 {
    let place = member(block, lane);
    let head = item * parameters.heads + list * parameters.group + place.x;
    return queries[(head * parameters.length + place.y) * DEPTH + feature];
}

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
    let block = number / SPLITS % parameters.blocks;
    let lists = parameters.heads / parameters.group;
    let all = number / SPLITS / parameters.blocks;
    let item = all / lists;
    let list = all % lists;

    // The keys that each query sees.
    let full = clamp(bounded(filled[item]), 0, i32(parameters.known));
    var starts = vec4<i32>(0);
    var ends = vec4<i32>(full);
    for (var lane = 0u; lane < 4u; lane = lane + 1u) {
        let position = bounded(first[item]) + i32(member(block, lane).y);
        if AFTER == 1u {
            ends[lane] = clamp(position + i32(parameters.after) + 1, 0, full);
        }
        if BEFORE == 1u {
            starts[lane] = clamp(position - i32(parameters.before), 0, ends[lane]);
        }
    }
    let begin = u32(min(min(starts.x, starts.y), min(starts.z, starts.w)));
    let reach = u32(max(max(ends.x, ends.y), max(ends.z, ends.w)));

    for (var i = thread; i < DEPTH; i = i + 256u) {
        chosen[i] = vec4<f32>(
            query(item, list, block, 0u, i),
            query(item, list, block, 1u, i),
            query(item, list, block, 2u, i),
            query(item, list, block, 3u, i),
        );
    }
    workgroupBarrier();

    let feature = thread % SPAN;
    let lane_of_keys = thread / SPAN;
    var sums: array<vec4<f32>, RUNS>;
    var peak = vec4<f32>(LOWEST);
    var total = vec4<f32>(0.0);
    // Parts take tiles in turn, so that all have work however few keys there are.
    let last = (reach + 255u) / 256u;
    let near_begin = begin / 256u;
    for (var tile = near_begin + (part + SPLITS - near_begin % SPLITS) % SPLITS; tile < last; tile = tile + SPLITS) {
        let key = tile * 256u + thread;
        let place_of_key = vec4<i32>(i32(key));
        let is_seen = (place_of_key >= starts) & (place_of_key < ends);
        var scores = vec4<f32>(LOWEST);
        var is_counted = vec4<bool>(false);
        if any(is_seen) {
            let products = products_with((all * parameters.capacity + key) * DEPTH) * bitcast<f32>(parameters.scale);
            for (var lane = 0u; lane < 4u; lane = lane + 1u) {
                var score = products[lane];
                if CAP == 1u {
                    let cap = bitcast<f32>(parameters.cap);
                    score = tanh_of(score / cap) * cap;
                }
                let own = summand(item, list, member(block, lane), key);
                // A key that is left out has no part in the result, even if its score is not finite.
                let is_out = is_infinite(own) && own < 0.0;
                score = score + select(own, 0.0, is_out);
                let is_lowest = is_infinite(score) && score < 0.0;
                is_counted[lane] = is_seen[lane] && !is_out && !is_lowest;
                scores[lane] = select(LOWEST, score, is_counted[lane]);
            }
        }
        let next = maximum4(peak, joined(scores, thread, false));
        let factor = exp(max(peak - next, vec4<f32>(VANISHING)));
        let weights = select(vec4<f32>(0.0), exp(max(scores - next, vec4<f32>(VANISHING))), is_counted);
        peak = next;
        total = total * factor + weights;
        board[thread] = weights;
        workgroupBarrier();
        let near = min(256u, reach - tile * 256u);
        for (var run = 0u; run < RUNS; run = run + 1u) {
            var sum = sums[run] * factor;
            let column = feature + run * SPAN;
            if column < WIDTH {
                let base = (all * parameters.capacity + tile * 256u) * WIDTH + column;
                for (var i = lane_of_keys; i < near; i = i + PARTS) {
                    let weight = board[i];
                    // The value of a key that a query does not see may be anything.
                    sum = sum + select(vec4<f32>(0.0), weight * value_at(base + i * WIDTH), weight > vec4<f32>(0.0));
                }
            }
            sums[run] = sum;
        }
        workgroupBarrier();
    }
    total = joined(total, thread, true);

    for (var run = 0u; run < RUNS; run = run + 1u) {
        board[thread] = sums[run];
        workgroupBarrier();
        let column = feature + run * SPAN;
        if lane_of_keys == 0u && column < WIDTH {
            var sum = board[feature];
            for (var other = 1u; other < PARTS; other = other + 1u) {
                sum = sum + board[other * SPAN + feature];
            }
            for (var lane = 0u; lane < 4u; lane = lane + 1u) {
                if block * 4u + lane < parameters.group * parameters.length {
                    let place = member(block, lane);
                    let head = list * parameters.group + place.x;
                    let row = (item * parameters.length + place.y) * parameters.heads + head;
                    finish(row, part, column, sum[lane], peak[lane], total[lane]);
                }
            }
        }
        workgroupBarrier();
    }
}
