"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const root = document.documentElement;
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  const config = { responsive: true, displaylogo: false, scrollZoom: false,
    modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d", "sendChartToCloud"], showSendToCloud: false };
  const PRINT_WIDTH = 690; // CSS pixels of the text on A4 with its margins
  let printing = false;

  const dark = () => root.dataset.shown === "dark";
  const painted = (value) => {
    if (!dark()) return value;
    if (typeof value === "string") return Object.hasOwn(data.dark, value) ? data.dark[value] : value;
    if (Array.isArray(value)) {
      // Long rows of numbers have no colours.
      return typeof value[0] === "number" ? value.slice() : value.map(painted);
    }
    if (value && typeof value === "object") {
      const result = {};
      for (const key of Object.keys(value)) result[key] = painted(value[key]);
      return result;
    }
    return value;
  };
  const copied = (figure) => dark() ? painted(figure) : JSON.parse(JSON.stringify(figure));
  const sized = (figure, place) => {
    const layout = figure.layout;
    if (printing) { layout.width = PRINT_WIDTH; layout.autosize = false; } else { delete layout.width; layout.autosize = true; }
    if (place.clientWidth < 560 || printing) {
      layout.font = Object.assign({}, layout.font, { size: 10 });
    }
    return figure;
  };
  const element = (name, text, value) => {
    const made = document.createElement(name);
    made.textContent = text;
    if (value !== undefined) made.value = value;
    return made;
  };

  // Figures with choices.
  const views = [];
  for (const box of document.querySelectorAll("[data-figure]")) {
    const figures = data.figures[box.dataset.figure];
    const place = box.querySelector(".plot");
    const choices = [...box.querySelectorAll("[data-role=choice]")];
    const draw = () => {
      const chosen = figures[choices.map((choice) => choice.value).join("|")];
      const figure = sized(copied(chosen.figure), place);
      box.querySelector(".note").textContent = chosen.notes.join(" ");
      place.style.minHeight = `${figure.layout.height}px`;
      return Plotly.react(place, figure.data, figure.layout, config);
    };
    for (const choice of choices) choice.addEventListener("change", draw);
    views.push(draw);
  }

  // The fabric.
  const fabricBox = document.querySelector("[data-fabric]");
  if (fabricBox && data.fabric) views.unshift(fabricView(fabricBox, data.fabric));

  function fabricView(box, fabric) {
    const part = (role) => box.querySelector(`[data-role=${role}]`);
    const place = box.querySelector(".plot");
    const measure = part("measure"), classes = part("class"), filter = part("filter"), slider = part("slider");
    const last = fabric.times.length - 1;
    for (const item of fabric.measures) measure.append(element("option", item.title, item.key));
    classes.append(element("option", "all classes", "0"));
    fabric.classes.forEach((name, index) => classes.append(element("option", name, String(index + 1))));
    part("classes").hidden = fabric.classes.length < 2;
    fabric.filters.forEach((group, number) => {
      const made = document.createElement("optgroup");
      made.label = group.title;
      group.options.forEach((item, index) => made.append(element("option", item.name, `${number}.${index}`)));
      filter.append(made);
    });
    slider.max = String(last);
    box.querySelector(".note").textContent = fabric.notes.join(" ");
    let timer = null;

    const bytes = (value) => {
      for (const [unit, name] of [[1e9, "GB"], [1e6, "MB"], [1e3, "KB"]]) {
        if (value >= unit) return `${(value / unit).toPrecision(3)} ${name}`;
      }
      return `${value} B`;
    };
    const moving = () => {
      const key = measure.value, row = Number(classes.value), when = Number(slider.value);
      const now = fabric.values[key][row][when];
      const stopped = fabric.values.paused[row][when];
      const limits = fabric.limits[key];
      let kept = null;
      if (filter.value) {
        const [group, option] = filter.value.split(".").map(Number);
        kept = new Set(fabric.filters[group].options[option].links);
      }
      const lines = Array.from({ length: 7 }, () => ({ x: [], y: [] }));
      const texts = [];
      for (let half = 0; half < now.length; half++) {
        const link = half >> 1;
        if (kept && !kept.has(link)) { texts.push(""); continue; }
        const add = (line) => {
          line.x.push(fabric.x[half][0], fabric.x[half][1], null);
          line.y.push(fabric.y[half][0], fabric.y[half][1], null);
        };
        let level = 0;
        if (now[half] > 0) { level = 1; while (level < 5 && now[half] > limits[level - 1]) level++; }
        add(lines[level + 1]);
        if (stopped[half] > 0) add(lines[0]);
        const [a, b] = fabric.links[link];
        const [from, to] = half % 2 ? [b, a] : [a, b];
        const told = [`<b>${fabric.names[from]} → ${fabric.names[to]}</b>`];
        if (fabric.cables[link] > 1) told.push(`${fabric.cables[link]} cables; of the greatest:`);
        told.push(`use ${(fabric.values.use[row][when][half] / 10).toFixed(1)} %, queue up to ${bytes(fabric.values.queue[row][when][half])}`);
        told.push(`paused ${(stopped[half] / 10).toFixed(1)} % of the time`);
        if (fabric.cables[link] > 1 && fabric.busiest[half]) told.push(`used most over the run: ${fabric.busiest[half]}`);
        texts.push(told.join("<br>"));
      }
      part("when").textContent = fabric.times[when];
      slider.setAttribute("aria-valuetext", fabric.times[when]);
      return { key, lines, texts, paused: lines[0].x.length > 0 };
    };
    const filled = (figure) => {
      const now = moving();
      now.lines.forEach((line, index) => {
        // A lone gap keeps an empty level in the legend.
        figure.data[index].x = line.x.length ? line.x : [null];
        figure.data[index].y = line.y.length ? line.y : [null];
        if (index > 0) {
          figure.data[index].line.color = fabric.colours[now.key][index - 1];
          figure.data[index].name = fabric.levels[now.key][index - 1];
        }
      });
      figure.data[0].showlegend = fabric.anyPaused;
      figure.data[7].text = now.texts;
      return figure;
    };
    fabric.anyPaused = fabric.values.paused.some((row) => row[0].some((value) => value > 0));
    const draw = () => {
      const figure = sized(painted(filled(JSON.parse(JSON.stringify(fabric.figure)))), place);
      place.style.minHeight = `${figure.layout.height}px`;
      return Plotly.react(place, figure.data, figure.layout, config);
    };
    const redraw = () => {
      const now = moving();
      const traces = [0, 1, 2, 3, 4, 5, 6];
      const colours = painted(fabric.colours[now.key]);
      Plotly.restyle(place, {
        x: now.lines.map((line) => line.x.length ? line.x : [null]),
        y: now.lines.map((line) => line.y.length ? line.y : [null]),
        "line.color": [painted(fabric.figure.data[0].line.color), ...colours],
        name: ["paused", ...fabric.levels[now.key]],
      }, traces);
      Plotly.restyle(place, { text: [now.texts] }, [7]);
    };
    const stop = () => { clearInterval(timer); timer = null; part("play").textContent = "▶"; part("play").setAttribute("aria-label", "play"); };
    slider.addEventListener("input", () => { stop(); redraw(); });
    for (const choice of [measure, classes, filter]) choice.addEventListener("change", redraw);
    part("play").disabled = last < 1;
    part("play").addEventListener("click", () => {
      if (timer !== null) { stop(); return; }
      if (Number(slider.value) >= last) slider.value = "0";
      part("play").textContent = "❚❚";
      part("play").setAttribute("aria-label", "pause");
      timer = setInterval(() => {
        if (Number(slider.value) >= last) { stop(); return; }
        slider.value = String(Number(slider.value) + 1);
        redraw();
      }, 220);
    });
    return draw;
  }

  // Tables.
  for (const box of document.querySelectorAll("[data-table]")) {
    const body = box.querySelector("tbody");
    const rows = [...body.rows];
    const find = box.querySelector("[data-role=find]"), count = box.querySelector("[data-role=count]");
    const counted = () => {
      const shown = rows.filter((row) => !row.hidden).length;
      count.textContent = shown === rows.length ? `${rows.length} rows` : `${shown} of ${rows.length} rows`;
    };
    find.addEventListener("input", () => {
      const wanted = find.value.toLowerCase();
      for (const row of rows) row.hidden = wanted !== "" && !row.textContent.toLowerCase().includes(wanted);
      counted();
    });
    const value = (row, column) => {
      const cell = row.cells[column];
      if (cell.dataset.value === undefined) return cell.textContent;
      const number = cell.dataset.value;
      return number === "inf" ? Infinity : number === "-inf" ? -Infinity : Number(number);
    };
    box.querySelectorAll("th").forEach((head, column) => {
      head.querySelector("button").addEventListener("click", () => {
        const numeric = head.classList.contains("number");
        const before = head.getAttribute("aria-sort");
        const rising = before ? before === "descending" : !numeric;
        for (const other of box.querySelectorAll("th")) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", rising ? "ascending" : "descending");
        const order = rows.map((row, index) => [value(row, column), index, row]);
        order.sort(([a, i], [b, j]) => {
          const sign = a === b ? 0 : typeof a === "string" ? a.localeCompare(b, "en", { numeric: true }) : a < b ? -1 : 1;
          return (rising ? sign : -sign) || i - j;
        });
        body.append(...order.map(([, , row]) => row));
      });
    });
    counted();
  }

  // Themes and printing.
  const theme = document.getElementById("theme");
  const drawAll = () => { for (const draw of views) draw(); };
  const show = () => {
    const wanted = printing ? "light" : theme.value === "auto" ? (system.matches ? "dark" : "light") : theme.value;
    root.dataset.theme = theme.value;
    root.dataset.shown = wanted;
  };
  try { theme.value = localStorage.getItem("fabemu-theme") || "auto"; } catch { theme.value = "auto"; }
  if (!theme.value) theme.value = "auto";
  theme.addEventListener("change", () => {
    try { localStorage.setItem("fabemu-theme", theme.value); } catch { /* a page opened from a file may store nothing */ }
    show();
    drawAll();
  });
  system.addEventListener("change", () => { if (theme.value === "auto") { show(); drawAll(); } });
  window.addEventListener("beforeprint", () => { printing = true; show(); drawAll(); });
  window.addEventListener("afterprint", () => { printing = false; show(); drawAll(); });

  show();
  // One after another, so that the page can be read while the rest is drawn.
  const pending = views.slice();
  const next = async () => {
    const draw = pending.shift();
    if (!draw) { root.dataset.ready = "yes"; return; }
    await draw();
    setTimeout(next, 0);
  };
  next();
})();
