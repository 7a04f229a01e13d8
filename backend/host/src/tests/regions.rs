//! Regions of images against the published loop over all points.

use super::{Case, Random, teams};
use crate::numbers;
use anabranch_import::Attribute;
use anabranch_kernels::{Buffer, DType, Shape, Tensor, TensorSpec};
use std::sync::Arc;

/// Numbers of images, channels, rows and columns.
const X: [usize; 4] = [2, 3, 5, 7];

/// Rows and columns of an output.
const SIZE: [usize; 2] = [2, 3];

/// Attributes that differ from test to test.
#[derive(Clone, Copy, Debug)]
struct Given {
    points: i64,
    greatest: bool,
    half_pixel: bool,
    scale: f32,
}

impl Given {
    fn case(self, inputs: &[&Tensor]) -> Case {
        let sizes =
            [("sampling_ratio", self.points), ("output_height", SIZE[0] as i64), ("output_width", SIZE[1] as i64)];
        let mut case = Case::of_tensors("RoiAlign", &sizes, inputs);
        let mode = if self.greatest { "max" } else { "avg" };
        let corners = if self.half_pixel { "half_pixel" } else { "output_half_pixel" };
        let more = [
            ("mode", Attribute::String(mode.into())),
            ("coordinate_transformation_mode", Attribute::String(corners.into())),
            ("spatial_scale", Attribute::Float(self.scale)),
        ];
        case.node.attributes.extend(more.map(|(name, value)| (name.to_owned(), value)));
        case
    }

    /// Outputs of a region of one image, whose coordinates `narrow` rounds as their type does.
    fn wanted(self, image: &[f64], corners: &[f64], narrow: fn(f64) -> f64) -> Vec<f64> {
        let [_, _, height, width] = X;
        let axis = |first: f64, last: f64, outputs: usize| {
            let offset = if self.half_pixel { 0.5 } else { 0.0 };
            let [start, end] = [first, last].map(|corner| narrow(narrow(corner * f64::from(self.scale)) - offset));
            let length = narrow(end - start).max(if self.half_pixel { f64::MIN } else { 1.0 });
            let bin = narrow(length / outputs as f64);
            let points = if self.points > 0 { self.points } else { bin.ceil() as i64 };
            let point = move |output: usize, point: i64| {
                let low = narrow(start + narrow(output as f64 * bin));
                narrow(low + narrow(narrow((point as f64 + 0.5) * bin) / points as f64))
            };
            (points, point)
        };
        let (rows, row) = axis(corners[1], corners[3], SIZE[0]);
        let (columns, column) = axis(corners[0], corners[2], SIZE[1]);
        let mut outputs = Vec::new();
        for plane in image.chunks(height * width) {
            for (i, j) in (0..SIZE[0]).flat_map(|i| (0..SIZE[1]).map(move |j| (i, j))) {
                let (mut sum, mut most) = (0.0, f64::NEG_INFINITY);
                for (y, x) in (0..rows).flat_map(|y| (0..columns).map(move |x| (row(i, y), column(j, x)))) {
                    for part in parts(plane, y, x) {
                        sum += part;
                        most = most.max(part);
                    }
                }
                let none = rows <= 0 || columns <= 0;
                let mean = sum / (rows * columns).max(1) as f64;
                outputs.push(if none {
                    0.0
                } else if self.greatest {
                    most
                } else {
                    mean
                });
            }
        }
        outputs
    }
}

/// The weighted elements around a point.
fn parts(plane: &[f64], y: f64, x: f64) -> [f64; 4] {
    let [_, _, height, width] = X;
    if y < -1.0 || y > height as f64 || x < -1.0 || x > width as f64 {
        return [0.0; 4];
    }
    let around = |at: f64, size: usize| {
        let at = at.max(0.0);
        let low = (at as usize).min(size - 1);
        let fraction = if low == size - 1 { 0.0 } else { at - low as f64 };
        [(low, 1.0 - fraction), ((low + 1).min(size - 1), fraction)]
    };
    let (rows, columns) = (around(y, height), around(x, width));
    [(0, 0), (0, 1), (1, 0), (1, 1)].map(|(row, column)| {
        let ((row, one), (column, other)) = (rows[row], columns[column]);
        one * other * plane[row * width + column]
    })
}

fn made(dtype: DType, dims: &[usize], values: &[f64]) -> Tensor {
    let bytes: Vec<u8> = match dtype {
        DType::F32 => values.iter().flat_map(|value| (*value as f32).to_ne_bytes()).collect(),
        DType::F64 => values.iter().flat_map(|value| value.to_ne_bytes()).collect(),
        DType::F16 => values.iter().flat_map(|value| half::f16::from_f64(*value).to_ne_bytes()).collect(),
        _ => values.iter().flat_map(|value| half::bf16::from_f64(*value).to_ne_bytes()).collect(),
    };
    let spec = TensorSpec::new(dtype, Shape::new(dims.to_vec()).expect("small"));
    Tensor::new(spec, Arc::new(Buffer::copied(&bytes))).expect("as many bytes")
}

