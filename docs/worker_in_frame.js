// The search runs in a Worker, and a browser starts none from a page on the disk (file://): there, a frame takes
// its place. It has what the search's worker asks for: messages both ways, and importScripts.
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
