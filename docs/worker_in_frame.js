// The search runs in a Worker, which browsers do not start for pages on disk (file://). This class runs the
// worker's code in an iframe and provides messages in both directions and importScripts.
class FrameWorker extends EventTarget {
  constructor(url) {
    super();
    const frame = document.createElement("iframe");
    frame.hidden = true;
    document.body.append(frame);
    this.inner = frame.contentWindow;
    this.waiting = [];
    this.inner.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
    this.inner.importScripts = (...urls) =>
      urls.reduce((before, each) => before.then(() => this.load(each)), Promise.resolve());
    this.load(new URL(url, document.baseURI).href).then(() => {
      const waiting = this.waiting;
      this.waiting = null;
      waiting.forEach((data) => this.postMessage(data));
    });
  }

  load(url) {
    return new Promise((done, failed) => {
      const script = this.inner.document.createElement("script");
      script.src = url;
      script.onload = () => done();
      script.onerror = failed;
      this.inner.document.body.append(script);
    });
  }

  postMessage(data) {
    if (this.waiting) this.waiting.push(data);
    else this.inner.dispatchEvent(new this.inner.MessageEvent("message", { data }));
  }

  terminate() {}
}

if (window.location.protocol === "file:") window.Worker = FrameWorker;
