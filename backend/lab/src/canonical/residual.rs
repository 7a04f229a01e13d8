//! Deep residual networks from the shapes of their layers (He 2016, table 1, with bottlenecks).
//!
//! They replace model files: their canonical graphs have the size of those in De Matteis et al. 2023.

use anabranch_ir::program::{Program, ValueId, floats, map};
use anabranch_kernels::op::{
    Binary, Conv, Expression, MatMul, Op, Pool, PoolKind, Reduce, ReduceKind, Register, Step, Unary,
};

/// Number of layers, and blocks of the four stages.
const DEPTHS: [(u32, [usize; 4]); 3] = [(50, [3, 4, 6, 3]), (101, [3, 4, 23, 3]), (152, [3, 8, 36, 3])];

/// Returns the network of 50, 101 or 152 layers for one image of 3×224×224; `None` for other depths.
///
/// It has one operator per node: convolutions, batch normalisations as scale and shift, activations, additions. Its
/// weights are inputs, so that they take no memory.
pub fn residual_network(layers: u32) -> Option<Program> {
    let (_, blocks) = DEPTHS.iter().find(|(depth, _)| *depth == layers)?;
    let mut network = Network(Program::default());
    let image = network.0.add_input("image", floats(&[1, 3, 224, 224]));
    let stem = network.convolution("conv1", image, 64, 7, 2);
    let stem = network.activation("conv1", stem);
    let pool = Pool { kind: PoolKind::Max, window: [3; 2], strides: [2; 2], pads: [1; 4], dilations: [1; 2] };
    let mut image = network.0.add_node("pool1", Op::Pool(pool), &[stem], floats(&[1, 64, 56, 56]));
    for (stage, &count) in blocks.iter().enumerate() {
        for block in 0..count {
            let stride = if stage > 0 && block == 0 { 2 } else { 1 };
            image = network.bottleneck(&format!("conv{}_{}", stage + 2, block + 1), image, 64 << stage, stride);
        }
    }
    let Network(mut program) = network;
    let mean = Op::Reduce(Reduce { kind: ReduceKind::Mean, axes: vec![2, 3] });
    let features = program.add_node("mean", mean, &[image], floats(&[1, 2048]));
    let weights = program.add_input("classes weights", floats(&[2048, 1000]));
    let product = Op::MatMul(MatMul::default());
    let classes = program.add_node("classes", product, &[features, weights], floats(&[1, 1000]));
    program.add_output("classes", classes);
    Some(program)
}

/// The program so far. All of its values except weights are square images of some channels.
struct Network(Program);

impl Network {
    /// Adds 1×1, 3×3 and 1×1 convolutions, and the shortcut around them, which is a convolution if the shape changes.
    fn bottleneck(&mut self, name: &str, image: ValueId, width: usize, stride: usize) -> ValueId {
        let narrow = self.convolution(&format!("{name}.a"), image, width, 1, 1);
        let narrow = self.activation(&format!("{name}.a"), narrow);
        let middle = self.convolution(&format!("{name}.b"), narrow, width, 3, stride);
        let middle = self.activation(&format!("{name}.b"), middle);
        let wide = self.convolution(&format!("{name}.c"), middle, 4 * width, 1, 1);
        let around = match self.0.value(image).spec == self.0.value(wide).spec {
            true => image,
            false => self.convolution(&format!("{name}.around"), image, 4 * width, 1, stride),
        };
        let sum = self.0.value(wide).spec.clone();
        let sum = self.0.add_node(format!("{name}.add"), map(Expression::binary(Binary::Add)), &[wide, around], sum);
        self.activation(name, sum)
    }

    /// Adds a convolution and its normalisation.
    fn convolution(&mut self, name: &str, image: ValueId, channels: usize, size: usize, stride: usize) -> ValueId {
        let given = self.0.value(image).spec.shape.dims();
        let (depth, side) = (given[1], given[2].div_ceil(stride));
        let made = floats(&[1, channels, side, side]);
        let (strides, pads, dilations) = ([stride; 2], [size / 2; 4], [1; 2]);
        let op = Op::Conv(Conv { strides, pads, dilations, group: 1, epilogue: None });
        let weights = self.0.add_input(format!("{name} weights"), floats(&[channels, depth, size, size]));
        let value = self.0.add_node(name, op, &[image, weights], made.clone());
        let scale = self.0.add_input(format!("{name} scale"), floats(&[channels, 1, 1]));
        let shift = self.0.add_input(format!("{name} shift"), floats(&[channels, 1, 1]));
        self.0.add_node(format!("{name}.norm"), scale_and_shift(), &[value, scale, shift], made)
    }

    fn activation(&mut self, name: &str, image: ValueId) -> ValueId {
        let made = self.0.value(image).spec.clone();
        self.0.add_node(format!("{name}.relu"), map(Expression::unary(Unary::Relu)), &[image], made)
    }
}

/// Returns `x × scale + shift`, the form of a trained batch normalisation.
fn scale_and_shift() -> Op {
    let steps = vec![
        Step::Binary(Binary::Multiply, Register(0), Register(1)),
        Step::Binary(Binary::Add, Register(3), Register(2)),
    ];
    // Cannot fail: both steps read only earlier registers.
    map(Expression::new(3, steps).unwrap_or_else(|_| Expression::identity()))
}
