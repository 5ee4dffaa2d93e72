// Command table runs the corpus and prints a line for each case: its number,
// its title and whether it passed. It exits 1 when one did not.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"

	"sallyport/test/corpus"
)

func main() {
	results, err := run(os.Args[1:])
	if err == nil {
		err = runElsewhere(os.Args[1:], results)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "table:", err)
		os.Exit(1)
	}
	if !print(os.Stdout, results) {
		os.Exit(1)
	}
}

// run runs the package's tests, with more arguments for the go command, and
// returns the outcome of each case that has one.
func run(args []string) (map[string]string, error) {
	results, err := goTest(append(args, "sallyport/test/corpus"), Case)
	if err == nil && len(results) == 0 {
		err = fmt.Errorf("no test ran; the corpus needs root")
	}
	return results, err
}

// runElsewhere adds the outcomes of the cases whose tests are all in other
// packages.
func runElsewhere(args []string, results map[string]string) error {
	for id, where := range corpus.Elsewhere() {
		if _, ran := results[id]; ran {
			continue
		}
		for pkg, tests := range Places(where) {
			argv := append(slices.Clone(args), "-run", "^("+strings.Join(tests, "|")+")$", "sallyport/"+pkg)
			outcomes, err := goTest(argv, func(test string) (string, bool) { return test, true })
			if err != nil {
				return err
			}
			for _, test := range tests {
				if outcomes[test] != "pass" {
					results[id] = "fail"
				} else if results[id] == "" {
					results[id] = "pass"
				}
			}
		}
	}
	return nil
}

// Places returns the tests that a text of corpus.Elsewhere names, by package.
func Places(where string) map[string][]string {
	out := map[string][]string{}
	for _, place := range strings.Split(where, "; ") {
		pkg, tests, _ := strings.Cut(place, ": ")
		for _, test := range strings.Split(tests, ", ") {
			if strings.HasPrefix(test, "Test") {
				out[pkg] = append(out[pkg], test)
			}
		}
	}
	return out
}

// goTest runs tests with the arguments for the go command and returns the
// outcome of each by the name that called gives it.
func goTest(args []string, called func(test string) (string, bool)) (map[string]string, error) {
	cmd := exec.Command("go", append([]string{"test", "-json", "-count=1"}, args...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	results, err := read(out, called)
	_ = cmd.Wait() // a failed test is in the results
	return results, err
}

// event is a line of `go test -json`.
type event struct {
	Action, Test, Output string
}

// read follows the tests and passes on what failed ones say.
func read(r io.Reader, called func(test string) (string, bool)) (map[string]string, error) {
	results, said := map[string]string{}, map[string][]string{}
	sc := bufio.NewScanner(r)
	sc.Buffer(nil, 16<<20)
	for sc.Scan() {
		var e event
		if err := json.Unmarshal(sc.Bytes(), &e); err != nil {
			continue // what a build says
		}
		top, _, _ := strings.Cut(e.Test, "/")
		if e.Action == "output" {
			said[top] = append(said[top], e.Output)
		}
		if e.Test == "" || e.Test != top || e.Action != "pass" && e.Action != "fail" && e.Action != "skip" {
			continue
		}
		if e.Action != "pass" {
			fmt.Fprint(os.Stderr, strings.Join(said[top], ""))
		}
		if id, ok := called(e.Test); ok && results[id] != "fail" {
			results[id] = e.Action
		}
	}
	return results, sc.Err()
}

// Case returns the number of the case that a test covers: POL-01 of
// TestPOL01SuffixBoundary.
func Case(test string) (string, bool) {
	m := regexp.MustCompile(`^Test([A-Z]+[0-9]?|H[12])([0-9]{2})`).FindStringSubmatch(test)
	if m == nil {
		return "", false
	}
	id := m[1] + "-" + m[2]
	_, ok := corpus.Titles()[id]
	return id, ok
}

// print writes the table, and says whether every case passed.
func print(w io.Writer, results map[string]string) bool {
	ok := true
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	for _, id := range slices.Sorted(maps.Keys(corpus.Titles())) {
		result, ran := results[id]
		if !ran {
			result = "MISSING"
		}
		ok = ok && result == "pass"
		fmt.Fprintf(tw, "%s\t%s\t%s\n", id, corpus.Titles()[id], result)
	}
	return tw.Flush() == nil && ok
}
