//! Objects in images: boxes, classes and scores.

use super::{Labels, Numbers, class_of, named, table};
use crate::table::Table;
use crate::tensors::picture::Prepared;
use serde::Serialize;
use std::ops::RangeInclusive;

/// Part of the union that two boxes of one class may share: of two that share more, the one of the lower score is left
/// out.
const MOST_OVERLAP: f32 = 0.45;

/// Most boxes that are compared with each other, those of the highest scores.
const MOST_COMPARED: usize = 3_000;

/// Most objects of an image.
const MOST_OBJECTS: usize = 300;

/// Greatest coordinate of boxes that are given as parts of height and width.
const MOST_RELATIVE: f32 = 1.5;

const FORMS: &str = "boxes need an output of images × boxes × 6 (x1, y1, x2, y2, score, class), of boxes × 7 (image, \
    x1, y1, x2, y2, class, score), of images × (4 + classes) × boxes or images × boxes × (5 + classes) with centres \
    and sizes, as of YOLO, or outputs for boxes (… × 4), scores and classes; scores are from 0 to 1, and --labels has a \
    line for each class";

/// Scores, as far as rounding goes.
const SCORES: RangeInclusive<f32> = -0.001..=1.001;

/// An object in an image.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Object {
    /// Number of the image.
    pub image: usize,
    /// Number of the class.
    pub class: usize,
    /// Name of the class, if labels are known.
    pub label: Option<String>,
    /// Score, at most 1.
    pub score: f32,
    /// Left, top, right and bottom.
    #[serde(rename = "box")]
    pub edges: [f32; 4],
    /// Unit of the edges.
    pub unit: Unit,
}

/// Unit of the edges of boxes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Pixels of the image.
    ImagePixel,
    /// Rows and columns of the model's input, if the image is not known.
    InputPixel,
    /// Height and width of the model's input, if the image is not known.
    InputSize,
}

/// Boxes of outputs in one of the known forms.
struct Read {
    form: &'static str,
    all: Vec<Candidate>,
    /// Whether the model has chosen among overlapping boxes.
    is_chosen: bool,
}

/// A box before it is chosen.
#[derive(Clone, Copy)]
struct Candidate {
    image: usize,
    class: usize,
    score: f32,
    edges: [f32; 4],
}

