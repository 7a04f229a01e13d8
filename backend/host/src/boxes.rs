//! Drops boxes that overlap too much with better boxes: NonMaxSuppression, for each class of each image by itself.
//!
//! The boxes of a class are taken in blocks, the best first. Boxes of a block are compared with all boxes kept before,
//! in parts of the team's work. Then they are compared one after the other with the boxes that the block itself has
//! kept.

use super::work::{PART, Work};
use super::{Call, Item};
use crate::{Fault, integers, numbers};
use anabranch_kernels::cpu::order::keys;
use anabranch_kernels::cpu::overlap::{Rectangle, Rectangles};
use anabranch_kernels::cpu::sorted::Ranked;
use anabranch_kernels::{DType, Shape, Tensor, TensorSpec};
use std::sync::Arc;

/// Boxes of a block. Small in tests, so that a class has several blocks.
const BLOCK: usize = if cfg!(test) { 8 } else { 256 };

/// Boxes of a part of a block.
const TOGETHER: usize = BLOCK / 8;

/// Number of boxes that are sorted at first; four times as many each time they are used up.
const FIRST: usize = BLOCK;

/// Rules by which boxes of one class are chosen.
struct Choice {
    centered: bool,
    most: usize,
    overlap: f32,
    least: Option<f32>,
}

/// Returns triples of image, class and box, the best of a class first. O(classes · boxes · (log boxes + kept)).
pub(super) fn suppress(call: &Call<'_>) -> Result<Vec<Item>, Fault> {
    let (boxes, scores) = (call.tensor(0)?, call.tensor(1)?);
    let (&[batch, count, 4], &[images, classes, scored]) = (boxes.shape().dims(), scores.shape().dims()) else {
        return Err(misfit(boxes, scores));
    };
    if batch != images || count != scored {
        return Err(misfit(boxes, scores));
    }
    let choice = Choice::of(call)?;
    let floats =
        |tensor, index| Tensor::elements::<f32>(tensor).ok_or_else(|| Fault::of_type(index, tensor.dtype(), "f32"));
    let (boxes, keyed, scores) = (floats(boxes, 0)?, scores.bytes(), floats(scores, 1)?);
    if u32::try_from(count).is_err() {
        return Err(Fault::unsupported(format!("{count} boxes per image")));
    }
    // Without scores there is no class to choose from.
    let lists = if scores.is_empty() { 0 } else { batch * classes };
    let mut kept = call.work.filled(Ok(Vec::new()), lists)?;
    call.work.pieces(&mut kept, 1, |at, kept| {
        let boxes = boxes[at / classes * count * 4..][..count * 4].as_chunks().0;
        let scores =
            (&scores[at * count..][..count], &keyed[at * count * size_of::<f32>()..][..count * size_of::<f32>()]);
        kept[0] = choice.best(call.work, boxes, scores);
    })?;
    let kept: Vec<Vec<u32>> = kept.into_iter().collect::<Result<_, Fault>>()?;
    Ok(vec![Item::Tensor(triples(call.work, &kept, classes)?)])
}

/// Returns `[boxes, 3]`: image, class and position of each kept box; `kept` has a list for each class of each image.
fn triples(work: &Work<'_>, kept: &[Vec<u32>], classes: usize) -> Result<Tensor, Fault> {
    let total: usize = kept.iter().map(Vec::len).sum();
    let spec = TensorSpec::new(DType::I64, Shape::new(vec![total, 3])?);
    let mut made = work.buffer(spec.bytes())?;
    let all = kept.iter().enumerate().flat_map(|(at, kept)| {
        kept.iter().flat_map(move |place| [(at / classes) as i64, (at % classes) as i64, i64::from(*place)])
    });
    made.bytes_mut().as_chunks_mut().0.iter_mut().zip(all).for_each(|(target, index)| *target = index.to_ne_bytes());
    Ok(Tensor::new(spec, Arc::new(made)).expect("three indices a box"))
}

impl Choice {
    fn of(call: &Call<'_>) -> Result<Self, Fault> {
        let most = match call.optional(2) {
            Some(_) => usize::try_from(scalar(call, 2, integers)?.unwrap_or(0)).unwrap_or(0),
            None => 0,
        };
        let overlap = if call.optional(3).is_some() { scalar(call, 3, numbers)?.unwrap_or(0.0) as f32 } else { 0.0 };
        let least = if call.optional(4).is_some() { scalar(call, 4, numbers)?.map(|least| least as f32) } else { None };
        if !(0.0..=1.0).contains(&overlap) {
            return Err(Fault::invalid(format!("an overlap of {overlap}; it must be between 0 and 1")));
        }
        let centered = call.node.int("center_point_box")?.unwrap_or(0) != 0;
        Ok(Self { centered, most, overlap, least })
    }

