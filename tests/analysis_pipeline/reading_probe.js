/* Opens everything that a reader can open, so that it is measured, too. */
function () { document.querySelectorAll('details').forEach(function (each) { each.open = true; }); }
