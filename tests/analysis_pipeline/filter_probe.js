function () {
  var shown = function () { return Array.from(document.querySelectorAll('#story tr[data-kind]')).filter(function (row) { return row.checkVisibility(); }).length; };
  var before = shown(); document.querySelector('#story [data-kind=step]').click(); return [before, shown()];
}
