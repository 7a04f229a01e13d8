//! Operators of ONNX Runtime over numbers on grids of 8-bit integers, whose sums do not saturate on any processor.

use super::{Given, int, near, numbers};
use anabranch::import::proto::{NodeProto, TensorProto, data_type};

/// Bytes that depend only on the name.
fn bytes(name: &'static str, dims: &[usize]) -> (Vec<u8>, TensorProto) {
    let elements: Vec<u8> = Given::of(name, dims).elements.iter().map(|x| (x * 127.5 + 127.5) as u8).collect();
    let sizes: Vec<i64> = dims.iter().map(|dim| *dim as i64).collect();
    (elements.clone(), TensorProto::raw(name, data_type::UINT8, &sizes, elements))
}

fn node(operator: &str, inputs: &[&str]) -> NodeProto {
    NodeProto { domain: "com.microsoft".into(), ..NodeProto::of(operator, inputs, &["y"]) }
}

/// `(a − za) (b − zb)` of bytes, `[m, k]` and `[k, n]`, with a zero point for each column of `b`.
fn product(a: &[f64], (b, zeros): (&[u8], &[u8]), [m, k, n]: [usize; 3]) -> Vec<f64> {
    let centred = |p: usize, j: usize| f64::from(b[p * n + j]) - f64::from(zeros[j]);
    let sum = |i: usize, j: usize| (0..k).map(|p| a[i * k + p] * centred(p, j)).sum();
    (0..m).flat_map(|i| (0..n).map(move |j| (i, j))).map(|(i, j)| sum(i, j)).collect()
}

#[test]
fn products_of_grids_are_scaled_by_columns() {
    let [m, k, n] = [4, 6, 3];
    let ((a, a_proto), (b, b_proto), (z, z_proto)) = (bytes("a", &[m, k]), bytes("b", &[k, n]), bytes("z", &[n]));
    let (scales, bias) = (Given::of("s", &[n]), Given::of("c", &[n]));
    let scale = TensorProto::f32s("t", &[], &[0.25]);
    let zero = TensorProto::raw("o", data_type::UINT8, &[], vec![100]);
    let inputs = vec![a_proto, b_proto, z_proto, scales.message(), bias.message(), scale, zero];
    let made = numbers(node("MatMulIntegerToFloat", &["a", "b", "t", "s", "o", "z", "c"]), inputs);
    let centred: Vec<f64> = a.iter().map(|x| f64::from(*x) - 100.0).collect();
    let sums = product(&centred, (&b, &z), [m, k, n]);
    let wanted = |(at, sum): (usize, &f64)| sum * 0.25 * scales.at(&[at % n]) + bias.at(&[at % n]);
    near(&made[0], &sums.iter().enumerate().map(wanted).collect::<Vec<_>>(), "two grids");
}

#[test]
fn a_matrix_is_put_on_the_grid_of_its_range() {
    let [m, k, n] = [3, 8, 2];
    let x = Given::of("x", &[m, k]);
    let ((b, b_proto), (z, z_proto)) = (bytes("b", &[k, n]), bytes("z", &[n]));
    let scales = Given::of("s", &[n]);
    let made = numbers(
        node("DynamicQuantizeMatMul", &["x", "b", "s", "z"]),
        vec![x.message(), b_proto, scales.message(), z_proto],
    );
    let bound = |pick: fn(f32, f32) -> f32| x.elements.iter().copied().fold(0f32, pick);
    let (low, high) = (bound(f32::min), bound(f32::max));
    let scale = (high - low) / 255.0;
    let zero = (-low / scale).round_ties_even();
    let on_grid: Vec<f64> = x.elements.iter().map(|x| f64::from((x / scale).round_ties_even())).collect();
    assert!(zero > 0.0 && on_grid.iter().all(|x| (0.0..=255.0).contains(&(x + f64::from(zero)))));
    let sums = product(&on_grid, (&b, &z), [m, k, n]);
    let wanted = |(at, sum): (usize, &f64)| sum * f64::from(scale) * scales.at(&[at % n]);
    near(&made[0], &sums.iter().enumerate().map(wanted).collect::<Vec<_>>(), "a grid of its own");
}

#[test]
fn attention_of_grids_is_that_of_the_numbers_on_them() {
    let (length, width) = (3, 4);
    let ((x, x_proto), (w, w_proto), (z, z_proto)) =
        (bytes("x", &[1, length, width]), bytes("w", &[width, 3 * width]), bytes("z", &[3 * width]));
    let (scales, bias) = (Given::of("s", &[3 * width]), Given::of("c", &[3 * width]));
    let scale = TensorProto::f32s("t", &[], &[0.01]);
    let zero = TensorProto::raw("o", data_type::UINT8, &[], vec![128]);
    let names = ["x", "w", "c", "t", "s", "", "o", "z"];
    let on_grids = node("QAttention", &names).with(int("num_heads", 2)).with(int("unidirectional", 1));
    let inputs = vec![x_proto, w_proto, bias.message(), scale, scales.message(), zero, z_proto];
    let made = numbers(on_grids, inputs);

    let real_x: Vec<f32> = x.iter().map(|x| (f32::from(*x) - 128.0) * 0.01).collect();
    let real_w = |(at, w): (usize, &u8)| {
        let column = at % (3 * width);
        (f32::from(*w) - f32::from(z[column])) * scales.elements[column]
    };
    let real_w: Vec<f32> = w.iter().enumerate().map(real_w).collect();
    let inputs = vec![
        TensorProto::f32s("x", &[1, length as i64, width as i64], &real_x),
        TensorProto::f32s("w", &[width as i64, 3 * width as i64], &real_w),
        bias.message(),
    ];
    let same = node("Attention", &["x", "w", "c"]).with(int("num_heads", 2));
    let wanted = numbers(same.with(int("unidirectional", 1)), inputs);
    near(&made[0], &wanted[0].iter().map(|x| f64::from(*x)).collect::<Vec<_>>(), "attention");
}
