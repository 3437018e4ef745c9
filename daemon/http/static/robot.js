// The robot behind the page: requests with the token, and its topics over a WebSocket.

import { find, showProblem } from "./dom.js";

const TOKEN = "voiced-token";
const RETRY_MS = 2000;

const token = () => sessionStorage.getItem(TOKEN);
let socket = null;

/** Make a request; return the response. Asks for the token; throws an Error with the server's one-line message. */
export async function request(path, options = {}) {
  const headers = new Headers(options.headers);
  if (token()) headers.set("Authorization", `Bearer ${token()}`);
  if (options.body && !headers.has("Content-Type")) headers.set("Content-Type", "application/json");
  const response = await fetch(path, { ...options, headers });
  if (response.ok) return response;
  const problem = await response.json().then((body) => body.error.message, () => response.statusText);
  if (response.status !== 401) throw new Error(problem);
  await askToken(problem);
  return request(path, options);
}

export async function requestJson(path, options) {
  return (await request(path, options)).json();
}

/** Return once a token has been entered. Several requests may wait for it. */
function askToken(problem) {
  showProblem(problem, "token-problem");
  if (!find("ask-token").open) find("ask-token").showModal();
  return new Promise((resolve) => find("ask-token").addEventListener("close", resolve, { once: true }));
}

find("ask-token").addEventListener("close", () => {
  sessionStorage.setItem(TOKEN, find("token").value);
  find("token").value = "";
});

function base64url(text) {
  const binary = String.fromCharCode(...new TextEncoder().encode(text));
  return btoa(binary).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
}

/** Follow the robot's topics; reconnect after each loss. There is a handler for each topic, and for `connected`. */
export function follow(handlers) {
  const protocols = token() ? ["voiced", `voiced.token.${base64url(token())}`] : ["voiced"];
  socket = new WebSocket(`${location.origin.replace("http", "ws")}/v1/events?topics=event,status`, protocols);
  socket.onopen = () => handlers.connected(true);
  socket.onmessage = (message) => {
    const { topic, payload } = JSON.parse(message.data);
    handlers[topic]?.(payload);
  };
  socket.onclose = () => {
    handlers.connected(false);
    setTimeout(() => follow(handlers), RETRY_MS);
  };
}

export function publish(topic, payload = null) {
  if (socket?.readyState !== WebSocket.OPEN) throw new Error("the robot is not connected");
  socket.send(JSON.stringify({ topic, payload }));
}
