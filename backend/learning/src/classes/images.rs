//! Probes for calibration: convolutions, pooling and resizing of images in the sizes that networks have.

use super::{Finish, Probe};
use anabranch_kernels::op::{
    Conv, ConvTranspose, Coordinates, Interpolation, NearestRounding, Op, Pool, PoolKind, Resize,
};

/// Channels, height and width; output channels; window; stride; groups; the operation on the result. Padding keeps the
/// size at stride 1.
type Layer = ([usize; 3], usize, usize, usize, usize, Finish);

use Finish::{Nothing, Relu, Silu};

/// Convolutions of three to many channels, with windows of 3 × 3 and larger, contiguous and dilated, and along one
/// axis.
pub(super) fn windows() -> Vec<Probe> {
    let layers: [Layer; 28] = [
        ([4, 24, 24], 4, 3, 1, 1, Nothing),
        ([3, 24, 24], 20, 6, 6, 1, Nothing),
        ([6, 15, 15], 10, 5, 1, 1, Relu),
        ([3, 18, 18], 14, 3, 1, 1, Relu),
        ([3, 36, 36], 12, 3, 2, 1, Silu),
        ([12, 18, 18], 24, 3, 2, 1, Nothing),
        ([1, 24, 24], 8, 5, 1, 1, Relu),
        ([32, 20, 20], 32, 3, 1, 1, Relu),
        ([48, 12, 12], 48, 3, 1, 1, Nothing),
        ([24, 32, 32], 24, 3, 1, 1, Relu),
        ([8, 12, 12], 16, 3, 1, 1, Relu),
        ([8, 24, 24], 16, 1, 2, 1, Relu),
        ([24, 16, 16], 24, 3, 1, 1, Relu),
        ([3, 64, 64], 16, 3, 2, 1, Relu),
        ([3, 112, 112], 32, 7, 2, 1, Relu),
        ([1, 28, 28], 16, 3, 1, 1, Relu),
        ([3, 32, 32], 32, 3, 1, 1, Nothing),
        ([3, 96, 96], 24, 3, 2, 1, Silu),
        ([4, 64, 64], 32, 3, 1, 1, Relu),
        ([16, 32, 32], 16, 3, 1, 1, Nothing),
        ([16, 96, 96], 16, 3, 1, 1, Relu),
        ([8, 28, 28], 64, 5, 1, 1, Silu),
        ([32, 56, 56], 32, 3, 1, 1, Relu),
        ([64, 28, 28], 64, 3, 1, 1, Relu),
        ([64, 56, 56], 128, 3, 2, 1, Nothing),
        ([64, 56, 56], 128, 1, 2, 1, Nothing),
        ([128, 14, 14], 128, 3, 1, 1, Relu),
        ([256, 14, 14], 256, 3, 1, 1, Relu),
    ];
    let along = |channels: usize, length: usize, maps: usize| {
        let op = Conv { strides: [1; 2], pads: [0, 1, 0, 1], dilations: [1; 2], group: 1, epilogue: Relu.expression() };
        let inputs: [&[usize]; 3] = [&[1, channels, 1, length], &[maps, channels, 1, 3], &[maps, 1, 1]];
        Probe::new(Op::Conv(op), 1, &inputs, &[1, maps, 1, length])
    };
    layers.iter().map(conv).chain([along(80, 200, 128), along(16, 500, 32)]).collect()
}

/// Convolutions with windows of one pixel, and to images of so few pixels that vectors run along the channels.
pub(super) fn pointwise() -> Vec<Probe> {
    let layers: [Layer; 25] = [
        ([8, 10, 10], 8, 1, 1, 1, Nothing),
        ([3, 100, 100], 16, 1, 1, 1, Relu),
        ([16, 64, 64], 64, 1, 1, 1, Relu),
        ([24, 56, 56], 144, 1, 1, 1, Silu),
        ([96, 28, 28], 24, 1, 1, 1, Nothing),
        ([64, 16, 16], 256, 1, 1, 1, Relu),
        ([128, 32, 32], 128, 1, 1, 1, Nothing),
        ([384, 14, 14], 96, 1, 1, 1, Relu),
        ([80, 14, 14], 480, 1, 1, 1, Silu),
        ([512, 14, 14], 512, 1, 1, 1, Relu),
        ([256, 56, 56], 64, 1, 1, 1, Relu),
        ([480, 1, 1], 20, 1, 1, 1, Relu),
        ([96, 1, 1], 4, 1, 1, 1, Silu),
        ([20, 1, 1], 480, 1, 1, 1, Silu),
        ([64, 6, 6], 64, 3, 1, 1, Relu),
        ([128, 14, 14], 128, 3, 2, 1, Relu),
        ([256, 7, 7], 256, 3, 1, 1, Nothing),
        ([512, 7, 7], 512, 3, 1, 1, Relu),
        ([960, 7, 7], 160, 1, 1, 1, Nothing),
        ([160, 7, 7], 960, 1, 1, 1, Silu),
        ([48, 7, 7], 96, 3, 1, 1, Relu),
        ([320, 5, 5], 256, 1, 1, 1, Relu),
        ([64, 12, 12], 64, 3, 2, 1, Nothing),
        ([48, 4, 4], 32, 5, 2, 1, Relu),
        ([512, 1, 1], 128, 1, 1, 1, Nothing),
    ];
    layers.iter().map(conv).collect()
}

