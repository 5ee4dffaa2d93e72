package report

import (
	"fmt"
	"html"
	"io"
	"math"
	"slices"
	"strings"
)

// Bar is one bar of a picture.
type Bar struct {
	Label string
	Value float64 // times what the picture compares with
	Ours  bool
}

// Group is a set of bars with a title.
type Group struct {
	Title string
	Bars  []Bar
}

// Groups are the CPU ratios of a run to a peer, a group for each workload.
func (s Samples) Groups(titles map[string]string, to string) []Group {
	var out []Group
	for _, w := range s.Workloads() {
		g := Group{Title: titles[w]}
		for _, p := range s.Peers(w) {
			v := s.Ratio(w, p, to, CPU)
			if math.IsNaN(v) || v <= 0 || p == to || titles[w] == "" {
				continue
			}
			g.Bars = append(g.Bars, Bar{p, v, isOurs(p)})
		}
		slices.SortStableFunc(g.Bars, func(a, b Bar) int { return int(math.Copysign(1, a.Value-b.Value)) })
		if len(g.Bars) > 0 {
			out = append(out, g)
		}
	}
	return out
}

// Measures of the picture, in pixels.
const (
	left, right, width = 160, 60, 860
	rowHeight          = 19
	titleHeight        = 34
)

// style is for a light page and a dark one: the picture has no ground of its
// own.
const style = `<style>
text { font: 13px system-ui, sans-serif; fill: #1f2328 }
.title { font-weight: 600 }
.note { fill: #59636e; font-size: 12px }
.other { fill: #8c959f }
.ours { fill: #0969da }
.ourname { font-weight: 600 }
line { stroke: #59636e; stroke-width: 1 }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 }
  .note { fill: #9198a1 }
  .other { fill: #6e7681 }
  .ours { fill: #58a6ff }
  line { stroke: #9198a1 }
}
</style>
`

// Picture draws groups of bars that start at what is compared with, to the
// right for what costs more and to the left for what costs less. The scale is
// logarithmic, and the same for all groups.
func Picture(w io.Writer, heading, to string, groups []Group) error {
	low, high := 0.5, 2.0
	rows := 0
	for _, g := range groups {
		for _, b := range g.Bars {
			low, high = min(low, b.Value), max(high, b.Value)
		}
		rows += len(g.Bars)
	}
	span := float64(width-left-right-50) / (math.Log(high) - math.Log(low))
	at := func(v float64) float64 { return left + 50 + (math.Log(v)-math.Log(low))*span }
	var b strings.Builder
	height := 58 + rows*rowHeight + len(groups)*titleHeight
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img">`+"\n", width, height, width, height)
	fmt.Fprintf(&b, "<title>%s</title>\n%s", html.EscapeString(heading), style)
	fmt.Fprintf(&b, `<text class="title" x="0" y="16">%s</text>`+"\n", html.EscapeString(heading))
	fmt.Fprintf(&b, `<text class="note" x="0" y="36">%s = 1 is the line; to the left is cheaper, to the right dearer; logarithmic</text>`+"\n", html.EscapeString(to))
	y := 46.0
	for _, g := range groups {
		fmt.Fprintf(&b, `<text class="title" x="0" y="%.0f">%s</text>`+"\n", y+20, html.EscapeString(g.Title))
		y += titleHeight - 6
		top := y
		for _, bar := range g.Bars {
			class, name := "other", ""
			if bar.Ours {
				class, name = "ours", ` class="ourname"`
			}
			from, until := min(at(1), at(bar.Value)), max(at(1), at(bar.Value))
			fmt.Fprintf(&b, `<text%s x="%d" y="%.0f" text-anchor="end">%s</text>`+"\n", name, left-10, y+14, html.EscapeString(bar.Label))
			fmt.Fprintf(&b, `<rect class="%s" x="%.1f" y="%.0f" width="%.1f" height="13" rx="2"/>`+"\n", class, from, y+3, max(1, until-from))
			anchor, x := "start", until+6
			if bar.Value < 1 {
				anchor, x = "end", from-6
			}
			fmt.Fprintf(&b, `<text%s x="%.1f" y="%.0f" text-anchor="%s">%s</text>`+"\n", name, x, y+14, anchor, number(bar.Value))
			y += rowHeight
		}
		fmt.Fprintf(&b, `<line x1="%.1f" x2="%.1f" y1="%.0f" y2="%.0f"/>`+"\n", at(1), at(1), top, y)
		y += 6
	}
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}
