//! Boxes that overlap too much with better ones left out: NonMaxSuppression, for each class of each image by itself.

use super::{Call, Item};
use crate::lower::{Fault, integers, numbers};
use anabranch_kernels::{Shape, Tensor};

/// A box as its least and greatest coordinates, and its area.
#[derive(Clone, Copy)]
struct Area {
    low: [f32; 2],
    high: [f32; 2],
    size: f32,
}

/// Triples of image, class and box, the best of a class first. O(classes · boxes · (log boxes + kept)).
pub(super) fn suppress(call: &Call<'_>) -> Result<Vec<Item>, Fault> {
    let (boxes, scores) = (call.tensor(0)?, call.tensor(1)?);
    let (&[batch, count, 4], &[images, classes, scored]) = (boxes.shape().dims(), scores.shape().dims()) else {
        return Err(misfit(boxes, scores));
    };
    if batch != images || count != scored {
        return Err(misfit(boxes, scores));
    }
    let centered = call.node.int("center_point_box")?.unwrap_or(0) != 0;
    let most = match call.optional(2) {
        Some(_) => usize::try_from(scalar(call, 2, integers)?.unwrap_or(0)).unwrap_or(0),
        None => 0,
    };
    let overlap = if call.optional(3).is_some() { scalar(call, 3, numbers)?.unwrap_or(0.0) as f32 } else { 0.0 };
    let least = if call.optional(4).is_some() { scalar(call, 4, numbers)?.map(|least| least as f32) } else { None };
    if !(0.0..=1.0).contains(&overlap) {
        return Err(Fault::invalid(format!("an overlap of {overlap}; it must be between 0 and 1")));
    }
    let floats = |tensor: &Tensor, index| match tensor.elements::<f32>() {
        Some(floats) => Ok(floats.to_vec()),
        None => Err(Fault::of_type(index, tensor.dtype(), "f32")),
    };
    let (boxes, scores) = (floats(boxes, 0)?, floats(scores, 1)?);
    let mut found = Vec::new();
    for image in 0..batch {
        let areas: Vec<Area> = boxes[image * count * 4..][..count * 4]
            .chunks_exact(4)
            .map(|corners| Area::of([corners[0], corners[1], corners[2], corners[3]], centered))
            .collect();
        for class in 0..classes {
            let scores = &scores[(image * classes + class) * count..][..count];
            let kept = best(&areas, scores, most, overlap, least);
            found.extend(kept.into_iter().flat_map(|place| [image as i64, class as i64, place as i64]));
        }
    }
    let shape = Shape::new(vec![found.len() / 3, 3])?;
    Ok(vec![Item::Tensor(Tensor::from_elements(shape, &found).expect("three indices a box"))])
}

/// The boxes of one class that are kept, the best first; of equal ones the first.
fn best(areas: &[Area], scores: &[f32], most: usize, overlap: f32, least: Option<f32>) -> Vec<usize> {
    let mut order: Vec<usize> = (0..scores.len()).filter(|at| least.is_none_or(|least| scores[*at] > least)).collect();
    order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]));
    let mut kept: Vec<usize> = Vec::new();
    for place in order {
        if kept.len() >= most {
            break;
        }
        if kept.iter().all(|other| areas[place].overlap(areas[*other]) <= overlap) {
            kept.push(place);
        }
    }
    kept
}

impl Area {
    /// Of two opposite corners (any), or of a centre with width and height.
    fn of([a, b, c, d]: [f32; 4], centered: bool) -> Self {
        let (one, other) = match centered {
            true => ([a - c / 2.0, b - d / 2.0], [a + c / 2.0, b + d / 2.0]),
            false => ([a, b], [c, d]),
        };
        let low = [one[0].min(other[0]), one[1].min(other[1])];
        let high = [one[0].max(other[0]), one[1].max(other[1])];
        Self { low, high, size: (high[0] - low[0]) * (high[1] - low[1]) }
    }

    /// The area in both of the area in either; 0 where one has none.
    fn overlap(self, other: Self) -> f32 {
        let side = |axis: usize| self.high[axis].min(other.high[axis]) - self.low[axis].max(other.low[axis]);
        let (width, height) = (side(0), side(1));
        if width <= 0.0 || height <= 0.0 || self.size <= 0.0 || other.size <= 0.0 {
            return 0.0;
        }
        let common = width * height;
        common / (self.size + other.size - common)
    }
}

/// The first element of an input of one.
fn scalar<T: Copy>(call: &Call<'_>, index: usize, read: fn(&Tensor) -> Option<Vec<T>>) -> Result<Option<T>, Fault> {
    let tensor = call.tensor(index)?;
    match read(tensor).as_deref() {
        Some([]) => Ok(None),
        Some([value]) => Ok(Some(*value)),
        _ => Err(Fault::invalid(format!("input {index} has shape {}, not one element", tensor.shape()))),
    }
}

fn misfit(boxes: &Tensor, scores: &Tensor) -> Fault {
    Fault::invalid(format!("boxes of shape {} do not fit scores of shape {}", boxes.shape(), scores.shape()))
}
