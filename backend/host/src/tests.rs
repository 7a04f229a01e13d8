//! Random inputs for every host operator, against plain definitions: equal bits on any number of threads, and an
//! interruption at every check.

mod regions;

use super::work::Work;
use super::{Call, Item, host_operator};
use crate::{Fault, integers, numbers};
use anabranch_import::{Attribute, Node, ValueIndex};
use anabranch_kernels::cpu::{Interrupt, Team};
use anabranch_kernels::{Buffer, DType, Shape, Tensor, TensorSpec};
use std::cmp::Ordering;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

const TYPES: [DType; 22] = [
    DType::F32,
    DType::F64,
    DType::F16,
    DType::BF16,
    DType::I8,
    DType::I16,
    DType::I32,
    DType::I64,
    DType::U8,
    DType::U16,
    DType::U32,
    DType::U64,
    DType::Bool,
    DType::F8E4M3Fn,
    DType::F8E4M3Fnuz,
    DType::F8E5M2,
    DType::F8E5M2Fnuz,
    DType::F4E2M1,
    DType::I4,
    DType::U4,
    DType::I2,
    DType::U2,
];

/// Shapes of elements and slices, with axes of zero and of one element.
const SHAPES: [&[usize]; 14] = [
    &[],
    &[0],
    &[1],
    &[7],
    &[200],
    &[3, 0],
    &[0, 3],
    &[1, 5],
    &[40, 1],
    &[13, 9],
    &[2, 3, 4],
    &[5, 1, 33],
    &[0, 0, 2],
    &[90, 2, 1],
];

/// Distribution of random elements.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Equal,
    Few,
    Different,
}

/// A generator of pseudo-random numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % end
    }

    /// Bytes of an element.
    fn element(&mut self, dtype: DType, kind: Kind, at: usize) -> Vec<u8> {
        const SPECIAL: [f32; 8] = [f32::NAN, -0.0, 0.0, f32::INFINITY, f32::NEG_INFINITY, 1.0, -1.5, 2.0];
        let pick = match kind {
            Kind::Equal => 3,
            Kind::Few => self.below(8),
            Kind::Different => at,
        };
        let float = match kind {
            Kind::Different if pick >= 8 => pick as f32 * 0.5 - 40.0,
            _ => SPECIAL[pick % 8],
        };
        let integer = (pick as i64).wrapping_mul(0x1357_9BDF_0246_8ACE) >> (pick % 3 * 31);
        match dtype {
            DType::F32 => float.to_ne_bytes().to_vec(),
            DType::F64 => f64::from(float).to_ne_bytes().to_vec(),
            DType::F16 => half::f16::from_f32(float).to_ne_bytes().to_vec(),
            DType::BF16 => half::bf16::from_f32(float).to_ne_bytes().to_vec(),
            DType::Bool => vec![pick as u8 & 1],
            DType::U4 | DType::F4E2M1 => vec![pick as u8 & 15],
            DType::U2 => vec![pick as u8 & 3],
            DType::I4 => vec![(((pick as u8) << 4) as i8 >> 4) as u8],
            DType::I2 => vec![(((pick as u8) << 6) as i8 >> 6) as u8],
            dtype => integer.to_le_bytes()[..dtype.size()].to_vec(),
        }
    }

    fn tensor(&mut self, dtype: DType, dims: &[usize], kind: Kind) -> Tensor {
        let count: usize = dims.iter().product();
        let bytes: Vec<u8> = (0..count).flat_map(|at| self.element(dtype, kind, at)).collect();
        let spec = TensorSpec::new(dtype, Shape::new(dims.to_vec()).expect("small"));
        Tensor::new(spec, Arc::new(Buffer::copied(&bytes))).expect("as many bytes")
    }
}

/// A node with its inputs.
struct Case {
    node: Node,
    inputs: Vec<Option<Item>>,
}

impl Case {
    fn new(operator: &str, attributes: &[(&str, i64)], inputs: Vec<Option<Item>>) -> Self {
        let attributes = attributes.iter().map(|(name, value)| ((*name).to_owned(), Attribute::Int(*value)));
        let node = Node {
            name: "node".into(),
            op_type: operator.into(),
            domain: String::new(),
            version: 20,
            inputs: Vec::new(),
            outputs: vec![Some(ValueIndex(0)); 4],
            attributes: attributes.collect(),
        };
        Self { node, inputs }
    }