/// Returns the objects of all images, those with the highest score first, and the form of the outputs.
pub(super) fn objects(
    outputs: &[Numbers<'_>],
    threshold: f32,
    labels: &Labels,
    images: &[Prepared],
) -> Result<(Vec<Object>, &'static str), String> {
    let read = outputs
        .iter()
        .find_map(ended)
        .or_else(|| separate(outputs))
        .or_else(|| scored(outputs, labels))
        .or_else(|| outputs.iter().find_map(|output| raw(output, outputs, labels)))
        .filter(|read| read.all.iter().all(|found| SCORES.contains(&found.score)))
        .filter(|read| labels.is_empty() || read.all.iter().all(|found| labels.has_class(found.class)))
        .ok_or(FORMS)?;
    let is_finite = |found: &Candidate| found.edges.iter().all(|edge| edge.is_finite());
    let mut rest: Vec<_> = read
        .all
        .into_iter()
        .filter(|found| found.score >= threshold && found.score > 0.0 && is_finite(found))
        .collect();
    // A box may reach beyond the image, and a box of a pixel is rare.
    let small = rest.iter().filter(|found| found.edges.iter().all(|edge| edge.abs() <= MOST_RELATIVE)).count();
    let is_relative = 2 * small > rest.len();
    rest.sort_by(|one, other| one.image.cmp(&other.image).then(other.score.total_cmp(&one.score)));
    let mut kept: Vec<Candidate> = Vec::new();
    for of_image in rest.chunk_by(|one, other| one.image == other.image) {
        if read.is_chosen {
            kept.extend(of_image);
            continue;
        }
        let mut own: Vec<Candidate> = Vec::new();
        for found in of_image.iter().take(MOST_COMPARED) {
            let covers = |other: &Candidate| other.class == found.class && overlap(other, found) > MOST_OVERLAP;
            if own.len() < MOST_OBJECTS && !own.iter().any(covers) {
                own.push(*found);
            }
        }
        kept.extend(own);
    }
    let object = |found: Candidate| {
        let image = images.get(found.image);
        Object {
            image: found.image,
            class: found.class,
            label: labels.name(found.class).map(str::to_owned),
            score: found.score,
            edges: placed(found.edges, is_relative, image),
            unit: match image {
                Some(_) => Unit::ImagePixel,
                None if is_relative => Unit::InputSize,
                None => Unit::InputPixel,
            },
        }
    };
    let mut objects: Vec<_> = kept.into_iter().map(object).collect();
    // A box in the margin around a letterboxed image is not in the image.
    let is_within = |object: &Object| object.edges[0] < object.edges[2] && object.edges[1] < object.edges[3];
    objects.retain(|object| object.unit != Unit::ImagePixel || is_within(object));
    Ok((objects, read.form))
}

/// Returns the box in pixels of its image, within it.
fn placed(edges: [f32; 4], is_relative: bool, image: Option<&Prepared>) -> [f32; 4] {
    let Some(image) = image else { return edges };
    std::array::from_fn(|at| {
        let axis = &image.axes[1 - at % 2];
        let place = f64::from(edges[at]) * if is_relative { axis.count as f64 } else { 1.0 };
        axis.to_image(place).clamp(0.0, axis.length as f64) as f32
    })
}

/// Part of the union of two boxes that both cover.
fn overlap(one: &Candidate, other: &Candidate) -> f32 {
    let area = |edges: [f32; 4]| (edges[2] - edges[0]).max(0.0) * (edges[3] - edges[1]).max(0.0);
    let (a, b) = (one.edges, other.edges);
    let both = area([a[0].max(b[0]), a[1].max(b[1]), a[2].min(b[2]), a[3].min(b[3])]);
    let union = area(a) + area(b) - both;
    if union > 0.0 { both / union } else { 0.0 }
}

/// Returns the boxes of a model that has chosen them itself: rows of six or seven numbers. Rows of a negative class
/// fill the output.
fn ended(output: &Numbers<'_>) -> Option<Read> {
    let (rows, width, form) = match *output.dims {
        [rows, 6] | [_, rows, 6] => (rows, 6, "x1, y1, x2, y2, score, class"),
        [rows, 7] => (rows, 7, "image, x1, y1, x2, y2, class, score"),
        _ => return None,
    };
    let has_images = output.dims.len() == 3;
    let candidate = |(at, row): (usize, &[f32])| match *row {
        [left, top, right, bottom, score, class] => {
            let image = at.checked_div(rows).filter(|_| has_images).unwrap_or(0);
            Some(Candidate { image, class: class_of(class)?, score, edges: [left, top, right, bottom] })
        }
        [image, left, top, right, bottom, class, score] => {
            let edges = [left, top, right, bottom];
            Some(Candidate { image: class_of(image)?, class: class_of(class)?, score, edges })
        }
        _ => None,
    };
    let is_filling = |row: &[f32]| if width == 6 { row[5] < 0.0 } else { row[0] < 0.0 || row[5] < 0.0 };
    let rows = output.values.chunks_exact(width).enumerate().filter(|(_, row)| !is_filling(row));
    let all = rows.map(candidate).collect::<Option<Vec<_>>>()?;
    // Other numbers than corners lie in any order.
    let are_corners = all.iter().all(|found| found.edges[0] <= found.edges[2] && found.edges[1] <= found.edges[3]);
    are_corners.then_some(Read { form, all, is_chosen: true })
}

/// Returns the boxes, scores and classes of three outputs.
fn separate(outputs: &[Numbers<'_>]) -> Option<Read> {
    let edges = edges(outputs)?;
    let each = || outputs.iter().filter(|output| output.dims == &edges.dims[..edges.dims.len() - 1]);
    let are_classes = |output: &Numbers<'_>| output.values.iter().all(|value| class_of(*value).is_some());
    let classes = each().find(|output| output.is_whole).or_else(|| each().find(|output| are_classes(output)))?;
    let scores = each().find(|output| output.name != classes.name)?;
    let all = edges.values.chunks_exact(4).zip(&scores.values).zip(&classes.values).enumerate();
    let is_vertical = edges.name.contains("detection_boxes");
    let all = all.map(|(at, ((corners, score), class))| {
        let (image, [a, b, c, d]) = (edges.image(at)?, corners.try_into().ok()?);
        let corners = if is_vertical { [b, a, d, c] } else { [a, b, c, d] };
        Some(Candidate { image, class: class_of(*class)?, score: *score, edges: corners })
    });
    let form = match is_vertical {
        true => "boxes of y1, x1, y2, x2 as TensorFlow names them, scores and classes",
        false => "boxes, scores and classes",
    };
    Some(Read { form, all: all.collect::<Option<_>>()?, is_chosen: true })
}

/// Returns the boxes of two outputs: boxes, and a score for each class, of which class 0 is the background.
fn scored(outputs: &[Numbers<'_>], labels: &Labels) -> Option<Read> {
    let edges = edges(outputs)?;
    let last = edges.dims.len() - 1;
    let each = |output: &&Numbers<'_>| {
        output.dims.len() == last + 1 && output.name != edges.name && output.dims[..last] == edges.dims[..last]
    };
    let scores = outputs.iter().find(each)?;
    let classes = *scores.dims.last().filter(|classes| **classes > 1)?;
    if !labels.is_empty() && !labels.has(classes) {
        return None;
    }
    let all = edges.values.chunks_exact(4).zip(scores.values.chunks_exact(classes)).enumerate();
    let best = all.map(|(at, (corners, scores))| {
        let (class, score) = most(&scores[1..])?;
        Some(Candidate { image: edges.image(at)?, class: class + 1, score, edges: corners.try_into().ok()? })
    });
    let form = "boxes, and scores of classes of which 0 is the background";
    Some(Read { form, all: best.collect::<Option<_>>()?, is_chosen: false })
}

/// Returns the output of boxes alone; `None` if several could be it.
fn edges<'a, 'o>(outputs: &'a [Numbers<'o>]) -> Option<&'a Numbers<'o>> {
    let mut all = outputs.iter().filter(|output| matches!(*output.dims, [_, 4] | [_, _, 4]) && !output.is_whole);
    all.next().filter(|_| all.next().is_none())
}

impl Numbers<'_> {
    /// Returns the image of a row of boxes.
    fn image(&self, row: usize) -> Option<usize> {
        match *self.dims {
            [_, rows, _] => row.checked_div(rows),
            _ => Some(0),
        }
    }
}

