package policy

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// compiler gathers what a document declares and every problem in it.
type compiler struct {
	doc         *Document
	problems    []Problem
	hostOptions HostOptions
	secrets     map[string]*secret
	groups      map[string]*group
	sandboxes   map[string]*sandbox
	sets        []*ruleSet
	all         []*rule
	org         orgSets
	broken      map[owner]bool  // owners of rules that have errors
	used        map[string]bool // groups that somebody uses
	shapes      map[string]*shape
	key         []byte // of a shape; room for the next one
	yield       func()
}

// group is a Group's rules, compiled once for all who use them.
type group struct {
	src           *Group
	allow, denial *ruleSet
}

// orgSets are the rule sets of the org block and of the groups it uses.
type orgSets struct {
	allows, denials []setID
	groups          map[string]bool
	broken          bool // a rule of it, or of a group that it uses, has an error
}

// Compile checks a document and turns it into a set. It reports every problem
// that it finds, in the order of files and lines; the set is nil when one of
// them is an error. It does not change d; the set goes on to refer to d's
// lists, so these must not be changed either.
func Compile(d Document, generation uint64) (*Set, []Problem) {
	return CompileYielding(d, generation, func() {})
}

// CompileYielding is Compile beside work that is more urgent: yield, which may
// sleep, is called every few rules.
func CompileYielding(d Document, generation uint64, yield func()) (*Set, []Problem) {
	c := &compiler{
		doc:       &d,
		yield:     yield,
		secrets:   map[string]*secret{},
		groups:    map[string]*group{},
		sandboxes: map[string]*sandbox{},
		org:       orgSets{groups: map[string]bool{}},
		broken:    map[owner]bool{},
		used:      map[string]bool{},
		shapes:    map[string]*shape{},
	}
	if d.Org != nil {
		c.hostOptions = HostOptions{AnyHost: d.Org.AnyHost, PublicSuffix: d.Org.PublicSuffix}
	}
	c.readSecrets()
	c.readGroups()
	c.readOrg()
	c.readSandboxes()
	c.rank()
	x := newIndex(c.sets, yield)
	c.checkCeiling(x)
	c.checkConflicts(x)
	claims := c.readClaims()
	c.checkPlaceholders()
	c.warnUnusedSecrets()
	sortProblems(c.problems)
	if HasErrors(c.problems) {
		return nil, c.problems
	}
	return c.set(x, claims, generation), c.problems
}

func (c *compiler) set(x *index, claims []claim, generation uint64) *Set {
	s := &Set{
		generation: generation,
		sha256:     c.doc.SHA256,
		compiled:   true,
		index:      x,
		sets:       c.sets,
		sandboxes:  c.sandboxes,
		secrets:    c.secrets,
		claims:     claims,
		ceiling:    c.ceiling(),
		metadata:   c.doc.Org != nil && c.doc.Org.Metadata,
		orgDenials: c.org.denials,
		orgAllows:  c.org.allows,
		orgGroups:  c.org.groups,
	}
	for _, name := range slices.Sorted(maps.Keys(c.groups)) {
		s.groups = append(s.groups, c.groups[name].src)
	}
	for name := range c.sandboxes {
		s.names = append(s.names, name)
	}
	slices.Sort(s.names)
	for _, name := range c.secretNames() {
		s.secretList = append(s.secretList, c.secrets[name].src)
	}
	return s
}

func (c *compiler) report(p Problem) { c.problems = append(c.problems, p) }

func (c *compiler) errorf(pos Pos, format string, args ...any) {
	c.report(Problem{Pos: pos, Summary: fmt.Errorf(format, args...).Error()})
}

func (c *compiler) duplicate(title string, pos, first Pos) {
	c.report(Problem{Pos: pos, Related: []Pos{first}, Summary: title + ": declared twice", Detail: "The first declaration is at " + first.String() + "."})
}

// buildRules compiles the rules of one owner, divided into allows and denials.
func (c *compiler) buildRules(rules []Rule, by owner) (allow, denial *ruleSet) {
	allow, denial = c.newSet(), c.newSet()
	room := make([]rule, 0, len(rules)) // one piece of memory, which stays where it is
	for i := range rules {
		c.yield()
		r := c.build(rules[i], by, &room)
		if r == nil {
			c.broken[by] = true
			continue
		}
		c.all = append(c.all, r)
		set := allow
		if r.like.Action == ActionDeny {
			set = denial
		}
		set.rules = append(set.rules, r)
	}
	return allow, denial
}

