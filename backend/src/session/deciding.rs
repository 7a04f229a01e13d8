//! Which of a model's inputs decide shapes by their elements: axes, sizes, repeats, bounds. Plans are made for these elements, as they
//! are for shapes.

use super::inputs::Inputs;
use crate::lock::lock;
use anabranch_kernels::Tensor;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

/// Elements that an input of integers or truth values may have for plans to be made for them …
const INTEGERS: usize = 256;

/// … and one of floats, such as scales or the bounds of a range.
const FLOATS: usize = 16;

/// The names of the inputs that were found to decide shapes. It only grows.
#[derive(Default)]
pub(super) struct Deciding {
    names: Mutex<Arc<BTreeSet<String>>>,
}

impl Deciding {
    /// The names known by now.
    pub(super) fn known(&self) -> Arc<BTreeSet<String>> {
        Arc::clone(&lock(&self.names))
    }

    /// Whether no other names are known.
    pub(super) fn is(&self, names: &Arc<BTreeSet<String>>) -> bool {
        Arc::ptr_eq(&lock(&self.names), names)
    }

    /// Adds inputs that lowering wants to know the elements of. Whether it is worth lowering again: each is small and at hand, and
    /// there is a new one.
    pub(super) fn learn(&self, wanted: &[String], inputs: &Inputs) -> bool {
        let mut names = lock(&self.names);
        let sound = wanted.iter().all(|name| inputs.find(name).is_some_and(is_small));
        let new = wanted.iter().any(|name| !names.contains(name));
        if sound && new {
            Arc::make_mut(&mut names).extend(wanted.iter().cloned());
        }
        sound && new
    }
}

/// Whether plans may be made for a tensor's elements.
pub(super) fn is_small(tensor: &Tensor) -> bool {
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
        let inputs = Inputs::new().tensor("axes", Tensor::from_i64s(&[1, 2]));
        let inputs =
            inputs.tensor("x", floats(17).expect("17 elements")).tensor("scales", floats(4).expect("4 elements"));
        let learn = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(ToString::to_string).collect();
            deciding.learn(&names, &inputs)
        };
        let before = deciding.known();
        assert!(!learn(&[]) && !learn(&["x"]) && !learn(&["axes", "x"]) && !learn(&["elsewhere"]));
        assert!(deciding.is(&before));
        assert!(learn(&["axes"]) && learn(&["axes", "scales"]) && !learn(&["axes"]));
        assert_eq!(deciding.known().iter().collect::<Vec<_>>(), ["axes", "scales"]);
    }
}
