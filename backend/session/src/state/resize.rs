//! States with more or fewer elements along their growing axis: what stays is copied once, and zeros fill the rest.

use super::{Inputs, StatePair, Stateful};
use crate::error::{InputError, SessionError, within_memory};
use crate::inputs::Given;
use anabranch_kernels::{Buffer, Shape, Tensor, TensorSpec};
use std::sync::Arc;

/// The end of the growing axis at which elements stay.
#[derive(Clone, Copy)]
enum Stay {
    /// All stay in front.
    Front,
    /// So many of the last stay at the back.
    Back(usize),
}

impl Stateful {
    /// Gives the growing axis of each state so many elements: what is there stays in front, and zeros follow. For
    /// models whose operators take the state as a buffer of some capacity.
    ///
    /// # Errors
    /// If a state would lose elements or finds no memory, or these inputs do not tell its other sizes before the first
    /// run.
    pub fn resize(&mut self, inputs: &Inputs, size: usize) -> Result<(), SessionError> {
        let is_first = !self.begun;
        let replaced = self.inputs.take_over(inputs);
        let resized = within_memory(|| self.begin_own().and_then(|()| self.resized(size, Stay::Front)));
        if resized.is_err() {
            if is_first {
                // The failed inputs have decided the first state's sizes.
                self.reset();
            }
            self.inputs.give_back(inputs, replaced);
        }
        self.exchange(resized?);
        Ok(())
    }

    /// Gives the growing axis of each state so many elements: the last `kept` of what is there come last, and zeros
    /// precede them. For models that take a state padded on the left.
    ///
    /// The memory of the state before is used again, so that steps of one size allocate nothing. A state on a GPU is
    /// copied to the host.
    ///
    /// # Errors
    /// If `size` is less than `kept`, a GPU was lost, or there is no memory. The states then stay as they are.
    pub fn align(&mut self, size: usize, kept: usize) -> Result<(), SessionError> {
        let aligned = within_memory(|| self.resized(size, Stay::Back(kept)))?;
        self.exchange(aligned);
        Ok(())
    }

    /// Returns the growing states with so many elements, by the names of their inputs.
    fn resized(&mut self, size: usize, stay: Stay) -> Result<Vec<(String, Tensor)>, SessionError> {
        let mut made = Vec::new();
        for (StatePair { input, growing, .. }, former) in self.pairs.iter().zip(&mut self.former) {
            let (Some(axis), Some(given)) = (*growing, self.inputs.given(input)) else { continue };
            let is_so = given.spec().shape.dims()[axis] == size && !matches!(stay, Stay::Back(kept) if kept < size);
            if !is_so {
                made.push((input.clone(), resized(input, &given.on_host()?, axis, size, stay, former.take())?));
            }
        }
        Ok(made)
    }

    fn exchange(&mut self, states: Vec<(String, Tensor)>) {
        for (name, tensor) in states {
            self.inputs.exchange(&name, Given::Host(tensor));
        }
    }
}

/// A tensor with `size` elements along an axis, in the memory of a former one if that fits. O(bytes).
fn resized(
    name: &str,
    tensor: &Tensor,
    axis: usize,
    size: usize,
    stay: Stay,
    former: Option<Given>,
) -> Result<Tensor, SessionError> {
    let mut dims = tensor.shape().dims().to_vec();
    let old = std::mem::replace(&mut dims[axis], size);
    let inner: usize = dims[axis + 1..].iter().product::<usize>() * tensor.dtype().size();
    let (count, from, to) = match stay {
        Stay::Front => (old, 0, 0),
        Stay::Back(kept) => (kept.min(old), old.saturating_sub(kept), size.saturating_sub(kept.min(old))),
    };
    if count > size {
        return Err(InputError::Shorter { name: name.to_owned(), old: count, size }.into());
    }
    let too_large = |problem| InputError::TooLarge { name: name.to_owned(), problem };
    let spec = TensorSpec::new(tensor.dtype(), Shape::new(dims).map_err(too_large)?);
    let bytes = spec.bytes();
    let fresh = || Buffer::try_zeroed(bytes).map(Arc::new);
    let buffer = memory(&spec, former).or_else(fresh);
    let mut buffer = buffer.ok_or(InputError::NoMemory { name: name.to_owned(), bytes })?;
    let target = Arc::get_mut(&mut buffer).expect("nobody else has it").bytes_mut();
    if count == 0 {
        target.fill(0);
    }
    let rows = target.chunks_exact_mut((size * inner).max(1)).zip(tensor.bytes().chunks_exact((old * inner).max(1)));
    for (row, old) in rows {
        let (before, rest) = row.split_at_mut(to * inner);
        let (own, after) = rest.split_at_mut(count * inner);
        before.fill(0);
        own.copy_from_slice(&old[from * inner..][..own.len()]);
        after.fill(0);
    }
    Ok(Tensor::new(spec, buffer).expect("as many bytes"))
}

