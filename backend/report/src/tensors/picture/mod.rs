//! PNG and JPEG images as inputs of vision models: scaled to the model's height and width, and normalised.

mod decode;
mod resample;
#[cfg(test)]
mod tests;
mod turn;

use crate::text::count;
use anabranch::files;
use anabranch_kernels::{DType, Shape, Tensor, TensorSpec};
use decode::Picture;
use half::f16;
pub use resample::Axis;
use std::fmt;
use std::path::{Path, PathBuf};

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

/// Fit of an image of other proportions into the model's height and width.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
pub enum Fit {
    /// Scaled to cover height and width, and cropped around the centre
    #[default]
    Crop,
    /// Scaled to fit into height and width, with grey (114) around it
    Letterbox,
    /// Scaled to height and width, with other proportions
    Stretch,
}

/// Order of an image's colours in the tensor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
pub enum Colors {
    /// Red, green, blue
    #[default]
    Rgb,
    /// Blue, green, red
    Bgr,
}

/// Order of an image's axes in the tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
pub enum Layout {
    /// Batch, channels, height, width
    Nchw,
    /// Batch, height, width, channels
    Nhwc,
}

/// Preparation of images before a model reads them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Preprocessing {
    /// Normalisation; by default ImageNet's for three channels, `unit` for one, and none for bytes.
    pub norm: Option<Norm>,
    /// Mean and scale of each channel, or of all: (x − mean) / scale for x from 0 to 255. Not beside `norm`.
    pub affine: Option<[Vec<f32>; 2]>,
    /// Height and width, if the model leaves them open; by default those of the image.
    pub size: Option<[usize; 2]>,
    /// Fit of images with other proportions.
    pub fit: Fit,
    /// Order of colours.
    pub colors: Colors,
    /// Order of axes; by default the channels are the axis of 1 or 3 after the batch or at the end.
    pub layout: Option<Layout>,
}

/// Means and standard deviations of red, green and blue over ImageNet's images, from torchvision.
const IMAGENET: [(f32, f32); 3] = [(0.485, 0.229), (0.456, 0.224), (0.406, 0.225)];

/// Value of pixels around a letterboxed image, from YOLO's programs.
const MARGIN: f32 = 114.0;

/// Images that a model expects.
#[derive(Clone, Debug, PartialEq)]
pub struct Target<'p> {
    dtype: DType,
    /// `None` if any number is allowed.
    batch: Option<usize>,
    channels: usize,
    /// Height and width; `None` if any size is allowed.
    size: [Option<usize>; 2],
    layout: Layout,
    preprocessing: &'p Preprocessing,
}

/// An image that became a part of an input, and how. Its text says it in a line.
#[derive(Clone, Debug, PartialEq)]
pub struct Prepared {
    /// File of the image.
    pub file: PathBuf,
    /// Rows and columns.
    pub axes: [Axis; 2],
    fit: Fit,
    norm: String,
}

/// Returns an image file for pages: its bytes, or a PNG file of the image as shown if viewers are to turn it, which not
/// all do.
///
/// # Errors
/// If the file cannot be read.
pub fn embeddable(path: &Path) -> Result<Vec<u8>, String> {
    let picture = Picture::read(path, |_| Ok(()))?;
    match picture.is_turned {
        false => files::read(path, decode::MOST_BYTES).map_err(|error| error.to_string()),
        true => picture.to_png().map_err(|error| error.to_string()),
    }
}

/// Whether a file is an image, by its extension.
pub fn is_image(path: &Path) -> bool {
    matches!(super::ending(path).as_deref(), Some("png" | "jpg" | "jpeg"))
}

impl<'p> Target<'p> {
    /// Returns the images for an input of this type and these dimensions.
    ///
    /// # Errors
    /// If no image can be such an input, or a part of the preprocessing does not go with it.
    pub fn of(dtype: DType, dims: &[Option<usize>], preprocessing: &'p Preprocessing) -> Result<Self, String> {
        let [batch, a, b, c] = *dims else {
            return Err(format!("an image needs an input of four dimensions, but this input has {}", dims.len()));
        };
        if !matches!(dtype, DType::F32 | DType::F16 | DType::U8) {
            return Err(format!("an image needs an input of type f32, f16 or u8, but the input is {dtype}"));
        }
        let is_channels = |dim: Option<usize>| matches!(dim, Some(1 | 3));
        let found = match (is_channels(a), is_channels(c)) {
            (false, true) => Some(Layout::Nhwc),
            (true, _) => Some(Layout::Nchw),
            _ => None,
        };
        let layout = preprocessing.layout.or(found).ok_or(
            "an image needs a dimension of 1 or 3 channels, but the input has none; if it is open, give --image-layout",
        )?;
        let (channels, height, width) = match layout {
            Layout::Nchw => (a, b, c),
            Layout::Nhwc => (c, a, b),
        };
        let channels = channels.unwrap_or(3);
        if !matches!(channels, 1 | 3) {
            return Err(format!("an image has 1 or 3 channels, but the input has {channels}; see --image-layout"));
        }
        if [batch, height, width].contains(&Some(0)) {
            return Err("an image needs a height and width above 0, but a dimension of the input has size 0".into());
        }
        let wanted = preprocessing.size.map_or([None; 2], |size| size.map(Some));
        let size = [height.or(wanted[0]), width.or(wanted[1])];
        if let Some([rows, columns]) =
            preprocessing.size.filter(|size| size.map(Some) != [height.or(Some(size[0])), width.or(Some(size[1]))])
        {
            let known = |size: Option<usize>| size.map_or("any".into(), |size| size.to_string());
            return Err(format!(
                "--image-size {rows}x{columns} differs from the model's size, {} x {}; leave it out",
                known(height),
                known(width)
            ));
        }
        let target = Self { dtype, batch, channels, size, layout, preprocessing };
        target.norm_text().map(|_| target)
    }

