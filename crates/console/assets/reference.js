// What the description of the API can do besides being read: its requests can be sent.
// They go to this receiver alone, with the token that was typed in, which is kept nowhere.

const token = document.querySelector("form[data-token]");
if (token) {
  token.hidden = false;
  token.addEventListener("submit", (event) => event.preventDefault());
}

/** The request that a form describes. */
function request(form, article) {
  let path = article.dataset.path;
  const query = new URLSearchParams();
  const headers = new Headers();
  for (const field of form.querySelectorAll("input[data-place]")) {
    if (field.value === "") continue;
    if (field.dataset.place === "path") path = path.replace(`{${field.name}}`, encodeURIComponent(field.value));
    else if (field.dataset.place === "query") query.set(field.name, field.value);
    else headers.set(field.name, field.value);
  }
  if (token?.elements.token.value) headers.set("authorization", `Bearer ${token.elements.token.value}`);
  const body = form.elements.body;
  if (body) headers.set("content-type", body.dataset.type);
  const address = query.size > 0 ? `${path}?${query}` : path;
  return [address, { method: article.dataset.method, headers, body: body?.value, credentials: "omit" }];
}

/** What was answered, as text. */
async function told(answer) {
  const lines = [`${answer.status} ${answer.statusText}`];
  for (const [name, value] of answer.headers) lines.push(`${name}: ${value}`);
  let text = await answer.text();
  if (answer.headers.get("content-type")?.includes("json")) {
    try {
      text = JSON.stringify(JSON.parse(text), null, 2);
    } catch {
      // It is shown as it came.
    }
  }
  return `${lines.join("\n")}\n\n${text}`;
}

for (const form of document.querySelectorAll("form[data-try]")) {
  form.closest("details").hidden = false;
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const shown = document.createElement("pre");
    try {
      const [address, init] = request(form, form.closest("article"));
      shown.textContent = await told(await fetch(address, init));
    } catch (error) {
      shown.textContent = String(error);
    }
    form.querySelector("output").replaceChildren(shown);
  });
}
