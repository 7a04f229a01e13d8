// Shared parts of the page: the data, figures as text, colours, the selection, and canvases that are sharp on every
// screen.

const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);

/// Makes an element with attributes and children. Text is always text, never markup.
function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (key === "style") made.style.cssText = value;
    else if (value !== undefined && value !== false) made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.flat(9).filter((child) => child !== undefined && child !== null && child !== false && child !== ""));
  return made;
}

/// Returns a number with `places` digits after the point. A result of zero has no sign.
const rounded = (value, places) => value.toFixed(places).replace(/^-(0(\.0*)?)$/, "$1");

/// Returns a number with three digits.
function digits(value) {
  const size = Math.abs(value);
  return rounded(value, size < 9.995 ? 2 : size < 99.95 ? 1 : 0);
}

/// Returns nanoseconds with a unit.
function duration(ns) {
  const size = Math.abs(ns);
  if (size === 0) return "0";
  if (size < 1e3) return `${Math.round(ns)} ns`;
  if (size < 999.5e3) return `${digits(ns / 1e3)} µs`;
  if (size < 999.5e6) return `${digits(ns / 1e6)} ms`;
  return `${digits(ns / 1e9)} s`;
}

function bytes(count) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let power = 0;
  while (count >= 1024 && power < units.length - 1) { count /= 1024; power += 1; }
  return `${power === 0 ? count : digits(count)} ${units[power]}`;
}

/// Returns a number with three digits and a letter for thousands and so on.
function amount(value) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size < 1e-3 || size >= 1e15) return value.toExponential(1);
  const power = size < 1e4 ? 0 : Math.min(4, Math.floor(Math.log10(size) / 3));
  return digits(value / 10 ** (3 * power)) + ["", "k", "M", "G", "T"][power];
}

const nodeCount = (count) => `${count} ${count === 1 ? "node" : "nodes"}`;

const percent = (share) => `${Math.abs(share) < 0.0995 ? rounded(100 * share, 1) : Math.round(100 * share)} %`;

/// Time for which an item works, without waits for chunks.
const lengthOf = (times) => (times ? times.busy : 0);

/// `(predicted − measured) / measured`; undefined if there is nothing to compare.
const errorFrom = (predicted, measured) => (measured > 100 ? (predicted - measured) / measured : undefined);
const errorOf = (thing) => errorFrom(lengthOf(thing.predicted), lengthOf(thing.measured));

/// Returns an error in percent with its sign; empty if there is none.
function errorText(error) {
  if (error === undefined) return "";
  const text = percent(Math.abs(error));
  return `${text.startsWith("0.0 ") ? "" : error < 0 ? "−" : "+"}${text}`;
}

const isMeasured = data.measured !== null;
/// Returns the best known times: measured times if there are any.
const timesOf = (thing) => thing.measured || thing.predicted;
const timeOfNode = (node) => lengthOf(timesOf(node));
/// Returns the bytes of a node's constants and outputs, which can be added up.
const memoryOfNode = (node) => [...node.inputs.filter((port) => port.constant), ...node.outputs].reduce((sum, port) => sum + port.bytes, 0);
const isCritical = (thing) => (isMeasured ? thing.critical_measured : thing.critical_predicted);
const makespan = (isMeasured ? data.measured : data.predicted).makespan_ns;
const span = Math.max(1, data.predicted.makespan_ns, isMeasured ? data.measured.makespan_ns : 0);

// --- colours ---------------------------------------------------------------------------------------------------------------

/// Cool colours for CPUs, warm colours for all other devices.
const deviceColour = (() => {
  const cool = [0, 2, 4, 7];
  const warm = [1, 3, 5, 6];
  const next = { cpu: 0, other: 0 };
  return data.devices.map((device) => {
    const family = device.kind.toLowerCase() === "cpu" ? "cpu" : "other";
    const list = family === "cpu" ? cool : warm;
    next[family] += 1;
    return list[(next[family] - 1) % list.length];
  });
})();

