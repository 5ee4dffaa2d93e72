package audit

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// export returns the lines of e in a format, without a header.
func export(t *testing.T, f Format, e *Event) string {
	t.Helper()
	var b bytes.Buffer
	x, err := NewExporter(&b, f, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := x.Flush(); err != nil {
		t.Fatal(err)
	}
	b.Reset()
	if err := x.Write(e); err != nil {
		t.Fatal(err)
	}
	if err := x.Flush(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestAUD01ExportsAreOnePlainLine(t *testing.T) {
	for _, s := range hostileText {
		e := hostileEvent(s)
		e.Schema, e.Seq = Schema, 1
		for _, f := range Formats() {
			line := export(t, f, e)
			body, ok := strings.CutSuffix(line, "\n")
			if !ok {
				t.Fatalf("%s: line does not end", f)
			}
			if f == FormatCompact {
				checkPlainLine(t, line)
				continue
			}
			for _, c := range []byte(body) {
				if c < 0x20 || c > 0x7e {
					t.Fatalf("%s: byte %#x in %q", f, c, body)
				}
			}
			switch f {
			case FormatCSV:
				rows, err := csv.NewReader(strings.NewReader(line)).ReadAll()
				if err != nil || len(rows) != 1 || len(rows[0]) != len(csvHeader()) {
					t.Fatalf("%d rows, %v", len(rows), err)
				}
				for _, c := range rows[0] {
					if c != "" && strings.ContainsRune("=+-@\t\r|%", rune(c[0])) {
						t.Fatalf("cell %q is a formula", c)
					}
				}
			default:
				if !json.Valid([]byte(body)) {
					t.Fatalf("%s: %s", f, body)
				}
			}
		}
	}
}

func TestExportJSONIsTheRecord(t *testing.T) {
	l := openTest(t, Options{})
	e := decision()
	if err := l.Write(e); err != nil {
		t.Fatal(err)
	}
	line := lines(t, l.o.Dir)[0]
	got, err := DecodeLine([]byte(line))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(line+"\n", export(t, FormatJSON, got)); diff != "" {
		t.Error(diff)
	}
}

// dig follows names through the objects of a line.
func dig(t *testing.T, line, path string) any {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(line), &v); err != nil {
		t.Fatal(err)
	}
	for name := range strings.SplitSeq(path, "/") {
		o, _ := v.(map[string]any)
		v = o[name]
	}
	return v
}

func TestExportMaps(t *testing.T) {
	e := decision()
	deny := denial("a.test")
	end := decision()
	end.Phase, end.Verdict, end.HTTP.Status, end.Bytes, end.DurationMS = PhaseEnd, "", 200, &Bytes{Sent: 5, Received: 6}, 1.5
	tests := []struct {
		format Format
		event  *Event
		path   string
		want   any
	}{
		{FormatECS, e, "@timestamp", "2023-11-14T22:13:20.000000001Z"},
		{FormatECS, e, "event/outcome", "success"},
		{FormatECS, e, "event/reason", "rule_allow"},
		{FormatECS, e, "event/severity", 1.0},
		{FormatECS, e, "source/ip", "10.77.4.2"},
		{FormatECS, e, "destination/domain", "api.github.com"},
		{FormatECS, e, "url/path", "/repos/acme/app/pulls"},
		{FormatECS, e, "http/request/method", "GET"},
		{FormatECS, e, "user_agent/original", "git/2.47"},
		{FormatECS, e, "sallyport/sandbox/name", "ci"},
		{FormatECS, e, "sallyport/rule/line", 12.0},
		{FormatECS, deny, "event/outcome", "failure"},
		{FormatECS, deny, "dns/question/name", "a.test"},
		{FormatECS, end, "http/response/status_code", 200.0},
		{FormatECS, end, "source/bytes", 5.0},
		{FormatECS, end, "event/duration", 1500000.0},
		{FormatOCSF, e, "class_uid", 4002.0},
		{FormatOCSF, e, "activity_id", 3.0},
		{FormatOCSF, e, "type_uid", 400203.0},
		{FormatOCSF, e, "action_id", 1.0},
		{FormatOCSF, e, "time", 1700000000000.0},
		{FormatOCSF, e, "src_endpoint/name", "ci"},
		{FormatOCSF, e, "dst_endpoint/hostname", "api.github.com"},
		{FormatOCSF, e, "http_request/url/path", "/repos/acme/app/pulls"},
		{FormatOCSF, deny, "class_uid", 4003.0},
		{FormatOCSF, deny, "disposition_id", 2.0},
		{FormatOCSF, deny, "query/hostname", "a.test"},
		{FormatOCSF, deny, "severity_id", 3.0},
		{FormatOCSF, end, "http_response/code", 200.0},
		{FormatOCSF, end, "traffic/bytes_out", 5.0},
	}
	for _, test := range tests {
		if got := dig(t, export(t, test.format, test.event), test.path); got != test.want {
			t.Errorf("%s %s = %v, want %v", test.format, test.path, got, test.want)
		}
	}
}

func TestExportCSVIsForPeople(t *testing.T) {
	e := denial("")
	e.Reason, e.DNS.QName = "bad_hostname", "bad name.test"
	e.Rule = &Rule{ID: `sandbox "ci" allow "a.test"`}
	e.Secrets = []SecretUse{{Name: "A", Action: "injected"}, {Name: "B", Action: "masked"}}
	var b bytes.Buffer
	x, err := NewExporter(&b, FormatCSV, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(x.Write(e), x.Flush()); err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(&b).ReadAll()
	if err != nil || len(rows) != 2 {
		t.Fatalf("%v, %v", rows, err)
	}
	for column, want := range map[string]string{"host": "bad name.test", "rule": `sandbox "ci" allow "a.test"`, "secrets": "injected A; masked B"} {
		if got := rows[1][slices.Index(rows[0], column)]; got != want {
			t.Errorf("%s = %q, want %q", column, got, want)
		}
	}
}

func TestExportUnknownFormat(t *testing.T) {
	if _, err := NewExporter(nil, "xml", false); err == nil || !strings.Contains(err.Error(), "csv") {
		t.Errorf("error %v, want the formats", err)
	}
}
