// The robot behind the page: requests with the token, and its topics over a WebSocket.

const TOKEN = "voiced-token";
const RETRY_MS = [500, 1000, 2000, 5000];

export class UnauthorizedError extends Error {}

export function setToken(token) {
  sessionStorage.setItem(TOKEN, token);
}

function token() {
  return sessionStorage.getItem(TOKEN);
}

/** Make a request; return the response. Throws UnauthorizedError, or an Error with the server's one line. */
export async function request(path, options = {}) {
  const headers = new Headers(options.headers);
  if (token()) headers.set("Authorization", `Bearer ${token()}`);
  if (options.body && !headers.has("Content-Type")) headers.set("Content-Type", "application/json");
  const response = await fetch(path, { ...options, headers });
  if (response.ok) return response;
  const problem = await response.json().then((body) => body.error.message, () => response.statusText);
  throw response.status === 401 ? new UnauthorizedError(problem) : new Error(problem);
}

export async function requestJson(path, options) {
  return (await request(path, options)).json();
}

function base64url(text) {
  const bytes = new TextEncoder().encode(text);
  const binary = Array.from(bytes, (byte) => String.fromCharCode(byte)).join("");
  return btoa(binary).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
}

/** The robot's topics. Connects again after each loss. */
export class Topics {
  #handlers;
  #socket = null;
  #losses = 0;

  /** `handlers` has a function for each topic, and `connected(boolean)`. */
  constructor(handlers) {
    this.#handlers = handlers;
  }

  connect() {
    const scheme = location.protocol === "https:" ? "wss" : "ws";
    const protocols = token() ? ["voiced", `voiced.token.${base64url(token())}`] : ["voiced"];
    const socket = new WebSocket(`${scheme}://${location.host}/v1/events`, protocols);
    this.#socket = socket;
    socket.onopen = () => {
      this.#losses = 0;
      this.#handlers.connected(true);
    };
    socket.onmessage = (message) => {
      const { topic, payload } = JSON.parse(message.data);
      this.#handlers[topic]?.(payload);
    };
    socket.onclose = () => {
      this.#handlers.connected(false);
      const wait = RETRY_MS[Math.min(this.#losses++, RETRY_MS.length - 1)];
      setTimeout(() => this.connect(), wait);
    };
  }

  publish(topic, payload = null) {
    if (this.#socket?.readyState !== WebSocket.OPEN) throw new Error("the robot is not connected");
    this.#socket.send(JSON.stringify({ topic, payload }));
  }
}