/// Depthwise, grouped and transposed convolutions.
pub(super) fn grouped() -> Vec<Probe> {
    let layers: [Layer; 44] = [
        ([96, 28, 28], 96, 3, 1, 96, Silu),
        ([240, 14, 14], 240, 3, 1, 240, Relu),
        ([144, 56, 56], 144, 3, 2, 144, Silu),
        ([384, 14, 14], 384, 7, 1, 384, Nothing),
        ([240, 14, 14], 240, 5, 2, 240, Silu),
        ([768, 7, 7], 768, 7, 1, 768, Nothing),
        ([16, 16, 16], 16, 7, 1, 16, Relu),
        ([48, 56, 56], 48, 7, 1, 48, Nothing),
        ([192, 20, 20], 192, 7, 1, 192, Relu),
        ([120, 7, 7], 120, 3, 1, 120, Nothing),
        ([1152, 7, 7], 1152, 5, 1, 1152, Silu),
        ([672, 7, 7], 672, 5, 1, 672, Nothing),
        ([16, 16, 16], 16, 5, 1, 16, Nothing),
        ([16, 16, 16], 16, 3, 1, 16, Nothing),
        ([32, 56, 56], 32, 3, 1, 32, Relu),
        ([64, 112, 112], 64, 3, 1, 64, Nothing),
        ([96, 56, 56], 96, 3, 2, 96, Relu),
        ([144, 28, 28], 144, 5, 1, 144, Silu),
        ([240, 28, 28], 240, 5, 2, 240, Silu),
        ([96, 28, 28], 96, 7, 1, 96, Relu),
        ([384, 14, 14], 384, 3, 1, 384, Relu),
        ([576, 14, 14], 576, 3, 2, 576, Relu),
        ([960, 7, 7], 960, 3, 1, 960, Silu),
        ([64, 8, 8], 64, 3, 1, 64, Relu),
        ([200, 8, 8], 200, 5, 1, 200, Silu),
        ([256, 6, 6], 256, 3, 1, 256, Relu),
        ([16, 32, 32], 16, 3, 1, 4, Relu),
        ([32, 14, 14], 32, 3, 1, 2, Nothing),
        ([64, 56, 56], 64, 3, 1, 4, Relu),
        ([64, 16, 16], 64, 3, 1, 16, Nothing),
        ([128, 28, 28], 128, 3, 1, 32, Relu),
        ([256, 28, 28], 256, 3, 2, 32, Relu),
        ([32, 8, 8], 32, 3, 1, 2, Relu),
        ([400, 7, 7], 400, 3, 1, 25, Relu),
        ([128, 14, 14], 128, 3, 1, 4, Silu),
        ([12, 9, 9], 12, 3, 1, 2, Relu),
        ([24, 20, 20], 24, 3, 1, 2, Nothing),
        ([160, 14, 14], 160, 3, 1, 4, Relu),
        // The Winograd algorithm computes none of these.
        ([32, 14, 14], 32, 5, 1, 2, Nothing),
        ([96, 28, 28], 96, 3, 2, 6, Silu),
        ([64, 28, 28], 64, 5, 1, 4, Relu),
        ([128, 56, 56], 128, 3, 2, 4, Relu),
        ([128, 28, 28], 32, 3, 2, 1, Nothing),
        ([160, 28, 28], 160, 3, 2, 4, Relu),
    ];
    let spread: [Layer; 7] = [
        ([4, 8, 8], 4, 2, 2, 1, Nothing),
        ([16, 16, 16], 16, 3, 1, 1, Relu),
        ([8, 32, 32], 8, 3, 2, 1, Relu),
        ([64, 14, 14], 32, 2, 2, 1, Nothing),
        ([32, 28, 28], 16, 4, 2, 1, Relu),
        ([128, 8, 8], 64, 2, 2, 1, Relu),
        ([32, 32, 32], 3, 5, 1, 1, Nothing),
    ];
    layers.iter().map(conv).chain(spread.iter().map(transposed)).collect()
}