    fn of_tensors(operator: &str, attributes: &[(&str, i64)], inputs: &[&Tensor]) -> Self {
        Self::new(operator, attributes, inputs.iter().map(|tensor| Some(Item::Tensor((*tensor).clone()))).collect())
    }

    fn made(&self, work: &Work<'_>) -> Result<Vec<Item>, Fault> {
        let operator = host_operator(&self.node).expect("a host operator");
        Call { node: &self.node, inputs: &self.inputs, work }.made_by(operator)
    }

    /// Returns the outputs on one thread, after checking that those on more threads are equal.
    fn outputs(&self, teams: &[Team]) -> Result<Vec<Tensor>, Fault> {
        let made = |team| Ok(tensors(self.made(&Work::new(team, None, u64::MAX))?));
        let mut all = teams.iter().map(made);
        let first: Result<Vec<Tensor>, Fault> = all.next().expect("a team");
        for other in all {
            match (&first, other) {
                (Ok(one), Ok(other)) => {
                    assert!(one.len() == other.len() && one.iter().zip(&other).all(|(a, b)| a.same_bits(b)));
                }
                (one, other) => assert_eq!(one.as_ref().err(), other.err().as_ref()),
            }
        }
        first
    }
}

/// All tensors of the outputs, including those of sequences.
fn tensors(items: Vec<Item>) -> Vec<Tensor> {
    let all = items.into_iter().flat_map(|item| match item {
        Item::Tensor(tensor) => vec![tensor],
        Item::Sequence(tensors) => tensors.to_vec(),
        Item::Absent => Vec::new(),
    });
    all.collect()
}

fn teams() -> Vec<Team> {
    (1..=4).map(|threads| Team::new(threads, |_| {})).collect()
}

fn ints(tensor: &Tensor) -> &[i64] {
    tensor.elements::<i64>().expect("indices")
}

/// Elements as numbers, wide enough for any type.
fn values(x: &Tensor) -> Vec<(f64, i128)> {
    if x.dtype().is_float() {
        return numbers(x).expect("floats").into_iter().map(|number| (number, 0)).collect();
    }
    match x.elements::<u64>() {
        Some(all) => all.iter().map(|element| (0.0, i128::from(*element))).collect(),
        None => integers(x).expect("integers").into_iter().map(|element| (0.0, element.into())).collect(),
    }
}

/// NaN is greater than all numbers and equal to itself; zeros are equal.
fn compared(a: (f64, i128), b: (f64, i128)) -> Ordering {
    a.0.partial_cmp(&b.0).unwrap_or_else(|| a.0.is_nan().cmp(&b.0.is_nan())).then(a.1.cmp(&b.1))
}

/// Flat indices of the elements of a slice.
fn slice(dims: &[usize], axis: usize, place: usize) -> Vec<usize> {
    let inner: usize = dims[axis + 1..].iter().product();
    (0..dims.iter().product()).filter(|flat| flat / inner % dims[axis] == place).collect()
}

/// Bytes of these elements.
fn picked(x: &Tensor, flat: &[usize]) -> Vec<u8> {
    let size = x.dtype().size();
    flat.iter().flat_map(|at| x.bytes()[at * size..][..size].to_vec()).collect()
}

#[test]
fn unique_follows_its_definition() {
    let (teams, mut random) = (teams(), Random(1));
    for dtype in TYPES {
        for dims in SHAPES {
            for kind in [Kind::Equal, Kind::Few, Kind::Different] {
                let x = random.tensor(dtype, dims, kind);
                for axis in std::iter::once(None).chain((0..dims.len()).map(Some)) {
                    for sorted in [0, 1] {
                        check_unique(&teams, &x, axis, sorted);
                    }
                }
            }
        }
    }
}

