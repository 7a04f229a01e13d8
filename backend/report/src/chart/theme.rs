//! Colours and type, as the style sheet of every chart. The eight colours are those of Okabe and Ito 2008, which people
//! with any kind of colour vision can distinguish. Dark mode has light ink and the same colours, some of them brighter.

/// Number of colours: classes `c0` to `c7` fill with them, `l0` to `l7` draw lines in them.
pub(super) const COLOURS: usize = 8;

/// The style sheet.
pub(super) const STYLE: &str = "\
.chart text{font-family:system-ui,'Segoe UI','Helvetica Neue',Arial,'DejaVu Sans',sans-serif;font-size:12px}\
.chart .title{font-size:17px;font-weight:600}.chart .heading{font-size:13px;font-weight:600}.chart .small{font-size:10.5px}\
.chart .best{font-weight:700}\
.paper{fill:#ffffff}.ink{fill:#1f2328}.quiet{fill:#59636e}.lane{fill:#f2f4f6}\
.grid{stroke:#e4e8ec;stroke-width:1}.axis{stroke:#8c959f;stroke-width:1}\
.whisker{stroke:#1f2328;stroke-width:1.2}.break{stroke:#ffffff;stroke-width:2.6}.limit{stroke:#1f2328;stroke-width:1.4;stroke-dasharray:5 3}\
.c0{fill:#0072b2}.c1{fill:#e69f00}.c2{fill:#009e73}.c3{fill:#cc79a7}.c4{fill:#56b4e9}.c5{fill:#d55e00}.c6{fill:#b8a800}.c7{fill:#8c8c8c}\
.l0{stroke:#0072b2}.l1{stroke:#e69f00}.l2{stroke:#009e73}.l3{stroke:#cc79a7}.l4{stroke:#56b4e9}.l5{stroke:#d55e00}\
.l6{stroke:#b8a800}.l7{stroke:#8c8c8c}.rest{fill-opacity:.5}.pale{fill-opacity:.66}.step{fill:none;stroke-width:1.3}.area{fill-opacity:.22}\
@media (prefers-color-scheme:dark){\
.paper{fill:#0d1117}.ink{fill:#e6edf3}.quiet{fill:#9198a1}.lane{fill:#161b22}\
.grid{stroke:#262c34}.axis{stroke:#6e7681}.whisker,.limit{stroke:#e6edf3}.break{stroke:#0d1117}\
.c0{fill:#2f8fd0}.l0{stroke:#2f8fd0}.c6{fill:#f0e442}.l6{stroke:#f0e442}}";
