//! Objects in images: boxes, classes and scores.

use super::{Labels, Numbers, class_of, named, table};
use crate::table::Table;
use crate::tensors::picture::Prepared;
use serde::Serialize;

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
    and sizes, as of YOLO, or outputs for boxes (… × 4), scores and classes";

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
    /// Left, top, right and bottom in pixels of the image.
    #[serde(rename = "box")]
    pub edges: [f32; 4],
}

/// A box before it is chosen.
#[derive(Clone, Copy)]
struct Candidate {
    image: usize,
    class: usize,
    score: f32,
    edges: [f32; 4],
}

/// Returns the objects of all images, those with the highest score first.
pub(super) fn objects(
    outputs: &[Numbers<'_>],
    threshold: f32,
    labels: &Labels,
    images: &[Prepared],
) -> Result<Vec<Object>, String> {
    let (all, is_chosen) = outputs
        .iter()
        .find_map(ended)
        .or_else(|| separate(outputs))
        .map(|all| (all, true))
        .or_else(|| outputs.iter().find_map(raw).map(|all| (all, false)))
        .or_else(|| scored(outputs).map(|all| (all, false)))
        .ok_or(FORMS)?;
    let is_relative = all.iter().all(|found| found.edges.iter().all(|edge| edge.abs() <= MOST_RELATIVE));
    let mut rest: Vec<_> = all.into_iter().filter(|found| found.score >= threshold).collect();
    rest.sort_by(|one, other| one.image.cmp(&other.image).then(other.score.total_cmp(&one.score)));
    let mut kept: Vec<Candidate> = Vec::new();
    for of_image in rest.chunk_by(|one, other| one.image == other.image) {
        let mut own: Vec<Candidate> = Vec::new();
        for found in of_image.iter().take(MOST_COMPARED) {
            let covers = |other: &Candidate| other.class == found.class && overlap(other, found) > MOST_OVERLAP;
            if own.len() < MOST_OBJECTS && (is_chosen || !own.iter().any(covers)) {
                own.push(*found);
            }
        }
        kept.extend(own);
    }
    let object = |found: Candidate| Object {
        image: found.image,
        class: found.class,
        label: labels.name(found.class).map(str::to_owned),
        score: found.score,
        edges: placed(found.edges, is_relative, images.get(found.image)),
    };
    Ok(kept.into_iter().map(object).collect())
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

/// Returns the boxes of a model that has chosen them itself: rows of six or seven numbers.
fn ended(output: &Numbers<'_>) -> Option<Vec<Candidate>> {
    let (rows, width) = match *output.dims {
        [rows, width @ (6 | 7)] => (rows, width),
        [_, rows, width @ 6] => (rows, width),
        _ => return None,
    };
    let candidate = |(at, row): (usize, &[f32])| match *row {
        [left, top, right, bottom, score, class] => {
            let image = at.checked_div(rows).filter(|_| output.dims.len() == 3).unwrap_or(0);
            Some(Candidate { image, class: class_of(class)?, score, edges: [left, top, right, bottom] })
        }
        [image, left, top, right, bottom, class, score] => {
            let edges = [left, top, right, bottom];
            Some(Candidate { image: class_of(image)?, class: class_of(class)?, score, edges })
        }
        _ => None,
    };
    output.values.chunks_exact(width).enumerate().map(candidate).collect()
}

/// Returns the boxes, scores and classes of three outputs.
fn separate(outputs: &[Numbers<'_>]) -> Option<Vec<Candidate>> {
    let edges = edges(outputs)?;
    let each = |output: &&Numbers<'_>| output.dims == &edges.dims[..edges.dims.len() - 1];
    let scores = outputs.iter().filter(each).find(|output| !output.is_whole)?;
    let classes = outputs.iter().filter(each).find(|output| output.name != scores.name)?;
    let rows = *edges.dims.get(edges.dims.len() - 2)?;
    let image = |at: usize| at.checked_div(rows).filter(|_| edges.dims.len() == 3).unwrap_or(0);
    let all = edges.values.chunks_exact(4).zip(&scores.values).zip(&classes.values).enumerate();
    all.map(|(at, ((edges, score), class))| {
        Some(Candidate { image: image(at), class: class_of(*class)?, score: *score, edges: edges.try_into().ok()? })
    })
    .collect()
}

/// Returns the boxes of two outputs: boxes, and a score for each class, of which class 0 is the background.
fn scored(outputs: &[Numbers<'_>]) -> Option<Vec<Candidate>> {
    let edges = edges(outputs)?;
    let (rank, rows) = (edges.dims.len(), *edges.dims.get(edges.dims.len() - 2)?);
    let each = |output: &&Numbers<'_>| {
        output.dims.len() == rank && output.name != edges.name && output.dims[..rank - 1] == edges.dims[..rank - 1]
    };
    let scores = outputs.iter().find(each)?;
    let classes = *scores.dims.last().filter(|classes| **classes > 1)?;
    let image = |at: usize| at.checked_div(rows).filter(|_| rank == 3).unwrap_or(0);
    let all = edges.values.chunks_exact(4).zip(scores.values.chunks_exact(classes)).enumerate();
    let best = all.map(|(at, (edges, scores))| {
        let (class, score) = most(&scores[1..])?;
        Some(Candidate { image: image(at), class: class + 1, score, edges: edges.try_into().ok()? })
    });
    best.collect()
}

/// Returns the output of boxes alone.
fn edges<'a, 'o>(outputs: &'a [Numbers<'o>]) -> Option<&'a Numbers<'o>> {
    outputs.iter().find(|output| matches!(*output.dims, [_, 4] | [_, _, 4]) && !output.is_whole)
}

/// Returns the boxes of YOLO's outputs, of which many overlap.
fn raw(output: &Numbers<'_>) -> Option<Vec<Candidate>> {
    let [images, a, b] = *output.dims else { return None };
    if output.is_whole || images == 0 || a.min(b) < 5 {
        return None;
    }
    // Boxes are more than the numbers of each. Where these come first, there is no score of any object.
    let (boxes, width, across) = if a < b { (b, a, true) } else { (a, b, false) };
    let (scores, has_object) = if across { (4, false) } else { (5, true) };
    if width <= scores {
        return None;
    }
    let value = |image: usize, at: usize, part: usize| {
        let place = if across { part * boxes + at } else { at * width + part };
        output.values[image * boxes * width + place]
    };
    let all = (0..images).flat_map(|image| (0..boxes).map(move |at| (image, at)));
    all.map(|(image, at)| {
        let scores: Vec<f32> = (scores..width).map(|part| value(image, at, part)).collect();
        let (class, score) = most(&scores)?;
        let score = score * if has_object { value(image, at, 4) } else { 1.0 };
        let [x, y, w, h] = [0, 1, 2, 3].map(|part| value(image, at, part));
        Some(Candidate { image, class, score, edges: [x - w / 2.0, y - h / 2.0, x + w / 2.0, y + h / 2.0] })
    })
    .collect()
}

/// Returns the greatest value and its place.
fn most(values: &[f32]) -> Option<(usize, f32)> {
    values.iter().copied().enumerate().reduce(|best, other| if other.1 > best.1 { other } else { best })
}

pub(super) fn text(objects: &[Object]) -> String {
    let mut lines = Table::new(">image | label | >score | >left | >top | >right | >bottom");
    for Object { image, class, label, score, edges } in objects {
        let [left, top, right, bottom] = edges.map(|edge| format!("{edge:.1}"));
        lines.row([image.to_string(), named(*class, label), format!("{score:.3}"), left, top, right, bottom]);
    }
    table(lines, objects.len(), "no objects above the threshold")
}