fn check_unique(teams: &[Team], x: &Tensor, axis: Option<usize>, sorted: i64) {
    let mut attributes = vec![("sorted", sorted)];
    attributes.extend(axis.map(|axis| ("axis", axis as i64)));
    let outputs = Case::of_tensors("Unique", &attributes, &[x]).outputs(teams).expect("sound");
    let flat = [x.shape().elements()];
    let (dims, axis) = axis.map_or((&flat[..], 0), |axis| (x.shape().dims(), axis));
    let values = values(x);
    let slices: Vec<Vec<usize>> = (0..dims[axis]).map(|place| slice(dims, axis, place)).collect();
    let order = |a: &usize, b: &usize| {
        let pairs = slices[*a].iter().zip(&slices[*b]);
        pairs.map(|(a, b)| compared(values[*a], values[*b])).find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
    };
    let mut first: Vec<usize> = Vec::new();
    for place in 0..dims[axis] {
        if !first.iter().any(|other| order(other, &place).is_eq()) {
            first.push(place);
        }
    }
    if sorted == 1 {
        first.sort_by(&order);
    }
    let number = |place: &usize| first.iter().position(|other| order(other, place).is_eq()).expect("a group") as i64;
    let which: Vec<i64> = (0..dims[axis]).map(|place| number(&place)).collect();
    let count = |number| which.iter().filter(|which| **which == number).count() as i64;
    let about = format!("{} axis {axis} sorted {sorted}", x.spec());
    assert_eq!(ints(&outputs[1]), first.iter().map(|place| *place as i64).collect::<Vec<_>>(), "{about}");
    assert_eq!(ints(&outputs[2]), which, "{about}");
    assert_eq!(ints(&outputs[3]), (0..first.len() as i64).map(count).collect::<Vec<_>>(), "{about}");
    assert_eq!(outputs[0].shape().dims()[axis], first.len(), "{about}");
    for (at, place) in first.iter().enumerate() {
        let made = slice(outputs[0].shape().dims(), axis, at);
        assert_eq!(picked(&outputs[0], &made), picked(x, &slices[*place]), "{about}");
    }
}

#[test]
fn non_zero_and_compress_follow_their_definitions() {
    let (teams, mut random) = (teams(), Random(2));
    for dtype in TYPES {
        for dims in SHAPES {
            for kind in [Kind::Equal, Kind::Few, Kind::Different] {
                let x = random.tensor(dtype, dims, kind);
                let found = Case::of_tensors("NonZero", &[], &[&x]).outputs(&teams).expect("sound").remove(0);
                let is = |value: &(f64, i128)| value.0 != 0.0 || value.1 != 0;
                let places: Vec<usize> =
                    values(&x).iter().enumerate().filter(|(_, value)| is(value)).map(|(at, _)| at).collect();
                let coordinate =
                    |axis: usize, flat: usize| (flat / dims[axis + 1..].iter().product::<usize>() % dims[axis]) as i64;
                let want = (0..dims.len()).flat_map(|axis| places.iter().map(move |flat| (axis, *flat)));
                let want: Vec<i64> = want.map(|(axis, flat)| coordinate(axis, flat)).collect();
                assert_eq!(
                    (found.shape().dims(), ints(&found)),
                    (&[dims.len(), places.len()][..], &want[..]),
                    "{}",
                    x.spec()
                );
                for axis in std::iter::once(None).chain((0..dims.len()).map(Some)) {
                    check_compress(&teams, &mut random, &x, axis);
                }
            }
        }
    }
}

fn check_compress(teams: &[Team], random: &mut Random, x: &Tensor, axis: Option<usize>) {
    let flat = [x.shape().elements()];
    let (dims, along) = axis.map_or((&flat[..], 0), |axis| (x.shape().dims(), axis));
    let count = random.below(dims[along] + 1);
    let truths = random.tensor(DType::Bool, &[count], Kind::Few);
    let attributes: Vec<_> = axis.map(|axis| ("axis", axis as i64)).into_iter().collect();
    let made = Case::of_tensors("Compress", &attributes, &[x, &truths]).outputs(teams).expect("sound").remove(0);
    let places: Vec<usize> = (0..count).filter(|place| truths.bytes()[*place] == 1).collect();
    assert_eq!(made.shape().dims()[along], places.len());
    for (at, place) in places.iter().enumerate() {
        let (made_slice, slice) = (slice(made.shape().dims(), along, at), slice(dims, along, *place));
        assert_eq!(picked(&made, &made_slice), picked(x, &slice), "{} axis {axis:?}", x.spec());
    }
}

