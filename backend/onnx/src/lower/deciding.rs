//! Inputs of a model whose elements decide shapes: axes, sizes, repeats, bounds. Plans are made for these elements, as
//! they are for shapes.

use anabranch_base::lock::lock;
use anabranch_kernels::Tensor;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

/// Most elements of an integer or bool input for whose elements plans are made.
const INTEGERS: usize = 256;

/// Most elements of a float input for whose elements plans are made: scales, for example, or the bounds of a range.
const FLOATS: usize = 16;

/// Names of the inputs that were found to decide shapes. The set only grows.
#[derive(Default)]
pub struct Deciding {
    names: Mutex<Arc<BTreeSet<String>>>,
}

impl Deciding {
    /// Returns the names known so far.
    pub fn known(&self) -> Arc<BTreeSet<String>> {
        Arc::clone(&lock(&self.names))
    }

    /// Whether exactly these names are known.
    pub fn is(&self, names: &Arc<BTreeSet<String>>) -> bool {
        Arc::ptr_eq(&lock(&self.names), names)
    }

    /// Adds inputs whose elements lowering needs, in a group for each node.
    ///
    /// Returns whether lowering again makes sense: some group has only small, given inputs, and one of them is new.
    pub fn learn<'t>(&self, wanted: &[Vec<String>], find: impl Fn(&str) -> Option<&'t Tensor>) -> bool {
        let mut names = lock(&self.names);
        let sound = |group: &&Vec<String>| group.iter().all(|name| find(name).is_some_and(is_small));
        let new: Vec<_> =
            wanted.iter().filter(sound).flatten().filter(|name| !names.contains(*name)).cloned().collect();
        if !new.is_empty() {
            Arc::make_mut(&mut names).extend(new.iter().cloned());
        }
        !new.is_empty()
    }
}

/// Whether plans may be made for a tensor's elements.
pub fn is_small(tensor: &Tensor) -> bool {
    tensor.shape().elements() <= if tensor.dtype().is_float() { FLOATS } else { INTEGERS }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anabranch_kernels::Shape;

    #[test]
    fn only_small_inputs_at_hand_decide() {
        let deciding = Deciding::default();
        let floats = |count: usize| Tensor::from_elements(Shape::new([count]).expect("small"), &vec![0f32; count]);
        let (axes, x, scales) = (Tensor::from_i64s(&[1, 2]), floats(17), floats(4));
        let find = |name: &str| match name {
            "axes" => Some(&axes),
            "x" => x.as_ref().ok(),
            "scales" => scales.as_ref().ok(),
            _ => None,
        };
        let learn = |names: &[&str]| deciding.learn(&[names.iter().map(ToString::to_string).collect()], find);
        let before = deciding.known();
        assert!(!learn(&[]) && !learn(&["x"]) && !learn(&["axes", "x"]) && !learn(&["elsewhere"]));
        assert!(deciding.is(&before));
        assert!(learn(&["axes"]) && learn(&["axes", "scales"]) && !learn(&["axes"]));
        assert_eq!(deciding.known().iter().collect::<Vec<_>>(), ["axes", "scales"]);
    }
}
