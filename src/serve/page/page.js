// The page of `plimsoll serve`: a conversation, and what the server tells of itself beside it. The key is kept in this
// variable alone; text of the model is only ever put in as text.
"use strict";

const $ = (id) => document.getElementById(id);
let key = "";
let messages = [];
let running = null; // the AbortController of the answer being written
let gaps = { n: 0, seconds: 0 }; // between pieces of this page's answers
let before = null; // tokens chosen and when, of the last look

function headers() {
  return key ? { Authorization: "Bearer " + key } : {};
}

async function get(path) {
  const answer = await fetch(path, { headers: headers(), cache: "no-store" });
  if (answer.status === 401) {
    $("key-form").hidden = false;
    throw new Error("a key is needed");
  }
  if (!answer.ok) throw new Error(answer.status === 503 ? "loading" : "status " + answer.status);
  return answer;
}

function bytes(n) {
  const units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  while (n >= 1024 && i < units.length - 1) { n /= 1024; i++; }
  return (i ? n.toFixed(1) : n) + " " + units[i];
}

// ---- the conversation

function say(kind, text) {
  const box = document.createElement("div");
  box.className = "said " + kind;
  box.textContent = text;
  $("chat").append(box);
  box.scrollIntoView({ block: "end" });
  return box;
}

// Events of a stream, each the JSON behind "data: ".
async function* events(answer) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let held = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    held += value;
    const parts = held.split("\n\n");
    held = parts.pop();
    for (const part of parts)
      if (part.startsWith("data: ") && part !== "data: [DONE]") yield JSON.parse(part.slice(6));
  }
}

async function ask(text) {
  const mine = messages; // a new chat begins another list
  mine.push({ role: "user", content: text });
  say("user", text);
  const box = say("assistant", "");
  const thought = document.createElement("div"), spoken = document.createElement("div"), note = document.createElement("div");
  thought.className = "thought";
  note.className = "note";
  box.append(thought, spoken, note);
  running = new AbortController();
  $("send").disabled = true;
  $("stop").disabled = false;
  let last = 0, ended = "stopped", usage = null;
  try {
    const answer = await fetch("v1/chat/completions", {
      method: "POST", signal: running.signal, headers: { ...headers(), "Content-Type": "application/json" },
      body: JSON.stringify({ messages: mine, stream: true, stream_options: { include_usage: true },
        temperature: Number($("temperature").value), max_tokens: Number($("max-tokens").value),
        chat_template_kwargs: { thinking: $("thinking").checked } }) });
    if (!answer.ok) {
      if (answer.status === 401) $("key-form").hidden = false;
      throw new Error((await answer.json()).error.message);
    }
    for await (const event of events(answer)) {
      if (event.error) throw new Error(event.error.message);
      if (event.usage) usage = event.usage;
      const choice = event.choices[0];
      if (!choice) continue;
      const now = performance.now();
      if (last) { gaps.n++; gaps.seconds += (now - last) / 1000; }
      last = now;
      thought.textContent += choice.delta.reasoning_content || "";
      spoken.textContent += choice.delta.content || "";
      if (choice.finish_reason) ended = choice.finish_reason;
      $("chat").scrollTop = $("chat").scrollHeight;
    }
    note.textContent = (usage ? usage.completion_tokens + " tokens, " : "") + ended;
  } catch (error) {
    if (error.name === "AbortError") note.textContent = "stopped";
    else { box.classList.add("fault"); note.textContent = error.message; }
  }
  if (spoken.textContent) mine.push({ role: "assistant", content: spoken.textContent });
  else mine.pop();
  running = null;
  $("send").disabled = false;
  $("stop").disabled = true;
  box.dataset.ended = ended;
  look();
}

function send() {
  const text = $("text").value.trim();
  if (!text || running) return;
  $("text").value = "";
  ask(text);
}

$("ask").addEventListener("submit", (event) => { event.preventDefault(); send(); });
$("text").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); send(); }
});
$("stop").addEventListener("click", () => running && running.abort());
$("new").addEventListener("click", () => {
  if (running) running.abort();
  messages = [];
  $("chat").replaceChildren();
  $("text").focus();
});
$("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  key = $("key").value;
  $("key").value = "";
  $("key-form").hidden = true;
  look();
});

// ---- the picture

function shape(name, attributes, text) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [attribute, value] of Object.entries(attributes)) element.setAttribute(attribute, value);
  if (text) element.textContent = text;
  $("hull").append(element);
}

