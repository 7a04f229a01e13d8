//! PNG and JPEG images as inputs of vision models: scaled until they cover the model's height and width, cropped around
//! the centre, and normalised. Scaling weights all pixels that an output pixel covers (a triangle as wide as the
//! scale), as PIL and torchvision do.

use anabranch::files;
use anabranch_kernels::{DType, Shape, Tensor, TensorSpec};
use half::f16;
use std::io::Cursor;
use std::path::Path;
use zune_core::bytestream::ZCursor;
use zune_core::colorspace::ColorSpace;
use zune_core::options::DecoderOptions;
use zune_jpeg::JpegDecoder;

/// Most bytes of an image file.
const MOST_BYTES: u64 = 256 << 20;

/// Most pixels of an image: with four samples each they take 256 MiB in memory. The channel that is being scaled takes
/// as much again.
const MOST_PIXELS: usize = 64 << 20;

/// Normalisation of the values 0 to 255 of an image's channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
pub enum Norm {
    /// (x/255 − mean) / deviation, with ImageNet's means and deviations of red, green and blue
    Imagenet,
    /// x/255: from 0 to 1
    Unit,
    /// x/127.5 − 1: from −1 to 1
    Signed,
    /// As they are: from 0 to 255
    None,
}

/// Means and standard deviations of red, green and blue over ImageNet's images, from torchvision.
const IMAGENET: [(f32, f32); 3] = [(0.485, 0.229), (0.456, 0.224), (0.406, 0.225)];

/// Image that a model expects: its type, and its numbers of channels, rows and columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    dtype: DType,
    channels: usize,
    /// `None` if any size is allowed.
    height: Option<usize>,
    width: Option<usize>,
    /// Whether the channels of a pixel are adjacent.
    channels_last: bool,
}

/// Whether a file is an image, by its extension.
pub fn is_image(path: &Path) -> bool {
    matches!(super::ending(path).as_deref(), Some("png" | "jpg" | "jpeg"))
}

impl Target {
    /// Returns the image for an input of this type and these dimensions. Channels are the dimension of 1 or 3 after the
    /// batch or at the end.
    pub fn of(dtype: DType, dims: &[Option<usize>]) -> Result<Self, String> {
        let [batch, a, b, c] = *dims else {
            return Err(format!("an image needs an input of four dimensions, but this input has {}", dims.len()));
        };
        if batch.is_some_and(|batch| batch != 1) {
            return Err(format!("the model expects {} images at once; give them as one array", batch.unwrap_or(0)));
        }
        if !matches!(dtype, DType::F32 | DType::F16 | DType::U8) {
            return Err(format!("an image needs an input of type f32, f16 or u8, but the input is {dtype}"));
        }
        let is_channels = |dim: Option<usize>| matches!(dim, Some(1 | 3));
        let (channels, height, width, channels_last) = match (is_channels(a), is_channels(c)) {
            (false, true) => (c, a, b, true),
            (true, _) => (a, b, c, false),
            _ => return Err("an image needs a dimension of 1 or 3 channels, but the input has none".into()),
        };
        Ok(Self { dtype, channels: channels.unwrap_or(3), height, width, channels_last })
    }

    /// Reads an image file as a tensor, unless `wanted` rejects its type and shape.
    pub fn read(
        self,
        path: &Path,
        norm: Option<Norm>,
        wanted: impl FnOnce(&TensorSpec) -> Result<(), String>,
    ) -> Result<Tensor, String> {
        let picture = Picture::read(path, |own| wanted(&TensorSpec::new(self.dtype, self.shape(self.size(own))?)))?;
        let [height, width] = self.size([picture.height, picture.width]);
        let shape = self.shape([height, width])?;
        let norm = norm.unwrap_or(if self.channels == 3 { Norm::Imagenet } else { Norm::Unit });
        if norm == Norm::Imagenet && self.channels != 3 {
            return Err("ImageNet's means have three channels, but the input has one; use --image-norm unit".into());
        }
        let planes = picture.planes(self.channels).map(|plane| picture.scaled(&plane, height, width));
        let mut values = vec![0.0; shape.elements()];
        for (channel, plane) in planes.enumerate() {
            let (start, step) =
                if self.channels_last { (channel, self.channels) } else { (channel * height * width, 1) };
            for (value, pixel) in values[start..].iter_mut().step_by(step).zip(&plane) {
                *value = if self.dtype == DType::U8 { *pixel } else { norm.apply(*pixel, channel) };
            }
        }
        let tensor = match self.dtype {
            DType::U8 => Tensor::from_elements(shape, &values.iter().map(|v| v.round() as u8).collect::<Vec<_>>()),
            DType::F16 => Tensor::from_elements(shape, &values.iter().map(|v| f16::from_f32(*v)).collect::<Vec<_>>()),
            _ => Tensor::from_elements(shape, &values),
        };
        tensor.map_err(|error| error.to_string())
    }

