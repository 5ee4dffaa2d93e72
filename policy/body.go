package policy

import (
	"errors"
	"fmt"
	"strings"
)

// bodyForm is what the body of a request is taken for.
type bodyForm uint8

const (
	bodyGraphQL bodyForm = iota + 1 // GraphQL over HTTP
	bodyJSONRPC                     // JSON-RPC 2.0, as MCP speaks it
)

// BodyForms are forms that a body may be taken for. The zero value is none.
type BodyForms uint8

// AnyBodyForm is every form.
const AnyBodyForm = BodyForms(1<<bodyGraphQL | 1<<bodyJSONRPC)

// has reports whether a form is among them.
func (s BodyForms) has(f bodyForm) bool { return s&(1<<f) != 0 }

// maxBodyItems bounds what one body may ask for.
const maxBodyItems = 1024

var errManyItems = fmt.Errorf("asks for more than %d things", maxBodyItems)

// String names the form in messages.
func (f bodyForm) String() string {
	if f == bodyGraphQL {
		return "GraphQL"
	}
	return "JSON-RPC"
}

// bodyItem is one thing that a body asks for: a root field of a GraphQL
// operation, or a JSON-RPC message.
type bodyItem struct {
	word     string // query, mutation or subscription; the method of a call
	part     string // the root field; the tool of tools/call
	response bool   // JSON-RPC: it answers what the server asked
}

// Body is what the body of a request asks for, as far as rules look at it.
// The zero value cannot be read as anything.
type Body struct {
	size  int64 // bytes
	forms [bodyJSONRPC + 1]bodyReading
}

// bodyReading is a body taken for one form.
type bodyReading struct {
	items []bodyItem // at least one, when fault is ""
	fault string     // why it cannot be decided: "is ..."
}

// ReadBody reads a whole body, decoded from its content codings, as the
// conditions of rules look at it, for the forms that a decision asked for.
// contentType is the request's Content-Type fields.
func ReadBody(contentType []string, data []byte, forms BodyForms) *Body {
	if fault := bodyType(contentType); fault != "" {
		return UnreadBody(fault)
	}
	v, err := readJSON(data)
	if err != nil {
		return UnreadBody(err.Error())
	}
	b := UnreadBody("was read for another form")
	b.size = int64(len(data))
	if forms.has(bodyGraphQL) {
		b.forms[bodyGraphQL] = readGraphQL(&v)
	}
	if forms.has(bodyJSONRPC) {
		b.forms[bodyJSONRPC] = readJSONRPC(&v)
	}
	return b
}

// UnreadBody is a body of which nothing is known. why follows "the body", as
// in "is compressed".
func UnreadBody(why string) *Body {
	b := &Body{}
	for f := range b.forms {
		b.forms[f].fault = why
	}
	return b
}

// bodyType says what of a Content-Type is not JSON in UTF-8.
func bodyType(contentType []string) (fault string) {
	if len(contentType) != 1 {
		return "has not one Content-Type"
	}
	kind, param, _ := strings.Cut(contentType[0], ";")
	if strings.ContainsFunc(contentType[0], func(c rune) bool { return c >= 0x7f }) || // letters that fold to ASCII
		!strings.EqualFold(strings.Trim(kind, " \t"), "application/json") {
		return "is not application/json"
	}
	// By the letter: parsers differ in what they make of any other parameter,
	// of continued and encoded ones most.
	switch strings.ToLower(strings.Trim(param, " \t")) {
	case "", "charset=utf-8", `charset="utf-8"`:
		return ""
	}
	return "is not plain application/json in UTF-8"
}

// each reads a message, or every message of a batch.
func each(v *jsonValue, read func(*jsonValue) ([]bodyItem, error)) bodyReading {
	list := []jsonValue{*v}
	if v.kind == jsonArray {
		list = v.list
	}
	var out bodyReading
	for i := range list {
		items, err := read(&list[i])
		if err != nil {
			return bodyReading{fault: err.Error()}
		}
		if len(out.items)+len(items) > maxBodyItems {
			return bodyReading{fault: errManyItems.Error()}
		}
		out.items = append(out.items, items...)
	}
	if len(out.items) == 0 {
		out.fault = "is an empty batch"
	}
	return out
}

// readJSONRPC reads a JSON-RPC message or a batch.
func readJSONRPC(v *jsonValue) bodyReading {
	return each(v, func(m *jsonValue) ([]bodyItem, error) {
		item, err := rpcMessage(m)
		return []bodyItem{item}, err
	})
}

func rpcMessage(m *jsonValue) (bodyItem, error) {
	if m.kind != jsonObject {
		return bodyItem{}, errNoMessage
	}
	var part [4]*jsonValue
	for i, key := range []string{"method", "params", "result", "error"} {
		var err error
		if part[i], err = m.member(key); err != nil {
			return bodyItem{}, err
		}
	}
	method, params, result, failure := part[0], part[1], part[2], part[3]
	switch {
	case method == nil && params == nil && (result == nil) != (failure == nil):
		return bodyItem{response: true}, nil
	case method == nil || method.kind != jsonString || result != nil || failure != nil:
		return bodyItem{}, errNoMessage
	}
	item := bodyItem{word: method.text}
	if !isToolCall(item.word) || params == nil || params.kind != jsonObject {
		return item, nil
	}
	name, err := params.member("name")
	if err == nil && name != nil && name.kind == jsonString {
		item.part = name.text
	}
	return item, err
}

var errNoMessage = errors.New("is not a JSON-RPC message")

// isToolCall reports whether some server takes a method for MCP's call of a
// tool.
func isToolCall(method string) bool { return strings.EqualFold(method, toolCall) }

const toolCall = "tools/call"

// readGraphQL reads a GraphQL request or a batch.
func readGraphQL(v *jsonValue) bodyReading { return each(v, graphQLRequest) }

// graphQLRequest reads one request. What else than its document could say
// what is executed is an error: a server may look there first.
func graphQLRequest(m *jsonValue) ([]bodyItem, error) {
	if m.kind != jsonObject {
		return nil, errors.New("is not a GraphQL request")
	}
	document := ""
	for i := range m.members {
		switch x := &m.members[i]; x.key {
		case "query":
			if x.value.kind != jsonString {
				return nil, errors.New("has no document: query is not a string")
			}
			document = x.value.text
		case "variables", "operationName":
		case "extensions":
			if err := plainExtensions(&x.value); err != nil {
				return nil, err
			}
		default:
			return nil, fmt.Errorf("has the key %s, which is not of a GraphQL request with a document of its own", shownWord(x.key))
		}
	}
	if document == "" {
		return nil, errors.New("has no document (a persisted query cannot be decided)")
	}
	return readDocument(document)
}

// plainExtensions takes what clients say of themselves and nothing that could
// name another document.
func plainExtensions(v *jsonValue) error {
	switch v.kind {
	case jsonNull:
		return nil
	case jsonObject:
		for i := range v.members {
			if key := v.members[i].key; key != "clientLibrary" {
				return fmt.Errorf("has the extension %s (a persisted query cannot be decided)", shownWord(key))
			}
		}
		return nil
	}
	return errors.New("has extensions that are not an object")
}
