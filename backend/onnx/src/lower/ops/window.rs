//! The sliding windows of convolutions and pools: their checked attributes, and the resulting output sizes.

use super::{Fault, Operator, View};

/// A window over one or two axes. One axis is read as the second of two.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Window {
    /// Number of axes along which the operator slides: 1 or 2.
    pub(super) axes: usize,
    pub(super) kernel: [usize; 2],
    /// Step in rows and columns.
    pub(super) strides: [usize; 2],
    /// Distance of the window's elements in rows and columns.
    pub(super) dilations: [usize; 2],
    /// Border above, left, below, right.
    pub(super) pads: [usize; 4],
    pub(super) auto_pad: AutoPad,
}

/// Choice of the border.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AutoPad {
    /// The border is given.
    Explicit,
    /// There is no border.
    Valid,
    /// The output has the input's size over the stride; an odd element goes after.
    SameUpper,
    /// The output has the input's size over the stride; an odd element goes before.
    SameLower,
}

impl AutoPad {
    fn read(operator: &Operator<'_>) -> Result<Self, Fault> {
        match operator.string("auto_pad", "NOTSET")? {
            "NOTSET" | "" => Ok(Self::Explicit),
            "VALID" => Ok(Self::Valid),
            "SAME_UPPER" => Ok(Self::SameUpper),
            "SAME_LOWER" => Ok(Self::SameLower),
            other => Err(Fault::attribute("auto_pad", other, "NOTSET, VALID, SAME_UPPER or SAME_LOWER")),
        }
    }
}

impl Window {
    /// Reads the operator's window over the axes of `x` after batch and channel. `kernel` is the window's size if a
    /// tensor of weights gives it; otherwise the attribute must.
    pub(super) fn read(operator: &Operator<'_>, x: &View, kernel: Option<&[usize]>) -> Result<Self, Fault> {
        let axes = spatial_axes(x)?;
        let kernel = match (kernel, sizes(operator, "kernel_shape", axes, 1)?) {
            (Some(kernel), None) => lifted(kernel, 1)?,
            (Some(kernel), Some(given)) if lifted(kernel, 1)? == given => given,
            (Some(kernel), Some(given)) => {
                return Err(Fault::attribute("kernel_shape", given, format!("the weights' {kernel:?}")));
            }
            (None, given) => given.ok_or_else(|| Fault::attribute("kernel_shape", (), "there"))?,
        };
        if kernel.contains(&0) {
            return Err(Fault::invalid(format!("a window of {kernel:?} elements")));
        }
        let strides = sizes(operator, "strides", axes, 1)?.unwrap_or([1; 2]);
        let dilations = sizes(operator, "dilations", axes, 1)?.unwrap_or([1; 2]);
        let auto_pad = AutoPad::read(operator)?;
        let mut window = Self { axes, kernel, strides, dilations, pads: [0; 4], auto_pad };
        for axis in 0..2 {
            window.extent(axis)?;
        }
        if auto_pad == AutoPad::Explicit {
            window.pads = pads(operator, axes)?.unwrap_or([0; 4]);
        }
        Ok(window)
    }

