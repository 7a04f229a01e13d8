// Adds up the sums of a product's parts in order, joins the two terms, and undoes the scales of lines: one thread per
// output.
//
// Declared by half.rs: scratch, TERMS; parameters.parts, .count (outputs), .batches, .m, .n, .first, .columns, .result, .sums,
// .a_exponents, .b_exponents, .a_lines, .b_lines, .a_area, .b_area, a_batch and b_batch. By matmul.rs: store(batch, row,
// column, value).

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
    let line = index / parameters.n;
    let batch = line / parameters.m;
    let row = line % parameters.m;
    let column = index % parameters.n;
    let plane = parameters.parts * parameters.batches * parameters.result;
    let first = parameters.sums + batch * parameters.result + row * parameters.columns + column;
    var terms = vec2<f32>();
    for (var part = 0u; part < parameters.parts; part = part + 1u) {
        let at = first + part * parameters.batches * parameters.result;
        terms.x = terms.x + bitcast<f32>(scratch[at]);
        if TERMS == 2u {
            terms.y = terms.y + bitcast<f32>(scratch[at + plane]);
        }
    }
    // A sum with an infinity or NaN has no second term.
    let is_finite = (bitcast<u32>(terms.x) & 0x7fffffffu) < 0x7f800000u;
    let sum = select(terms.x, terms.x + terms.y / 2048.0, is_finite);
    let a_line = a_batch(parameters.first + batch) / parameters.a_area * parameters.a_lines + row;
    let b_line = b_batch(parameters.first + batch) / parameters.b_area * parameters.b_lines + column;
    let a_exponent = bitcast<i32>(scratch[parameters.a_exponents + a_line]);
    let b_exponent = bitcast<i32>(scratch[parameters.b_exponents + b_line]);
    // Two factors, because the power of two may be none that an f32 holds.
    let exponent = -(a_exponent + b_exponent);
    let half = exponent / 2i;
    let value = sum * two_to_the(half) * two_to_the(exponent - half);
    store(batch, row, column, value);
}

fn two_to_the(exponent: i32) -> f32 {
    return bitcast<f32>(u32(exponent + 127i) << 23u);
}
