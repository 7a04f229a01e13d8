//! Tests of images as inputs.

use super::decode::few_enough;
use super::*;

fn png(width: u32, height: u32, color: png::ColorType, pixels: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, width, height);
    encoder.set_color(color);
    encoder.write_header().expect("a header").write_image_data(pixels).expect("as many pixels");
    bytes
}

fn with(norm: Option<Norm>, fit: Fit) -> Preprocessing {
    Preprocessing { norm, fit, ..Preprocessing::default() }
}

/// Reads one PNG image for an input of this type and these dimensions.
fn read(bytes: &[u8], dims: [usize; 4], dtype: DType, with: &Preprocessing) -> Result<Tensor, String> {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let path = folder.path().join("x.png");
    std::fs::write(&path, bytes).expect("writable");
    Target::of(dtype, &dims.map(Some), with)?.read(&[path], |_| Ok(())).map(|(tensor, _)| tensor)
}

#[test]
fn an_image_of_the_models_size_keeps_its_pixels() {
    let plain = Preprocessing::default();
    let pixels: Vec<u8> = (0..2 * 3 * 3).map(|at| at * 14).collect();
    let bytes = png(3, 2, png::ColorType::Rgb, &pixels);
    let last = read(&bytes, [1, 2, 3, 3], DType::U8, &plain).expect("read");
    assert_eq!(last.elements::<u8>(), Some(&pixels[..]), "channels at the end");
    let first = read(&bytes, [1, 3, 2, 3], DType::F32, &with(Some(Norm::None), Fit::Crop)).expect("read");
    let planes: Vec<f32> = (0..3).flat_map(|c| (0..6).map(move |at| f32::from((at * 3 + c) as u8 * 14))).collect();
    assert_eq!(first.elements::<f32>(), Some(&planes[..]));
    let norm = read(&bytes, [1, 3, 2, 3], DType::F32, &plain).expect("read");
    let found = norm.elements::<f32>().expect("f32")[1];
    assert!((found - (42.0 / 255.0 - 0.485) / 0.229).abs() < 1e-6, "{found}");
    let grey = read(&bytes, [1, 1, 2, 3], DType::U8, &plain).expect("read");
    assert_eq!(grey.elements::<u8>().expect("u8")[0], (0.587f32 * 14.0 + 0.114 * 28.0).round() as u8);
}

#[test]
fn images_are_scaled_and_cut_around_the_centre() {
    let plain = Preprocessing::default();
    // 4 × 2: the outer columns are cropped, then 2 × 2 pixels become one.
    let bytes = png(4, 2, png::ColorType::Grayscale, &[200, 10, 30, 200, 200, 50, 70, 200]);
    let one = read(&bytes, [1, 1, 2, 2], DType::U8, &plain).expect("read");
    assert_eq!(one.elements::<u8>(), Some(&[10, 30, 50, 70][..]));
    // Two columns of many rows: only the two rows in the middle remain.
    let mut tall = vec![0; 2 * 1000];
    tall[998..1002].copy_from_slice(&[10, 30, 50, 70]);
    let tall = png(2, 1000, png::ColorType::Grayscale, &tall);
    let one = read(&tall, [1, 1, 2, 2], DType::U8, &plain).expect("read");
    assert_eq!(one.elements::<u8>(), Some(&[10, 30, 50, 70][..]));
    let flat = png(8, 8, png::ColorType::Rgba, &[90; 256]);
    for size in [1, 3, 8, 20] {
        let scaled = read(&flat, [1, 3, size, size], DType::U8, &plain).expect("read");
        assert!(scaled.elements::<u8>().expect("u8").iter().all(|value| *value == 90), "{size}");
    }
}

