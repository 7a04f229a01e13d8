//! Outputs of vision models as people want them: the most likely classes, boxes around objects, and classes of pixels.

mod boxes;
mod mask;
mod svg;
#[cfg(test)]
mod tests;
mod top;

use crate::table::Table;
use crate::tensors::picture::Prepared;
use anabranch::files;
use anabranch_kernels::Tensor;
use anabranch_kernels::dtype::Element;
pub use boxes::{Object, Unit};
use half::{bf16, f16};
pub use mask::{Mask, Share};
use serde::Serialize;
use std::num::NonZeroUsize;
use std::path::Path;
use std::str::FromStr;
pub use svg::picture;
pub use top::Ranked;

/// Most bytes of a file of labels.
const MOST_BYTES: u64 = 16 << 20;

/// Classes of an image that are shown if no number is given, and the most that can be asked for.
const USUAL_RANKED: NonZeroUsize = NonZeroUsize::new(5).expect("is not 0");
const MOST_RANKED: usize = 1000;

/// Meaning of an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Show {
    /// This many classes of the highest scores.
    Top(NonZeroUsize),
    /// Objects with boxes.
    Boxes,
    /// A class for each pixel.
    Mask,
}

/// Names of classes, by number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Labels(Vec<String>);

/// Contents of the outputs, and the form in which they were read.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Seen {
    /// Order of the numbers in the outputs.
    pub form: &'static str,
    /// The contents.
    #[serde(flatten)]
    pub contents: Contents,
}

/// Classes, objects or masks.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Contents {
    /// The most likely classes of each image.
    Top(Vec<Ranked>),
    /// The objects of each image.
    Boxes(Vec<Object>),
    /// The classes of each image's pixels.
    Mask(Vec<Mask>),
}

/// An output whose elements are numbers.
struct Numbers<'o> {
    name: &'o str,
    dims: &'o [usize],
    values: Vec<f32>,
    /// Whether the elements are whole numbers by their type.
    is_whole: bool,
}

impl FromStr for Show {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let top = || match text.strip_prefix("top")? {
            "" => Some(USUAL_RANKED),
            count => count.parse().ok().filter(|count: &NonZeroUsize| count.get() <= MOST_RANKED),
        };
        match text {
            "boxes" => Ok(Self::Boxes),
            "mask" => Ok(Self::Mask),
            _ => top()
                .map(Self::Top)
                .ok_or_else(|| format!("`{text}` is unknown; use top5 (up to top1000), boxes or mask")),
        }
    }
}

impl Labels {
    /// Reads the names of classes 0, 1 and so on, one in each line.
    ///
    /// # Errors
    /// If the file cannot be read, is not UTF-8, or is empty.
    pub fn read(path: &Path) -> Result<Self, String> {
        let bytes = files::read(path, MOST_BYTES).map_err(|error| error.to_string())?;
        let text = String::from_utf8(bytes).map_err(|_| "is not UTF-8 text with a label in each line")?;
        let labels: Vec<_> = text.trim_end().lines().map(|line| line.trim().to_owned()).collect();
        if labels.is_empty() { Err("has no labels; write one in each line".into()) } else { Ok(Self(labels)) }
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether there is a line for a class.
    fn has_class(&self, class: usize) -> bool {
        class < self.0.len()
    }

    /// Whether there are labels for this many classes.
    fn has(&self, classes: usize) -> bool {
        self.0.len() == classes
    }

    /// Returns the name of a class, if it has one.
    pub fn name(&self, class: usize) -> Option<&str> {
        self.0.get(class).map(String::as_str).filter(|name| !name.is_empty())
    }
}

/// Finds in the outputs what they are said to mean. Objects with a score below `threshold` are left out.
/// Boxes are in pixels of their image, if `images` has it.
///
/// # Errors
/// If no output has the form for it. The error names the forms.
pub fn seen<'o>(
    show: Show,
    outputs: impl Iterator<Item = (&'o str, &'o Tensor)>,
    labels: &Labels,
    threshold: f32,
    images: &[Prepared],
) -> Result<Seen, String> {
    let numbers: Vec<_> = outputs.filter_map(|(name, tensor)| Numbers::of(name, tensor)).collect();
    let seen = match show {
        Show::Top(count) => {
            top::ranked(&numbers, count.get(), labels).map(|ranked| (Contents::Top(ranked), "images × classes"))
        }
        Show::Boxes => {
            boxes::objects(&numbers, threshold, labels, images).map(|(objects, form)| (Contents::Boxes(objects), form))
        }
        Show::Mask => mask::masks(&numbers, labels, images).map(|(masks, form)| (Contents::Mask(masks), form)),
    };
    seen.map(|(contents, form)| Seen { form, contents }).map_err(|forms| {
        let found: Vec<_> = numbers.iter().map(|output| format!("{} {:?}", output.name, output.dims)).collect();
        let found = if found.is_empty() { "no numbers".into() } else { found.join(", ") };
        format!("{forms}; the outputs are {found}")
    })
}

impl Seen {
    /// Returns what is seen as a table.
    pub fn text(&self) -> String {
        let table = match &self.contents {
            Contents::Top(ranked) => top::text(ranked),
            Contents::Boxes(objects) => boxes::text(objects),
            Contents::Mask(masks) => mask::text(masks),
        };
        format!("outputs read as {}\n{table}", self.form)
    }
}

impl<'o> Numbers<'o> {
    /// Returns an output whose elements are floats, whole numbers of 64, 32 or 8 bits, or truth values.
    fn of(name: &'o str, tensor: &'o Tensor) -> Option<Self> {
        let floats = || {
            (widened(tensor, |value: &f32| *value))
                .or_else(|| widened(tensor, |value: &f16| value.to_f32()))
                .or_else(|| widened(tensor, |value: &bf16| value.to_f32()))
                .or_else(|| widened(tensor, |value: &f64| *value as f32))
        };
        let whole = || {
            (widened(tensor, |value: &i64| *value as f32))
                .or_else(|| widened(tensor, |value: &i32| *value as f32))
                .or_else(|| widened(tensor, |value: &u8| f32::from(*value)))
        };
        let floats = floats().map(|values| (values, false));
        let (values, is_whole) = floats.or_else(|| whole().map(|values| (values, true)))?;
        Some(Self { name, dims: tensor.shape().dims(), values, is_whole })
    }
}

/// Returns the elements of a tensor, if they have this type.
fn widened<T: Element>(tensor: &Tensor, widen: fn(&T) -> f32) -> Option<Vec<f32>> {
    Some(tensor.elements()?.iter().map(widen).collect())
}

/// Returns the number of a class that is written as an element.
fn class_of(value: f32) -> Option<usize> {
    ((0.0..1e6).contains(&value) && value.fract() == 0.0).then_some(value as usize)
}

/// Returns a class's name, or its number.
fn named(class: usize, label: &Option<String>) -> String {
    label.clone().unwrap_or_else(|| format!("class {class}"))
}

/// Returns a table with a line that says that there is nothing, if it has no rows.
fn table(table: Table, rows: usize, nothing: &str) -> String {
    if rows == 0 { format!("{nothing}\n") } else { table.to_string() }
}
