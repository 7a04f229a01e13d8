//! The page: data, code and style in one file, which asks the network for nothing.

use super::data::ReportData;
use crate::chart::escaped;

const STYLE: &str = include_str!("page/page.css");
/// In the order in which they need each other.
const CODE: [&str; 6] = [
    include_str!("page/core.js"),
    include_str!("page/graph.js"),
    include_str!("page/timeline.js"),
    include_str!("page/details.js"),
    include_str!("page/table.js"),
    include_str!("page/main.js"),
];
const BODY: &str = include_str!("page/page.html");

/// What the browser may do: run what is in the file, and nothing else.
const POLICY: &str = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:";

/// The report as one HTML file. Opened with the fragment `#selftest`, it exercises its own controls and says whether they work.
pub(crate) fn page(data: &ReportData) -> Result<String, serde_json::Error> {
    let (title, json, code) = (escaped(&data.facts.model), embedded(data)?, CODE.concat());
    Ok(format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>{title} · Anabranch</title>\n\
         <link rel=\"icon\" href=\"data:,\">\n<style>\n{STYLE}</style>\n</head>\n<body>\n{BODY}\
         <script type=\"application/json\" id=\"data\">{json}</script>\n<script>\n\"use strict\";\n{code}</script>\n\
         </body>\n</html>\n"
    ))
}

/// The data as JSON in which no `<` is left, so that no name can end the script element or begin a comment in it.
fn embedded(data: &ReportData) -> Result<String, serde_json::Error> {
    Ok(serde_json::to_string(data)?.replace('<', "\\u003c"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::data::NodeData;

    #[test]
    fn no_name_can_leave_the_data() {
        let hostile = "</script><script>alert(1)</script><!--<script>\u{2028}\"'&\\";
        let mut data = ReportData::default();
        data.facts.model = hostile.into();
        data.nodes.push(NodeData { name: hostile.into(), ..NodeData::default() });
        let page = page(&data).expect("serialisable");
        assert_eq!(page.matches("</script>").count(), 2);
        assert_eq!(page.matches("<script").count(), 2);
        assert!(!page.contains("<!--") && !page.contains("http://") && !page.contains("https://"));
        let json = page.split("id=\"data\">").nth(1).and_then(|rest| rest.split("</script>").next()).expect("data");
        let read: serde_json::Value = serde_json::from_str(json).expect("JSON");
        assert_eq!(read["nodes"][0]["name"], hostile);
    }
}
