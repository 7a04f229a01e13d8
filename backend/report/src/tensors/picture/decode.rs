//! PNG and JPEG files as samples of red, green and blue.

use super::turn::Turn;
use anabranch::files;
use std::io::Cursor;
use std::path::Path;
use zune_core::bytestream::ZCursor;
use zune_core::colorspace::ColorSpace;
use zune_core::options::DecoderOptions;
use zune_jpeg::JpegDecoder;

/// Most bytes of an image file.
pub(super) const MOST_BYTES: u64 = 256 << 20;

/// Most rows or columns of a JPEG file, by its format.
const MOST_SIDE: usize = 65_535;

/// Most pixels of an image: with four samples each they take 256 MiB in memory. The channel that is being scaled takes
/// as much again, and so does a turned image while it is turned.
pub(super) const MOST_PIXELS: usize = 64 << 20;

/// A decoded image.
pub(super) struct Picture {
    pub(super) width: usize,
    pub(super) height: usize,
    /// 1 or 3 for grey or colours, plus 1 for opacity.
    samples: usize,
    pixels: Vec<u8>,
    /// Whether the file has it turned or mirrored.
    pub(super) is_turned: bool,
}

impl Picture {
    /// Reads an image file, unless `wanted` rejects its height and width.
    pub(super) fn read(path: &Path, wanted: impl FnOnce([usize; 2]) -> Result<(), String>) -> Result<Self, String> {
        let bytes = files::read(path, MOST_BYTES).map_err(|error| error.to_string())?;
        let png = super::super::ending(path).is_some_and(|ending| ending == "png");
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
        let turn = reader.info().exif_metadata.as_deref().map_or(Turn::default(), Turn::of);
        wanted(turn.size([height, width]))?;
        let size = reader.output_buffer_size().ok_or("is an image larger than the memory")?;
        let mut pixels = vec![0; size];
        let frame = reader.next_frame(&mut pixels).map_err(wrong)?;
        Ok(Self { width, height, samples: frame.color_type.samples(), pixels, is_turned: false }.turned(turn))
    }

    fn jpeg(bytes: Vec<u8>, wanted: impl FnOnce([usize; 2]) -> Result<(), String>) -> Result<Self, String> {
        let wrong = |error: zune_jpeg::errors::DecodeErrors| format!("is not a readable JPEG image: {error}");
        let options = DecoderOptions::new_safe()
            .jpeg_set_out_colorspace(ColorSpace::RGB)
            .set_strict_mode(true)
            .set_max_width(MOST_SIDE)
            .set_max_height(MOST_SIDE);
        let mut decoder = JpegDecoder::new_with_options(ZCursor::new(bytes), options);
        decoder.decode_headers().map_err(wrong)?;
        let info = decoder.info().ok_or("is a JPEG image without a size")?;
        let (width, height) = (usize::from(info.width), usize::from(info.height));
        few_enough(width, height)?;
        let turn = decoder.exif().map_or(Turn::default(), |exif| Turn::of(exif));
        wanted(turn.size([height, width]))?;
        let pixels = decoder.decode().map_err(wrong)?;
        let samples = pixels.len().checked_div(width * height).unwrap_or(0);
        if matches!(samples, 1 | 3) {
            Ok(Self { width, height, samples, pixels, is_turned: false }.turned(turn))
        } else {
            Err("is not a colour image".into())
        }
    }

    /// Returns height and width of an image file, without decoding it.
    pub(super) fn size(path: &Path) -> Result<[usize; 2], String> {
        // The decoder is told to stop once the size is known.
        let mut size = None;
        let ended = Self::read(path, |own| {
            size = Some(own);
            Err(String::new())
        });
        size.ok_or_else(|| ended.map_or_else(|reason| reason, |_| "is an image without a size".into()))
    }

    /// Returns the image as a PNG file.
    pub(super) fn to_png(&self) -> Result<Vec<u8>, png::EncodingError> {
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, self.width as u32, self.height as u32);
        encoder.set_color(match self.samples {
            1 => png::ColorType::Grayscale,
            2 => png::ColorType::GrayscaleAlpha,
            3 => png::ColorType::Rgb,
            _ => png::ColorType::Rgba,
        });
        encoder.write_header()?.write_image_data(&self.pixels)?;
        Ok(bytes)
    }

    fn turned(self, turn: Turn) -> Self {
        if turn == Turn::default() {
            return self;
        }
        let [height, width] = turn.size([self.height, self.width]);
        let mut pixels = Vec::with_capacity(self.pixels.len());
        for row in 0..height {
            for column in 0..width {
                let from = turn.source([row, column], [self.height, self.width]);
                let at = (from[0] * self.width + from[1]) * self.samples;
                pixels.extend_from_slice(&self.pixels[at..at + self.samples]);
            }
        }
        Self { width, height, pixels, is_turned: true, ..self }
    }

    /// Returns the image as `channels` channels. Grey is repeated, colours are weighted as in ITU-R BT.601, opacity is
    /// dropped.
    pub(super) fn planes(&self, channels: usize) -> impl Iterator<Item = Vec<f32>> {
        (0..channels).map(move |channel| {
            let value = |pixel: &[u8]| match (channels, self.samples) {
                (_, 1 | 2) => f32::from(pixel[0]),
                (1, _) => 0.299 * f32::from(pixel[0]) + 0.587 * f32::from(pixel[1]) + 0.114 * f32::from(pixel[2]),
                _ => f32::from(pixel[channel]),
            };
            self.pixels.chunks_exact(self.samples).map(value).collect()
        })
    }
}

pub(super) fn few_enough(width: usize, height: usize) -> Result<(), String> {
    match width.checked_mul(height) {
        Some(pixels) if pixels <= MOST_PIXELS => Ok(()),
        _ => Err(format!("has {width} × {height} pixels, but at most {MOST_PIXELS} pixels are supported")),
    }
}
