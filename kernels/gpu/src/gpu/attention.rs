//! Attention over a key-value cache: one pass over the keys and values that a query sees. Only the run knows their
//! number. Four queries that share keys pass together; a single one takes four features at a time instead.

use super::cache::{BOUNDED, FARTHEST};
use super::kernel::Recorder;
use super::lanes::tree;
use super::limits::{MOST_PASSES, THREADS, WORKGROUP_BYTES};
use super::{Recipe, Shader, stored};
use anabranch_op::dtype::DType;
use anabranch_op::error::KernelError;
use anabranch_op::op::{Attention, AttentionSizes, NodeSpec};
use anabranch_op::shape::Shape;

/// Keys that pass together, a thread for each.
const TILE: usize = THREADS as usize;

/// Most queries of a group.
const QUERIES: usize = 4;

/// Groups that keep a large device busy: keys are cut into parts until there are as many.
const GROUPS: usize = 512;

/// Returns what a row's sum of values is worth: zeros for a query that sees no key, and NaN if a score was not finite.
const QUOTIENT: &str = "fn quotient_of_sums(sum: f32, total: f32, peak: f32) -> f32 {
    let value = select(sum / total, 0.0, !holds(total));
    return select(value, nan_from(peak), is_nan(peak) || is_infinite(peak));
}
";

/// The cut of an attention.
struct Cut {
    sizes: AttentionSizes,
    /// Groups of a head of keys.
    blocks: usize,
    /// Parts of the keys, and the most tiles of each.
    splits: usize,
    tiles: usize,
    /// Features that a thread takes at a time: four if groups have one query, and vectors make up keys and values.
    lanes: usize,
    /// Threads along the features of a value.
    span: usize,
}

impl Cut {
    fn new(sizes: AttentionSizes) -> Self {
        let members = sizes.heads / sizes.shared.max(1) * sizes.queries;
        let (blocks, tiles) = (members.div_ceil(QUERIES), sizes.capacity.div_ceil(TILE).max(1));
        let is_single = members == 1 && sizes.depth.is_multiple_of(4) && sizes.width.is_multiple_of(4);
        let lanes = if is_single { 4 } else { 1 };
        let span = (sizes.width / lanes).next_power_of_two().min(TILE);
        let whole = Self { sizes, blocks, splits: 1, tiles, lanes, span };
        let busy = GROUPS.div_ceil(whole.groups().max(1));
        let short = whole.passes().div_ceil(MOST_PASSES * 9 / 10);
        let tiles = tiles.div_ceil(busy.max(short).min(tiles));
        Self { splits: whole.tiles.div_ceil(tiles), tiles, ..whole }
    }

    /// Results: queries of all heads and rows of the batch.
    fn rows(&self) -> usize {
        self.sizes.batch * self.sizes.heads * self.sizes.queries
    }

    fn groups(&self) -> usize {
        self.sizes.batch * self.sizes.shared * self.blocks * self.splits
    }

    /// Times that the threads along a value's features cover them.
    fn runs(&self) -> usize {
        self.sizes.width.div_ceil(self.lanes * self.span)
    }

    /// Passes of a thread through loops.
    fn passes(&self) -> usize {
        let values = self.runs() * (1 + self.span);
        self.tiles * (self.sizes.depth / self.lanes + values + 16)
            + self.sizes.depth / TILE
            + self.runs() * (TILE / self.span + 4)
    }

    fn scratch_bytes(&self) -> u64 {
        if self.splits == 1 {
            0
        } else {
            (self.rows() * self.splits * (self.sizes.width + 2) * size_of::<f32>()) as u64
        }
    }
}

pub(super) fn recipe<'n>(node: &'n NodeSpec, op: &'n Attention) -> Result<Recipe<'n>, KernelError> {
    let sizes = node
        .attention_sizes()
        .ok_or_else(|| node.invalid("required: its queries, keys and values have four dimensions"))?;
    let workgroup = (sizes.depth + TILE) * QUERIES * size_of::<f32>();
    if workgroup > WORKGROUP_BYTES as usize {
        return Err(
            node.unsupported(format!("{} features per key exceed the memory of a group of threads", sizes.depth))
        );
    }
    if sizes.capacity.max(sizes.queries) > FARTHEST {
        return Err(node.unsupported("it has more positions than a kernel can count"));
    }
    let bias = node.inputs.get(5).map(|bias| summands(&bias.shape, &sizes)).transpose()?;
    let (cut, stored) = (Cut::new(sizes), node.inputs[1].dtype);
    let (scratch_bytes, passes) = (cut.scratch_bytes(), cut.passes());
    let recipe = Recipe::new(node, move |recorder| record(recorder, op, &cut, stored, bias));
    Ok(Recipe { scratch_bytes, passes, ..recipe })
}

