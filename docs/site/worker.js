// Browsers start no worker from file://. The search of the site is one; opened from disk, it runs in a
// hidden frame instead. What the theme expects: a class IFrameWorker in the page, importScripts that can
// be awaited, and a script element in the frame.
if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super();
      this.waiting = [];
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.body.append(frame);
      const inside = (this.inside = frame.contentWindow);
      const load = (source) =>
        new Promise((done, failed) => {
          const script = inside.document.createElement("script");
          Object.assign(script, { src: source, onload: done, onerror: failed });
          inside.document.body.append(script);
        });
      inside.importScripts = (...sources) => sources.reduce((before, s) => before.then(() => load(s)), Promise.resolve());
      inside.postMessage = (data) => this.tell(this, data);
      load(new URL(url, location.href).href).then(() => {
        this.ready = true;
        this.waiting.forEach((data) => this.tell(inside, data));
      });
    }
    tell(target, data) {
      const event = new MessageEvent("message", { data });
      target.dispatchEvent(event);
      if (target === this && this.onmessage) this.onmessage(event);
    }
    postMessage(data) {
      if (this.ready) this.tell(this.inside, data);
      else this.waiting.push(data);
    }
    terminate() {}
  };
  window.Worker = window.IFrameWorker;
}