let paint = {};
function readColours() {
  const style = getComputedStyle(document.documentElement);
  const names = ["paper", "panel", "line", "faint", "ink", "quiet", "accent", "mark", "edge", "cross", "good", "bad", "cold", "hot"];
  paint = Object.fromEntries(names.map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
  paint.palette = [0, 1, 2, 3, 4, 5, 6, 7].map((number) => style.getPropertyValue(`--d${number}`).trim());
  paint.device = deviceColour.map((number) => paint.palette[number]);
}

/// Returns a colour between two colours given as `#rrggbb`.
function mixed(from, to, share) {
  const parts = (colour) => [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
  const [one, other] = [parts(from), parts(to)];
  return "#" + one.map((part, at) => Math.round(part + (other[at] - part) * share).toString(16).padStart(2, "0")).join("");
}

/// Returns black or white, depending on which is more legible on a colour.
function inkOn(colour) {
  const [red, green, blue] = [1, 3, 5].map((at) => (parseInt(colour.slice(at, at + 2), 16) / 255) ** 2.2);
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.3 ? "#14181d" : "#ffffff";
}

function setTheme(dark) {
  document.documentElement.classList.toggle("dark", dark);
  readColours();
}

const smallType = "11px system-ui, 'Segoe UI', Arial, 'DejaVu Sans', sans-serif";

const swatch = (colour) => element("span", { class: "swatch", style: `background:${colour}` });
const deviceChip = (index) => element("span", { class: "chip" }, swatch(paint.device[index]), data.devices[index].name);

// --- selection -------------------------------------------------------------------------------------------------------------

/// The selected item: `{kind: "node" | "transfer" | "group", index}` or null.
let selected = null;
let hovered = null;
const same = (one, other) => one === other || (one && other && one.kind === other.kind && one.index === other.index);
const listeners = [];
/// Calls `listener(selected, from)` whenever the selection changes.
const onSelect = (listener) => listeners.push(listener);

/// Selects an item in all views. `from` is the view in which the user did it, which does not move.
function select(item, from) {
  selected = item;
  listeners.forEach((listener) => listener(item, from));
  announce(item === null ? "nothing selected" : tipOf(item).flat().join(", "));
}

/// Announces a text to screen readers.
function announce(text) { byId("status").textContent = text; }

function hover(item) {
  if (same(item, hovered)) return;
  hovered = item;
  graph.redraw();
  timeline.redraw();
}

/// Returns the node of the selection, if it has one.
const selectedNode = () => (selected === null || selected.kind === "group" ? null : selected.kind === "node" ? selected.index : data.transfers[selected.index].node);

// --- tip -------------------------------------------------------------------------------------------------------------------

function showTip(event, title, lines) {
  const tip = byId("tip");
  if (title === undefined) { tip.hidden = true; return; }
  tip.replaceChildren(element("b", {}, title), lines.join("\n"));
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  const right = event.clientX + 14 + width > innerWidth ? event.clientX - 14 - width : event.clientX + 14;
  const below = event.clientY + 16 + height > innerHeight ? event.clientY - 10 - height : event.clientY + 16;
  tip.style.left = `${Math.max(4, right)}px`;
  tip.style.top = `${Math.max(4, below)}px`;
}

function tipOf(item) {
  if (item.kind === "node") {
    const node = data.nodes[item.index];
    const lines = [`${node.op} on ${data.devices[node.device].name}`];
    if (node.role === "node") lines.push(comparison(node));
    return [node.name, lines];
  }
  if (item.kind === "group") {
    const group = scene.toGroup(item.index);
    return [scene.nameOf(group), [`${nodeCount(scene.nodesOf(group).length)}, ${duration(shades.timeOf(group))}`]];
  }
  const transfer = data.transfers[item.index];
  const [from, to] = [data.devices[transfer.from].name, data.devices[transfer.to].name];
  const how = transfer.route === "streamed" ? `streamed in ${transfer.chunks} chunks` : transfer.route;
  return [transfer.name, [`${from} → ${to}, ${bytes(transfer.bytes)}, ${how}`, comparison(transfer)]];
}

function comparison(thing) {
  const predicted = thing.predicted ? `predicted ${duration(lengthOf(thing.predicted))}` : "";
  const measured = thing.measured ? `measured ${duration(lengthOf(thing.measured))}` : "";
  return [predicted, measured].filter(Boolean).join(", ");
}

// --- canvas ----------------------------------------------------------------------------------------------------------------

/// A canvas in CSS pixels, drawn at most once per frame, as sharp as the screen.
class Board {
  constructor(id, draw) {
    this.canvas = byId(id);
    this.context = this.canvas.getContext("2d");
    this.draw = draw;
    this.due = false;
    this.width = 0;
    this.height = 0;
    new ResizeObserver(() => this.resize()).observe(this.canvas);
    this.resize();
    this.redraw();
  }

  /// Draws at once: a canvas whose size changes is empty until it is drawn.
  resize() {
    const { width, height } = this.canvas.getBoundingClientRect();
    const ratio = window.devicePixelRatio || 1;
    const size = [Math.max(1, Math.round(width * ratio)), Math.max(1, Math.round(height * ratio))];
    [this.width, this.height] = [width, height];
    if (this.canvas.width === size[0] && this.canvas.height === size[1]) return;
    [this.canvas.width, this.canvas.height] = size;
    this.now();
  }

  redraw() {
    if (this.due) return;
    this.due = true;
    requestAnimationFrame(() => this.now());
  }

  now() {
    this.due = false;
    if (this.width === 0 || this.height === 0 || paint.paper === undefined) return;
    const ratio = this.canvas.width / this.width;
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.context.clearRect(0, 0, this.width, this.height);
    this.draw(this.context, this.width, this.height);
  }
}

/// Calls `move(dx, dy, event)` while the pointer drags, and `click(event)` if it does not move.
function onDrag(canvas, move, click) {
  let start = null;
  let moved = false;
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    start = [event.clientX, event.clientY];
    moved = false;
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (start === null) return;
    const [dx, dy] = [event.clientX - start[0], event.clientY - start[1]];
    if (!moved && Math.hypot(dx, dy) < 4) return;
    moved = true;
    canvas.classList.add("drag");
    start = [event.clientX, event.clientY];
    move(dx, dy, event);
  });
  const end = (event) => {
    if (start !== null && !moved && event.type === "pointerup") click(event);
    start = null;
    canvas.classList.remove("drag");
  };
  canvas.addEventListener("pointerup", end);
  canvas.addEventListener("pointercancel", end);
}

/// Returns `text`, cut to `width` pixels.
function fitted(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  let [low, high] = [0, text.length];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (context.measureText(text.slice(0, middle) + "…").width <= width) low = middle; else high = middle - 1;
  }
  return low > 1 ? text.slice(0, low) + "…" : "";
}

/// Returns the end of `text`, cut to `width` pixels: names of one module differ at their ends.
function fittedEnd(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  let [low, high] = [0, text.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (context.measureText("…" + text.slice(middle)).width <= width) high = middle; else low = middle + 1;
  }
  return low < text.length ? "…" + text.slice(low) : "";
}