/// Distances of summands along batch, heads, queries and keys, and the keys that have any.
fn summands(shape: &Shape, sizes: &AttentionSizes) -> Result<([usize; 4], usize), KernelError> {
    let keys = if shape.dims()[3] == 1 { sizes.capacity } else { shape.dims()[3] };
    let strides = shape.broadcast_strides(&Shape::new([sizes.batch, sizes.heads, sizes.queries, keys])?)?;
    Ok(([0, 1, 2, 3].map(|axis| strides[axis]), keys.min(sizes.capacity)))
}

fn record(
    recorder: &mut Recorder<'_>,
    op: &Attention,
    cut: &Cut,
    stored: DType,
    bias: Option<([usize; 4], usize)>,
) -> Result<(), KernelError> {
    let AttentionSizes { heads, shared, queries, capacity, depth, width, .. } = cut.sizes;
    let mut shader = match cut.lanes {
        1 => Shader::new("attention", include_str!("attention.wgsl")),
        lanes => {
            let mut shader = Shader::new("attention_one", include_str!("attention_one.wgsl"));
            shader.constant("KEY_VECTORS", depth / lanes).constant("VALUE_VECTORS", width / lanes);
            // All threads are of one row.
            shader.constant("LANES", TILE).code(&tree("greatest_of", "f32", "maximum"));
            shader.code(&tree("total_of", "f32", "sum_of"));
            shader
        }
    };
    shader.constant("DEPTH", depth).constant("WIDTH", width).constant("SPAN", cut.span);
    shader.constant("PARTS", TILE / cut.span).constant("RUNS", cut.runs());
    shader.constant("SPLITS", cut.splits);
    shader.constant("CAP", usize::from(op.cap > 0.0));
    shader.constant("BEFORE", usize::from(op.before.is_some())).constant("AFTER", usize::from(op.after.is_some()));
    shader.parameter("count", cut.groups()).parameter("blocks", cut.blocks);
    shader.parameter("heads", heads).parameter("group", heads / shared).parameter("length", queries);
    shader.parameter("capacity", capacity).parameter("known", bias.map_or(capacity, |(_, keys)| keys));
    shader.parameter("scale", op.scale.to_bits() as usize).parameter("cap", op.cap.to_bits() as usize);
    // No position is further away than the functions of `BOUNDED` say.
    let reach = |distance: Option<usize>| distance.unwrap_or(0).min(FARTHEST);
    shader.parameter("before", reach(op.before)).parameter("after", reach(op.after));
    let is_single = cut.lanes > 1;
    shader.read("queries", if is_single { "vec4<f32>" } else { "f32" }, recorder.input(0)?);
    read_stored(&mut shader, "key", recorder.input(1)?, stored, depth.is_multiple_of(4));
    read_stored(&mut shader, "value", recorder.input(2)?, stored, is_single);
    if !is_single {
        shader.code(if depth.is_multiple_of(4) { PRODUCTS_BY_FOUR } else { PRODUCTS });
    }
    shader.read("first", "vec2<u32>", recorder.input(3)?).read("filled", "vec2<u32>", recorder.input(4)?);
    shader.code(BOUNDED);
    match bias {
        None => {
            shader.code("fn summand(item: u32, list: u32, place: vec2<u32>, key: u32) -> f32 {\n    return 0.0;\n}\n")
        }
        Some((strides, _)) => {
            for (name, stride) in ["b0", "b1", "b2", "b3"].into_iter().zip(strides) {
                shader.parameter(name, stride);
            }
            shader.read("summands", "f32", recorder.input(5)?);
            shader.code(SUMMAND)
        }
    };
    if cut.splits == 1 {
        shader.write("out", "f32", recorder.output(0)?);
        shader.code(QUOTIENT).code(WHOLE);
        return recorder.dispatch(&shader, cut.groups());
    }
    shader.write("out", "f32", recorder.scratch()?).code(PART);
    recorder.dispatch(&shader, cut.groups())?;
    let mut sum = Shader::new("attention_sum", include_str!("attention_sum.wgsl"));
    let count = cut.rows() * width;
    sum.constant("WIDTH", width).constant("SPLITS", cut.splits).parameter("count", count);
    sum.read("parts", "f32", recorder.scratch()?).write("out", "f32", recorder.output(0)?).code(QUOTIENT);
    recorder.dispatch_each(&sum, count)
}

