// Package slack sends notices of alerts to an incoming webhook of Slack or of
// a service that takes the same messages.
package slack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"sallyport/audit"
)

// Config of a Sink. URL is required and is a secret.
type Config struct {
	URL       audit.Text
	Channel   string            // where the webhook allows another
	Transport http.RoundTripper // nil is a plain one
}

// Sink is an incoming webhook.
type Sink struct {
	c      Config
	client *http.Client
}

// New returns a Sink.
func New(c Config) (*Sink, error) {
	if c.URL == nil {
		return nil, errors.New("slack: url is required")
	}
	return &Sink{c: c, client: audit.NewClient(c.Transport)}, nil
}

// Send posts the notice.
func (s *Sink) Send(ctx context.Context, a audit.Alert) error {
	url, err := s.c.URL(ctx)
	if err != nil {
		return fmt.Errorf("url: %w", err)
	}
	body, err := json.Marshal(message(a, s.c.Channel))
	if err != nil {
		return audit.Permanent(err)
	}
	_, err = audit.Post(ctx, s.client, url, nil, body)
	return err
}

// payload is a message. Text is what notifications show; it is marked up unless
// told otherwise, so it is escaped as well.
type payload struct {
	Channel     string       `json:"channel,omitempty"`
	Text        string       `json:"text"`
	Mrkdwn      bool         `json:"mrkdwn"`
	LinkNames   bool         `json:"link_names"`
	UnfurlLinks bool         `json:"unfurl_links"`
	UnfurlMedia bool         `json:"unfurl_media"`
	Attachments []attachment `json:"attachments"`
}

type attachment struct {
	Color  string  `json:"color"`
	Blocks []block `json:"blocks"`
}

type block struct {
	Type   string `json:"type"`
	Text   *text  `json:"text,omitempty"`
	Fields []text `json:"fields,omitempty"`
}

// text is plain text: Slack finds no markup, mention or link in it.
type text struct {
	Type  string `json:"type"`
	Text  string `json:"text"`
	Emoji bool   `json:"emoji"`
}

func plain(s string) text { return text{Type: "plain_text", Text: s} }

func message(a audit.Alert, channel string) payload {
	title := fmt.Sprintf("%s: %s (%s)", strings.ToUpper(a.State), audit.Escape(a.Name, 100), a.Severity)
	head, body := plain(title), plain(audit.Escape(a.Message, 1500))
	fields := []text{plain(fmt.Sprintf("count: %d", a.Count)), plain("id: " + audit.Escape(a.ID, 40))}
	if a.Event != nil && a.Event.Sandbox != nil {
		fields = append(fields, plain("sandbox: "+audit.Escape(a.Event.Sandbox.Name, 100)))
	}
	if a.Event != nil && a.Event.Rule != nil {
		fields = append(fields, plain(fmt.Sprintf("rule: %s:%d", audit.Escape(a.Event.Rule.File, 100), a.Event.Rule.Line)))
	}
	return payload{
		Channel: channel, Text: escape(title + ": " + audit.Escape(a.Message, 500)),
		Attachments: []attachment{{Color: colour(a), Blocks: []block{{Type: "section", Text: &head}, {Type: "section", Text: &body}, {Type: "section", Fields: fields}}}},
	}
}

// escape keeps text from being read as a mention, a link or markup: Slack's
// three control characters are escaped, and a zero width space after each mark
// and sign keeps it from pairing up.
func escape(s string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;",
		"*", "*\u200b", "_", "_\u200b", "~", "~\u200b", "`", "`\u200b", "@", "@\u200b").Replace(s)
}

func colour(a audit.Alert) string {
	switch {
	case a.State == audit.Resolved:
		return "#2eb886"
	case a.Severity == audit.Critical || a.Severity == audit.High:
		return "#a30200"
	}
	return "#daa038"
}
