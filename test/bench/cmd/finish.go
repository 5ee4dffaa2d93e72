//go:build linux

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"sallyport/test/bench/report"
)

// outcome is what a run is for, besides its tables.
type outcome struct {
	results  string // folder of RESULTS.md and speed.svg
	readme   string // file with a place for a summary
	baseline string // file
	check    bool
	keep     bool
	share    float64 // by which a ratio may be worse
}

// finish says what was reached, and writes and compares what is asked for.
func (b *bench) finish(o outcome) error {
	fmt.Fprint(b.out, "\n### Targets\n\n")
	b.samples.Verdicts(b.out, report.Targets())
	switch whole := len(b.only) == 0 && len(b.peers) == 0 && !b.quick; {
	case o.results != "" && !whole:
		fmt.Fprintf(b.out, "\n# %s is written by a run of everything\n", filepath.Join(o.results, "RESULTS.md"))
	case o.results != "":
		if err := errors.Join(b.write(o.results), b.summarise(o.readme)); err != nil {
			return err
		}
	}
	if o.keep {
		return b.samples.Baseline().Write(o.baseline)
	}
	if o.check {
		return b.compare(o)
	}
	return nil
}

// compare holds the run against the baseline. What is worse is measured again,
// with as many rounds more, before it counts.
func (b *bench) compare(o outcome) error {
	was, err := report.ReadBaseline(o.baseline)
	if err != nil {
		return err
	}
	_, worse := was.Compare(b.samples.Baseline(), o.share)
	if len(worse) > 0 {
		fmt.Fprintf(b.out, "\n# %s: worse than it was; measured again\n", strings.Join(worse, ", "))
		b.only, b.first = worse, b.options.rounds
		if err := b.run(); err != nil {
			return err
		}
	}
	lines, worse := was.Compare(b.samples.Baseline(), o.share)
	fmt.Fprintf(b.out, "\n%s\n", strings.Join(lines, "\n"))
	if len(worse) > 0 {
		return errors.New("slower than it was; see above. If that is meant, make bench-check KEEP=1 keeps the new ratios")
	}
	return nil
}

// write writes RESULTS.md and the picture.
func (b *bench) write(dir string) error {
	var text bytes.Buffer
	fmt.Fprintf(&text, "# What was measured\n\nWritten by `make bench`, %s: %d rounds of %v; see the README's section on speed.\n\n", time.Now().UTC().Format(time.DateOnly), b.options.rounds, b.length)
	fmt.Fprintf(&text, "%s\n\nCPU is that of the peer's own processes, for each request. A ratio is the median of the ratios of single rounds, in which\n"+
		"all peers were measured one after another. Beside each row stands how many CPUs other programs of the machine used meanwhile,\n"+
		"and its load average. sallyport has its policy, one secret that is put in, and its audit log, always.\n\n## Targets\n\n", b.machine())
	b.samples.Verdicts(&text, report.Targets())
	titles := map[string]string{}
	for _, w := range workloads() {
		if len(b.samples.Peers(w.id)) == 0 {
			continue
		}
		b.samples.Table(&text, w.id, w.title, w.metrics, w.ratio, w.to)
		if w.drawn {
			titles[w.id] = w.id + ": " + w.title
		}
	}
	picture, err := os.Create(filepath.Join(dir, "speed.svg"))
	if err != nil {
		return err
	}
	defer picture.Close()
	return errors.Join(report.Picture(picture, "CPU time for each request, as a multiple of nginx's", "nginx", b.samples.Groups(titles, "nginx")),
		os.WriteFile(filepath.Join(dir, "RESULTS.md"), text.Bytes(), 0o644))
}

// summarise puts the figures that say most into a document.
func (b *bench) summarise(path string) error {
	if path == "" {
		return nil
	}
	document, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var web, names []report.Line
	for _, w := range workloads() {
		switch line := (report.Line{Workload: w.id, Title: w.title, Metric: w.summary}); {
		case w.summary == "":
		case slices.Contains(w.peers, "dnsmasq"):
			names = append(names, line)
		default:
			web = append(web, line)
		}
	}
	column := func(name string, peers ...string) report.Column {
		return report.Column{Name: name, Peers: append(peers, name)}
	}
	ours := column("sallyport", "sallyport-netns", "sallyport-100k-netns")
	var text bytes.Buffer
	b.samples.Summary(&text, web, []report.Column{column("direct"), column("splice"), column("nginx"), column("haproxy"), ours,
		column("goproxy", "goproxy-h2"), column("nethttp"), column("squid"), column("mitmproxy")})
	text.WriteString("\n")
	b.samples.Summary(&text, names, []report.Column{column("dnsmasq"), column("unbound"), ours})
	document, err = report.Insert(document, "make bench", text.Bytes())
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return os.WriteFile(path, document, 0o644)
}

// machine says where the figures are from.
func (b *bench) machine() string {
	model := "an unknown CPU"
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		if m := regexp.MustCompile(`model name\s*: (.+)`).FindSubmatch(text); m != nil {
			model = string(m[1])
		}
	}
	var name unix.Utsname
	_ = unix.Uname(&name) // never fails for this process
	kernel := regexp.MustCompile(`^\d+\.\d+`).FindString(unix.ByteSliceToString(name.Release[:]))
	line := fmt.Sprintf("%d CPUs (%s), Linux %s, %s", runtime.NumCPU(), model, kernel, runtime.Version())
	for _, v := range [][]string{{b.world.Binary, "version"}, {"nginx", "-v"}, {"haproxy", "-v"}, {"squid", "-v"}, {"mitmdump", "--version"}, {"dnsmasq", "-v"}, {"unbound", "-V"}} {
		if s := version(v); s != "" {
			line += "; " + s
		}
	}
	return line + "."
}

// version is the first line of what a program says of itself; "" if it is not
// there.
func version(argv []string) string {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), "PATH="+os.Getenv("PATH")+":/usr/sbin:/sbin")
	if path, err := exec.LookPath(argv[0]); err == nil {
		cmd.Path, cmd.Err = path, nil
	} else if _, err := os.Stat("/usr/sbin/" + argv[0]); err == nil {
		cmd.Path, cmd.Err = "/usr/sbin/"+argv[0], nil
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		return ""
	}
	first, _, _ := strings.Cut(string(out), "\n")
	number := regexp.MustCompile(`\d+\.\d[\w.+-]*`).FindString(first)
	if words := strings.Fields(first); filepath.Base(argv[0]) == "sallyport" && len(words) > 1 {
		number = words[1] // which may be a commit
	}
	return strings.TrimSpace(filepath.Base(argv[0]) + " " + number)
}
