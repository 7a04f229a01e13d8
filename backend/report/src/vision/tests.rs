//! Tests of classes, boxes and masks.

use super::*;
use crate::tensors::picture::{Preprocessing, Target};
use anabranch_kernels::{DType, Shape};

fn tensor<T: Element>(dims: &[usize], values: &[T]) -> Tensor {
    Tensor::from_elements(Shape::new(dims.to_vec()).expect("small"), values).expect("as many elements")
}

fn labels() -> Labels {
    Labels(["cat", "dog", "cow"].map(str::to_owned).to_vec())
}

fn see(show: &str, outputs: &[(&str, Tensor)]) -> Result<Seen, String> {
    with_labels(show, outputs, &labels())
}

fn with_labels(show: &str, outputs: &[(&str, Tensor)], labels: &Labels) -> Result<Seen, String> {
    let outputs = outputs.iter().map(|(name, tensor)| (*name, tensor));
    seen(show.parse().expect("known"), outputs, labels, 0.25, &[])
}

/// Returns YOLO's numbers, of which each is a row over all boxes.
fn across_of(at: &impl Fn(usize, usize, bool) -> f32, boxes: usize, classes: usize) -> impl Iterator<Item = f32> {
    (0..4 + classes).flat_map(move |part| (0..boxes).map(move |number| at(part, number, false)))
}

