// A drawing context that writes SVG: drawings of boards become files that can be scaled and printed. It supports the
// canvas operations that the boards use: paths, rectangles, text, dashes, clips of rectangles, and matrices that move
// and scale.

/// Namespace of SVG, taken from the browser: the page itself contains no address.
const svgSpace = new DOMParser().parseFromString("<svg></svg>", "text/html").querySelector("svg").namespaceURI;

class SvgContext {
  /// Number of clips in all files: their names must differ if several files are in one page.
  static clips = 0;

  constructor(width, height) {
    [this.width, this.height] = [width, height];
    this.parts = [];
    this.stack = [];
    this.ruler = document.createElement("canvas").getContext("2d");
    this.state = { scale: 1, x: 0, y: 0, clip: null, alpha: 1, fill: "#000000", stroke: "#000000", line: 1, dash: [], font: "11px sans-serif", align: "left", base: "alphabetic" };
    this.path = [];
    this.rectangle = null;
  }

  set globalAlpha(value) { this.state.alpha = value; }
  set fillStyle(value) { this.state.fill = value; }
  set strokeStyle(value) { this.state.stroke = value; }
  set lineWidth(value) { this.state.line = value; }
  set font(value) { this.state.font = value; }
  get font() { return this.state.font; }
  set textAlign(value) { this.state.align = value; }
  set textBaseline(value) { this.state.base = value; }
  setLineDash(dash) { this.state.dash = dash; }
  measureText(text) { this.ruler.font = this.state.font; return this.ruler.measureText(text); }
  save() { this.stack.push({ ...this.state }); }
  restore() { this.state = this.stack.pop() || this.state; }
  translate(x, y) { this.state.x += x * this.state.scale; this.state.y += y * this.state.scale; }
  scale(by) { this.state.scale *= by; }

  at(x, y) { return `${this.short(x * this.state.scale + this.state.x)} ${this.short(y * this.state.scale + this.state.y)}`; }
  short(value) { return String(Math.round(value * 100) / 100); }
  beginPath() { this.path = []; this.rectangle = null; }
  moveTo(x, y) { this.path.push(`M${this.at(x, y)}`); this.last = [x, y]; }
  lineTo(x, y) { this.path.push(`${this.path.length === 0 ? "M" : "L"}${this.at(x, y)}`); this.last = [x, y]; }
  bezierCurveTo(a, b, c, d, x, y) { this.path.push(`C${this.at(a, b)} ${this.at(c, d)} ${this.at(x, y)}`); this.last = [x, y]; }
  closePath() { this.path.push("Z"); }

  /// A round corner, as a curve between the points at which the circle would touch.
  arcTo(x, y, toX, toY, radius) {
    const toward = ([fromX, fromY]) => {
      const length = Math.hypot(fromX - x, fromY - y);
      const share = length > 0 ? Math.min(1, radius / length) : 0;
      return [x + (fromX - x) * share, y + (fromY - y) * share];
    };
    const [from, to] = [toward(this.last), toward([toX, toY])];
    this.path.push(`L${this.at(...from)}Q${this.at(x, y)} ${this.at(...to)}`);
    this.last = to;
  }

  rect(x, y, width, height) {
    this.rectangle = [x, y, width, height];
    this.path.push(`M${this.at(x, y)}L${this.at(x + width, y)}L${this.at(x + width, y + height)}L${this.at(x, y + height)}Z`);
  }

  roundRect(x, y, width, height, radii) {
    const radius = Math.max(0, Math.min(Array.isArray(radii) ? radii[0] : radii, width / 2, height / 2));
    const [right, bottom] = [x + width, y + height];
    this.path.push(`M${this.at(x + radius, y)}L${this.at(right - radius, y)}Q${this.at(right, y)} ${this.at(right, y + radius)}L${this.at(right, bottom - radius)}`
      + `Q${this.at(right, bottom)} ${this.at(right - radius, bottom)}L${this.at(x + radius, bottom)}Q${this.at(x, bottom)} ${this.at(x, bottom - radius)}L${this.at(x, y + radius)}Q${this.at(x, y)} ${this.at(x + radius, y)}Z`);
  }

  clip() {
    if (this.rectangle === null) return;
    SvgContext.clips += 1;
    const inner = this.state.clip === null ? "" : ` clip-path="url(#c${this.state.clip})"`;
    this.parts.push(`<clipPath id="c${SvgContext.clips}"><path d="${this.path.join("")}"${inner}/></clipPath>`);
    this.state.clip = SvgContext.clips;
  }

  get attributes() {
    const { clip, alpha } = this.state;
    return (clip === null ? "" : ` clip-path="url(#c${clip})"`) + (alpha < 1 ? ` opacity="${this.short(alpha)}"` : "");
  }

  /// A pattern is not drawn; only the shape below it is.
  fill() {
    if (typeof this.state.fill !== "string" || this.path.length === 0) return;
    this.parts.push(`<path d="${this.path.join("")}" fill="${this.state.fill}"${this.attributes}/>`);
  }

  stroke() {
    const { stroke, line, dash, scale } = this.state;
    if (this.path.length === 0) return;
    const dashes = dash.length > 0 ? ` stroke-dasharray="${dash.map((part) => part * scale).join(" ")}"` : "";
    this.parts.push(`<path d="${this.path.join("")}" fill="none" stroke="${stroke}" stroke-width="${this.short(line * scale)}"${dashes}${this.attributes}/>`);
  }

  /// Draws a separate path: the current path stays.
  apart(draw, x, y, width, height) {
    const [path, rectangle] = [this.path, this.rectangle];
    this.beginPath();
    this.rect(x, y, width, height);
    draw();
    [this.path, this.rectangle] = [path, rectangle];
  }

  fillRect(...box) { this.apart(() => this.fill(), ...box); }
  strokeRect(...box) { this.apart(() => this.stroke(), ...box); }

  fillText(text, x, y) {
    if (text === "") return;
    const { font, fill, align, base, scale } = this.state;
    const [, weight, size, family] = /^(?:(\d+) )?([\d.]+)px (.*)$/.exec(font) || [null, null, "11", "sans-serif"];
    const anchor = { center: "middle", right: "end" }[align] || "start";
    // A third of the font size is about half of the height of its letters.
    const [left, low] = this.at(x, base === "middle" ? y + Number(size) * 0.35 : y).split(" ");
    const plain = String(text).replace(/[&<>]/g, (sign) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;" })[sign]).replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f]/g, "");
    this.parts.push(`<text x="${left}" y="${low}" font-family="${family.replace(/"/g, "'")}" font-size="${this.short(size * scale)}"${weight ? ` font-weight="${weight}"` : ""} text-anchor="${anchor}" fill="${fill}"${this.attributes}>${plain}</text>`);
  }

  /// Returns the file, on paper of a colour.
  file(paper) {
    const { width, height } = this;
    return `<svg xmlns="${svgSpace}" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}"><rect width="${width}" height="${height}" fill="${paper}"/>${this.parts.join("\n")}</svg>\n`;
  }
}
