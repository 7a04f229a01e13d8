//! Scaling of images. It weights all pixels that an output pixel covers (a triangle as wide as the scale), as PIL and
//! torchvision do.

use super::Fit;

/// An axis of an image, and the axis of the tensor that it becomes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Axis {
    /// Pixels of the image.
    pub length: usize,
    /// Elements of the tensor.
    pub count: usize,
    /// Pixels of the image for each element.
    pub scale: f64,
    /// Where the first element begins in the image. It may be outside.
    pub begin: f64,
    /// Elements before and after those that show the image.
    margins: [usize; 2],
}

impl Axis {
    /// Returns the axes of `pixels` rows and columns that become `elements` rows and columns.
    pub(super) fn both(pixels: [usize; 2], elements: [usize; 2], fit: Fit) -> [Self; 2] {
        let ratios = [0, 1].map(|axis| pixels[axis] as f64 / elements[axis].max(1) as f64);
        [0, 1].map(|axis| {
            let (length, count) = (pixels[axis], elements[axis]);
            let centred = |scale: f64| (length as f64 - count as f64 * scale) / 2.0;
            match fit {
                Fit::Stretch => Self { length, count, scale: ratios[axis], begin: 0.0, margins: [0; 2] },
                Fit::Crop => {
                    let scale = ratios[0].min(ratios[1]);
                    Self { length, count, scale, begin: centred(scale), margins: [0; 2] }
                }
                Fit::Letterbox => {
                    let shown = ((length as f64 / ratios[0].max(ratios[1])).round() as usize).clamp(1, count.max(1));
                    let (scale, before) = (length as f64 / shown as f64, (count - shown.min(count)) / 2);
                    let margins = [before, count - shown.min(count) - before];
                    Self { length, count, scale, begin: -(before as f64) * scale, margins }
                }
            }
        })
    }

    /// Returns a place along the axis of the tensor as one of the image.
    pub fn to_image(&self, place: f64) -> f64 {
        self.begin + place * self.scale
    }

    /// Returns, for each element that shows the image, the first pixel that it covers and the weights.
    fn windows(&self) -> Vec<(usize, Vec<f32>)> {
        let reach = self.scale.max(1.0);
        let window = |at: usize| {
            let centre = self.to_image(at as f64 + 0.5);
            let first = ((centre - reach).floor().max(0.0) as usize).min(self.length - 1);
            let end = ((centre + reach).ceil() as usize).clamp(first + 1, self.length);
            let weight = |pixel: usize| (1.0 - (pixel as f64 + 0.5 - centre).abs() / reach).max(0.0);
            let sum: f64 = (first..end).map(weight).sum();
            let normed =
                |pixel: usize| if sum > 0.0 { (weight(pixel) / sum) as f32 } else { 1.0 / (end - first) as f32 };
            (first, (first..end).map(normed).collect())
        };
        (self.margins[0]..self.count - self.margins[1]).map(window).collect()
    }
}

/// Scales a channel of an image and passes each element with its place, row by row, to `take`; those around the image
/// are `margin`. Takes the memory of one row of the image.
pub(super) fn scale(plane: &[f32], [down, across]: [Axis; 2], margin: f32, mut take: impl FnMut(usize, f32)) {
    let (rows, columns) = (down.windows(), across.windows());
    // Columns that are cropped are not read.
    let left = columns.iter().map(|(first, _)| *first).min().unwrap_or(0);
    let right = columns.iter().map(|(first, weights)| first + weights.len()).max().unwrap_or(0);
    let mut blended = vec![0.0; right - left];
    for row in 0..down.count {
        let window = row.checked_sub(down.margins[0]).and_then(|row| rows.get(row));
        let line = row * across.count;
        let Some((first, weights)) = window else {
            (0..across.count).for_each(|column| take(line + column, margin));
            continue;
        };
        blended.fill(0.0);
        for (row, weight) in plane.chunks_exact(across.length).skip(*first).zip(weights) {
            blended.iter_mut().zip(&row[left..right]).for_each(|(sum, pixel)| *sum += weight * pixel);
        }
        for column in 0..across.count {
            let window = column.checked_sub(across.margins[0]).and_then(|column| columns.get(column));
            take(line + column, window.map_or(margin, |(first, weights)| dot(weights, &blended[first - left..])));
        }
    }
}

fn dot(weights: &[f32], values: &[f32]) -> f32 {
    weights.iter().zip(values).map(|(weight, value)| weight * value).sum()
}
