//! Products by matrix units, against their bounds. Devices round and add up; devices without matrix units leave it to
//! the test to multiply in between.

use super::super::kernel::Recorder;
use super::super::testing::{Run, UNWRITTEN, buffer, check_rows, download, gpu, noise, run_on_cpu, spec, tensor};
use super::super::{Buffers, Recipe, corpus};
use super::*;
use anabranch_op::op::{Binary, Expression, MatMul, NodeSpec, Op};
use anabranch_op::tensor::Tensor;

const PRECISIONS: [Precision; 2] = [Precision::F16, Precision::F16x3];
const STORE: &str = "fn store(batch: u32, row: u32, column: u32, value: f32) {
    y[(batch * parameters.m + row) * parameters.n + column] = value;
}
";

/// A product of `[batches, m, k]`, of which each line is scaled by another power of two, and `[matrices, k, n]`.
#[derive(Clone, Copy)]
struct Case {
    precision: Precision,
    /// Matrices of A and B.
    matrices: [usize; 2],
    sizes: [usize; 3],
    /// Whether A and B are stored transposed.
    transposed: [bool; 2],
}

impl Case {
    fn node(&self, epilogue: Option<Expression>) -> NodeSpec {
        let Self { precision, matrices: [a, b], sizes: [m, n, k], transposed: [transpose_a, transpose_b] } = *self;
        let op = MatMul { transpose_a, transpose_b, epilogue, precision };
        let inputs = vec![
            spec(&if transpose_a { [a, k, m] } else { [a, m, k] }),
            spec(&if transpose_b { [b, n, k] } else { [b, k, n] }),
        ];
        NodeSpec { op: Op::MatMul(op), inputs, outputs: vec![spec(&[a.max(b), m, n])] }
    }

    fn half(&self) -> Half {
        let [m, n, k] = self.sizes;
        let operand = |matrices, lines, is_along_depth| {
            let strides = if is_along_depth { [k, 1] } else { [1, lines] };
            Operand { matrices, lines, strides }
        };
        let [transpose_a, transpose_b] = self.transposed;
        let operands = [operand(self.matrices[0], m, !transpose_a), operand(self.matrices[1], n, transpose_b)];
        Half::new(self.precision, self.whole(), k, operands).expect("a large product")
    }

    fn whole(&self) -> Extent {
        let [m, n, _] = self.sizes;
        Extent { first: 0, batches: self.matrices.into_iter().max().unwrap_or(1), m, n }
    }

    /// Returns the lines of an operand, by matrices.
    fn lines(&self, operand: usize) -> Vec<Vec<Vec<f32>>> {
        let ([lines, k], apart) = ([self.sizes[operand], self.sizes[2]], [17, 23][operand]);
        let line = |matrix: usize, line: usize| {
            let power = f32::powi(2.0, ((matrix * 7 + line) * apart % 101) as i32 - 50);
            let values = noise((operand * 1000 + matrix * 100 + line) as u64, k);
            // Some elements are much smaller than the others.
            let small = |(at, value)| if at % 5 == 0 { value * f32::powi(2.0, -(at as i32 % 40)) } else { value };
            values.into_iter().enumerate().map(small).map(|value| value * power).collect()
        };
        (0..self.matrices[operand]).map(|matrix| (0..lines).map(|at| line(matrix, at)).collect()).collect()
    }

    fn tensors(&self, lines: &[Vec<Vec<Vec<f32>>>; 2]) -> [Tensor; 2] {
        let along = [!self.transposed[0], self.transposed[1]];
        [0, 1].map(|operand| {
            let (count, k) = (self.sizes[operand], self.sizes[2]);
            let element = |matrix: &[Vec<f32>], at: usize| match along[operand] {
                true => matrix[at / k][at % k],
                false => matrix[at % count][at / count],
            };
            let matrix = |matrix: &Vec<Vec<f32>>| (0..count * k).map(|at| element(matrix, at)).collect::<Vec<_>>();
            let values: Vec<f32> = lines[operand].iter().flat_map(matrix).collect();
            let node = self.node(None);
            tensor(node.inputs[operand].shape.dims(), &values)
        })
    }

    /// Returns the factors of the bound of an element: of the sum of the magnitudes of its products, and of the product
    /// of the greatest magnitudes of its row and column.
    fn bound(&self) -> [f64; 2] {
        let (unit, k) = (f64::powi(2.0, -23), self.sizes[2] as f64);
        match self.precision {
            Precision::F16x3 => [(6.0 + k / 64.0 + 9.0) * unit, k * f64::powi(2.0, -36)],
            _ => [f64::powi(2.0, -10) + (2.0 + (k / 8.0).ceil()) * unit, k * f64::powi(2.0, -26)],
        }
    }

