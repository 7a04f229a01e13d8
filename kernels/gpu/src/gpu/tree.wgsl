// Halves a row's values, one per lane, until one is left. `at` is the thread's (row, lane). The tree depends on LANES
// alone.

var<workgroup> memory_of_NAME: array<STATE, 256>;

fn NAME(value: STATE, at: vec2<u32>) -> STATE {
    let first = at.x * LANES;
    let own = first + at.y;
    memory_of_NAME[own] = value;
    for (var width = LANES / 2u; width > 0u; width = width / 2u) {
        workgroupBarrier();
        if at.y < width {
            memory_of_NAME[own] = COMBINE(memory_of_NAME[own], memory_of_NAME[own + width]);
        }
    }
    workgroupBarrier();
    let result = memory_of_NAME[first];
    workgroupBarrier();
    return result;
}
