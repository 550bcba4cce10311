function () {
  function ink() { var c = document.getElementById('timeline'), d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data, n = 0;
    for (var i = 3; i < d.length; i += 4) n += d[i] > 0; return n; }
  var canvas = document.getElementById('timeline'), before = canvas.toDataURL();
  window.requestAnimationFrame = function (f) { f(); };
  document.getElementById('zoom-in').click(); var zoomed = canvas.toDataURL();
  document.getElementById('zoom-all').click(); var whole = canvas.toDataURL();
  var pick = document.getElementById('pick-client'); pick.value = '0'; pick.dispatchEvent(new Event('change'));
  var filtered = canvas.toDataURL(), box = canvas.getBoundingClientRect(), tip = document.getElementById('timeline-tip'), said = '';
  for (var y = 20; y < box.height && said.indexOf('append') < 0; y += 6) for (var x = 60; x < box.width; x += 4) {
    canvas.dispatchEvent(new PointerEvent('pointermove', { clientX: box.left + x, clientY: box.top + y, bubbles: true }));
    if (!tip.hidden && tip.textContent.indexOf('append') >= 0) { said = tip.textContent; break; } }
  return { ink: ink(), zooms: zoomed !== before, returns: whole === before, filters: filtered !== whole, said: said };
}
