// The timeline: lanes drawn on a canvas, only those in sight; data come once whole, then as changes.
"use strict";
(() => {
  const box = document.getElementById("tl");
  const scroll = document.getElementById("tl-scroll");
  const height = document.getElementById("tl-height");
  const canvas = document.getElementById("tl-canvas");
  const axis = document.getElementById("tl-axis");
  const tip = document.getElementById("tl-tip");
  const said = document.getElementById("tl-said");
  const followBox = document.getElementById("tl-follow");
  const liveBox = document.getElementById("tl-live");
  const poolBox = document.getElementById("tl-pool");
  const count = document.getElementById("tl-count");
  const draw = canvas.getContext("2d");
  const drawAxis = axis.getContext("2d");
  const LANE = 24;
  const AXIS = 26;
  const LEAST = 500; // ms that the whole width shows at least
  const { now, span, clock } = window.ephemerd;

  const lanes = new Map();
  let shown = [];
  let life = "";
  let revision = 0;
  let length = 120000;
  let to = now();
  let chosen = null; // runner
  let moment = -1;
  let hover = null;
  let colors = {};
  let width = 0;
  let tall = 0;
  let label = 150;
  let wanted = false;

  const TONES = {
    planned: "new", registering: "new", starting: "start", listening: "ready", assigned: "offer", running: "work",
    finishing: "done", retiring: "leave", stuck: "bad", abandoned: "bad",
  };
  const MARKS = {
    nominated: "wait", vetoed: "work", reaped: "leave", escaped: "bad", ordered: "leave", fence: "offer", breach: "bad",
  };

  function readColors() {
    const style = getComputedStyle(document.documentElement);
    const get = (name) => style.getPropertyValue(name).trim();
    colors = { ink: get("--ink"), quiet: get("--quiet"), line: get("--line"), faint: get("--faint"), paper: get("--panel"), accent: get("--accent"), row: get("--row") };
    for (const tone of ["new", "start", "ready", "offer", "work", "done", "leave", "bad", "wait"]) {
      colors[tone] = get(`--t-${tone}`);
      colors[`${tone}-fill`] = get(`--f-${tone}`);
    }
  }

  // Data

  async function read() {
    const answer = await fetch(`${box.dataset.url}?after=${revision}&life=${encodeURIComponent(life)}`);
    if (!answer.ok) return;
    take(await answer.json());
  }

  function take(data) {
    const began = performance.now();
    if (data.life !== life) lanes.clear();
    life = data.life;
    revision = data.revision;
    const base = data.base;
    const end = (at) => (at < 0 ? null : base + at);
    for (const [runner, pool, host, order, intent, spans, held, marks] of data.lanes) {
      const lane = { runner, pool, host, order, intent, short: shorter(runner) };
      lane.spans = spans.map(([state, start, stop]) => ({ state: data.states[state], start: base + start, end: end(stop) }));
      lane.held = held.map(([job, start, stop]) => ({ job, start: base + start, end: end(stop) }));
      lane.marks = marks.map(([kind, at, text, evidence]) => ({ kind: data.kinds[kind], at: base + at, text, evidence }));
      lane.start = lane.spans.length ? lane.spans[0].start : base;
      lane.end = lane.spans.length ? lane.spans[lane.spans.length - 1].end : null;
      lanes.set(runner, lane);
    }
    const first = !box.dataset.ready;
    if (first) fit();
    choose();
    paint();
    performance.measure(first ? "timeline-first" : "timeline-update", { start: began, end: performance.now() });
    box.dataset.ready = String(revision);
  }

  function shorter(name) {
    const parts = name.split("-");
    return name.startsWith("eph-") && parts.length > 3 ? parts.slice(2).join("-") : name;
  }

  // At first: as much as happened lately, two minutes at least.
  function fit() {
    let oldest = now();
    for (const lane of lanes.values()) if (lane.start < oldest) oldest = lane.start;
    const whole = now() - oldest;
    const steps = [120000, 900000, 3600000, 21600000, 86400000];
    length = steps.find((one) => one >= whole) || steps[steps.length - 1];
  }

  function choose() {
    const pool = poolBox.value;
    shown = [...lanes.values()].filter((lane) => (!pool || lane.pool === pool) && (!liveBox.checked || lane.end === null));
    shown.sort((one, other) => other.order - one.order);
    height.style.height = `${Math.max(shown.length * LANE, 1)}px`;
    document.getElementById("tl-empty").hidden = lanes.size > 0;
    count.textContent = shown.length === lanes.size ? `${shown.length} runners` : `${shown.length} of ${lanes.size} runners`;
  }

  // Drawing

  const x = (at) => label + ((at - (to - length)) / length) * (width - label);
  const timeAt = (px) => to - length + ((px - label) / (width - label)) * length;

  function size() {
    const ratio = window.devicePixelRatio || 1;
    width = scroll.clientWidth;
    tall = scroll.clientHeight;
    label = width < 520 ? 86 : 150;
    for (const [one, high] of [[canvas, tall], [axis, AXIS]]) {
      one.width = Math.round(width * ratio);
      one.height = Math.round(high * ratio);
      one.style.width = `${width}px`;
      one.style.height = `${high}px`;
      one.getContext("2d").setTransform(ratio, 0, 0, ratio, 0, 0);
    }
  }

  function paint() {
    if (!width) size();
    if (followBox.checked) to = now() + length * 0.02;
    paintAxis();
    draw.clearRect(0, 0, width, tall);
    const top = scroll.scrollTop;
    const first = Math.max(0, Math.floor(top / LANE));
    const last = Math.min(shown.length - 1, Math.ceil((top + tall) / LANE));
    for (let place = first; place <= last; place++) paintLane(shown[place], place * LANE - top, place);
    const here = x(now());
    if (here > label && here <= width) {
      draw.strokeStyle = colors.accent;
      draw.lineWidth = 1;
      draw.beginPath();
      draw.moveTo(here, 0);
      draw.lineTo(here, tall);
      draw.stroke();
    }
  }

  function paintAxis() {
    drawAxis.clearRect(0, 0, width, AXIS);
    drawAxis.font = "11px 'Plex Mono', monospace";
    drawAxis.fillStyle = colors.quiet;
    drawAxis.strokeStyle = colors.line;
    drawAxis.lineWidth = 1;
    const steps = [100, 200, 500, 1000, 2000, 5000, 10000, 15000, 30000, 60000, 120000, 300000, 600000, 900000, 1800000, 3600000, 7200000, 21600000, 43200000, 86400000];
    const least = (length / Math.max(1, width - label)) * 86;
    const step = steps.find((one) => one >= least) || 86400000;
    draw.strokeStyle = colors.line;
    for (let at = Math.ceil((to - length) / step) * step; at <= to; at += step) {
      const px = x(at);
      drawAxis.beginPath();
      drawAxis.moveTo(px, AXIS - 6);
      drawAxis.lineTo(px, AXIS);
      drawAxis.stroke();
      const text = clock(at, step < 1000, step >= 60000);
      if (px + 30 < width && px - 20 > label - 24) drawAxis.fillText(text, px - drawAxis.measureText(text).width / 2, AXIS - 10);
    }
    drawAxis.fillText("runner", 12, AXIS - 10);
  }

  function paintLane(lane, y, place) {
    const on = hover && hover.lane === lane;
    if (lane.runner === chosen || on || place % 2) {
      draw.fillStyle = lane.runner === chosen || on ? colors.faint : colors.row;
      draw.fillRect(0, y, width, LANE);
    }
    draw.save();
    draw.beginPath();
    draw.rect(label, y, width - label, LANE);
    draw.clip();
    for (const one of lane.spans) {
      const left = x(one.start);
      const right = x(one.end === null ? now() : one.end);
      if (right < label || left > width) continue;
      const tone = TONES[one.state] || "new";
      bar(left, y + 5, Math.max(1.5, right - left), 11, tone, one);
    }
    for (const one of lane.held) {
      const left = x(one.start);
      const right = x(one.end === null ? now() : one.end);
      draw.fillStyle = colors.work;
      draw.fillRect(left, y + 18, Math.max(1.5, right - left), 2.5);
    }
    for (const one of lane.marks) {
      const px = x(one.at);
      if (px > label - 8 && px < width + 8) mark(one.kind, px, y + 10.5);
    }
    draw.restore();
    draw.font = "12px 'Plex Mono', monospace";
    draw.fillStyle = lane.end === null ? colors.ink : colors.quiet;
    draw.save();
    draw.beginPath();
    draw.rect(0, y, label - 8, LANE);
    draw.clip();
    draw.fillText(lane.short, 12, y + 16);
    draw.restore();
    if (lane.runner === chosen) {
      draw.strokeStyle = colors.accent;
      draw.lineWidth = 2;
      draw.strokeRect(1, y + 1, width - 2, LANE - 2);
    }
  }

  // Tone and texture: what is not a state of work is open or hatched, so that colour is not needed to tell.
  function bar(left, top, wide, high, tone, one) {
    draw.fillStyle = colors[`${tone}-fill`];
    draw.fillRect(left, top, wide, high);
    draw.strokeStyle = colors[tone];
    draw.lineWidth = 1;
    if (one.state === "running" || one.state === "stuck" || one.state === "abandoned") {
      draw.fillStyle = colors[tone];
      draw.fillRect(left, top, wide, high);
    } else {
      if (wide > 4) draw.strokeRect(left + 0.5, top + 0.5, wide - 1, high - 1);
      const from = Math.max(left, label);
      const until = Math.min(left + wide, width);
      if ((one.state === "starting" || one.state === "retiring") && until - from > 5) {
        draw.save();
        draw.beginPath();
        draw.rect(from, top, until - from, high);
        draw.clip();
        draw.beginPath();
        const back = one.state === "retiring" ? -high : high;
        for (let px = from - high - ((from - left) % 5); px < until + high; px += 5) {
          draw.moveTo(px, top + high);
          draw.lineTo(px + back, top);
        }
        draw.stroke();
        draw.restore();
      }
    }
    if (wide > 70) {
      draw.font = "10px 'Plex Sans', sans-serif";
      if (one.state === "starting" || one.state === "retiring") {
        draw.fillStyle = colors[`${tone}-fill`];
        draw.fillRect(Math.max(left, label) + 2, top + 1, draw.measureText(one.state).width + 6, high - 2);
      }
      draw.fillStyle = one.state === "running" || one.state === "stuck" || one.state === "abandoned" ? colors.paper : colors[tone];
      draw.font = "10px 'Plex Sans', sans-serif";
      draw.fillText(one.state, Math.max(left, label) + 5, top + 9);
    }
  }

  function mark(kind, px, py) {
    draw.fillStyle = draw.strokeStyle = colors[MARKS[kind]];
    draw.lineWidth = 3.4;
    const path = new Path2D(SHAPES[kind]);
    draw.save();
    draw.translate(px - 6, py - 6);
    draw.strokeStyle = colors.paper;
    draw.stroke(path);
    draw.strokeStyle = colors[MARKS[kind]];
    draw.lineWidth = 1.8;
    if (kind === "fence") {
      draw.fillStyle = colors.paper;
      draw.fill(path);
      draw.stroke(path);
    } else if (kind === "escaped" || kind === "breach" || kind === "ordered") draw.stroke(path);
    else draw.fill(path);
    draw.restore();
  }

  const SHAPES = {
    nominated: "M6 1 11.2 10.5H.8z",
    vetoed: "M6 .8 10.8 2.6v3.2c0 2.6-1.8 4.4-4.8 5.6C3 10.2 1.2 8.4 1.2 5.8V2.6z",
    reaped: "M1 2.2h10L6 10.6z",
    escaped: "M6 .6v10.8M1.3 3.3l9.4 5.4M10.7 3.3 1.3 8.7",
    ordered: "M1.2 1.2h9.6v9.6H1.2zM3.6 3.6l4.8 4.8M8.4 3.6 3.6 8.4",
    fence: "M6 1.2 10.8 6 6 10.8 1.2 6z",
    breach: "M2.2 2.2l7.6 7.6M9.8 2.2 2.2 9.8",
  };

  function soon() {
    if (wanted) return;
    wanted = true;
    requestAnimationFrame(() => {
      wanted = false;
      paint();
    });
  }

  // Finding what lies under a point

  function find(px, py) {
    const place = Math.floor((py + scroll.scrollTop) / LANE);
    const lane = shown[place];
    if (!lane) return null;
    if (px < label) return { lane };
    let best = null;
    for (const one of lane.marks) {
      const far = Math.abs(x(one.at) - px);
      if (far < 9 && (!best || far <= best.far)) best = { far, mark: one };
    }
    if (best) return { lane, mark: best.mark };
    const at = timeAt(px);
    const held = lane.held.find((one) => one.start <= at && at <= (one.end === null ? now() : one.end));
    const state = lane.spans.find((one) => one.start <= at && at <= (one.end === null ? now() : one.end));
    return { lane, state, held };
  }

  function lines(found) {
    const { lane, mark: one, state, held } = found;
    const made = [[lane.short, "strong"], [`${lane.pool} on ${lane.host}`, "quiet"]];
    if (one) {
      made.push([`${clock(one.at, true)} ${one.text}`, ""]);
      for (const text of one.evidence) made.push([text, "quiet"]);
    } else if (state) {
      const end = state.end === null ? now() : state.end;
      made.push([`${state.state} for ${span(end - state.start)}`, ""]);
      made.push([`${clock(state.start, true)} – ${state.end === null ? "now" : clock(state.end, true)}`, "quiet"]);
      if (held) made.push([`holds ${held.job}`, ""]);
    } else if (lane.intent) made.push([`made for ${lane.intent}`, "quiet"]);
    return made;
  }

  function showTip(found, px, py) {
    if (!found) {
      tip.hidden = true;
      return;
    }
    tip.replaceChildren(
      ...lines(found).map(([text, kind]) => {
        const line = document.createElement("p");
        line.textContent = text;
        if (kind) line.className = kind;
        return line;
      }),
    );
    tip.hidden = false;
    const wide = tip.offsetWidth;
    const high = tip.offsetHeight;
    tip.style.left = `${Math.max(4, Math.min(px + 14, width - wide - 6))}px`;
    tip.style.top = `${py + 18 + high + AXIS > tall + AXIS ? Math.max(AXIS, py - high - 8 + AXIS) : py + 18 + AXIS}px`;
  }

  const place = (event) => {
    const rect = canvas.getBoundingClientRect();
    return [event.clientX - rect.left, event.clientY - rect.top];
  };

  let drag = null;
  scroll.addEventListener("pointermove", (event) => {
    const [px, py] = place(event);
    if (drag) {
      const moved = event.clientX - drag.x;
      if (Math.abs(moved) > 4 || drag.moved) {
        drag.moved = true;
        followBox.checked = false;
        to = drag.to - (moved / (width - label)) * length;
        tip.hidden = true;
        soon();
      }
      return;
    }
    hover = find(px, py);
    scroll.classList.toggle("over", Boolean(hover));
    showTip(hover, px, py);
    soon();
  });
  scroll.addEventListener("pointerleave", () => {
    hover = null;
    tip.hidden = true;
    soon();
  });
  scroll.addEventListener("pointerdown", (event) => {
    if (event.pointerType === "mouse" && event.button !== 0) return;
    drag = { x: event.clientX, to, moved: false };
  });
  addEventListener("pointerup", (event) => {
    const was = drag;
    drag = null;
    if (!was || was.moved || !scroll.contains(event.target)) return;
    const [px, py] = place(event);
    const found = find(px, py);
    if (!found) return;
    if (event.pointerType !== "mouse" && chosen !== found.lane.runner && px >= label) {
      chosen = found.lane.runner;
      showTip(found, px, py);
      soon();
      return;
    }
    location.href = `/runners/${encodeURIComponent(found.lane.runner)}`;
  });
  addEventListener("pointercancel", () => (drag = null));
  scroll.addEventListener("scroll", soon, { passive: true });
  scroll.addEventListener(
    "wheel",
    (event) => {
      if (event.ctrlKey || event.metaKey) {
        event.preventDefault();
        zoom(event.deltaY > 0 ? 1.25 : 0.8, timeAt(place(event)[0]));
      } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
        event.preventDefault();
        followBox.checked = false;
        to += ((event.deltaX || event.deltaY) / (width - label)) * length;
        soon();
      }
    },
    { passive: false },
  );

  function zoom(by, around) {
    const middle = followBox.checked || around === undefined ? to : around;
    const next = Math.min(Math.max(length * by, LEAST), 8 * 86400000);
    to = middle + ((to - middle) * next) / length;
    length = next;
    soon();
  }

  for (const button of document.querySelectorAll("[data-zoom]")) button.addEventListener("click", () => zoom(Number(button.dataset.zoom)));
  for (const button of document.querySelectorAll("[data-length]")) {
    button.addEventListener("click", () => {
      length = Number(button.dataset.length);
      if (!length) {
        let oldest = now();
        for (const lane of shown) if (lane.start < oldest) oldest = lane.start;
        length = Math.max(LEAST, (now() - oldest) * 1.05);
      }
      followBox.checked = true;
      soon();
    });
  }
  followBox.addEventListener("change", soon);
  for (const one of [liveBox, poolBox]) {
    one.addEventListener("change", () => {
      choose();
      soon();
    });
  }

  // Keyboard

  function step(by) {
    const at = shown.findIndex((lane) => lane.runner === chosen);
    const next = shown[Math.min(Math.max(at + by, 0), shown.length - 1)];
    if (!next) return;
    chosen = next.runner;
    moment = -1;
    const top = shown.indexOf(next) * LANE;
    if (top < scroll.scrollTop) scroll.scrollTop = top;
    else if (top + LANE > scroll.scrollTop + tall) scroll.scrollTop = top + LANE - tall;
    tell({ lane: next, state: next.spans[next.spans.length - 1] });
  }

  function walk(by) {
    const lane = lanes.get(chosen);
    if (!lane) return step(0);
    const moments = [
      ...lane.spans.map((state) => ({ at: state.start, state })),
      ...lane.marks.map((mark) => ({ at: mark.at, mark })),
    ].sort((one, other) => one.at - other.at);
    moment = moment < 0 ? (by > 0 ? 0 : moments.length - 1) : Math.min(Math.max(moment + by, 0), moments.length - 1);
    const one = moments[moment];
    if (one.at < to - length || one.at > to) {
      followBox.checked = false;
      to = one.at + length / 2;
    }
    tell({ lane, ...one });
  }

  function tell(found) {
    const py = shown.indexOf(found.lane) * LANE - scroll.scrollTop;
    const at = found.mark ? found.mark.at : found.state ? found.state.start : to;
    paint();
    showTip(found, Math.max(label, x(at)), py);
    said.textContent = lines(found).map(([text]) => text).join(", ");
  }

  scroll.addEventListener("keydown", (event) => {
    const acts = {
      ArrowUp: () => step(-1),
      ArrowDown: () => step(1),
      PageUp: () => step(-10),
      PageDown: () => step(10),
      Home: () => step(-shown.length),
      End: () => step(shown.length),
      ArrowLeft: () => walk(-1),
      ArrowRight: () => walk(1),
      "+": () => zoom(0.5),
      "-": () => zoom(2),
      f: () => {
        followBox.checked = !followBox.checked;
        soon();
      },
      Enter: () => chosen && (location.href = `/runners/${encodeURIComponent(chosen)}`),
      Escape: () => (tip.hidden = true),
    };
    if (!acts[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    acts[event.key]();
  });

  // Life

  let reading = false;
  let more = false;
  async function update() {
    if (reading) {
      more = true;
      return;
    }
    reading = true;
    try {
      await read();
    } catch {
      // the next event or the next look brings it
    }
    reading = false;
    if (more) {
      more = false;
      update();
    }
  }

  new ResizeObserver(() => {
    size();
    paint();
  }).observe(scroll);
  document.addEventListener("ephemerd:changed", update);
  for (const what of ["ephemerd:theme"]) {
    document.addEventListener(what, () => {
      readColors();
      soon();
    });
  }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    readColors();
    soon();
  });
  setInterval(() => followBox.checked && !document.hidden && soon(), 500);
  readColors();
  update();
  if (document.fonts) document.fonts.ready.then(soon);
})();
