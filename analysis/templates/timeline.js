/* The timeline and the heat map of partitions. Self-contained: no library, no network. All names reach the page as text
   (canvas or textContent), never as markup. */
(function () {
  'use strict';
  var data = JSON.parse(document.getElementById('timeline-data').textContent);
  var canvas = document.getElementById('timeline'), tip = document.getElementById('timeline-tip');
  var KINDS = ['append', 'read', 'end', 'write', 'cas'], OUTCOMES = ['ok', 'fail', 'info'];
  var TICK = 1e-5, OPEN = 4294967295, ROW = 18;
  function bytes(text) { var raw = atob(text), out = new Uint8Array(raw.length); for (var i = 0; i < raw.length; i++) out[i] = raw.charCodeAt(i); return out.buffer; }
  var c = data.ops.columns;
  var ops = { start: new Uint32Array(bytes(c.start)), length: new Uint32Array(bytes(c.length)), lane: new Uint16Array(bytes(c.lane)), place: new Uint16Array(bytes(c.place)), kind: new Uint8Array(bytes(c.kind)), number: new Int32Array(bytes(c.number)) };
  var counted = data.ops.window_s > 0, end = Math.max(data.end_s, 0.001);
  var view = { from: 0, to: end }, filter = { client: -1, place: -1, outcome: -1 };
  /* Of each client: its operations in order of invocation, those that never returned apart, because every one of them may
     reach into the window. `longest` bounds how far before the window an operation in it may have started. */
  var byLane = data.ops.clients.map(function () { return { list: [], open: [], longest: 0 }; });
  for (var i = 0; i < ops.start.length; i++) {
    var own = byLane[ops.lane[i]];
    if (ops.length[i] === OPEN) own.open.push(i); else { own.list.push(i); own.longest = Math.max(own.longest, ops.length[i]); }
  }
  function firstFrom(list, tick) { var low = 0, high = list.length; while (low < high) { var middle = (low + high) >> 1; if (ops.start[list[middle]] < tick) low = middle + 1; else high = middle; } return low; }
  /* Measured once per frame: reading a size from the document for each operation would take longer than drawing it. */
  var size = { width: 0, left: 0 }, look = {};
  function measure() { size.width = canvas.clientWidth; size.left = size.width < 500 ? 64 : 118; ['ink', 'soft', 'line', 'ok', 'fail', 'unknown', 'up'].forEach(function (name) { look[name] = css('--' + name); }); }
  function css(name) { return getComputedStyle(document.documentElement).getPropertyValue(name).trim(); }
  var lanes = [], hits = [], queued = false;

  function pack(spans) { /* spans that overlap get rows of their own */
    var rows = [], last = []; spans.forEach(function (span) { for (var r = 0; r < rows.length; r++) if (rows[r] <= span.start) break; rows[r] = span.end; span.row = r; span.free = Infinity; if (last[r]) last[r].free = span.start; last[r] = span; }); return Math.max(rows.length, 1); }
  var faultRows = Math.min(pack(data.faults), 12);

  function layout() {
    lanes = [];
    for (var r = 0; r < faultRows && data.faults.length; r++) lanes.push({ type: 'fault', row: r, label: r ? '' : 'faults' });
    data.nodes.forEach(function (node) { lanes.push({ type: 'node', node: node, label: node }); });
    var chosen = filter.place >= 0 ? data.ops.places[filter.place] : null, partitions = Object.keys(data.turns);
    if (chosen && data.turns[chosen]) partitions = [chosen]; else if (chosen) partitions = [];
    partitions.slice(0, 12).forEach(function (name) { lanes.push({ type: 'turn', name: name, label: name }); });
    document.getElementById('timeline-more').textContent = partitions.length > 12 ? (partitions.length - 12) + ' more partitions: choose one, or click it in the heat map' : '';
    data.ops.clients.forEach(function (name, index) { if (filter.client < 0 || filter.client === index) lanes.push({ type: 'client', index: index, label: name }); });
  }
  function labelWidth() { return size.left; }
  function x(at) { var left = labelWidth(); return left + (at - view.from) / (view.to - view.from) * (size.width - left); }
  function at(px) { var left = labelWidth(); return view.from + (px - left) / (size.width - left) * (view.to - view.from); }
  function clip(ctx, text, width) { if (ctx.measureText(text).width <= width) return text; while (text.length > 1 && ctx.measureText(text + '…').width > width) text = text.slice(0, -1); return text.length > 2 ? text + '…' : ''; }
  /* A name keeps its end: the names of clients and partitions differ there. */
  function clipName(ctx, text, width) { for (var cut = text, kept = text.length - 1; ctx.measureText(cut).width > width && kept > 2; kept--) cut = text.slice(0, Math.floor(kept / 2)) + '…' + text.slice(text.length - Math.ceil(kept / 2)); return cut; }
  function step() { var raw = (view.to - view.from) / Math.max(2, (canvas.clientWidth - labelWidth()) / 90), p = Math.pow(10, Math.floor(Math.log10(raw))); return [1, 2, 5, 10].map(function (m) { return m * p; }).filter(function (s) { return s >= raw; })[0]; }

  function draw() {
    queued = false; measure(); layout();
    var ratio = window.devicePixelRatio || 1, height = 24 + lanes.length * ROW + 6, width = size.width;
    canvas.style.height = height + 'px'; canvas.width = width * ratio; canvas.height = height * ratio;
    var ctx = canvas.getContext('2d'); ctx.setTransform(ratio, 0, 0, ratio, 0, 0); ctx.font = '12px system-ui, sans-serif'; ctx.textBaseline = 'middle';
    var ink = look.ink, soft = look.soft, line = look.line, left = labelWidth();
    var outcome = [look.ok, look.fail, look.unknown];
    hits = []; var s = step(), digits = Math.max(0, -Math.floor(Math.log10(s)));
    for (var t = Math.ceil(view.from / s) * s; t <= view.to; t += s) { ctx.fillStyle = line; ctx.fillRect(x(t), 18, 1, height); ctx.fillStyle = soft; var mark = t.toFixed(digits) + ' s'; if (x(t) + ctx.measureText(mark).width < width) ctx.fillText(mark, x(t) + 3, 9); }
    lanes.forEach(function (lane, number) {
      var y = 24 + number * ROW; ctx.fillStyle = ink; ctx.fillText(clipName(ctx, lane.label, left - 6), 0, y + ROW / 2);
      ctx.save(); ctx.beginPath(); ctx.rect(left, y, width - left, ROW); ctx.clip();
      if (lane.type === 'fault') data.faults.forEach(function (f) { if (f.row === lane.row) span(ctx, f.start, f.end, y, f.color, f.name, f.id + ' ' + f.name, f.free); });
      if (lane.type === 'node') data.states.forEach(function (st) { if (st.node === lane.node) span(ctx, st.start, st.end, y, st.role === 'up' ? look.up : st.role === 'suspended' ? look.unknown : look.fail, st.role === 'up' ? '' : st.role, st.node + ' ' + st.role); });
      if (lane.type === 'turn') data.turns[lane.name].forEach(function (turn) { span(ctx, turn[0], turn[1], y, data.colors[turn[3] >= 0 ? turn[3] % data.colors.length : 0], turn[2] + ' e' + turn[3], lane.name + ': ' + turn[2] + ' leads, epoch ' + turn[3]); });
      if (lane.type === 'client') drawOps(ctx, byLane[lane.index], y, outcome);
      ctx.restore();
    });
  }
  function span(ctx, from, to, y, color, text, full, free) { /* free: until then, the text may go beyond the span */
    if (to < view.from || from > view.to) return; var a = Math.max(x(from), labelWidth()), b = Math.min(x(to), size.width), w = Math.max(b - a, 2);
    ctx.fillStyle = color; ctx.globalAlpha = 0.3; ctx.fillRect(a, y + 2, w, ROW - 4); ctx.globalAlpha = 1; ctx.fillRect(a, y + ROW - 4, w, 2);
    var room = free === undefined ? w : Math.max(w, Math.min(x(free), size.width) - a);
    if (room > 12 && text) { ctx.fillStyle = look.ink; ctx.fillText(clip(ctx, text, room - 6), a + 3, y + ROW / 2); }
    hits.push({ x0: a, x1: a + w, y0: y, y1: y + ROW, text: full + '\n' + from.toFixed(3) + ' s to ' + to.toFixed(3) + ' s' });
  }
  function matches(i) { return (filter.place < 0 || ops.place[i] === filter.place) && (filter.outcome < 0 || ops.kind[i] % 4 === filter.outcome); }
  function drawOps(ctx, own, y, colors) {
    var last = [-1, -1, -1, -1], from = view.from / TICK, to = view.to / TICK, left = size.left, perTick = (size.width - left) / (to - from);
    function one(i, stop) {
      if (stop < from || !matches(i)) return;
      var a = Math.max(left + (ops.start[i] - from) * perTick, left), w = Math.max((stop - from) * perTick + left - a, 1), kind = ops.kind[i] % 4;
      if (a + w < last[kind] + 1) return; /* the last one of its kind covers its pixels */
      last[kind] = a + w;
      var alpha = counted ? Math.min(1, 0.25 + ops.number[i] / 40) : kind ? 1 : 0.75;
      if (ctx.globalAlpha !== alpha) ctx.globalAlpha = alpha;
      ctx.fillStyle = colors[kind] || colors[2];
      if (kind === 2 && !counted) { ctx.fillRect(a, y + 2, 2, ROW - 4); ctx.fillRect(a, y + ROW - 4, w, 1.5); } /* it may hide others: a mark and a thin line */
      else ctx.fillRect(a, kind === 0 ? y + 4 : y + 2, w, kind === 0 ? ROW - 8 : ROW - 4);
    }
    for (var n = firstFrom(own.list, from - own.longest); n < own.list.length && ops.start[own.list[n]] <= to; n++) one(own.list[n], ops.start[own.list[n]] + ops.length[own.list[n]]);
    last = [-1, -1, -1, -1];
    own.open.forEach(function (i) { if (ops.start[i] <= to) one(i, to); });
    ctx.globalAlpha = 1;
  }
  function redraw() { if (!queued) { queued = true; requestAnimationFrame(draw); } }
  function zoom(factor, centre) { var from = centre - (centre - view.from) * factor, to = centre + (view.to - centre) * factor; if (to - from < 1e-4) return; view.from = Math.max(0, from); view.to = Math.min(end * 1.02, to); if (view.to - view.from < 1e-4) { view.from = 0; view.to = end; } redraw(); }
  function pan(seconds) { var width = view.to - view.from; view.from = Math.min(Math.max(0, view.from + seconds), Math.max(0, end - width)); view.to = view.from + width; redraw(); }
  canvas.addEventListener('wheel', function (e) { if (!e.ctrlKey && !e.shiftKey) return; e.preventDefault(); zoom((e.deltaY || e.deltaX) > 0 ? 1.25 : 0.8, at(e.offsetX)); }, { passive: false });
  canvas.addEventListener('keydown', function (e) { var w = view.to - view.from, done = true; if (e.key === '+') zoom(0.6, view.from + w / 2); else if (e.key === '-') zoom(1.6, view.from + w / 2); else if (e.key === 'ArrowLeft') pan(-w / 5); else if (e.key === 'ArrowRight') pan(w / 5); else if (e.key === '0') { view = { from: 0, to: end }; redraw(); } else done = false; if (done) e.preventDefault(); });
  var drag = null;
  canvas.addEventListener('pointerdown', function (e) { drag = { x: e.offsetX, from: view.from, to: view.to }; });
  window.addEventListener('pointerup', function () { drag = null; });
  canvas.addEventListener('pointermove', function (e) {
    if (drag) { var shift = (drag.x - e.offsetX) / (canvas.clientWidth - labelWidth()) * (drag.to - drag.from), width = drag.to - drag.from; view.from = Math.min(Math.max(0, drag.from + shift), Math.max(0, end - width)); view.to = view.from + width; redraw(); return; }
    var text = hover(e.offsetX, e.offsetY); tip.hidden = !text; tip.textContent = text;
    tip.style.left = Math.min(e.offsetX + 12, Math.max(0, canvas.clientWidth - 250)) + 'px'; tip.style.top = (e.offsetY + 14) + 'px';
  });
  canvas.addEventListener('pointerleave', function () { tip.hidden = true; });
  function clock(s) { return s.toFixed(4) + ' s' + (data.wall_ms ? ' (' + new Date(data.wall_ms + s * 1000).toISOString() + ')' : ''); }
  function hover(px, py) {
    var lane = lanes[Math.floor((py - 24) / ROW)]; if (!lane || px < labelWidth()) return '';
    if (lane.type !== 'client') { for (var h = hits.length - 1; h >= 0; h--) { var b = hits[h]; if (px >= b.x0 && px <= b.x1 && py >= b.y0 && py < b.y1) return b.text; } return ''; }
    var own = byLane[lane.index], best = -1, least = 6, middle = at(px) / TICK, perPixel = (view.to - view.from) / (size.width - size.left) / TICK;
    function near(i, stop) { if (!matches(i)) return; var d = middle < ops.start[i] ? (ops.start[i] - middle) / perPixel : middle > stop ? (middle - stop) / perPixel : 0; if (d <= least) { least = d; best = i; } }
    own.open.forEach(function (i) { near(i, Infinity); });
    for (var n = firstFrom(own.list, middle - own.longest - 6 * perPixel); n < own.list.length && ops.start[own.list[n]] <= middle + 6 * perPixel; n++) near(own.list[n], ops.start[own.list[n]] + ops.length[own.list[n]]);
    if (best < 0) return '';
    var kind = KINDS[ops.kind[best] >> 2] || '?', said = OUTCOMES[ops.kind[best] % 4] || '?', begin = ops.start[best] * TICK;
    if (counted) return lane.label + ': ' + ops.number[best] + ' × ' + kind + ', ' + said + '\nfrom ' + clock(begin);
    return lane.label + ': ' + kind + ' on ' + (data.ops.places[ops.place[best]] || '?') + (ops.number[best] >= 0 ? ' at offset ' + ops.number[best] : '') + ': ' + said + '\ninvoked ' + clock(begin) + '\n' + (ops.length[best] === OPEN ? 'never returned' : 'took ' + (ops.length[best] * TICK * 1000).toFixed(2) + ' ms');
  }
  function options(id, names, set) { var box = document.getElementById(id); names.forEach(function (name, index) { var o = document.createElement('option'); o.value = index; o.textContent = name; box.appendChild(o); }); box.addEventListener('change', function () { set(Number(box.value)); redraw(); }); return box; }
  options('pick-client', data.ops.clients, function (v) { filter.client = v; });
  var pickPlace = options('pick-place', data.ops.places, function (v) { filter.place = v; });
  options('pick-outcome', OUTCOMES, function (v) { filter.outcome = v; });
  if (counted) pickPlace.disabled = true;
  document.getElementById('zoom-in').onclick = function () { zoom(0.5, (view.from + view.to) / 2); };
  document.getElementById('zoom-out').onclick = function () { zoom(2, (view.from + view.to) / 2); };
  document.getElementById('zoom-all').onclick = function () { view = { from: 0, to: end }; redraw(); };
  document.getElementById('pan-left').onclick = function () { pan((view.from - view.to) / 3); };
  document.getElementById('pan-right').onclick = function () { pan((view.to - view.from) / 3); };

  /* The heat map: one row per partition. */
  var heat = document.getElementById('heat'), heatTip = document.getElementById('heat-tip'), p = data.partitions;
  function drawHeat() {
    measure();
    var cells = p.cells || (p.cells = { leader: new Uint8Array(bytes(p.leader)), in_sync: new Uint8Array(bytes(p.in_sync)), lag: new Uint8Array(bytes(p.lag)) });
    var what = document.getElementById('heat-what').value, row = heatRow(), width = heat.clientWidth, height = p.names.length * row, ratio = window.devicePixelRatio || 1;
    heat.style.height = height + 'px'; heat.width = width * ratio; heat.height = height * ratio;
    var ctx = heat.getContext('2d'); ctx.setTransform(ratio, 0, 0, ratio, 0, 0); ctx.font = '11px system-ui, sans-serif'; ctx.textBaseline = 'middle';
    var left = row >= 11 ? labelWidth() : 0, cell = (width - left) / p.windows, most = 1;
    cells.in_sync.forEach(function (v) { if (v < 254 && v > most) most = v; });
    p.names.forEach(function (name, r) {
      if (left) { ctx.fillStyle = look.ink; ctx.fillText(clipName(ctx, name, left - 6), 0, r * row + row / 2); }
      for (var w = 0, from = 0; w <= p.windows; w++) { var v = cells[what][r * p.windows + from]; if (w < p.windows && cells[what][r * p.windows + w] === v) continue; ctx.fillStyle = shade(what, v, most); ctx.fillRect(left + from * cell, r * row, (w - from) * cell + 0.5, Math.max(row - (row > 4 ? 1 : 0), 1)); from = w; }
    });
  }
  function shade(what, v, most) {
    if (what === 'leader') return v === 254 ? look.fail : data.colors[v % data.colors.length];
    if (v === 255) return look.line;
    if (what === 'in_sync') return 'hsl(' + (v / most * 200) + ' 60% 50%)';
    return 'hsl(' + (200 - Math.min(v, 100) * 2) + ' 65% 50%)';
  }
  function placeOf(name) { /* a partition without operations gets an entry of the list, too */
    var index = data.ops.places.indexOf(name);
    if (index < 0) { index = data.ops.places.push(name) - 1; var entry = document.createElement('option'); entry.value = index; entry.textContent = name; pickPlace.appendChild(entry); }
    return index;
  }
  function heatRow() { return Math.max(1, Math.min(14, Math.floor(900 / p.names.length))); }
  function heatAt(e) { var r = Math.floor(e.offsetY / heatRow()), left = heatRow() >= 11 ? labelWidth() : 0, w = Math.floor((e.offsetX - left) / (heat.clientWidth - left) * p.windows); return r >= 0 && r < p.names.length && w >= 0 && w < p.windows ? { r: r, w: w } : null; }
  if (heat) {
    heat.addEventListener('pointermove', function (e) { var cell = heatAt(e); heatTip.hidden = !cell; if (!cell) return; var at = cell.r * p.windows + cell.w, l = p.cells.leader[at], s = p.cells.in_sync[at], g = p.cells.lag[at];
      heatTip.textContent = p.names[cell.r] + ' at ' + (cell.w / p.windows * end).toFixed(1) + ' s\n' + (l === 254 ? 'no leader' : 'leader ' + p.nodes[l]) + '\nin-sync replicas: ' + (s === 255 ? 'unknown' : s) + '\nlag: ' + (g === 255 ? 'unknown' : Math.round(Math.pow(2, g / 10) - 1) + ' records');
      heatTip.style.left = Math.min(e.offsetX + 12, Math.max(0, heat.clientWidth - 200)) + 'px'; heatTip.style.top = (e.offsetY + 14) + 'px'; });
    heat.addEventListener('pointerleave', function () { heatTip.hidden = true; });
    heat.addEventListener('click', function (e) { var cell = heatAt(e), index = cell ? placeOf(p.names[cell.r]) : -1; if (index < 0) return; filter.place = index; pickPlace.value = index; document.getElementById('timeline-section').scrollIntoView(); redraw(); });
    document.getElementById('heat-what').addEventListener('change', drawHeat);
  }
  function all() { redraw(); if (heat) drawHeat(); }
  window.addEventListener('resize', all);
  if (window.matchMedia) window.matchMedia('(prefers-color-scheme: dark)').addEventListener('change', all);
  draw(); if (heat) drawHeat();
  document.documentElement.dataset.timeline = 'drawn';
})();
