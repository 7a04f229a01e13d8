//! Floats as caches store them: words of one `f32`, or of two `f16` or `bf16`, the first in the low half.

use anabranch_op::dtype::DType;

/// Whether caches on GPUs hold elements of the type.
pub(super) const fn is_cached(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::F16 | DType::BF16)
}

/// Returns the elements of a word, for a type that caches hold.
pub(super) const fn per_word(dtype: DType) -> usize {
    4 / dtype.size()
}

/// Returns the WGSL function `name`, which finds an element in the array of words `array` and returns its bits as `to`,
/// rounded to the nearest with ties to even.
pub(super) fn bits(name: &str, array: &str, from: DType, to: DType) -> String {
    let found = match per_word(from) {
        1 => format!("{array}[index]"),
        _ => format!("({array}[index / 2u] >> (index % 2u * 16u)) & 0xffffu"),
    };
    let converted = match (from == to, to) {
        (true, _) => found,
        (false, DType::F16) => format!("f16_bits({found})"),
        (false, _) => format!("bf16_bits({found})"),
    };
    format!("fn {name}(index: u32) -> u32 {{\n    return {converted};\n}}\n")
}

/// Returns the WGSL function `name`, which returns an element of the array of words `array`.
pub(super) fn value(name: &str, array: &str, dtype: DType) -> String {
    let value = match dtype {
        DType::F16 => format!("unpack2x16float({array}[index / 2u])[index % 2u]"),
        DType::BF16 => format!("bitcast<f32>(({array}[index / 2u] >> (index % 2u * 16u)) << 16u)"),
        _ => format!("bitcast<f32>({array}[index])"),
    };
    format!("fn {name}(index: u32) -> f32 {{\n    return {value};\n}}\n")
}

/// Returns the WGSL function `name`, which returns four elements that are an element of `array`: a vector of four
/// `f32`, or of two words.
pub(super) fn four_values(name: &str, array: &str, dtype: DType) -> String {
    let value = match dtype {
        DType::F16 => format!("vec4<f32>(unpack2x16float({array}[index].x), unpack2x16float({array}[index].y))"),
        DType::BF16 => {
            format!("bitcast<vec4<f32>>(({array}[index].xxyy << vec4<u32>(16u, 0u, 16u, 0u)) & vec4<u32>(0xffff0000u))")
        }
        _ => format!("{array}[index]"),
    };
    format!("fn {name}(index: u32) -> vec4<f32> {{\n    return {value};\n}}\n")
}
