//! Deep residual networks by their layers' shapes (He 2016, table 1, with bottlenecks), for graphs of the paper's size without a
//! model file.

use crate::program::{NodeId, Origin, Output, Program, ValueId};
use anabranch_kernels::op::{
    Binary, Conv, Domain, Expression, Map, MatMul, Op, Pool, PoolKind, Reduce, ReduceKind, Register, Step, Unary,
};
use anabranch_kernels::shape::ShapeError;
use anabranch_kernels::{DType, Shape, TensorSpec};

/// Blocks of the four stages, by the number of layers.
const DEPTHS: [(u32, [usize; 4]); 3] = [(50, [3, 4, 6, 3]), (101, [3, 4, 23, 3]), (152, [3, 8, 36, 3])];

/// The network of 50, 101 or 152 layers for one image of 3×224×224, an operator a node: convolutions, batch normalisations as scale
/// and shift, activations, additions. Its weights are inputs, so that they take no memory. `None` for other depths.
pub fn residual_network(layers: u32) -> Option<Program> {
    let (_, blocks) = DEPTHS.iter().find(|(depth, _)| *depth == layers)?;
    Layers::default().network(blocks).ok()
}

/// The program so far.
#[derive(Default)]
struct Layers {
    program: Program,
}

/// A value of the network: an image of so many channels and pixels a side.
#[derive(Clone, Copy)]
struct Image {
    value: ValueId,
    channels: usize,
    side: usize,
}

impl Image {
    fn dims(self) -> [usize; 4] {
        [1, self.channels, self.side, self.side]
    }
}

impl Layers {
    fn network(mut self, blocks: &[usize; 4]) -> Result<Program, ShapeError> {
        let image = self.given("image", &[1, 3, 224, 224])?;
        let stem = self.convolution("conv1", Image { value: image, channels: 3, side: 224 }, 64, 7, 2)?;
        let stem = self.activation("conv1", stem)?;
        let pool = Pool { kind: PoolKind::Max, window: [3; 2], strides: [2; 2], pads: [1; 4], dilations: [1; 2] };
        let pooled = self.node("pool1", Op::Pool(pool), &[(stem.value, &stem.dims())], &[1, 64, 56, 56])?;
        let mut image = Image { value: pooled, channels: 64, side: 56 };
        for (stage, &count) in blocks.iter().enumerate() {
            for block in 0..count {
                let stride = if stage > 0 && block == 0 { 2 } else { 1 };
                image = self.bottleneck(&format!("conv{}_{}", stage + 2, block + 1), image, 64 << stage, stride)?;
            }
        }
        let mean = Op::Reduce(Reduce { kind: ReduceKind::Mean, axes: vec![2, 3] });
        let features = self.node("mean", mean, &[(image.value, &image.dims())], &[1, image.channels])?;
        let weights = self.given("classes weights", &[image.channels, 1000])?;
        let operands = [(features, &[1, image.channels][..]), (weights, &[image.channels, 1000])];
        let classes = self.node("classes", Op::MatMul(MatMul::default()), &operands, &[1, 1000])?;
        let spec = self.program.value(classes).spec.clone();
        self.program.outputs.push(Output { name: "classes".into(), value: classes, spec });
        Ok(self.program)
    }

    /// 1×1, 3×3 and 1×1 convolutions beside the way around them, which is a convolution where the shape changes.
    fn bottleneck(&mut self, name: &str, image: Image, width: usize, stride: usize) -> Result<Image, ShapeError> {
        let narrow = self.convolution(&format!("{name}.a"), image, width, 1, 1)?;
        let narrow = self.activation(&format!("{name}.a"), narrow)?;
        let middle = self.convolution(&format!("{name}.b"), narrow, width, 3, stride)?;
        let middle = self.activation(&format!("{name}.b"), middle)?;
        let wide = self.convolution(&format!("{name}.c"), middle, 4 * width, 1, 1)?;
        let around = match (image.channels, image.side) == (wide.channels, wide.side) {
            true => image,
            false => self.convolution(&format!("{name}.around"), image, 4 * width, 1, stride)?,
        };
        let dims = wide.dims();
        let operands = [(wide.value, &dims[..]), (around.value, &dims[..])];
        let add = map(Expression::binary(Binary::Add));
        let value = self.node(&format!("{name}.add"), add, &operands, &dims)?;
        self.activation(name, Image { value, ..wide })
    }

    /// A convolution and its normalisation.
    fn convolution(
        &mut self,
        name: &str,
        image: Image,
        channels: usize,
        size: usize,
        stride: usize,
    ) -> Result<Image, ShapeError> {
        let (strides, pads, dilations) = ([stride; 2], [size / 2; 4], [1; 2]);
        let op = Op::Conv(Conv { strides, pads, dilations, group: 1, epilogue: None });
        let dims = [channels, image.channels, size, size];
        let weights = self.given(&format!("{name} weights"), &dims)?;
        let made = Image { value: image.value, channels, side: image.side.div_ceil(stride) };
        let operands = [(image.value, &image.dims()[..]), (weights, &dims)];
        let value = self.node(name, op, &operands, &made.dims())?;
        let scale = self.given(&format!("{name} scale"), &[channels, 1, 1])?;
        let shift = self.given(&format!("{name} shift"), &[channels, 1, 1])?;
        let operands = [(value, &made.dims()[..]), (scale, &[channels, 1, 1]), (shift, &[channels, 1, 1])];
        let value = self.node(&format!("{name}.norm"), scale_and_shift(), &operands, &made.dims())?;
        Ok(Image { value, ..made })
    }

    fn activation(&mut self, name: &str, image: Image) -> Result<Image, ShapeError> {
        let relu = map(Expression::unary(Unary::Relu));
        let value = self.node(&format!("{name}.relu"), relu, &[(image.value, &image.dims())], &image.dims())?;
        Ok(Image { value, ..image })
    }

    fn given(&mut self, name: &str, dims: &[usize]) -> Result<ValueId, ShapeError> {
        Ok(self.program.add_input(name, spec(dims)?))
    }

    fn node(
        &mut self,
        name: &str,
        op: Op,
        operands: &[(ValueId, &[usize])],
        dims: &[usize],
    ) -> Result<ValueId, ShapeError> {
        let node = NodeId(self.program.nodes.len() as u32);
        let output = self.program.add_value(name, spec(dims)?, Origin::Node(node));
        let read = operands.iter().map(|(value, dims)| Ok((*value, spec(dims)?))).collect::<Result<_, _>>()?;
        self.program.add_node(name, op, read, output);
        Ok(output)
    }
}

fn spec(dims: &[usize]) -> Result<TensorSpec, ShapeError> {
    Ok(TensorSpec::new(DType::F32, Shape::new(dims)?))
}

fn map(expression: Expression) -> Op {
    Op::Map(Map { domain: Domain::F32, expression })
}

/// `x × scale + shift`, what batch normalisation is once it is trained.
fn scale_and_shift() -> Op {
    let steps = vec![
        Step::Binary(Binary::Multiply, Register(0), Register(1)),
        Step::Binary(Binary::Add, Register(3), Register(2)),
    ];
    // Both steps read registers before them.
    map(Expression::new(3, steps).unwrap_or_else(|_| Expression::identity()))
}