/// Declares the array `NAMEs`, and the function `NAME_at` that returns one of its elements, or four.
fn read_stored<'a>(shader: &mut Shader<'a>, name: &str, buffer: &'a wgpu::Buffer, stored: DType, by_four: bool) {
    let (array, function) = (format!("{name}s"), format!("{name}_at"));
    let (element, code) = match by_four {
        true if stored.size() == 4 => ("vec4<f32>", stored::four_values(&function, &array, stored)),
        true => ("vec2<u32>", stored::four_values(&function, &array, stored)),
        false => ("u32", stored::value(&function, &array, stored)),
    };
    shader.read(array, element, buffer).code(&code);
}

const PRODUCTS: &str = "fn products_with(base: u32) -> vec4<f32> {
    var products = vec4<f32>(0.0);
    for (var i = 0u; i < DEPTH; i = i + 1u) {
        products = products + chosen[i] * key_at(base + i);
    }
    return products;
}
";

/// Reads four features at once.
const PRODUCTS_BY_FOUR: &str = "fn products_with(base: u32) -> vec4<f32> {
    var products = vec4<f32>(0.0);
    for (var i = 0u; i < DEPTH; i = i + 4u) {
        let key = key_at((base + i) / 4u);
        products = products + chosen[i] * key.x;
        products = products + chosen[i + 1u] * key.y;
        products = products + chosen[i + 2u] * key.z;
        products = products + chosen[i + 3u] * key.w;
    }
    return products;
}
";

const SUMMAND: &str = "fn summand(item: u32, list: u32, place: vec2<u32>, key: u32) -> f32 {
    let head = list * parameters.group + place.x;
    let line = item * parameters.b0 + head * parameters.b1 + place.y * parameters.b2;
    return summands[line + key * parameters.b3];
}
";

/// Writes a result that one group has computed.
const WHOLE: &str = "fn finish(row: u32, part: u32, column: u32, sum: f32, peak: f32, total: f32) {
    out[row * WIDTH + column] = quotient_of_sums(sum, total, peak);
}
";

/// Writes a part of a result.
const PART: &str = "fn finish(row: u32, part: u32, column: u32, sum: f32, peak: f32, total: f32) {
    let base = (row * SPLITS + part) * (WIDTH + 2u);
    if column == 0u {
        out[base] = peak;
        out[base + 1u] = total;
    }
    out[base + 2u + column] = sum;
}
";

#[cfg(test)]
mod tests {
    use super::super::testing::{Run, assert_close, check, check_run, gpu, narrow, noise, spec, tensor};
    use super::*;
    use anabranch_kernel_testing as testing;
    use anabranch_op::op::Op;
    use anabranch_op::tensor::Tensor;

    /// A case: sizes `[batch, heads, shared, queries, capacity, depth, width]`, and each row's number of keys.
    struct Case {
        op: Attention,
        sizes: [usize; 7],
        filled: Vec<i64>,
        bias: Option<[usize; 4]>,
        stored: DType,
    }

    const PLAIN: Attention = Attention { scale: 0.4, cap: 0.0, before: None, after: Some(0), bias: false, expected: 1 };

    impl Case {
        fn new(op: Attention, sizes: [usize; 7], filled: &[i64]) -> Self {
            Self { op, sizes, filled: filled.to_vec(), bias: None, stored: DType::F32 }
        }

        fn inputs(&self) -> Vec<Tensor> {
            let [batch, heads, shared, queries, capacity, depth, width] = self.sizes;
            let made = |seed, dims: &[usize]| tensor(dims, &noise(seed, dims.iter().product()));
            let kept = |seed, dims: &[usize]| {
                let values = noise(seed, dims.iter().product());
                testing::tensor(self.stored, dims, |at| f64::from(values[at]))
            };
            let first: Vec<i64> = self.filled.iter().map(|filled| filled - queries as i64).collect();
            let mut inputs = vec![
                made(1, &[batch, heads, queries, depth]),
                kept(2, &[batch, shared, capacity, depth]),
                kept(3, &[batch, shared, capacity, width]),
                Tensor::from_i64s(&first),
                Tensor::from_i64s(&self.filled),
            ];
            inputs.extend(self.bias.map(|dims| {
                let summands = noise(4, dims.iter().product());
                let left_out = |(at, x): (usize, f32)| if at.is_multiple_of(5) { f32::NEG_INFINITY } else { x };
                tensor(&dims, &summands.into_iter().enumerate().map(left_out).collect::<Vec<_>>())
            }));
            inputs
        }

