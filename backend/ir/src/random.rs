//! Seeded random tensors, the same on every machine: defaults for inputs that the caller does not give.

use anabranch_base::random::SplitMix64;
use anabranch_kernels::{DType, Tensor, TensorSpec};
use half::{bf16, f16};
use std::ops::Range;

/// Elements of a tensor.
struct Elements(SplitMix64);

impl Elements {
    /// Uniform in a range, cut off at `end`.
    fn within(&mut self, range: &Range<u64>, end: u64) -> u64 {
        let width = range.end.min(end).saturating_sub(range.start);
        range.start + ((u128::from(self.0.bits()) * u128::from(width)) >> 64) as u64
    }

    /// Uniform in −1 … 1, with 24 random bits: exact in `f32`.
    fn uniform(&mut self) -> f32 {
        (self.0.bits() >> 40) as f32 / (1 << 23) as f32 - 1.0
    }
}

/// Returns a tensor of uniform random elements: floats in −1 … 1, integers 0 or 1, bools.
///
/// Returns `None` if memory is short. The name is part of the seed, so that inputs of one model differ.
pub fn random_tensor(name: &str, spec: &TensorSpec, seed: u64) -> Option<Tensor> {
    random_within(name, spec, seed, 0..2)
}

/// Returns a tensor as [`random_tensor`] does, with integers of this range, as far as their type reaches.
pub fn random_within(name: &str, spec: &TensorSpec, seed: u64, range: Range<u64>) -> Option<Tensor> {
    let hash = name.bytes().fold(0xCBF2_9CE4_8422_2325, |h: u64, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01B3));
    let mut random = Elements(SplitMix64::new(seed ^ hash));
    // Bools, and one-byte types in which element 1 is the least above 0, are filled as bytes.
    let dtype = if spec.dtype.size() == 1 && spec.dtype != DType::I8 { DType::U8 } else { spec.dtype };
    let mut tensor = Tensor::try_zeroed(TensorSpec::new(dtype, spec.shape.clone()))?;
    macro_rules! fill {
        ($type:ty, $element:expr) => {
            tensor.elements_mut::<$type>().into_iter().flatten().for_each(|element| *element = $element)
        };
    }
    match dtype {
        DType::F32 => fill!(f32, random.uniform()),
        DType::F64 => fill!(f64, f64::from(random.uniform())),
        DType::F16 => fill!(f16, f16::from_f32(random.uniform())),
        DType::BF16 => fill!(bf16, bf16::from_f32(random.uniform())),
        DType::I8 => fill!(i8, random.within(&range, 1 << 7) as i8),
        DType::I16 => fill!(i16, random.within(&range, 1 << 15) as i16),
        DType::I32 => fill!(i32, random.within(&range, 1 << 31) as i32),
        DType::I64 => fill!(i64, random.within(&range, 1 << 63) as i64),
        DType::U16 => fill!(u16, random.within(&range, 1 << 16) as u16),
        DType::U32 => fill!(u32, random.within(&range, 1 << 32) as u32),
        DType::U64 => fill!(u64, random.within(&range, u64::MAX)),
        _ if spec.dtype == DType::U8 => fill!(u8, random.within(&range, 1 << 8) as u8),
        _ => fill!(u8, random.within(&(0..2), 2) as u8),
    }
    let (_, buffer) = tensor.into_parts();
    Some(Tensor::new(spec.clone(), buffer).expect("an element is one byte"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_kernels::Shape;

    fn values(name: &str, seed: u64) -> Vec<f32> {
        let spec = TensorSpec::new(DType::F32, Shape::new(vec![1000]).expect("small"));
        random_tensor(name, &spec, seed).expect("some bytes").elements().expect("f32").to_vec()
    }

    #[test]
    fn the_same_seed_and_name_give_the_same_elements() {
        assert_eq!(values("x", 1), values("x", 1));
        assert_ne!(values("x", 1), values("x", 2));
        assert_ne!(values("x", 1), values("y", 1));
    }

    #[test]
    fn integers_stay_in_their_range() {
        let shape = Shape::new(vec![1000]).expect("small");
        let some =
            |range| random_within("ids", &TensorSpec::new(DType::I64, shape.clone()), 1, range).expect("some bytes");
        let most = |range| *some(range).elements::<i64>().expect("as asked").iter().max().expect("a thousand");
        assert_eq!((most(0..1), most(1..2), most(0..2), most(3..7)), (0, 1, 1, 6));
        assert!(
            some(0..2).same_bits(&random_tensor("ids", &TensorSpec::new(DType::I64, shape.clone()), 1).expect("bytes"))
        );
        let bytes = random_within("ids", &TensorSpec::new(DType::U8, shape.clone()), 1, 0..1000).expect("some bytes");
        assert!(bytes.bytes().contains(&255));
        let truths = random_within("ids", &TensorSpec::new(DType::Bool, shape), 1, 0..1000).expect("some bytes");
        assert!(truths.bytes().iter().all(|byte| *byte < 2));
    }

    #[test]
    fn elements_fill_the_range() {
        let values = values("x", 1);
        assert!(values.iter().all(|v| (-1.0..1.0).contains(v)));
        let mean = values.iter().sum::<f32>() / 1000.0;
        assert!(mean.abs() < 0.1, "{mean}");
    }
}
