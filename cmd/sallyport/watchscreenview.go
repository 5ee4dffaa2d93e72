package main

import (
	"fmt"
	"slices"
	"strings"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"

	"sallyport/audit"
)

// watchHead is how many lines stand above the list, and watchFoot below it.
const (
	watchHead = 3
	watchFoot = 1
)

// rows is how many lines the list has.
func (m *watchModel) rows() int { return max(1, m.height-watchHead-watchFoot) }

// View draws the screen.
func (m *watchModel) View() tea.View {
	var lines []string
	lines = append(lines, m.counts(), m.rate(), m.rule())
	switch m.mode {
	case watchDetail:
		lines = append(lines, m.window(m.detail())...)
	case watchPolicy:
		lines = append(lines, m.window(strings.Split(strings.TrimRight(m.text, "\n"), "\n"))...)
	default:
		lines = append(lines, m.list()...)
	}
	for len(lines) < watchHead+m.rows() {
		lines = append(lines, "")
	}
	lines = append(lines, m.foot())
	fit := lipgloss.NewStyle().MaxWidth(max(1, m.width))
	for i, l := range lines {
		lines[i] = fit.Render(l)
	}
	v := tea.NewView(strings.Join(lines, "\n"))
	v.AltScreen = true
	v.WindowTitle = "sallyport watch"
	return v
}

// style colours text, if the terminal may be written to in colour.
func (m *watchModel) style(s lipgloss.Style, text string) string {
	if !m.color {
		return text
	}
	return s.Render(text)
}

func (m *watchModel) counts() string {
	red, green, yellow := lipgloss.NewStyle().Foreground(lipgloss.Red), lipgloss.NewStyle().Foreground(lipgloss.Green), lipgloss.NewStyle().Foreground(lipgloss.Yellow)
	damaged := ""
	if m.damaged > 0 {
		damaged = "  " + m.style(red, several(m.damaged, "damaged line")+": sallyport audit verify")
	}
	return fmt.Sprintf("sallyport  %s  %s  %s%s", m.style(red, fmt.Sprint(m.blocked, " blocked")), m.style(green, fmt.Sprint(m.allowed, " allowed")), m.style(yellow, several(m.alerts, "alert")), damaged)
}

// rate is what was blocked in the last minute, and by which reason most.
func (m *watchModel) rate() string {
	sum := uint64(0)
	for _, n := range m.bins {
		sum += n
	}
	return fmt.Sprintf("blocked in the last minute: %d %s", sum, audit.Sparkline(m.bins[:]))
}

func (m *watchModel) rule() string {
	what := "blocked and alerts"
	if m.all {
		what = "everything"
	}
	s := fmt.Sprintf("── %s: %d ", what, len(m.shown))
	if m.filter != "" || m.typing {
		s += "── filter: " + audit.Escape(m.filter, 200) + map[bool]string{true: "▏", false: ""}[m.typing] + " "
	}
	if m.still {
		s += fmt.Sprintf("── paused, %d more ", len(m.paused))
	}
	return s + strings.Repeat("─", max(0, m.width-len([]rune(s))))
}

// list is the part of the events round the cursor.
func (m *watchModel) list() []string {
	if len(m.shown) == 0 {
		return []string{"", "  nothing yet"}
	}
	from := min(max(0, m.cursor-m.rows()/2), max(0, len(m.shown)-m.rows()))
	var out []string
	for i, e := range m.shown[from:min(len(m.shown), from+m.rows())] {
		line := plainLine(e)
		switch {
		case from+i == m.cursor:
			line = m.style(lipgloss.NewStyle().Reverse(true), "▸ "+line)
		case e.Alerting():
			line = m.style(lipgloss.NewStyle().Foreground(lipgloss.Red), "  "+line)
		default:
			line = "  " + line
		}
		out = append(out, line)
	}
	return out
}

// window is the part of lines that is scrolled to.
func (m *watchModel) window(lines []string) []string {
	m.scroll = min(m.scroll, max(0, len(lines)-m.rows()))
	return lines[m.scroll:min(len(lines), m.scroll+m.rows())]
}

