//go:build linux

package clients_test

import "strings"

// nodes are Node.js and its libraries, and what runs the same programs.
func nodes() []client {
	const fetching = `
const key = %s;
const ok = await fetch("https://HOST/path", { headers: { authorization: "Bearer " + key } });
console.log(ok.status, (await ok.json()).target);
const no = await fetch("https://BLOCKED/path");
console.log(no.status, await no.text());
`
	fetch := func(key string) map[string]string {
		return map[string]string{"get.mjs": strings.Replace(fetching, "%s", key, 1)}
	}
	const env, refusal = "process.env.API_KEY", "403 sallyport: host_not_allowed"
	return []client{
		{name: "Node.js fetch", files: fetch(env), script: "node get.mjs", prints: []string{"200 /path"}, refusal: refusal},
		{name: "axios", script: "ln -s $MODULES node_modules; node get.mjs", prints: []string{"200 /path"}, refusal: "403 host_not_allowed", files: map[string]string{"get.mjs": `
import axios from "axios";
const ok = await axios.get("https://HOST/path", { headers: { authorization: "Bearer " + process.env.API_KEY } });
console.log(ok.status, ok.data.target);
await axios.get("https://BLOCKED/path").catch((e) => console.log(e.response.status, e.response.data.reason));
`}},
		{name: "ws", script: "ln -s $MODULES node_modules; node ws.mjs", prints: []string{"open", "said hello"}, refusal: "Unexpected server response: 403", files: map[string]string{"ws.mjs": `
import WebSocket from "ws";
const ok = new WebSocket("wss://HOST/lab/ws", { headers: { authorization: "Bearer " + process.env.API_KEY } });
ok.on("open", () => { console.log("open"); ok.send("hello"); });
ok.on("message", (m) => {
  console.log("said " + m);
  ok.close();
  new WebSocket("wss://BLOCKED/lab/ws").on("error", (e) => console.log(e.message));
});
`}},
		{name: "Deno", files: fetch(`Deno.env.get("API_KEY")`), script: `"$MODULES/@deno/linux-x64-glibc/deno" run --quiet --allow-net --allow-env get.mjs`, prints: []string{"200 /path"}, refusal: refusal},
		{name: "Bun", files: fetch(env), script: `"$MODULES/@oven/bun-linux-x64-baseline/bin/bun" run get.mjs`, prints: []string{"200 /path"}, refusal: refusal},
	}
}