/// The published loop of ONNX Runtime for one class.
fn suppressed(boxes: &[[f32; 4]], scores: &[f32], most: usize, [overlap, least]: [f32; 2], centered: bool) -> Vec<i64> {
    let sides = |[a, b, c, d]: [f32; 4]| match centered {
        true => [a - c / 2.0, a + c / 2.0, b - d / 2.0, b + d / 2.0],
        false => [a.min(c), a.max(c), b.min(d), b.max(d)],
    };
    let is_over = |one: usize, other: usize| {
        let ([a, b, c, d], [e, f, g, h]) = (sides(boxes[one]), sides(boxes[other]));
        let (width, height) = (b.min(f) - a.max(e), d.min(h) - c.max(g));
        let (area, other) = ((b - a) * (d - c), (f - e) * (h - g));
        let union = area + other - width * height;
        let overlaps = width > 0.0 && height > 0.0 && area > 0.0 && other > 0.0 && union > 0.0;
        overlaps && width * height / union > overlap
    };
    let mut order: Vec<usize> = (0..scores.len()).filter(|at| scores[*at] > least).collect();
    order.sort_by(|a, b| scores[*b].partial_cmp(&scores[*a]).expect("numbers"));
    let mut kept: Vec<usize> = Vec::new();
    for place in order {
        if kept.len() < most && !kept.iter().any(|other| is_over(place, *other)) {
            kept.push(place);
        }
    }
    kept.into_iter().map(|place| place as i64).collect()
}

#[test]
fn suppression_follows_its_definition() {
    let (teams, mut random) = (teams(), Random(3));
    let floats = |dims: &[usize], all: &[f32]| {
        Tensor::from_elements(Shape::new(dims.to_vec()).expect("small"), all).expect("as many")
    };
    for round in 0..200 {
        let [images, classes] = [1 + random.below(2), 1 + random.below(3)];
        let count = [0, 1, 2, 9, 33, 100][random.below(6)];
        let (centered, most) = (round % 2 == 0, [0, 1, 5, 1000][random.below(4)]);
        let mut number = |least: i64| (random.below(40) as i64 + least) as f32 / 4.0;
        let boxes: Vec<f32> = (0..images * count * 4).map(|_| number(-2)).collect();
        // Few different scores, so that many are equal; zeros of both signs.
        let scores: Vec<f32> = (0..images * classes * count).map(|_| -(number(-8) * 0.5).trunc()).collect();
        let [overlap, least] = [[0.0f32, 0.3, 1.0][random.below(3)], [-1.0f32, 0.0, -100.0][random.below(3)]];
        let inputs = [
            floats(&[images, count, 4], &boxes),
            floats(&[images, classes, count], &scores),
            Tensor::from_i64s(&[most]),
            floats(&[1], &[overlap]),
            floats(&[1], &[least]),
        ];
        let attributes = [("center_point_box", i64::from(centered))];
        let inputs: Vec<&Tensor> = inputs.iter().collect();
        let found =
            Case::of_tensors("NonMaxSuppression", &attributes, &inputs).outputs(&teams).expect("sound").remove(0);
        let boxes = boxes.as_chunks::<4>().0;
        let pairs = (0..images).flat_map(|image| (0..classes).map(move |class| (image, class)));
        let want = pairs.flat_map(|(image, class)| {
            let scores = &scores[(image * classes + class) * count..][..count];
            let boxes = &boxes[image * count..][..count];
            let kept = suppressed(boxes, scores, most as usize, [overlap, least], centered);
            kept.into_iter().flat_map(move |place| [image as i64, class as i64, place])
        });
        assert_eq!(ints(&found), want.collect::<Vec<_>>(), "round {round}: {images} {classes} {count} {most}");
    }
}

#[test]
fn scores_that_are_no_numbers_come_last_and_equal_ones_in_order() {
    let boxes: Vec<f32> = (0..5).flat_map(|at| [at as f32, 0.0, at as f32 + 0.5, 1.0]).collect();
    let boxes = Tensor::from_elements(Shape::new([1, 5, 4]).expect("small"), &boxes).expect("as many");
    let scores = Tensor::from_elements(
        Shape::new([1, 1, 5]).expect("small"),
        &[f32::NAN, 0.0, f32::INFINITY, -0.0, f32::NEG_INFINITY],
    );
    let inputs = [&boxes, &scores.expect("as many"), &Tensor::from_i64s(&[9])];
    let found = Case::of_tensors("NonMaxSuppression", &[], &inputs).outputs(&teams()).expect("sound").remove(0);
    assert_eq!(ints(&found).chunks(3).map(|row| row[2]).collect::<Vec<_>>(), [2, 1, 3, 4, 0]);
}