func (m *watchModel) foot() string {
	if m.typing {
		return "type to filter   enter keep   esc clear"
	}
	switch m.mode {
	case watchDetail:
		return "esc back   a what would allow it   ↑↓ scroll   q quit"
	case watchPolicy:
		return "esc back   it is printed again at the end   ↑↓ scroll   q quit"
	}
	return "↑↓ choose   enter details   a what would allow it   / filter   b blocked only or all   p pause   q quit"
}

// detail is everything about the selected event.
func (m *watchModel) detail() []string {
	e := m.selected()
	if e == nil {
		return nil
	}
	var out []string
	add := func(name string, format string, args ...any) {
		if text := audit.Escape(fmt.Sprintf(format, args...), 1000); strings.Trim(text, " :0") != "" {
			for line := range strings.SplitSeq(lipgloss.Wrap(text, max(10, m.width-11), ""), "\n") {
				out = append(out, fmt.Sprintf("%-10s %s", name, line))
				name = ""
			}
		}
	}
	add("time", "%s", e.Time.Local().Format("2006-01-02 15:04:05.000"))
	add("what", "%s %s %s", e.Kind, e.Phase, e.Verdict)
	add("reason", "%s", e.Reason)
	add("message", "%s", e.Message)
	if e.Error != nil {
		add("error", "%s %s", e.Error.Class, e.Error.Detail)
	}
	if e.Would != nil {
		add("would", "%s %s", e.Would.Verdict, e.Would.Reason)
	}
	if e.Count > 1 {
		add("repeated", "%d times", e.Count)
	}
	if e.Sandbox != nil {
		add("sandbox", "%s (%s)", e.Sandbox.Name, e.Sandbox.ID)
	}
	add("host", "%s:%d", e.Host, e.Port)
	m.protocol(e, add)
	m.ruleOf(e, add)
	if e.Policy != nil {
		add("policy", "generation %d, sha256 %s", e.Policy.Generation, e.Policy.SHA256)
	}
	add("request", "%s", e.Req)
	add("record", "%s", e.ID)
	return append(out, m.related(e)...)
}

// protocol is what is known of a question, a handshake and a request.
func (m *watchModel) protocol(e *audit.Event, add func(string, string, ...any)) {
	if d := e.DNS; d != nil {
		add("question", "%s %s over %s: %s %s", d.QType, d.QName, d.Transport, d.RCode, strings.Join(d.Answers, " "))
	}
	if h := e.HTTP; h != nil {
		add("http", "%s %s (HTTP/%s)", h.Method, h.Path, h.Version)
		add("query", "%s", strings.Join(h.QueryKeys, ", "))
		add("client", "%s", h.UserAgent)
	}
	if x := e.TLS; x != nil {
		add("tls", "%s %s %s %s", x.Mode, x.Version, x.ALPN, x.Alert)
	}
	if d := e.Dst; d != nil {
		add("dialled", "%s:%d", d.IP, d.Port)
	}
	for _, s := range e.Secrets {
		add("secret", "%s %s in %s", s.Name, s.Action, s.Place)
	}
}

// ruleOf is the rule that decided, with its line.
func (m *watchModel) ruleOf(e *audit.Event, add func(string, string, ...any)) {
	r := e.Rule
	if r == nil {
		add("rule", "none allows it")
		return
	}
	add("rule", "%s", r.ID)
	add("at", "%s:%d", r.File, r.Line)
	if m.source != nil {
		add("", "%s", m.source(r.File, r.Line))
	}
	add("ticket", "%s", r.Ticket)
}

// related are the other events of the same connection or attempt.
func (m *watchModel) related(e *audit.Event) []string {
	var out []string
	for _, x := range m.events {
		if x != e && (e.Conn != "" && x.Conn == e.Conn || e.Req != "" && x.Req == e.Req) {
			out = append(out, "  "+plainLine(x))
		}
	}
	if len(out) == 0 {
		return nil
	}
	return slices.Concat([]string{"", "of the same connection or attempt:"}, out)
}
