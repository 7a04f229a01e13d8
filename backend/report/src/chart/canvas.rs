//! Draws shapes and text of an SVG file. Canvas texts are escaped here; other code that writes HTML calls `escaped`.

use super::theme::STYLE;
use crate::text::shortened;
use std::fmt::Write;

/// Part of a text that lies at its point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

/// A rectangle, in pixels from the upper left corner.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Rect {
    pub(crate) x: f64,
    pub(crate) y: f64,
    pub(crate) width: f64,
    pub(crate) height: f64,
}

impl Rect {
    pub(crate) fn right(&self) -> f64 {
        self.x + self.width
    }

    pub(crate) fn bottom(&self) -> f64 {
        self.y + self.height
    }
}

/// Smallest scale at which a page may show a chart.
const LEAST_SCALE: f64 = 0.68;

/// An SVG file while it is drawn. The theme's classes determine the style.
#[derive(Debug, Clone, Default)]
pub(crate) struct Canvas {
    body: String,
}

impl Canvas {
    /// Draws text with its baseline at a point.
    pub(crate) fn text(&mut self, (x, y): (f64, f64), anchor: Anchor, class: &str, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let (x, y, text) = (pixels(x), pixels(y), escaped(text));
        self.put(format_args!(r#"<text x="{x}" y="{y}" text-anchor="{anchor}" class="{class}">{text}</text>"#));
    }

    /// Draws a straight line.
    pub(crate) fn line(&mut self, (x1, y1): (f64, f64), (x2, y2): (f64, f64), class: &str) {
        let (x1, y1, x2, y2) = (pixels(x1), pixels(y1), pixels(x2), pixels(y2));
        self.put(format_args!(r#"<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" class="{class}"/>"#));
    }

    /// Draws a rectangle with corners of radius `round`. `tip` is its tooltip.
    pub(crate) fn rect(&mut self, rect: Rect, round: f64, class: &str, tip: Option<&str>) {
        let (x, y) = (pixels(rect.x), pixels(rect.y));
        let (width, height, round) = (pixels(rect.width), pixels(rect.height), pixels(round));
        let rx = if round == "0" { String::new() } else { format!(r#" rx="{round}""#) };
        let shape = format!(r#"<rect x="{x}" y="{y}" width="{width}" height="{height}"{rx} class="{class}""#);
        match tip {
            Some(tip) => self.put(format_args!("{shape}><title>{}</title></rect>", escaped(tip))),
            None => self.put(format_args!("{shape}/>")),
        }
    }

    /// Draws many rectangles as one shape, which takes a fraction of the text of separate shapes. `opacity` is from 0
    /// to 1.
    pub(crate) fn rects(&mut self, rects: &[Rect], opacity: f64, class: &str) {
        let mut path = String::new();
        for rect in rects {
            let (x, y, width) = (pixels(rect.x), pixels(rect.y), pixels(rect.width));
            let _ = write!(path, "M{x} {y}h{width}v{}h-{width}z", pixels(rect.height));
        }
        if !rects.is_empty() {
            let opacity = if opacity < 1.0 { format!(r#" fill-opacity="{}""#, pixels(opacity)) } else { String::new() };
            self.put(format_args!(r#"<path d="{path}"{opacity} class="{class}"/>"#));
        }
    }

    /// Draws straight lines from point to point. If `base` is given, the shape is closed along it and filled.
    pub(crate) fn polyline(&mut self, points: &[(f64, f64)], base: Option<f64>, class: &str) {
        let (Some(first), Some(last)) = (points.first(), points.last()) else { return };
        let mut path = String::new();
        let point = |(x, y): (f64, f64)| format!("{} {}", pixels(x), pixels(y));
        if let Some(base) = base {
            let _ = write!(path, "M{} L{}", point((first.0, base)), point(*first));
        } else {
            let _ = write!(path, "M{}", point(*first));
        }
        points[1..].iter().for_each(|at| {
            let _ = write!(path, " L{}", point(*at));
        });
        if let Some(base) = base {
            let _ = write!(path, " L{} Z", point((last.0, base)));
        }
        self.put(format_args!(r#"<path d="{path}" class="{class}"/>"#));
    }

    /// Returns the file: `width` × `height` pixels, with a title and a description for screen readers.
    pub(crate) fn finish(self, width: f64, height: f64, title: &str, description: &str) -> String {
        // Text stays readable on a page as narrow as a telephone; a wider chart is scrolled.
        let least = pixels(width * LEAST_SCALE);
        let (width, height) = (pixels(width), pixels(height));
        let (title, description, body) = (escaped(title), escaped(description), self.body);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"chart\" role=\"img\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {width} {height}\" style=\"min-width:{least}px\">\n<title>{title}</title>\n<desc>{description}</desc>\n<style>{STYLE}</style>\n\
             <rect width=\"{width}\" height=\"{height}\" class=\"paper\"/>\n{body}</svg>\n"
        )
    }

    fn put(&mut self, element: std::fmt::Arguments<'_>) {
        // Writing into a String cannot fail.
        let _ = self.body.write_fmt(element);
        self.body.push('\n');
    }
}

/// Returns a length with at most two decimals; 0 if it is not finite.
fn pixels(value: f64) -> String {
    if !value.is_finite() {
        return "0".into();
    }
    let text = format!("{value:.2}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".into() } else { text.into() }
}

/// Mean width of a character in 12-pixel type.
pub(super) const CHARACTER: f64 = 6.7;

/// Returns `text`, cut to fit into `width` pixels.
pub(super) fn fitted(text: &str, width: f64) -> String {
    shortened(text, (width / CHARACTER).max(1.0) as usize)
}

/// Escapes `text` as character data of XML and HTML, between tags or in quotes. Characters that XML cannot hold become
/// U+FFFD.
pub fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\t' | '\n' | '\r' => escaped.push(' '),
            '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            _ if character.is_control() => escaped.push('\u{fffd}'),
            _ => escaped.push(character),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_from_outside_stays_text() {
        assert_eq!(escaped("a<b>&\"c\"'d'\u{0}\n"), "a&lt;b&gt;&amp;&quot;c&quot;&#39;d&#39;\u{fffd} ");
        let mut canvas = Canvas::default();
        let hostile = "</title><script>alert(1)</script>";
        canvas.text((0.0, 0.0), Anchor::Start, "ink", hostile);
        canvas.rect(Rect { x: 0.0, y: 0.0, width: 1.0, height: 1.0 }, 0.0, "c0", Some(hostile));
        let file = canvas.finish(10.0, 10.0, hostile, hostile);
        assert!(!file.contains("<script"));
        assert_eq!(file.matches("&lt;script&gt;").count(), 4);
    }

    #[test]
    fn long_text_is_cut_to_its_room() {
        assert_eq!((fitted("short", 100.0).as_str(), fitted("much too long", 40.0).as_str()), ("short", "much…"));
        assert_eq!(fitted("ab", 0.0), "…");
    }

    #[test]
    fn lengths_are_short_and_finite() {
        for (value, text) in
            [(1.0, "1"), (0.5, "0.5"), (1.0 / 3.0, "0.33"), (-0.001, "0"), (f64::NAN, "0"), (1e3, "1000")]
        {
            assert_eq!(pixels(value), text);
        }
    }

    #[test]
    fn many_rectangles_are_one_path() {
        let mut canvas = Canvas::default();
        let rect = |x| Rect { x, y: 1.0, width: 2.5, height: 4.0 };
        canvas.rects(&[rect(0.0), rect(9.0)], 1.0, "c1");
        canvas.rects(&[], 0.5, "c1");
        assert_eq!(canvas.body, "<path d=\"M0 1h2.5v4h-2.5zM9 1h2.5v4h-2.5z\" class=\"c1\"/>\n");
    }

    #[test]
    fn lines_close_along_their_base() {
        let mut canvas = Canvas::default();
        canvas.polyline(&[(0.0, 5.0), (2.0, 3.0)], Some(9.0), "area");
        canvas.polyline(&[], None, "area");
        assert_eq!(canvas.body, "<path d=\"M0 9 L0 5 L2 3 L2 9 Z\" class=\"area\"/>\n");
    }
}
