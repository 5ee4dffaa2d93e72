package policyfile

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/function"
)

// functions are what an expression may call. Each depends on its arguments
// alone, and none makes a value larger than a policy may have.
func functions() map[string]function.Function {
	text := func(f func(string) string) function.Function {
		return textFunction(1, func(a []string) (string, error) { return f(a[0]), nil })
	}
	return map[string]function.Function{
		"lower": text(strings.ToLower),
		"upper": text(strings.ToUpper),
		"trimprefix": textFunction(2, func(a []string) (string, error) {
			return strings.TrimPrefix(a[0], a[1]), nil
		}),
		"trimsuffix": textFunction(2, func(a []string) (string, error) {
			return strings.TrimSuffix(a[0], a[1]), nil
		}),
		"replace": textFunction(3, func(a []string) (string, error) {
			if a[1] == "" {
				return "", errors.New("there is nothing to replace")
			}
			if n := strings.Count(a[0], a[1]); len(a[0])+n*len(a[2]) > maxText+n*len(a[1]) {
				return "", errors.New("the text becomes too long")
			}
			return strings.ReplaceAll(a[0], a[1], a[2]), nil
		}),
		"join":     dynamic(2, joinFunction),
		"split":    dynamic(2, splitFunction),
		"length":   dynamic(1, lengthFunction),
		"contains": dynamic(2, containsFunction),
		"lookup":   dynamic(3, lookupFunction),
		"keys":     dynamic(1, keysFunction),
		"values":   dynamic(1, valuesFunction),
		"sort":     dynamic(1, sortFunction),
		"distinct": dynamic(1, distinctFunction),
		"flatten":  dynamic(1, flattenFunction),
		"concat":   dynamic(-1, concatFunction),
		"merge":    dynamic(-1, mergeFunction),
	}
}

// textFunction is a function of n strings.
func textFunction(n int, f func([]string) (string, error)) function.Function {
	spec := &function.Spec{Type: function.StaticReturnType(cty.String)}
	for range n {
		spec.Params = append(spec.Params, function.Parameter{Name: "text", Type: cty.String})
	}
	spec.Impl = func(args []cty.Value, _ cty.Type) (cty.Value, error) {
		in := make([]string, len(args))
		for i, a := range args {
			if in[i] = a.AsString(); len(in[i]) > maxText {
				return cty.NilVal, errors.New("the text is too long")
			}
		}
		out, err := f(in)
		return cty.StringVal(out), err
	}
	return function.New(spec)
}

// dynamic is a function of n values of any type, of any number when n is -1.
func dynamic(n int, f func([]cty.Value) (cty.Value, error)) function.Function {
	param := function.Parameter{Name: "value", Type: cty.DynamicPseudoType}
	spec := &function.Spec{
		Type: func(args []cty.Value) (cty.Type, error) {
			if slices.ContainsFunc(args, func(v cty.Value) bool { return !v.IsWhollyKnown() }) {
				return cty.DynamicPseudoType, nil
			}
			v, err := f(args)
			if err != nil {
				return cty.NilType, err
			}
			return v.Type(), nil
		},
		Impl: func(args []cty.Value, _ cty.Type) (cty.Value, error) { return f(args) },
	}
	for range n {
		spec.Params = append(spec.Params, param)
	}
	if n < 0 {
		spec.VarParam = &param
	}
	return function.New(spec)
}

// elementsOf returns the elements of a list, set or tuple.
func elementsOf(v cty.Value) ([]cty.Value, error) {
	if v.IsNull() || !v.CanIterateElements() || v.Type().IsMapType() || v.Type().IsObjectType() {
		return nil, errors.New("a list is needed")
	}
	var out []cty.Value
	for it := v.ElementIterator(); it.Next(); {
		_, x := it.Element()
		if out = append(out, x); len(out) > maxElements {
			return nil, fmt.Errorf("a list has more than %d elements", maxElements)
		}
	}
	return out, nil
}

// textsOf returns the elements of a list of strings.
func textsOf(v cty.Value) ([]string, error) {
	list, err := elementsOf(v)
	if err != nil {
		return nil, err
	}
	out := make([]string, len(list))
	for i, x := range list {
		if !isType(x, cty.String) {
			return nil, errors.New("a list of strings is needed")
		}
		out[i] = x.AsString()
	}
	return out, nil
}

func tuple(list []cty.Value) (cty.Value, error) {
	if len(list) > maxElements {
		return cty.NilVal, fmt.Errorf("a list has more than %d elements", maxElements)
	}
	if len(list) == 0 {
		return cty.EmptyTupleVal, nil
	}
	return cty.TupleVal(list), nil
}