    /// Reads the windows of an operator over three axes: across the last two, and along the first, whose neighbours are
    /// planes read as rows. `kernel` is the size if a tensor of weights gives it.
    pub(super) fn read_volume(operator: &Operator<'_>, kernel: Option<&[usize]>) -> Result<[Self; 2], Fault> {
        let list = |name: &str, length: usize, least: i64, default: usize| {
            let given = operator.node.sizes(name, length, least..=i64::MAX)?;
            Ok::<_, Fault>(given.unwrap_or_else(|| vec![default; length]))
        };
        let given = list("kernel_shape", 3, 1, 0)?;
        let size = kernel.map_or(given.clone(), <[usize]>::to_vec);
        if size.len() != 3 || size.contains(&0) || (!given.contains(&0) && given != size) {
            return Err(Fault::attribute("kernel_shape", given, "the window's size along three axes"));
        }
        let (strides, dilations) = (list("strides", 3, 1, 1)?, list("dilations", 3, 1, 1)?);
        let auto_pad = AutoPad::read(operator)?;
        let pads = if auto_pad == AutoPad::Explicit { list("pads", 6, 0, 0)? } else { vec![0; 6] };
        let across = Self {
            axes: 2,
            kernel: [size[1], size[2]],
            strides: [strides[1], strides[2]],
            dilations: [dilations[1], dilations[2]],
            pads: [pads[1], pads[2], pads[4], pads[5]],
            auto_pad,
        };
        let along = Self {
            axes: 2,
            kernel: [size[0], 1],
            strides: [strides[0], 1],
            dilations: [dilations[0], 1],
            pads: [pads[0], 0, pads[3], 0],
            auto_pad,
        };
        for window in [&across, &along] {
            (0..2).try_for_each(|axis| window.extent(axis).map(|_| ()))?;
        }
        Ok([across, along])
    }

    /// Returns the elements from the window's first to its last along an axis.
    pub(super) fn extent(&self, axis: usize) -> Result<usize, Fault> {
        let (kernel, dilation) = (self.kernel[axis], self.dilations[axis]);
        let extent = (kernel - 1).checked_mul(dilation).and_then(|extent| extent.checked_add(1));
        extent
            .filter(|extent| *extent <= isize::MAX as usize)
            .ok_or_else(|| Fault::invalid(format!("a window of {kernel} elements at a distance of {dilation}")))
    }

    /// Sets the border that `auto_pad` requests, for these rows and columns of the input.
    pub(super) fn resolve(&mut self, input: [usize; 2]) -> Result<(), Fault> {
        if !self.keeps_size() {
            return Ok(());
        }
        for (axis, size) in input.into_iter().enumerate().skip(2 - self.axes) {
            let steps = size.div_ceil(self.strides[axis]).saturating_sub(1);
            let reach = steps.saturating_mul(self.strides[axis]).saturating_add(self.extent(axis)?);
            self.set_border(axis, reach.saturating_sub(size));
        }
        Ok(())
    }

    /// Whether the border is chosen so that the output has the input's size over the stride.
    pub(super) fn keeps_size(&self) -> bool {
        matches!(self.auto_pad, AutoPad::SameUpper | AutoPad::SameLower)
    }

    /// Divides a border along an axis; an odd element goes before, or after for [`AutoPad::SameUpper`].
    pub(super) fn set_border(&mut self, axis: usize, total: usize) {
        let (less, upper) = (total / 2, self.auto_pad == AutoPad::SameUpper);
        let (before, after) = if upper { (less, total - less) } else { (total - less, less) };
        (self.pads[axis], self.pads[axis + 2]) = (before, after);
    }

    /// Widens the border after the input so that all windows of an output of this size end within it.
    pub(super) fn hold_all(&mut self, input: [usize; 2], size: [usize; 2]) -> Result<(), Fault> {
        for axis in 0..2 {
            let last = size[axis].saturating_sub(1).saturating_mul(self.strides[axis]);
            let reach = last.saturating_add(self.extent(axis)?);
            let after = reach.saturating_sub(input[axis].saturating_add(self.pads[axis]));
            self.pads[axis + 2] = self.pads[axis + 2].max(after);
        }
        Ok(())
    }

    /// Whether the border is narrower than the window, so that each window holds an element of the input.
    pub(super) fn is_within(&self) -> Result<bool, Fault> {
        let mut within = true;
        for axis in 0..2 {
            within &= self.pads[axis].max(self.pads[axis + 2]) < self.extent(axis)?;
        }
        Ok(within)
    }

