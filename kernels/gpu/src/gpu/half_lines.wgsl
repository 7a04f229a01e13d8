// Rounds the lines of an operand (rows of A, or columns of B) to `f16`, in fragments that matrix units load: 16 lines per
// group, 16 threads per line.
//
// A line is multiplied by the power of two that brings its greatest finite magnitude to at least 2¹³ and below 2¹⁴.
// So no finite element becomes infinite, and no sum of products of finite elements does. An element of two terms is
// h + l / 2¹¹. A term that would be subnormal is 0, because matrix units may flush it, and h alone counts if it is not
// finite.
//
// Fragments of SIDE lines and SIDE elements follow each other, first along the line, then across lines. The terms of a
// fragment are neighbours. Lines and elements beyond the operand's are 0.
//
// Declared by half.rs: x (the operand), scratch, SIDE, TERMS, AREA (of a fragment), place(thread) (line, lane);
// parameters.blocks (of 16 lines in a matrix), .groups, .first (matrix), .lines, .k, .padded_k, .area (elements of a
// matrix), .line_stride, .depth_stride, .halves and .exponents (offsets in words).

var<workgroup> magnitudes: array<u32, 256>;

// Half `term` of a scaled element.
fn term_of(value: f32, term: u32) -> u32 {
    let high = normal(f16_bits(bitcast<u32>(value)));
    if term == 0u {
        return high;
    }
    let is_finite = (high & 0x7c00u) != 0x7c00u;
    let rest = (value - unpack2x16float(high).x) * 2048.0;
    return select(0u, normal(f16_bits(bitcast<u32>(rest))), is_finite);
}

// The bits of an `f16`, or of 0 if it is subnormal.
fn normal(bits: u32) -> u32 {
    return select(bits & 0x8000u, bits, (bits & 0x7c00u) != 0u);
}

@compute @workgroup_size(256)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let number = group.y * groups.x + group.x;
    if number >= parameters.groups {
        return;
    }
    let at = place(thread);
    let matrix = parameters.first + number / parameters.blocks;
    let line = number % parameters.blocks * 16u + at.x;
    let start = matrix * parameters.area + min(line, parameters.lines - 1u) * parameters.line_stride;
    let k_end = select(0u, parameters.k, line < parameters.lines);

    var greatest = 0u;
    for (var k = at.y; k < k_end; k = k + 16u) {
        let magnitude = bitcast<u32>(x[start + k * parameters.depth_stride]) & 0x7fffffffu;
        greatest = max(greatest, select(0u, magnitude, magnitude < 0x7f800000u));
    }
    magnitudes[at.x * 16u + at.y] = greatest;
    workgroupBarrier();
    for (var lane = 0u; lane < 16u; lane = lane + 1u) {
        greatest = max(greatest, magnitudes[at.x * 16u + lane]);
    }
    let exponent = min(140i - i32(greatest >> 23u), 126i);
    let scale = bitcast<f32>(u32(exponent + 127i) << 23u);

    let padded = matrix * parameters.blocks * 16u + line;
    if at.y == 0u {
        scratch[parameters.exponents + padded] = bitcast<u32>(exponent);
    }
    let fragments = padded / SIDE * (parameters.padded_k / SIDE);
    let within = padded % SIDE * SIDE;
    for (var k = at.y * 2u; k < parameters.padded_k; k = k + 32u) {
        var pair = vec2<f32>();
        if k < k_end {
            pair.x = x[start + k * parameters.depth_stride] * scale;
        }
        if k + 1u < k_end {
            pair.y = x[start + (k + 1u) * parameters.depth_stride] * scale;
        }
        for (var term = 0u; term < TERMS; term = term + 1u) {
            let half = ((fragments + k / SIDE) * TERMS + term) * AREA + within + k % SIDE;
            scratch[parameters.halves + half / 2u] = term_of(pair.x, term) | (term_of(pair.y, term) << 16u);
        }
    }
}