    /// Returns height and width of the result for an image of this height and width.
    fn size(self, [height, width]: [usize; 2]) -> [usize; 2] {
        [self.height.unwrap_or(height), self.width.unwrap_or(width)]
    }

    fn shape(self, [height, width]: [usize; 2]) -> Result<Shape, String> {
        let dims = match self.channels_last {
            true => [1, height, width, self.channels],
            false => [1, self.channels, height, width],
        };
        Shape::new(dims).map_err(|error| error.to_string())
    }
}

impl Norm {
    fn apply(self, pixel: f32, channel: usize) -> f32 {
        match self {
            Self::None => pixel,
            Self::Unit => pixel / 255.0,
            Self::Signed => pixel / 127.5 - 1.0,
            Self::Imagenet => {
                let (mean, deviation) = IMAGENET[channel];
                (pixel / 255.0 - mean) / deviation
            }
        }
    }
}

/// A decoded image.
struct Picture {
    width: usize,
    height: usize,
    /// 1 or 3 for grey or colours, plus 1 for opacity.
    samples: usize,
    pixels: Vec<u8>,
}

impl Picture {
    /// Reads an image file, unless `wanted` rejects its height and width.
    fn read(path: &Path, wanted: impl FnOnce([usize; 2]) -> Result<(), String>) -> Result<Self, String> {
        let bytes = files::read(path, MOST_BYTES).map_err(|error| error.to_string())?;
        let png = super::ending(path).is_some_and(|ending| ending == "png");
        let picture = if png { Self::png(&bytes, wanted)? } else { Self::jpeg(bytes, wanted)? };
        let whole = picture.pixels.len() == picture.width * picture.height * picture.samples;
        if picture.pixels.is_empty() || !whole { Err("is an empty or broken image".into()) } else { Ok(picture) }
    }

    fn png(bytes: &[u8], wanted: impl FnOnce([usize; 2]) -> Result<(), String>) -> Result<Self, String> {
        let wrong = |error: png::DecodingError| format!("is not a readable PNG image: {error}");
        let limits = png::Limits { bytes: 4 * MOST_PIXELS };
        let mut decoder = png::Decoder::new_with_limits(Cursor::new(bytes), limits);
        decoder.set_transformations(png::Transformations::normalize_to_color8());
        let mut reader = decoder.read_info().map_err(wrong)?;
        let (width, height) = (reader.info().width as usize, reader.info().height as usize);
        few_enough(width, height)?;
        wanted([height, width])?;
        let size = reader.output_buffer_size().ok_or("is an image larger than the memory")?;
        let mut pixels = vec![0; size];
        let frame = reader.next_frame(&mut pixels).map_err(wrong)?;
        Ok(Self { width, height, samples: frame.color_type.samples(), pixels })
    }

    fn jpeg(bytes: Vec<u8>, wanted: impl FnOnce([usize; 2]) -> Result<(), String>) -> Result<Self, String> {
        let wrong = |error: zune_jpeg::errors::DecodeErrors| format!("is not a readable JPEG image: {error}");
        let options = DecoderOptions::new_safe().jpeg_set_out_colorspace(ColorSpace::RGB);
        let mut decoder = JpegDecoder::new_with_options(ZCursor::new(bytes), options);
        decoder.decode_headers().map_err(wrong)?;
        let info = decoder.info().ok_or("is a JPEG image without a size")?;
        let (width, height) = (usize::from(info.width), usize::from(info.height));
        few_enough(width, height)?;
        wanted([height, width])?;
        let pixels = decoder.decode().map_err(wrong)?;
        let samples = pixels.len().checked_div(width * height).unwrap_or(0);
        if matches!(samples, 1 | 3) {
            Ok(Self { width, height, samples, pixels })
        } else {
            Err("is not a colour image".into())
        }
    }

