//! Norms of whole images.

use super::{near, numbers};
use anabranch::import::proto::{AttributeProto, NodeProto, TensorProto};

#[test]
fn a_norm_of_an_image_is_over_all_its_places() {
    let (dims, elements) = ([2usize, 3, 4, 5], 120);
    let values: Vec<f32> = (0..elements).map(|at| (at * 37 % 41) as f32 / 10.0 - 2.0).collect();
    for p in [1, 2, 3] {
        let node = NodeProto::of("GlobalLpPool", &["x"], &["y"]).with(AttributeProto::int("p", p));
        let x = TensorProto::f32s("x", &dims.map(|dim| dim as i64), &values);
        let power = p as f64;
        let norm = |plane: &[f32]| plane.iter().map(|x| f64::from(x.abs()).powf(power)).sum::<f64>().powf(1.0 / power);
        let wanted: Vec<f64> = values.chunks(20).map(norm).collect();
        near(&numbers(node, vec![x])[0], &wanted, &format!("p {p}"));
    }
}
