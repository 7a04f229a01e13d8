//! Classes of an image's pixels.

use super::{Labels, Numbers, class_of, named, table};
use crate::table::Table;
use serde::Serialize;
use std::collections::BTreeMap;

const FORMS: &str = "a mask needs an output of images × classes × height × width, or classes as whole numbers of \
    images × height × width";

/// Classes of an image's pixels, as the model has them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Mask {
    /// Output of the model.
    pub output: String,
    /// Number of the image.
    pub image: usize,
    /// Height and width.
    pub size: [usize; 2],
    /// Classes that occur, the most frequent first.
    pub classes: Vec<Share>,
    /// Class of each pixel, row by row.
    #[serde(skip)]
    pub pixels: Vec<usize>,
}

/// A class in a mask.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Share {
    /// Number of the class.
    pub class: usize,
    /// Name of the class, if labels are known.
    pub label: Option<String>,
    /// Part of the pixels, from 0 to 1.
    pub share: f64,
}

/// Returns the masks of all images from the first output that has them.
pub(super) fn masks(outputs: &[Numbers<'_>], labels: &Labels) -> Result<Vec<Mask>, String> {
    let of = |output: &Numbers<'_>| -> Option<Vec<Mask>> {
        let (classes, size) = match *output.dims {
            [_, classes, height, width] => (classes, [height, width]),
            [_, height, width] if output.is_whole => (1, [height, width]),
            _ => return None,
        };
        let area = size[0].checked_mul(size[1]).filter(|area| *area > 0 && classes > 0)?;
        let images = output.values.chunks_exact(classes * area).enumerate();
        images
            .map(|(image, values)| {
                let pixels = pixels(values, area, output.is_whole)?;
                Some(Mask { output: output.name.to_owned(), image, size, classes: shares(&pixels, labels), pixels })
            })
            .collect()
    };
    outputs.iter().find_map(of).filter(|masks| !masks.is_empty()).ok_or(FORMS.into())
}

/// Returns the class of each pixel: the number itself, the greatest score, or whether one score is above its middle.
fn pixels(values: &[f32], area: usize, is_whole: bool) -> Option<Vec<usize>> {
    if values.len() == area && is_whole {
        return values.iter().map(|value| class_of(*value)).collect();
    }
    if values.len() == area {
        // Probabilities, or their logarithmic odds.
        let middle = if values.iter().all(|value| (0.0..=1.0).contains(value)) { 0.5 } else { 0.0 };
        return Some(values.iter().map(|value| usize::from(*value > middle)).collect());
    }
    let mut best: Vec<(usize, f32)> = values[..area].iter().map(|value| (0, *value)).collect();
    for (class, plane) in values.chunks_exact(area).enumerate().skip(1) {
        for (best, value) in best.iter_mut().zip(plane) {
            if *value > best.1 {
                *best = (class, *value);
            }
        }
    }
    Some(best.into_iter().map(|(class, _)| class).collect())
}

fn shares(pixels: &[usize], labels: &Labels) -> Vec<Share> {
    let mut counts: BTreeMap<usize, usize> = BTreeMap::new();
    pixels.iter().for_each(|class| *counts.entry(*class).or_default() += 1);
    let share = |(class, count): (usize, usize)| Share {
        class,
        label: labels.name(class).map(str::to_owned),
        share: count as f64 / pixels.len() as f64,
    };
    let mut shares: Vec<_> = counts.into_iter().map(share).collect();
    shares.sort_by(|one, other| other.share.total_cmp(&one.share));
    shares
}

pub(super) fn text(masks: &[Mask]) -> String {
    let mut lines = Table::new("output | >image | >class | label | >pixels");
    for mask in masks {
        for Share { class, label, share } in &mask.classes {
            let percent = format!("{:.2} %", 100.0 * share);
            lines.row([mask.output.clone(), mask.image.to_string(), class.to_string(), named(*class, label), percent]);
        }
    }
    table(lines, masks.len(), "no pixels")
}
