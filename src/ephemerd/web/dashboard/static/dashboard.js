// What the pages do in the browser: follow events, bring the page up to date in place, tell times, ask before orders.
// Everything works without it, by reloading.
"use strict";
(() => {
  const LEAST_PAUSE = 300; // ms between two updates, so that a burst is one
  const AT_LATEST = 5000; // ms after which a visible page is read anew although nothing was told
  const LONGEST_RETRY = 15000;
  const body = document.body;
  const $ = (id) => document.getElementById(id);

  // Times. The server's clock counts; what it said last is kept as a difference to ours.

  let ahead = 0;
  function readClock() {
    const live = $("live");
    const said = Number((live && live.dataset.now) || document.documentElement.dataset.now);
    if (said) ahead = said - Date.now();
  }
  const now = () => Date.now() + ahead;

  function span(ms) {
    const seconds = Math.max(0, Math.round(ms / 1000));
    if (seconds < 60) return `${seconds} s`;
    for (const [big, size, small, part] of [["d", 86400, "h", 3600], ["h", 3600, "min", 60], ["min", 60, "s", 1]]) {
      if (seconds >= size) {
        const rest = Math.floor((seconds % size) / part);
        return `${Math.floor(seconds / size)} ${big}` + (rest ? ` ${rest} ${small}` : "");
      }
    }
    return "";
  }

  function clock(ms, fine, short) {
    const at = new Date(ms);
    const two = (value) => String(value).padStart(2, "0");
    const text = `${two(at.getHours())}:${two(at.getMinutes())}`;
    if (short) return text;
    const whole = `${text}:${two(at.getSeconds())}`;
    return fine ? `${whole}.${String(at.getMilliseconds()).padStart(3, "0")}` : whole;
  }

  function put(element, text) {
    if (element.textContent !== text) element.textContent = text;
  }

  function tick() {
    for (const one of document.querySelectorAll("[data-since]")) put(one, span(now() - Number(one.dataset.since)));
  }

  function localTimes() {
    for (const one of document.querySelectorAll("[data-at]")) {
      const at = Number(one.dataset.at);
      put(one, clock(at, "fine" in one.dataset, "short" in one.dataset));
      if (one.tagName === "TIME" && !one.title) one.title = new Date(at).toLocaleString();
    }
  }

  function say(text) {
    put($("said"), text);
  }

  // Bringing up to date

  let due = null;
  let last = 0;
  function refresh() {
    if (due !== null || document.hidden) return;
    due = setTimeout(() => {
      due = null;
      last = performance.now();
      const live = $("live");
      if (live && live.hasAttribute("hx-get")) htmx.trigger(live, "live");
      else htmx.ajax("GET", "/pill", { target: "#health", swap: "outerHTML" });
      document.dispatchEvent(new CustomEvent("ephemerd:changed"));
    }, Math.max(0, LEAST_PAUSE - (performance.now() - last)));
  }

  function linkState(state, words) {
    const link = $("link");
    if (!link || link.dataset.state === state) return;
    link.dataset.state = state;
    put(link.querySelector(".words"), words);
  }

  let source = null;
  let retry = 1000;
  let again = null;
  function follow() {
    if (source || !body.dataset.feed || document.hidden) return;
    source = new EventSource(body.dataset.feed);
    source.onopen = () => {
      retry = 1000;
      linkState("live", "live");
      refresh();
    };
    source.onmessage = refresh;
    source.onerror = () => {
      linkState("off", "not connected, trying again");
      if (source.readyState === EventSource.CLOSED) {
        source = null;
        clearTimeout(again);
        again = setTimeout(follow, retry);
        retry = Math.min(retry * 2, LONGEST_RETRY);
      }
    };
  }

  function pause() {
    if (source) source.close();
    source = null;
    linkState("paused", "paused");
  }

  document.addEventListener("visibilitychange", () => (document.hidden ? pause() : follow()));
  addEventListener("pagehide", pause);
  addEventListener("pageshow", (event) => event.persisted && follow());

  // A page that cannot be had stays as it is.
  body.addEventListener("htmx:beforeSwap", (event) => {
    const target = event.detail.target;
    if (!target || (target.id !== "live" && target.id !== "health")) return;
    if (event.detail.xhr.status === 200) return;
    event.detail.shouldSwap = false;
    linkState("off", event.detail.xhr.status === 401 ? "signed out: load the page again" : "not up to date");
  });

  let health = $("health") ? $("health").textContent.trim() : "";
  body.addEventListener("htmx:afterSettle", () => {
    readClock();
    localTimes();
    tick();
    const found = $("health") ? $("health").textContent.trim() : "";
    if (found !== health) say(`Health is ${found}`);
    health = found;
    readLog();
  });

  // What a person opened or is about to change is not touched by an update.
  Idiomorph.defaults.ignoreActiveValue = true;
  Idiomorph.defaults.callbacks.beforeAttributeUpdated = (name, node) => !(name === "open" && node.tagName === "DETAILS");
  Idiomorph.defaults.callbacks.beforeNodeMorphed = (old) =>
    !(old instanceof Element && old.hasAttribute("data-still"));

  // Orders: the page that asks appears in a dialog.

  const dialog = $("dialog");
  let opener = null;
  function show(verb, url, values) {
    return htmx.ajax(verb, url, { target: "#dialog-body", select: "#order", swap: "innerHTML", values: values || {} });
  }

  document.addEventListener("click", (event) => {
    const order = event.target.closest("a[data-order]");
    if (order && !event.ctrlKey && !event.metaKey && !event.shiftKey) {
      event.preventDefault();
      opener = order.getAttribute("href");
      show("GET", order.getAttribute("href")).then(() => {
        if (!$("order") || dialog.open) return;
        dialog.showModal();
        const first = dialog.querySelector("input:not([type=hidden]), button");
        if (first) first.focus();
      });
      return;
    }
    if (dialog.open && (event.target.closest("[data-close]") || event.target === dialog)) {
      event.preventDefault();
      dialog.close();
    }
  });

  dialog.addEventListener("submit", (event) => {
    const form = event.target;
    event.preventDefault();
    const values = Object.fromEntries(new FormData(form));
    for (const button of form.querySelectorAll("button")) button.disabled = true;
    put(form.querySelector("button[type=submit]"), "asking the gate …");
    show("POST", form.getAttribute("action"), values).then(() => {
      const verdict = dialog.querySelector(".verdict, [role=alert]");
      if (verdict) say(verdict.textContent.trim().replace(/\s+/g, " "));
      const close = dialog.querySelector("[data-close]");
      if (close) close.focus();
      refresh();
    });
  });

  dialog.addEventListener("close", () => {
    $("dialog-body").replaceChildren();
    const back = [...document.querySelectorAll("a[data-order]")].find((one) => one.getAttribute("href") === opener);
    (back || $("live")).focus();
  });

  // Theme: light, dark, as the system has it.

  for (const button of document.querySelectorAll("[data-theme-switch]")) {
    button.addEventListener("click", () => {
      const root = document.documentElement;
      const dark = matchMedia("(prefers-color-scheme: dark)").matches;
      const order = dark ? { "": "light", light: "dark", dark: "" } : { "": "dark", dark: "light", light: "" };
      const chosen = order[root.dataset.theme || ""];
      if (chosen) root.dataset.theme = chosen;
      else delete root.dataset.theme;
      try {
        if (chosen) localStorage.setItem("ephemerd-theme", chosen);
        else localStorage.removeItem("ephemerd-theme");
      } catch {
        // not kept, then
      }
      say(chosen ? `The page is ${chosen}` : "The page is as the system has it");
      document.dispatchEvent(new CustomEvent("ephemerd:theme"));
    });
  }

  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest("input, select, textarea, dialog");
    if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey) {
      event.preventDefault();
      $("find").focus();
    }
  });

  // Logs: read on piece by piece while the page is seen.

  let reads = false;
  function readLog() {
    const log = $("log");
    const text = $("log-text");
    if (reads || !log || !text) return;
    reads = true;
    let next = 0;
    let ended = false;
    let timer = null;
    const MOST = 400000; // characters kept in the page
    async function read() {
      timer = null;
      let wait = 1000;
      try {
        const url = `${log.dataset.log}/${encodeURIComponent(log.dataset.name)}?start=${next}`;
        const answer = await fetch(url, { headers: { accept: "application/json" } });
        if (answer.ok) {
          const piece = await answer.json();
          if (next === 0) text.textContent = "";
          if (piece.text) {
            const whole = text.textContent + piece.text;
            text.textContent = whole.length > MOST ? whole.slice(-MOST) : whole;
            if ($("log-follow").checked) text.scrollTop = text.scrollHeight;
          }
          wait = piece.next > next && !piece.end ? 0 : 1000;
          next = piece.next;
          ended = piece.ended && piece.end;
          put($("log-state"), ended ? "ended" : "live");
        } else if (answer.status === 404) {
          ended = true;
          put($("log-state"), "no longer kept");
        }
      } catch {
        put($("log-state"), "not connected, trying again");
        wait = 3000;
      }
      if (!ended && !document.hidden) timer = setTimeout(read, wait);
    }
    $("log-name").addEventListener("change", (event) => {
      log.dataset.name = event.target.value;
      next = 0;
      ended = false;
      clearTimeout(timer);
      read();
    });
    document.addEventListener("visibilitychange", () => {
      if (!document.hidden && timer === null && !ended) read();
    });
    read();
  }

  readClock();
  localTimes();
  setInterval(tick, 1000);
  setInterval(() => performance.now() - last > AT_LATEST && refresh(), 1000);
  readLog();
  follow();
  window.ephemerd = { now, span, clock };
})();
