// What happens over time: the schedule, the memory and the executable nodes, all on one axis; predicted above measured.

const timeline = (() => {
  const gutter = 132;
  const axisHeight = 24;
  const view = { from: 0, to: span, top: 0 };
  let mode = "schedule";
  let onlyChain = false;
  let cursor = null;

  // --- lanes: devices, then links; on each what is predicted and what was measured

  const byStart = (one, other) => one.start - other.start;
  /// By start. Predicted transfers may share a link: `reach` is when all so far have ended, `room` when the next begins.
  function bars(items, when) {
    const list = items.filter((item) => item.thing[when])
      .map((item) => ({ ...item, start: item.thing[when].start, end: item.thing[when].end, busy: item.thing[when].busy, critical: item.thing[`critical_${when}`] }))
      .sort(byStart);
    list.forEach((bar, at) => {
      bar.reach = Math.max(bar.end, at > 0 ? list[at - 1].reach : 0);
      bar.room = at + 1 < list.length ? Math.min(bar.end, list[at + 1].start) : bar.end;
    });
    return list;
  }

  const lanes = (() => {
    const onDevice = data.devices.map(() => []);
    data.nodes.forEach((node, index) => {
      if (node.role === "node") onDevice[node.device].push({ kind: "node", index, thing: node, name: node.op });
    });
    const made = data.devices.map((device, index) => ({
      name: device.name, note: device.description, device: index, colour: () => paint.device[index], items: onDevice[index],
    }));
    const links = new Map();
    data.transfers.forEach((transfer, index) => {
      if (transfer.route === "shared") return;
      const key = `${transfer.from} ${transfer.to}`;
      if (!links.has(key)) {
        const name = `${data.devices[transfer.from].name} → ${data.devices[transfer.to].name}`;
        links.set(key, { name, note: "link", order: [transfer.from, transfer.to], colour: () => paint.cross, items: [] });
      }
      links.get(key).items.push({ kind: "transfer", index, thing: transfer, name: transfer.name, streamed: transfer.route === "streamed" });
    });
    const sorted = [...links.values()].sort((one, other) => one.order[0] - other.order[0] || one.order[1] - other.order[1]);
    const streamInto = new Set(data.transfers.map((transfer) => transfer.into).filter((node) => node !== null));
    return [...made, ...sorted].map((lane) => {
      lane.items.forEach((item) => { item.streamed ??= item.thing.block !== null || streamInto.has(item.index); });
      const busy = (list) => list.reduce((sum, bar) => sum + bar.busy, 0);
      const [predicted, measured] = [bars(lane.items, "predicted"), bars(lane.items, "measured")];
      return { ...lane, predicted, measured, busy: busy(isMeasured ? measured : predicted) };
    });
  })();

  /// As high as there is room for all lanes, within reason.
  const rows = isMeasured ? 2 : 1;
  let rowHeight = 17;
  const laneHeight = () => rows * rowHeight + 11;
  const chartHeight = () => Math.max(74, Math.min(150, (board.height - axisHeight - 8) / data.devices.length));
  const contentHeight = () => axisHeight + 6 + (mode === "schedule" ? lanes.length * laneHeight() : data.devices.length * chartHeight());

  // --- the view

  const board = new Board("time", draw);
  const redraw = () => board.redraw();
  const plotWidth = () => Math.max(1, board.width - gutter - 14);
  const x = (time) => gutter + ((time - view.from) / (view.to - view.from)) * plotWidth();
  const timeAt = (pixel) => view.from + ((pixel - gutter) / plotWidth()) * (view.to - view.from);

  /// Within the run, and not closer than a few nanoseconds.
  function show(from, to) {
    const length = Math.min(span * 1.02, Math.max(to - from, Math.min(span, 20)));
    view.from = Math.max(0, Math.min(from, span * 1.02 - length));
    view.to = view.from + length;
    redraw();
  }

  const fit = () => { view.top = 0; show(0, span * 1.02); };

  function zoom(factor, pixel = gutter + plotWidth() / 2) {
    const [time, share] = [timeAt(pixel), (pixel - gutter) / plotWidth()];
    const length = Math.min(span * 1.02, Math.max(20, (view.to - view.from) / factor));
    show(time - share * length, time + (1 - share) * length);
  }

  function pan(dx, dy) {
    view.top = Math.max(0, Math.min(view.top - dy, contentHeight() - board.height));
    const time = (dx / plotWidth()) * (view.to - view.from);
    show(view.from - time, view.to - time);
  }

  /// Brings both bars of something into view.
  function reveal(item) {
    const thing = item.kind === "node" ? data.nodes[item.index] : data.transfers[item.index];
    const times = [thing.predicted, thing.measured].filter(Boolean);
    if (times.length === 0) return redraw();
    const [start, end] = [Math.min(...times.map((t) => t.start)), Math.max(...times.map((t) => t.end))];
    const length = view.to - view.from;
    if (start < view.from || end > view.to) {
      const wanted = Math.max(length, (end - start) * 1.3);
      show((start + end - wanted) / 2, (start + end + wanted) / 2);
    }
    const lane = lanes.findIndex((one) => one.items.some((other) => other.kind === item.kind && other.index === item.index));
    if (mode === "schedule" && lane >= 0) {
      const top = axisHeight + lane * laneHeight();
      if (top < view.top + axisHeight || top + laneHeight() > view.top + board.height) view.top = Math.max(0, Math.min(top - axisHeight, contentHeight() - board.height));
    }
    redraw();
  }

  // --- drawing

  const small = "11px system-ui, 'Segoe UI', Arial, 'DejaVu Sans', sans-serif";

  function draw(context, width, height) {
    rowHeight = Math.max(17, Math.min(25, ((height - axisHeight - 8) / Math.max(1, lanes.length) - 11) / rows));
    view.top = Math.max(0, Math.min(view.top, contentHeight() - height));
    context.font = small;
    context.textBaseline = "middle";
    drawGrid(context, height);
    context.save();
    context.beginPath();
    context.rect(0, axisHeight, width, height - axisHeight);
    context.clip();
    context.translate(0, axisHeight + 4 - view.top);
    if (mode === "schedule") drawLanes(context, width, height); else drawCharts(context, width);
    context.restore();
    drawCursor(context, width, height);
  }

  function ticks() {
    const raw = ((view.to - view.from) / plotWidth()) * 110;
    const power = 10 ** Math.floor(Math.log10(Math.max(raw, 1e-9)));
    const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((one) => one >= raw * 0.999) || raw;
    const list = [];
    for (let number = Math.ceil(view.from / step); number * step <= view.to; number += 1) list.push(number * step);
    return [list, step];
  }

  function drawGrid(context, height) {
    const [list, step] = ticks();
    const [unit, name] = span < 1e4 ? [1, "ns"] : span < 1e7 ? [1e3, "µs"] : span < 1e10 ? [1e6, "ms"] : [1e9, "s"];
    const places = Math.max(0, Math.min(6, -Math.floor(Math.log10(step / unit) + 1e-9) + (`${step / unit}`.includes("25") ? 1 : 0)));
    context.textAlign = "center";
    for (const time of list) {
      context.fillStyle = paint.faint;
      context.fillRect(x(time), axisHeight, 1, height - axisHeight);
      context.fillStyle = paint.quiet;
      context.fillText(`${(time / unit).toFixed(places)} ${name}`, x(time), axisHeight / 2 + 1);
    }
    context.fillStyle = paint.line;
    context.fillRect(0, axisHeight - 0.5, board.width, 1);
  }

  function drawLanes(context, width, height) {
    const hatch = pattern(context);
    lanes.forEach((lane, index) => {
      const top = index * laneHeight();
      if (top + laneHeight() < view.top - 10 || top > view.top + height) return;
      context.fillStyle = index % 2 ? paint.paper : paint.panel;
      context.globalAlpha = 0.6;
      context.fillRect(0, top, gutter, laneHeight());
      context.globalAlpha = 1;
      label(context, lane, top);
      const kinds = isMeasured ? [["predicted", 0.42], ["measured", 1]] : [["predicted", 0.85]];
      kinds.forEach(([when, strength], row) => {
        const box = { y: top + 5 + row * (rowHeight + 1), height: rowHeight - (row === 0 && isMeasured ? 3 : 0) };
        if (row === 0 && isMeasured) box.y += 2;
        drawRow(context, lane, lane[when], box, strength, hatch);
      });
      context.fillStyle = paint.faint;
      context.fillRect(0, top + laneHeight() - 1, width, 1);
    });
    drawLink(context);
  }

  function label(context, lane, top) {
    const middle = top + laneHeight() / 2;
    context.fillStyle = lane.colour();
    context.fillRect(0, top, 4, laneHeight() - 1);
    context.textAlign = "left";
    context.fillStyle = paint.ink;
    context.font = `600 ${small}`;
    context.fillText(fitted(context, lane.name, gutter - 20), 12, isMeasured ? middle - 7 : middle);
    context.font = small;
    context.fillStyle = paint.quiet;
    if (isMeasured) context.fillText(`busy ${percent(lane.busy / makespan)}`, 12, middle + 8);
  }

  /// A row's bars; those narrower than a pixel are drawn together.
  function drawRow(context, lane, list, box, strength, hatch) {
    const colour = lane.colour();
    let blur = null;
    const flush = () => {
      if (blur === null) return;
      context.globalAlpha = strength * Math.min(1, Math.max(0.45, blur.sum / Math.max(blur.to - blur.from, 0.01)));
      context.fillStyle = colour;
      context.fillRect(blur.from, box.y, Math.max(0.8, blur.to - blur.from), box.height);
      blur = null;
    };
    for (let at = firstAfter(list, view.from); at < list.length && list[at].start <= view.to; at += 1) {
      const bar = list[at];
      const [left, right] = [Math.max(gutter, x(bar.start)), Math.min(board.width, x(bar.end))];
      const dim = onlyChain && !bar.critical;
      if (right - left < 1.5 && !onlyChain) {
        if (blur !== null && left > blur.to + 1) flush();
        blur = blur === null ? { from: left, to: right, sum: right - left } : { ...blur, to: Math.max(right, blur.to), sum: blur.sum + right - left };
        continue;
      }
      flush();
      drawBar(context, bar, { ...box, left, width: Math.max(1, right - left - (right - left > 4 ? 1 : 0)) }, dim ? strength * 0.16 : strength, colour, hatch);
    }
    flush();
    context.globalAlpha = 1;
  }

  function drawBar(context, bar, box, strength, colour, hatch) {
    context.globalAlpha = strength;
    context.fillStyle = colour;
    context.fillRect(box.left, box.y, box.width, box.height);
    if (bar.streamed) {
      context.globalAlpha = 0.4;
      context.fillStyle = hatch;
      context.fillRect(box.left, box.y, box.width, box.height);
    }
    context.globalAlpha = 1;
    const room = Math.min(box.width, x(bar.room) - box.left);
    if (room > 34 && strength > 0.3) {
      context.fillStyle = inkOn(strength > 0.6 ? colour : mixed(paint.paper, colour, strength));
      context.textAlign = "left";
      context.fillText(fitted(context, bar.name, room - 8), box.left + 4, box.y + box.height / 2 + 0.5);
    }
    const here = { kind: bar.kind, index: bar.index };
    if (same(here, selected) || same(here, hovered)) {
      context.strokeStyle = same(here, selected) ? paint.accent : paint.ink;
      context.lineWidth = 2;
      context.strokeRect(box.left - 1, box.y - 1, box.width + 2, box.height + 2);
    }
  }

  /// From the selected thing's predicted bar to its measured one.
  function drawLink(context) {
    if (selected === null || !isMeasured) return;
    const thing = selected.kind === "node" ? data.nodes[selected.index] : data.transfers[selected.index];
    const lane = lanes.findIndex((one) => one.items.some((item) => item.kind === selected.kind && item.index === selected.index));
    if (lane < 0 || !thing.predicted || !thing.measured) return;
    const y = lane * laneHeight() + 5 + rowHeight;
    context.save();
    context.beginPath();
    context.rect(gutter, 0, board.width, contentHeight());
    context.clip();
    context.fillStyle = paint.accent;
    for (const [time, row] of [[thing.predicted, 0], [thing.measured, 1]]) {
      context.fillRect(x(time.start) - 1, y - rowHeight + row * (rowHeight + 1), Math.max(3, x(time.end) - x(time.start) + 2), 2);
    }
    context.globalAlpha = 0.22;
    context.beginPath();
    context.moveTo(x(thing.predicted.start), y - rowHeight);
    context.lineTo(Math.max(x(thing.predicted.end), x(thing.predicted.start) + 2), y - rowHeight);
    context.lineTo(Math.max(x(thing.measured.end), x(thing.measured.start) + 2), y + rowHeight);
    context.lineTo(x(thing.measured.start), y + rowHeight);
    context.fill();
    context.restore();
  }

  let hatches = null;
  function pattern(context) {
    const key = paint.paper;
    if (hatches === null || hatches.key !== key) {
      const tile = document.createElement("canvas");
      tile.width = tile.height = 6;
      const brush = tile.getContext("2d");
      brush.strokeStyle = paint.paper;
      brush.lineWidth = 1.6;
      brush.beginPath();
      [-6, 0, 6].forEach((shift) => { brush.moveTo(shift - 1, 7); brush.lineTo(shift + 7, -1); });
      brush.stroke();
      hatches = { key, pattern: context.createPattern(tile, "repeat") };
    }
    return hatches.pattern;
  }

  // --- memory and executable nodes

  const series = () => data.devices.map((device, index) => (mode === "memory"
    ? { device, index, predicted: device.memory_predicted, measured: device.memory_measured, planned: device.planned_peak, peak: device.measured_peak, limit: device.limit, text: bytes }
    : { device, index, predicted: device.executable_predicted, measured: device.executable_measured, planned: null, peak: null, limit: null, text: amount }));

  function drawCharts(context, width) {
    series().forEach((one, index) => drawChart(context, one, { y: index * chartHeight() + 16, height: chartHeight() - 26 }, width));
  }

  function drawChart(context, one, box, width) {
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
    context.font = `600 ${small}`;
    context.fillText(one.device.name, 12, box.y - 2);
    context.font = small;
    context.fillStyle = paint.quiet;
    sideNotes(one, limitShown).forEach((note, line) => context.fillText(note, 12, box.y + 13 + 14 * line));
    context.save();
    context.beginPath();
    context.rect(gutter, box.y - 12, width, box.height + 16);
    context.clip();
    const [front, back] = isMeasured ? [one.measured, one.predicted] : [one.predicted, []];
    area(context, front, y, { colour, fill: 0.3, line: 1.6, end: makespan });
    area(context, back, y, { colour: paint.quiet, fill: 0.07, line: 1.2, dash: [4, 3], end: data.predicted.makespan_ns });
    const rule = (value, ink, dash) => {
      context.strokeStyle = ink;
      context.setLineDash(dash);
      context.lineWidth = 1.2;
      context.beginPath();
      context.moveTo(gutter, y(value));
      context.lineTo(width, y(value));
      context.stroke();
      context.setLineDash([]);
    };
    if (one.planned) rule(one.planned, paint.quiet, [2, 3]);
    if (one.peak) rule(one.peak, paint.ink, []);
    if (limitShown) rule(one.limit, paint.bad, [7, 4]);
    context.restore();
    context.fillStyle = paint.line;
    context.fillRect(gutter, box.y + box.height, width, 1);
  }

  function sideNotes(one, limitShown) {
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

  /// Steps as an area; where several fall on one pixel the greatest is drawn.
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
    const begin = Math.max(0, firstStep(steps, view.from));
    for (let at = begin; at < steps.length && steps[at][0] <= view.to; at += 1) {
      const place = Math.round(Math.max(gutter - 2, x(steps[at][0])));
      if (column !== null && column.x === place) { column.most = Math.max(column.most, steps[at][1]); column.last = steps[at][1]; continue; }
      close();
      column = { x: place, most: steps[at][1], last: steps[at][1] };
    }
    close();
    points.push([Math.min(x(end), board.width + 5), y(before)]);
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

  /// The first of the bars from which on some end after a time.
  function firstAfter(list, time) {
    let [low, high] = [0, list.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (list[middle].reach < time) low = middle + 1; else high = middle;
    }
    return low;
  }

  function firstStep(steps, time) {
    let [low, high] = [0, steps.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (steps[middle][0] <= time) low = middle + 1; else high = middle;
    }
    return low - 1;
  }

  function drawCursor(context, width, height) {
    const ends = [["predicted end", data.predicted.makespan_ns, paint.quiet, [4, 3]]];
    if (isMeasured) ends.push(["measured end", data.measured.makespan_ns, paint.ink, []]);
    for (const [, time, colour, dash] of ends) {
      if (time < view.from || time > view.to) continue;
      context.strokeStyle = colour;
      context.lineWidth = 1;
      context.setLineDash(dash);
      context.beginPath();
      context.moveTo(x(time), axisHeight);
      context.lineTo(x(time), height);
      context.stroke();
      context.setLineDash([]);
    }
    if (cursor === null || cursor < gutter) return;
    context.fillStyle = paint.accent;
    context.fillRect(cursor, axisHeight, 1, height);
    const text = duration(timeAt(cursor));
    context.textAlign = "center";
    const half = context.measureText(text).width / 2 + 6;
    const middle = Math.min(Math.max(cursor, gutter + half), width - half);
    context.fillRect(middle - half, 3, 2 * half, axisHeight - 6);
    context.fillStyle = inkOn(paint.accent);
    context.fillText(text, middle, axisHeight / 2 + 1);
  }

  // --- the user

  function at(event) {
    const box = board.canvas.getBoundingClientRect();
    const [px, py] = [event.clientX - box.left, event.clientY - box.top];
    if (mode !== "schedule" || px < gutter || py < axisHeight) return null;
    const inside = py - axisHeight - 4 + view.top;
    const lane = lanes[Math.floor(inside / laneHeight())];
    if (lane === undefined) return null;
    const row = isMeasured && (inside % laneHeight()) - 5 >= rowHeight + 0.5 ? lane.measured : lane.predicted;
    const [time, slack] = [timeAt(px), (2 / plotWidth()) * (view.to - view.from)];
    let best = null;
    for (let index = firstAfter(row, time - slack); index < row.length && row[index].start <= time + slack; index += 1) {
      const distance = Math.max(row[index].start - time, time - row[index].end, 0);
      if (best === null || distance < best.distance) best = { distance, kind: row[index].kind, index: row[index].index };
    }
    return best === null ? null : { kind: best.kind, index: best.index };
  }

  function listen() {
    const canvas = board.canvas;
    onDrag(canvas, pan, (event) => select(at(event), "timeline"));
    canvas.addEventListener("pointermove", (event) => {
      cursor = event.clientX - canvas.getBoundingClientRect().left;
      redraw();
      if (event.buttons !== 0) return;
      const item = at(event);
      hover(item);
      if (item !== null) showTip(event, ...tipOf(item));
      else if (mode !== "schedule" && cursor > gutter) showTip(event, duration(timeAt(cursor)), valuesAt(timeAt(cursor)));
      else showTip(event);
    });
    canvas.addEventListener("pointerleave", (event) => { cursor = null; hover(null); showTip(event); redraw(); });
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      const sideways = Math.abs(event.deltaX) > Math.abs(event.deltaY);
      if (event.shiftKey || sideways) pan(-(sideways ? event.deltaX : event.deltaY), 0);
      else if (event.altKey) pan(0, -event.deltaY);
      else zoom(Math.exp(-Math.max(-240, Math.min(240, event.deltaY)) / 320), event.clientX - canvas.getBoundingClientRect().left);
    }, { passive: false });
    canvas.addEventListener("keydown", (event) => {
      const moves = { ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 40], ArrowDown: [0, -40] };
      if (moves[event.key]) pan(...moves[event.key]);
      else if (event.key === "+") zoom(1.25);
      else if (event.key === "-") zoom(0.8);
      else if (event.key === "0") fit();
      else return;
      event.preventDefault();
    });
    byId("time-in").addEventListener("click", () => zoom(1.6));
    byId("time-out").addEventListener("click", () => zoom(1 / 1.6));
    byId("time-fit").addEventListener("click", fit);
    byId("chain").addEventListener("change", (event) => { onlyChain = event.target.checked; redraw(); });
    onSelect((item, from) => (item === null || from === "timeline" ? redraw() : reveal(item)));
  }

  function valuesAt(time) {
    const value = (steps) => { const at = firstStep(steps, time); return at < 0 ? 0 : steps[at][1]; };
    return series().map((one) => {
      const predicted = `predicted ${one.text(value(one.predicted))}`;
      const measured = isMeasured ? `, measured ${one.text(value(one.measured))}` : "";
      return `${one.device.name}: ${predicted}${measured}`;
    });
  }

  function setMode(name) {
    mode = name;
    view.top = 0;
    byId("chain-label").hidden = mode !== "schedule";
    keys();
    redraw();
  }

  function keys() {
    const outlined = element("span", { class: "swatch", style: `background:${paint.quiet};opacity:.4` });
    const made = [];
    if (mode === "schedule" && isMeasured) made.push(element("span", {}, "above: predicted, below: measured"));
    if (mode === "schedule") made.push(element("span", {}, element("span", { class: "swatch", style: `background:repeating-linear-gradient(135deg,${paint.cross} 0 2px,${paint.paper} 2px 4px)` }), "streamed"));
    if (mode === "memory") made.push(element("span", {}, "dotted: planned peak", isMeasured ? ", line: measured peak" : "", ", red: limit"));
    if (mode !== "schedule" && isMeasured) made.push(element("span", {}, outlined, "predicted"));
    byId("keys").replaceChildren(...made);
  }

  return { board, view, lanes, listen, fit, zoom, pan, redraw, setMode, keys, at, x, laneHeight };
})();
