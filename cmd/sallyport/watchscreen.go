package main

import (
	"strings"
	"time"
	"unicode"

	tea "charm.land/bubbletea/v2"

	"sallyport/audit"
)

// watchKeep is how many events the screen holds.
const watchKeep = 5000

// watchBins are the seconds of the sparkline.
const watchBins = 60

// watchMode is what the screen shows below its head.
type watchMode uint8

const (
	watchList   watchMode = iota
	watchDetail           // one event
	watchPolicy           // what would allow it
)

// watchModel is the state of the screen. Update is its only writer.
type watchModel struct {
	now     func() time.Time
	suggest func(e *audit.Event) string // the HCL that would allow what was denied, or why there is none
	source  func(file string, line int) string
	color   bool

	width, height int
	events        []*audit.Event // oldest first, at most watchKeep
	shown         []*audit.Event // those that the filter takes
	cursor        int            // in shown
	held          bool           // the cursor stays where it is when events come
	paused        []*audit.Event // what came while the list stood still; nil: it does not
	still         bool
	all           bool   // allowed ones too
	filter        string // text that a line must have
	typing        bool   // the filter is being written
	mode          watchMode
	text          string // of watchPolicy
	scroll        int    // of watchDetail and watchPolicy

	allowed, blocked, alerts uint64
	damaged                  uint64            // lines of the log that are no record
	bins                     [watchBins]uint64 // blocked, by second
	second                   int64             // of the latest bin
	printed                  []string          // what is left on the terminal at the end
	err                      error
}

// eventsMsg are events that were recorded.
type eventsMsg []*audit.Event

// damagedMsg are lines of the log that are no record: what is shown lacks what
// they held.
type damagedMsg uint64

// tickMsg comes every second.
type tickMsg time.Time

// endedMsg says that nothing more comes.
type endedMsg struct{ err error }

// Init asks for the first tick.
func (m *watchModel) Init() tea.Cmd { return watchTick() }

func watchTick() tea.Cmd {
	return tea.Tick(time.Second, func(t time.Time) tea.Msg { return tickMsg(t) })
}

// Update takes one message.
func (m *watchModel) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case eventsMsg:
		m.take(msg)
	case damagedMsg:
		m.damaged += uint64(msg)
	case tickMsg:
		m.turn(m.now().Unix())
		return m, watchTick()
	case endedMsg:
		m.err = msg.err
		return m, tea.Quit
	case tea.KeyPressMsg:
		if m.typing {
			m.typeKey(msg)
			return m, nil
		}
		return m, m.key(msg.String())
	}
	return m, nil
}

// take adds events, and counts them.
func (m *watchModel) take(list []*audit.Event) {
	for _, e := range list {
		m.count(e)
	}
	if m.still {
		m.paused = append(m.paused, list...)
		m.paused = m.paused[max(0, len(m.paused)-watchKeep):]
		return
	}
	m.events = append(m.events, list...)
	m.events = m.events[max(0, len(m.events)-watchKeep):]
	m.choose()
}

func (m *watchModel) count(e *audit.Event) {
	n := max(e.Count, 1)
	switch {
	case e.Kind == audit.KindAlert:
		m.alerts++
	case e.Phase != audit.PhaseDecision:
	case e.Verdict == "deny":
		m.blocked += n
		m.turn(m.now().Unix())
		if age := m.second - e.Time.Unix(); age >= 0 && age < watchBins {
			m.bins[watchBins-1-age] += n
		}
	default:
		m.allowed += n
	}
}

// turn moves the bins on to a second.
func (m *watchModel) turn(second int64) {
	by := min(max(second-m.second, 0), watchBins)
	copy(m.bins[:], m.bins[by:])
	clear(m.bins[watchBins-by:])
	m.second = max(m.second, second)
}

// choose finds the events that are shown, and keeps the cursor on its own.
func (m *watchModel) choose() {
	var at *audit.Event
	if m.held && m.cursor < len(m.shown) {
		at = m.shown[m.cursor]
	}
	m.shown = m.shown[:0]
	m.cursor = -1
	for _, e := range m.events {
		if !m.passes(e) {
			continue
		}
		if e == at {
			m.cursor = len(m.shown)
		}
		m.shown = append(m.shown, e)
	}
	if m.cursor < 0 {
		m.cursor = max(0, len(m.shown)-1)
		if at != nil { // it was dropped with the oldest
			m.cursor = 0
		}
	}
}

