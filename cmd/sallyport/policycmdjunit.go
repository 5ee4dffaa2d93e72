package main

import (
	"encoding/xml"
	"fmt"
	"os"
	"strings"
)

// junitSuite and junitCase are the report that continuous integration reads.
type junitSuite struct {
	XMLName  xml.Name    `xml:"testsuite"`
	Name     string      `xml:"name,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Time     string      `xml:"time,attr"` // seconds
	Cases    []junitCase `xml:"testcase"`
}

type junitCase struct {
	Name    string        `xml:"name,attr"`
	Class   string        `xml:"classname,attr"`
	File    string        `xml:"file,attr"`
	Line    int           `xml:"line,attr"`
	Time    string        `xml:"time,attr"`
	Failure *junitFailure `xml:"failure,omitempty"`
}

type junitFailure struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"`
}

// writeJUnit writes the results of tests as a JUnit report.
func writeJUnit(path string, results []testResult) error {
	suite := junitSuite{Name: "sallyport policy test", Tests: len(results)}
	total := 0.0
	for _, r := range results {
		c := junitCase{Name: r.test.Name, Class: r.test.Sandbox, File: r.test.Pos.File, Line: r.test.Pos.Line, Time: fmt.Sprintf("%.6f", r.took.Seconds())}
		total += r.took.Seconds()
		if len(r.failures) > 0 {
			suite.Failures++
			var text strings.Builder
			for _, x := range r.failures {
				text.WriteString(x.text())
			}
			first := r.failures[0]
			c.Failure = &junitFailure{Text: text.String(),
				Message: fmt.Sprintf("%s %s: want %s, got %s (%s)", first.request.Method, first.request.URL, first.want, first.got.decision.Verdict, first.got.decision.Reason)}
		}
		suite.Cases = append(suite.Cases, c)
	}
	suite.Time = fmt.Sprintf("%.6f", total)
	data, err := xml.MarshalIndent(suite, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append([]byte(xml.Header), append(data, '\n')...), 0o644)
}