    /// Returns the image as `channels` channels. Grey is repeated, colours are weighted as in ITU-R BT.601, opacity is
    /// dropped.
    fn planes(&self, channels: usize) -> impl Iterator<Item = Vec<f32>> {
        (0..channels).map(move |channel| {
            let value = |pixel: &[u8]| match (channels, self.samples) {
                (_, 1 | 2) => f32::from(pixel[0]),
                (1, _) => 0.299 * f32::from(pixel[0]) + 0.587 * f32::from(pixel[1]) + 0.114 * f32::from(pixel[2]),
                _ => f32::from(pixel[channel]),
            };
            self.pixels.chunks_exact(self.samples).map(value).collect()
        })
    }

    /// Returns a channel scaled until it covers `height × width`, cropped around the centre.
    fn scaled(&self, plane: &[f32], height: usize, width: usize) -> Vec<f32> {
        let scale = (self.width as f64 / width as f64).min(self.height as f64 / height as f64);
        let (columns, rows) = (windows(self.width, width, scale), windows(self.height, height, scale));
        // There may be many more cropped rows than others: none of them is scaled.
        let top = rows.iter().map(|(first, _)| *first).min().unwrap_or(0);
        let end = rows.iter().map(|(first, weights)| first + weights.len()).max().unwrap_or(0);
        let narrow: Vec<f32> = plane
            .chunks_exact(self.width)
            .take(end)
            .skip(top)
            .flat_map(|row| columns.iter().map(|(first, weights)| dot(weights, row[*first..].iter().copied())))
            .collect();
        let column = |first: usize, at: usize| narrow[(first - top) * width + at..].iter().step_by(width).copied();
        rows.iter().flat_map(|(first, weights)| (0..width).map(|at| dot(weights, column(*first, at)))).collect()
    }
}

fn few_enough(width: usize, height: usize) -> Result<(), String> {
    match width.checked_mul(height) {
        Some(pixels) if pixels <= MOST_PIXELS => Ok(()),
        _ => Err(format!("has {width} × {height} pixels, but at most {MOST_PIXELS} pixels are supported")),
    }
}

fn dot(weights: &[f32], values: impl Iterator<Item = f32>) -> f32 {
    weights.iter().zip(values).map(|(weight, value)| weight * value).sum()
}

