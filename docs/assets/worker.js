/* Search in pages that are opened as files: browsers start no worker there, so its script runs in a frame. */
if (location.protocol === "file:") {
  window.Worker = class {
    constructor(url) {
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.body.append(this.frame);
      const inner = this.frame.contentWindow;
      inner.postMessage = (data) => this.reply(structuredClone(data));
      this.ready = new Promise((resolve) => {
        const script = inner.document.createElement("script");
        script.src = new URL(url, location.href);
        script.onload = resolve;
        script.onerror = (event) => this.onerror?.(event);
        inner.document.body.append(script);
      });
    }
    reply(data) {
      setTimeout(() => this.onmessage?.({ data }));
    }
    postMessage(message) {
      const inner = this.frame.contentWindow;
      const data = structuredClone(message);
      this.ready.then(() => inner.dispatchEvent(new inner.MessageEvent("message", { data })));
    }
    terminate() {
      this.frame.remove();
    }
  };
}
