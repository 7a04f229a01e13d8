// Measured runs, of very many only every n-th: each a point, in the order in which they were made, with their median
// and the prediction.

const runs = (() => {
  const told = data.facts.runs;
  const list = told === null ? [] : told.latencies_ns;
  const board = new Board("runs", draw);
  const text = () => {
    if (told === null) return "";
    return `${told.count} measured runs: least ${duration(told.min_ns)}, median ${duration(told.median_ns)}, p90 ${duration(told.p90_ns)}, p99 ${duration(told.p99_ns)}, most ${duration(told.max_ns)}; predicted ${duration(data.predicted.makespan_ns)}; first of all ${duration(told.first_ns)}`;
  };

  function draw(context, width, height) {
    if (list.length === 0) return;
    const [left, right, top, bottom] = [74, width - 16, 14, height - 34];
    const most = Math.max(...[data.predicted.makespan_ns, told.high_ns], list.reduce((found, one) => Math.max(found, one), 0)) * 1.08;
    const x = (run) => left + ((run + 0.5) / list.length) * (right - left);
    const y = (time) => bottom - (time / most) * (bottom - top);
    context.font = smallType;
    context.textBaseline = "middle";
    drawAxes(context, { left, right, top, bottom, most, x, y });
    context.globalAlpha = 0.15;
    context.fillStyle = paint.accent;
    context.fillRect(left, y(told.high_ns), right - left, Math.max(1, y(told.low_ns) - y(told.high_ns)));
    context.globalAlpha = 1;
    rule(context, left, right, y(told.median_ns), paint.accent, []);
    rule(context, left, right, y(data.predicted.makespan_ns), paint.quiet, [4, 3]);
    context.fillStyle = paint.ink;
    const size = Math.max(1.5, Math.min(4, (right - left) / list.length / 3));
    list.forEach((time, run) => {
      context.beginPath();
      context.roundRect(x(run) - size, y(time) - size, 2 * size, 2 * size, size);
      context.fill();
    });
  }

  function rule(context, left, right, y, colour, dash) {
    context.strokeStyle = colour;
    context.lineWidth = 1.5;
    context.setLineDash(dash);
    context.beginPath();
    context.moveTo(left, y);
    context.lineTo(right, y);
    context.stroke();
    context.setLineDash([]);
  }

  function drawAxes(context, { left, right, top, bottom, most, x, y }) {
    const raw = (most / Math.max(1, bottom - top)) * 34;
    const power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].map((factor) => factor * power).find((one) => one >= raw);
    for (let time = 0; time <= most; time += step) {
      context.fillStyle = paint.faint;
      context.fillRect(left, y(time), right - left, 1);
      context.fillStyle = paint.quiet;
      context.textAlign = "right";
      context.fillText(duration(time), left - 8, y(time));
    }
    const every = Math.max(1, Math.ceil(list.length / Math.max(1, (right - left) / 60)));
    context.textAlign = "center";
    for (let run = 0; run < list.length; run += every) context.fillText(`${run * told.every + 1}`, x(run), bottom + 12);
    context.fillText("measured run, in the order in which they were made; time of the whole run", (left + right) / 2, bottom + 26);
  }

  /// Shows the run under the pointer.
  function tip(event) {
    const box = board.canvas.getBoundingClientRect();
    const run = Math.floor(((event.clientX - box.left - 74) / Math.max(1, board.width - 90)) * list.length);
    if (run < 0 || run >= list.length) showTip(event); else showTip(event, `run ${run * told.every + 1}`, [duration(list[run])]);
  }

  function listen() {
    board.canvas.setAttribute("aria-label", text());
    board.canvas.addEventListener("pointermove", tip);
    board.canvas.addEventListener("pointerleave", (event) => showTip(event));
  }

  function keys() {
    const line = (colour, kind) => element("span", { class: "stroke", style: `border-top:2px ${kind} ${colour}` });
    byId("keys").replaceChildren(
      element("span", {}, element("span", { class: "swatch round", style: `background:${paint.ink}` }), told.every > 1 ? `one run of every ${told.every}` : "one run"), element("span", {}, line(paint.accent, "solid"), "median"),
      element("span", {}, element("span", { class: "swatch", style: `background:${paint.accent};opacity:.25` }), `where the median is with ${Math.round(100 * told.confidence)} % confidence`),
      element("span", {}, line(paint.quiet, "dashed"), "predicted"), element("span", {}, text()));
  }

  return { board, listen, keys, count: told === null ? 0 : told.count };
})();