    /// Returns the kept boxes of one class, the best first, and among equals the first. NaN scores come last. Scores
    /// are given with their bytes.
    fn best(&self, work: &Work<'_>, boxes: &[[f32; 4]], scores: (&[f32], &[u8])) -> Result<Vec<u32>, Fault> {
        let mut candidates = self.candidates(work, scores)?;
        let most = self.most.min(candidates.len());
        let (mut places, mut kept) = (work.list(most)?, Rectangles::default());
        let mut rest = &mut candidates[..];
        let mut sorted = FIRST;
        while places.len() < most && !rest.is_empty() {
            let count = sorted.min(rest.len());
            if count < rest.len() {
                rest.select_nth_unstable(count - 1);
            }
            let (next, after) = rest.split_at_mut(count);
            match next.len() {
                ..=PART => next.sort_unstable(),
                _ => work.sort(next, PART, u64::cmp)?,
            }
            for block in next.chunks(BLOCK) {
                self.keep(work, boxes, block, &mut kept, &mut places, most)?;
            }
            rest = after;
            sorted = sorted.saturating_mul(4);
        }
        Ok(places)
    }

    /// Returns the boxes with a sufficient score, with keys that are smaller for better boxes. Scores come with their
    /// bytes.
    fn candidates(&self, work: &Work<'_>, (scores, bytes): (&[f32], &[u8])) -> Result<Vec<u64>, Fault> {
        let mut found = work.filled(0, scores.len())?;
        work.pieces(&mut found, PART, |piece, found| {
            let first = piece * PART;
            let bytes = &bytes[first * size_of::<f32>()..][..found.len() * size_of::<f32>()];
            keys(DType::F32, bytes, found, |at, key| {
                let at = first + at;
                let key = if scores[at].is_nan() { u64::from(u32::MAX) } else { !key & u64::from(u32::MAX) };
                Ranked::new(key, at)
            });
        })?;
        let mut count = 0;
        for (piece, scores) in scores.chunks(PART).enumerate() {
            for (at, score) in scores.iter().enumerate() {
                // The entry is overwritten until a box is good enough, so that there is no branch to mispredict.
                found[count] = found[piece * PART + at];
                count += usize::from(self.least.is_none_or(|least| *score > least));
            }
            work.look()?;
        }
        found.truncate(count);
        Ok(found)
    }

    /// Adds the boxes of a block that do not overlap too much with any kept box.
    fn keep(
        &self,
        work: &Work<'_>,
        boxes: &[[f32; 4]],
        block: &[u64],
        kept: &mut Rectangles,
        places: &mut Vec<u32>,
        most: usize,
    ) -> Result<(), Fault> {
        let before = kept.len();
        // A few comparisons are not worth other threads.
        let together = if before * block.len() < PART { BLOCK } else { TOGETHER };
        let mut fresh = [None; BLOCK];
        let fresh = &mut fresh[..block.len()];
        work.pieces(fresh, together, |piece, fresh| {
            for (one, fresh) in block[piece * together..].iter().zip(fresh) {
                let one = self.rectangle(boxes[one.position()]);
                *fresh = Some(one).filter(|one| !kept.any_over(0..before, one, self.overlap));
            }
        })?;
        work.charge(Rectangles::BYTES * block.len())?;
        kept.try_reserve(block.len()).map_err(|_| Fault::memory("the system has no memory left for the boxes kept"))?;
        for (one, fresh) in block.iter().zip(fresh) {
            if let Some(fresh) = fresh.filter(|fresh| !kept.any_over(before..kept.len(), fresh, self.overlap)) {
                if places.len() == most {
                    break;
                }
                kept.push(fresh);
                places.push(one.position() as u32);
            }
        }
        Ok(())
    }

    fn rectangle(&self, [a, b, c, d]: [f32; 4]) -> Rectangle {
        match self.centered {
            true => Rectangle::around([a, b], [c, d]),
            false => Rectangle::of_corners([a, b], [c, d]),
        }
    }
}

/// Returns the only element of an input.
fn scalar<T: Copy>(call: &Call<'_>, index: usize, read: fn(&Tensor) -> Option<Vec<T>>) -> Result<Option<T>, Fault> {
    let tensor = call.tensor(index)?;
    match tensor.shape().elements() {
        0 => Ok(None),
        1 => Ok(read(tensor).and_then(|values| values.first().copied())),
        _ => Err(Fault::invalid(format!("input {index} has shape {}, not one element", tensor.shape()))),
    }
}

fn misfit(boxes: &Tensor, scores: &Tensor) -> Fault {
    Fault::invalid(format!("boxes of shape {} do not fit scores of shape {}", boxes.shape(), scores.shape()))
}
