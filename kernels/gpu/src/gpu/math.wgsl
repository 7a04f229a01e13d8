// Scalar functions that WGSL lacks, or leaves too inaccurate or undefined.
//
// No compiler combines a result of `opaque` with earlier values, because it depends on a zero that only the run knows.
// The second argument of `opaque` is a number that no other call in the shader has. Two calls with the same number
// would cancel, and with two numbers equal values are different to the compiler. Expressions count their registers from
// 0 on, and this file from 1048576 on.
//
// WGSL lets a driver assume that no value is NaN or infinite. It bounds sin and cos only near 0 and atan by 4096 units
// in the last place, and leaves pow of negative bases undefined. Here tests for special values look at bits, and
// functions are reduced to ranges in which a short polynomial is accurate. Polynomials are those of the Cephes library
// (Moshier 1989), single precision, unless said otherwise. Functions begin with `fn ` and end with `}` at the start of
// a line: see library.rs. Odd functions begin with their zeros, whose sign the last sum of a polynomial would lose.

// Mesa compiles a shader again for uniform values that decide its branches, but only for values at constant positions.
// Another value therefore decides the position of this one.
fn unknown_zero() -> u32 {
    return parameters.zeros[parameters.zero].x;
}

fn opaque(x: f32, id: u32) -> f32 {
    return bitcast<f32>(bitcast<u32>(x) ^ (unknown_zero() & ~id));
}

fn opaque4(x: vec4<f32>, id: u32) -> vec4<f32> {
    return bitcast<vec4<f32>>(bitcast<vec4<u32>>(x) ^ vec4<u32>(unknown_zero() & ~id));
}

// Returns the number of these bits, which no compiler knows.
fn number(bits: u32, id: u32) -> f32 {
    return bitcast<f32>(bits ^ (unknown_zero() & ~id));
}

fn is_nan(x: f32) -> bool {
    return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u;
}

fn is_infinite(x: f32) -> bool {
    return (bitcast<u32>(x) & 0x7fffffffu) == 0x7f800000u;
}

// Whether x is not 0; NaN is not 0 either.
fn holds(x: f32) -> bool {
    return (bitcast<u32>(x) & 0x7fffffffu) != 0u;
}

fn truth(condition: bool) -> f32 {
    return select(0.0, 1.0, condition);
}

// Drivers divide by multiplying with the divisor's reciprocal, which is lost if the divisor is beyond 2^126 (WGSL
// bounds no error there).
fn quotient(a: f32, b: f32) -> f32 {
    let scale = select(1.0, 0.25, abs(b) > 4e37);
    return opaque(a * scale, 1048576u) / opaque(b * scale, 1048577u);
}

// A constant NaN is an error in WGSL, so NaN is made of a value that the compiler does not know.
fn nan_from(x: f32) -> f32 {
    return bitcast<f32>(bitcast<u32>(x) | 0x7fc00000u);
}

fn infinity_signed_as(x: f32) -> f32 {
    return bitcast<f32>((bitcast<u32>(x) & 0x80000000u) | 0x7f800000u);
}

fn copy_sign(magnitude: f32, sign: f32) -> f32 {
    return bitcast<f32>((bitcast<u32>(magnitude) & 0x7fffffffu) | (bitcast<u32>(sign) & 0x80000000u));
}

// 2ⁿ for −126 ≤ n ≤ 127.
fn power_of_two(n: i32) -> f32 {
    return bitcast<f32>(u32(n + 127) << 23u);
}

// x · 2ⁿ for −252 ≤ n ≤ 254.
fn scale(x: f32, n: i32) -> f32 {
    let half = n / 2;
    return opaque(x * power_of_two(half), 1048578u) * power_of_two(n - half);
}

fn minimum(a: f32, b: f32) -> f32 {
    if is_nan(a) { return a; }
    if is_nan(b) { return b; }
    return min(a, b);
}

fn maximum(a: f32, b: f32) -> f32 {
    if is_nan(a) { return a; }
    if is_nan(b) { return b; }
    return max(a, b);
}

fn sign_of(x: f32) -> f32 {
    return select(sign(x), x, is_nan(x) || !holds(x));
}

fn relu(x: f32) -> f32 {
    return select(max(x, 0.0), x, is_nan(x));
}

