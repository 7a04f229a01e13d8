//! Transposed convolution over one or two axes.

use super::conv::{Parts, convolved};
use super::window::{Window, plane, sizes};
use super::{Builder, Entry, Fault, Operator, View};
use anabranch_kernels::op::{ConvTranspose, Op};

pub(super) const TABLE: &[Entry] = &[("ConvTranspose", conv_transpose)];

fn conv_transpose(operator: &Operator<'_>, builder: &mut Builder) -> Result<Vec<View>, Fault> {
    let Parts { x, weights, mut window, group } = Parts::read(operator)?;
    if x.dims()[1] != weights.dims()[0] || !x.dims()[1].is_multiple_of(group) {
        let (channels, rows) = (x.dims()[1], weights.dims()[0]);
        return Err(Fault::invalid(format!("{channels} channels in {group} groups, weights for {rows} channels")));
    }
    let size = output_plane(operator, &mut window, plane(x)?)?;
    let filters = weights.dims()[1].checked_mul(group).ok_or_else(|| Fault::invalid(format!("{group} groups")))?;
    let Window { strides, pads, dilations, .. } = window;
    convolved(operator, builder, &window, filters, size, |epilogue| {
        Op::ConvTranspose(ConvTranspose { strides, pads, dilations, group, epilogue })
    })
}

/// Rows and columns of the output. Where the output's size is asked for, by number or as the input's times the stride,
/// the border is chosen to reach it.
fn output_plane(operator: &Operator<'_>, window: &mut Window, input: [usize; 2]) -> Result<[usize; 2], Fault> {
    let extra = sizes(operator, "output_padding", window.axes, 0)?.unwrap_or([0; 2]);
    let extra = if window.axes == 1 { [0, extra[1]] } else { extra };
    let asked = asked_size(operator, window, input)?;
    let mut output = [0; 2];
    for axis in 0..2 {
        if extra[axis] >= window.strides[axis].max(window.dilations[axis]) {
            let expected = "smaller than the stride or the dilation";
            return Err(Fault::attribute("output_padding", extra, expected));
        }
        let full = (input[axis].saturating_sub(1).checked_mul(window.strides[axis]))
            .and_then(|reach| reach.checked_add(window.extent(axis).ok()?))
            .and_then(|reach| reach.checked_add(extra[axis]))
            .ok_or_else(|| Fault::invalid(format!("{} elements at strides of {:?}", input[axis], window.strides)))?;
        if let Some(asked) = asked {
            window.set_border(axis, full.saturating_sub(asked[axis]));
            output[axis] = asked[axis];
        } else {
            let (before, after) = (window.pads[axis], window.pads[axis + 2]);
            let left = full.checked_sub(before).and_then(|left| left.checked_sub(after)).filter(|left| *left > 0);
            output[axis] = left.ok_or_else(|| {
                Fault::invalid(format!("nothing is left of {full} elements when {before} and {after} are cut"))
            })?;
        }
    }
    Ok(output)
}

fn asked_size(operator: &Operator<'_>, window: &Window, input: [usize; 2]) -> Result<Option<[usize; 2]>, Fault> {
    if let Some(shape) = sizes(operator, "output_shape", window.axes, 1)? {
        return Ok(Some(shape));
    }
    if !window.keeps_size() {
        return Ok(None);
    }
    let times = |axis: usize| {
        let size = input[axis].checked_mul(window.strides[axis]);
        size.ok_or_else(|| Fault::invalid(format!("{} elements at strides of {:?}", input[axis], window.strides)))
    };
    Ok(Some([if window.axes == 1 { 1 } else { times(0)? }, times(1)?]))
}
