//! Convolution of 8-bit integers over three axes: the sum of convolutions of planes, one for each element of the window
//! along the depth. All sums are exact modulo 2³².

use super::conv::check_channels;
use super::integer::{Centred, bordered, of_planes};
use super::window::Window;
use super::{Builder, Fault, Operator, View};
use anabranch_kernels::DType;
use anabranch_kernels::op::{Domain, PadMode};

/// Returns the convolution of volumes, plus a number for each filter.
pub(super) fn over_volume(
    operator: &Operator<'_>,
    builder: &mut Builder,
    x: &Centred,
    weights: &Centred,
    bias: Option<&View>,
) -> Result<View, Fault> {
    let group = operator.size("group", 1, 1)?;
    let &[images, channels, depth, rows, columns] = x.numbers.dims() else { return Err(Fault::missing(0)) };
    let &[filters, in_each, taps, high, wide] = weights.numbers.dims() else { return Err(Fault::missing(1)) };
    check_channels(channels, in_each, filters, group)?;
    let [mut across, mut along] = Window::read_volume(operator, Some(&[taps, high, wide]))?;
    across.resolve([rows, columns])?;
    along.resolve([depth, 1])?;
    let [made_depth, _] = along.output([depth, 1], false)?;
    let [made_rows, made_columns] = across.output([rows, columns], false)?;
    Builder::require_few(taps, "planes of a window")?;
    let stack = stacked(builder, x, &along)?;
    let (mut sum, mut bias) = (None, bias);
    for tap in 0..taps {
        let starts = vec![0, tap * along.dilations[0], 0, 0, 0];
        let steps = vec![1, along.strides[0] as isize, 1, 1, 1];
        let read = builder.sliced(&stack, starts, steps, vec![images, made_depth, channels, rows, columns])?;
        let read = read.reshaped(vec![images.saturating_mul(made_depth), channels, rows, columns])?;
        let taken = builder.part(&weights.numbers, 2, tap, 1)?.reshaped(vec![filters, in_each, high, wide])?;
        let planes = Centred { numbers: read, zero_point: x.zero_point.clone() };
        let taken = Centred { numbers: taken, zero_point: weights.zero_point.clone() };
        let part = of_planes(builder, [&planes, &taken], &across, group, bias.take())?;
        sum = Some(match sum {
            None => part,
            Some(sum) => builder.map(Domain::I64, [&sum, &part], DType::I32, |[sum, part]| sum + part)?,
        });
    }
    let sum: View = sum.ok_or_else(|| Fault::invalid("a window without elements"))?;
    let sum = sum.reshaped(vec![images, made_depth, filters, made_rows, made_columns])?;
    builder.transposed(&sum, &[0, 2, 1, 3, 4])
}

/// Returns the volumes with the depth before the channels, so that planes are images, and with its border.
fn stacked(builder: &mut Builder, x: &Centred, along: &Window) -> Result<View, Fault> {
    let moved = builder.transposed(&x.numbers, &[0, 2, 1, 3, 4])?;
    let [before, _, after, _] = along.pads;
    if let Some(zero) = &x.zero_point {
        return bordered(builder, &moved, zero, &[(1, before, after)]);
    }
    let mut dims = moved.dims().to_vec();
    dims[1] = dims[1].saturating_add(before).saturating_add(after);
    builder.padded(&moved, PadMode::ZERO, vec![0, before as isize, 0, 0, 0], dims)
}
