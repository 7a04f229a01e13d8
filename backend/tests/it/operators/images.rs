//! Columns and windows of images at or beyond the ordinary.

use super::*;

#[test]
fn columns_of_no_channels_make_an_image_of_none() {
    let fold = node("Col2Im", &["x", "image", "block"]);
    let wide = 1 << 20;
    let inputs = vec![f("x", &[1, 0, 1], &[]), i("image", &[2], &[wide, wide]), i("block", &[2], &[wide, wide])];
    let y = answer(fold, inputs).expect("an empty image");
    assert_eq!(y.spec().shape.dims(), [1, 0, 1 << 20, 1 << 20]);
}

#[test]
fn columns_are_added_back_at_every_stride_and_distance() {
    for (size, block, stride, dilation, pads) in [
        ([5, 4], [2, 3], [1, 1], [1, 1], [0, 0, 0, 0]),
        ([7, 9], [3, 1], [2, 3], [1, 2], [1, 0, 2, 1]),
        ([6, 8], [2, 5], [3, 1], [2, 1], [0, 2, 1, 2]),
        ([4, 4], [4, 4], [9, 9], [1, 1], [0, 0, 0, 0]),
    ] {
        let reach = |axis: usize| dilation[axis] * (block[axis] - 1) + 1;
        let padded = |axis: usize| size[axis] + pads[axis] + pads[axis + 2];
        let [high, wide] = [0, 1].map(|axis| (padded(axis) - reach(axis)) / stride[axis] + 1);
        let taps = block[0] * block[1];
        let x = counted("x", &[1, 2 * taps, high * wide]);
        let node = node("Col2Im", &["x", "image", "block"])
            .with(AttributeProto::ints("strides", &stride))
            .with(AttributeProto::ints("dilations", &dilation))
            .with(AttributeProto::ints("pads", &pads));
        let made = floats(node, vec![x, i("image", &[2], &size), i("block", &[2], &block)]);
        let mut want = vec![0.0; (2 * size[0] * size[1]) as usize];
        for at in 0..2 * taps * high * wide {
            let (column, place) = (at / (high * wide), at % (high * wide));
            let (channel, tap) = (column / taps, column % taps);
            let row = place / wide * stride[0] + tap / block[1] * dilation[0] - pads[0];
            let across = place % wide * stride[1] + tap % block[1] * dilation[1] - pads[1];
            if (0..size[0]).contains(&row) && (0..size[1]).contains(&across) {
                want[((channel * size[0] + row) * size[1] + across) as usize] += at as f32;
            }
        }
        assert_eq!(made, want, "{size:?} by {block:?}");
    }
}

#[test]
fn no_rows_are_unpooled_to_a_step_less_than_a_window() {
    let unpooled = |stride: i64| {
        let node = node("MaxUnpool", &["x", "places"])
            .with(AttributeProto::ints("kernel_shape", &[2, 2]))
            .with(AttributeProto::ints("strides", &[stride; 2]));
        answer(node, vec![f("x", &[1, 1, 0, 2], &[]), i("places", &[1, 1, 0, 2], &[])])
    };
    let made = unpooled(1).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((made.shape().dims(), made.elements::<f32>()), (&[1, 1, 1, 3][..], Some(&[0.0; 3][..])));
    assert_eq!(unpooled(2).expect("an empty one").shape().dims(), [1, 1, 0, 4]);
    assert!(unpooled(3).is_err(), "less than nothing");
}
