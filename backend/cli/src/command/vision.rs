//! Classes, boxes or masks in the outputs of a vision model, as text and drawn over the images.

use super::args::{ModelArgs, refuse_given};
use super::files::file_of;
use super::inputs::images_of;
use super::{CliError, write_file};
use anabranch::session::{Outputs, Session};
use anabranch_report::tensors::picture::{Prepared, embeddable};
use anabranch_report::vision::{Labels, Seen, Show, picture, seen};
use clap::Args;
use serde::Serialize;
use std::path::PathBuf;

/// Least score of an object by default.
const THRESHOLD: f32 = 0.25;

/// Options of what is shown of the outputs of a vision model.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Files")]
pub(crate) struct VisionArgs {
    /// Show the outputs as top5, boxes or mask
    ///
    /// `top5` shows the five classes with the highest scores of each image, and `top20` twenty. `boxes` shows objects
    /// of detectors: SSD, Faster R-CNN, YOLO, and models that end with boxes. Boxes of one class that share more than
    /// 45 % of their union are one object, unless the model has chosen. `mask` shows the classes of pixels.
    #[arg(long, value_name = "WHAT")]
    show: Option<Show>,
    /// Name classes by the lines of a file, from class 0
    #[arg(long, value_name = "FILE", requires = "show", hide_short_help = true)]
    labels: Option<PathBuf>,
    /// Show objects with at least this score [default: 0.25]
    #[arg(long, value_name = "SCORE", value_parser = parse_score, requires = "show", hide_short_help = true)]
    threshold: Option<f32>,
    /// Draw what is shown over the images
    #[arg(long, value_name = "FILE.svg", value_parser = file_of(&["svg"]), requires = "show", hide_short_help = true)]
    picture: Option<PathBuf>,
}

/// Contents of the outputs, and the images that they are of.
#[derive(Serialize)]
#[serde(transparent)]
pub(crate) struct View {
    seen: Seen,
    #[serde(skip)]
    images: Vec<Prepared>,
}

impl View {
    pub(crate) fn text(&self) -> String {
        self.seen.text()
    }
}

impl VisionArgs {
    /// Reads the labels, before anything is run.
    pub(crate) fn labels(&self) -> Result<Labels, CliError> {
        let read = |path: &PathBuf| Labels::read(path).map_err(|reason| CliError::in_file(path, reason));
        self.labels.as_ref().map_or(Ok(Labels::default()), read)
    }

    /// Finds what to show in the outputs.
    pub(crate) fn see(
        &self,
        session: &Session,
        model: &ModelArgs,
        outputs: &Outputs,
        labels: &Labels,
    ) -> Result<Option<View>, CliError> {
        let Some(show) = self.show else { return Ok(None) };
        let (images, threshold) = (images_of(model, session)?, self.threshold.unwrap_or(THRESHOLD));
        let seen = seen(show, outputs.iter(), labels, threshold, &images)
            .map_err(|reason| CliError::input(format!("--show: {reason}")))?;
        Ok(Some(View { seen, images }))
    }

    /// Draws what is shown, if a file is named.
    pub(crate) fn draw(&self, view: Option<&View>) -> Result<(), CliError> {
        let Some((path, View { seen, images })) = self.picture.as_ref().zip(view) else { return Ok(()) };
        let read = |image: &Prepared| embeddable(&image.file).map_err(|reason| CliError::in_file(&image.file, reason));
        let files = images.iter().map(read).collect::<Result<Vec<_>, _>>()?;
        write_file(path, picture(seen, images, &files))
    }

    /// Refuses what cannot be shown, before anything is run.
    pub(crate) fn check(&self, model: &ModelArgs) -> Result<(), CliError> {
        let why = "it is drawn over the images of one input, which --input names (.png, .jpg)";
        let is_without = self.picture.is_some() && model.image_inputs() != 1;
        refuse_given(&[(is_without, "--picture", why)], "these inputs")?;
        let is_unused = self.threshold.is_some() && self.show != Some(Show::Boxes);
        refuse_given(&[(is_unused, "--threshold", "it is for --show boxes")], "this --show")
    }

    pub(crate) fn is_asked(&self) -> bool {
        self.show.is_some()
    }
}

fn parse_score(text: &str) -> Result<f32, String> {
    let score = text.parse::<f32>().ok().filter(|score| (0.0..=1.0).contains(score));
    score.ok_or_else(|| format!("`{text}` is not a score; write a number from 0 to 1"))
}