    /// Checks outputs against exact products.
    #[track_caller]
    fn check(&self, got: &[f32], lines: &[Vec<Vec<Vec<f32>>>; 2]) {
        let [m, n, _] = self.sizes;
        let wide = |line: &[f32]| line.iter().map(|x| f64::from(*x)).collect::<Vec<f64>>();
        let greatest = |line: &[f64]| line.iter().fold(0f64, |most, x| most.max(x.abs()));
        let [relative, absolute] = self.bound();
        for (at, got) in got.iter().enumerate() {
            let (batch, row, column) = (at / (m * n), at / n % m, at % n);
            let line = |operand: usize, line: usize| wide(&lines[operand][batch % self.matrices[operand]][line]);
            let (a, b) = (line(0, row), line(1, column));
            let products: Vec<f64> = a.iter().zip(&b).map(|(a, b)| a * b).collect();
            let (want, magnitudes) = (products.iter().sum::<f64>(), products.iter().map(|x| x.abs()).sum::<f64>());
            let bound = relative * magnitudes + absolute * greatest(&a) * greatest(&b);
            let error = (f64::from(*got) - want).abs();
            assert!(error <= bound, "{:?}: output {at} is {got}, not {want} to within {bound}", self.node(None).key());
        }
    }
}

/// Runs what a recipe records, over tensors and the words of scratch memory, and returns the output and these words.
fn recorded(
    node: &NodeSpec,
    inputs: &[Tensor; 2],
    scratch: &[u32],
    record: impl for<'a> Fn(&mut Recorder<'a>) -> Result<(), KernelError>,
) -> (Vec<f32>, Vec<u32>) {
    let held = inputs.each_ref().map(|input| buffer(gpu(), input.bytes()));
    let output = buffer(gpu(), &vec![0; node.outputs[0].bytes()]);
    let scratch = buffer(gpu(), bytemuck::cast_slice(scratch));
    let buffers =
        Buffers { inputs: &held.each_ref().map(Some), outputs: &[&output], scratch: Some(&scratch), status: None };
    let recorder = Recorder::new(gpu(), node, &[], &buffers, None);
    let kernel = recorder.finish(&Recipe::new(node, record)).expect("shaders of all devices");
    let mut encoder = gpu().device().create_command_encoder(&Default::default());
    kernel.encode(&mut encoder.begin_compute_pass(&Default::default()));
    gpu().queue().submit([encoder.finish()]);
    let read = |buffer: &wgpu::Buffer| download(gpu(), buffer, (buffer.size() / 4) as usize);
    let (output, scratch) = (read(&output), read(&scratch));
    assert_eq!(gpu().fault(), None);
    (output.into_iter().map(f32::from_bits).collect(), scratch)
}

/// Returns the value of an `f16`, which must not be subnormal.
fn value_of(bits: u32) -> f64 {
    let (sign, exponent, fraction) = (if bits >> 15 == 0 { 1.0 } else { -1.0 }, bits >> 10 & 31, bits & 0x3ff);
    assert!(exponent > 0 || fraction == 0, "{bits:#x} is subnormal");
    sign * match exponent {
        0 => 0.0,
        31 if fraction == 0 => f64::INFINITY,
        31 => f64::NAN,
        _ => f64::from(1024 + fraction) * f64::powi(2.0, exponent as i32 - 25),
    }
}