#[test]
fn other_proportions_are_cropped_letterboxed_or_stretched() {
    let bytes = png(4, 2, png::ColorType::Grayscale, &[10, 20, 30, 40, 50, 60, 70, 80]);
    let of = |fit| read(&bytes, [1, 1, 4, 4], DType::U8, &with(None, fit)).expect("read");
    let boxed = of(Fit::Letterbox);
    let expected = [114, 114, 114, 114, 10, 20, 30, 40, 50, 60, 70, 80, 114, 114, 114, 114];
    assert_eq!(boxed.elements::<u8>(), Some(&expected[..]));
    let stretched = of(Fit::Stretch);
    // Each column has its own pixels; rows blend from the first to the second.
    let stretched = stretched.elements::<u8>().expect("u8");
    assert_eq!((&stretched[..4], &stretched[12..]), (&[10, 20, 30, 40][..], &[50, 60, 70, 80][..]));
    assert_eq!(&stretched[4..8], &[20, 30, 40, 50]);
    let cropped = of(Fit::Crop);
    assert_eq!(cropped.elements::<u8>().expect("u8")[0], 18, "three quarters of 20 and one of 10");
    // A place in the tensor is a place in the image again.
    let axes = Axis::both([2, 4], [4, 4], Fit::Letterbox);
    assert_eq!(axes.map(|axis| axis.to_image(2.0)), [1.0, 2.0]);
    let wide = Axis::both([480, 640], [320, 320], Fit::Crop);
    assert_eq!(wide.map(|axis| (axis.to_image(0.0), axis.to_image(320.0))), [(0.0, 480.0), (80.0, 560.0)]);
}

#[test]
fn photographs_are_turned_as_viewers_do_and_whole() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let path = folder.path().join("x.jpg");
    // 16 × 8 pixels of grey, written by Pillow; then the same, to be shown turned to the right.
    let plain = include_bytes!("grey.jpg");
    let exif = b"Exif\0\0II\x2a\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0";
    let length = (exif.len() as u16 + 2).to_be_bytes();
    let turned = [&plain[..2], &[0xff, 0xe1], &length, exif, &plain[2..]].concat();
    let none = with(Some(Norm::None), Fit::Crop);
    let target = Target::of(DType::F32, &[Some(1), Some(1), None, None], &none).expect("an image");
    let mut stored = Vec::new();
    for (bytes, size) in [(&plain[..], [8, 16]), (&turned, [16, 8])] {
        std::fs::write(&path, bytes).expect("writable");
        let (tensor, _) = target.read(std::slice::from_ref(&path), |_| Ok(())).expect("read");
        assert_eq!(tensor.shape().dims()[2..], size);
        assert_eq!(embeddable(&path).expect("read").starts_with(b"\x89PNG"), size == [16, 8]);
        stored.push(tensor.elements::<f32>().expect("f32").to_vec());
    }
    assert_eq!(stored[1][7], stored[0][0], "the first stored pixel is at the right end of the first row");
    std::fs::write(&path, &plain[..plain.len() * 2 / 3]).expect("writable");
    assert!(target.read(&[path], |_| Ok(())).expect_err("cut off").contains("not a readable JPEG image"));
}

#[test]
fn letterboxes_of_any_size_show_the_whole_image() {
    arbtest::arbtest(|random| {
        let mut size = || random.int_in_range(1..=40);
        let (pixels, elements) = ([size()?, size()?], [size()?, size()?]);
        let flat = vec![7.0; pixels[0] * pixels[1]];
        for fit in [Fit::Crop, Fit::Letterbox, Fit::Stretch] {
            let axes = Axis::both(pixels, elements, fit);
            let mut scaled = Vec::new();
            resample::scale(&flat, axes, MARGIN, |at, value| {
                assert_eq!(at, scaled.len(), "each element once, in order");
                scaled.push(value);
            });
            assert_eq!(scaled.len(), elements[0] * elements[1]);
            let shown = scaled.iter().filter(|value| (**value - 7.0).abs() < 1e-3).count();
            let margin = scaled.iter().filter(|value| **value == MARGIN).count();
            assert_eq!(shown + margin, scaled.len(), "{pixels:?} {elements:?} {fit:?}");
            assert!(shown > 0 && (fit == Fit::Letterbox || margin == 0), "{pixels:?} {elements:?} {fit:?}");
            if fit == Fit::Letterbox {
                assert!(axes.iter().all(|axis| axis.to_image(0.0) <= 0.0));
                assert!(axes.iter().all(|axis| axis.to_image(axis.count as f64) >= axis.length as f64 - 1e-9));
            }
        }
        Ok(())
    })
    .budget_ms(300);
}