// eˣ with |error| ≤ 2 units: the exponent is split off before the multiplication by log₂e can round.
fn exponential(x: f32) -> f32 {
    if is_nan(x) { return x; }
    if x > 89.0 { return infinity_signed_as(1.0 + abs(x)); }
    if x < -104.0 { return 0.0; }
    let n = round(x * 1.44269504088896341);
    let rest = opaque(x - n * 0.693359375, 1048579u) + n * 2.12194440e-4;
    return scale(exp(rest), i32(n));
}

// Natural logarithm of m in [√½, √2].
fn logarithm_near_one(m: f32) -> f32 {
    let x = m - 1.0;
    let z = x * x;
    var y = 7.0376836292e-2;
    y = y * x - 1.1514610310e-1;
    y = y * x + 1.1676998740e-1;
    y = y * x - 1.2420140846e-1;
    y = y * x + 1.4249322787e-1;
    y = y * x - 1.6668057665e-1;
    y = y * x + 2.0000714765e-1;
    y = y * x - 2.4999993993e-1;
    y = y * x + 3.3333331174e-1;
    return x + (y * x * z - 0.5 * z);
}

// A finite x > 0 as (m, e) with x = m · 2ᵉ and m in [√½, √2). Works on bits, so that subnormal numbers are not lost.
fn split_exponent(x: f32) -> vec2<f32> {
    let bits = bitcast<u32>(x);
    var mantissa = bits & 0x7fffffu;
    var exponent = i32(bits >> 23u) - 127;
    if exponent == -127 {
        let shift = countLeadingZeros(mantissa) - 8u;
        mantissa = (mantissa << shift) & 0x7fffffu;
        exponent = -126 - i32(shift);
    }
    let m = bitcast<f32>(mantissa | 0x3f800000u);
    if m >= 1.41421356 {
        return vec2<f32>(0.5 * m, f32(exponent + 1));
    }
    return vec2<f32>(m, f32(exponent));
}

fn logarithm(x: f32) -> f32 {
    if is_nan(x) { return x; }
    if !holds(x) { return infinity_signed_as(-1.0 - abs(x)); }
    if (bitcast<u32>(x) >> 31u) == 1u { return nan_from(x); }
    if is_infinite(x) { return x; }
    let parts = split_exponent(x);
    return opaque(logarithm_near_one(parts.x) - 2.12194440e-4 * parts.y, 1048580u) + 0.693359375 * parts.y;
}

// xʸ for finite x > 0 and finite y. log₂x is kept as exponent and rest, so that y · log₂x does not lose the exponent's
// bits.
fn power_of_positive(x: f32, y: f32) -> f32 {
    let parts = split_exponent(x);
    let rest = y * opaque(logarithm_near_one(parts.x) * 1.44269504088896341, 1048581u);
    let whole = y * parts.y;
    let total = whole + rest;
    if total >= 129.0 { return infinity_signed_as(1.0 + abs(x)); }
    if total <= -151.0 { return 0.0; }
    let n = round(total);
    return scale(exp2(opaque(whole - n, 1048582u) + rest), i32(n));
}

// xⁿ for an integer |n| ≤ 64, by squaring.
fn integer_power(x: f32, n: i32) -> f32 {
    var result = 1.0;
    var square = x;
    var left = abs(n);
    while left > 0 {
        if (left & 1) == 1 { result = result * square; }
        left = left >> 1u;
        if left > 0 { square = square * square; }
    }
    return select(result, 1.0 / result, n < 0);
}

// IEEE 754's pow.
fn power(x: f32, y: f32) -> f32 {
    if !holds(y) || x == 1.0 { return 1.0; }
    if is_nan(x) || is_nan(y) { return nan_from(x); }
    let magnitude = abs(x);
    let integral = is_infinite(y) || trunc(y) == y;
    let odd = integral && abs(y) < 16777216.0 && (i32(y) & 1) == 1;
    let negative = (bitcast<u32>(x) >> 31u) == 1u;
    if !holds(x) || is_infinite(x) || is_infinite(y) {
        if magnitude == 1.0 { return 1.0; }
        let grows = (magnitude > 1.0) == (y > 0.0);
        let limit = select(0.0, infinity_signed_as(abs(y)), grows);
        return select(limit, -limit, negative && odd);
    }
    if negative && !integral { return nan_from(x); }
    if integral && abs(y) <= 64.0 { return integer_power(x, i32(y)); }
    let result = power_of_positive(magnitude, y);
    return select(result, -result, negative && odd);
}