/// Computes a product as devices do, except that the test multiplies fragments of `side`.
fn emulated(case: &Case, inputs: &[Tensor; 2], side: usize) -> Vec<f32> {
    let (half, whole, node) = (case.half(), case.whole(), case.node(None));
    let Layout { halves, sums, end, .. } = half.layout();
    let (_, mut scratch) = recorded(&node, inputs, &vec![UNWRITTEN.to_bits(); end], |recorder| {
        [0, 1].into_iter().try_for_each(|operand| half.round(recorder, operand, 0..half.matrices(operand), side))
    });
    let (terms, padded) = (half.terms, [0, 1].map(|operand| case.sizes[operand].next_multiple_of(LINES)));
    let depth = half.padded_k();
    let line = |operand: usize, matrix: usize, line: usize, term: usize| {
        let line = matrix * padded[operand] + line;
        let at = |k: usize| {
            let fragment = (line / side * (depth / side) + k / side) * terms + term;
            fragment * side * side + line % side * side + k % side
        };
        let bits = |at: usize| scratch[halves[operand] + at / 2] >> (at % 2 * 16) & 0xffff;
        (0..depth).map(|k| value_of(bits(at(k)))).collect::<Vec<f64>>()
    };
    let mut made = Vec::new();
    let [parts, part_depth] = half.parts.summation();
    for batch in 0..whole.batches {
        let lines = |operand: usize, term: usize| {
            let matrix = batch % case.matrices[operand];
            (0..case.sizes[operand]).map(|at| line(operand, matrix, at, term)).collect::<Vec<_>>()
        };
        let rounded = [0, 1].map(|operand| (0..terms).map(|term| lines(operand, term)).collect::<Vec<_>>());
        for part in 0..parts {
            let range = part * part_depth..((part + 1) * part_depth).min(depth);
            for (row, column) in (0..whole.m).flat_map(|row| (0..whole.n).map(move |column| (row, column))) {
                let product = |a: usize, b: usize| -> f64 {
                    let (a, b) = (&rounded[0][a][row][range.clone()], &rounded[1][b][column][range.clone()]);
                    a.iter().zip(b).map(|(a, b)| a * b).sum()
                };
                let at = sums + ((part * whole.batches + batch) * padded[0] + row) * padded[1] + column;
                made.push((at, product(0, 0) as f32));
                if terms == 2 {
                    let plane = parts * whole.batches * padded[0] * padded[1];
                    made.push((at + plane, (product(0, 1) + product(1, 0)) as f32));
                }
            }
        }
    }
    made.into_iter().for_each(|(at, sum)| scratch[at] = sum.to_bits());
    let batches = |shader: &mut Shader<'_>| declare_batches(case, shader);
    let (output, _) = recorded(&node, inputs, &scratch, |recorder| {
        half.sum(recorder, whole, &batches, &|recorder, shader| {
            shader.write("y", "f32", recorder.output(0)?).code(STORE);
            Ok(())
        })
    });
    output
}

fn declare_batches(case: &Case, shader: &mut Shader<'_>) {
    for (operand, name) in ["a_batch", "b_batch"].into_iter().enumerate() {
        let (matrices, area) = (case.matrices[operand], case.sizes[operand] * case.sizes[2]);
        shader.code(&format!("fn {name}(batch: u32) -> u32 {{\n    return batch % {matrices}u * {area}u;\n}}\n"));
    }
}

fn has_matrices() -> bool {
    gpu().facts().matrices.is_some()
}

/// Returns what devices compute: the emulation for both sides of fragments, and the device's own units if it has some.
fn outputs(case: &Case, inputs: &[Tensor; 2]) -> Vec<Vec<f32>> {
    let mut all = vec![emulated(case, inputs, 8), emulated(case, inputs, 16)];
    let own = Run { expected: None, ..Run::new(&case.node(None)) }.outputs(inputs);
    match (own, has_matrices()) {
        (Ok(mut own), true) => all.push(own.remove(0)),
        (Err(error), false) => assert!(error.to_string().contains("matrix units"), "{error}"),
        (own, _) => panic!("{own:?}"),
    }
    all
}

const ALL: [[bool; 2]; 4] = [[false, false], [false, true], [true, false], [true, true]];

#[test]
fn errors_are_within_their_bounds() {
    for precision in PRECISIONS {
        for (sizes, transposed) in [[32, 33, 35], [40, 65, 64], [33, 40, 600], [130, 34, 48]].into_iter().zip(ALL) {
            let case = Case { precision, matrices: [1, 1], sizes, transposed };
            let lines = [case.lines(0), case.lines(1)];
            outputs(&case, &case.tensors(&lines)).iter().for_each(|got| case.check(got, &lines));
        }
        for matrices in [[3, 3], [3, 1], [1, 2]] {
            let case = Case { precision, matrices, sizes: [33, 32, 34], transposed: [true, false] };
            let lines = [case.lines(0), case.lines(1)];
            outputs(&case, &case.tensors(&lines)).iter().for_each(|got| case.check(got, &lines));
        }
    }
}

#[test]
fn three_products_are_more_precise_than_one() {
    let worst = |precision| {
        let case = Case { precision, matrices: [1, 1], sizes: [32, 32, 64], transposed: [false, true] };
        let lines = [0, 1].map(|seed| vec![(0..32).map(|line| noise(seed * 99 + line, 64)).collect::<Vec<_>>()]);
        let inputs = case.tensors(&lines);
        let want = run_on_cpu(&case.node(None), &inputs).expect("a product");
        let want: &[f32] = want[0].elements().expect("f32");
        let error = |got: &Vec<f32>| got.iter().zip(want).fold(0f32, |most, (got, want)| most.max((got - want).abs()));
        outputs(&case, &inputs).iter().map(error).fold(0f32, f32::max)
    };
    let [one, three] = PRECISIONS.map(worst);
    assert!(three * 100.0 < one && one < 0.02, "{three} and {one}");
}

