// Sums of some gates over the state, all in one loop: the weights of four steps of the depth are loaded together. A
// gate's sum runs over its weights in order.
//
// Filled in by recurrent.rs: NAME, STATE (array that holds the state), VECTOR (one element per gate), FIRST (its first
// gate) and WEIGHTS and BIASES, a gate's each, at `at` and `row`.

fn weights_of_NAME(at: u32) -> VECTOR {
    return WEIGHTS;
}

fn NAME(unit: u32) -> VECTOR {
    let row = FIRST * UNITS + unit;
    var at = row * R_ROW;
    var sum = VECTOR(0.0);
    for (var k = 0u; k < UNITS / 4u; k = k + 1u) {
        let w0 = weights_of_NAME(at);
        let w1 = weights_of_NAME(at + R_DEPTH);
        let w2 = weights_of_NAME(at + 2u * R_DEPTH);
        let w3 = weights_of_NAME(at + 3u * R_DEPTH);
        sum = fma(w0, VECTOR(STATE[k][0]), sum);
        sum = fma(w1, VECTOR(STATE[k][1]), sum);
        sum = fma(w2, VECTOR(STATE[k][2]), sum);
        sum = fma(w3, VECTOR(STATE[k][3]), sum);
        at = at + 4u * R_DEPTH;
    }
    for (var k = UNITS / 4u * 4u; k < UNITS; k = k + 1u) {
        sum = fma(weights_of_NAME(at), VECTOR(STATE[k / 4u][k % 4u]), sum);
        at = at + R_DEPTH;
    }
    return sum + BIASES;
}
