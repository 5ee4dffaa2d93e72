package policy

import (
	"errors"
	"fmt"
)

// maxGraphQLDepth and maxOperations bound how deep a document may be nested
// and how many operations it may have.
const (
	maxGraphQLDepth = 100
	maxOperations   = 64
)

// readDocument returns the root fields of every operation of a GraphQL
// document: which one is executed is for the server to choose. What servers
// of different ages read in different ways is an error: block strings,
// descriptions, definitions of types, a fragment that is defined twice.
func readDocument(text string) ([]bodyItem, error) {
	p := graphQLParser{lex: graphQLLexer{text: text}, fragments: map[string]*selection{}}
	if err := p.document(); err != nil {
		return nil, err
	}
	roots := rootFields{fragments: p.fragments, visited: map[bodyItem]bool{}, seen: map[bodyItem]bool{}}
	for _, op := range p.operations {
		if err := roots.of(op.kind, op.selection); err != nil {
			return nil, err
		}
	}
	if len(roots.items) == 0 {
		return nil, errors.New("has a document without an operation")
	}
	return roots.items, nil
}

// operation is one operation of a document.
type operation struct {
	kind      string // query, mutation or subscription
	selection *selection
}

// selection is what stands between the outermost braces of an operation or a
// fragment.
type selection struct {
	fields  []string // names, not aliases, also those of inline fragments
	spreads []string // names of fragments
}

// rootFields gathers the fields of the operations of a document, those of the
// fragments in them too. A field counts once for each kind of operation, and a
// fragment is looked into once for each: documents are as small as the work
// that they make.
type rootFields struct {
	fragments map[string]*selection
	visited   map[bodyItem]bool // fragments, by the kind of operation
	seen      map[bodyItem]bool
	items     []bodyItem // what is seen, in its order
}

func (r *rootFields) of(kind string, s *selection) error {
	for _, f := range s.fields {
		x := bodyItem{word: kind, part: f}
		if r.seen[x] {
			continue
		}
		if len(r.items) == maxBodyItems {
			return errManyItems
		}
		r.seen[x] = true
		r.items = append(r.items, x)
	}
	for _, name := range s.spreads {
		x := bodyItem{word: kind, part: name}
		if r.visited[x] {
			continue
		}
		r.visited[x] = true
		f := r.fragments[name]
		if f == nil {
			return fmt.Errorf("has a document with the fragment %s, which it does not define", shownWord(name))
		}
		if err := r.of(kind, f); err != nil {
			return err
		}
	}
	return nil
}

// graphQLParser reads an executable document (GraphQL, section 2).
type graphQLParser struct {
	lex        graphQLLexer
	operations []operation
	fragments  map[string]*selection
}

var errNoDocument = errors.New("has no GraphQL document that can be decided")

func (p *graphQLParser) document() error {
	if err := p.lex.advance(); err != nil {
		return err
	}
	for p.lex.token != "" {
		if err := p.definition(); err != nil {
			return err
		}
	}
	return nil
}

func (p *graphQLParser) definition() error {
	kind := "query"
	switch word := p.lex.token; word {
	case "{":
	case "query", "mutation", "subscription":
		kind = word
		if err := p.header(); err != nil {
			return err
		}
	case "fragment":
		return p.fragment()
	default:
		return errNoDocument
	}
	if len(p.operations) == maxOperations {
		return fmt.Errorf("has a document with more than %d operations", maxOperations)
	}
	s := &selection{}
	p.operations = append(p.operations, operation{kind, s})
	return p.selectionSet(s, 0)
}

// header reads what stands before the selection of an operation.
func (p *graphQLParser) header() error {
	if err := p.lex.advance(); err != nil {
		return err
	}
	if isName(p.lex.token) {
		if err := p.lex.advance(); err != nil {
			return err
		}
	}
	if p.lex.token == "(" {
		if err := p.inside("(", ")", p.variable); err != nil {
			return err
		}
	}
	return p.directives()
}

// variable reads "$name: Type = value @directive".
func (p *graphQLParser) variable() error {
	if err := p.all("$", nameToken, ":"); err != nil {
		return err
	}
	if err := p.typeOf(0); err != nil {
		return err
	}
	if p.lex.token == "=" {
		if err := p.lex.advance(); err != nil {
			return err
		}
		if err := p.value(0); err != nil {
			return err
		}
	}
	return p.directives()
}

