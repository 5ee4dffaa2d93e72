package policyfile

import (
	"bytes"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// The HCL parser is recursive and has no limit of its own, and running out of
// stack cannot be recovered from. A policy nests blocks in blocks, a list and
// a string, and has no operators at all.
const (
	maxDepth     = 50
	maxOperators = 1000
)

// tooDeep says whether parsing data could exhaust the stack. A count of bytes
// clears every ordinary file; only one that it does not clear is read token
// by token.
func tooDeep(data []byte, name string) bool {
	depth, deepest, operators := 0, 0, bytes.Count(data, []byte("%{"))
	minus := false
	for _, c := range data {
		switch c {
		case '{', '[', '(':
			depth++
			deepest = max(deepest, depth)
		case '}', ']', ')':
			depth = max(0, depth-1)
		case '?', '!':
			operators++
		case '-':
			if minus {
				operators++
			}
		}
		if c != ' ' && c != '\t' && c != '\n' && c != '\r' {
			minus = c == '-'
		}
	}
	if deepest <= maxDepth && operators <= maxOperators {
		return false
	}
	return deepTokens(data, name)
}

// deepTokens is tooDeep by tokens, so that text and comments do not count.
func deepTokens(data []byte, name string) bool {
	tokens, _ := hclsyntax.LexConfig(data, name, hcl.InitialPos)
	depth, operators := 0, 0
	for _, t := range tokens {
		switch t.Type {
		case hclsyntax.TokenOBrace, hclsyntax.TokenOBrack, hclsyntax.TokenOParen,
			hclsyntax.TokenTemplateInterp, hclsyntax.TokenOQuote, hclsyntax.TokenOHeredoc:
			depth++
		case hclsyntax.TokenCBrace, hclsyntax.TokenCBrack, hclsyntax.TokenCParen,
			hclsyntax.TokenTemplateSeqEnd, hclsyntax.TokenCQuote, hclsyntax.TokenCHeredoc:
			depth = max(0, depth-1)
		case hclsyntax.TokenTemplateControl:
			depth++
			operators++
		case hclsyntax.TokenQuestion, hclsyntax.TokenBang, hclsyntax.TokenMinus:
			operators++
		}
		if depth > maxDepth || operators > maxOperators {
			return true
		}
	}
	return false
}