/// Pools with and without gaps between their elements, and resizing of all kinds.
pub(super) fn pools() -> Vec<Probe> {
    let (max, mean) = (PoolKind::Max, PoolKind::Average { count_padding: false });
    let pools = [
        (max, [8, 20, 20], 3, 2),
        (max, [16, 28, 28], 3, 1),
        (max, [32, 64, 64], 2, 2),
        (max, [64, 112, 112], 3, 2),
        (max, [128, 14, 14], 5, 1),
        (mean, [96, 28, 28], 3, 1),
        (mean, [128, 28, 28], 2, 2),
        (mean, [64, 56, 56], 3, 2),
        (mean, [256, 7, 7], 7, 7),
        (max, [256, 13, 13], 3, 2),
    ];
    let (nearest, linear) = (Interpolation::Nearest(NearestRounding::Floor), Interpolation::Linear);
    let cubic = Interpolation::Cubic { coefficient: -0.75 };
    let resizes = [
        (nearest, [8, 8, 8], 16),
        (nearest, [64, 16, 16], 32),
        (nearest, [16, 64, 64], 128),
        (linear, [8, 16, 16], 32),
        (linear, [32, 28, 28], 56),
        (linear, [3, 96, 96], 48),
        (cubic, [3, 32, 32], 64),
        (cubic, [8, 20, 20], 40),
        (cubic, [16, 28, 28], 56),
    ];
    pools.into_iter().map(pool).chain(resizes.into_iter().map(resize)).collect()
}

fn conv(&([channels, height, width], maps, window, stride, group, finish): &Layer) -> Probe {
    let pad = window / 2;
    let out = |size: usize| (size + 2 * pad - window) / stride + 1;
    let epilogue = finish.expression();
    let inputs: [&[usize]; 3] =
        [&[1, channels, height, width], &[maps, channels / group, window, window], &[maps, 1, 1]];
    let given = if epilogue.is_some() { 3 } else { 2 };
    let op = Conv { strides: [stride; 2], pads: [pad; 4], dilations: [1; 2], group, epilogue };
    Probe::new(Op::Conv(op), 1, &inputs[..given], &[1, maps, out(height), out(width)])
}

/// A transposed convolution without padding.
fn transposed(&([channels, height, width], maps, window, stride, group, finish): &Layer) -> Probe {
    let out = |size: usize| (size - 1) * stride + window;
    let epilogue = finish.expression();
    let inputs: [&[usize]; 3] =
        [&[1, channels, height, width], &[channels, maps / group, window, window], &[maps, 1, 1]];
    let given = if epilogue.is_some() { 3 } else { 2 };
    let op = ConvTranspose { strides: [stride; 2], pads: [0; 4], dilations: [1; 2], group, epilogue };
    Probe::new(Op::ConvTranspose(op), 1, &inputs[..given], &[1, maps, out(height), out(width)])
}

fn pool((kind, [channels, height, width], window, stride): (PoolKind, [usize; 3], usize, usize)) -> Probe {
    let pad = if stride < window { window / 2 } else { 0 };
    let out = |size: usize| (size + 2 * pad - window) / stride + 1;
    let op = Pool { kind, window: [window; 2], strides: [stride; 2], pads: [pad; 4], dilations: [1; 2] };
    Probe::new(Op::Pool(op), 1, &[&[1, channels, height, width]], &[1, channels, out(height), out(width)])
}

fn resize((interpolation, [channels, height, width], side): (Interpolation, [usize; 3], usize)) -> Probe {
    let scales = [side as f64 / height as f64, side as f64 / width as f64];
    let op = Resize { interpolation, coordinates: Coordinates::HalfPixel, scales };
    Probe::new(Op::Resize(op), 1, &[&[1, channels, height, width]], &[1, channels, side, side])
}
