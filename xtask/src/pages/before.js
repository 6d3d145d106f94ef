// Collects errors from the start of a page. Chromium runs it before the page's own scripts.
window.found = [];
addEventListener("error", event => window.found.push(event.message || "a resource does not load"), true);
addEventListener("unhandledrejection", event => window.found.push(String(event.reason)));
console.error = (...text) => window.found.push(text.join(" "));