func (m *watchModel) passes(e *audit.Event) bool {
	if e.Phase != audit.PhaseDecision && e.Kind != audit.KindAlert && !(m.all && e.Phase == audit.PhaseEvent) {
		return false
	}
	if !m.all && e.Verdict != "deny" && !e.Alerting() {
		return false
	}
	return m.filter == "" || strings.Contains(strings.ToLower(plainLine(e)), strings.ToLower(m.filter))
}

// plainLine is the line of an event without colour.
func plainLine(e *audit.Event) string {
	var b strings.Builder
	audit.Compact(&b, e, false)
	return strings.TrimSuffix(b.String(), "\n")
}

// selected is the event under the cursor, nil if there is none.
func (m *watchModel) selected() *audit.Event {
	if m.cursor < 0 || m.cursor >= len(m.shown) {
		return nil
	}
	return m.shown[m.cursor]
}

// key does what a key is for.
func (m *watchModel) key(k string) tea.Cmd {
	switch k {
	case "q", "ctrl+c":
		return tea.Quit
	case "esc", "backspace", "left":
		m.back()
	case "enter", "right":
		if m.mode == watchList && m.selected() != nil {
			m.mode, m.scroll, m.held = watchDetail, 0, true
		}
	case "a":
		m.allow()
	case "b":
		m.all = !m.all
		m.choose()
	case "p", "space":
		m.pause()
	case "/":
		m.mode, m.typing = watchList, true
	default:
		m.move(k)
	}
	return nil
}

// back leaves what is shown, and in the list the filter.
func (m *watchModel) back() {
	switch {
	case m.mode == watchPolicy || m.mode == watchDetail:
		m.mode, m.scroll = watchList, 0
	default:
		m.filter = ""
		m.choose()
	}
}

// pause lets the list stand still, or go on.
func (m *watchModel) pause() {
	if m.still = !m.still; m.still {
		return
	}
	held := m.paused
	m.paused = nil
	m.events = append(m.events, held...)
	m.events = m.events[max(0, len(m.events)-watchKeep):]
	m.choose()
}

// allow shows what would allow the selected event, and keeps it for the end.
func (m *watchModel) allow() {
	e := m.selected()
	if e == nil || e.Verdict != "deny" && e.Would == nil {
		return
	}
	m.mode, m.scroll, m.held = watchPolicy, 0, true
	m.text = visible(m.suggest(e))
	if len(m.printed) == 0 || m.printed[len(m.printed)-1] != m.text {
		m.printed = append(m.printed, m.text)
	}
}

// visible is text without what a terminal obeys.
func visible(text string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) {
			return '\ufffd'
		}
		return r
	}, text)
}

// move moves the cursor, or what is shown of one event.
func (m *watchModel) move(k string) {
	page := max(1, m.rows()-1)
	step := map[string]int{"up": -1, "k": -1, "down": 1, "j": 1, "pgup": -page, "pgdown": page, "home": -watchKeep, "g": -watchKeep, "end": watchKeep, "G": watchKeep}[k]
	if step == 0 {
		return
	}
	if m.mode != watchList {
		m.scroll = max(0, m.scroll+step)
		return
	}
	last := len(m.shown) - 1
	m.cursor = min(max(0, m.cursor+step), max(0, last))
	m.held = m.cursor < last // at the end the list goes on with what comes
}

// typeKey edits the filter.
func (m *watchModel) typeKey(k tea.KeyPressMsg) {
	switch k.String() {
	case "enter":
		m.typing = false
	case "esc", "ctrl+c":
		m.typing, m.filter = false, ""
	case "backspace":
		if r := []rune(m.filter); len(r) > 0 {
			m.filter = string(r[:len(r)-1])
		}
	default:
		if len(m.filter) < 200 {
			m.filter += k.Text
		}
	}
	m.choose()
}
