// One question: what was asked and answered, two samplers on one time axis, and others below.
function questionView(place, detail, state) {
  const one = questions[place];
  const back = make("button", { type: "button", class: "back" }, "← all questions");
  back.addEventListener("click", close);
  const pair = [...new Set([state.a, state.b])].map(seriesOf).filter((i) => i >= 0);
  const rest = bases.filter((base) => state.also.has(base) && base !== state.a && base !== state.b).map(seriesOf).filter((i) => i >= 0);
  const drawn = [...pair, ...rest].filter((i) => detail.series[i]);
  const who = drawn.map((i) => ({ name: index.series[i].base, parsed: detail.series[i].parsed }));
  return [
    back,
    make("h3", {}, one[TEXT]),
    optionList(detail, who),
    facts([
      ["Question", several ? `${one[BENCHMARK]} ${one[ID]}` : one[ID]],
      ["Video", detail.video],
      ["Length", one[BUCKET] ? `${clock(detail.seconds)}, ${one[BUCKET]}` : clock(detail.seconds)],
      ["Right answer", detail.options.length ? null : detail.correct],
      ["Evidence at", detail.evidence.map(clock).join(", ")],
    ]),
    legend(drawn.map((i) => detail.series[i]), detail),
    comparison(pair, detail),
    make("div", { class: "side" }, ...pair.map((i) => seriesSection(i, detail, one, false))),
    toggles(state),
    ...rest.map((i) => seriesSection(i, detail, one, true)),
  ].filter((part) => part !== null);
}

function comparison(pair, detail) {
  const lanes = pair.filter((i) => detail.series[i] && detail.series[i].frames.length).map((i) => ({ series: { ...index.series[i], name: nameOf(i) }, data: detail.series[i] }));
  return lanes.length ? timeFigure(lanes, detail) : null;
}

function timeFigure(lanes, detail) {
  const figure = svg("svg", { class: "time", role: "img" });
  const spoken = lanes.map(({ series, data }) => `${series.name}: frames chosen at ${data.times.map(clock).join(", ")}`);
  figure.append(svg("title", {}, spoken.join(". ")));
  figure.data = { lanes, detail };
  return figure;
}

function toggles(state) {
  const others = bases.filter((base) => base !== state.a && base !== state.b && seriesOf(base) >= 0);
  if (!others.length) return null;
  const buttons = others.map((base) => {
    const css = index.series[seriesOf(base)].css;
    const button = make("button", { type: "button", "aria-pressed": String(state.also.has(base)) }, make("span", { class: `dot ${css}` }), base);
    button.addEventListener("click", () => {
      if (!state.also.delete(base)) state.also.add(base);
      changed();
      const again = [...byId("detail").querySelectorAll(".shown button")].find((one) => one.textContent === base);
      if (again) again.focus();
    });
    return button;
  });
  return make("div", { class: "shown", role: "group", "aria-label": "Other samplers" }, make("span", {}, "Others:"), ...buttons);
}

function facts(pairs) {
  const known = pairs.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return make("dl", { class: "facts" }, ...known.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value))));
}

function legend(drawn, detail) {
  const items = ["▲ chosen frame"];
  if (drawn.some((data) => data.pulled[0].length)) items.push("│ relevance of a scored frame");
  const clips = drawn.map((data) => data.clips).filter((some) => some.length);
  const banded = clips.some(tellsApart);
  if (clips.length) items.push(banded ? "▬ clip: mean and radius, darker where frames were drawn" : "▬ clip: mean relevance, darker where frames were drawn (radii overlap and are not drawn)");
  if (detail.evidence.length) items.push("◆ evidence");
  if (detail.mean_rate) items.push("frames placed by the mean rate: times of the file are not known");
  return make("ul", { class: "key-legend" }, ...items.map((text) => make("li", {}, text)));
}

function seriesSection(i, detail, one, withTimeline) {
  const [series, data, verdict] = [index.series[i], detail.series[i], one[VERDICTS][i]];
  const head = make("header", {}, make("h4", {}, make("span", { class: `dot ${series.css}` }), nameOf(i)));
  if (verdict !== "c") head.append(make("span", { class: `chip ${verdict}` }, `${MARKS[verdict]} ${WORDS[verdict]}`));
  const section = make("section", { class: "series" }, head);
  if (!data) return section;
  head.append(make("span", { class: "costs" }, costs(data)));
  const given = givenText(detail, data);
  if (given) section.append(make("p", { class: "given" }, given));
  if (data.answer !== undefined && data.answer !== null && data.answer !== data.parsed) section.append(make("p", { class: "said" }, `“${data.answer}”`));
  if (data.error) section.append(make("p", { class: "said e" }, data.error));
  if (!data.frames.length) return section;
  if (withTimeline) section.append(timeFigure([{ series: { ...series, name: nameOf(i) }, data }], detail));
  const seen = evidenceLine(data, detail, index.near);
  if (seen) section.append(seen);
  section.append(frameList(data, detail, index.near));
  return section;
}

function costs(data) {
  const parts = [`${data.frames.length} of ${data.k} frames`];
  if (data.fed != null && data.fed !== data.frames.length) parts.push(`${data.fed} fed`);
  if (data.pulls) parts.push(`${data.pulls.toLocaleString("en")} scored (${((100 * data.pulls) / Math.max(1, data.of)).toFixed(1)} %)`);
  if (data.fallback) parts.push(`fallback: ${data.fallback}`);
  return parts.join(" · ");
}
