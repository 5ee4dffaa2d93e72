package policy

import "slices"

// schemeSet is a set of schemes, one bit each. SchemeAny is not a member.
type schemeSet uint8

const allSchemes schemeSet = 1<<HTTPS | 1<<HTTP | 1<<TCP

func schemesOf(list []Scheme) schemeSet {
	var s schemeSet
	for _, x := range list {
		s |= 1 << x
	}
	return s & allSchemes
}

func (s schemeSet) has(x Scheme) bool {
	return x != SchemeAny && x <= TCP && s&(1<<x) != 0
}

// endpoint is one port and what may be spoken on it.
type endpoint struct {
	port    uint16
	schemes schemeSet
}

// endpointSet is where on a host a rule holds. The zero value is nowhere.
type endpointSet struct {
	list     []endpoint // one per port
	everyone schemeSet  // schemes of every port; for denials that name none
}

// add puts a port and its schemes into the set.
func (e *endpointSet) add(port uint16, schemes schemeSet) {
	for i := range e.list {
		if e.list[i].port == port {
			e.list[i].schemes |= schemes
			return
		}
	}
	e.list = append(e.list, endpoint{port, schemes})
}

func (e *endpointSet) hasPort(port uint16) bool {
	return e.everyone != 0 ||
		slices.ContainsFunc(e.list, func(x endpoint) bool { return x.port == port })
}

// schemesAt returns what may be spoken on a port.
func (e *endpointSet) schemesAt(port uint16) schemeSet {
	for i := range e.list {
		if e.list[i].port == port {
			return e.list[i].schemes | e.everyone
		}
	}
	return e.everyone
}

// portFit matches the port of an attempt.
func (e *endpointSet) portFit(stage Stage, port uint16) fit {
	switch {
	case e.everyone != 0:
		return yes
	case stage == StageName:
		if len(e.list) > 0 {
			return maybe
		}
		return no
	}
	return when(e.hasPort(port))
}

// schemeFit matches the scheme of an attempt on a port that fits.
func (e *endpointSet) schemeFit(stage Stage, port uint16, s Scheme) fit {
	if stage == StageName {
		if e.everyone == allSchemes {
			return yes
		}
		return maybe
	}
	set := e.schemesAt(port)
	switch {
	case set == allSchemes:
		return yes
	case s != SchemeAny:
		return when(set.has(s))
	case stage == StageConn && set != 0:
		return maybe
	}
	return no
}
