//go:build linux

package clients_test

import (
	"io"
	"net/http"
	"testing"
)

// browsers are driven without a screen. What they would tell their makers is
// refused as any other request is.
func browsers() []client {
	return []client{
		{name: "Chromium (headless)", prints: []string{"<p>200 /api"}, refusal: "sallyport: host_not_allowed", serve: page, script: `
chromium-headless-shell --virtual-time-budget=20000 --dump-dom "https://HOST/#$API_KEY"
chromium-headless-shell --dump-dom https://BLOCKED/`},
	}
}

// TestBrowserFetchesItsTrust: a home that no one has prepared is, with the
// database that the gateway serves.
func TestBrowserFetchesItsTrust(t *testing.T) {
	t.Parallel()
	c := browsers()[0]
	c.name = "browser elsewhere"
	c.script = `mkdir -p other/.pki/nssdb
curl -sSf -o other/.pki/nssdb/cert9.db http://sallyport.internal/nssdb/cert9.db
export HOME="$PWD/other"
` + c.script
	c.try(t)
}

// page is one whose script makes a request with the key, which it finds in
// the address.
func page(_ *testing.T, s *site) {
	const text = `<!doctype html><title>page</title><p>waiting</p><script>
fetch("/api", { headers: { authorization: "Bearer " + location.hash.slice(1) } })
  .then(async (r) => { document.querySelector("p").textContent = r.status + " " + await r.text(); });
</script>`
	origin(s.host).SetHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		body := text
		if r.URL.Path != "/" {
			body = r.URL.Path
		}
		_, _ = io.WriteString(w, body)
	}))
}
