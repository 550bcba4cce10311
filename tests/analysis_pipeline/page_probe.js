/* Measures the page as it is. */
function () {
  function rgb(text) {
    if (text[0] === '#') return [1, 3, 5].map(function (at) { return parseInt(text.slice(at, at + 2), 16); }).concat(1);
    var n = (text.match(/[\d.]+/g) || []).map(Number); return n.length < 4 ? [n[0], n[1], n[2], 1] : n;
  }
  function luminance(color) {
    return [0, 1, 2].map(function (i) { var v = color[i] / 255; return v <= 0.04045 ? v / 12.92 : Math.pow((v + 0.055) / 1.055, 2.4); })
      .reduce(function (sum, v, i) { return sum + v * [0.2126, 0.7152, 0.0722][i]; }, 0);
  }
  function contrast(one, other) { var a = luminance(one), b = luminance(other); return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05); }
  var dark = matchMedia('(prefers-color-scheme: dark)').matches, low = [], boxes = [];
  function behind(element) {
    for (; element; element = element.parentElement) { var color = rgb(getComputedStyle(element).backgroundColor); if (color[3] > 0.99) return color; }
    return dark ? [18, 18, 18, 1] : [255, 255, 255, 1];
  }
  function shown(element) {
    return element.checkVisibility() && (!element.closest('details:not([open])') || element.closest('summary'));
  }
  function check(text, color, ground) { var ratio = contrast(color, ground); if (ratio < 4.5) low.push([text, Math.round(ratio * 100) / 100]); }
  function crossing(all) { /* pairs of texts of which one covers the other */
    var found = []; all.sort(function (p, q) { return p[1] - q[1]; });
    for (var i = 0; i < all.length; i++) for (var j = i + 1; j < all.length && all[j][1] < all[i][3]; j++) {
      var p = all[i], q = all[j], width = Math.min(p[2], q[2]) - Math.max(p[0], q[0]), height = Math.min(p[3], q[3]) - Math.max(p[1], q[1]);
      if (width > 3 && height > 0.45 * Math.min(p[3] - p[1], q[3] - q[1])) found.push([p[4], q[4]]);
    }
    return found;
  }
  var walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), node;
  while ((node = walker.nextNode())) {
    var element = node.parentElement, text = node.nodeValue.trim().slice(0, 40);
    if (!text || ['SCRIPT', 'STYLE', 'OPTION'].indexOf(element.tagName) >= 0 || !shown(element)) continue;
    check(text, rgb(getComputedStyle(element).color), behind(element));
    var range = document.createRange(); range.selectNodeContents(node);
    Array.from(range.getClientRects()).forEach(function (r) { if (r.width > 1 && r.height > 1) boxes.push([r.left, r.top, r.right, r.bottom, text]); });
  }
  var overlaps = crossing(boxes), drawn = 0;
  window.canvasTexts.forEach(function (texts, canvas) {
    if (!canvas.isConnected) return;
    var ground = behind(canvas); drawn += texts.length;
    texts.forEach(function (each) { var a = each.behind[3]; check(each.text, rgb(each.color), [0, 1, 2].map(function (i) { return each.behind[i] * a + ground[i] * (1 - a); })); });
    overlaps = overlaps.concat(crossing(texts.map(function (each) { return each.box.concat(each.text); })));
  });
  var proofs = Array.from(document.querySelectorAll('td.evidence')).filter(shown).map(function (cell) { return cell.getBoundingClientRect().width; });
  var links = Array.from(document.querySelectorAll('a')).filter(shown).map(function (link) { return link.getBoundingClientRect().right; });
  return {
    width: document.documentElement.scrollWidth, window: innerWidth, contrast: low, overlaps: overlaps,
    font: getComputedStyle(document.body).fontFamily, timeline: document.documentElement.dataset.timeline || '', texts: boxes.length, drawn: drawn, dark: dark,
    narrowest_proof: Math.min.apply(null, proofs.concat(9999)), rightmost_link: Math.max.apply(null, links.concat(0))
  };
}
