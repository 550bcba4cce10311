/* The timeline and the heat map of partitions.

   Self-contained: no library, no network. All names reach the page as text (canvas or textContent), never as markup.
   A colour has one meaning on both charts: `colorOfNode`. */
(function () {
  'use strict';
  var data = JSON.parse(element('timeline-data').textContent);
  var canvas = element('timeline'), tip = element('timeline-tip');
  var KINDS = ['append', 'read', 'end', 'write', 'cas', 'call', 'query'], OUTCOMES = ['ok', 'fail', 'info'];
  var INFO = 2, TICK = 1e-5, OPEN = 4294967295;
  var ROW = 18, TOP = 24, MOST_FAULT_ROWS = 12, MOST_PARTITIONS = 12, REACH = 6;
  /* Values of the heat map's cells that are no node and no number. */
  var NO_LEADER = 254, UNKNOWN = 255;
  var ops = columns(), counted = data.ops.window_s > 0, end = Math.max(data.end_s, 0.001);
  var view = { from: 0, to: end }, filter = { client: -1, place: -1, outcome: -1 };
  var byLane = operationsByClient(), faultRows = Math.min(pack(data.faults), MOST_FAULT_ROWS);
  var size = { width: 0, left: 0 }, look = {}, lanes = [], hits = [], isQueued = false, drag = null;

  function element(id) {
    return document.getElementById(id);
  }

  function bytes(text) {
    var raw = atob(text), out = new Uint8Array(raw.length);
    for (var i = 0; i < raw.length; i++) out[i] = raw.charCodeAt(i);
    return out.buffer;
  }

  /* One entry per operation in each column; analysis/page/timeline_parts.py has their types. */
  function columns() {
    var c = data.ops.columns;
    return {
      start: new Uint32Array(bytes(c.start)), length: new Uint32Array(bytes(c.length)),
      lane: new Uint16Array(bytes(c.lane)), place: new Uint16Array(bytes(c.place)),
      kind: new Uint8Array(bytes(c.kind)), number: new Int32Array(bytes(c.number))
    };
  }

  /* Of each client: its operations in order of invocation, those that never returned apart, because every one of them
     may reach into the window. `longest` bounds how far before the window an operation in it may have started. */
  function operationsByClient() {
    var found = data.ops.clients.map(function () { return { list: [], open: [], longest: 0 }; });
    for (var i = 0; i < ops.start.length; i++) {
      var own = found[ops.lane[i]];
      if (ops.length[i] === OPEN) {
        own.open.push(i);
      } else {
        own.list.push(i);
        own.longest = Math.max(own.longest, ops.length[i]);
      }
    }
    return found;
  }

  /* The first position in an ordered list whose operation starts at this tick or later. */
  function firstFrom(list, tick) {
    var low = 0, high = list.length;
    while (low < high) {
      var middle = (low + high) >> 1;
      if (ops.start[list[middle]] < tick) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  /* Measured once per frame: reading a size from the document for each operation would take longer than drawing it. */
  function measure() {
    size.width = canvas.clientWidth;
    size.left = size.width < 500 ? 64 : 118;
    ['ink', 'soft', 'line', 'ok', 'fail', 'unknown', 'up'].forEach(function (name) {
      look[name] = getComputedStyle(document.documentElement).getPropertyValue('--' + name).trim();
    });
  }

  function colorOfNode(node) {
    var index = data.nodes.indexOf(node);
    return index < 0 ? look.soft : data.colors[index % data.colors.length];
  }

  /* Spans that overlap get rows of their own. `free`: until then a label may go beyond its span. Returns the rows. */
  function pack(spans) {
    var ends = [], last = [];
    spans.forEach(function (span) {
      for (var row = 0; row < ends.length; row++) if (ends[row] <= span.start) break;
      ends[row] = span.end;
      span.row = row;
      span.free = Infinity;
      if (last[row]) last[row].free = span.start;
      last[row] = span;
    });
    return Math.max(ends.length, 1);
  }

  /* The rows from top to bottom: faults, processes, leaders of partitions, clients. */
  function layout() {
    lanes = [];
    for (var row = 0; row < faultRows && data.faults.length; row++) {
      lanes.push({ type: 'fault', row: row, label: row ? '' : 'faults' });
    }
    data.nodes.forEach(function (node) { lanes.push({ type: 'node', node: node, label: node }); });
    var partitions = shownPartitions();
    partitions.slice(0, MOST_PARTITIONS).forEach(function (name) {
      lanes.push({ type: 'turn', name: name, label: name });
    });
    var more = partitions.length - MOST_PARTITIONS;
    element('timeline-more').textContent =
      more > 0 ? more + ' more partitions: choose one, or click it in the heat map' : '';
    data.ops.clients.forEach(function (name, index) {
      if (filter.client < 0 || filter.client === index) lanes.push({ type: 'client', index: index, label: name });
    });
  }

  function shownPartitions() {
    if (filter.place < 0) return Object.keys(data.turns);
    var chosen = data.ops.places[filter.place];
    return data.turns[chosen] ? [chosen] : [];
  }

  function x(at) {
    return size.left + (at - view.from) / (view.to - view.from) * (size.width - size.left);
  }

  function secondAt(px) {
    return view.from + (px - size.left) / (size.width - size.left) * (view.to - view.from);
  }

  /* A name keeps its end: the names of clients and partitions differ there. */
  function clipName(pen, text, width) {
    var cut = text;
    for (var kept = text.length - 1; pen.measureText(cut).width > width && kept > 2; kept--) {
      cut = text.slice(0, Math.floor(kept / 2)) + '…' + text.slice(text.length - Math.ceil(kept / 2));
    }
    return cut;
  }

  /* The longest of the labels that fits; none is cut, because the legend and the tooltip have the whole name. */
  function fitting(pen, labels, width) {
    return labels.find(function (label) { return pen.measureText(label).width <= width; }) || '';
  }

  /* The distance of the time marks: 1, 2 or 5 times a power of ten. */
  function step() {
    var raw = (view.to - view.from) / Math.max(2, (size.width - size.left) / 90);
    var power = Math.pow(10, Math.floor(Math.log10(raw)));
    return [1, 2, 5, 10].map(function (m) { return m * power; }).filter(function (s) { return s >= raw; })[0];
  }

  /* A pen in units of CSS pixels on a cleared canvas of this height. */
  function penOf(target, height, font) {
    var ratio = window.devicePixelRatio || 1;
    target.style.height = height + 'px';
    target.width = target.clientWidth * ratio;
    target.height = height * ratio;
    var pen = target.getContext('2d');
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.font = font;
    pen.textBaseline = 'middle';
    return pen;
  }

  function draw() {
    isQueued = false;
    measure();
    layout();
    var height = TOP + lanes.length * ROW + 6, pen = penOf(canvas, height, '12px system-ui, sans-serif');
    hits = [];
    drawTimes(pen, height);
    lanes.forEach(function (lane, number) { drawLane(pen, lane, TOP + number * ROW); });
  }

  function drawTimes(pen, height) {
    var distance = step(), digits = Math.max(0, -Math.floor(Math.log10(distance)));
    for (var t = Math.ceil(view.from / distance) * distance; t <= view.to; t += distance) {
      pen.fillStyle = look.line;
      pen.fillRect(x(t), 18, 1, height);
      pen.fillStyle = look.soft;
      var mark = t.toFixed(digits) + ' s';
      if (x(t) + pen.measureText(mark).width < size.width) pen.fillText(mark, x(t) + 3, 9);
    }
  }

  function drawLane(pen, lane, y) {
    pen.fillStyle = look.ink;
    pen.fillText(clipName(pen, lane.label, size.left - 6), 0, y + ROW / 2);
    pen.save();
    pen.beginPath();
    pen.rect(size.left, y, size.width - size.left, ROW);
    pen.clip();
    if (lane.type === 'fault') drawFaults(pen, lane.row, y);
    if (lane.type === 'node') drawStates(pen, lane.node, y);
    if (lane.type === 'turn') drawTurns(pen, lane.name, y);
    if (lane.type === 'client') drawOps(pen, byLane[lane.index], y);
    pen.restore();
  }

  function drawFaults(pen, row, y) {
    data.faults.forEach(function (fault) {
      if (fault.row !== row) return;
      var full = fault.id + ' ' + fault.name;
      drawSpan(pen, fault.start, fault.end, y, look.ink, [full, fault.id], full, fault.free);
    });
  }

  function drawStates(pen, node, y) {
    var colors = { up: look.up, suspended: look.unknown, down: look.fail };
    data.states.forEach(function (state) {
      if (state.node !== node) return;
      var labels = state.role === 'up' ? [] : [state.role];
      drawSpan(pen, state.start, state.end, y, colors[state.role], labels, node + ' ' + state.role);
    });
  }

  function drawTurns(pen, name, y) {
    data.turns[name].forEach(function (turn) {
      var node = turn[2], epoch = turn[3], text = node + ' e' + epoch;
      var full = name + ': ' + node + ' leads, epoch ' + epoch;
      drawSpan(pen, turn[0], turn[1], y, colorOfNode(node), [text, node], full);
    });
  }

  /* `labels`: from the longest to the shortest. `full`: the text of the tooltip. */
  function drawSpan(pen, from, to, y, color, labels, full, free) {
    if (to < view.from || from > view.to) return;
    var a = Math.max(x(from), size.left), b = Math.min(x(to), size.width), w = Math.max(b - a, 2);
    pen.fillStyle = color;
    pen.globalAlpha = color === look.ink ? 0.15 : 0.3; /* faults overlap, and their labels have the same colour */
    pen.fillRect(a, y + 2, w, ROW - 4);
    pen.globalAlpha = 1;
    pen.fillRect(a, y + ROW - 4, w, 2);
    var room = free === undefined ? w : Math.max(w, Math.min(x(free), size.width) - a);
    pen.fillStyle = look.ink;
    pen.fillText(fitting(pen, labels, room - 6), a + 3, y + ROW / 2);
    var times = from.toFixed(3) + ' s to ' + to.toFixed(3) + ' s';
    hits.push({ x0: a, x1: a + w, y0: y, y1: y + ROW, text: full + '\n' + times });
  }

  function matches(i) {
    return (filter.place < 0 || ops.place[i] === filter.place)
      && (filter.outcome < 0 || ops.kind[i] % 4 === filter.outcome);
  }

  function drawOps(pen, own, y) {
    var colors = [look.ok, look.fail, look.unknown], last = [-1, -1, -1, -1];
    var from = view.from / TICK, to = view.to / TICK, left = size.left, perTick = (size.width - left) / (to - from);
    function one(i, stop) {
      if (stop < from || !matches(i)) return;
      var a = Math.max(left + (ops.start[i] - from) * perTick, left);
      var w = Math.max((stop - from) * perTick + left - a, 1), outcome = ops.kind[i] % 4;
      if (a + w < last[outcome] + 1) return; /* the last one of its outcome covers its pixels */
      last[outcome] = a + w;
      var alpha = counted ? Math.min(1, 0.25 + ops.number[i] / 40) : outcome ? 1 : 0.75;
      if (pen.globalAlpha !== alpha) pen.globalAlpha = alpha;
      pen.fillStyle = colors[outcome] || colors[INFO];
      if (outcome === INFO && !counted) { /* it may hide others: a mark and a thin line */
        pen.fillRect(a, y + 2, 2, ROW - 4);
        pen.fillRect(a, y + ROW - 4, w, 1.5);
      } else {
        pen.fillRect(a, outcome === 0 ? y + 4 : y + 2, w, outcome === 0 ? ROW - 8 : ROW - 4);
      }
    }
    for (var n = firstFrom(own.list, from - own.longest); n < own.list.length; n++) {
      if (ops.start[own.list[n]] > to) break;
      one(own.list[n], ops.start[own.list[n]] + ops.length[own.list[n]]);
    }
    last = [-1, -1, -1, -1];
    own.open.forEach(function (i) { if (ops.start[i] <= to) one(i, to); });
    pen.globalAlpha = 1;
  }

  function redraw() {
    if (isQueued) return;
    isQueued = true;
    requestAnimationFrame(draw);
  }

  function showAll() {
    view = { from: 0, to: end };
    redraw();
  }

  function zoom(factor, centre) {
    var from = centre - (centre - view.from) * factor, to = centre + (view.to - centre) * factor;
    if (to - from < 1e-4) return;
    view.from = Math.max(0, from);
    view.to = Math.min(end * 1.02, to);
    if (view.to - view.from < 1e-4) view = { from: 0, to: end };
    redraw();
  }

  function moveTo(from, width) {
    view.from = Math.min(Math.max(0, from), Math.max(0, end - width));
    view.to = view.from + width;
    redraw();
  }

  function pan(seconds) {
    moveTo(view.from + seconds, view.to - view.from);
  }

  function onKey(e) {
    var width = view.to - view.from, centre = view.from + width / 2;
    var actions = {
      '+': function () { zoom(0.6, centre); }, '-': function () { zoom(1.6, centre); }, '0': showAll,
      ArrowLeft: function () { pan(-width / 5); }, ArrowRight: function () { pan(width / 5); }
    };
    if (!actions[e.key]) return;
    actions[e.key]();
    e.preventDefault();
  }

  function onMove(e) {
    if (drag) {
      var width = drag.to - drag.from;
      moveTo(drag.from + (drag.x - e.offsetX) / (size.width - size.left) * width, width);
      return;
    }
    showTip(tip, hover(e.offsetX, e.offsetY), e, canvas);
  }

  function showTip(box, text, e, target) {
    box.hidden = !text;
    box.textContent = text;
    box.style.left = Math.min(e.offsetX + 12, Math.max(0, target.clientWidth - 250)) + 'px';
    box.style.top = (e.offsetY + 14) + 'px';
  }

  function clock(s) {
    return s.toFixed(4) + ' s' + (data.wall_ms ? ' (' + new Date(data.wall_ms + s * 1000).toISOString() + ')' : '');
  }

  /* The text of the tooltip at this place; empty for none. */
  function hover(px, py) {
    var lane = lanes[Math.floor((py - TOP) / ROW)];
    if (!lane || px < size.left) return '';
    if (lane.type === 'client') {
      var nearest = nearestOperation(byLane[lane.index], secondAt(px) / TICK);
      return nearest < 0 ? '' : operationText(lane.label, nearest);
    }
    for (var h = hits.length - 1; h >= 0; h--) {
      var hit = hits[h];
      if (px >= hit.x0 && px <= hit.x1 && py >= hit.y0 && py < hit.y1) return hit.text;
    }
    return '';
  }

  /* The operation of a client that is nearest to a tick, at most `REACH` pixels away; -1 for none. */
  function nearestOperation(own, tick) {
    var best = -1, least = REACH, perPixel = (view.to - view.from) / (size.width - size.left) / TICK;
    function examine(i, stop) {
      if (!matches(i)) return;
      var away = Math.max(ops.start[i] - tick, tick - stop, 0) / perPixel;
      if (away <= least) { least = away; best = i; }
    }
    own.open.forEach(function (i) { examine(i, Infinity); });
    for (var n = firstFrom(own.list, tick - own.longest - REACH * perPixel); n < own.list.length; n++) {
      if (ops.start[own.list[n]] > tick + REACH * perPixel) break;
      examine(own.list[n], ops.start[own.list[n]] + ops.length[own.list[n]]);
    }
    return best;
  }

  function operationText(client, i) {
    var kind = KINDS[ops.kind[i] >> 2] || '?', outcome = OUTCOMES[ops.kind[i] % 4] || '?';
    var start = clock(ops.start[i] * TICK);
    if (counted) return client + ': ' + ops.number[i] + ' × ' + kind + ', ' + outcome + '\nfrom ' + start;
    var place = data.ops.places[ops.place[i]] || '?', offset = ops.number[i] >= 0 ? ' at offset ' + ops.number[i] : '';
    var took = ops.length[i] === OPEN
      ? 'without an answer: it may still take effect' : 'took ' + (ops.length[i] * TICK * 1000).toFixed(2) + ' ms';
    return client + ': ' + kind + ' on ' + place + offset + ': ' + outcome + '\ninvoked ' + start + '\n' + took;
  }

  function addOption(box, name, index) {
    var option = document.createElement('option');
    option.value = index;
    option.textContent = name;
    box.appendChild(option);
  }

  function picker(id, names, set) {
    var box = element(id);
    names.forEach(function (name, index) { addOption(box, name, index); });
    box.addEventListener('change', function () { set(Number(box.value)); redraw(); });
    return box;
  }

  picker('pick-client', data.ops.clients, function (v) { filter.client = v; });
  var pickPlace = picker('pick-place', data.ops.places, function (v) { filter.place = v; });
  picker('pick-outcome', OUTCOMES, function (v) { filter.outcome = v; });
  if (counted) pickPlace.disabled = true;
  element('zoom-in').onclick = function () { zoom(0.5, (view.from + view.to) / 2); };
  element('zoom-out').onclick = function () { zoom(2, (view.from + view.to) / 2); };
  element('zoom-all').onclick = showAll;
  element('pan-left').onclick = function () { pan((view.from - view.to) / 3); };
  element('pan-right').onclick = function () { pan((view.to - view.from) / 3); };
  canvas.addEventListener('wheel', function (e) {
    if (!e.ctrlKey && !e.shiftKey) return; /* the wheel alone scrolls the page */
    e.preventDefault();
    zoom((e.deltaY || e.deltaX) > 0 ? 1.25 : 0.8, secondAt(e.offsetX));
  }, { passive: false });
  canvas.addEventListener('keydown', onKey);
  canvas.addEventListener('pointerdown', function (e) { drag = { x: e.offsetX, from: view.from, to: view.to }; });
  window.addEventListener('pointerup', function () { drag = null; });
  canvas.addEventListener('pointermove', onMove);
  canvas.addEventListener('pointerleave', function () { tip.hidden = true; });

  /* The heat map: one row per partition. */
  var heat = element('heat'), heatTip = element('heat-tip'), p = data.partitions;
  var cells = { leader: view8(p.leader), in_sync: view8(p.in_sync), lag: view8(p.lag) };

  function view8(text) {
    return new Uint8Array(bytes(text));
  }

  function drawHeat() {
    measure();
    var what = element('heat-what').value, row = heatRow();
    var pen = penOf(heat, p.names.length * row, '11px system-ui, sans-serif');
    var left = heatLeft(), width = (heat.clientWidth - left) / p.windows, most = largestSet();
    p.names.forEach(function (name, r) {
      pen.fillStyle = look.ink;
      if (left) pen.fillText(clipName(pen, name, left - 6), 0, r * row + row / 2);
      eachRun(cells[what].subarray(r * p.windows, (r + 1) * p.windows), function (from, to, value) {
        pen.fillStyle = shade(what, value, most);
        pen.fillRect(left + from * width, r * row, (to - from) * width + 0.5, Math.max(row - (row > 4 ? 1 : 0), 1));
      });
    });
  }

  /* Calls `paint` with each run of equal values: neighbours in one rectangle have no seams. */
  function eachRun(values, paint) {
    for (var w = 1, from = 0; w <= values.length; w++) {
      if (w < values.length && values[w] === values[from]) continue;
      paint(from, w, values[from]);
      from = w;
    }
  }

  function largestSet() {
    return cells.in_sync.reduce(function (most, v) { return v < NO_LEADER ? Math.max(most, v) : most; }, 1);
  }

  function shade(what, v, most) {
    if (v === UNKNOWN) return look.line;
    if (what === 'leader') return v === NO_LEADER ? look.fail : colorOfNode(p.nodes[v]);
    if (what === 'in_sync') return 'hsl(' + (v / most * 200) + ' 60% 50%)';
    return 'hsl(' + (200 - Math.min(v, 100) * 2) + ' 65% 50%)';
  }

  /* The index of a partition among the places; one without operations gets an entry of the list, too. */
  function placeOf(name) {
    var index = data.ops.places.indexOf(name);
    if (index < 0) {
      index = data.ops.places.push(name) - 1;
      addOption(pickPlace, name, index);
    }
    return index;
  }

  function heatRow() {
    return Math.max(1, Math.min(14, Math.floor(900 / p.names.length)));
  }

  function heatLeft() {
    return heatRow() >= 11 ? size.left : 0;
  }

  function heatCell(e) {
    var r = Math.floor(e.offsetY / heatRow()), left = heatLeft();
    var w = Math.floor((e.offsetX - left) / (heat.clientWidth - left) * p.windows);
    return r >= 0 && r < p.names.length && w >= 0 && w < p.windows ? { row: r, window: w } : null;
  }

  function cellText(cell) {
    var at = cell.row * p.windows + cell.window;
    var leader = cells.leader[at], inSync = cells.in_sync[at], lag = cells.lag[at];
    var leads = leader === UNKNOWN ? 'does not exist yet'
      : leader === NO_LEADER ? 'no leader' : 'leader ' + p.nodes[leader];
    return p.names[cell.row] + ' at ' + (cell.window / p.windows * end).toFixed(1) + ' s\n' + leads
      + '\nin-sync replicas: ' + (inSync === UNKNOWN ? 'unknown' : inSync)
      + '\nlag: ' + (lag === UNKNOWN ? 'unknown' : Math.round(Math.pow(2, lag / 10) - 1) + ' records');
  }

  if (heat) {
    heat.addEventListener('pointermove', function (e) {
      var cell = heatCell(e);
      showTip(heatTip, cell ? cellText(cell) : '', e, heat);
    });
    heat.addEventListener('pointerleave', function () { heatTip.hidden = true; });
    heat.addEventListener('click', function (e) {
      var cell = heatCell(e);
      if (!cell) return;
      filter.place = pickPlace.value = placeOf(p.names[cell.row]);
      element('timeline-section').scrollIntoView();
      redraw();
    });
    element('heat-what').addEventListener('change', drawHeat);
  }

  function drawAll() {
    draw();
    if (heat) drawHeat();
  }

  window.addEventListener('resize', drawAll);
  if (window.matchMedia) window.matchMedia('(prefers-color-scheme: dark)').addEventListener('change', drawAll);
  drawAll();
  document.documentElement.dataset.timeline = 'drawn';
})();
