// A layered drawing of boxes of any size, after Sugiyama, Tagawa and Toda 1981: layers, order within layers by
// barycentres, coordinates by least squares. The result is folded into columns like a newspaper, because graphs of
// models are long and narrow, unlike screens. Equal graphs give equal drawings. O(s · (v + e) log v) for s sweeps over
// v boxes and bends and e pieces of edges.

const layout = (() => {
  /// Gaps between layers, between neighbours in a layer, between columns, and around everything.
  const [layerGap, gap, gutter, margin] = [30, 22, 64, 12];
  /// Width of an edge that passes a layer, and most bends of all edges: the last edges are then drawn straight.
  const [bendWidth, mostBends] = [8, 20000];
  const mostColumns = 16;
  /// Extra weight of straight edges, and of two boxes that are each other's only neighbours.
  const straightPull = 8;

  /// Returns the layer of each box. A box is as high as its inputs allow; a box without inputs sinks to its first
  /// reader.
  function layersOf(count, edges) {
    const layer = new Array(count).fill(0);
    const [reads, first] = [new Array(count).fill(0), new Array(count).fill(Infinity)];
    // By makers, so that each box's layer is known before its readers'.
    const sorted = [...edges].sort((one, other) => one[0] - other[0]);
    for (const [from, to] of sorted) { layer[to] = Math.max(layer[to], layer[from] + 1); reads[to] += 1; }
    for (const [from, to] of sorted) first[from] = Math.min(first[from], layer[to]);
    for (let box = 0; box < count; box += 1) if (reads[box] === 0 && first[box] < Infinity) layer[box] = Math.max(0, first[box] - 1);
    return layer;
  }

  /// Returns boxes and bends as vertices, with edges from one layer to the next. Edges of one box share their bends:
  /// they usually carry one value.
  function joined(boxes, edges) {
    const layer = layersOf(boxes.length, edges);
    const graph = { count: boxes.length, layer, above: boxes.map(() => []), below: boxes.map(() => []), bends: boxes.map(() => []), width: boxes.map((box) => box.width), height: boxes.map((box) => box.height) };
    const join = (from, to) => { graph.below[from].push(to); graph.above[to].push(from); };
    const longest = new Array(boxes.length).fill(0);
    for (const [from, to] of edges) longest[from] = Math.max(longest[from], layer[to] - layer[from]);
    const sources = boxes.map((_, box) => box).filter((box) => longest[box] > 1).sort((one, other) => longest[one] - longest[other] || one - other);
    let made = 0;
    for (const box of sources) {
      made += longest[box] - 1;
      if (made > mostBends) break;
      let last = box;
      for (let step = 1; step < longest[box]; step += 1) {
        const bend = graph.layer.length;
        graph.layer.push(layer[box] + step);
        graph.above.push([]); graph.below.push([]); graph.width.push(bendWidth); graph.height.push(0);
        join(last, bend);
        graph.bends[box].push(bend);
        last = bend;
      }
    }
    for (const [from, to] of edges) {
      const distance = graph.layer[to] - graph.layer[from];
      const last = distance === 1 ? from : graph.bends[from][distance - 2];
      if (last !== undefined) join(last, to);
    }
    return graph;
  }

  // --- the order within layers

  /// Rows in depth-first order from the sources, so that connected boxes start together.
  function firstRows(graph) {
    const rows = Array.from({ length: 1 + graph.layer.reduce((most, layer) => Math.max(most, layer), 0) }, () => []);
    const seen = new Array(graph.layer.length).fill(false);
    for (let source = 0; source < graph.layer.length; source += 1) {
      if (graph.above[source].length > 0) continue;
      const stack = [source];
      while (stack.length > 0) {
        const vertex = stack.pop();
        if (seen[vertex]) continue;
        seen[vertex] = true;
        rows[graph.layer[vertex]].push(vertex);
        for (let at = graph.below[vertex].length - 1; at >= 0; at -= 1) stack.push(graph.below[vertex][at]);
      }
    }
    return rows;
  }

  const placesOf = (graph, rows) => {
    const place = new Array(graph.layer.length).fill(0);
    rows.forEach((row) => row.forEach((vertex, at) => { place[vertex] = at; }));
    return place;
  };

  /// Counts pairs of edges that cross, as inversions with a tree of sums (Barth, Jünger, Mutzel 2002).
  function crossings(graph, rows) {
    const place = placesOf(graph, rows);
    let sum = 0;
    for (let at = 0; at + 1 < rows.length; at += 1) {
      const tree = new Int32Array(rows[at + 1].length + 1);
      let seen = 0;
      for (const vertex of rows[at]) {
        const ends = graph.below[vertex].map((other) => place[other]);
        for (const end of ends) {
          let upTo = 0;
          for (let node = end + 1; node > 0; node -= node & -node) upTo += tree[node];
          sum += seen - upTo;
        }
        for (const end of ends) { for (let node = end + 1; node < tree.length; node += node & -node) tree[node] += 1; seen += 1; }
      }
    }
    return sum;
  }

  /// Returns the order of the sweep with the fewest crossings.
  function ordered(graph) {
    const rows = firstRows(graph);
    let [best, fewest, patience] = [rows.map((row) => [...row]), crossings(graph, rows), 6];
    for (let sweep = 0; sweep < 24 && fewest > 0 && patience > 0; sweep += 1) {
      const place = placesOf(graph, rows);
      const mean = (near, vertex) => (near.length === 0 ? place[vertex] : near.reduce((total, other) => total + place[other], 0) / near.length);
      for (let step = 1; step < rows.length; step += 1) {
        const [row, near] = sweep % 2 === 0 ? [rows[step], graph.above] : [rows[rows.length - 1 - step], graph.below];
        const keys = new Map(row.map((vertex) => [vertex, mean(near[vertex], vertex)]));
        row.sort((one, other) => keys.get(one) - keys.get(other));
        row.forEach((vertex, at) => { place[vertex] = at; });
      }
      const found = crossings(graph, rows);
      patience -= 1;
      if (found < fewest) [best, fewest, patience] = [rows.map((row) => [...row]), found, 6];
    }
    return best;
  }

  // --- how far right each vertex stands

  /// Returns the least distance of each vertex of a row from the first.
  function offsets(graph, row) {
    let offset = 0;
    return row.map((vertex, at) => {
      if (at > 0) offset += (graph.width[row[at - 1]] + graph.width[vertex]) / 2 + gap;
      return offset;
    });
  }

  /// Returns the weighted mean of a vertex' neighbours, and its weight.
  function preferred(graph, vertex, [above, below], x) {
    const isBend = (other) => other >= graph.count;
    const straight = (from, to) => (isBend(from) && isBend(to)) || (graph.below[from].length === 1 && graph.above[to].length === 1);
    let [sum, weight] = [0, 0];
    const add = (other, pull) => { sum += pull * x[other]; weight += pull; };
    if (above) for (const other of graph.above[vertex]) add(other, straight(other, vertex) ? straightPull : 1);
    if (below) for (const other of graph.below[vertex]) add(other, straight(vertex, other) ? straightPull : 1);
    return weight > 0 ? [sum / weight, weight] : [x[vertex], 0.05];
  }

  /// Moves a row as near to its vertices' preferred positions as the distances allow: least squares under an order, by
  /// pooling adjacent violators (Barlow and others 1972).
  function settle(graph, row, apart, sides, x) {
    const pools = [];
    row.forEach((vertex, at) => {
      const [wanted, weight] = preferred(graph, vertex, sides, x);
      let pool = { mean: wanted - apart[at], weight, members: 1 };
      while (pools.length > 0 && pools[pools.length - 1].mean > pool.mean) {
        const before = pools.pop();
        const sum = before.weight + pool.weight;
        pool = { mean: (before.mean * before.weight + pool.mean * pool.weight) / sum, weight: sum, members: before.members + pool.members };
      }
      pools.push(pool);
    });
    let at = 0;
    for (const pool of pools) for (let member = 0; member < pool.members; member += 1, at += 1) x[row[at]] = pool.mean + apart[at];
  }

  function across(graph, rows) {
    const x = new Array(graph.layer.length).fill(0);
    const apart = rows.map((row) => offsets(graph, row));
    rows.forEach((row, at) => row.forEach((vertex, place) => { x[vertex] = apart[at][place] - apart[at][row.length - 1] / 2; }));
    const sweeps = 40;
    for (let sweep = 0; sweep < sweeps; sweep += 1) {
      const [both, down] = [sweep >= sweeps / 2, sweep % 2 === 0];
      for (let at = 0; at < rows.length; at += 1) {
        const row = down ? at : rows.length - 1 - at;
        settle(graph, rows[row], apart[row], [down || both, !down || both], x);
      }
    }
    return x;
  }

  // --- columns

  /// Divides the rows into about `count` columns of similar height. Each ends near its even share, at the row that
  /// fewest edges pass.
  function columnsOf(rows, heights, extents, count) {
    const total = heights.reduce((sum, height) => sum + height, 0);
    const slack = Math.min(5, Math.floor(rows.length / count / 8));
    const columns = [];
    let [first, left] = [0, margin];
    while (first < rows.length) {
      let [due, height] = [first, heights[first]];
      while (due + 1 < rows.length && height + heights[due + 1] / 2 < total / count) { due += 1; height += heights[due]; }
      let last = due;
      if (due + slack + 1 >= rows.length) last = rows.length - 1;
      else {
        const cost = (row) => 1e6 * (rows[row].length + rows[row + 1].length) + Math.abs(due - row);
        for (let row = Math.max(first, due - slack); row <= due + slack; row += 1) if (cost(row) < cost(last)) last = row;
      }
      const own = extents.slice(first, last + 1);
      const [from, to] = [Math.min(...own.map((one) => one[0])), Math.max(...own.map((one) => one[1]))];
      const deep = heights.slice(first, last + 1).reduce((sum, one) => sum + one, 0);
      columns.push({ first, last, shift: from, width: to - from, left, height: deep });
      left += to - from + gutter;
      first = last + 1;
    }
    return columns;
  }

  const sizeOf = (columns) => {
    const last = columns[columns.length - 1];
    return [last.left + last.width + margin, Math.max(...columns.map((column) => column.height)) + 2 * margin];
  };

  /// Returns the route from the foot of a column to the head of a later column: below the first, up the gutter before
  /// the second, and over it.
  function around(columns, [one, x1], [other, x2], lane) {
    const foot = Math.max(...columns.slice(one, other).map((column) => margin + column.height));
    const y = foot - layerGap / 2 + 3 + 12 * lane;
    const x = columns[other].left - gap / 2 - (gutter - gap) * lane;
    const top = margin + 1 + 9 * lane;
    return [[x1, y], [x, y], [x, top], [x2, top]];
  }

  /// Lays out `boxes`, which have a width and a height. `edges` are pairs of their numbers, from lower to higher.
  /// Returns the size, the boxes' centres, and by edge the points between its ends. `aspect` is the desired width over
  /// height.
  return function layout(boxes, edges, aspect) {
    if (boxes.length === 0) return { width: 2 * margin, height: 2 * margin, at: [], bends: [] };
    const graph = joined(boxes, edges);
    const rows = ordered(graph);
    const x = across(graph, rows);
    const heights = rows.map((row) => row.reduce((most, vertex) => Math.max(most, graph.height[vertex]), 0) + layerGap);
    const extents = rows.map((row) => [
      row.reduce((least, vertex) => Math.min(least, x[vertex] - graph.width[vertex] / 2), Infinity),
      row.reduce((most, vertex) => Math.max(most, x[vertex] + graph.width[vertex] / 2), -Infinity),
    ]);
    let [columns, distance] = [null, Infinity];
    for (let count = 1; count <= Math.min(mostColumns, rows.length); count += 1) {
      const found = columnsOf(rows, heights, extents, count);
      const [width, height] = sizeOf(found);
      const off = Math.abs(Math.log(width / height / aspect));
      if (off < distance) [columns, distance] = [found, off];
    }
    const [columnOf, tops] = [new Array(rows.length), new Array(rows.length)];
    columns.forEach((column, number) => {
      let top = margin;
      for (let row = column.first; row <= column.last; row += 1) { columnOf[row] = number; tops[row] = top; top += heights[row]; }
    });
    const place = (vertex) => {
      const row = graph.layer[vertex];
      return [columns[columnOf[row]].left + x[vertex] - columns[columnOf[row]].shift, tops[row] + heights[row] / 2];
    };
    const bendsOf = ([from, to], number) => {
      const passed = [from, ...graph.bends[from].slice(0, Math.max(0, graph.layer[to] - graph.layer[from] - 1)), to];
      const points = [];
      for (let at = 0; at + 1 < passed.length; at += 1) {
        const [one, other] = [columnOf[graph.layer[passed[at]]], columnOf[graph.layer[passed[at + 1]]]];
        if (one < other) points.push(...around(columns, [one, place(passed[at])[0]], [other, place(passed[at + 1])[0]], (number % 8) / 7));
        if (at + 2 < passed.length) {
          const [bendX, bendY] = place(passed[at + 1]);
          const half = (heights[graph.layer[passed[at + 1]]] - layerGap) / 2;
          // An edge passes high boxes vertically.
          points.push(...(half > 20 ? [[bendX, bendY - half], [bendX, bendY + half]] : [[bendX, bendY]]));
        }
      }
      return points;
    };
    const [width, height] = sizeOf(columns);
    return { width, height, at: boxes.map((_, box) => place(box)), bends: edges.map(bendsOf) };
  };
})();