#[test]
fn what_is_split_goes_together_again() {
    let (teams, mut random) = (teams(), Random(4));
    for dtype in [DType::F32, DType::U8, DType::F64, DType::BF16] {
        for dims in SHAPES.iter().filter(|dims| !dims.is_empty()) {
            let x = random.tensor(dtype, dims, Kind::Few);
            for axis in 0..dims.len() {
                let size = dims[axis];
                let cut = random.below(size + 1) as i64;
                let parts = [None, Some(Tensor::from_i64s(&[cut, 0, size as i64 - cut])), Some(one(3))];
                for (parts, keep) in parts.into_iter().flat_map(|parts| [(parts.clone(), 0), (parts, 1)]) {
                    let inputs = vec![Some(Item::Tensor(x.clone())), parts.clone().map(Item::Tensor)];
                    let attributes = [("axis", axis as i64), ("keepdims", keep)];
                    let split = Case::new("SplitToSequence", &attributes, inputs).outputs(&teams).expect("sound");
                    if split.is_empty() {
                        continue;
                    }
                    let new = i64::from(parts.is_none() && keep == 0);
                    let sequence = Item::Sequence(Arc::new(split));
                    let attributes = [("axis", axis as i64), ("new_axis", new)];
                    let whole = Case::new("ConcatFromSequence", &attributes, vec![Some(sequence)]).outputs(&teams);
                    assert!(whole.expect("sound")[0].same_bits(&x), "{} axis {axis} {parts:?}", x.spec());
                }
            }
        }
    }
}

/// One integer without an axis.
fn one(value: i64) -> Tensor {
    Tensor::from_i64s(&[value]).reshaped(Shape::scalar()).expect("one element")
}

#[test]
fn a_list_is_made_longer_and_shorter_at_any_place() {
    let (teams, mut random) = (teams(), Random(5));
    let tensor = |at: usize| Tensor::from_i64s(&[at as i64]);
    let mut want: Vec<i64> = Vec::new();
    let mut list = Item::Sequence(Arc::new(Vec::new()));
    for round in 0..200 {
        let (count, grows) = (want.len(), want.is_empty() || random.below(3) > 0);
        let at = random.below(count + usize::from(grows));
        let place = if random.below(2) == 0 && at < count { at as i64 - count as i64 } else { at as i64 };
        let place = Some(Item::Tensor(one(place)));
        let case = match grows {
            true => Case::new("SequenceInsert", &[], vec![Some(list), Some(Item::Tensor(tensor(round))), place]),
            false => Case::new("SequenceErase", &[], vec![Some(list), place]),
        };
        match grows {
            true => want.insert(at, round as i64),
            false => _ = want.remove(at),
        }
        let made = case.outputs(&teams).expect("a place in the list");
        assert_eq!(made.iter().map(|tensor| ints(tensor)[0]).collect::<Vec<_>>(), want);
        list = Item::Sequence(Arc::new(made));
    }
}