/// Returns, for each of `count` output pixels, the first input pixel that it covers and the weights. Output pixels are
/// `scale` input pixels apart and centred among `length`.
fn windows(length: usize, count: usize, scale: f64) -> Vec<(usize, Vec<f32>)> {
    let reach = scale.max(1.0);
    let begin = (length as f64 - count as f64 * scale) / 2.0;
    let window = |at: usize| {
        let centre = begin + (at as f64 + 0.5) * scale;
        let first = ((centre - reach).floor().max(0.0) as usize).min(length - 1);
        let end = ((centre + reach).ceil() as usize).clamp(first + 1, length);
        let weight = |pixel: usize| (1.0 - (pixel as f64 + 0.5 - centre).abs() / reach).max(0.0);
        let sum: f64 = (first..end).map(weight).sum();
        let normed = |pixel: usize| if sum > 0.0 { (weight(pixel) / sum) as f32 } else { 1.0 / (end - first) as f32 };
        (first, (first..end).map(normed).collect())
    };
    (0..count).map(window).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn png(width: u32, height: u32, color: png::ColorType, pixels: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, width, height);
        encoder.set_color(color);
        encoder.write_header().expect("a header").write_image_data(pixels).expect("as many pixels");
        bytes
    }

    fn target(dims: [usize; 4], dtype: DType) -> Target {
        Target::of(dtype, &dims.map(Some)).expect("an image")
    }

    fn read(bytes: &[u8], target: Target, norm: Option<Norm>) -> Result<Tensor, String> {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let path = folder.path().join("x.png");
        std::fs::write(&path, bytes).expect("writable");
        target.read(&path, norm, |_| Ok(()))
    }

    #[test]
    fn an_image_of_the_models_size_keeps_its_pixels() {
        let pixels: Vec<u8> = (0..2 * 3 * 3).map(|at| at * 14).collect();
        let bytes = png(3, 2, png::ColorType::Rgb, &pixels);
        let last = read(&bytes, target([1, 2, 3, 3], DType::U8), None).expect("read");
        assert_eq!(last.elements::<u8>(), Some(&pixels[..]), "channels at the end");
        let first = read(&bytes, target([1, 3, 2, 3], DType::F32), Some(Norm::None)).expect("read");
        let planes: Vec<f32> = (0..3).flat_map(|c| (0..6).map(move |at| f32::from((at * 3 + c) as u8 * 14))).collect();
        assert_eq!(first.elements::<f32>(), Some(&planes[..]));
        let norm = read(&bytes, target([1, 3, 2, 3], DType::F32), None).expect("read");
        let found = norm.elements::<f32>().expect("f32")[1];
        assert!((found - (42.0 / 255.0 - 0.485) / 0.229).abs() < 1e-6, "{found}");
        let grey = read(&bytes, target([1, 1, 2, 3], DType::U8), None).expect("read");
        assert_eq!(grey.elements::<u8>().expect("u8")[0], (0.587f32 * 14.0 + 0.114 * 28.0).round() as u8);
    }

    #[test]
    fn images_are_scaled_and_cut_around_the_centre() {
        // 4 × 2: the outer columns are cropped, then 2 × 2 pixels become one.
        let bytes = png(4, 2, png::ColorType::Grayscale, &[200, 10, 30, 200, 200, 50, 70, 200]);
        let one = read(&bytes, target([1, 1, 2, 2], DType::U8), None).expect("read");
        assert_eq!(one.elements::<u8>(), Some(&[10, 30, 50, 70][..]));
        // Two columns of many rows: only the two rows in the middle remain.
        let mut tall = vec![0; 2 * 1000];
        tall[998..1002].copy_from_slice(&[10, 30, 50, 70]);
        let tall = png(2, 1000, png::ColorType::Grayscale, &tall);
        let one = read(&tall, target([1, 1, 2, 2], DType::U8), None).expect("read");
        assert_eq!(one.elements::<u8>(), Some(&[10, 30, 50, 70][..]));
        let flat = png(8, 8, png::ColorType::Rgba, &[90; 256]);
        for size in [1, 3, 8, 20] {
            let scaled = read(&flat, target([1, 3, size, size], DType::U8), None).expect("read");
            assert!(scaled.elements::<u8>().expect("u8").iter().all(|value| *value == 90), "{size}");
        }
    }

    #[test]
    fn what_is_no_image_for_the_input_is_refused() {
        let wants = |dims: &[usize], dtype| {
            Target::of(dtype, &dims.iter().map(|size| Some(*size)).collect::<Vec<_>>()).expect_err("no image")
        };
        assert!(wants(&[1, 3], DType::F32).contains("four dimensions"));
        assert!(wants(&[2, 3, 8, 8], DType::F32).contains("2 images at once"));
        assert!(wants(&[1, 4, 8, 8], DType::F32).contains("1 or 3 channels"));
        assert!(wants(&[1, 3, 8, 8], DType::I64).contains("i64"));
        let any = target([1, 3, 8, 8], DType::F32);
        let mut bytes = png(2, 2, png::ColorType::Grayscale, &[0; 4]);
        bytes.truncate(45);
        let folder = tempfile::tempdir().expect("a temporary directory");
        let path = folder.path().join("x.png");
        std::fs::write(&path, &bytes).expect("writable");
        let refused = any.read(&path, None, |spec| Err(format!("{spec} is too much"))).expect_err("refused");
        assert_eq!(refused, "f32[1×3×8×8] is too much", "before what is cut off is decoded");
        assert!(read(&bytes, any, None).expect_err("cut off").contains("not a readable PNG image"));
        // A header of 2³⁰ × 2³⁰ pixels.
        let mut lie = png(1, 1, png::ColorType::Grayscale, &[0]);
        lie[16..24].copy_from_slice(&[0x40, 0, 0, 0, 0x40, 0, 0, 0]);
        assert!(read(&lie, any, None).is_err());
        assert!(few_enough(1 << 20, 1 << 20).is_err());
    }
}
