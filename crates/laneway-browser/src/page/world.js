// What runs inside of a page, in a world of its own: the page cannot see or change it. Every function takes and returns plain data.
(() => {
  if (globalThis.laneway) return;
  // Elements of the latest snapshot, by their number.
  let refs = [];
  const CONTROLS = "a[href],button,input,select,textarea,summary,label,option,[role=button],[role=link],[role=checkbox],[role=tab],[role=menuitem],[contenteditable=''],[contenteditable=true],[onclick],[tabindex]";
  const fail = (error, reason) => { throw { laneway: { error, reason } }; };
  const squeeze = (text) => String(text ?? "").replace(/\s+/g, " ").trim();
  const shown = (el) => {
    const name = el.tagName ? el.tagName.toLowerCase() : String(el);
    return "<" + name + (el.id ? "#" + el.id : "") + ">";
  };
  const isVisible = (el) => {
    if (el.tagName === "OPTION") return true;
    if (el.checkVisibility && !el.checkVisibility({ visibilityProperty: true })) return false;
    return [...el.getClientRects()].some((r) => r.width > 0 && r.height > 0);
  };
  const labelOf = (el) => squeeze(el.innerText || el.value || el.getAttribute?.("aria-label") || "");

  function byText(wanted) {
    wanted = squeeze(wanted).toLowerCase();
    const fits = [...document.querySelectorAll("body *")].filter((el) =>
      !["SCRIPT", "STYLE", "NOSCRIPT"].includes(el.tagName) && labelOf(el).toLowerCase().includes(wanted));
    const smallest = fits.filter((el) => !fits.some((other) => other !== el && el.contains(other)));
    const candidates = smallest.map((el) => el.closest(CONTROLS) && fits.includes(el.closest(CONTROLS)) ? el.closest(CONTROLS) : el);
    const rank = (el) => (isVisible(el) ? 0 : 4) + (labelOf(el).toLowerCase() === wanted ? 0 : 2) + (el.matches(CONTROLS) ? 0 : 1);
    return candidates.map((el, at) => [rank(el), at, el]).sort((a, b) => a[0] - b[0] || a[1] - b[1])[0]?.[2] ?? null;
  }

  function all(selector) {
    const [, kind, rest] = /^(css|xpath|text|ref):([^]*)$/.exec(selector) ?? [null, null, selector];
    if (kind === "ref" || (!kind && /^e\d+$/.test(selector))) {
      const el = refs[Number(rest.replace(/^e/, ""))];
      if (!el || !el.isConnected) fail("stale", rest);
      return [el];
    }
    try {
      if (kind === "xpath" || (!kind && /^\(?\/\//.test(selector))) {
        const found = document.evaluate(rest, document, null, XPathResult.ORDERED_NODE_SNAPSHOT_TYPE, null);
        return Array.from({ length: found.snapshotLength }, (_, at) => found.snapshotItem(at)).filter((n) => n.nodeType === 1);
      }
      if (kind === "text") return [byText(rest)].filter(Boolean);
      return [...document.querySelectorAll(rest)];
    } catch (error) {
      fail("selector", squeeze(error.message));
    }
  }

  const one = (selector) => all(selector)[0] ?? fail("missing", selector);

  function usable(selector) {
    const el = one(selector);
    if (el.disabled) fail("unusable", "is disabled");
    return el;
  }

  // Scrolls to an element. Inside of a frame no further than needed: the documents around it would scroll later, in their own time.
  function show(el) {
    const where = window === window.top ? "center" : "nearest";
    el.scrollIntoView({ block: where, inline: where, behavior: "instant" });
  }

  // Where to click: the middle of the element, if the element gets the click there.
  function point(selector) {
    const el = usable(selector);
    show(el);
    if (!isVisible(el)) fail("unusable", "is not visible");
    const rect = [...el.getClientRects()].find((r) => r.width > 0 && r.height > 0);
    const x = rect.x + rect.width / 2, y = rect.y + rect.height / 2;
    let hit = document.elementFromPoint(x, y);
    while (hit?.shadowRoot?.elementFromPoint(x, y) && hit.shadowRoot.elementFromPoint(x, y) !== hit) hit = hit.shadowRoot.elementFromPoint(x, y);
    if (!hit) fail("unusable", "is outside of the window");
    const owner = hit.getRootNode() instanceof ShadowRoot ? hit.getRootNode().host : hit;
    const isHit = el.contains(hit) || el.contains(owner) || el === owner || [...(el.labels ?? [])].some((label) => label.contains(hit));
    if (!isHit) fail("unusable", "is covered by " + shown(hit));
    return { x, y };
  }

  // Where a place in the document of a frame is in this one. A frame can be scaled.
  function corner(selector, x, y) {
    const el = one(selector), r = el.getBoundingClientRect(), style = getComputedStyle(el);
    const left = el.clientLeft + parseFloat(style.paddingLeft), top = el.clientTop + parseFloat(style.paddingTop);
    const scaleX = el.offsetWidth ? r.width / el.offsetWidth : 1, scaleY = el.offsetHeight ? r.height / el.offsetHeight : 1;
    return { x: r.x + (left + x) * scaleX, y: r.y + (top + y) * scaleY };
  }

  const changed = (el) => {
    el.dispatchEvent(new InputEvent("input", { bubbles: true, composed: true }));
    el.dispatchEvent(new Event("change", { bubbles: true }));
  };

  const TEXTLESS = ["checkbox", "radio", "button", "submit", "reset", "image", "file"];
  function editable(selector) {
    const el = usable(selector);
    const isField = el instanceof HTMLTextAreaElement || (el instanceof HTMLInputElement && !TEXTLESS.includes(el.type));
    if (!isField && !el.isContentEditable) fail("unusable", "is no text field");
    if (el.readOnly) fail("unusable", "is read-only");
    return el;
  }

  const roles = { A: "link", BUTTON: "button", SELECT: "combobox", TEXTAREA: "textbox", IMG: "image", NAV: "navigation", MAIN: "main", UL: "list", OL: "list", LI: "listitem", TABLE: "table", TR: "row", TD: "cell", TH: "columnheader", FORM: "form", OPTION: "option", SUMMARY: "button", LABEL: "label", IFRAME: "iframe", P: "paragraph" };
  const inputs = { checkbox: "checkbox", radio: "radio", button: "button", submit: "button", reset: "button", image: "button", range: "slider", number: "spinbutton", search: "searchbox" };
  function roleOf(el) {
    if (el.getAttribute("role")) return el.getAttribute("role");
    if (el.tagName === "INPUT") return inputs[el.type] ?? "textbox";
    if (/^H[1-6]$/.test(el.tagName)) return "heading";
    return roles[el.tagName] ?? "generic";
  }
  function nameOf(el) {
    const by = (el.getAttribute("aria-labelledby") ?? "").split(/\s+/).map((id) => id && document.getElementById(id)?.innerText).filter(Boolean).join(" ");
    const label = el.labels?.length ? el.labels[0].innerText : "";
    const isField = ["INPUT", "SELECT", "TEXTAREA"].includes(el.tagName);
    const own = isField ? (inputs[el.type] === "button" ? el.value : "") : el.innerText;
    return squeeze(by || el.getAttribute("aria-label") || label || el.getAttribute("alt") || own || el.getAttribute("placeholder") || el.getAttribute("title") || el.name).slice(0, 120);
  }

  const is = {
    present: (selector) => all(selector).length > 0,
    visible: (selector) => all(selector).some(isVisible),
    hidden: (selector) => !all(selector).some(isVisible),
    text: (wanted) => squeeze(document.body?.innerText).includes(squeeze(wanted)),
    url: (part) => part.includes("*")
      ? new RegExp("^" + part.replace(/[.+?^${}()|[\]\\]/g, "\\$&").replace(/\*+/g, ".*") + "$").test(location.href)
      : location.href.includes(part),
  };

  globalThis.laneway = {
    // The element of a frame, or null.
    frame(selector) {
      try {
        const el = all(selector)[0];
        return el && ["IFRAME", "FRAME"].includes(el.tagName) ? el : null;
      } catch {
        return null;
      }
    },
    // Runs a function, and returns its result or its error as JSON.
    call(name, args, lettersMax) {
      let answer;
      try {
        answer = { ok: functions[name](...args) ?? null };
      } catch (error) {
        answer = error?.laneway ?? { error: "failed", reason: String(error) };
      }
      const json = JSON.stringify(answer);
      return json.length > lettersMax ? '{"error":"large"}' : json;
    },
  };

  const functions = {
    is: (argument, condition) => is[condition](argument),
    point,
    box(selector) {
      const el = one(selector);
      show(el);
      if (!isVisible(el)) fail("unusable", "is not visible");
      const r = el.getBoundingClientRect();
      return { x: r.x, y: r.y, width: r.width, height: r.height };
    },
    // A place in the document of a frame, as a place in this one. The frame itself must be there, and nothing above it.
    frame_point(selector, x, y) {
      const place = corner(selector, x, y);
      const hit = document.elementFromPoint(place.x, place.y);
      if (!hit) fail("unusable", "is outside of the window");
      if (hit !== one(selector)) fail("unusable", "is covered by " + shown(hit));
      return place;
    },
    frame_corner: (selector, x, y) => corner(selector, x, y),
    scrolled: () => ({ x: scrollX, y: scrollY }),
    show(selector) { show(one(selector)); },
    size: () => ({ width: document.documentElement.scrollWidth, height: document.documentElement.scrollHeight }),
    click(selector) { usable(selector).click(); },
    focus(selector) {
      const el = usable(selector);
      show(el);
      el.focus({ preventScroll: true });
      if (el.getRootNode().activeElement !== el && !el.contains(document.activeElement)) fail("unusable", "cannot have the focus");
    },
    // Puts the caret behind the text, so that typing appends.
    caret(selector) {
      const el = editable(selector);
      show(el);
      el.focus({ preventScroll: true });
      if (el.isContentEditable) {
        getSelection().selectAllChildren(el);
        getSelection().collapseToEnd();
      } else {
        try { el.setSelectionRange(el.value.length, el.value.length); } catch { /* Number fields have no caret. */ }
      }
    },
    fill(selector, value) {
      const el = editable(selector);
      show(el);
      el.focus({ preventScroll: true });
      if (el.isContentEditable) {
        el.textContent = value;
      } else {
        el.value = value;
        if (el.value !== value && !(el instanceof HTMLTextAreaElement && el.value === value.replace(/\r\n?/g, "\n"))) {
          fail("unusable", "does not take this value");
        }
      }
      changed(el);
    },
    select(selector, values) {
      const el = usable(selector);
      if (!(el instanceof HTMLSelectElement)) fail("unusable", "is no <select>");
      if (values.length > 1 && !el.multiple) fail("unusable", "takes one value");
      const options = values.map((value) =>
        [...el.options].find((option) => option.value === value) ??
        [...el.options].find((option) => squeeze(option.label) === squeeze(value)) ??
        fail("unusable", "has no option " + JSON.stringify(value)));
      const disabled = options.find((option) => option.disabled);
      if (disabled) fail("unusable", "has the option " + JSON.stringify(disabled.value) + ", but it is disabled");
      for (const option of el.options) option.selected = options.includes(option);
      changed(el);
      return [...el.selectedOptions].map((option) => option.value);
    },
    checked(selector) {
      const el = usable(selector);
      const box = el instanceof HTMLLabelElement && el.control ? el.control : el;
      if (box instanceof HTMLInputElement && ["checkbox", "radio"].includes(box.type)) return box.checked;
      if (box.getAttribute("aria-checked") !== null) return box.getAttribute("aria-checked") === "true";
      fail("unusable", "is no checkbox");
    },
    scroll(selector, x, y) {
      const el = selector === null ? null : one(selector);
      if (el) el.scrollBy({ left: x, top: y, behavior: "instant" });
      else window.scrollBy({ left: x, top: y, behavior: "instant" });
      return el ? { x: el.scrollLeft, y: el.scrollTop } : { x: scrollX, y: scrollY };
    },
    into_view(selector) {
      const el = one(selector);
      show(el);
      const r = el.getBoundingClientRect();
      return { x: r.x, y: r.y, width: r.width, height: r.height };
    },
    extract(selector, what, attribute, every) {
      const read = (el) => {
        if (attribute !== null) return el.getAttribute(attribute);
        if (what === "html") return el.outerHTML;
        if (what === "value") return el.value ?? null;
        return squeeze(el.innerText ?? el.textContent);
      };
      return every ? all(selector).map(read) : read(one(selector));
    },
    text: () => ({ url: location.href, title: document.title, text: document.body?.innerText ?? "" }),
    about: () => ({ url: location.href, title: document.title.slice(0, 1000) }),
    snapshot(filter, countMax) {
      refs = [];
      const nodes = [];
      for (const el of document.querySelectorAll("body *")) {
        const role = roleOf(el);
        const isControl = el.matches(CONTROLS) && el.tagName !== "OPTION";
        const isFrame = el.tagName === "IFRAME";
        if (filter === "interactive" ? !isControl && !isFrame : role === "generic" && !isControl) continue;
        if (!isVisible(el)) continue;
        const node = { ref: "e" + refs.length, role, name: nameOf(el), tag: el.tagName.toLowerCase() };
        if ("value" in el && typeof el.value === "string" && el.type !== "password") node.value = el.value.slice(0, 200);
        if (el.disabled) node.disabled = true;
        if (el.checked) node.checked = true;
        if (document.activeElement === el) node.focused = true;
        refs.push(el);
        nodes.push(node);
        if (nodes.length === countMax) break;
      }
      return { url: location.href, title: document.title, nodes, count: nodes.length };
    },
  };
})();
