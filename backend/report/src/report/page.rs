//! The page: data, code and style in one file that makes no network requests.

use crate::chart::escaped;
use serde_json::Value;

const STYLE: &str = include_str!("page/page.css");
/// Scripts in the order of their dependencies.
const CODE: [&str; 18] = [
    include_str!("page/core.js"),
    include_str!("page/svg.js"),
    include_str!("page/lanes.js"),
    include_str!("page/axis.js"),
    include_str!("page/schedule.js"),
    include_str!("page/steps.js"),
    include_str!("page/timeline.js"),
    include_str!("page/layout.js"),
    include_str!("page/scopes.js"),
    include_str!("page/shades.js"),
    include_str!("page/graph.js"),
    include_str!("page/chain.js"),
    include_str!("page/runs.js"),
    include_str!("page/details.js"),
    include_str!("page/table.js"),
    include_str!("page/export.js"),
    include_str!("page/selftest.js"),
    include_str!("page/main.js"),
];
const BODY: &str = include_str!("page/page.html");

/// Content security policy: run only the code in the file.
const POLICY: &str = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:";

/// Returns the report as one HTML file. If it is opened with the fragment `#selftest`, it exercises its own controls
/// and reports whether they work.
pub fn page(model: &str, data: &Value) -> String {
    let (title, code) = (escaped(model), CODE.concat());
    // The JSON must not contain `<`, so that no name can end the script element or begin a comment in it.
    let json = data.to_string().replace('<', "\\u003c");
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>{title} · Anabranch</title>\n\
         <link rel=\"icon\" href=\"data:,\">\n<style>\n{STYLE}</style>\n</head>\n<body>\n{BODY}\
         <script type=\"application/json\" id=\"data\">{json}</script>\n<script>\n\"use strict\";\n{code}</script>\n\
         </body>\n</html>\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn no_name_can_leave_the_data() {
        let hostile = "</script><script>alert(1)</script><!--<script>\u{2028}\"'&\\";
        let page = page(hostile, &json!({ "nodes": [{ "name": hostile }] }));
        assert_eq!(page.matches("</script>").count(), 2);
        assert_eq!(page.matches("<script").count(), 2);
        assert!(!page.contains("<!--") && !page.contains("http://") && !page.contains("https://"));
        let json = page.split("id=\"data\">").nth(1).and_then(|rest| rest.split("</script>").next()).expect("data");
        let read: Value = serde_json::from_str(json).expect("JSON");
        assert_eq!(read["nodes"][0]["name"], hostile);
    }
}
