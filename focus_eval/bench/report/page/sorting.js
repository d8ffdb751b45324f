// Tables that sort by a click on a heading (ascending, descending, as they came), and long ones that show some rows.
function sortable(table) {
  const body = table.tBodies[0];
  const rows = [...body.rows];
  const headings = [...table.tHead.rows[0].cells];
  let [column, order] = [-1, 0];

  function value(row) {
    const cell = row.cells[column];
    const text = (cell.querySelector(".value, .key-text") || cell).textContent.trim().replace(/\u2212/g, "-");
    const number = parseFloat(text.replace(/[,<\u2191\u2193]/g, ""));
    return { text, number };
  }

  function compare(a, b) {
    const [left, right] = [value(a), value(b)];
    if (Number.isNaN(left.number) && Number.isNaN(right.number)) {
      return order * left.text.localeCompare(right.text, "en", { numeric: true });
    }
    // What has no number stands last, whichever way the table is sorted.
    if (Number.isNaN(left.number)) return 1;
    if (Number.isNaN(right.number)) return -1;
    return order * (left.number - right.number);
  }

  headings.forEach((heading, i) => {
    const button = make("button", { type: "button", class: "sort", title: "Sort by this column" }, heading.textContent);
    button.addEventListener("click", () => {
      order = column === i ? (order === 1 ? -1 : order === -1 ? 0 : 1) : 1;
      column = i;
      body.append(...(order ? [...rows].sort(compare) : rows));
      headings.forEach((other) => other.removeAttribute("aria-sort"));
      if (order) heading.setAttribute("aria-sort", order === 1 ? "ascending" : "descending");
    });
    heading.replaceChildren(button);
  });
}

// Only the rows that hold every word.
function siftable(details) {
  const rows = [...details.querySelectorAll("tbody tr")];
  const texts = rows.map((row) => row.textContent.toLowerCase());
  const input = make("input", { type: "search", placeholder: "sampler, K, distance", autocomplete: "off" });
  const count = make("span", { role: "status" });
  input.addEventListener("input", () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    rows.forEach((row, i) => { row.hidden = !words.every((word) => texts[i].includes(word)); });
    count.textContent = words.length ? `${rows.filter((row) => !row.hidden).length} of ${rows.length} rows` : "";
  });
  details.querySelector("summary").after(make("label", { class: "sift" }, "Rows with", input, count));
}