fn objects(outputs: &[(&str, Tensor)]) -> Vec<(usize, usize, f32, [f32; 4])> {
    match with_labels("boxes", outputs, &Labels::default()).expect("boxes").contents {
        Contents::Boxes(objects) => objects.iter().map(|o| (o.image, o.class, o.score, o.edges)).collect(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_highest_scores_have_names_and_probabilities() {
    let logits = tensor(&[2, 4], &[0.0f32, 2.0, 1.0, f32::NAN, 0.1, 0.2, 0.3, 0.4]);
    assert!(see("top2", &[("logits", logits.clone())]).expect_err("three labels").contains("4 classes"));
    let four = Labels(["cat", "dog", "cow", ""].map(str::to_owned).to_vec());
    let seen = seen(Show::Top(NonZeroUsize::new(2).expect("two")), [("logits", &logits)].into_iter(), &four, 0.25, &[]);
    let seen = seen.expect("scores");
    let Contents::Top(ranked) = &seen.contents else { panic!("ranks") };
    let found: Vec<_> = ranked.iter().map(|r| (r.image, r.class, r.label.as_deref())).collect();
    assert_eq!(found, [(0, 1, Some("dog")), (0, 2, Some("cow")), (1, 3, None), (1, 2, Some("cow"))]);
    // Scores that are probabilities stay, others get their softmax.
    let expected = [1.0 / (1.0 + f64::exp(-1.0) + f64::exp(-2.0)), 0.4];
    assert!((ranked[0].probability - expected[0]).abs() < 1e-12, "{ranked:?}");
    assert!((ranked[2].probability - expected[1]).abs() < 1e-7, "{ranked:?}");
    assert_eq!(ranked[0].score, 2.0);
    assert!(see("top", &[("ids", tensor(&[1, 4], &[1i64, 2, 3, 4]))]).expect_err("numbers").contains("ids [1, 4]"));
    assert!(seen.text().contains("class 3") && seen.text().contains("images × classes"));
}

#[test]
fn an_infinite_score_is_a_string_in_json() {
    let logits = tensor(&[1, 3], &[f32::NEG_INFINITY, f32::INFINITY, 0.5]);
    let ranked = serde_json::to_value(see("top3", &[("logits", logits)]).expect("scores").contents).expect("JSON");
    let found: Vec<_> = ["score", "probability"].map(|name| [0, 1, 2].map(|at| ranked["top"][at][name].clone())).into();
    assert_eq!(serde_json::json!(found), serde_json::json!([["inf", 0.5, "-inf"], [1.0, 0.0, 0.0]]), "{ranked}");
}

#[test]
fn boxes_are_found_in_all_forms() {
    let chosen = (0, 1, 0.75, [10.0, 20.0, 30.0, 50.0]);
    let rows = tensor(&[1, 2, 6], &[10.0f32, 20.0, 30.0, 50.0, 0.75, 1.0, 0.0, 0.0, 9.0, 9.0, 0.1, 2.0]);
    assert_eq!(objects(&[("rows", rows)]), [chosen], "below the threshold");
    let named = tensor(&[2, 7], &[1.0f32, 10.0, 20.0, 30.0, 50.0, 1.0, 0.75, 0.0, 0.0, 0.0, 9.0, 9.0, 2.0, 0.5]);
    assert_eq!(objects(&[("named", named)]), [(0, 2, 0.5, [0.0, 0.0, 9.0, 9.0]), (1, 1, 0.75, chosen.3)]);
    let three = [
        ("boxes", tensor(&[1, 4], &[10.0f32, 20.0, 30.0, 50.0])),
        ("labels", tensor(&[1], &[1i64])),
        ("scores", tensor(&[1], &[0.75f32])),
    ];
    assert_eq!(objects(&three), [chosen]);
    let two = [
        ("scores", tensor(&[1, 2, 3], &[0.2f32, 0.75, 0.05, 0.9, 0.05, 0.05])),
        ("boxes", tensor(&[1, 2, 4], &[10.0f32, 20.0, 30.0, 50.0, 1.0, 1.0, 2.0, 2.0])),
    ];
    assert_eq!(objects(&two), [chosen], "class 0 is the background");

    // YOLO: two boxes that share most, one of another class, and others without a score.
    let (boxes, classes_of_yolo) = (40, 3);
    let at = |part: usize, number: usize, has_object: bool| match (number, part) {
        (0, _) => [20.0, 35.0, 20.0, 30.0][part.min(3)] * f32::from(u8::from(part < 4)),
        (1, _) => [21.0, 35.0, 20.0, 30.0][part.min(3)] * f32::from(u8::from(part < 4)),
        (2, _) => [21.0, 35.0, 20.0, 30.0][part.min(3)] * f32::from(u8::from(part < 4)),
        (_, 0..=3) => 5.0,
        _ => 0.0,
    } + match (number, part, has_object) {
        (0..=2, 4, true) => 1.0,
        (0, 5, false) | (0, 6, true) => 0.75,
        (1, 5, false) | (1, 6, true) => 0.5,
        (2, 6, false) | (2, 7, true) => 0.5,
        _ => 0.0,
    };
    let expected = [chosen, (0, 2, 0.5, [11.0, 20.0, 31.0, 50.0])];
    let across: Vec<f32> = across_of(&at, boxes, classes_of_yolo).collect();
    assert_eq!(objects(&[("v8", tensor(&[1, 4 + classes_of_yolo, boxes], &across))]), expected);
    let along: Vec<f32> =
        (0..boxes).flat_map(|n| (0..5 + classes_of_yolo).map(move |part| at(part, n, true))).collect();
    assert_eq!(objects(&[("v5", tensor(&[1, boxes, 5 + classes_of_yolo], &along))]), expected);

    // SSD with as many classes as VOC is not YOLO, and rows that fill up the output are no boxes.
    let classes = 21;
    let score = |at: usize| if at == classes + 1 { 0.75f32 } else { 0.01 };
    let ssd = [
        ("scores", tensor(&[1, 30, classes], &(0..30 * classes).map(score).collect::<Vec<_>>())),
        ("boxes", tensor(&[1, 30, 4], &[10.0f32, 20.0, 30.0, 50.0].repeat(30))),
    ];
    assert_eq!(objects(&ssd), [chosen]);
    assert!(see("boxes", &ssd).expect_err("three labels").contains("--labels"));
    let filled = [10.0f32, 20.0, 30.0, 50.0, 0.75, 1.0, -1.0, -1.0, -1.0, -1.0, -1.0, -1.0];
    assert_eq!(objects(&[("rows", tensor(&[1, 2, 6], &filled))]), [chosen]);
    // Classes before scores, as floats.
    let floats = [
        ("boxes", tensor(&[1, 2, 4], &[10.0f32, 20.0, 30.0, 50.0, 0.0, 0.0, 0.0, 0.0])),
        ("classes", tensor(&[1, 2], &[1.0f32, 0.0])),
        ("scores", tensor(&[1, 2], &[0.75f32, 0.1])),
    ];
    assert_eq!(objects(&floats), [chosen]);
    // Coefficients of masks follow the scores.
    let with_masks: Vec<f32> =
        across_of(&at, boxes, classes_of_yolo).chain(std::iter::repeat_n(9.0, 2 * boxes)).collect();
    let segments = [
        ("boxes", tensor(&[1, 4 + classes_of_yolo + 2, boxes], &with_masks)),
        ("masks", tensor(&[1, 2, 2, 2], &[0.0f32; 8])),
    ];
    assert_eq!(objects(&segments), expected);

    let refused = see("boxes", &[("logits", tensor(&[1, 3], &[0.0f32; 3]))]).expect_err("no boxes");
    // TensorFlow's boxes begin with y; one may reach beyond the image; the margin is not in the image.
    let vertical = [
        ("detection_boxes", tensor(&[1, 3, 4], &[0.1f32, 0.5, 0.3, 0.9, 0.0, 0.5, 0.5, 1.7, 0.0, 0.0, 0.5, 0.5])),
        ("detection_classes", tensor(&[1, 3], &[1.0f32, 2.0, 0.0])),
        ("detection_scores", tensor(&[1, 3], &[0.75f32, 0.5, 0.3])),
    ];
    assert_eq!(objects(&vertical)[0], (0, 1, 0.75, [0.5, 0.1, 0.9, 0.3]));
    let Contents::Boxes(found) = see("boxes", &vertical).expect("boxes").contents else { panic!("boxes") };
    assert!(found.iter().all(|object| object.unit == Unit::InputSize), "{found:?}");
    // One class of YOLOv5 with a score of 1 is not a list of corners.
    let one: Vec<f32> = [30.0f32, 20.0, 20.0, 10.0, 0.9, 1.0].repeat(20);
    assert!(see("boxes", &[("v5", tensor(&[1, 20, 6], &one))]).is_err(), "three labels");
    let unnamed = |outputs: &[(&str, Tensor)]| with_labels("boxes", outputs, &Labels::default()).map(|seen| seen.form);
    assert!(unnamed(&[("v5", tensor(&[1, 20, 6], &one))]).expect("boxes").starts_with("centre x"));
    // An angle after the scores may be negative.
    let mut angles = vec![0.5f32; 8 * 40];
    angles[7 * 40] = -0.5;
    assert!(unnamed(&[("obb", tensor(&[1, 8, 40], &angles))]).is_err());
    // Scores above 1 are none, and other numbers of classes than labels are another form.
    let poses: Vec<f32> = (0..9 * 40).map(|at| at as f32).collect();
    assert!(see("boxes", &[("poses", tensor(&[1, 9, 40], &poses))]).is_err());
    let other = tensor(&[1, 8, 40], &[0.5f32; 320]);
    assert!(see("boxes", &[("four", other)]).expect_err("three labels").contains("--labels"));
    assert!(refused.contains("x1, y1, x2, y2") && refused.ends_with("the outputs are logits [1, 3]"), "{refused}");
}

#[test]
fn masks_are_classes_of_pixels() {
    let scores = tensor(&[1, 2, 1, 3], &[0.0f32, 5.0, 1.0, 1.0, 2.0, 0.0]);
    let mask = |outputs: &[(&str, Tensor)]| match see("mask", outputs).expect("a mask").contents {
        Contents::Mask(masks) => masks[0].clone(),
        other => panic!("{other:?}"),
    };
    let found = mask(&[("scores", scores)]);
    assert_eq!((&found.pixels, found.size), (&vec![1, 0, 0], [1, 3]));
    assert_eq!((found.classes[0].class, found.classes[0].label.as_deref()), (0, Some("cat")));
    assert!((found.classes[0].share - 2.0 / 3.0).abs() < 1e-12);
    assert_eq!(mask(&[("ids", tensor(&[1, 1, 3], &[2i64, 0, 2]))]).pixels, [2, 0, 2]);
    assert_eq!(mask(&[("logits", tensor(&[1, 1, 1, 3], &[-1.0f32, 0.4, 3.0]))]).pixels, [0, 1, 1]);
    assert_eq!(mask(&[("shares", tensor(&[1, 1, 1, 3], &[0.1f32, 0.4, 0.9]))]).pixels, [0, 0, 1]);
    let last = [0.0f32, 1.0, 1.0, 0.0, 0.0, 2.0, 3.0, 0.0, 0.0, 1.0, 0.0, 1.0, 0.0, 1.0, 0.0, 1.0, 0.0, 1.0];
    let found = mask(&[("last", tensor(&[1, 3, 3, 2], &last))]);
    assert_eq!((&found.pixels, found.size), (&vec![1, 0, 1, 0, 1, 1, 1, 1, 1], [3, 3]));
    assert!(see("mask", &[("x", tensor(&[1, 3], &[0.0f32; 3]))]).is_err());
}

#[test]
fn what_is_seen_is_drawn_where_it_is_in_the_image() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let path = folder.path().join("x.png");
    let mut bytes = Vec::new();
    let encoder = png::Encoder::new(&mut bytes, 40, 20);
    encoder.write_header().expect("a header").write_image_data(&[7; 800]).expect("as many pixels");
    std::fs::write(&path, &bytes).expect("writable");
    let plain = Preprocessing::default();
    let target = Target::of(DType::F32, &[1, 1, 10, 10].map(Some), &plain).expect("an image");
    let (_, prepared) = target.read(&[path], |_| Ok(())).expect("read");
    // The model sees columns 10 to 30 at half the size.
    let rows = tensor(&[1, 6], &[0.0f32, 0.0, 5.0, 20.0, 0.75, 1.0]);
    let relative = tensor(&[1, 6], &[0.0f32, 0.0, 0.5, 1.0, 0.75, 1.0]);
    for output in [rows, relative] {
        let seen = seen(Show::Boxes, [("rows", &output)].into_iter(), &Labels::default(), 0.25, &prepared);
        let seen = seen.expect("boxes");
        let Contents::Boxes(objects) = &seen.contents else { panic!("{seen:?}") };
        assert_eq!((objects[0].edges, objects[0].unit), ([10.0, 0.0, 20.0, 20.0], Unit::ImagePixel));
        let svg = picture(&seen, &prepared, std::slice::from_ref(&bytes));
        assert!(svg.contains("<rect x=\"10.0\" y=\"0.0\" width=\"10.0\" height=\"20.0\""), "{svg}");
        assert!(svg.contains("data:image/png;base64,iVBORw0KGgo") && svg.contains("class 1 0.75"), "{svg}");
    }
    let ids = tensor(&[1, 2, 2], &[0i64, 1, 1, 1]);
    let seen = seen(Show::Mask, [("ids", &ids)].into_iter(), &Labels::default(), 0.25, &prepared).expect("a mask");
    let svg = picture(&seen, &prepared, &[bytes]);
    // The mask covers the middle columns, with class 0 left open.
    let place = "<image x=\"10.00\" y=\"0.00\" width=\"20.00\" height=\"20.00\"";
    assert!(svg.contains(place) && svg.contains("iVBORw0KGgo"), "{svg}");
    assert!(svg.contains(">class 1 75.0 %<") && !svg.contains("class 0"), "{svg}");
}

#[test]
fn what_to_show_and_labels_are_read_or_refused() {
    assert_eq!("top".parse(), Ok(Show::Top(USUAL_RANKED)));
    assert_eq!("top12".parse::<Show>().ok(), NonZeroUsize::new(12).map(Show::Top));
    for wrong in ["", "top0", "top-1", "top1001", "box"] {
        assert!(wrong.parse::<Show>().expect_err("unknown").contains("boxes or mask"), "{wrong}");
    }
    let folder = tempfile::tempdir().expect("a temporary directory");
    let path = folder.path().join("labels.txt");
    std::fs::write(&path, "cat\r\n\ncow\n\n").expect("writable");
    let labels = Labels::read(&path).expect("labels");
    assert_eq!([0, 1, 2, 3].map(|class| labels.name(class)), [Some("cat"), None, Some("cow"), None]);
    std::fs::write(&path, "\n").expect("writable");
    assert!(Labels::read(&path).is_err());
}
