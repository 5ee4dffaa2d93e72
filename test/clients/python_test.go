//go:build linux

package clients_test

// pythons are libraries of Python, as Debian has them.
func pythons() []client {
	const begin = `import os
key = {"Authorization": "Bearer " + os.environ["API_KEY"]}
`
	python := func(name, text, prints, refusal string) client {
		return client{name: name, files: map[string]string{"get.py": begin + text}, script: "/usr/bin/python3 get.py", prints: []string{prints}, refusal: refusal}
	}
	return []client{
		python("Python urllib", `import urllib.error, urllib.request
print(urllib.request.urlopen(urllib.request.Request("https://HOST/path", headers=key)).status)
try:
    urllib.request.urlopen("https://BLOCKED/path")
except urllib.error.HTTPError as e:
    print(e, e.read().decode())
`, "200", "Forbidden sallyport: host_not_allowed"),
		python("Python requests", `import requests
print(requests.get("https://HOST/path", headers=key).json()["target"])
r = requests.get("https://BLOCKED/path")
print(r.status_code, r.text)
`, "/path", "403 sallyport: host_not_allowed"),
		python("Python httpx", `import httpx
with httpx.Client(http2=True) as c:
    r = c.get("https://HOST/path", headers=key)
    print(r.http_version, r.status_code)
    r = c.get("https://BLOCKED/path")
    print(r.status_code, r.text)
`, "HTTP/2 200", "403 sallyport: host_not_allowed"),
		python("Python aiohttp", `import aiohttp, asyncio
async def main():
    async with aiohttp.ClientSession() as c:
        async with c.get("https://HOST/path", headers=key) as r:
            print(r.status, (await r.json())["target"])
        async with c.get("https://BLOCKED/path") as r:
            print(r.status, await r.text())
asyncio.run(main())
`, "200 /path", "403 sallyport: host_not_allowed"),
		python("Python grpcio", `import grpc
def call(host):
    channel = grpc.secure_channel(host + ":443", grpc.ssl_channel_credentials())
    unary = channel.unary_unary("/grpc.testing.TestService/UnaryCall")
    return unary.with_call(b"", timeout=60, metadata=[("authorization", key["Authorization"])] if host == "HOST" else [])
answer, done = call("HOST")
print(done.code(), [v for k, v in done.trailing_metadata() if k == "x-trailer"])
try:
    call("BLOCKED")
except grpc.RpcError as e:
    print(e.code(), e.details())
`, "StatusCode.OK ['end']", "StatusCode.PERMISSION_DENIED sallyport: host_not_allowed"),
	}
}