// √x, but 0 for −0 and infinity for −infinity, as IEEE 754's pow.
fn power_of_half(x: f32) -> f32 {
    if is_infinite(x) { return abs(x); }
    if x < 0.0 { return nan_from(x); }
    return sqrt(abs(x));
}

// Returns the nearest number of a float type that lacks `dropped` mantissa bits, halves to even, in integer arithmetic;
// narrowing.rs describes the arguments. Below `least` a number is a count of the type's least number.
fn narrowed(
    x: f32,
    dropped: u32,
    least: u32,
    greatest: u32,
    beyond: u32,
    kept_of_nan: u32,
    nan: u32,
    negative_zero: u32,
) -> f32 {
    let bits = bitcast<u32>(x);
    let sign = bits & 0x80000000u;
    let magnitude = bits & 0x7fffffffu;
    var value = ((magnitude + (1u << (dropped - 1u)) - 1u + ((magnitude >> dropped) & 1u)) >> dropped) << dropped;
    if magnitude < least {
        let exponent = max(magnitude >> 23u, 1u);
        let mantissa = (magnitude & 0x7fffffu) | select(0u, 0x800000u, magnitude >= 0x800000u);
        let shift = min(dropped + (least >> 23u) - exponent, 25u);
        let count = (mantissa + (1u << (shift - 1u)) - 1u + ((mantissa >> shift) & 1u)) >> shift;
        value = bitcast<u32>(f32(count) * bitcast<f32>(least + (dropped << 23u) - (23u << 23u)));
    }
    if value > greatest { value = beyond; }
    if magnitude > 0x7f800000u { value = (magnitude & kept_of_nan) | nan; }
    if value == 0u { return bitcast<f32>(select(0u, negative_zero, sign != 0u && magnitude <= 0x7f800000u)); }
    return bitcast<f32>(value | sign);
}

// Bits of the nearest `f16` of the `f32` with these bits, halves to even, in integer arithmetic: drivers may round and
// flush otherwise. NaN stays NaN.
fn f16_bits(bits: u32) -> u32 {
    let sign = (bits >> 16u) & 0x8000u;
    let magnitude = bits & 0x7fffffffu;
    if magnitude > 0x7f800000u {
        return sign | 0x7e00u | ((magnitude >> 13u) & 0x3ffu);
    }
    if magnitude >= 0x38800000u {
        let rounded = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13u) & 1u)) >> 13u;
        return sign | min(rounded, 0x7c00u);
    }
    // A count of 2⁻²⁴; anything below half of it is 0.
    let dropped = min(126u - (magnitude >> 23u), 25u);
    let mantissa = select(0u, (magnitude & 0x7fffffu) | 0x800000u, magnitude >= 0x800000u);
    let count = mantissa >> dropped;
    let rest = mantissa & ((1u << dropped) - 1u);
    let half = 1u << (dropped - 1u);
    return sign | (count + select(0u, 1u, rest > half || (rest == half && (count & 1u) == 1u)));
}

// Bits of the nearest `bf16`, as above.
fn bf16_bits(bits: u32) -> u32 {
    if (bits & 0x7fffffffu) > 0x7f800000u {
        return (bits >> 16u) | 0x40u;
    }
    return (bits + 0x7fffu + ((bits >> 16u) & 1u)) >> 16u;
}

// Returns the remainder with the numerator's sign; exact, by long division of the mantissas eight bits at a time.
fn truncated_modulo(a: f32, b: f32) -> f32 {
    if is_nan(a) || is_nan(b) || is_infinite(a) || !holds(b) { return nan_from(a); }
    if is_infinite(b) || abs(a) < abs(b) { return a; }
    let a_bits = bitcast<u32>(a) & 0x7fffffffu;
    let b_bits = bitcast<u32>(b) & 0x7fffffffu;
    let a_exponent = max(a_bits >> 23u, 1u);
    let b_exponent = max(b_bits >> 23u, 1u);
    let a_mantissa = (a_bits & 0x7fffffu) | select(0u, 0x800000u, (a_bits >> 23u) != 0u);
    let b_mantissa = (b_bits & 0x7fffffu) | select(0u, 0x800000u, (b_bits >> 23u) != 0u);
    var left = a_exponent - b_exponent;
    var rest = a_mantissa % b_mantissa;
    while left > 0u {
        let step = min(left, 8u);
        rest = (rest << step) % b_mantissa;
        left = left - step;
    }
    return copy_sign(scale(f32(rest), i32(b_exponent) - 150), a);
}

