/* report.js -- what moves in the page of foci report: arms that are brought out, and maps of
 * heads.  Texts of people are set as text alone. */
(function () {
  "use strict";
  const byId = (id) => document.getElementById(id);

  /* One arm in all figures: while it is pointed at, or until it is chosen no more. */
  let chosen = 0;
  function light(group) {
    document.body.classList.toggle("lit", group > 0);
    for (const e of document.querySelectorAll(".g.on")) e.classList.remove("on");
    if (group) for (const e of document.querySelectorAll(".g" + group)) e.classList.add("on");
  }
  for (const button of document.querySelectorAll("#key button")) {
    const group = Number(button.dataset.group);
    button.addEventListener("mouseenter", () => light(group));
    button.addEventListener("mouseleave", () => light(chosen));
    button.addEventListener("click", () => {
      chosen = chosen === group ? 0 : group;
      for (const b of document.querySelectorAll("#key button"))
        b.setAttribute("aria-pressed", String(Number(b.dataset.group) === chosen));
      light(chosen);
    });
  }

  const data = byId("data");
  if (!data) return;
  const arms = JSON.parse(data.textContent);
  const map = byId("map"), said = byId("said"), tokens = byId("tokens");
  let arm = 0, layer = 0, head = 0, query = 0, key = 0;

  const attention = () => arms[arm].attentions[layer];
  const current = () => attention().heads[head];

  /* Bytes from -127 to 127: b |b| / 127^2 of the largest weight. */
  function bytes(h) {
    if (!h.bytes) {
      const text = atob(h.weights);
      h.bytes = new Int8Array(text.length);
      for (let i = 0; i < text.length; i++) h.bytes[i] = text.charCodeAt(i);
    }
    return h.bytes;
  }
  const weight = (h, i) => (h.most * bytes(h)[i] * Math.abs(bytes(h)[i])) / 16129;
  const show = (x) => (x === 0 ? "0" : Math.abs(x) < 0.001 ? x.toExponential(1) : x.toPrecision(2));

  function token(side, i, memory) {
    if (i < memory) return "(memory " + i + ")";
    const list = arms[arm].sides[side] || [];
    return i - memory < list.length ? list[i - memory] : String(i - memory);
  }
  const queryToken = (i) => token(attention().query_side, i, 0);
  const keyToken = (i) => token(attention().key_side, i, attention().memory || 0);

  function colours() {
    const style = getComputedStyle(document.documentElement);
    const rgb = (name) => style.getPropertyValue(name).trim().split(/\s+/).map(Number);
    const hex = (name) => {
      const n = parseInt(style.getPropertyValue(name).trim().slice(1), 16);
      return [n >> 16, (n >> 8) & 255, n & 255];
    };
    return { paper: hex("--paper"), tint: hex("--tint"), heat: rgb("--heat"), cold: rgb("--cold"),
             text: style.getPropertyValue("--text"), soft: style.getPropertyValue("--soft"),
             accent: style.getPropertyValue("--accent") };
  }
  let palette = colours();
  function shade(b) {
    const to = b < 0 ? palette.cold : palette.heat, share = Math.abs(b) / 127;
    return to.map((c, i) => Math.round(palette.tint[i] + share * (c - palette.tint[i])));
  }

  /* A map, a pixel for each weight. */
  function paint(canvas, a, h) {
    canvas.width = a.keys;
    canvas.height = a.queries;
    const g = canvas.getContext("2d"), image = g.createImageData(a.keys, a.queries), all = bytes(h);
    for (let i = 0; i < a.keys * a.queries; i++) {
      const [r, gr, b] = shade(all[i]);
      image.data.set([r, gr, b, 255], 4 * i);
    }
    g.putImageData(image, 0, 0);
  }

  function options(select, names, at) {
    select.replaceChildren(...names.map((name, i) => {
      const option = document.createElement("option");
      option.value = String(i);
      option.textContent = name;
      return option;
    }));
    select.value = String(at);
  }

  function thumbs() {
    byId("thumbs").replaceChildren(...arms[arm].attentions.map((a, l) => {
      const row = document.createElement("div"), name = document.createElement("span");
      row.className = "layer";
      name.textContent = a.heads.length ? a.name : a.name + ": " + (a.why || "no weights");
      row.append(name, ...a.heads.map((h, i) => {
        const button = document.createElement("button"), canvas = document.createElement("canvas");
        button.type = "button";
        button.setAttribute("aria-label", a.name + ", head " + i);
        button.title = a.name + ", head " + i;
        button.setAttribute("aria-pressed", String(l === layer && i === head));
        button.addEventListener("click", () => { choose(arm, l, i); });
        paint(canvas, a, h);
        button.append(canvas);
        return button;
      }));
      return row;
    }));
  }

  function mark() {
    const buttons = document.querySelectorAll("#thumbs button");
    let n = 0;
    arms[arm].attentions.forEach((a, l) => a.heads.forEach((h, i) => {
      buttons[n++].setAttribute("aria-pressed", String(l === layer && i === head));
    }));
  }

  /* Where the cells are: beside them the tokens, where they can be read. */
  let box = { left: 0, top: 0, cell: 1 };
  function drawMap() {
    map.hidden = !current(); /* of an attention without weights there is none */
    if (map.hidden) return;
    const a = attention(), width = map.clientWidth || 600, ratio = window.devicePixelRatio || 1;
    let cell = (width - 72) / a.keys;
    const named = cell >= 8;
    if (!named) cell = width / a.keys;
    cell = Math.min(cell, 26);
    box = { left: named ? 72 : 0, top: named ? 66 : 0, cell };
    const height = box.top + cell * a.queries + 1;
    map.width = Math.round(width * ratio);
    map.height = Math.round(height * ratio);
    map.style.height = height + "px";
    const g = map.getContext("2d"), small = document.createElement("canvas");
    g.scale(ratio, ratio);
    g.clearRect(0, 0, width, height);
    paint(small, a, current());
    g.imageSmoothingEnabled = false;
    g.drawImage(small, box.left, box.top, cell * a.keys, cell * a.queries);
    g.font = Math.min(11, Math.max(8, cell)) + "px ui-monospace, 'DejaVu Sans Mono', monospace";
    g.textBaseline = "middle";
    for (let i = 0; named && i < a.queries; i++) {
      g.fillStyle = i === query ? palette.accent : palette.soft;
      g.textAlign = "right";
      g.fillText(queryToken(i).slice(0, 9), box.left - 4, box.top + (i + 0.5) * cell, box.left - 4);
    }
    for (let i = 0; named && i < a.keys; i++) {
      g.save();
      g.translate(box.left + (i + 0.5) * cell, box.top - 4);
      g.rotate(-Math.PI / 2);
      g.fillStyle = i === key ? palette.accent : palette.soft;
      g.textAlign = "left";
      g.fillText(keyToken(i).slice(0, 9), 0, 0, box.top - 6);
      g.restore();
    }
    g.strokeStyle = palette.accent;
    g.lineWidth = 1;
    g.strokeRect(box.left + 0.5, box.top + query * cell, cell * a.keys - 1, cell);
    g.lineWidth = 2;
    g.strokeRect(box.left + key * cell, box.top + query * cell, cell, cell);
  }

  /* The keys of a query from the largest weight down. */
  function strongest(i, n) {
    const a = attention(), h = current(), list = [];
    for (let k = 0; k < a.keys; k++) list.push([Math.abs(weight(h, i * a.keys + k)), k]);
    return list.sort((x, y) => y[0] - x[0] || x[1] - y[1]).slice(0, n)
      .filter((x) => x[0] > 0).map((x) => x[1]);
  }

  function tell() {
    const a = attention(), h = current();
    const most = strongest(query, 3).map((k) =>
      "“" + keyToken(k) + "” " + show(weight(h, query * a.keys + k))).join(", ");
    said.textContent = "Query " + query + " “" + queryToken(query) + "” gives key " + key + " “" +
      keyToken(key) + "” the weight " + show(weight(h, query * a.keys + key)) +
      ". Most: " + (most || "none") + ".";
    /* The text is shaded up to the largest weight of this query. */
    const all = tokens.children, row = bytes(h).subarray(query * a.keys, (query + 1) * a.keys);
    const largest = row.reduce((x, b) => Math.max(x, Math.abs(b)), 1);
    for (let k = 0; k < all.length; k++) {
      const memory = a.memory || 0, b = k + memory < a.keys ? row[k + memory] : 0;
      all[k].style.backgroundColor = b ? "rgb(" + (b < 0 ? "var(--cold)" : "var(--heat)") + " / " +
        (0.75 * Math.abs(b) / largest).toFixed(3) + ")" : "";
      all[k].classList.toggle("query", a.query_side === a.key_side && k === query);
    }
  }

  function fillTokens() {
    const a = attention();
    tokens.replaceChildren(...(arms[arm].sides[a.key_side] || []).map((text, i) => {
      const span = document.createElement("span");
      span.textContent = text;
      span.addEventListener("mouseenter", () => {
        if (a.query_side === a.key_side && i < a.queries) move(i, i + (a.memory || 0));
      });
      return span;
    }));
  }

  function fillTable() {
    const a = attention(), h = current(), table = document.createElement("table");
    const row = (cells, tag) => {
      const tr = document.createElement("tr");
      for (const text of cells) {
        const cell = document.createElement(tag);
        if (tag === "th") cell.scope = "col";
        cell.textContent = text;
        tr.append(cell);
      }
      return tr;
    };
    const top = document.createElement("thead"), body = document.createElement("tbody");
    top.append(row(["query", "largest weight", "second", "third"], "th"));
    for (let i = 0; i < a.queries; i++) {
      const cells = strongest(i, 3).map((k) => k + " “" + keyToken(k) + "” " + show(weight(h, i * a.keys + k)));
      while (cells.length < 3) cells.push("");
      body.append(row([i + " “" + queryToken(i) + "”", ...cells], "td"));
    }
    table.append(top, body);
    byId("headtable").replaceChildren(table);
  }

  /* Made when it is asked for. */
  byId("headcsv").addEventListener("click", () => {
    const a = attention(), h = current(), lines = ["query,key,weight"];
    for (let i = 0; h && i < a.queries; i++)
      for (let k = 0; k < a.keys; k++) lines.push(i + "," + k + "," + weight(h, i * a.keys + k).toPrecision(4));
    byId("headcsv").href = "data:text/csv;charset=utf-8," + encodeURIComponent(lines.join("\n") + "\n");
  });

  function move(q, k) {
    const a = attention();
    query = Math.max(0, Math.min(a.queries - 1, q));
    key = Math.max(0, Math.min(a.keys - 1, k));
    drawMap();
    tell();
  }

  function choose(newArm, newLayer, newHead) {
    const other = newArm !== arm;
    arm = newArm;
    const list = arms[arm].attentions;
    layer = list[newLayer] && list[newLayer].heads.length ? newLayer : Math.max(0, list.findIndex((a) => a.heads.length));
    head = Math.max(0, Math.min(newHead, list[layer].heads.length - 1));
    options(byId("layer"), list.map((a) => a.name), layer);
    options(byId("head"), list[layer].heads.map((h, i) => String(i)), head);
    byId("arm").value = String(arm);
    if (other || !byId("thumbs").children.length) thumbs(); else mark();
    if (!current()) {
      map.hidden = true;
      byId("spec").textContent = said.textContent = "";
      tokens.replaceChildren();
      byId("headtable").replaceChildren();
      return;
    }
    byId("spec").textContent = attention().name + ", head " + head + " of " + attention().attention +
      "; shades: 0 to " + show(current().most) + ", square-root scale";
    byId("bar").style.background = "linear-gradient(to right, " +
      [0, 32, 64, 96, 127].map((b) => "rgb(" + shade(b).join(" ") + ")").join(", ") + ")";
    fillTokens();
    fillTable();
    move(query, key);
  }

  map.addEventListener("mousemove", (event) => {
    const at = map.getBoundingClientRect();
    const k = Math.floor((event.clientX - at.left - box.left) / box.cell);
    const q = Math.floor((event.clientY - at.top - box.top) / box.cell);
    if (k >= 0 && q >= 0 && k < attention().keys && q < attention().queries && (k !== key || q !== query)) move(q, k);
  });
  map.addEventListener("keydown", (event) => {
    const steps = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1],
                    Home: [0, -1e6], End: [0, 1e6], PageUp: [-8, 0], PageDown: [8, 0] };
    const step = steps[event.key];
    if (!step) return;
    event.preventDefault();
    move(query + step[0], key + step[1]);
  });
  byId("arm").addEventListener("change", (event) => choose(Number(event.target.value), layer, head));
  byId("layer").addEventListener("change", (event) => choose(arm, Number(event.target.value), head));
  byId("head").addEventListener("change", (event) => choose(arm, layer, Number(event.target.value)));
  window.addEventListener("resize", drawMap);
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  dark.addEventListener("change", () => {
    palette = colours();
    thumbs();
    choose(arm, layer, head);
  });

  const usable = arms.some((a) => a.attentions.some((t) => t.heads.length));
  if (!usable) return;
  byId("viewer").hidden = false;
  options(byId("arm"), arms.map((a) => a.seed === undefined ? a.arm : a.arm + ", seed " + a.seed), 0);
  query = Math.floor(arms[0].attentions[0].queries / 2);
  key = Math.max(0, query - 1);
  arm = arms.findIndex((a) => a.attentions.some((t) => t.heads.length));
  choose(arm, 0, 0);
})();