        fn node(&self) -> NodeSpec {
            let [batch, heads, _, queries, _, _, width] = self.sizes;
            let inputs = self.inputs().iter().map(|input| input.spec().clone()).collect();
            let op = Attention { bias: self.bias.is_some(), ..self.op.clone() };
            NodeSpec { op: Op::Attention(op), inputs, outputs: vec![spec(&[batch, queries, heads, width])] }
        }

        fn check(&self) {
            check(&self.node(), &self.inputs());
        }
    }

    #[test]
    fn queries_see_the_keys_of_their_row_alone() {
        // Sizes around a tile of 256 keys, four queries and powers of two; lengths from none to all.
        for sizes in [
            [1, 1, 1, 1, 1, 1, 1],
            [2, 3, 1, 1, 300, 64, 64],
            [1, 4, 4, 5, 256, 16, 7],
            [2, 6, 2, 3, 257, 80, 100],
            [1, 2, 2, 37, 40, 8, 16],
            [1, 1, 1, 2, 700, 5, 300],
            [1, 8, 2, 1, 2000, 32, 32],
            // Two parts of three and two tiles.
            [4, 16, 16, 16, 1100, 8, 8],
        ] {
            let [batch, _, _, queries, capacity, ..] = sizes;
            for least in [0, 1, capacity / 2, capacity] {
                let filled: Vec<i64> =
                    (0..batch).map(|row| (least.max(queries * row) as i64).min(capacity as i64)).collect();
                Case::new(PLAIN, sizes, &filled).check();
            }
        }
    }

    #[test]
    fn one_query_sees_any_number_of_keys_of_any_cache() {
        // Heads 1, odd and shared; features of a key and of a value.
        let heads = [[1, 1], [3, 1], [6, 2], [5, 5], [16, 2]];
        let features = [[1, 1], [32, 32], [33, 33], [80, 128], [128, 80], [2, 33]];
        let capacity = TILE + 44;
        let lengths = [0, 1, TILE - 1, TILE, TILE + 1, capacity];
        let windows = [None, None, Some(0), Some(40), Some(TILE)];
        let mut drawn = noise(9, 256).into_iter().map(|x| ((x + 1.0) * 4096.0) as usize);
        let mut any = |count: usize| drawn.next().expect("as many") % count;
        for stored in [DType::F32, DType::F16, DType::BF16] {
            for [depth, width] in features {
                let [heads, shared] = heads[any(5)];
                let filled: Vec<i64> = (0..3).map(|_| lengths[any(6)] as i64).collect();
                let op = Attention { before: windows[any(5)], ..PLAIN };
                let sizes = [filled.len(), heads, shared, 1, capacity, depth, width];
                Case { stored, ..Case::new(op, sizes, &filled) }.check();
            }
            for length in lengths {
                let [heads, shared] = heads[any(5)];
                let case = Case::new(PLAIN, [1, heads, shared, 1, capacity, 8, 6], &[length as i64]);
                Case { stored, ..case }.check();
            }
        }
    }

    #[test]
    fn a_single_query_takes_vectors_of_features() {
        // Heads, features of a key and of a value: one run over the features of a value, and several.
        for [heads, depth, width] in [[1, 4, 4], [3, 80, 128], [2, 128, 12], [1, 8, 1028]] {
            let capacity = 2 * TILE + 9;
            for stored in [DType::F32, DType::F16, DType::BF16] {
                let op = Attention { before: (depth == 80).then_some(290), ..PLAIN };
                let sizes = [2, heads, heads, 1, capacity, depth, width];
                let case = Case { stored, ..Case::new(op, sizes, &[capacity as i64, 255]) };
                let cut = Cut::new(case.node().attention_sizes().expect("sizes"));
                assert_eq!((cut.lanes, cut.runs()), (4, width.div_ceil(4 * TILE)));
                case.check();
            }
            let op = Attention { cap: 3.0, ..PLAIN };
            let sizes = [2, heads, heads, 1, capacity, depth, width];
            for bias in [[1, 1, 1, 1], [2, heads, 1, capacity], [1, heads, 1, 300]] {
                Case { bias: Some(bias), ..Case::new(op.clone(), sizes, &[capacity as i64, 0]) }.check();
            }
        }
        // One part of one tile, one of four, and two of two.
        for (batch, heads, capacity, splits) in [(1, 3, 200, 1), (16, 32, 3 * TILE + 9, 1), (16, 16, 3 * TILE + 9, 2)] {
            let op = Attention { after: None, ..PLAIN };
            let filled: Vec<i64> = (0..batch as i64).map(|row| (row * 67 + 61) % capacity as i64).collect();
            let case = Case::new(op, [batch, heads, heads, 1, capacity, 8, 8], &filled);
            let cut = Cut::new(case.node().attention_sizes().expect("sizes"));
            assert_eq!((cut.lanes, cut.splits), (4, splits));
            case.check();
        }
        for [depth, width] in [[6, 8], [8, 6]] {
            let sizes = Case::new(PLAIN, [1, 1, 1, 1, 9, depth, width], &[9]).node().attention_sizes();
            assert_eq!(Cut::new(sizes.expect("sizes")).lanes, 1, "vectors do not make up all features");
        }
    }

