//! Classes of an image's pixels.

use super::{Labels, Numbers, class_of, named, table};
use crate::table::Table;
use crate::tensors::picture::Prepared;
use serde::Serialize;
use std::collections::BTreeMap;

const FORMS: &str = "a mask needs an output of images × classes × height × width, of images × height × width × classes, \
    or whole numbers of images × height × width";

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

/// Returns the masks of all images from the first output that has them, and the output's form.
pub(super) fn masks(
    outputs: &[Numbers<'_>],
    labels: &Labels,
    images: &[Prepared],
) -> Result<(Vec<Mask>, &'static str), String> {
    let of = |output: &Numbers<'_>| -> Option<(Vec<Mask>, &'static str)> {
        let (classes, size, is_last) = match *output.dims {
            [_, a, b, c] if is_last([a, b, c], images) => (c, [a, b], true),
            [_, classes, height, width] => (classes, [height, width], false),
            [_, height, width] if output.is_whole => (1, [height, width], false),
            _ => return None,
        };
        let area = size[0].checked_mul(size[1]).filter(|area| *area > 0 && classes > 0)?;
        let form = match (output.is_whole, is_last) {
            (true, _) => "images × height × width of classes",
            (_, false) => "images × classes × height × width",
            (_, true) => "images × height × width × classes",
        };
        let mask = |(image, values): (usize, &[f32])| {
            let pixels = pixels(values, classes, is_last, output.is_whole)?;
            Some(Mask { output: output.name.to_owned(), image, size, classes: shares(&pixels, labels), pixels })
        };
        let masks = output.values.chunks_exact(classes * area).enumerate().map(mask).collect::<Option<Vec<_>>>()?;
        Some((masks, form)).filter(|(masks, _)| !masks.is_empty())
    };
    outputs.iter().find_map(of).ok_or(FORMS.into())
}

/// Whether the classes are the last of three axes: they are the fewest, and the others have the proportions of the
/// image in the model, as far as it is known.
fn is_last([a, b, c]: [usize; 3], images: &[Prepared]) -> bool {
    let is_like = |rows: usize, columns: usize| {
        images.first().is_none_or(|image| {
            let [down, across] = [0, 1].map(|axis| image.axes[axis].count);
            // A part of a pixel is rounded.
            rows.saturating_mul(across).abs_diff(columns.saturating_mul(down)) <= across + down
        })
    };
    let (first, last) = (is_like(b, c), is_like(a, b));
    if first == last { c < a && c < b } else { last }
}

/// Returns the class of each pixel: the number itself, the greatest score, or whether one score is above its middle.
fn pixels(values: &[f32], classes: usize, is_last: bool, is_whole: bool) -> Option<Vec<usize>> {
    match (classes, is_whole) {
        (1, true) => values.iter().map(|value| class_of(*value)).collect(),
        (_, true) => None,
        (1, false) => {
            // Probabilities, or their logarithmic odds.
            let middle = if values.iter().all(|value| (0.0..=1.0).contains(value)) { 0.5 } else { 0.0 };
            Some(values.iter().map(|value| usize::from(*value > middle)).collect())
        }
        (classes, false) => {
            let area = values.len() / classes;
            let (pixel, class) = if is_last { (classes, 1) } else { (1, area) };
            let best = |at: usize| {
                let score = |number: &usize| values[at * pixel + number * class];
                (1..classes).fold(0, |best, other| if score(&other) > score(&best) { other } else { best })
            };
            Some((0..area).map(best).collect())
        }
    }
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
    let mut lines = Table::new("output | >image | >class | >pixels | label");
    for mask in masks {
        for Share { class, label, share } in &mask.classes {
            let percent = format!("{:.2} %", 100.0 * share);
            lines.row([mask.output.clone(), mask.image.to_string(), class.to_string(), percent, named(*class, label)]);
        }
    }
    table(lines, masks.len(), "no pixels")
}
