// Asks before something is done, and for the token. Dialogs are the browser's own: focus stays inside, Escape cancels,
// and the focus goes back to where it was.

import { backendPath, get, post, setToken, spreadPath } from "./api.js";
import { announce, byId, el, setText } from "./dom.js";
import { holding, takesWork } from "./findings.js";
import { many, percent } from "./numbers.js";

let doIt = null;

export function prepareDialogs() {
  const dialog = byId("confirm");
  byId("confirm-no").addEventListener("click", () => dialog.close());
  dialog.addEventListener("close", () => { doIt = null; });
  dialog.querySelector("form").addEventListener("submit", async (event) => {
    event.preventDefault();
    const [yes, action] = [byId("confirm-yes"), doIt];
    if (action === null || yes.getAttribute("aria-disabled") === "true") return;
    yes.setAttribute("aria-disabled", "true");
    try {
      const said = await action();
      dialog.close();
      announce(said);
    } catch (error) {
      setText(byId("confirm-failure"), error.answer?.mistakes ?? error.message);
    } finally {
      yes.removeAttribute("aria-disabled");
    }
  });
}

function confirm(title, yes, lines, action) {
  setText(byId("confirm-title"), title);
  setText(byId("confirm-yes"), yes);
  setText(byId("confirm-failure"), "");
  byId("confirm-text").replaceChildren(...lines);
  doIt = action;
  byId("confirm").showModal();
  byId("confirm-no").focus();
}

// Before a backend is taken out of new work, or back in; `done` is called once it was.
export function askDrain(pool, backend, done) {
  const { name } = pool;
  if (backend.draining) {
    confirm(`Give ${backend.id} new work again?`, `Undrain ${backend.id}`,
      [el("p", {}, `Pool ${name}. It gets its share of new work at once.`)], async () => {
        await post(backendPath(name, backend.id, "undrain"));
        done();
        return `${backend.id} takes new work again`;
      });
    return;
  }
  const others = pool.backends.filter((other) => other.id !== backend.id && takesWork(other));
  const goes = el("p", { class: "quiet" }, others.length ? "Finding out where its new work would go." : "");
  const alone = el("p", { class: "warning" },
    "No other backend of this pool takes new work: clients will get 503 no_backend until one does.");
  confirm(`Drain ${backend.id}?`, `Drain ${backend.id}`, [
    el("p", {}, `Pool ${name}. It gets no new work. What it holds now (${holding(backend)}) stays with it, and is served `
      + "until it ends. Nothing is moved and nothing is lost; once it shows as empty it can be stopped."),
    others.length ? goes : alone,
  ], async () => {
    await post(backendPath(name, backend.id, "drain"));
    done();
    return `${backend.id} takes no new work. It holds ${holding(backend)}.`;
  });
  if (others.length) tellWhere(goes, name, backend.id);
}

async function tellWhere(place, pool, id) {
  try {
    const { backends } = await get(spreadPath(pool, id));
    const its = backends.find((part) => part.id === id)?.now ?? 0;
    const gains = backends.filter((part) => part.after - part.now > 1e-9)
      .sort((one, other) => other.after - other.now - (one.after - one.now));
    const named = gains.slice(0, 5).map((part) => `${part.id} ${percent(part.now)} → ${percent(part.after)}`);
    if (gains.length > 5) named.push(`and ${many(gains.length - 5, "more backend")}`);
    setText(place, its ? `Its ${percent(its)} of new work goes to others: ${named.join(", ")}.` : "It gets no new work now.");
  } catch {
    setText(place, "Where its new work would go cannot be told now.");
  }
}

export function askReload(done) {
  confirm("Reload the configuration?", "Reload", [
    el("p", {}, "The file is read anew and put in force as a whole, or, if it has a mistake, not at all. Streams, pins and "
      + "health survive."),
  ], async () => {
    await post("api/reload");
    done();
    return "The configuration was reloaded";
  });
}

// Asks for the token until one is given; `wrong` if one was shown that is not right.
export function askToken(wrong) {
  const dialog = byId("login");
  const field = byId("login-token");
  setText(byId("login-failure"), wrong ? "The proxy does not know this token." : "");
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      setToken(field.value);
      field.value = "";
      resolve();
    }, { once: true });
    dialog.addEventListener("cancel", (event) => event.preventDefault());
    dialog.showModal();
    field.focus();
  });
}