func (c *compiler) newSet() *ruleSet {
	set := &ruleSet{id: setID(len(c.sets))}
	c.sets = append(c.sets, set)
	return set
}

func (c *compiler) readGroups() {
	for i := range c.doc.Groups {
		src := c.doc.Groups[i]
		title := fmt.Sprintf("group %q", src.Name)
		if first, ok := c.groups[src.Name]; ok {
			c.duplicate(title, src.Pos, first.src.Pos)
			continue
		}
		c.checkName(title, src.Name, src.Pos)
		g := &group{src: &src}
		g.allow, g.denial = c.buildRules(src.Rules, owner{title: title, group: src.Name})
		src.Rules = nil // they stand in the two sets
		c.groups[src.Name] = g
	}
}

func (c *compiler) readOrg() {
	org := c.doc.Org
	if org == nil {
		return
	}
	allow, denial := c.buildRules(org.Rules, owner{title: "org"})
	c.org.broken = c.broken[owner{title: "org"}]
	c.org.allows = []setID{allow.id}
	c.org.denials = []setID{denial.id}
	for _, g := range c.use("org", org.Use) {
		c.org.groups[g.src.Name] = true
		c.org.broken = c.org.broken || c.broken[owner{title: fmt.Sprintf("group %q", g.src.Name), group: g.src.Name}]
		c.org.allows = append(c.org.allows, g.allow.id)
		c.org.denials = append(c.org.denials, g.denial.id)
	}
}

// use resolves references to groups.
func (c *compiler) use(title string, refs []Ref) []*group {
	var out []*group
	for _, ref := range refs {
		g, ok := c.groups[ref.Name]
		if !ok {
			names := make([]string, 0, len(c.groups))
			for name := range c.groups {
				names = append(names, name)
			}
			slices.Sort(names)
			c.report(Problem{Pos: ref.Pos, Summary: fmt.Sprintf("%s: group %q is not declared", title, ref.Name), Hint: didYouMean(ref.Name, names), Certain: true})
			continue
		}
		c.used[ref.Name] = true
		out = append(out, g)
	}
	return out
}

func (c *compiler) readSandboxes() {
	for i := range c.doc.Sandboxes {
		c.yield()
		src := c.doc.Sandboxes[i]
		title := fmt.Sprintf("sandbox %q", src.Name)
		if first, ok := c.sandboxes[src.Name]; ok {
			c.duplicate(title, src.Pos, first.src.Pos)
			continue
		}
		c.checkName(title, src.Name, src.Pos)
		if src.Mode > Report {
			c.errorf(src.Pos, "%s: unknown mode", title)
		}
		if src.Credentials > TripwireBlock {
			c.errorf(src.Pos, "%s: unknown treatment of credentials", title)
		}
		if !src.Limits.valid() {
			c.errorf(src.Pos, "%s: a limit is negative", title)
		}
		allow, denial := c.buildRules(src.Rules, owner{title: title, sandbox: src.Name})
		src.Rules = nil // they stand in the two sets
		ids := append([]setID{allow.id, denial.id}, c.org.denials...)
		for _, g := range c.use(title, src.Use) {
			ids = append(ids, g.allow.id, g.denial.id)
		}
		c.sandboxes[src.Name] = &sandbox{src: &src, members: newMembers(ids)}
	}
}

// checkName refuses names that would not survive a log, a file name or a
// command line.
func (c *compiler) checkName(title, name string, pos Pos) {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	if name == "" || len(name) > 64 || strings.Trim(name[:1], letters) != "" || strings.Trim(name, letters+"._-") != "" {
		c.errorf(pos, "%s: a name is 1 to 64 letters, digits, dots, hyphens and underscores, and begins with a letter or digit", title)
	}
}

// rank numbers all rules in the order of files and lines.
func (c *compiler) rank() {
	order := slices.Clone(c.all)
	compared := 0
	slices.SortStableFunc(order, func(a, b *rule) int {
		if compared++; compared%64 == 0 {
			c.yield()
		}
		return comparePos(a.pos(), b.pos())
	})
	for i, r := range order {
		r.rank = int32(i)
	}
}

// ceiling returns what the org allows and denies as if it were a sandbox.
func (c *compiler) ceiling() *members {
	if c.doc.Org == nil {
		return nil
	}
	m := newMembers(slices.Concat(c.org.allows, c.org.denials))
	return &m
}