/// A case of each host operator that processes many elements.
fn large() -> Vec<Case> {
    let mut random = Random(6);
    let x = random.tensor(DType::F32, &[150, 3], Kind::Few);
    let truths = random.tensor(DType::Bool, &[150], Kind::Few);
    let boxes = random.tensor(DType::F32, &[2, 60, 4], Kind::Different);
    let scores = random.tensor(DType::F32, &[2, 2, 60], Kind::Different);
    let parts = Item::Sequence(Arc::new(vec![x.clone(), x.clone()]));
    let image = random.tensor(DType::F32, &[1, 3, 9, 9], Kind::Different);
    let corners: Vec<f32> = (0..9).flat_map(|at| [at as f32, 0.0, 9.0, at as f32 + 1.0]).collect();
    let corners = Tensor::from_elements(Shape::new([9, 4]).expect("small"), &corners).expect("as many");
    let size = [("output_height", 3), ("output_width", 3)];
    vec![
        Case::of_tensors("RoiAlign", &size, &[&image, &corners, &Tensor::from_i64s(&[0; 9])]),
        Case::of_tensors("Unique", &[], &[&x]),
        Case::of_tensors("Unique", &[("sorted", 0)], &[&random.tensor(DType::I64, &[200], Kind::Few)]),
        Case::of_tensors("Unique", &[("axis", 0), ("sorted", 0)], &[&x]),
        Case::of_tensors("NonZero", &[], &[&x]),
        Case::of_tensors("Compress", &[("axis", 0)], &[&x, &truths]),
        Case::of_tensors("NonMaxSuppression", &[], &[&boxes, &scores, &Tensor::from_i64s(&[50])]),
        Case::of_tensors("SplitToSequence", &[], &[&x]),
        Case::new("ConcatFromSequence", &[("axis", 1)], vec![Some(parts)]),
    ]
}

#[test]
fn an_interruption_at_any_look_ends_a_host_operator() {
    for threads in [1, 3] {
        let team = Team::new(threads, |_| {});
        for case in large() {
            let mut most = 0;
            loop {
                let asked = Arc::new(AtomicUsize::new(0));
                let count = Arc::clone(&asked);
                let interrupt: Interrupt = Arc::new(move || count.fetch_add(1, Relaxed) >= most);
                let watched = team.watch(Arc::clone(&interrupt));
                let made = case.made(&Work::new(&team, Some(&interrupt), u64::MAX));
                drop(watched);
                let is_over = asked.load(Relaxed) > most;
                assert_eq!(made.is_err(), is_over, "{} after {most} looks", case.node.op_type);
                if !is_over {
                    break;
                }
                most += 1;
            }
            assert!(most > 3, "{} is looked at {most} times", case.node.op_type);
        }
    }
}

#[test]
fn every_limit_of_memory_is_kept_or_refused() {
    let team = Team::solo();
    for case in large() {
        let made = |limit| case.made(&Work::new(&team, None, limit));
        let (mut least, mut enough) = (0, 1 << 30);
        assert!(made(enough).is_ok());
        while enough - least > 1 {
            let limit = u64::midpoint(least, enough);
            match made(limit) {
                Ok(_) => enough = limit,
                Err(fault) => {
                    assert!(fault.is_memory() && fault.to_string().contains("limit"), "{fault}");
                    least = limit;
                }
            }
        }
        let sizes = |items: &mut dyn Iterator<Item = &Item>| items.map(Item::bytes).sum::<u64>();
        let given = sizes(&mut case.inputs.iter().flatten());
        let results = sizes(&mut made(enough).expect("enough").iter());
        assert!(enough >= given + results, "{}: {enough} bytes", case.node.op_type);
    }
}

#[test]
fn wrong_inputs_are_refused() {
    let (teams, mut random) = (teams(), Random(7));
    let x = random.tensor(DType::F32, &[2, 3], Kind::Few);
    let (y, z) = (random.tensor(DType::F32, &[], Kind::Few), random.tensor(DType::I64, &[2, 3], Kind::Few));
    let of = |tensors: &[&Tensor]| vec![Some(Item::Sequence(Arc::new(tensors.iter().map(|x| (*x).clone()).collect())))];
    for (other, new) in [(&y, 0), (&y, 1), (&z, 0), (&z, 1)] {
        for order in [[&x, other], [other, &x]] {
            for axis in [0, 1] {
                let case = Case::new("ConcatFromSequence", &[("axis", axis), ("new_axis", new)], of(&order));
                let fault = case.outputs(&teams).expect_err("they do not go together").to_string();
                assert!(fault.contains("concatenate") || fault.contains("axis"), "{fault}");
            }
        }
    }
    let many = Tensor::from_i64s(&[0, 1]);
    for place in [Tensor::from_i64s(&[2]), Tensor::from_i64s(&[-3]), Tensor::from_i64s(&[i64::MIN]), many, x.clone()] {
        let inputs = [of(&[&x, &x]), vec![Some(Item::Tensor(place))]].concat();
        assert!(Case::new("SequenceAt", &[], inputs).outputs(&teams).is_err());
    }
}