function draw(plan) {
  const top = 24, deep = 160, line = plan.budget_bytes || plan.total_bytes;
  const groups = { weights: 0, cache: 0, other: 0 };
  for (const region of plan.regions) {
    const group = region.name.split(".")[0];
    groups[group in groups ? group : "other"] += region.bytes;
  }
  $("hull").replaceChildren();
  shape("rect", { x: 0, y: top, width: 320, height: deep, class: "sea" });
  let y = top + deep, row = 0;
  for (const [name, size] of Object.entries(groups)) {
    const height = (deep * size) / line;
    y -= height;
    shape("rect", { x: 20, y, width: 110, height, class: name });
    shape("rect", { x: 150, y: 122 + 20 * row, width: 10, height: 10, class: name });
    shape("text", { x: 166, y: 132 + 20 * row++ }, name + "  " + bytes(size));
  }
  shape("line", { x1: 0, x2: 320, y1: top, y2: top, class: "line" });
  shape("text", { x: 0, y: 16, class: "red" }, (plan.budget_bytes ? "the line: " : "no line; the plan: ") + bytes(line));
  shape("text", { x: 150, y: 46 }, ((100 * plan.total_bytes) / line).toFixed(1) + " % loaded");
  $("hull").setAttribute("aria-label", bytes(plan.total_bytes) + " planned below a line of " + bytes(line));
  $("memory").textContent = "plan " + bytes(plan.total_bytes) +
    (plan.peak_resident_bytes ? ", peak so far " + bytes(plan.peak_resident_bytes) : "") +
    "; " + plan.max_num_seqs + " requests of " + plan.max_model_len + " tokens";
  $("regions").replaceChildren(...plan.regions.map((region) => {
    const tr = document.createElement("tr");
    tr.insertCell().textContent = region.name;
    tr.insertCell().textContent = bytes(region.bytes);
    tr.title = region.formula;
    return tr;
  }));
}

// Prometheus' text: the sum of every series of a name, or NaN where there is none.
function metric(text, name) {
  let sum = NaN;
  for (const row of text.split("\n"))
    if (row.startsWith(name + "{") || row.startsWith(name + " "))
      sum = (sum || 0) + Number(row.slice(row.lastIndexOf(" ") + 1));
  return sum;
}

function figures(text) {
  const mean = (name) => metric(text, name + "_sum") / metric(text, name + "_count");
  const time = (seconds) => Number.isFinite(seconds) ? (1000 * seconds).toFixed(seconds < 0.1 ? 1 : 0) + " ms" : "-";
  const now = { at: performance.now(), tokens: metric(text, "vllm:generation_tokens_total") };
  const speed = before ? (1000 * (now.tokens - before.tokens)) / (now.at - before.at) : NaN;
  const drafted = metric(text, "vllm:spec_decode_num_draft_tokens_total");
  const itl = mean("vllm:inter_token_latency_seconds");
  before = now;
  const rows = [
    ["requests running", metric(text, "vllm:num_requests_running")],
    ["requests queued", metric(text, "vllm:num_requests_waiting")],
    ["TTFT, to the first token", time(mean("vllm:time_to_first_token_seconds"))],
    ["TPOT, per token", time(mean("vllm:request_time_per_output_token_seconds"))],
    ["ITL, between pieces" + (itl >= 0 ? "" : " here"), time(itl >= 0 ? itl : gaps.seconds / gaps.n)],
    ["tokens/s", Number.isFinite(speed) ? speed.toFixed(1) : "-"],
    ["drafts accepted", drafted > 0
      ? ((100 * metric(text, "vllm:spec_decode_num_accepted_tokens_total")) / drafted).toFixed(0) + " %" : "no drafts"],
    ["tokens so far", now.tokens],
  ];
  $("figures").replaceChildren(...rows.flatMap(([name, value]) => {
    const dt = document.createElement("dt"), dd = document.createElement("dd");
    dt.textContent = name;
    dd.textContent = value;
    return [dt, dd];
  }));
}

async function look() {
  try {
    const models = await (await get("v1/models")).json();
    $("model").textContent = models.data[0].id;
    draw(await (await get("v1/plan")).json());
    figures(await (await get("metrics")).text());
    $("state").textContent = "ready";
  } catch (error) {
    $("state").textContent = error instanceof TypeError ? "not reachable" : error.message;
  }
}

look();
setInterval(() => { if (!document.hidden) look(); }, 2000);
