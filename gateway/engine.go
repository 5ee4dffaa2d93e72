package gateway

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/elazarl/goproxy"
	"github.com/hashicorp/go-hclog"
)

// engine carries an admitted request upstream and its answer back. It is
// goproxy's filters, round trip and copy; the connection, its limits and the
// names are the front's, which goproxy's own interception has no say in.
type engine struct {
	proxy *goproxy.ProxyHttpServer
	brief url.URL // absolute; what goproxy logs of a request before it asks the filters
}

func newEngine(log hclog.Logger) *engine {
	p := goproxy.NewProxyHttpServer()
	p.Logger = engineLog{log.Named("engine")}
	p.Tr = &http.Transport{Proxy: nil, DialContext: noDial} // never used: each exchange has its own
	p.ConnectDial = nil
	p.KeepAcceptEncoding = true
	p.KeepHeader = true // what is for the next hop was taken out before the policy was asked
	p.AllowHTTP2 = true
	p.NonproxyHandler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "sallyport: not a request of a sandbox", http.StatusForbidden)
	})
	p.OnRequest().DoFunc(func(r *http.Request, ctx *goproxy.ProxyCtx) (*http.Request, *http.Response) {
		x := exchangeOf(r.Context())
		if x == nil { // the last word: what nobody admitted is denied
			return r, goproxy.NewResponse(r, "text/plain", http.StatusForbidden, "sallyport: not an admitted request\n")
		}
		r.URL = &x.r.url
		ctx.UserData, ctx.RoundTripper = x, x
		return r, nil
	})
	p.OnResponse().DoFunc(func(resp *http.Response, ctx *goproxy.ProxyCtx) *http.Response {
		x, ok := ctx.UserData.(*exchange)
		if !ok {
			return resp
		}
		return x.response(resp, ctx.Error)
	})
	return &engine{p, url.URL{Scheme: "https"}}
}

// run serves x with out, the request as it is to leave. Goproxy writes the URL
// down to log it even where it logs nothing, so that it gets it after that.
func (e *engine) run(x *exchange, out *http.Request) {
	out.URL = &e.brief
	e.proxy.ServeHTTP(x.writer(), out)
	x.finish()
}

// RoundTrip implements goproxy.RoundTripper.
func (x *exchange) RoundTrip(out *http.Request, _ *goproxy.ProxyCtx) (*http.Response, error) {
	return x.roundTrip(out)
}

// noDial refuses: the only way to an upstream is through a checked route.
func noDial(context.Context, string, string) (net.Conn, error) {
	return nil, errors.New("no dialling without a route")
}

// engineLog takes goproxy's warnings to the operational log. They may quote
// what an upstream sent, so they are kept for debugging.
type engineLog struct{ log hclog.Logger }

// Printf logs one line at debug level.
func (l engineLog) Printf(format string, _ ...any) {
	l.log.Debug(strings.TrimSpace(strings.TrimPrefix(format, "[%03d] ")))
}
