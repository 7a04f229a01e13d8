// Lanes of the schedule: devices, then links, each with predicted and measured bars.

const byStart = (one, other) => one.start - other.start;
/// Bars by start. Predicted transfers may share a link: `reach` is the end of all so far, `room` the start of the next.
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
