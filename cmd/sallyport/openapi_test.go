package main

import (
	"encoding/json"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sallyport/audit"
)

// apiTypes are the bodies of the control API, by their name in the OpenAPI file.
func apiTypes() map[string]reflect.Type {
	return map[string]reflect.Type{
		"Error":     reflect.TypeFor[apiError](),
		"Fault":     reflect.TypeFor[apiFault](),
		"Rule":      reflect.TypeFor[jsonRule](),
		"Sandbox":   reflect.TypeFor[apiSandbox](),
		"Narrow":    reflect.TypeFor[apiNarrowed](),
		"Attach":    reflect.TypeFor[apiAttach](),
		"Ready":     reflect.TypeFor[apiReady](),
		"Secret":    reflect.TypeFor[apiSecret](),
		"Policy":    reflect.TypeFor[apiPlan](),
		"Plan":      reflect.TypeFor[plan](),
		"Apply":     reflect.TypeFor[apiApply](),
		"Applied":   reflect.TypeFor[apiApplied](),
		"InForce":   reflect.TypeFor[apiPolicy](),
		"Effective": reflect.TypeFor[apiEffective](),
		"Live":      reflect.TypeFor[planLive](),
		"Change":    reflect.TypeFor[jsonChange](),
		"Alerts":    reflect.TypeFor[apiAlerts](),
		"Alert":     reflect.TypeFor[audit.Alert](),
		"Mute":      reflect.TypeFor[audit.Mute](),
		"Sink":      reflect.TypeFor[apiSink](),
		"NewMute":   reflect.TypeFor[apiMute](),
	}
}

// schemaOf is the JSON schema of what encoding/json makes of a type.
func schemaOf(t reflect.Type) map[string]any {
	for name, known := range apiTypes() {
		if t == known {
			return map[string]any{"$ref": "#/components/schemas/" + name}
		}
	}
	switch {
	case t == reflect.TypeFor[time.Time]():
		return map[string]any{"type": "string", "format": "date-time"}
	case t == reflect.TypeFor[json.RawMessage](), t == reflect.TypeFor[audit.Event]():
		return map[string]any{"type": "object"}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return schemaOf(t.Elem())
	case reflect.Slice:
		return map[string]any{"type": "array", "items": schemaOf(t.Elem())}
	case reflect.Map:
		return map[string]any{"type": "object", "additionalProperties": schemaOf(t.Elem())}
	case reflect.Struct:
		return objectOf(t)
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.String:
		return map[string]any{"type": "string"}
	}
	return map[string]any{"type": "integer"}
}

func objectOf(t reflect.Type) map[string]any {
	properties, required := map[string]any{}, []any{}
	for i := range t.NumField() {
		if t.Field(i).Anonymous {
			inner := objectOf(t.Field(i).Type)
			for name, schema := range inner["properties"].(map[string]any) {
				properties[name] = schema
			}
			if list, ok := inner["required"].([]any); ok {
				required = append(required, list...)
			}
			continue
		}
		name, options, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		properties[name] = schemaOf(t.Field(i).Type)
		if !strings.Contains(options, "omit") {
			required = append(required, name)
		}
	}
	out := map[string]any{"type": "object", "properties": properties}
	if len(required) > 0 {
		out["required"] = required
	}
	return out
}

// TestOpenAPI holds the OpenAPI file against the server: every call and no
// other, and every body as the server's own types have it.
func TestOpenAPI(t *testing.T) {
	b, err := os.ReadFile("../../examples/openapi/sallyport.json")
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		OpenAPI    string `json:"openapi"`
		Paths      map[string]map[string]map[string]any
		Components struct{ Schemas map[string]any }
	}
	if err := json.Unmarshal(b, &doc); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(doc.OpenAPI, "3.1.") {
		t.Errorf("version %q", doc.OpenAPI)
	}
	want := map[string]any{}
	for name, typ := range apiTypes() {
		want[name] = objectOf(typ)
	}
	if diff := cmp.Diff(want, doc.Components.Schemas); diff != "" {
		t.Errorf("schemas (-server +file):\n%s", diff)
	}
	var served, described []string
	for pattern := range (&control{}).calls() {
		served = append(served, pattern)
	}
	for path, methods := range doc.Paths {
		for method, call := range methods {
			described = append(described, strings.ToUpper(method)+" "+path)
			if call["summary"] == "" || call["responses"] == nil {
				t.Errorf("%s %s says nothing", method, path)
			}
		}
	}
	slices.Sort(served)
	slices.Sort(described)
	if diff := cmp.Diff(served, described); diff != "" {
		t.Errorf("calls (-server +file):\n%s", diff)
	}
	// Every reference leads somewhere.
	for _, part := range strings.Split(string(b), `"$ref": "`)[1:] {
		ref, _, _ := strings.Cut(part, `"`)
		if doc.Components.Schemas[strings.TrimPrefix(ref, "#/components/schemas/")] == nil {
			t.Errorf("%s leads nowhere", ref)
		}
	}
}
