/* Runs before the page's scripts. Records each text that is drawn on a canvas: its box, colour, and the mean colour of
   the pixels behind it. Setting a canvas's width clears it, and its texts. */
(function () {
  var texts = window.canvasTexts = new Map(), proto = CanvasRenderingContext2D.prototype, fill = proto.fillText;
  var width = Object.getOwnPropertyDescriptor(HTMLCanvasElement.prototype, 'width');
  Object.defineProperty(HTMLCanvasElement.prototype, 'width', { get: width.get, set: function (value) { texts.set(this, []); width.set.call(this, value); } });
  function behind(ctx, box) {
    var w = Math.max(1, Math.round(box[2] - box[0])), h = Math.max(1, Math.round(box[3] - box[1]));
    var d = ctx.getImageData(Math.round(box[0]), Math.round(box[1]), w, h).data, sum = [0, 0, 0, 0];
    for (var i = 0; i < d.length; i += 4) { var a = d[i + 3] / 255; sum[0] += d[i] * a; sum[1] += d[i + 1] * a; sum[2] += d[i + 2] * a; sum[3] += a; }
    return sum[3] ? [sum[0] / sum[3], sum[1] / sum[3], sum[2] / sum[3], sum[3] / (d.length / 4)] : [0, 0, 0, 0];
  }
  proto.fillText = function (text, x, y) {
    var m = this.measureText(text), t = this.getTransform();
    var box = [(x - m.actualBoundingBoxLeft) * t.a, (y - m.actualBoundingBoxAscent) * t.d, (x + m.actualBoundingBoxRight) * t.a, (y + m.actualBoundingBoxDescent) * t.d];
    if (!texts.has(this.canvas)) texts.set(this.canvas, []);
    if (text) texts.get(this.canvas).push({ text: String(text), box: box, color: String(this.fillStyle), behind: behind(this, box) });
    fill.apply(this, arguments);
  };
})();