// Returns the remainder with the denominator's sign.
fn floor_modulo(a: f32, b: f32) -> f32 {
    let rest = truncated_modulo(a, b);
    return select(rest, rest + b, holds(rest) && ((rest < 0.0) != (b < 0.0)));
}

// The low 64 bits of a · b, low word first.
fn wide_product(a: u32, b: u32) -> vec2<u32> {
    let low = (a & 0xffffu) * (b & 0xffffu);
    let middle = (a >> 16u) * (b & 0xffffu) + (low >> 16u);
    let other = (a & 0xffffu) * (b >> 16u) + (middle & 0xffffu);
    return vec2<u32>((other << 16u) | (low & 0xffffu), (a >> 16u) * (b >> 16u) + (middle >> 16u) + (other >> 16u));
}

// Returns a large finite |x| as (rest, quadrant), x = quadrant · π/2 + rest, by an exact product with the bits of 2/π
// that matter (Payne and Hanek 1983). With x = m · 2ˢ, bits of weight 2ʲ⁻¹ and more for j < s − 1 give multiples of 4
// quadrants. The next 96 bits T give m · T · 2⁻⁹⁴, whose top two of 96 bits are the quadrant.
fn reduce_large(x: f32) -> vec2<f32> {
    var two_over_pi = array<u32, 8>(0u, 0xa2f9836eu, 0x4e441529u, 0xfc2757d1u, 0xf534ddc0u, 0xdb629599u, 0x3c439041u,
        0xfe5163abu);
    let bits = bitcast<u32>(x) & 0x7fffffffu;
    let m = (bits & 0x7fffffu) | 0x800000u;
    // The table begins with a word of zeros, 32 bits before the point; bit j is at 31 + j, and the first bit needed is
    // at 30 + s.
    let first = u32(i32(bits >> 23u) - 150 + 30);
    let word = first / 32u;
    let shift = first % 32u;
    var t = vec3<u32>(two_over_pi[word], two_over_pi[word + 1u], two_over_pi[word + 2u]);
    if shift > 0u {
        let next = vec3<u32>(t.y, t.z, two_over_pi[word + 3u]);
        t = (t << vec3<u32>(shift)) | (next >> vec3<u32>(32u - shift));
    }
    let low = wide_product(m, t.z);
    let middle = wide_product(m, t.y);
    let second = middle.x + low.y;
    let carry = select(0u, 1u, second < low.y);
    let top = m * t.x + middle.y + carry;
    let fraction = (top << 2u) | (second >> 30u);
    // Rounding to the nearest quadrant: the fraction's top bit is the sign of the rest.
    let quadrant = (top >> 30u) + (fraction >> 31u);
    let rest = (f32(bitcast<i32>(fraction)) + f32((second >> 14u) & 0xffffu) * 1.52587890625e-5) * 3.657295198e-10;
    let negative = (bitcast<u32>(x) >> 31u) == 1u;
    return vec2<f32>(select(rest, -rest, negative), f32(select(quadrant & 3u, (4u - (quadrant & 3u)) & 3u, negative)));
}

// A finite x as (rest, quadrant mod 4), |rest| ≤ π/4. Below 8192 π/2 is subtracted in three parts whose products are exact.
fn reduce_angle(x: f32) -> vec2<f32> {
    if abs(x) > 8192.0 { return reduce_large(x); }
    let n = round(x * 0.63661977236758134);
    let nearer = opaque(x - n * 1.5703125, 1048583u);
    let rest = opaque(nearer - n * 4.837512969970703125e-4, 1048584u) - n * 7.54978995489188216e-8;
    return vec2<f32>(rest, f32(i32(n) & 3));
}

