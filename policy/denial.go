package policy

// namedDenial returns the deny rule that matches whatever becomes known, nil
// if none does.
func namedDenial(q *query, rules []*rule) *rule {
	var named *rule
	for _, r := range rules {
		if r.like.Action == ActionDeny && r.beats(named) && r.fit(q).whole() == yes {
			named = r
		}
	}
	return named
}

// hasPartialDenial reports whether a deny rule may match later by port and
// scheme alone, so that together with others it may leave nothing of an
// allow.
func hasPartialDenial(q *query, rules []*rule) bool {
	if q.Stage == StageRequest {
		return false
	}
	for _, r := range rules {
		if r.like.Action == ActionDeny && r.unseen() == yes && r.fit(q).whole() == maybe {
			return true
		}
	}
	return false
}

// deniedBefore returns a deny rule that takes an allow rule back although it
// may not match what will become known.
func deniedBefore(q *query, allow *rule, rules []*rule, partial bool) *rule {
	if q.Stage == StageConn && allow.relay() != RelayIntercept {
		return possibleDenial(q.Port, allow, rules)
	}
	if partial {
		return deniedWhole(q, allow, rules)
	}
	return nil
}

// possibleDenial returns a deny rule that could match something of what an
// allow rule relays unopened. There is no later stage at which it would be
// found out, so what could be denied is.
func possibleDenial(port uint16, allow *rule, rules []*rule) *rule {
	relayed := allow.ends.schemesAt(port)
	var named *rule
	for _, r := range rules {
		if r.like.Action == ActionDeny && r.beats(named) && r.ends.schemesAt(port)&relayed != 0 {
			named = r
		}
	}
	return named
}

// deniedWhole returns a deny rule when every port and scheme that an allow
// rule still admits is denied: then no request to the host could be allowed
// by it.
func deniedWhole(q *query, allow *rule, rules []*rule) *rule {
	var by *rule
	for _, end := range allow.ends.list {
		if q.Stage == StageConn && end.port != q.Port {
			continue
		}
		for s := HTTPS; s <= TCP; s++ {
			if !end.schemes.has(s) || q.Scheme != SchemeAny && q.Stage == StageConn && s != q.Scheme {
				continue
			}
			d := denialOf(end.port, s, rules)
			if d == nil {
				return nil
			}
			if d.beats(by) {
				by = d
			}
		}
	}
	return by
}

// denialOf returns the deny rule that denies all of one port and scheme.
func denialOf(port uint16, s Scheme, rules []*rule) *rule {
	var named *rule
	for _, r := range rules {
		if r.like.Action == ActionDeny && r.unseen() == yes && r.ends.schemesAt(port).has(s) && r.beats(named) {
			named = r
		}
	}
	return named
}

// refuse names the reason when no allow rule matched: the first thing on
// which all rules for the host fail.
func refuse(q *query, rules []*rule, a *admission) Decision {
	reason, named := reasonOf(q, rules, a)
	d := Decision{Reason: reason}
	if named != nil {
		d.Rule = named.source()
	}
	switch {
	case reason == HostDenied:
		d.Message = deniedMessage(q, named.source())
	case named != nil && (reason == UninspectableBody || reason == MethodNotAllowed):
		_, d.Message = named.bodyDenial(q)
	default:
		d.Message = denialMessage(reason, q)
	}
	return d
}

func reasonOf(q *query, rules []*rule, a *admission) (Reason, *rule) {
	if a.denial != nil {
		return HostDenied, a.denial
	}
	if a.expired != nil {
		return RuleExpired, a.expired
	}
	f := failures{}
	for _, r := range rules {
		switch {
		case r.like.Action == ActionDeny:
		case r.expired(q.Now):
			if r.beats(f.lapsed) {
				f.lapsed = r
			}
		default:
			f.add(r, r.fit(q))
		}
	}
	return f.reason(q)
}

// failures gathers where the allow rules for a host fail.
type failures struct {
	lapsed        *rule // an expired rule for the host
	live          bool
	port, scheme  bool // some rule passes it, and what stands before it
	method, path  bool
	slash         bool  // some rule admits encoded slashes
	upgrade, push *rule // fails on this alone
	query, body   *rule
}

func (f *failures) add(r *rule, o outcome) {
	f.live = true
	if o.port == no {
		return
	}
	f.port = true
	if o.scheme == no {
		return
	}
	f.scheme = true
	f.method = f.method || o.method != no
	f.path = f.path || o.path != no
	f.slash = f.slash || r.like.EncodedSlash
	if o.push && r.beats(f.push) {
		f.push = r
	}
	if o.method == no || o.path == no || o.header == no {
		return
	}
	if o.query == no && r.beats(f.query) {
		f.query = r
	} else if o.query != no && o.upgrade != no && o.body == no && r.beats(f.body) {
		f.body = r
	} else if o.upgrade == no && r.beats(f.upgrade) {
		f.upgrade = r
	}
}

func (f *failures) reason(q *query) (Reason, *rule) {
	switch {
	case !f.live && f.lapsed != nil:
		return RuleExpired, f.lapsed
	case !f.live:
		return HostNotAllowed, nil
	case !f.port:
		return PortNotAllowed, nil
	case !f.scheme:
		return SchemeNotAllowed, nil
	case q.ambiguous && q.pathed && !(q.path.slash && f.slash):
		return AmbiguousPath, nil
	case f.push != nil:
		return GitPushNotAllowed, f.push
	case f.query != nil:
		return QueryNotAllowed, f.query
	case f.body != nil:
		reason, _ := f.body.bodyDenial(q)
		return reason, f.body
	case f.upgrade != nil:
		return UpgradeNotAllowed, f.upgrade
	case !f.method:
		return MethodNotAllowed, nil
	case !f.path:
		return PathNotAllowed, nil
	}
	return NoRuleMatched, nil
}
