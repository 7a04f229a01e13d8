// The time axis that schedule, memory and executable nodes share: its visible part, its ticks, and a measured range.

const axis = (() => {
  const height = 24;
  const view = { from: 0, to: span, top: 0 };
  const self = { view, height, gutter: 132, width: 1, range: null };
  const plotWidth = () => Math.max(1, self.width - self.gutter - 14);
  const x = (time) => self.gutter + ((time - view.from) / (view.to - view.from)) * plotWidth();
  const timeAt = (pixel) => view.from + ((pixel - self.gutter) / plotWidth()) * (view.to - view.from);

  /// For a board of this width; names have less room on a narrow board.
  function resize(width) { self.width = width; self.gutter = width < 560 ? 126 : 132; }

  /// Shows a range within the run, at least a few nanoseconds long.
  function show(from, to) {
    const length = Math.min(span * 1.02, Math.max(to - from, Math.min(span, 20)));
    view.from = Math.max(0, Math.min(from, span * 1.02 - length));
    view.to = view.from + length;
  }

  function zoom(factor, pixel = self.gutter + plotWidth() / 2) {
    const [time, share] = [timeAt(pixel), (pixel - self.gutter) / plotWidth()];
    const length = Math.min(span * 1.02, Math.max(20, (view.to - view.from) / factor));
    show(time - share * length, time + (1 - share) * length);
  }

  function pan(dx) {
    const time = (dx / plotWidth()) * (view.to - view.from);
    show(view.from - time, view.to - time);
  }

  function ticks() {
    const raw = ((view.to - view.from) / plotWidth()) * 110;
    const power = 10 ** Math.floor(Math.log10(Math.max(raw, 1e-9)));
    const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((one) => one >= raw * 0.999) || raw;
    const list = [];
    for (let number = Math.ceil(view.from / step); number * step <= view.to; number += 1) list.push(number * step);
    return [list, step];
  }

  function drawGrid(context, below) {
    const [list, step] = ticks();
    const [unit, name] = span < 1e4 ? [1, "ns"] : span < 1e7 ? [1e3, "µs"] : span < 1e10 ? [1e6, "ms"] : [1e9, "s"];
    const places = Math.max(0, Math.min(6, -Math.floor(Math.log10(step / unit) + 1e-9) + (`${step / unit}`.includes("25") ? 1 : 0)));
    context.textAlign = "center";
    for (const time of list) {
      const text = `${(time / unit).toFixed(places)} ${name}`;
      context.fillStyle = paint.faint;
      context.fillRect(x(time), height, 1, below - height);
      context.fillStyle = paint.quiet;
      const half = context.measureText(text).width / 2;
      context.fillText(text, Math.min(x(time), self.width - half - 2), height / 2 + 1);
    }
    context.fillStyle = paint.line;
    context.fillRect(0, height - 0.5, self.width, 1);
  }

  /// Draws the ends of the run, as predicted and as measured.
  function drawEnds(context, below) {
    const ends = [[data.predicted.makespan_ns, paint.quiet, [4, 3]]];
    if (isMeasured) ends.push([data.measured.makespan_ns, paint.ink, []]);
    for (const [time, colour, dash] of ends) {
      if (time < view.from || time > view.to) continue;
      context.strokeStyle = colour;
      context.lineWidth = 1;
      context.setLineDash(dash);
      context.beginPath();
      context.moveTo(x(time), height);
      context.lineTo(x(time), below);
      context.stroke();
      context.setLineDash([]);
    }
  }

  function drawRange(context, below) {
    if (self.range === null) return;
    const [left, right] = [Math.max(self.gutter, x(self.range.from)), Math.min(self.width, x(self.range.to))];
    if (right <= left) return;
    context.globalAlpha = 0.13;
    context.fillStyle = paint.accent;
    context.fillRect(left, height, right - left, below - height);
    context.globalAlpha = 1;
    context.fillStyle = paint.accent;
    context.fillRect(left, height - 4, right - left, 4);
    flag(context, duration(self.range.to - self.range.from), (left + right) / 2);
  }

  function drawCursor(context, cursor, below) {
    if (cursor === null || cursor < self.gutter) return;
    context.fillStyle = paint.accent;
    context.fillRect(cursor, height, 1, below - height);
    flag(context, duration(timeAt(cursor)), cursor);
  }

  /// Draws a text on the axis, around a position.
  function flag(context, text, at) {
    context.textAlign = "center";
    const half = context.measureText(text).width / 2 + 6;
    const middle = Math.min(Math.max(at, self.gutter + half), self.width - half);
    context.fillStyle = paint.accent;
    context.fillRect(middle - half, 3, 2 * half, height - 6);
    context.fillStyle = inkOn(paint.accent);
    context.fillText(text, middle, height / 2 + 1);
  }

  /// Returns for each lane the number of items in a range, and the time for which they work in it.
  function figures({ from, to }) {
    return lanes.map((lane) => {
      const list = (isMeasured ? lane.measured : lane.predicted).filter((bar) => bar.end > from && bar.start < to);
      const within = (bar) => (bar.end > bar.start ? (bar.busy * (Math.min(bar.end, to) - Math.max(bar.start, from))) / (bar.end - bar.start) : 0);
      const names = new Map();
      list.forEach((bar) => names.set(bar.name, (names.get(bar.name) || 0) + within(bar)));
      const top = [...names].sort((one, other) => other[1] - one[1]).slice(0, 3);
      return { lane, count: list.length, busy: list.reduce((sum, bar) => sum + within(bar), 0), top };
    });
  }

  return Object.assign(self, { plotWidth, x, timeAt, resize, show, zoom, pan, drawGrid, drawEnds, drawRange, drawCursor, figures });
})();
