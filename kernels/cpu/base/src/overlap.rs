//! Boxes in the plane, and a test whether one of them overlaps another too much.

use super::vector::{Isa, Loop, vectorised};
use std::collections::TryReserveError;
use std::ops::Range;

/// Number of boxes that are compared between two checks for a result.
const TOGETHER: usize = 32;

/// Box with its least and greatest coordinates, and its area.
#[derive(Clone, Copy, Debug)]
pub struct Rectangle {
    low: [f32; 2],
    high: [f32; 2],
    area: f32,
}

impl Rectangle {
    /// Creates the box of two opposite corners, in any order.
    pub fn of_corners(one: [f32; 2], other: [f32; 2]) -> Self {
        let sorted = |axis: usize| match one[axis] >= other[axis] {
            true => (other[axis], one[axis]),
            false => (one[axis], other[axis]),
        };
        let ((left, right), (top, bottom)) = (sorted(0), sorted(1));
        Self::new([left, top], [right, bottom])
    }

    /// Creates the box around a centre. A box of negative size overlaps nothing.
    pub fn around(center: [f32; 2], size: [f32; 2]) -> Self {
        let [half_x, half_y] = size.map(|size| size / 2.0);
        let [x, y] = center;
        Self::new([x - half_x, y - half_y], [x + half_x, y + half_y])
    }

    fn new(low: [f32; 2], high: [f32; 2]) -> Self {
        Self { low, high, area: (high[0] - low[0]) * (high[1] - low[1]) }
    }
}

/// List of boxes, with a separate list for each coordinate.
#[derive(Debug, Default)]
pub struct Rectangles {
    low: [Vec<f32>; 2],
    high: [Vec<f32>; 2],
    area: Vec<f32>,
}

impl Rectangles {
    /// Bytes of a box.
    pub const BYTES: usize = 5 * size_of::<f32>();

    /// Reserves memory for `more` boxes.
    ///
    /// # Errors
    /// If the system has not enough memory.
    pub fn try_reserve(&mut self, more: usize) -> Result<(), TryReserveError> {
        let Self { low: [a, b], high: [c, d], area } = self;
        [a, b, c, d, area].into_iter().try_for_each(|list| list.try_reserve(more))
    }

    /// Adds a box.
    pub fn push(&mut self, one: Rectangle) {
        for axis in 0..2 {
            self.low[axis].push(one.low[axis]);
            self.high[axis].push(one.high[axis]);
        }
        self.area.push(one.area);
    }

    /// Returns the number of boxes.
    pub fn len(&self) -> usize {
        self.area.len()
    }

    /// Whether there are no boxes.
    pub fn is_empty(&self) -> bool {
        self.area.is_empty()
    }

    /// Whether the intersection of `one` with a box of the range is more than `most` of their union.
    ///
    /// # Panics
    /// If the range is not within the list.
    pub fn any_over(&self, range: Range<usize>, one: &Rectangle, most: f32) -> bool {
        vectorised(Search { all: self, range, one, most })
    }
}

struct Search<'a> {
    all: &'a Rectangles,
    range: Range<usize>,
    one: &'a Rectangle,
    most: f32,
}

impl Loop for Search<'_> {
    type Output = bool;

    #[inline(always)]
    fn run<I: Isa>(self) -> bool {
        let Self { all, range, one, most } = self;
        let ([left, top], [right, bottom]) = (&all.low, &all.high);
        let lists = [left, top, right, bottom, &all.area].map(|list| &list[range.clone()]);
        let [left, top, right, bottom, area] = lists.map(|list| list.as_chunks::<TOGETHER>());
        let of = |at: usize| [left.0[at], top.0[at], right.0[at], bottom.0[at], area.0[at]];
        (0..area.0.len()).any(|at| {
            let [left, top, right, bottom, area] = of(at);
            let over = |i: usize| is_over([left[i], top[i], right[i], bottom[i], area[i]], one, most);
            (0..TOGETHER).fold(0, |any, i| any | u32::from(over(i))) != 0
        }) || (0..area.1.len()).any(|i| is_over([left.1[i], top.1[i], right.1[i], bottom.1[i], area.1[i]], one, most))
    }
}

/// Whether two boxes overlap too much. The code has no branches, and treats NaN as ONNX Runtime does.
#[inline(always)]
fn is_over([left, top, right, bottom, area]: [f32; 5], one: &Rectangle, most: f32) -> bool {
    let greater = |a: f32, b: f32| if a < b { b } else { a };
    let lesser = |a: f32, b: f32| if b < a { b } else { a };
    let (low_x, high_x) = (greater(one.low[0], left), lesser(one.high[0], right));
    let (low_y, high_y) = (greater(one.low[1], top), lesser(one.high[1], bottom));
    let common = (high_x - low_x) * (high_y - low_y);
    let either = one.area + area - common;
    let is_apart = (high_x <= low_x) | (high_y <= low_y) | (common <= 0.0);
    let is_empty = (one.area <= 0.0) | (area <= 0.0) | (either <= 0.0);
    !(is_apart | is_empty) & (common / either > most)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(boxes: &[Rectangle]) -> Rectangles {
        let mut list = Rectangles::default();
        boxes.iter().for_each(|one| list.push(*one));
        list
    }

    #[test]
    fn a_box_is_found_wherever_it_is() {
        let far = Rectangle::of_corners([10.0, 10.0], [11.0, 11.0]);
        let one = Rectangle::of_corners([1.0, 0.0], [0.0, 1.0]);
        for count in [1, 31, 32, 33, 64, 100] {
            for at in 0..count {
                let mut boxes = vec![far; count];
                boxes[at] = Rectangle::around([0.5, 0.75], [1.0, 1.0]);
                let list = list(&boxes);
                assert!(list.any_over(0..count, &one, 0.5) && !list.any_over(0..count, &one, 0.61));
                assert!(!list.any_over(0..at, &one, 0.0) && !list.any_over(at + 1..count, &one, 0.0));
            }
        }
    }

    #[test]
    fn what_has_no_area_overlaps_nothing() {
        let whole = Rectangle::around([0.0, 0.0], [2.0, 2.0]);
        let none = [
            Rectangle::around([0.0, 0.0], [-1.0, 1.0]),
            Rectangle::around([0.0, 0.0], [-1.0, -1.0]),
            Rectangle::around([0.0, 0.0], [0.0, 1.0]),
            Rectangle::of_corners([1.0, 0.0], [2.0, 1.0]),
        ];
        assert!(!list(&none).any_over(0..none.len(), &whole, 0.0));
        assert!(list(&[whole]).any_over(0..1, &whole, 0.999) && !list(&[whole]).any_over(0..1, &whole, 1.0));
    }
}
