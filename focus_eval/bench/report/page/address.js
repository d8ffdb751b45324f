// The address says what is shown: #q=benchmark/id&k=16&a=focus&b=uniform&sort=apart
let touched = false;

function address(wanted = true) {
  touched = touched || wanted;
  if (!touched) return; // an address that nobody chose stays as it is
  const said = new URLSearchParams();
  if (current >= 0) said.set("q", `${questions[current][BENCHMARK]}/${questions[current][ID]}`);
  for (const name of Object.keys(CONTROLS)) if (state[name] !== first[name]) said.set(name, state[name]);
  const also = bases.filter((base) => state.also.has(base));
  if (also.join("\n") !== usual.join("\n")) said.set("also", also.join("|"));
  history.replaceState(null, "", `#${said}`);
}

// What the address asks for and the page has; a name that it does not have is passed over.
function follow() {
  const said = new URLSearchParams(location.hash.slice(1));
  for (const [name, id] of Object.entries(CONTROLS)) {
    const value = said.has(name) ? said.get(name) : first[name];
    const choices = byId(id).options ? [...byId(id).options].map((option) => option.value) : null;
    state[name] = choices && !choices.includes(value) ? first[name] : value;
    byId(id).value = state[name];
  }
  state.also = new Set(said.has("also") ? said.get("also").split("|").filter((base) => bases.includes(base)) : usual);
  const asked = questions.findIndex((one) => `${one[BENCHMARK]}/${one[ID]}` === said.get("q"));
  // Of itself the page opens on the question on which the pair differs most.
  current = asked >= 0 || state.sort ? asked : sorted(matching(), "apart")[0] ?? -1;
  filter();
  if (asked >= 0) {
    open(asked, true);
    byId("questions").scrollIntoView();
  } else if (shown.length) open(current < 0 ? shown[0] : current, false);
  else nothing();
}
