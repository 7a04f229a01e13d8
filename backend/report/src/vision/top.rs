//! The most likely classes of images.

use super::{Labels, Numbers, named, table};
use crate::table::Table;
use serde::{Serialize, Serializer};

/// A class of an image.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ranked {
    /// Output of the model.
    pub output: String,
    /// Number of the image.
    pub image: usize,
    /// Number of the class.
    pub class: usize,
    /// Name of the class, if labels are known.
    pub label: Option<String>,
    /// Value of the model. In JSON, which has no infinity, `inf` and `-inf` are strings.
    #[serde(serialize_with = "with_infinities")]
    pub score: f32,
    /// The score, if all scores of the image are probabilities, and else its softmax.
    pub probability: f64,
}

/// Returns the classes of the highest scores of each image, in each output of scores.
pub(super) fn ranked(outputs: &[Numbers<'_>], count: usize, labels: &Labels) -> Result<Vec<Ranked>, String> {
    let mut found = Vec::new();
    for output in outputs.iter().filter(|output| !output.is_whole) {
        let classes = match *output.dims {
            [classes] | [_, classes] | [_, classes, 1, 1] | [_, 1, 1, classes] if classes > 1 => classes,
            _ => continue,
        };
        if !labels.is_empty() && !labels.has(classes) {
            return Err(format!("{} has {classes} classes, but --labels has another number of lines", output.name));
        }
        for (image, scores) in output.values.chunks_exact(classes).enumerate() {
            let probabilities = probabilities(scores);
            let mut order: Vec<usize> = (0..classes).filter(|class| !scores[*class].is_nan()).collect();
            order.sort_by(|one, other| scores[*other].total_cmp(&scores[*one]).then(one.cmp(other)));
            found.extend(order.into_iter().take(count).map(|class| Ranked {
                output: output.name.to_owned(),
                image,
                class,
                label: labels.name(class).map(str::to_owned),
                score: scores[class],
                probability: probabilities[class],
            }));
        }
    }
    if found.is_empty() { Err("the highest scores need an output of images × classes".into()) } else { Ok(found) }
}

/// Returns the scores if they are probabilities, and else their softmax.
fn probabilities(scores: &[f32]) -> Vec<f64> {
    let values: Vec<f64> = scores.iter().copied().map(f64::from).collect();
    let sum: f64 = values.iter().sum();
    if values.iter().all(|value| (0.0..=1.0).contains(value)) && (sum - 1.0).abs() < 0.01 {
        return values;
    }
    let most = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let parts: Vec<f64> = values.iter().map(|value| if *value == most { 1.0 } else { (value - most).exp() }).collect();
    let whole: f64 = parts.iter().filter(|part| !part.is_nan()).sum();
    parts.iter().map(|part| part / whole).collect()
}

fn with_infinities<S: Serializer>(value: &f32, serializer: S) -> Result<S::Ok, S::Error> {
    if value.is_finite() { serializer.serialize_f32(*value) } else { serializer.collect_str(value) }
}

pub(super) fn text(ranked: &[Ranked]) -> String {
    let mut lines = Table::new("output | >image | >class | >score | >probability | label");
    for Ranked { output, image, class, label, score, probability } in ranked {
        lines.row([
            output.clone(),
            image.to_string(),
            class.to_string(),
            format!("{score:.4}"),
            format!("{:.2} %", 100.0 * probability),
            named(*class, label),
        ]);
    }
    table(lines, ranked.len(), "no classes")
}