    #[test]
    fn windows_caps_and_summands_follow_the_cpu() {
        let sizes = [2, 4, 2, 6, 530, 24, 40];
        for (before, after) in
            [(None, None), (Some(0), Some(0)), (Some(90), Some(0)), (Some(3), Some(7)), (None, Some(300))]
        {
            for cap in [0.0, 3.0] {
                let op = Attention { before, after, cap, ..PLAIN };
                Case::new(op.clone(), sizes, &[530, 77]).check();
                for bias in [[1, 1, 1, 1], [2, 4, 6, 530], [2, 1, 6, 100], [1, 4, 1, 300]] {
                    Case { bias: Some(bias), ..Case::new(op.clone(), sizes, &[530, 260]) }.check();
                }
            }
        }
    }

    #[test]
    fn many_groups_take_two_dimensions_and_one_part() {
        let case = Case::new(PLAIN, [2, 8, 8, 140, 300, 8, 8], &[300, 140]);
        assert_eq!(Cut::new(case.node().attention_sizes().expect("sizes")).splits, 1);
        check_run(Run { gpu: narrow(), ..Run::new(&case.node()) }, &case.inputs());
    }

    #[test]
    fn a_query_without_keys_is_zero_and_lost_scores_are_not_numbers() {
        // One part of the keys, and several; heads that share keys, and heads that do not.
        for (capacity, shared) in [(9, 1), (600, 1), (9, 2), (600, 2)] {
            let sizes = [1, 2, shared, 1, capacity, 4, 4];
            let case = Case { bias: Some([1, 1, 1, 1]), ..Case::new(PLAIN, sizes, &[capacity as i64]) };
            let mut inputs = case.inputs();
            for (summand, want) in [(f32::NEG_INFINITY, 0.0), (f32::INFINITY, f32::NAN), (f32::NAN, f32::NAN)] {
                inputs[5] = tensor(&[1, 1, 1, 1], &[summand]);
                let made = Run { expected: None, ..Run::new(&case.node()) }.outputs(&inputs).expect("runs");
                assert_close(&made[0], &[want; 8], "all keys alike");
            }
        }
    }

    #[test]
    fn lengths_beyond_the_capacity_read_nothing_outside() {
        for [shared, queries] in [[1, 2], [2, 1]] {
            check_lengths(&Case::new(PLAIN, [1, 2, shared, queries, 9, 4, 4], &[9]));
        }
    }

    fn check_lengths(case: &Case) {
        let mut whole = case.inputs();
        whole[3] = Tensor::from_i64s(&[1 << 29]);
        let want = Run::new(&case.node()).outputs(&whole).expect("runs");
        for bad in [10, 1 << 31, 1 << 32, i64::MAX] {
            let mut inputs = case.inputs();
            (inputs[3], inputs[4]) = (Tensor::from_i64s(&[bad.max(1 << 29)]), Tensor::from_i64s(&[bad]));
            assert_eq!(Run::new(&case.node()).outputs(&inputs).expect("runs"), want, "{bad}");
        }
        for bad in [-1, i64::MIN, -(1 << 32)] {
            let mut inputs = case.inputs();
            inputs[4] = Tensor::from_i64s(&[bad]);
            let made = &Run::new(&case.node()).outputs(&inputs).expect("runs")[0];
            assert!(made.iter().all(|x| *x == 0.0), "{bad}");
        }
    }

    #[test]
    fn what_has_no_kernel_is_refused() {
        let wide = Case::new(PLAIN, [1, 1, 1, 1, 2, 1000, 4], &[2]).node();
        let refused = crate::gpu::supports(&wide, &[false; 5], gpu().facts());
        assert!(matches!(refused, Err(KernelError::Unsupported { .. })), "{refused:?}");
    }
}