    /// Reads image files as one tensor with the rows of a batch, unless `wanted` rejects its type and shape. All images
    /// have the same size in the tensor.
    ///
    /// # Errors
    /// If a file cannot be read, or if number or sizes do not fit. Errors begin with the file's name.
    pub fn read(
        &self,
        files: &[PathBuf],
        wanted: impl FnOnce(&TensorSpec) -> Result<(), String>,
    ) -> Result<(Tensor, Vec<Prepared>), String> {
        let (mut wanted, mut values, mut shape) = (Some(wanted), Vec::new(), None);
        let (mut size, mut prepared) = (self.size, Vec::new());
        for file in files {
            let named = |reason: String| format!("{}: {reason}", file.display());
            let picture = Picture::read(file, |own| {
                let [height, width] = [size[0].unwrap_or(own[0]), size[1].unwrap_or(own[1])];
                shape = Some(self.shape(files.len(), [height, width])?);
                match (wanted.take(), &shape) {
                    (Some(wanted), Some(shape)) => wanted(&TensorSpec::new(self.dtype, shape.clone())),
                    _ => Ok(()),
                }
            })
            .map_err(named)?;
            let one = self.prepare(file, [picture.height, picture.width], &mut size)?;
            self.append(&mut values, &picture, one.axes).map_err(named)?;
            prepared.push(one);
        }
        let shape = shape.ok_or("no image is given")?;
        let tensor = match self.dtype {
            DType::U8 => Tensor::from_elements(shape, &values.iter().map(|v| v.round() as u8).collect::<Vec<_>>()),
            DType::F16 => Tensor::from_elements(shape, &values.iter().map(|v| f16::from_f32(*v)).collect::<Vec<_>>()),
            _ => Tensor::from_elements(shape, &values),
        };
        Ok((tensor.map_err(|error| error.to_string())?, prepared))
    }