#[test]
fn colours_means_and_batches_are_as_asked() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let files: Vec<_> = [1u8, 5]
        .map(|first| {
            let path = folder.path().join(format!("{first}.png"));
            std::fs::write(&path, png(1, 1, png::ColorType::Rgb, &[first, first + 1, first + 2])).expect("writable");
            path
        })
        .to_vec();
    let affine = Some([vec![1.0, 2.0, 3.0], vec![2.0]]);
    let asked = Preprocessing { affine, colors: Colors::Bgr, ..Preprocessing::default() };
    let target = Target::of(DType::F32, &[None, Some(3), None, None], &asked).expect("images");
    let (tensor, prepared) = target
        .read(&files, |spec| if spec.shape.dims() == [2, 3, 1, 1] { Ok(()) } else { Err("shape".into()) })
        .expect("read");
    // Blue, green, red; less 1, 2, 3; by 2.
    assert_eq!(tensor.elements::<f32>(), Some(&[1.0, 0.0, -1.0, 3.0, 2.0, 1.0][..]));
    let text = prepared[1].to_string();
    assert!(text.ends_with("5.png: 1 × 1 → 1 × 1 pixels, as it is; (x − [1, 2, 3]) / [2]"), "{text}");
    let three = Target::of(DType::F32, &[3, 3, 1, 1].map(Some), &asked).expect("images");
    assert!(
        three.read(&files, |_| Ok(())).expect_err("two").contains("3 images at once, but 2 are given; repeat --input")
    );
    let one = Target::of(DType::F32, &[1, 3, 1, 1].map(Some), &asked).expect("an image");
    assert!(one.read(&files, |_| Ok(())).expect_err("two").contains("1 image at once, but 2 are given; run them"));
    assert_eq!(target.prepared(&files).expect("sizes"), prepared, "the same from sizes alone");
    let sized = Preprocessing { size: Some([2, 3]), ..Preprocessing::default() };
    let open = [Some(1), None, None, None];
    assert!(Target::of(DType::F32, &open, &sized).expect_err("no channels").contains("--image-layout"));
    let last = Preprocessing { layout: Some(Layout::Nhwc), ..sized.clone() };
    let (tensor, _) =
        Target::of(DType::F32, &open, &last).expect("an image").read(&files[..1], |_| Ok(())).expect("read");
    assert_eq!(tensor.shape().dims(), [1, 2, 3, 3]);
    let refused = |dtype, dims: [usize; 4], asked: &Preprocessing| {
        Target::of(dtype, &dims.map(Some), asked).expect_err("does not go with the input")
    };
    assert!(refused(DType::F32, [1, 3, 8, 8], &sized).contains("2x3 differs from the model's size, 8 x 8"));
    assert!(refused(DType::U8, [1, 3, 8, 8], &asked).contains("--image-norm none"));
    assert!(refused(DType::F32, [1, 1, 8, 8], &asked).contains("--image-mean has 3 values"));
    assert!(refused(DType::F32, [1, 1, 8, 8], &with(Some(Norm::Imagenet), Fit::Crop)).contains("--image-norm unit"));
}

#[test]
fn what_is_no_image_for_the_input_is_refused() {
    let plain = Preprocessing::default();
    let wants = |dims: &[usize], dtype| {
        Target::of(dtype, &dims.iter().map(|size| Some(*size)).collect::<Vec<_>>(), &plain).expect_err("no image")
    };
    assert!(wants(&[1, 3], DType::F32).contains("four dimensions"));
    assert!(wants(&[1, 4, 8, 8], DType::F32).contains("1 or 3 channels"));
    assert!(wants(&[1, 3, 0, 8], DType::F32).contains("size 0") && wants(&[1, 0, 8, 3], DType::F32).contains("size 0"));
    assert!(wants(&[1, 3, 8, 8], DType::I64).contains("i64"));
    let any = [1, 3, 8, 8];
    let mut bytes = png(2, 2, png::ColorType::Grayscale, &[0; 4]);
    bytes.truncate(45);
    let folder = tempfile::tempdir().expect("a temporary directory");
    let path = folder.path().join("x.png");
    std::fs::write(&path, &bytes).expect("writable");
    let target = Target::of(DType::F32, &any.map(Some), &plain).expect("an image");
    let refused = target.read(&[path], |spec| Err(format!("{spec} is too much"))).expect_err("refused");
    assert!(refused.ends_with("x.png: f32[1×3×8×8] is too much"), "before what is cut off is decoded: {refused}");
    assert!(read(&bytes, any, DType::F32, &plain).expect_err("cut off").contains("not a readable PNG image"));
    // A header of 2³⁰ × 2³⁰ pixels.
    let mut lie = png(1, 1, png::ColorType::Grayscale, &[0]);
    lie[16..24].copy_from_slice(&[0x40, 0, 0, 0, 0x40, 0, 0, 0]);
    assert!(read(&lie, any, DType::F32, &plain).is_err());
    assert!(few_enough(1 << 20, 1 << 20).is_err());
}
