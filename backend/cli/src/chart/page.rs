//! Charts on one HTML page that needs nothing else.

use super::canvas::escaped;
use std::fmt::Write;

const STYLE: &str = "\
:root{color-scheme:light dark}body{margin:24px auto;max-width:1180px;padding:0 16px;background:#fff;color:#1f2328;\
font-family:system-ui,'Segoe UI','Helvetica Neue',Arial,sans-serif;font-size:14px}h1{font-size:22px}\
figure{margin:24px 0;overflow-x:auto}svg{max-width:100%;height:auto}\
table{border-collapse:collapse}td{padding:3px 18px 3px 0;vertical-align:top}td:first-child{color:#59636e}\
.figures td,.figures th{text-align:left;border-bottom:1px solid #8886;font-variant-numeric:tabular-nums}\
.figures th{font-weight:600;padding:3px 18px 3px 0}.figures .right{text-align:right}.figures td:first-child{color:inherit}\
@media (prefers-color-scheme:dark){body{background:#0d1117;color:#e6edf3}td:first-child{color:#9198a1}}";

/// A page with a title, a table of names and values, and SVG files one below the other.
pub(crate) fn page(title: &str, facts: &[(&str, String)], charts: &[String]) -> String {
    let title = escaped(title);
    let mut html = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n\
         <body>\n<h1>{title}</h1>\n<table>\n"
    );
    for (name, value) in facts {
        // Writing into a String cannot fail.
        let _ = writeln!(html, "<tr><td>{}</td><td>{}</td></tr>", escaped(name), escaped(value));
    }
    html.push_str("</table>\n");
    for chart in charts {
        let _ = writeln!(html, "<figure>\n{chart}</figure>");
    }
    html.push_str("</body>\n</html>\n");
    html
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_escaped_and_charts_are_not() {
        let html = page("a <b>", &[("graph", "x & y".into())], &["<svg></svg>\n".into()]);
        assert!(html.contains("<h1>a &lt;b&gt;</h1>") && html.contains("<td>x &amp; y</td>"));
        assert!(html.contains("<figure>\n<svg></svg>\n</figure>"));
    }
}
