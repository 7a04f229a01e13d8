//! Options of images as inputs.

use super::args::refuse_given;
use super::{CliError, note};
use anabranch_report::tensors::picture::{Colors, Fit, Layout, Norm, Prepared, Preprocessing};
use clap::Args;

/// Preparation of images before the model reads them.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct ImageArgs {
    /// Normalise images [default: by channels, type]
    ///
    /// The default is `imagenet` for 3 channels, `unit` for 1, and `none` for inputs of `u8`.
    #[arg(long, value_enum, value_name = "NORM", hide_short_help = true)]
    image_norm: Option<Norm>,
    /// Subtract these, as in 123.7,116.3,103.5
    ///
    /// For images as inputs. The model reads (x − mean) / scale for x from 0 to 255: one value for all channels, or one
    /// for each, in the model's order of channels.
    #[arg(long, value_name = "MEANS", value_delimiter = ',', value_parser = parse_mean, hide_short_help = true)]
    image_mean: Vec<f32>,
    /// Then divide by these, as in 58.4,57.1,57.4
    ///
    /// For images as inputs: one value for all channels, or one for each.
    #[arg(long, value_name = "SCALES", value_delimiter = ',', value_parser = parse_scale, hide_short_help = true)]
    image_scale: Vec<f32>,
    /// Scale to HxW, if open [default: image's size]
    ///
    /// For models that leave height and width of an image open. The default is the size of the first image.
    #[arg(long, value_name = "HxW", value_parser = parse_size, hide_short_help = true)]
    image_size: Option<[usize; 2]>,
    /// Fit images of other proportions [default: crop]
    #[arg(long, value_enum, value_name = "FIT", hide_short_help = true)]
    image_fit: Option<Fit>,
    /// Order the colours of images [default: rgb]
    #[arg(long, value_enum, value_name = "ORDER", hide_short_help = true)]
    image_colors: Option<Colors>,
    /// Order the axes [default: channels at 1 or 3]
    ///
    /// For models that leave the channels of an image open. The default has the channels where the model has 1 or 3.
    #[arg(long, value_enum, value_name = "LAYOUT", hide_short_help = true)]
    image_layout: Option<Layout>,
}

impl ImageArgs {
    /// Refuses options of images for inputs without images.
    pub(crate) fn check(&self, has_images: bool) -> Result<(), CliError> {
        let why = "no --input is an image (.png, .jpg)";
        let given = [
            (self.image_norm.is_some(), "--image-norm"),
            (!self.image_mean.is_empty(), "--image-mean"),
            (!self.image_scale.is_empty(), "--image-scale"),
            (self.image_size.is_some(), "--image-size"),
            (self.image_fit.is_some(), "--image-fit"),
            (self.image_colors.is_some(), "--image-colors"),
            (self.image_layout.is_some(), "--image-layout"),
        ];
        refuse_given(&given.map(|(is_given, name)| (is_given && !has_images, name, why)), "these inputs")
    }

    pub(crate) fn preprocessing(&self) -> Result<Preprocessing, CliError> {
        let (mean, scale) = (&self.image_mean, &self.image_scale);
        let is_affine = !mean.is_empty() || !scale.is_empty();
        if is_affine {
            let why = "these say how images are normalised";
            refuse_given(&[(self.image_norm.is_some(), "--image-norm", why)], "--image-mean and --image-scale")?;
        }
        let or = |values: &[f32], usual| if values.is_empty() { vec![usual] } else { values.to_vec() };
        Ok(Preprocessing {
            norm: self.image_norm,
            affine: is_affine.then(|| [or(mean, 0.0), or(scale, 1.0)]),
            size: self.image_size,
            fit: self.image_fit.unwrap_or_default(),
            colors: self.image_colors.unwrap_or_default(),
            layout: self.image_layout,
        })
    }
}

/// Notes what was done to images.
pub(crate) fn tell(input: &str, images: &[Prepared]) {
    for image in images.iter().take(MOST_TOLD) {
        note(format_args!("{input}: {image}"));
    }
    if let Some(more) = images.len().checked_sub(MOST_TOLD).filter(|more| *more > 0) {
        note(format_args!("{input}: {more} more images, prepared by the same options"));
    }
}

/// Most images of a batch that are told one by one.
const MOST_TOLD: usize = 3;

fn parse_mean(text: &str) -> Result<f32, String> {
    let mean = text.trim().parse::<f32>().ok().filter(|mean| mean.is_finite());
    mean.ok_or_else(|| format!("`{text}` is not a number; write one, or one for each channel, as in 123.7,116.3,103.5"))
}

fn parse_scale(text: &str) -> Result<f32, String> {
    match text.trim().parse::<f32>() {
        Ok(scale) if scale.is_finite() && scale != 0.0 => Ok(scale),
        Ok(_) => Err(format!("`{text}` cannot be a scale: it divides, and is neither 0 nor infinite")),
        Err(_) => Err(format!("`{text}` is not a number; write one, or one for each channel, as in 58.4,57.1,57.4")),
    }
}

/// Most rows or columns of an image for a model.
const MOST_ROWS: usize = 1 << 16;

fn parse_size(text: &str) -> Result<[usize; 2], String> {
    let size = text.split_once(['x', 'X', '×']).and_then(|(rows, columns)| {
        let side = |side: &str| side.trim().parse().ok().filter(|size| (1..=MOST_ROWS).contains(size));
        Some([side(rows)?, side(columns)?])
    });
    size.ok_or_else(|| format!("`{text}` is not a size; write HEIGHTxWIDTH, as in 480x640, up to {MOST_ROWS} each"))
}
