package audit

import "time"

// object is a JSON object. Absent members are left out by put.
type object map[string]any

// put sets a member unless the value is the zero of its type.
func put[T comparable](o object, name string, v T) {
	var zero T
	if v != zero {
		o[name] = v
	}
}

// sub sets a member that is an object unless it is empty.
func sub(o object, name string, v object) {
	if len(v) > 0 {
		o[name] = v
	}
}

// ecs maps e to the Elastic Common Schema. What it has no field for is under
// sallyport.
func ecs(e *Event) object {
	o := object{"@timestamp": string(appendTime(nil, e.Time)), "ecs": object{"version": "8.11.0"}, "event": ecsEvent(e)}
	put(o, "message", e.Message)
	sub(o, "source", ecsEndpoint(e.Src))
	dst := ecsEndpoint(e.Dst)
	put(dst, "domain", e.Host)
	put(dst, "port", e.Port)
	if b := e.Bytes; b != nil {
		src, _ := o["source"].(object)
		if src == nil {
			src = object{}
			o["source"] = src
		}
		src["bytes"], dst["bytes"] = b.Sent, b.Received
	}
	sub(o, "destination", dst)
	network := object{}
	put(network, "transport", e.Proto)
	put(network, "protocol", ecsProtocol(e))
	sub(o, "network", network)
	ecsProtocols(o, e)
	if r := e.Rule; r != nil {
		rule := object{}
		put(rule, "name", r.ID)
		put(rule, "category", r.Action)
		put(rule, "reference", r.Ticket)
		sub(o, "rule", rule)
	}
	if x := e.Error; x != nil {
		o["error"] = object{"type": x.Class, "message": x.Detail}
	}
	if r := e.Run; r != nil {
		process := object{}
		if len(r.Argv) > 0 {
			process["args"] = r.Argv
		}
		put(process, "working_directory", r.Cwd)
		if r.Exit != nil {
			process["exit_code"] = *r.Exit
		}
		sub(o, "process", process)
	}
	sub(o, "sallyport", extension(e))
	return o
}

func ecsEvent(e *Event) object {
	kind := "event"
	if e.Kind == KindAlert {
		kind = "alert"
	}
	ev := object{"kind": kind, "module": "sallyport", "dataset": "sallyport.audit", "sequence": e.Seq, "action": string(e.Kind) + "-" + string(e.Phase)}
	put(ev, "id", e.ID)
	put(ev, "reason", e.Reason)
	category, typ := []string{"network"}, []string{}
	switch e.Kind {
	case KindHTTP, KindWS:
		category = append(category, "web")
	case KindPolicy:
		category = []string{"configuration"}
	case KindSandbox:
		category = []string{"process"}
	case KindAudit:
		category = []string{"host"}
	case KindAlert:
		category = []string{"intrusion_detection"}
	}
	switch {
	case e.Verdict == "allow":
		typ = append(typ, "connection", "allowed")
		ev["outcome"] = "success"
	case e.Verdict == "deny":
		typ = append(typ, "connection", "denied")
		ev["outcome"] = "failure"
	case e.Phase == PhaseEnd:
		typ = append(typ, "end")
		ev["outcome"] = map[bool]string{true: "success", false: "failure"}[e.Error == nil]
	default:
		typ = append(typ, "info")
	}
	ev["category"], ev["type"] = category, typ
	put(ev, "severity", severityNumber(e.Severity))
	put(ev, "duration", int64(e.DurationMS*float64(time.Millisecond)))
	if e.FirstSeen != nil {
		ev["start"] = string(appendTime(nil, *e.FirstSeen))
	}
	if e.LastSeen != nil {
		ev["end"] = string(appendTime(nil, *e.LastSeen))
	}
	return ev
}

// severityNumber is 1 (info) to 5 (critical), 0 if there is none.
func severityNumber(s Severity) int {
	for i, v := range [...]Severity{Info, Low, Medium, High, Critical} {
		if s == v {
			return i + 1
		}
	}
	return 0
}

func ecsEndpoint(a *Addr) object {
	o := object{}
	if a != nil {
		put(o, "ip", a.IP)
		put(o, "port", a.Port)
	}
	return o
}

func ecsProtocol(e *Event) string {
	switch e.Kind {
	case KindDNS:
		return "dns"
	case KindHTTP, KindWS:
		return "http"
	case KindTLS:
		return "tls"
	}
	return ""
}

func ecsProtocols(o object, e *Event) {
	if d := e.DNS; d != nil {
		dns := object{"question": object{"name": d.QName, "type": d.QType}}
		put(dns, "response_code", d.RCode)
		if len(d.Answers) > 0 {
			dns["resolved_ip"] = d.Answers
		}
		o["dns"] = dns
	}
	if h := e.HTTP; h != nil {
		request, response := object{}, object{}
		put(request, "method", h.Method)
		put(request, "bytes", h.ReqBytes)
		put(request, "id", e.Req)
		put(response, "status_code", h.Status)
		put(response, "bytes", h.RespBytes)
		http, url := object{}, object{}
		put(http, "version", h.Version)
		sub(http, "request", request)
		sub(http, "response", response)
		sub(o, "http", http)
		put(url, "scheme", h.Scheme)
		put(url, "domain", e.Host)
		put(url, "port", e.Port)
		put(url, "path", withoutQuery(h.Path))
		sub(o, "url", url)
		if h.UserAgent != "" {
			o["user_agent"] = object{"original": h.UserAgent}
		}
	}
	if t := e.TLS; t != nil {
		tls := object{}
		put(tls, "version", t.Version)
		put(tls, "next_protocol", t.ALPN)
		if e.SNI != "" {
			tls["client"] = object{"server_name": e.SNI}
		}
		sub(o, "tls", tls)
	}
}

// extension is what the common schemas have no field for.
func extension(e *Event) object {
	x := object{}
	put(x, "instance", e.Instance)
	put(x, "prev", e.Prev)
	put(x, "conn", e.Conn)
	put(x, "req", e.Req)
	put(x, "count", e.Count)
	put(x, "alert", e.Alert)
	put(x, "gateway_ms", max(e.GatewayMS, 0))
	put(x, "authority", e.Authority)
	if e.Sandbox != nil {
		x["sandbox"] = e.Sandbox
	}
	if e.Would != nil {
		x["would"] = e.Would
	}
	if e.Rule != nil {
		x["rule"] = e.Rule
	}
	if e.Policy != nil {
		x["policy"] = e.Policy
	}
	if len(e.Secrets) > 0 {
		x["secrets"] = e.Secrets
	}
	if e.Upstream != nil {
		x["upstream"] = e.Upstream
	}
	if e.Note != nil {
		x["audit"] = e.Note
	}
	if e.HTTP != nil && len(e.HTTP.QueryKeys) > 0 {
		x["query_keys"] = e.HTTP.QueryKeys
	}
	return x
}