func tupleOf(list []string) (cty.Value, error) {
	out := make([]cty.Value, len(list))
	for i, s := range list {
		out[i] = cty.StringVal(s)
	}
	return tuple(out)
}

func joinFunction(args []cty.Value) (cty.Value, error) {
	list, err := textsOf(args[1])
	if err != nil || !isType(args[0], cty.String) {
		return cty.NilVal, errors.New("join needs a string and a list of strings")
	}
	size := len(list) * len(args[0].AsString())
	for _, s := range list {
		size += len(s)
	}
	if size > maxText {
		return cty.NilVal, errors.New("the text becomes too long")
	}
	return cty.StringVal(strings.Join(list, args[0].AsString())), nil
}

func splitFunction(args []cty.Value) (cty.Value, error) {
	if !isType(args[0], cty.String) || !isType(args[1], cty.String) || args[0].AsString() == "" {
		return cty.NilVal, errors.New("split needs two strings, the first not empty")
	}
	return tupleOf(strings.Split(args[1].AsString(), args[0].AsString()))
}

func lengthFunction(args []cty.Value) (cty.Value, error) {
	v := args[0]
	switch {
	case isType(v, cty.String):
		return cty.NumberIntVal(int64(len(v.AsString()))), nil
	case !v.IsNull() && v.CanIterateElements():
		return cty.NumberIntVal(int64(v.LengthInt())), nil
	}
	return cty.NilVal, errors.New("only a text, a list and a map have a length")
}

func containsFunction(args []cty.Value) (cty.Value, error) {
	list, err := elementsOf(args[0])
	if err != nil {
		return cty.NilVal, err
	}
	return cty.BoolVal(slices.ContainsFunc(list, func(v cty.Value) bool { return v.RawEquals(args[1]) })), nil
}

// mapOf returns the entries of a map or object.
func mapOf(v cty.Value) (map[string]cty.Value, error) {
	if v.IsNull() || !v.Type().IsMapType() && !v.Type().IsObjectType() {
		return nil, errors.New("a map is needed")
	}
	return v.AsValueMap(), nil
}

func lookupFunction(args []cty.Value) (cty.Value, error) {
	m, err := mapOf(args[0])
	if err != nil || !isType(args[1], cty.String) {
		return cty.NilVal, errors.New("lookup needs a map, a key and a default")
	}
	if v, ok := m[args[1].AsString()]; ok {
		return v, nil
	}
	return args[2], nil
}

func keysFunction(args []cty.Value) (cty.Value, error) {
	m, err := mapOf(args[0])
	if err != nil {
		return cty.NilVal, err
	}
	var out []string
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return tupleOf(out)
}

func valuesFunction(args []cty.Value) (cty.Value, error) {
	m, err := mapOf(args[0])
	if err != nil {
		return cty.NilVal, err
	}
	names, _ := keysFunction(args) // it is a map
	var out []cty.Value
	for it := names.ElementIterator(); it.Next(); {
		_, k := it.Element()
		out = append(out, m[k.AsString()])
	}
	return tuple(out)
}

func sortFunction(args []cty.Value) (cty.Value, error) {
	list, err := textsOf(args[0])
	if err != nil {
		return cty.NilVal, err
	}
	slices.Sort(list)
	return tupleOf(list)
}

func distinctFunction(args []cty.Value) (cty.Value, error) {
	list, err := textsOf(args[0])
	if err != nil {
		return cty.NilVal, err
	}
	seen := map[string]bool{}
	return tupleOf(slices.DeleteFunc(list, func(s string) bool {
		was := seen[s]
		seen[s] = true
		return was
	}))
}

func flattenFunction(args []cty.Value) (cty.Value, error) {
	list, err := elementsOf(args[0])
	if err != nil {
		return cty.NilVal, err
	}
	var out []cty.Value
	for _, v := range list {
		inner, err := elementsOf(v)
		if err != nil {
			inner = []cty.Value{v}
		}
		if out = append(out, inner...); len(out) > maxElements {
			break
		}
	}
	return tuple(out)
}

func concatFunction(args []cty.Value) (cty.Value, error) {
	var out []cty.Value
	for _, a := range args {
		list, err := elementsOf(a)
		if err != nil {
			return cty.NilVal, err
		}
		if out = append(out, list...); len(out) > maxElements {
			break
		}
	}
	return tuple(out)
}

func mergeFunction(args []cty.Value) (cty.Value, error) {
	out := map[string]cty.Value{}
	for _, a := range args {
		m, err := mapOf(a)
		if err != nil {
			return cty.NilVal, err
		}
		for k, v := range m {
			out[k] = v
		}
		if len(out) > maxElements {
			return cty.NilVal, fmt.Errorf("a map has more than %d entries", maxElements)
		}
	}
	return object(out), nil
}
