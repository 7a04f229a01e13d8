// Memory and number of executable nodes of each device over time: as areas of steps, predicted behind measured.

const steps = (() => {
  const series = (mode) => data.devices.map((device, index) => (mode === "memory"
    ? { device, index, predicted: device.memory_predicted, measured: device.memory_measured, planned: device.planned_peak, peak: device.measured_peak, limit: device.limit, text: bytes }
    : { device, index, predicted: device.executable_predicted, measured: device.executable_measured, planned: null, peak: null, limit: null, text: amount }));

  /// Draws a chart for each device, one below the other, each `height` high.
  function draw(context, mode, width, height) {
    series(mode).forEach((one, index) => drawChart(context, mode, one, { y: index * height + 16, height: height - 26 }, width));
  }

  function drawChart(context, mode, one, box, width) {
    const values = [...one.predicted, ...one.measured].map((step) => step[1]);
    const most = Math.max(1, one.planned || 0, one.peak || 0, ...[values.reduce((max, value) => Math.max(max, value), 0)]) * 1.12;
    const limitShown = one.limit !== null && one.limit <= most * 1.5;
    const top = limitShown ? Math.max(most, one.limit * 1.08) : most;
    const y = (value) => box.y + box.height - (value / top) * box.height;
    const colour = paint.device[one.index];
    context.textAlign = "left";
    context.fillStyle = colour;
    context.fillRect(0, box.y - 8, 4, box.height + 12);
    context.fillStyle = paint.ink;
    context.font = `600 ${smallType}`;
    context.fillText(fitted(context, one.device.name, axis.gutter - 16), 12, box.y - 2);
    context.font = smallType;
    context.fillStyle = paint.quiet;
    sideNotes(mode, one, limitShown).forEach((note, line) => context.fillText(fitted(context, note, axis.gutter - 16), 12, box.y + 13 + 14 * line));
    context.save();
    context.beginPath();
    context.rect(axis.gutter, box.y - 12, width, box.height + 16);
    context.clip();
    const [front, back] = isMeasured ? [one.measured, one.predicted] : [one.predicted, []];
    area(context, front, y, { colour, fill: 0.3, line: 1.6, end: makespan });
    area(context, back, y, { colour: paint.quiet, fill: 0.07, line: 1.2, dash: [4, 3], end: data.predicted.makespan_ns });
    const rule = (value, ink, dash) => {
      context.strokeStyle = ink;
      context.setLineDash(dash);
      context.lineWidth = 1.2;
      context.beginPath();
      context.moveTo(axis.gutter, y(value));
      context.lineTo(width, y(value));
      context.stroke();
      context.setLineDash([]);
    };
    if (one.planned) rule(one.planned, paint.quiet, [2, 3]);
    if (one.peak) rule(one.peak, paint.ink, []);
    if (limitShown) rule(one.limit, paint.bad, [7, 4]);
    context.restore();
    context.fillStyle = paint.line;
    context.fillRect(axis.gutter, box.y + box.height, width, 1);
  }

  function sideNotes(mode, one, limitShown) {
    const most = (steps) => steps.reduce((max, step) => Math.max(max, step[1]), 0);
    if (mode !== "memory") {
      return [`predicted ≤ ${most(one.predicted)}`, ...(isMeasured ? [`measured ≤ ${most(one.measured)}`] : [])];
    }
    return [
      `planned ${bytes(one.planned)}`,
      ...(one.peak === null ? [] : [`measured ${bytes(one.peak)}`]),
      ...(one.limit === null ? [] : [`limit ${bytes(one.limit)}${limitShown ? "" : " ↑"}`]),
    ];
  }

  /// Draws steps as an area. If several fall on one pixel, the greatest is drawn.
  function area(context, steps, y, { colour, fill, line, end, dash = [] }) {
    if (steps.length === 0) return;
    const points = [];
    const base = y(0);
    let before = 0;
    let column = null;
    const close = () => {
      if (column === null) return;
      points.push([column.x, y(before)], [column.x, y(column.most)]);
      if (column.last !== column.most) points.push([column.x, y(column.last)]);
      before = column.last;
    };
    const begin = Math.max(0, firstStep(steps, axis.view.from));
    for (let at = begin; at < steps.length && steps[at][0] <= axis.view.to; at += 1) {
      const place = Math.round(Math.max(axis.gutter - 2, axis.x(steps[at][0])));
      if (column !== null && column.x === place) { column.most = Math.max(column.most, steps[at][1]); column.last = steps[at][1]; continue; }
      close();
      column = { x: place, most: steps[at][1], last: steps[at][1] };
    }
    close();
    points.push([Math.min(axis.x(end), axis.width + 5), y(before)]);
    context.beginPath();
    points.forEach((point, index) => (index === 0 ? context.moveTo(...point) : context.lineTo(...point)));
    context.strokeStyle = colour;
    context.lineWidth = line;
    context.setLineDash(dash);
    context.stroke();
    context.setLineDash([]);
    context.lineTo(points[points.length - 1][0], base);
    context.lineTo(points[0][0], base);
    context.globalAlpha = fill;
    context.fillStyle = colour;
    context.fill();
    context.globalAlpha = 1;
  }

  function firstStep(steps, time) {
    let [low, high] = [0, steps.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (steps[middle][0] <= time) low = middle + 1; else high = middle;
    }
    return low - 1;
  }

  /// Returns the values at a time, device by device.
  function valuesAt(mode, time) {
    const value = (list) => { const at = firstStep(list, time); return at < 0 ? 0 : list[at][1]; };
    return series(mode).map((one) => {
      const predicted = `predicted ${one.text(value(one.predicted))}`;
      const measured = isMeasured ? `, measured ${one.text(value(one.measured))}` : "";
      return `${one.device.name}: ${predicted}${measured}`;
    });
  }

  return { draw, valuesAt };
})();