fn sine_small(x: f32) -> f32 {
    let z = x * x;
    return ((-1.9515295891e-4 * z + 8.3321608736e-3) * z - 1.6666654611e-1) * z * x + x;
}

fn cosine_small(x: f32) -> f32 {
    let z = x * x;
    return ((2.443315711809948e-5 * z - 1.388731625493765e-3) * z + 4.166664568298827e-2) * z * z - 0.5 * z + 1.0;
}

fn sine(x: f32) -> f32 {
    if is_nan(x) || is_infinite(x) { return nan_from(x); }
    if !holds(x) { return x; }
    let reduced = reduce_angle(x);
    let quadrant = u32(reduced.y);
    let value = select(sine_small(reduced.x), cosine_small(reduced.x), (quadrant & 1u) == 1u);
    return select(value, -value, quadrant >= 2u);
}

fn cosine(x: f32) -> f32 {
    if is_nan(x) || is_infinite(x) { return nan_from(x); }
    let reduced = reduce_angle(x);
    let quadrant = u32(reduced.y);
    let value = select(cosine_small(reduced.x), sine_small(reduced.x), (quadrant & 1u) == 1u);
    return select(value, -value, quadrant == 1u || quadrant == 2u);
}

fn tangent(x: f32) -> f32 {
    if is_nan(x) || is_infinite(x) { return nan_from(x); }
    if !holds(x) { return x; }
    let reduced = reduce_angle(x);
    let sine = sine_small(reduced.x);
    let cosine = cosine_small(reduced.x);
    return select(sine / cosine, -cosine / sine, (u32(reduced.y) & 1u) == 1u);
}

// Arc sine for 0 ≤ a ≤ ½.
fn arc_sine_small(a: f32) -> f32 {
    let z = a * a;
    var p = 4.2163199048e-2;
    p = p * z + 2.4181311049e-2;
    p = p * z + 4.5470025998e-2;
    p = p * z + 7.4953002686e-2;
    p = p * z + 1.6666752422e-1;
    return p * z * a + a;
}

fn arc_sine(x: f32) -> f32 {
    let a = abs(x);
    if is_nan(x) || a > 1.0 { return nan_from(x); }
    if a <= 0.5 { return copy_sign(arc_sine_small(a), x); }
    return copy_sign(1.57079632679489662 - 2.0 * arc_sine_small(sqrt(0.5 * (1.0 - a))), x);
}

fn arc_cosine(x: f32) -> f32 {
    let a = abs(x);
    if is_nan(x) || a > 1.0 { return nan_from(x); }
    if a <= 0.5 { return 1.57079632679489662 - copy_sign(arc_sine_small(a), x); }
    let half = 2.0 * arc_sine_small(sqrt(0.5 * (1.0 - a)));
    return select(half, 3.14159265358979324 - half, x < 0.0);
}

fn arc_tangent(x: f32) -> f32 {
    if is_nan(x) { return x; }
    if is_infinite(x) { return copy_sign(1.57079632679489662, x); }
    var a = abs(x);
    var base = 0.0;
    if a > 2.414213562373095 {
        base = 1.57079632679489662;
        a = -1.0 / a;
    } else if a > 0.4142135623730950 {
        base = 0.78539816339744831;
        a = (a - 1.0) / (a + 1.0);
    }
    let z = a * a;
    let p = ((8.05374449538e-2 * z - 1.38776856032e-1) * z + 1.99777106478e-1) * z - 3.33329491539e-1;
    return copy_sign(base + (p * z * a + a), x);
}

fn sinh_of(x: f32) -> f32 {
    if !holds(x) { return x; }
    let a = abs(x);
    if a <= 1.0 {
        let z = x * x;
        return ((2.03721912945e-4 * z + 8.33028376239e-3) * z + 1.66667160211e-1) * z * x + x;
    }
    let half = exponential(a - 0.693147180559945309);
    return copy_sign(half - 0.25 / half, x);
}

fn cosh_of(x: f32) -> f32 {
    let half = exponential(abs(x) - 0.693147180559945309);
    return half + 0.25 / half;
}

