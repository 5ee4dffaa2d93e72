package audit

// Classes of OCSF 1.3 that events map to.
const (
	ocsfBase    = 0
	ocsfProcess = 1007 // Process Activity
	ocsfFinding = 2004 // Detection Finding
	ocsfNetwork = 4001 // Network Activity
	ocsfHTTP    = 4002 // HTTP Activity
	ocsfDNS     = 4003 // DNS Activity
)

// ocsf maps e to the Open Cybersecurity Schema Framework. What it has no
// attribute for is unmapped.
func ocsf(e *Event) object {
	class := ocsfClass(e.Kind)
	activity := ocsfActivity(class, e)
	o := object{
		"class_uid": class, "category_uid": class / 1000, "activity_id": activity, "type_uid": class*100 + activity,
		"time": e.Time.UnixMilli(), "severity_id": max(severityNumber(e.Severity), 1),
		"metadata": object{
			"version": "1.3.0", "uid": e.ID, "sequence": e.Seq, "log_name": "sallyport.audit",
			"product": object{"name": "sallyport", "vendor_name": "sallyport"},
		},
	}
	ocsfOutcome(o, e)
	put(o, "status_detail", e.Reason)
	put(o, "message", e.Message)
	put(o, "count", e.Count)
	put(o, "duration", int64(max(e.DurationMS, 0)))
	if e.FirstSeen != nil && e.LastSeen != nil {
		o["start_time"], o["end_time"] = e.FirstSeen.UnixMilli(), e.LastSeen.UnixMilli()
	}
	ocsfEndpoints(o, e)
	ocsfProtocols(o, e)
	if r := e.Rule; r != nil {
		rule := object{}
		put(rule, "name", r.ID)
		put(rule, "type", r.Action)
		sub(o, "firewall_rule", rule)
	}
	if class == ocsfFinding {
		o["finding_info"] = object{"uid": e.ID, "title": e.Alert, "desc": e.Message}
	}
	if r := e.Run; r != nil && class == ocsfProcess {
		process := object{}
		if len(r.Argv) > 0 {
			process["cmd_line"], process["name"] = joined(r.Argv), r.Argv[0]
		}
		o["process"] = process
		if r.Exit != nil {
			o["exit_code"] = *r.Exit
		}
	}
	sub(o, "unmapped", extension(e))
	return o
}

// ocsfOutcome says what was done and how it ended.
func ocsfOutcome(o object, e *Event) {
	switch {
	case e.Verdict == "allow":
		o["action_id"], o["disposition_id"], o["status_id"] = 1, 1, 1 // Allowed, Allowed, Success
	case e.Verdict == "deny":
		o["action_id"], o["disposition_id"], o["status_id"] = 2, 2, 2 // Denied, Blocked, Failure
	case e.Phase == PhaseEnd && e.Error != nil:
		o["status_id"] = 2
	case e.Phase == PhaseEnd:
		o["status_id"] = 1
	}
}

func ocsfClass(k Kind) int {
	switch k {
	case KindDNS:
		return ocsfDNS
	case KindHTTP, KindWS:
		return ocsfHTTP
	case KindConn, KindPacket, KindTLS, KindTCP, KindSecret:
		return ocsfNetwork
	case KindAlert:
		return ocsfFinding
	case KindSandbox:
		return ocsfProcess
	}
	return ocsfBase
}

// ocsfActivity is the activity within a class, 99 for what none fits.
func ocsfActivity(class int, e *Event) int {
	switch class {
	case ocsfDNS:
		if e.Phase == PhaseEnd {
			return 2 // Response
		}
		return 1 // Query
	case ocsfHTTP:
		if e.HTTP != nil {
			for i, m := range [...]string{"CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "POST", "PUT", "TRACE"} {
				if e.HTTP.Method == m {
					return i + 1
				}
			}
		}
	case ocsfNetwork:
		switch {
		case e.Verdict == "deny":
			return 5 // Refuse
		case e.Phase == PhaseEnd:
			return 2 // Close
		}
		return 1 // Open
	case ocsfFinding:
		return 1 // Create
	case ocsfProcess:
		if e.Phase == PhaseEnd || (e.Run != nil && e.Run.Exit != nil) {
			return 2 // Terminate
		}
		return 1 // Launch
	}
	return 99
}

func ocsfEndpoints(o object, e *Event) {
	src, dst := ecsEndpoint(e.Src), ecsEndpoint(e.Dst)
	if e.Sandbox != nil {
		put(src, "name", e.Sandbox.Name)
		put(src, "uid", e.Sandbox.ID)
	}
	put(dst, "hostname", e.Host)
	put(dst, "port", e.Port)
	sub(o, "src_endpoint", src)
	sub(o, "dst_endpoint", dst)
	if e.Proto != "" {
		o["connection_info"] = object{"protocol_name": e.Proto, "direction_id": 2}
	}
	if b := e.Bytes; b != nil {
		o["traffic"] = object{"bytes_out": b.Sent, "bytes_in": b.Received}
	}
}

func ocsfProtocols(o object, e *Event) {
	if d := e.DNS; d != nil {
		o["query"] = object{"hostname": d.QName, "type": d.QType}
		put(o, "rcode", d.RCode)
		var answers []object
		for _, a := range d.Answers {
			answers = append(answers, object{"rdata": a})
		}
		if len(answers) > 0 {
			o["answers"] = answers
		}
	}
	if h := e.HTTP; h != nil {
		url, request := object{}, object{}
		put(url, "hostname", e.Host)
		put(url, "path", withoutQuery(h.Path))
		put(url, "port", e.Port)
		put(url, "scheme", h.Scheme)
		put(request, "http_method", h.Method)
		put(request, "user_agent", h.UserAgent)
		put(request, "version", h.Version)
		put(request, "uid", e.Req)
		sub(request, "url", url)
		sub(o, "http_request", request)
		if h.Status != 0 {
			o["http_response"] = object{"code": h.Status, "length": h.RespBytes}
		}
	}
	if t := e.TLS; t != nil {
		tls := object{}
		put(tls, "version", t.Version)
		put(tls, "sni", e.SNI)
		sub(o, "tls", tls)
	}
}

// joined is a command line of which each word can be told from the next.
func joined(argv []string) string {
	line := ""
	for i, a := range argv {
		if i > 0 {
			line += " "
		}
		line += Escape(a, capElement)
	}
	return line
}
