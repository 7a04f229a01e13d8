// The schedule: lanes of bars, predicted above measured, with arrows along transfers between devices.

const schedule = (() => {
  const { view, x } = axis;
  const rows = isMeasured ? 2 : 1;
  /// If there are more arrows than this, only those of the selected or hovered item are drawn: more would hide the
  /// bars.
  const mostArrows = 150;
  let rowHeight = 17;
  const options = { onlyChain: false, arrows: true };
  const laneHeight = () => rows * rowHeight + 11;
  const height = () => lanes.length * laneHeight();

  const laneOf = new Map();
  lanes.forEach((lane, at) => lane.items.forEach((item) => laneOf.set(`${item.kind} ${item.index}`, at)));
  const laneNumber = (item) => laneOf.get(`${item.kind} ${item.index}`) ?? -1;
  const readers = data.transfers.map(() => []);
  data.edges.forEach((edge) => { if (edge.transfer !== null) readers[edge.transfer].push(edge.to); });

  /// Rows are as high as the space for all lanes allows, within limits.
  function resize(room) { rowHeight = Math.max(17, Math.min(25, (room / Math.max(1, lanes.length) - 11) / rows)); }

  function draw(context, width, room) {
    const hatch = pattern(context);
    lanes.forEach((lane, index) => {
      const top = index * laneHeight();
      if (top + laneHeight() < view.top - 10 || top > view.top + room) return;
      context.fillStyle = index % 2 ? paint.paper : paint.panel;
      context.globalAlpha = 0.6;
      context.fillRect(0, top, axis.gutter, laneHeight());
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
    context.save();
    context.beginPath();
    context.rect(axis.gutter, 0, width, height());
    context.clip();
    drawLink(context);
    drawArrows(context);
    context.restore();
  }

  function label(context, lane, top) {
    const middle = top + laneHeight() / 2;
    context.fillStyle = lane.colour();
    context.fillRect(0, top, 4, laneHeight() - 1);
    context.textAlign = "left";
    context.fillStyle = paint.ink;
    context.font = `600 ${smallType}`;
    context.fillText(fitted(context, lane.name, axis.gutter - 16), 12, isMeasured ? middle - 7 : middle);
    context.font = smallType;
    context.fillStyle = paint.quiet;
    if (isMeasured) context.fillText(`busy ${percent(lane.busy / makespan)}`, 12, middle + 8);
  }

  /// Draws a row's bars. Bars narrower than a pixel are merged.
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
      const [left, right] = [Math.max(axis.gutter, x(bar.start)), Math.min(axis.width, x(bar.end))];
      const dim = options.onlyChain && !bar.critical;
      if (right - left < 1.5 && !options.onlyChain) {
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

  const thingOf = (item) => (item.kind === "node" ? data.nodes[item.index] : data.transfers[item.index]);

  /// Draws a line from the selected item's predicted bar to its measured bar.
  function drawLink(context) {
    if (selected === null || selected.kind === "group" || !isMeasured) return;
    const [thing, lane] = [thingOf(selected), laneNumber(selected)];
    if (lane < 0 || !thing.predicted || !thing.measured) return;
    const y = lane * laneHeight() + 5 + rowHeight;
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
    context.globalAlpha = 1;
  }

  // --- arrows: from what makes a value to its transfer, and on to what reads it

  const when = isMeasured ? "measured" : "predicted";
  const middleOf = (item) => laneNumber(item) * laneHeight() + 5 + (rows - 0.5) * rowHeight;

  /// Returns the arrows of a transfer, as pairs of an item and its reader.
  function hopsOf(index) {
    const own = { kind: "transfer", index };
    const makers = [{ kind: "node", index: data.transfers[index].node }];
    const all = [...makers.map((maker) => [maker, own]), ...readers[index].map((reader) => [own, { kind: "node", index: reader }])];
    return all.filter((pair) => pair.every((item) => laneNumber(item) >= 0 && thingOf(item)[when]));
  }

  /// Returns transfers with arrows: those of the selected or hovered item, and all visible ones if they are few.
  function arrowsOf() {
    const touches = (item, index) => item !== null && (item.kind === "transfer" ? item.index === index : item.kind === "node" && (data.transfers[index].node === item.index || readers[index].includes(item.index)));
    const moved = data.transfers.map((_, index) => index).filter((index) => data.transfers[index].route !== "shared" && data.transfers[index][when]);
    const marked = moved.filter((index) => touches(selected, index) || touches(hovered, index));
    const inSight = moved.filter((index) => data.transfers[index][when].end >= view.from && data.transfers[index][when].start <= view.to);
    return { marked, others: options.arrows && inSight.length <= mostArrows ? inSight.filter((index) => !marked.includes(index)) : [] };
  }

  function drawArrows(context) {
    const { marked, others } = arrowsOf();
    for (const [list, colour, strength] of [[others, paint.quiet, options.onlyChain ? 0.15 : 0.55], [marked, paint.accent, 1]]) {
      context.globalAlpha = strength;
      for (const [from, to] of list.flatMap(hopsOf)) {
        if (options.onlyChain && list === others && !(isCritical(thingOf(from)) && isCritical(thingOf(to)))) continue;
        drawArrow(context, [x(thingOf(from)[when].end), middleOf(from)], [x(thingOf(to)[when].start), middleOf(to)], colour);
      }
    }
    context.globalAlpha = 1;
  }

  function drawArrow(context, [x1, y1], [x2, y2], colour) {
    const bow = Math.max(8, Math.min(30, Math.abs(x2 - x1) / 2));
    const down = y2 > y1 ? 1 : -1;
    context.strokeStyle = colour;
    context.fillStyle = colour;
    context.lineWidth = 1.2;
    context.beginPath();
    context.moveTo(x1, y1);
    context.bezierCurveTo(x1 + bow, y1, x2 - bow, y2, x2 - 4, y2);
    context.stroke();
    context.beginPath();
    context.moveTo(x2, y2);
    context.lineTo(x2 - 6, y2 - 3 * down);
    context.lineTo(x2 - 6, y2 + 3 * down);
    context.closePath();
    context.fill();
  }

  let hatches = null;
  function pattern(context) {
    if (context instanceof SvgContext) return null;
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

  /// Returns the index of the first bar that ends after a time.
  function firstAfter(list, time) {
    let [low, high] = [0, list.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (list[middle].reach < time) low = middle + 1; else high = middle;
    }
    return low;
  }

  /// Returns the item at a position of the lanes, or the nearest in time within two pixels.
  function at(px, inside) {
    const lane = lanes[Math.floor(inside / laneHeight())];
    if (lane === undefined) return null;
    const row = isMeasured && (inside % laneHeight()) - 5 >= rowHeight + 0.5 ? lane.measured : lane.predicted;
    const [time, slack] = [axis.timeAt(px), (2 / axis.plotWidth()) * (view.to - view.from)];
    let best = null;
    for (let index = firstAfter(row, time - slack); index < row.length && row[index].start <= time + slack; index += 1) {
      const distance = Math.max(row[index].start - time, time - row[index].end, 0);
      if (best === null || distance < best.distance) best = { distance, kind: row[index].kind, index: row[index].index };
    }
    return best === null ? null : { kind: best.kind, index: best.index };
  }

  return { options, draw, resize, height, laneHeight, laneNumber, thingOf, arrowsOf, hopsOf, at };
})();