/// Memory of a former tensor of this type and shape that nothing else holds.
fn memory(spec: &TensorSpec, former: Option<Given>) -> Option<Arc<Buffer>> {
    let Some(Given::Host(tensor)) = former else { return None };
    let (own, mut buffer) = tensor.into_parts();
    let is_free = own == *spec && Arc::get_mut(&mut buffer).is_some_and(|buffer| !buffer.is_borrowed());
    is_free.then_some(buffer)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn elements(dims: [usize; 3], values: &[i64]) -> Tensor {
        Tensor::from_elements(Shape::new(dims).expect("small"), values).expect("as many")
    }

    #[test]
    fn elements_stay_at_the_end_that_is_asked_for_and_zeros_fill_the_rest() {
        let (old, none) = (elements([2, 2, 1], &[1, 2, 3, 4]), elements([2, 0, 1], &[]));
        for (tensor, size, stay, want) in [
            (&old, 3, Stay::Front, &[1, 2, 0, 3, 4, 0][..]),
            (&old, 3, Stay::Back(2), &[0, 1, 2, 0, 3, 4]),
            (&old, 3, Stay::Back(1), &[0, 0, 2, 0, 0, 4]),
            (&old, 2, Stay::Back(1), &[0, 2, 0, 4]),
            (&old, 1, Stay::Back(1), &[2, 4]),
            (&old, 3, Stay::Back(9), &[0, 1, 2, 0, 3, 4]),
            (&old, 2, Stay::Back(0), &[0; 4]),
            (&none, 2, Stay::Front, &[0; 4]),
            (&none, 2, Stay::Back(2), &[0; 4]),
        ] {
            let used = elements([2, size, 1], &vec![7; 2 * size]);
            for former in [None, Some(Given::Host(used))] {
                let place = former.as_ref().map(|former| former.on_host().expect("there").bytes().as_ptr());
                let made = resized("x", tensor, 1, size, stay, former).expect("resized");
                assert_eq!((made.shape().dims(), made.elements::<i64>()), (&[2, size, 1][..], Some(want)));
                assert!(place.is_none_or(|place| place == made.bytes().as_ptr()), "in the memory that was there");
            }
        }
        for stay in [Stay::Front, Stay::Back(2)] {
            let error = resized("x", &old, 1, 1, stay, None).expect_err("shorter").to_string();
            assert!(error.contains("`x` has 2 elements") && error.contains("a size of 1 cannot hold them"), "{error}");
        }
    }

    #[test]
    fn memory_that_a_snapshot_holds_is_left_alone() {
        let (old, used) = (elements([2, 2, 1], &[1, 2, 3, 4]), elements([2, 2, 1], &[7; 4]));
        let made = resized("x", &old, 1, 2, Stay::Back(1), Some(Given::Host(used.clone()))).expect("resized");
        assert_eq!((made.elements::<i64>(), used.elements::<i64>()), (Some(&[0, 2, 0, 4][..]), Some(&[7; 4][..])));
    }
}