#[test]
fn regions_follow_their_definition() {
    let (teams, mut random) = (teams(), Random(8));
    let elements: usize = X.iter().product();
    let all = [0, 1, 2, 33].into_iter().flat_map(|points| {
        [(false, 1.0), (true, 0.5)].into_iter().flat_map(move |(half_pixel, scale)| {
            [false, true].map(|greatest| Given { points, greatest, half_pixel, scale })
        })
    });
    let mut grids = 0;
    for given in all {
        for (dtype, error) in [(DType::F32, 1e-6), (DType::F64, 1e-13), (DType::F16, 1e-3), (DType::BF16, 8e-3)] {
            // Corners outside the images, at their edges, and of empty and inverted regions.
            let count = 30;
            let corners: Vec<f64> = (0..count * 4).map(|_| random.below(80) as f64 / 4.0 - 8.0).collect();
            let images: Vec<i64> = (0..count).map(|_| random.below(X[0]) as i64).collect();
            let x: Vec<f64> = (0..elements).map(|_| random.below(64) as f64 / 16.0 - 2.0).collect();
            let inputs = [made(dtype, &X, &x), made(dtype, &[count, 4], &corners), Tensor::from_i64s(&images)];
            let outputs = given.case(&inputs.each_ref()).outputs(&teams).expect("sound").remove(0);
            assert_eq!(outputs.shape().dims(), [count, X[1], SIZE[0], SIZE[1]]);
            let narrow: fn(f64) -> f64 = if dtype == DType::F64 { |x| x } else { |x| f64::from(x as f32) };
            let size = elements / X[0];
            let wanted = corners
                .chunks(4)
                .zip(&images)
                .flat_map(|(corners, image)| given.wanted(&x[*image as usize * size..][..size], corners, narrow));
            for (at, (made, wanted)) in numbers(&outputs).expect("floats").iter().zip(wanted).enumerate() {
                assert!(
                    (made - wanted).abs() <= error * wanted.abs().max(1.0),
                    "{given:?} {dtype} {at}: {made}, not {wanted}"
                );
                assert!(
                    given.greatest || wanted != 0.0 || made.to_bits() != (-0.0f64).to_bits(),
                    "{given:?} {dtype} {at}"
                );
                grids += usize::from(*made != 0.0);
            }
        }
    }
    assert!(grids > 1000, "{grids} outputs are not zero");
}

#[test]
fn nothing_is_made_of_no_region_and_nothing_can_be_made_of_empty_images() {
    let given = Given { points: 2, greatest: false, half_pixel: true, scale: 1.0 };
    let run = |dims: [usize; 4], count: usize| {
        let x = made(DType::F32, &dims, &vec![1.0; dims.iter().product()]);
        let inputs = [&x, &made(DType::F32, &[count, 4], &vec![1.0; 4 * count]), &Tensor::from_i64s(&vec![0; count])];
        given.case(&inputs).outputs(&teams()).map(|mut made| made.remove(0)).map_err(|fault| fault.to_string())
    };
    for dims in [X, [0, 3, 5, 7], [2, 0, 5, 7], [2, 3, 0, 7], [2, 3, 5, 0]] {
        assert_eq!(run(dims, 0).expect("no region").shape().dims(), [0, dims[1], SIZE[0], SIZE[1]]);
    }
    assert_eq!(run([2, 0, 5, 7], 4).expect("no channel").shape().dims(), [4, 0, SIZE[0], SIZE[1]]);
    for (dims, why) in
        [([0, 3, 5, 7], "there are 0"), ([2, 3, 0, 7], "without elements"), ([2, 3, 5, 0], "without elements")]
    {
        let fault = run(dims, 4).expect_err("no element to read");
        assert!(fault.contains(why), "{fault}");
    }
}

#[test]
fn regions_that_cannot_be_sampled_are_refused_by_number() {
    let given = Given { points: 0, greatest: false, half_pixel: true, scale: 1.0 };
    let x = made(DType::F32, &X, &[1.0; 2 * 3 * 5 * 7]);
    let refused = |given: Given, corners: [f64; 4], image: i64| {
        let all = [[0.0, 0.0, 4.0, 4.0], corners].concat();
        let inputs = [&x, &made(DType::F32, &[2, 4], &all), &Tensor::from_i64s(&[0, image])];
        given.case(&inputs).outputs(&teams()).expect_err("no such region").to_string()
    };
    for image in [-1, 2, i64::MIN, i64::MAX, 1 << 62] {
        let fault = refused(given, [0.0; 4], image);
        assert!(fault.contains(&format!("region 1 is in image {image}")), "{fault}");
    }
    for (end, why) in [
        (f64::NAN, "not a finite number"),
        (f64::INFINITY, "not a finite number"),
        (f64::NEG_INFINITY, "not a finite number"),
        (1e30, "65536 points"),
        (1e6, "65536 points"),
    ] {
        let fault = refused(given, [0.0, 0.0, 3.0, end], 0);
        assert!(fault.contains("region 1 from (0, 0)") && fault.contains(why), "{fault}");
    }
    let fault = refused(Given { points: 2, ..given }, [0.0, f64::NAN, 3.0, 3.0], 0);
    assert!(fault.contains("not a finite number"), "{fault}");
    for points in [0, 2] {
        let fault = refused(Given { points, scale: 16.0, ..given }, [0.0, 0.0, 3.0, 3e38], 0);
        assert!(fault.contains("`spatial_scale` 16") && !fault.contains("sampling_ratio"), "{fault}");
    }
    let fault = refused(Given { points: 65_537, ..given }, [0.0; 4], 0);
    assert!(fault.contains("sampling_ratio") && fault.contains("65536"), "{fault}");
    let fault = refused(Given { scale: f32::NAN, ..given }, [0.0; 4], 0);
    assert!(fault.contains("spatial_scale"), "{fault}");
    // A region far away, and one of as many points as there may be.
    for corners in [[1e6, 1e6, 1e6 + 4.0, 1e6 + 4.0], [0.0, 0.0, 65_536.0, 3.0]] {
        let inputs = [&x, &made(DType::F32, &[1, 4], &corners), &Tensor::from_i64s(&[0])];
        given.case(&inputs).outputs(&teams()).expect("sound");
    }
}