func (p *graphQLParser) typeOf(depth int) error {
	if depth > maxGraphQLDepth {
		return errNoDocument
	}
	if p.lex.token == "[" {
		if err := p.all("["); err != nil {
			return err
		}
		if err := p.typeOf(depth + 1); err != nil {
			return err
		}
		if err := p.all("]"); err != nil {
			return err
		}
	} else if err := p.all(nameToken); err != nil {
		return err
	}
	if p.lex.token == "!" {
		return p.lex.advance()
	}
	return nil
}

// fragment reads "fragment Name on Type @directive { ... }".
func (p *graphQLParser) fragment() error {
	if err := p.lex.advance(); err != nil {
		return err
	}
	name := p.lex.token
	if name == "on" || p.fragments[name] != nil {
		return errNoDocument
	}
	if err := p.all(nameToken, "on", nameToken); err != nil {
		return err
	}
	if err := p.directives(); err != nil {
		return err
	}
	s := &selection{}
	p.fragments[name] = s
	return p.selectionSet(s, 0)
}

// selectionSet reads a selection into s; nil is one whose fields do not
// matter.
func (p *graphQLParser) selectionSet(s *selection, depth int) error {
	if depth > maxGraphQLDepth {
		return fmt.Errorf("has a document that is nested deeper than %d levels", maxGraphQLDepth)
	}
	return p.inside("{", "}", func() error { return p.selection(s, depth) })
}

func (p *graphQLParser) selection(s *selection, depth int) error {
	if p.lex.token == "..." {
		return p.spread(s, depth)
	}
	name := p.lex.token
	if err := p.all(nameToken); err != nil {
		return err
	}
	if p.lex.token == ":" { // name was an alias
		if err := p.lex.advance(); err != nil {
			return err
		}
		name = p.lex.token
		if err := p.all(nameToken); err != nil {
			return err
		}
	}
	if s != nil {
		s.fields = append(s.fields, name)
	}
	if p.lex.token == "(" {
		if err := p.inside("(", ")", p.argument); err != nil {
			return err
		}
	}
	if err := p.directives(); err != nil {
		return err
	}
	if p.lex.token == "{" {
		return p.selectionSet(nil, depth+1)
	}
	return nil
}

// spread reads "...Name" or "... on Type { ... }".
func (p *graphQLParser) spread(s *selection, depth int) error {
	if err := p.lex.advance(); err != nil {
		return err
	}
	if name := p.lex.token; isName(name) && name != "on" {
		if s != nil {
			s.spreads = append(s.spreads, name)
		}
		if err := p.lex.advance(); err != nil {
			return err
		}
		return p.directives()
	}
	if p.lex.token == "on" {
		if err := p.all("on", nameToken); err != nil {
			return err
		}
	}
	if err := p.directives(); err != nil {
		return err
	}
	return p.selectionSet(s, depth+1)
}

// argument reads "name: value".
func (p *graphQLParser) argument() error {
	if err := p.all(nameToken, ":"); err != nil {
		return err
	}
	return p.value(0)
}

func (p *graphQLParser) directives() error {
	for p.lex.token == "@" {
		if err := p.all("@", nameToken); err != nil {
			return err
		}
		if p.lex.token == "(" {
			if err := p.inside("(", ")", p.argument); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *graphQLParser) value(depth int) error {
	if depth > maxGraphQLDepth {
		return errNoDocument
	}
	switch t := p.lex.token; {
	case t == "$":
		return p.all("$", nameToken)
	case t == "[" || t == "{":
		if err := p.lex.advance(); err != nil {
			return err
		}
		end := map[string]string{"[": "]", "{": "}"}[t]
		for p.lex.token != end {
			if t == "{" {
				if err := p.all(nameToken, ":"); err != nil {
					return err
				}
			}
			if err := p.value(depth + 1); err != nil {
				return err
			}
		}
		return p.lex.advance()
	case isName(t) || t == stringToken || t == numberToken:
		return p.lex.advance()
	}
	return errNoDocument
}

// inside reads one thing or more between two tokens.
func (p *graphQLParser) inside(open, end string, one func() error) error {
	if err := p.all(open); err != nil {
		return err
	}
	if p.lex.token == end {
		return errNoDocument
	}
	for p.lex.token != end {
		if err := one(); err != nil {
			return err
		}
	}
	return p.lex.advance()
}

// all reads some tokens in a row.
func (p *graphQLParser) all(tokens ...string) error {
	for _, want := range tokens {
		if t := p.lex.token; t != want && !(want == nameToken && isName(t)) {
			return errNoDocument
		}
		if err := p.lex.advance(); err != nil {
			return err
		}
	}
	return nil
}
