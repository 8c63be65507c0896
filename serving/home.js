"use strict";
// What a visitor tries: sent to the same endpoints as everybody's requests. Whatever comes back is
// put into the page as text, never as HTML.
const byId = (id) => document.getElementById(id);
const answerPlace = byId("answer");

function element(name, text, className) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

function show(...parts) {
  answerPlace.replaceChildren(...parts);
  answerPlace.dataset.state = "shown";
}

async function post(path, document) {
  const response = await fetch(path, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(document),
  });
  const text = await response.text();
  let found;
  try {
    found = JSON.parse(text, exact);
  } catch {
    throw new Error(`${response.status}: ${text.slice(0, 300)}`);
  }
  if (!response.ok) throw new Error(found.error || `${response.status}: ${text.slice(0, 300)}`);
  return found;
}

// Whole numbers beyond 2^53 stay what they were, where the browser tells how they were written.
function exact(key, value, context) {
  const isLong = typeof value === "number" && Number.isInteger(value) && !Number.isSafeInteger(value);
  return isLong && context ? context.source : value;
}

const named = (key) => (typeof key === "string" ? key : JSON.stringify(key));

function tableOf(rows) {
  const table = element("table");
  const head = element("tr");
  for (const title of ["", "Item", "Score", "", ""]) head.append(element("th", title));
  table.append(head);
  rows.forEach((row, place) => {
    const line = element("tr");
    const bar = element("td");
    if (row.score !== null && row.score >= 0 && row.score <= 1) {
      const meter = element("meter");
      meter.value = row.score;
      bar.append(meter);
    }
    line.append(
      element("td", String(place + 1)),
      element("td", row.item),
      element("td", row.score === null ? "" : row.score.toFixed(6)),
      bar,
      element("td", row.unseen ? "not there in training" : "", "soft"),
    );
    table.append(line);
  });
  return table;
}

async function score(text) {
  const event = JSON.parse(text, exact);
  const found = await post("/v2/models/events/infer", {
    inputs: [{ name: "event", shape: [1, 1], datatype: "BYTES", data: [text] }],
  });
  const outputs = Object.fromEntries(found.outputs.map((output) => [output.name, output.data]));
  const candidates = Array.isArray(event.candidates) ? event.candidates.map(named) : ["this row"];
  const unseen = outputs.unseen_candidates || [];
  const rows = candidates.map((item, place) => ({
    item,
    score: outputs.scores[place],
    unseen: unseen[place],
  }));
  rows.sort((one, other) => other.score - one.score);
  const version = outputs.version ? `version ${outputs.version[0]} answered` : "answered";
  const user = outputs.unseen_user && outputs.unseen_user[0] ? "; the user was not there in training" : "";
  show(element("p", version + user, "soft"), rows.length ? tableOf(rows) : element("p", "no candidates"));
}

async function recommend(user, top, facts) {
  const known = facts.trim() ? { facts: JSON.parse(facts, exact) } : {};
  const found = await post("/recommend", { user: keyOf(user), top: Number(top), ...known });
  const rows = (found.items || []).map((one) => ({
    item: named(one.item),
    score: typeof one.score === "number" ? one.score : null,
  }));
  const version = found.version === undefined ? "answered" : `version ${found.version} answered`;
  show(element("p", `${version}: ${named(found.source)}`, "soft"), rows.length ? tableOf(rows) : element("p", "no item"));
}

// A whole number is a number, "7" in quotes is a text, as is everything else.
function keyOf(text) {
  const stripped = text.trim();
  if (/^".*"$/.test(stripped)) return JSON.parse(stripped);
  return /^-?\d+$/.test(stripped) && Number.isSafeInteger(Number(stripped)) ? Number(stripped) : stripped;
}

function attempt(work) {
  answerPlace.dataset.state = "waiting";
  work().catch((error) => show(element("p", error.message, "bad")));
}

function ready(form, work) {
  if (!form) return;
  for (const button of form.querySelectorAll("button")) button.disabled = false;
  form.addEventListener("submit", (submitted) => {
    submitted.preventDefault();
    attempt(work);
  });
}

const scoring = () => score(byId("event").value);
const recommending = () => recommend(byId("user").value, byId("top").value, byId("facts").value);
ready(byId("score"), scoring);
ready(byId("recommend"), recommending);

const given = new URLSearchParams(location.search);
if (given.has("event")) {
  byId("event").value = given.get("event");
  attempt(scoring);
} else if (given.has("user") && byId("recommend")) {
  for (const name of ["user", "top", "facts"]) {
    if (given.has(name)) byId(name).value = given.get(name);
  }
  attempt(recommending);
}

const health = byId("health");
setInterval(async () => {
  let isReady = false;
  try {
    isReady = (await fetch("/v2/health/ready")).ok;
  } catch {
    // The server is not there: it is not ready.
  }
  health.textContent = isReady ? health.dataset.ready : health.dataset.unready;
  health.className = isReady ? "chip good" : "chip bad";
}, 10000);