    /// Returns how image files are prepared. Reads their sizes alone.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub fn prepared(&self, files: &[PathBuf]) -> Result<Vec<Prepared>, String> {
        let mut size = self.size;
        let mut prepare = |file: &PathBuf| {
            let own = Picture::size(file).map_err(|reason| format!("{}: {reason}", file.display()))?;
            self.prepare(file, own, &mut size)
        };
        files.iter().map(&mut prepare).collect()
    }

    /// Returns how an image of its own height and width is prepared. An open size becomes that of the first image, so
    /// that all are alike.
    fn prepare(&self, file: &Path, own: [usize; 2], size: &mut [Option<usize>; 2]) -> Result<Prepared, String> {
        let elements = [size[0].unwrap_or(own[0]), size[1].unwrap_or(own[1])];
        *size = elements.map(Some);
        let axes = Axis::both(own, elements, self.preprocessing.fit);
        Ok(Prepared { file: file.to_owned(), axes, fit: self.preprocessing.fit, norm: self.norm_text()? })
    }

    /// Appends an image to the elements of the tensor.
    fn append(&self, values: &mut Vec<f32>, picture: &Picture, axes: [Axis; 2]) -> Result<(), String> {
        let (start, area) = (values.len(), axes[0].count * axes[1].count);
        values.try_reserve(area * self.channels).map_err(|_| "the image does not fit into memory")?;
        values.resize(start + area * self.channels, 0.0);
        for (colour, plane) in picture.planes(self.channels).enumerate() {
            let channel = if self.preprocessing.colors == Colors::Bgr { self.channels - 1 - colour } else { colour };
            let (first, step) = match self.layout {
                Layout::Nhwc => (channel, self.channels),
                Layout::Nchw => (channel * area, 1),
            };
            let own = &mut values[start + first..];
            resample::scale(&plane, axes, MARGIN, |at, pixel| own[at * step] = self.normed(pixel, colour, channel));
        }
        Ok(())
    }

    fn normed(&self, pixel: f32, colour: usize, channel: usize) -> f32 {
        match &self.preprocessing.affine {
            Some(affine) => {
                let [mean, scale] = affine.each_ref().map(|values| values[channel.min(values.len() - 1)]);
                (pixel - mean) / scale
            }
            None => self.norm().apply(pixel, colour),
        }
    }

    fn norm(&self) -> Norm {
        self.preprocessing.norm.unwrap_or(match (self.dtype, self.channels) {
            (DType::U8, _) => Norm::None,
            (_, 3) => Norm::Imagenet,
            _ => Norm::Unit,
        })
    }

    /// Returns the normalisation in words.
    ///
    /// # Errors
    /// If it does not go with the input.
    fn norm_text(&self) -> Result<String, String> {
        let is_bytes = self.dtype == DType::U8;
        if is_bytes && (self.preprocessing.affine.is_some() || self.norm() != Norm::None) {
            return Err("the input takes bytes, which are not normalised; use --image-norm none".into());
        }
        if let Some(affine) = &self.preprocessing.affine {
            for (values, option) in affine.iter().zip(["--image-mean", "--image-scale"]) {
                if values.len() != 1 && values.len() != self.channels {
                    let given = values.len();
                    return Err(format!("{option} has {given} values, but the input has {} channels", self.channels));
                }
            }
            let [mean, scale] = affine.each_ref().map(|values| {
                let texts: Vec<_> = values.iter().map(f32::to_string).collect();
                texts.join(", ")
            });
            return Ok(format!("(x − [{mean}]) / [{scale}]"));
        }
        match self.norm() {
            Norm::Imagenet if self.channels != 3 => {
                Err("ImageNet's means have three channels, but the input has one; use --image-norm unit".into())
            }
            Norm::Imagenet => Ok("ImageNet's means and deviations".into()),
            Norm::Unit => Ok("x / 255".into()),
            Norm::Signed => Ok("x / 127.5 − 1".into()),
            Norm::None => Ok("values 0 to 255".into()),
        }
    }

    fn shape(&self, images: usize, [height, width]: [usize; 2]) -> Result<Shape, String> {
        if let Some(batch) = self.batch.filter(|batch| *batch != images) {
            let advice =
                if images < batch { "repeat --input, once for each image" } else { "run them one after the other" };
            return Err(format!(
                "the model takes {} at once, but {} given; {advice}",
                count(batch, "image"),
                are(images)
            ));
        }
        let dims = match self.layout {
            Layout::Nhwc => [images, height, width, self.channels],
            Layout::Nchw => [images, self.channels, height, width],
        };
        Shape::new(dims).map_err(|error| error.to_string())
    }
}

/// Returns a number of images with the verb.
fn are(images: usize) -> String {
    if images == 1 { "1 is".into() } else { format!("{images} are") }
}

impl fmt::Display for Preprocessing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { norm, affine, size, fit, colors, layout } = self;
        let norm = norm.map(|norm| format!("norm {norm:?}"));
        let affine = affine.as_ref().map(|[mean, scale]| format!("mean {mean:?}, scale {scale:?}"));
        let size = size.map(|[rows, columns]| format!("size {rows}x{columns}"));
        let layout = layout.map(|layout| format!("layout {layout:?}"));
        let rest = [Some(format!("fit {fit:?}")), Some(format!("colours {colors:?}"))];
        let all: Vec<_> = [norm, affine, size, layout].into_iter().chain(rest).flatten().collect();
        write!(f, "images: {}", all.join(", ").to_lowercase())
    }
}

impl Norm {
    fn apply(self, pixel: f32, colour: usize) -> f32 {
        match self {
            Self::None => pixel,
            Self::Unit => pixel / 255.0,
            Self::Signed => pixel / 127.5 - 1.0,
            Self::Imagenet => {
                let (mean, deviation) = IMAGENET[colour];
                (pixel / 255.0 - mean) / deviation
            }
        }
    }
}

impl fmt::Display for Prepared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [down, across] = &self.axes;
        let how = match self.fit {
            _ if (down.length, across.length) == (down.count, across.count) => "as it is",
            Fit::Crop => "scaled to cover, and cropped around the centre",
            Fit::Letterbox => "scaled to fit, with grey around it",
            Fit::Stretch => "stretched",
        };
        let [from, to] = [(across.length, down.length), (across.count, down.count)].map(|(w, h)| format!("{w} × {h}"));
        write!(f, "{}: {from} → {to} pixels, {how}; {}", self.file.display(), self.norm)
    }
}
