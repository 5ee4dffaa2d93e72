package audit

import "strconv"

func (w *encoder) sandbox(s *Sandbox) {
	if s == nil {
		return
	}
	w.open(`"sandbox":{`)
	if s.Name == "" {
		w.b = append(w.b, `"name":null`...)
	}
	w.word(`"name":`, s.Name)
	w.word(`"id":`, s.ID)
	w.word(`"parent":`, s.Parent)
	w.stringMap(`"labels":`, s.Labels)
	w.close()
}

func (w *encoder) addr(name string, a *Addr) {
	if a == nil {
		return
	}
	w.open(name)
	w.word(`"ip":`, a.IP)
	w.int(`"port":`, int64(a.Port))
	w.close()
}

// protocols appends the objects that only one kind of event has each.
func (w *encoder) protocols(e *Event) {
	if d := e.DNS; d != nil {
		w.open(`"dns":{`)
		w.text(`"qname":`, d.QName, capHost)
		w.word(`"qtype":`, d.QType)
		w.word(`"rcode":`, d.RCode)
		w.list(`"answers":`, d.Answers)
		w.word(`"transport":`, d.Transport)
		w.close()
	}
	if t := e.TLS; t != nil {
		w.open(`"tls":{`)
		w.word(`"mode":`, t.Mode)
		w.word(`"version":`, t.Version)
		w.word(`"alpn":`, t.ALPN)
		w.bool(`"ech":`, t.ECH)
		w.word(`"alert":`, t.Alert)
		w.close()
	}
	if h := e.HTTP; h != nil {
		w.http(h)
	}
	if u := e.Upstream; u != nil {
		w.open(`"upstream":{`)
		w.word(`"ip":`, u.IP)
		w.int(`"port":`, int64(u.Port))
		w.bool(`"reused":`, u.Reused)
		w.word(`"tls_version":`, u.TLSVersion)
		w.word(`"alpn":`, u.ALPN)
		w.float(`"connect_ms":`, u.ConnectMS)
		w.close()
	}
}

func (w *encoder) http(h *HTTP) {
	w.open(`"http":{`)
	w.word(`"version":`, h.Version)
	w.word(`"method":`, h.Method)
	w.word(`"scheme":`, h.Scheme)
	w.text(`"path":`, withoutQuery(h.Path), capPath)
	w.list(`"query_keys":`, h.QueryKeys)
	w.int(`"status":`, int64(h.Status))
	w.int(`"req_bytes":`, h.ReqBytes)
	w.int(`"resp_bytes":`, h.RespBytes)
	w.text(`"user_agent":`, h.UserAgent, capText)
	w.close()
}

// withoutQuery drops a query or fragment from a path, so that a caller who
// passes a whole target still records no query value.
func withoutQuery(path string) string {
	for i := range len(path) {
		if path[i] == '?' || path[i] == '#' {
			return path[:i]
		}
	}
	return path
}

func (w *encoder) rule(r *Rule) {
	if r == nil {
		return
	}
	w.open(`"rule":{`)
	w.text(`"id":`, r.ID, capHost)
	w.word(`"action":`, r.Action)
	w.text(`"file":`, r.File, capText)
	w.int(`"line":`, int64(r.Line))
	w.word(`"ticket":`, r.Ticket)
	w.word(`"expires":`, r.Expires)
	w.close()
}

func (w *encoder) policy(p *Policy) {
	if p == nil {
		return
	}
	w.open(`"policy":{`)
	w.key(`"generation":`)
	w.b = strconv.AppendUint(w.b, p.Generation, 10)
	w.word(`"sha256":`, p.SHA256)
	w.word(`"commit":`, p.Commit)
	w.close()
}

func (w *encoder) secrets(uses []SecretUse) {
	if len(uses) == 0 {
		return
	}
	w.key(`"secrets":`)
	w.b = append(w.b, '[')
	for i := range uses {
		if i > 0 {
			w.b = append(w.b, ',')
		}
		w.b = append(w.b, '{')
		if i == capList>>w.tight {
			w.word(`"name":`, restMark(len(uses)))
			w.close()
			break
		}
		u := &uses[i]
		w.text(`"name":`, u.Name, capElement)
		w.text(`"place":`, u.Place, capElement)
		w.word(`"action":`, u.Action)
		w.int(`"count":`, int64(u.Count))
		w.close()
	}
	w.b = append(w.b, ']')
}

func (w *encoder) bytes(b *Bytes) {
	if b == nil {
		return
	}
	w.open(`"bytes":{`)
	w.key(`"sent":`)
	w.b = strconv.AppendInt(w.b, b.Sent, 10)
	w.key(`"received":`)
	w.b = strconv.AppendInt(w.b, b.Received, 10)
	w.close()
}

func (w *encoder) run(r *Run) {
	if r == nil {
		return
	}
	w.open(`"run":{`)
	w.list(`"argv":`, r.Argv)
	w.text(`"cwd":`, r.Cwd, capText)
	if len(r.Argv) > 0 { // of a command: uid 0 is somebody
		w.key(`"uid":`)
		w.b = strconv.AppendInt(w.b, int64(r.UID), 10)
	}
	if r.Exit != nil {
		w.key(`"exit":`)
		w.b = strconv.AppendInt(w.b, int64(*r.Exit), 10)
	}
	w.word(`"signal":`, r.Signal)
	w.bool(`"timed_out":`, r.TimedOut)
	w.int(`"cpu_ms":`, r.CPUMS)
	w.int(`"max_rss":`, r.MaxRSS)
	w.bytes(r.Bytes)
	w.close()
}

func (w *encoder) note(n *Note) {
	if n == nil {
		return
	}
	w.open(`"audit":{`)
	w.word(`"action":`, n.Action)
	w.word(`"segment":`, n.Segment)
	w.int(`"offset":`, n.Offset)
	w.int(`"bytes":`, n.Bytes)
	w.int(`"segments":`, int64(n.Segments))
	w.uint(`"seq":`, n.Seq)
	w.word(`"hash":`, n.Hash)
	w.word(`"key":`, n.Key)
	w.word(`"sig":`, n.Sig)
	w.close()
}
