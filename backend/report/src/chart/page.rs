//! Charts and tables on one self-contained HTML page. A click on a column's head sorts a table of figures.

use super::canvas::escaped;
use std::fmt::Write;

const STYLE: &str = "\
:root{color-scheme:light dark}*{box-sizing:border-box}\
body{margin:24px auto;max-width:1180px;padding:0 16px;background:#fff;color:#1f2328;overflow-wrap:anywhere;\
font-family:system-ui,'Segoe UI','Helvetica Neue',Arial,sans-serif;font-size:14px}h1{font-size:22px}h2{font-size:17px;margin:40px 0 8px}\
h3{font-size:15px;margin:0 0 6px}figure{margin:24px 0;overflow-x:auto}svg{max-width:100%;height:auto;display:block}\
table{border-collapse:collapse}td{padding:3px 18px 3px 0;vertical-align:top}td:first-child,.quiet{color:#59636e}td:first-child{white-space:nowrap}\
.figures{overflow-wrap:normal}.figures td,.figures th{text-align:left;border-bottom:1px solid #8886;font-variant-numeric:tabular-nums}\
.figures th{font-weight:600;padding:3px 18px 3px 0}.figures .right{text-align:right;white-space:nowrap}.figures td:first-child{color:inherit;white-space:normal}\
.figures th button{font:inherit;color:inherit;background:none;border:0;padding:0;cursor:pointer;text-align:inherit;white-space:nowrap}\
.figures th button::after{content:'\\00a0\\00a0'}.figures [aria-sort=ascending] button::after{content:'\\00a0↑'}\
.figures [aria-sort=descending] button::after{content:'\\00a0↓'}\
@media (min-width:1900px){body{max-width:1500px}}@media print{figure{break-inside:avoid}}\
@media (prefers-color-scheme:dark){body{background:#0d1117;color:#e6edf3}td:first-child,.quiet{color:#9198a1}}";

/// Script that sorts tables of figures.
const SCRIPT: &str = include_str!("sort.js");

/// Content security policy: run only the code in the file.
const POLICY: &str = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:";

/// Returns a page with a title, a table of names and values, and SVG files or tables one below the other.
pub fn page(title: &str, facts: &[(&str, String)], parts: &[String]) -> String {
    let (title, facts) = (escaped(title), table(facts));
    let mut html = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>{title}</title>\n<link rel=\"icon\" href=\"data:,\">\n\
         <style>{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n{facts}"
    );
    for part in parts {
        // Writing into a String cannot fail.
        let _ = writeln!(html, "<figure tabindex=\"0\">\n{part}</figure>");
    }
    let _ = writeln!(html, "<script>\n{SCRIPT}</script>\n</body>\n</html>");
    html
}

/// Returns the beginning of a section of a page.
pub fn section(title: &str, facts: &[(&str, String)]) -> String {
    format!("<h2>{}</h2>\n{}", escaped(title), table(facts))
}

/// Returns a part of a page with a title and a short explanation above it.
pub fn titled(title: &str, explained: &str, part: &str) -> String {
    format!("<h3>{}</h3>\n<p class=\"quiet\">{}</p>\n{part}", escaped(title), escaped(explained))
}

/// Returns a table of names and values.
fn table(facts: &[(&str, String)]) -> String {
    let row =
        |(name, value): &(&str, String)| format!("<tr><td>{}</td><td>{}</td></tr>\n", escaped(name), escaped(value));
    format!("<table>\n{}</table>\n", facts.iter().map(row).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_escaped_and_charts_are_not() {
        let html = page("a <b>", &[("graph", "x & y".into())], &["<svg></svg>\n".into()]);
        assert!(html.contains("<h1>a &lt;b&gt;</h1>") && html.contains("<td>x &amp; y</td>"));
        assert!(html.contains("<figure tabindex=\"0\">\n<svg></svg>\n</figure>"));
        assert_eq!((html.matches("<script").count(), html.matches("</script>").count()), (1, 1));
        let part = titled("a <b>", "c & d", "<table></table>") + &section("e < f", &[]);
        assert!(part.contains("a &lt;b&gt;") && part.contains("c &amp; d") && part.contains("e &lt; f"), "{part}");
    }
}