/// Returns the boxes of YOLO's outputs, of which many overlap. Coefficients of masks, for which there is an output of
/// four dimensions, follow the scores.
fn raw(output: &Numbers<'_>, outputs: &[Numbers<'_>], labels: &Labels) -> Option<Read> {
    let [images, a, b] = *output.dims else { return None };
    let masks = outputs.iter().find_map(|output| if let [_, masks, _, _] = *output.dims { Some(masks) } else { None });
    let masks = masks.unwrap_or(0);
    if output.is_whole || edges(outputs).is_some() {
        return None;
    }
    // The numbers of a box are fewer than the boxes, or as many as the labels say.
    let fits = |width: usize, before: usize, boxes: usize| {
        let classes = width.checked_sub(before + masks).filter(|classes| *classes > 0)?;
        if labels.is_empty() {
            (2 * width <= boxes).then_some(classes)
        } else {
            Some(classes).filter(|c| labels.has(*c))
        }
    };
    let (boxes, width, across, classes) = match (fits(a, 4, b), fits(b, 5, a)) {
        (Some(classes), None) => (b, a, true, classes),
        (None, Some(classes)) => (a, b, false, classes),
        _ => return None,
    };
    let first = if across { 4 } else { 5 };
    let value = |image: usize, at: usize, part: usize| {
        let place = if across { part * boxes + at } else { at * width + part };
        output.values[image * boxes * width + place]
    };
    let all = (0..images).flat_map(|image| (0..boxes).map(move |at| (image, at)));
    let mut scores = vec![0.0; classes];
    let all = all.map(|(image, at)| {
        scores.iter_mut().enumerate().for_each(|(class, score)| *score = value(image, at, first + class));
        // An angle or a point is not a score.
        let (class, score) = most(&scores).filter(|_| scores.iter().all(|score| SCORES.contains(score)))?;
        let score = score * if across { 1.0 } else { value(image, at, 4) };
        let [x, y, w, h] = [0, 1, 2, 3].map(|part| value(image, at, part));
        Some(Candidate { image, class, score, edges: [x - w / 2.0, y - h / 2.0, x + w / 2.0, y + h / 2.0] })
    });
    let form = if across {
        "centre x, centre y, width, height, scores of classes"
    } else {
        "centre x, centre y, width, height, score of an object, scores of classes"
    };
    Some(Read { form, all: all.collect::<Option<_>>()?, is_chosen: false })
}

/// Returns the greatest value and its place.
fn most(values: &[f32]) -> Option<(usize, f32)> {
    values.iter().copied().enumerate().reduce(|best, other| if other.1 > best.1 { other } else { best })
}

pub(super) fn text(objects: &[Object]) -> String {
    let mut lines = Table::new(">image | >score | >left | >top | >right | >bottom | label");
    for Object { image, class, label, score, edges, .. } in objects {
        let [left, top, right, bottom] = edges.map(|edge| format!("{edge:.1}"));
        lines.row([image.to_string(), format!("{score:.3}"), left, top, right, bottom, named(*class, label)]);
    }
    table(lines, objects.len(), "no objects above the threshold")
}
