//! Drawings of what a model sees over its images.

use super::{Contents, Mask, Object, Seen, named};
use crate::chart::escaped;
use crate::tensors::picture::Prepared;
use std::fmt::Write;

/// Colours by class, in turn.
const COLORS: [&str; 10] =
    ["#e6194b", "#3cb44b", "#4363d8", "#f58231", "#911eb4", "#008080", "#9a6324", "#800000", "#808000", "#000075"];

/// Draws what is seen over the images, one below the other. `files` are the images' bytes, as `prepared` names them.
///
/// Class 0 of a mask, in general the background, is not coloured.
pub fn picture(seen: &Seen, prepared: &[Prepared], files: &[Vec<u8>]) -> String {
    let width = prepared.iter().map(|image| image.axes[1].length).max().unwrap_or(0);
    let height: usize = prepared.iter().map(|image| image.axes[0].length).sum();
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
         font-family=\"sans-serif\">\n"
    );
    let mut top = 0;
    for (number, (image, bytes)) in prepared.iter().zip(files).enumerate() {
        let [rows, columns] = image.axes.map(|axis| axis.length);
        let kind = if bytes.starts_with(b"\x89PNG") { "png" } else { "jpeg" };
        _ = writeln!(svg, "<svg y=\"{top}\" width=\"{columns}\" height=\"{rows}\">");
        _ = writeln!(
            svg,
            "<image width=\"{columns}\" height=\"{rows}\" href=\"data:image/{kind};base64,{}\"/>",
            base64(bytes)
        );
        // Lines and letters of the same size on small and large images.
        let unit = rows.max(columns) as f64 / 400.0;
        match &seen.contents {
            Contents::Top(ranked) => {
                let own = ranked.iter().filter(|ranked| ranked.image == number);
                own.enumerate().for_each(|(line, ranked)| {
                    let text = format!("{} {:.1} %", named(ranked.class, &ranked.label), 100.0 * ranked.probability);
                    label(&mut svg, &text, [0.0, line as f64 * 16.0 * unit], unit, "#222");
                });
            }
            Contents::Boxes(objects) => {
                objects.iter().filter(|object| object.image == number).for_each(|object| draw(&mut svg, object, unit));
            }
            Contents::Mask(masks) => {
                masks.iter().filter(|mask| mask.image == number).for_each(|mask| {
                    colour(&mut svg, mask, image);
                    key(&mut svg, mask, unit);
                });
            }
        }
        svg.push_str("</svg>\n");
        top += rows;
    }
    svg + "</svg>\n"
}

fn draw(svg: &mut String, object: &Object, unit: f64) {
    let [left, top, right, bottom] = object.edges.map(f64::from);
    let colour = COLORS[object.class % COLORS.len()];
    _ = writeln!(
        svg,
        "<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"none\" stroke=\"{colour}\" \
         stroke-width=\"{:.2}\"/>",
        (right - left).max(0.0),
        (bottom - top).max(0.0),
        2.0 * unit
    );
    label(svg, &format!("{} {:.2}", named(object.class, &object.label), object.score), [left, top], unit, colour);
}

/// Writes white letters on a colour, below a corner.
fn label(svg: &mut String, text: &str, [left, top]: [f64; 2], unit: f64, colour: &str) {
    let width = (text.chars().count() as f64 * 6.6 + 6.0) * unit;
    _ = writeln!(
        svg,
        "<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{:.1}\" fill=\"{colour}\" \
         fill-opacity=\"0.8\"/><text x=\"{:.1}\" y=\"{:.1}\" font-size=\"{:.1}\" fill=\"#fff\">{}</text>",
        16.0 * unit,
        left + 3.0 * unit,
        top + 12.0 * unit,
        11.0 * unit,
        escaped(text)
    );
}

/// Names the most frequent classes of a mask, each on its colour.
fn key(svg: &mut String, mask: &Mask, unit: f64) {
    let coloured = mask.classes.iter().filter(|share| share.class != 0).take(COLORS.len());
    for (line, share) in coloured.enumerate() {
        let text = format!("{} {:.1} %", named(share.class, &share.label), 100.0 * share.share);
        label(svg, &text, [0.0, line as f64 * 16.0 * unit], unit, COLORS[share.class % COLORS.len()]);
    }
}

/// Colours the pixels of a mask, by a picture of its own that is stretched over the image.
fn colour(svg: &mut String, mask: &Mask, image: &Prepared) {
    let [height, width] = mask.size;
    let ends = image.axes.map(|axis| (axis.to_image(0.0), axis.to_image(axis.count as f64)));
    let [(top, bottom), (left, right)] = ends;
    _ = writeln!(
        svg,
        "<image x=\"{left:.2}\" y=\"{top:.2}\" width=\"{:.2}\" height=\"{:.2}\" preserveAspectRatio=\"none\" \
         opacity=\"0.5\" style=\"image-rendering:pixelated\" href=\"data:image/png;base64,{}\"/>",
        right - left,
        bottom - top,
        base64(&indexed(&mask.pixels, width, height))
    );
}

/// Returns a PNG file of the classes' colours. Class 0 is transparent.
fn indexed(classes: &[usize], width: usize, height: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, width as u32, height as u32);
    encoder.set_color(png::ColorType::Indexed);
    let channel = |colour: &str, at: usize| u8::from_str_radix(&colour[at..at + 2], 16).unwrap_or(0);
    let palette = COLORS.iter().flat_map(|colour| [1, 3, 5].map(|at| channel(colour, at)));
    encoder.set_palette([0; 3].into_iter().chain(palette).collect::<Vec<u8>>());
    encoder.set_trns(vec![0]);
    let index = |class: &usize| if *class == 0 { 0 } else { 1 + (class % COLORS.len()) as u8 };
    let pixels: Vec<u8> = classes.iter().map(index).collect();
    // A vector takes all, and the sizes are those of a mask that is in memory.
    _ = encoder.write_header().and_then(|mut writer| writer.write_image_data(&pixels));
    bytes
}

/// Returns bytes in base 64 (RFC 4648).
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let bits = (0..3).fold(0u32, |bits, at| bits << 8 | u32::from(*three.get(at).unwrap_or(&0)));
        let digit = |at: usize| char::from(DIGITS[(bits >> (18 - 6 * at) & 63) as usize]);
        text.extend((0..4).map(|at| if at <= three.len() { digit(at) } else { '=' }));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::base64;

    #[test]
    fn base_64_is_that_of_the_standard() {
        let known =
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg=="), ("fooba", "Zm9vYmE=")];
        known.iter().for_each(|(bytes, text)| assert_eq!(base64(bytes.as_bytes()), *text));
        assert_eq!(base64(&[0xfb, 0xff, 0xfe]), "+//+");
    }
}
