//! Pools whose border is as wide as their windows, or whose last windows are whole although they end beyond it: the
//! program makes the border.

use super::window::{Window, plane};
use super::{Builder, Fault, View, domain_of};
use anabranch_kernels::op::{Op, PadMode, Pool, PoolKind};
use anabranch_kernels::{Shape, TensorSpec};
use std::slice::from_ref;

/// Pools images of one element type by a window that lies within the border.
pub(super) fn emitted(
    builder: &mut Builder,
    image: &View,
    window: &Window,
    kind: PoolKind,
    size: [usize; 2],
) -> Result<View, Fault> {
    let &Window { kernel, strides, pads, dilations, .. } = window;
    let op = Op::Pool(Pool { kind, window: kernel, strides, pads, dilations });
    let dims = [image.dims()[0], image.dims()[1], size[0], size[1]];
    builder.emit_one(op, from_ref(image), TensorSpec::new(image.dtype(), Shape::new(dims)?))
}

/// Pools images by windows that may lie in the border alone.
///
/// Such a window has the greatest element −∞, and the mean 0, or 0 / 0 if the border does not count.
pub(super) fn pooled(
    builder: &mut Builder,
    image: &View,
    window: &Window,
    kind: PoolKind,
    size: [usize; 2],
) -> Result<View, Fault> {
    let inner = Window { pads: [0; 4], ..*window };
    let counted = PoolKind::Average { count_padding: true };
    match kind {
        PoolKind::Max => {
            let wide = bordered(builder, image, window, f64::NEG_INFINITY)?;
            emitted(builder, &wide, &inner, kind, size)
        }
        PoolKind::Average { count_padding: true } => {
            let wide = bordered(builder, image, window, 0.0)?;
            emitted(builder, &wide, &inner, kind, size)
        }
        PoolKind::Average { count_padding: false } => {
            let [rows, columns] = plane(image)?;
            let ones = TensorSpec::new(image.dtype(), Shape::new([1, 1, rows, columns])?);
            let ones = builder.filled(ones, 1.0)?;
            let [mean, share] = [image, &ones].map(|image| {
                let wide = bordered(builder, image, window, 0.0)?;
                emitted(builder, &wide, &inner, counted, size)
            });
            let (mean, share) = (mean?, share?);
            builder.map(domain_of(image.dtype()), [&mean, &share], image.dtype(), |[mean, share]| mean / share)
        }
    }
}

fn bordered(builder: &mut Builder, image: &View, window: &Window, fill: f64) -> Result<View, Fault> {
    let mut dims = image.dims().to_vec();
    for axis in 0..2 {
        let border = window.pads[axis].checked_add(window.pads[axis + 2]);
        let wide = border.and_then(|border| dims[2 + axis].checked_add(border));
        dims[2 + axis] = wide.ok_or_else(|| Fault::invalid("a border is too wide"))?;
    }
    let before = vec![0, 0, window.pads[0] as isize, window.pads[1] as isize];
    builder.padded(image, PadMode::Constant(fill.into()), before, dims)
}