    /// Returns rows and columns of the output: 0 if exactly a step is missing to the first window.
    ///
    /// With `partial`, a last window that starts within the input or the border before it counts even if it ends
    /// beyond.
    pub(super) fn output(&self, input: [usize; 2], partial: bool) -> Result<[usize; 2], Fault> {
        let mut output = [0; 2];
        for axis in 0..2 {
            let (before, after, stride) = (self.pads[axis], self.pads[axis + 2], self.strides[axis]);
            let padded = input[axis].checked_add(before).and_then(|size| size.checked_add(after));
            if padded.and_then(|padded| padded.checked_add(stride)) == Some(self.extent(axis)?) {
                continue;
            }
            let free = padded.and_then(|padded| padded.checked_sub(self.extent(axis).ok()?));
            let free = free.ok_or_else(|| {
                let (kernel, dilation) = (self.kernel[axis], self.dilations[axis]);
                Fault::invalid(format!(
                    "a window of {kernel} elements (dilation {dilation}) does not fit {} with a border of {before} and \
                     {after}",
                    input[axis]
                ))
            })?;
            let steps = if partial { free.div_ceil(stride) } else { free / stride };
            let begins_outside = steps.saturating_mul(stride) >= input[axis].saturating_add(before);
            output[axis] = if partial && steps > 0 && begins_outside { steps } else { steps + 1 };
        }
        Ok(output)
    }
}

/// Returns the number of axes after batch and channel, if there are kernels for it.
pub(super) fn spatial_axes(x: &View) -> Result<usize, Fault> {
    match x.rank().checked_sub(2) {
        Some(axes @ 1..=2) => Ok(axes),
        Some(axes @ 3..) => Err(Fault::unsupported(format!("windows over {axes} axes; 1 and 2 axes are supported"))),
        _ => Err(Fault::invalid(format!("an input of shape {} without batch, channel and further axes", x.shape()))),
    }
}

/// Returns rows and columns of `[n, c, …]`.
pub(super) fn plane(x: &View) -> Result<[usize; 2], Fault> {
    lifted(x.dims().get(2..).unwrap_or_default(), 1)
}

/// Returns `[n, c, w]` as `[n, c, 1, w]`; four dimensions stay unchanged.
pub(super) fn as_plane(x: &View) -> Result<View, Fault> {
    let [rows, columns] = plane(x)?;
    x.reshaped(vec![x.dims()[0], x.dims()[1], rows, columns])
}

/// Returns the dimensions of an output of the operator, without the axis that was added to a single axis.
pub(super) fn output_dims(window: &Window, n: usize, channels: usize, [rows, columns]: [usize; 2]) -> Vec<usize> {
    if window.axes == 1 { vec![n, channels, columns] } else { vec![n, channels, rows, columns] }
}

/// Returns a list of `axes` sizes ≥ `least` as two sizes; an added size is 1.
pub(super) fn sizes(
    operator: &Operator<'_>,
    name: &'static str,
    axes: usize,
    least: i64,
) -> Result<Option<[usize; 2]>, Fault> {
    operator.node.sizes(name, axes, least..=i64::MAX)?.map(|sizes| lifted(&sizes, 1)).transpose()
}

/// Returns the border: for each axis the elements before, then for each axis the elements after.
pub(super) fn pads(operator: &Operator<'_>, axes: usize) -> Result<Option<[usize; 4]>, Fault> {
    let Some(values) = operator.node.ints("pads")? else { return Ok(None) };
    let sizes: Vec<_> = values.iter().filter_map(|value| usize::try_from(*value).ok()).collect();
    match (axes, &sizes[..]) {
        _ if sizes.len() != values.len() => {}
        (1, &[left, right]) => return Ok(Some([0, left, 0, right])),
        (2, &[top, left, bottom, right]) => return Ok(Some([top, left, bottom, right])),
        _ => {}
    }
    Err(Fault::attribute("pads", values, format!("{} numbers of at least 0", 2 * axes)))
}

fn lifted(sizes: &[usize], added: usize) -> Result<[usize; 2], Fault> {
    match *sizes {
        [columns] => Ok([added, columns]),
        [rows, columns] => Ok([rows, columns]),
        _ => Err(Fault::unsupported(format!("windows over {} axes; 1 and 2 axes are supported", sizes.len()))),
    }
}
