// Before the first paint: the theme that was chosen here, if one was. Without one the system decides.
"use strict";
(() => {
  let chosen = null;
  try {
    chosen = localStorage.getItem("ephemerd-theme");
  } catch {
    // storage may be forbidden; then the system decides
  }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
