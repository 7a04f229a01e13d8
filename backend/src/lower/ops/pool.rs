//! Pooling over windows of one or two axes, or over all of them.

use super::window::{Window, as_plane, output_dims, plane};
use super::{Builder, Entry, Fault, Operator, View};
use anabranch_kernels::op::{Op, Pool, PoolKind, ReduceKind};
use anabranch_kernels::{DType, Shape, TensorSpec};

pub(super) const TABLE: &[Entry] = &[
    ("MaxPool", max_pool),
    ("AveragePool", average_pool),
    ("GlobalMaxPool", |o, b| global(o, b, ReduceKind::Max)),
    ("GlobalAveragePool", |o, b| global(o, b, ReduceKind::Mean)),
];

fn max_pool(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    operator.only_outputs(1, "Indices")?;
    pool(operator, builder, PoolKind::Max)
}

fn average_pool(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    operator.float_input(0)?;
    let count_padding = operator.flag("count_include_pad", false)?;
    pool(operator, builder, PoolKind::Average { count_padding })
}

fn pool(operator: &Operator<'_>, builder: &mut Builder, kind: PoolKind) -> Result<Vec<View>, Fault> {
    let x = operator.number(0)?;
    let mut window = Window::read(operator, x, None)?;
    window.resolve(plane(x)?)?;
    for axis in 0..2 {
        if window.pads[axis].max(window.pads[axis + 2]) >= window.extent(axis)?.max(1) {
            return Err(Fault::attribute("pads", window.pads, "smaller than the window"));
        }
    }
    let size = window.output(plane(x)?, operator.flag("ceil_mode", false)?)?;
    let dims = output_dims(&window, x.dims()[0], x.dims()[1], size);
    let input = as_plane(&builder.as_f32(x)?)?;
    let Window { kernel, strides, pads, dilations, .. } = window;
    let op = Op::Pool(Pool { kind, window: kernel, strides, pads, dilations });
    let output = TensorSpec::new(DType::F32, Shape::new(vec![x.dims()[0], x.dims()[1], size[0], size[1]])?);
    let result = builder.emit_one(op, &[input], output)?.reshaped(dims)?;
    Ok(vec![builder.cast(&result, x.dtype())?])
}

fn global(operator: &Operator<'_>, builder: &mut Builder, kind: ReduceKind) -> Result<Vec<View>, Fault> {
    operator.float_input(0)?;
    let x = operator.ranked(0, 3)?;
    let axes: Vec<_> = (2..x.rank()).collect();
    Ok(vec![builder.reduced(x, kind, &axes)?])
}