#[test]
fn numbers_stay_finite_if_their_product_is() {
    for precision in PRECISIONS {
        let case = Case { precision, matrices: [1, 1], sizes: [32, 32, 40], transposed: [false, true] };
        let fill = |values: [f32; 4]| vec![(0..32).map(|line| vec![values[line % 4]; 40]).collect::<Vec<_>>()];
        let lines = [fill([3e38, 1.0, 2e-38, 65504.0]), fill([1e-38, 2.0, 3e-39, 0.0])];
        for got in outputs(&case, &case.tensors(&lines)) {
            for (at, got) in got.iter().enumerate() {
                let want = 40.0 * f64::from(lines[0][0][at / 32][0]) * f64::from(lines[1][0][at % 32][0]);
                let flushed = 40.0 * f64::from(f32::MIN_POSITIVE) * f64::from(lines[0][0][at / 32][0]).max(1.0);
                match want > f64::from(f32::MAX) {
                    true => assert_eq!(*got, f32::INFINITY),
                    false => assert!((f64::from(*got) - want).abs() <= 0.002 * want + flushed, "{got}, not {want}"),
                }
            }
        }
    }
}

#[test]
fn lines_that_are_not_numbers_leave_others_alone() {
    for precision in PRECISIONS {
        let case = Case { precision, matrices: [1, 1], sizes: [33, 34, 36], transposed: [false, false] };
        let mut lines = [case.lines(0), case.lines(1)];
        lines[0][0][1][3] = f32::INFINITY;
        lines[1][0][2].fill(f32::NAN);
        for got in outputs(&case, &case.tensors(&lines)) {
            for (at, got) in got.iter().enumerate() {
                let (row, column) = (at / 34, at % 34);
                assert_eq!(got.is_finite(), row != 1 && column != 2, "{got} at {row}, {column}");
                assert!(column != 2 || got.is_nan());
            }
        }
    }
}

#[test]
fn epilogues_and_rows_are_computed_by_matrix_units() {
    if !has_matrices() {
        return;
    }
    for precision in PRECISIONS {
        let case = Case { precision, matrices: [3, 3], sizes: [40, 36, 48], transposed: [false, true] };
        let mut node = case.node(Some(Expression::binary(Binary::Add)));
        node.inputs.push(spec(&[36]));
        let full = NodeSpec {
            op: Op::MatMul(MatMul { epilogue: node.op.epilogue().cloned(), transpose_b: true, ..MatMul::default() }),
            ..node.clone()
        };
        let inputs: Vec<_> = node
            .inputs
            .iter()
            .zip(0..)
            .map(|(spec, seed)| tensor(spec.shape.dims(), &noise(seed, spec.shape.elements())))
            .collect();
        let want = run_on_cpu(&full, &inputs).expect("a product");
        let want: &[f32] = want[0].elements().expect("f32");
        let got = Run { expected: None, ..Run::new(&node) }.outputs(&inputs).expect("runs").remove(0);
        assert!(got.iter().zip(want).all(|(got, want)| (got - want).abs() < 0.03), "{got:?}");
        check_rows(&node, &inputs, 1..2);
    }
}

#[test]
fn small_products_are_computed_in_f32() {
    let case = Case { precision: Precision::F16, matrices: [1, 1], sizes: [31, 40, 40], transposed: [false, false] };
    let node = case.node(None);
    let NodeSpec { op, inputs, outputs } = node.clone();
    let Op::MatMul(op) = op else { panic!("a product") };
    let full = NodeSpec { op: Op::MatMul(MatMul { precision: Precision::F32, ..op }), inputs, outputs };
    let inputs = case.tensors(&[case.lines(0), case.lines(1)]);
    let bits = |node: &NodeSpec| Run::new(node).words(&inputs).expect("runs").0;
    assert_eq!(bits(&node), bits(&full));
}

#[test]
fn other_writers_accept_the_shaders() {
    let words = buffer(gpu(), &[0; 64]);
    for (precision, side) in PRECISIONS.into_iter().flat_map(|precision| [(precision, 8), (precision, 16)]) {
        let case = Case { precision, matrices: [2, 1], sizes: [200, 300, 500], transposed: [false, false] };
        let half = case.half();
        let mut shader = half.product(case.whole(), Matrices { side, subgroup: 32 });
        half.declare(&mut shader, case.whole(), &|shader| declare_batches(&case, shader));
        shader.write("halves", "f16", &words).write("sums", "f32", &words);
        corpus::shader("half_product", &shader.source());
    }
}
