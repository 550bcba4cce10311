/* Measures the page after it has loaded, and replaces the document by the measurements as JSON. */
addEventListener('load', function () {
  function rgb(text) { var n = (text.match(/[\d.]+/g) || []).map(Number); return n.length < 4 ? [n[0], n[1], n[2], 1] : n; }
  function luminance(color) {
    return [0, 1, 2].map(function (i) { var v = color[i] / 255; return v <= 0.04045 ? v / 12.92 : Math.pow((v + 0.055) / 1.055, 2.4); })
      .reduce(function (sum, v, i) { return sum + v * [0.2126, 0.7152, 0.0722][i]; }, 0);
  }
  var dark = matchMedia('(prefers-color-scheme: dark)').matches;
  function behind(element) {
    for (; element; element = element.parentElement) { var color = rgb(getComputedStyle(element).backgroundColor); if (color[3] > 0.99) return color; }
    return dark ? [18, 18, 18, 1] : [255, 255, 255, 1];
  }
  function shown(element) {
    return element.checkVisibility() && (!element.closest('details:not([open])') || element.closest('summary'));
  }
  var low = [], boxes = [], walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), node;
  while ((node = walker.nextNode())) {
    var element = node.parentElement, text = node.nodeValue.trim().slice(0, 40);
    if (!text || ['SCRIPT', 'STYLE', 'OPTION'].indexOf(element.tagName) >= 0 || !shown(element)) continue;
    var a = luminance(rgb(getComputedStyle(element).color)), b = luminance(behind(element));
    var ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) low.push([text, Math.round(ratio * 100) / 100]);
    var range = document.createRange(); range.selectNodeContents(node);
    Array.from(range.getClientRects()).forEach(function (r) { if (r.width > 1 && r.height > 1) boxes.push([r.left, r.top, r.right, r.bottom, text]); });
  }
  boxes.sort(function (p, q) { return p[1] - q[1]; });
  var overlaps = [];
  for (var i = 0; i < boxes.length; i++) {
    for (var j = i + 1; j < boxes.length && boxes[j][1] < boxes[i][3]; j++) {
      var p = boxes[i], q = boxes[j], width = Math.min(p[2], q[2]) - Math.max(p[0], q[0]), height = Math.min(p[3], q[3]) - Math.max(p[1], q[1]);
      if (width > 3 && height > 0.45 * Math.min(p[3] - p[1], q[3] - q[1])) overlaps.push([p[4], q[4]]);
    }
  }
  var proofs = Array.from(document.querySelectorAll('td.evidence')).filter(shown).map(function (cell) { return cell.getBoundingClientRect().width; });
  var links = Array.from(document.querySelectorAll('a')).filter(shown).map(function (link) { return link.getBoundingClientRect().right; });
  var found = {
    errors: window.pageErrors, width: document.documentElement.scrollWidth, window: innerWidth, contrast: low, overlaps: overlaps,
    requests: performance.getEntriesByType('resource').map(function (each) { return each.name; }).filter(function (name) { return name.indexOf('data:') !== 0; }),
    font: getComputedStyle(document.body).fontFamily, timeline: document.documentElement.dataset.timeline || '', texts: boxes.length, dark: dark,
    narrowest_proof: Math.min.apply(null, proofs.concat(9999)), rightmost_link: Math.max.apply(null, links.concat(0)),
    extra: window.pageProbe ? window.pageProbe() : null
  };
  document.documentElement.innerHTML = '<body><pre id="found"></pre></body>';
  document.getElementById('found').textContent = JSON.stringify(found);
});