fn tanh_of(x: f32) -> f32 {
    let a = abs(x);
    if is_nan(x) || !holds(x) { return x; }
    if a > 9.02 { return copy_sign(1.0, x); }
    if a >= 0.625 { return copy_sign(1.0 - 2.0 / (exponential(2.0 * a) + 1.0), x); }
    let z = x * x;
    var p = -5.70498872745e-3;
    p = p * z + 2.06390887954e-2;
    p = p * z - 5.37397155531e-2;
    p = p * z + 1.33314422036e-1;
    p = p * z - 3.33332819422e-1;
    return p * z * x + x;
}

fn asinh_of(x: f32) -> f32 {
    if is_nan(x) || is_infinite(x) || !holds(x) { return x; }
    let a = abs(x);
    if a > 1500.0 { return copy_sign(logarithm(a) + 0.693147180559945309, x); }
    if a > 0.5 { return copy_sign(logarithm(a + sqrt(a * a + 1.0)), x); }
    let z = x * x;
    let p = ((2.0122003309e-2 * z - 4.2699340972e-2) * z + 7.4847586088e-2) * z - 1.6666288134e-1;
    return p * z * x + x;
}

fn acosh_of(x: f32) -> f32 {
    if is_nan(x) || x < 1.0 { return nan_from(x); }
    if x > 1500.0 { return logarithm(x) + 0.693147180559945309; }
    let z = x - 1.0;
    if z > 0.5 { return logarithm(x + sqrt(z * (x + 1.0))); }
    var p = 1.7596881071e-3;
    p = p * z - 7.5272886713e-3;
    p = p * z + 2.6454905019e-2;
    p = p * z - 1.1784741703e-1;
    p = p * z + 1.4142135263;
    return p * sqrt(z);
}

fn atanh_of(x: f32) -> f32 {
    let a = abs(x);
    if is_nan(x) || a > 1.0 { return nan_from(x); }
    if a == 1.0 { return infinity_signed_as(x); }
    if !holds(x) { return x; }
    if a >= 0.5 { return copy_sign(0.5 * logarithm((1.0 + a) / (1.0 - a)), x); }
    let z = x * x;
    var p = 1.81740078349e-1;
    p = p * z + 8.24370301058e-2;
    p = p * z + 1.46691431730e-1;
    p = p * z + 1.99782164500e-1;
    p = p * z + 3.33337300303e-1;
    return p * z * x + x;
}

fn sigmoid(x: f32) -> f32 {
    let z = exponential(-abs(x));
    return select(z, 1.0, x >= 0.0 || is_nan(x)) / (1.0 + z);
}

// Below 1 the Taylor series, whose error there is below one unit; above 1 Abramowitz and Stegun 1964, formula 7.1.26,
// |error| ≤ 1.5 · 10⁻⁷.
fn error_function(x: f32) -> f32 {
    if is_nan(x) || !holds(x) { return x; }
    let a = abs(x);
    if a < 1.0 {
        let z = x * x;
        var p = 1.6462144e-6;
        p = p * z - 1.4925644e-5;
        p = p * z + 1.2055332e-4;
        p = p * z - 8.5483270e-4;
        p = p * z + 5.2239776e-3;
        p = p * z - 2.6866170e-2;
        p = p * z + 1.1283792e-1;
        p = p * z - 3.7612640e-1;
        return p * z * x + 1.1283792 * x;
    }
    if a > 4.0 { return copy_sign(1.0, x); }
    let t = 1.0 / (1.0 + 0.3275911 * a);
    let p = ((((1.061405429 * t - 1.453152027) * t + 1.421413741) * t - 0.284496736) * t + 0.254829592) * t;
    return copy_sign(1.0 - p * exponential(-a * a), x);
}

fn sum_of(a: f32, b: f32) -> f32 {
    return a + b;
}

fn product_of(a: f32, b: f32) -> f32 {
    return a * b;
}

// Number with the order of the f32 of these bits. NaN is the greatest, and both zeros are equal. No f32 has 0 or 2³² − 1.
fn order_key(bits: u32) -> u32 {
    let magnitude = bits & 0x7fffffffu;
    if magnitude > 0x7f800000u {
        return 0xffc00000u;
    }
    if magnitude == 0u {
        return 0x80000000u;
    }
    return select(bits | 0x80000000u, ~bits, bits >= 0x80000000u);
}

fn negative_infinity() -> f32 {
    return number(0xff800000u, 1048586u);
}
