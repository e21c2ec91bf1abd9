// For the site opened from a folder. Browsers start no worker there, and the search is one: a hidden frame runs it.
class FrameWorker extends EventTarget {
  constructor(url) {
    super();
    this.frame = document.createElement("iframe");
    this.frame.hidden = true;
    document.body.append(this.frame);
    const inside = this.frame.contentWindow;
    addEventListener("message", ({ source, data }) => {
      if (source === inside) this.dispatchEvent(new MessageEvent("message", { data }));
    });
    inside.document.open();
    inside.document.write(`<body><script>
      postMessage = (data) => parent.postMessage(data, "*");
      importScripts = async (...urls) => {
        for (const url of urls)
          await new Promise((loaded) => {
            const script = document.createElement("script");
            script.src = url;
            script.onload = loaded;
            document.body.append(script);
          });
      };
    <\/script><script src="${url}"><\/script>`);
    inside.document.close();
    this.loaded = new Promise((done) => (inside.onload = done));
  }

  postMessage(data) {
    this.loaded.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data })));
  }

  terminate() {
    this.frame.remove();
  }
}

if (location.protocol === "file:") window.Worker = FrameWorker;
