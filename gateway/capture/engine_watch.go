//go:build linux

package capture

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"time"
)

const (
	// engineResync is how often all containers are looked at, though no event
	// spoke of them.
	engineResync = time.Minute
	// engineOverlap is how far back events are asked for, because they begin to
	// be collected a little after the engine has said that they are.
	engineOverlap = 2 * time.Second
	// engineEventMax bounds one event, in bytes.
	engineEventMax = 1 << 20
	// engineWaitMin and engineWaitMax bound the wait before an engine that does
	// not answer is asked again.
	engineWaitMin, engineWaitMax = 50 * time.Millisecond, 5 * time.Second
)

// EngineWatch says what to do about the containers of an engine. Its functions
// are called by one goroutine and must not block for long.
type EngineWatch struct {
	// Listed is given all containers that have LabelSandbox, when the engine
	// begins to answer and from time to time.
	Listed func(ids []string)
	// Changed is given a container that was started, or has ended, or did
	// something of the kind: what it is now, the engine is to be asked.
	Changed func(id string)
	// Lost is told why the engine does not answer and when it is asked again.
	Lost func(err error, again time.Duration)
	// Again asks for a list.
	Again <-chan struct{}
}

// Watch follows the containers that have LabelSandbox, until ctx ends. An
// engine that is not there, or goes, is asked again and again.
func (e *Engine) Watch(ctx context.Context, w EngineWatch) {
	wait := time.Duration(0)
	for ctx.Err() == nil {
		answered, err := e.follow(ctx, w)
		if ctx.Err() != nil {
			return
		}
		if answered {
			wait = 0
		}
		wait = min(max(2*wait, engineWaitMin), engineWaitMax)
		w.Lost(err, wait)
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

// follow follows one stream of events to its end. The stream is open before the
// list is asked for, so that nothing happens between the two.
func (e *Engine) follow(ctx context.Context, w EngineWatch) (answered bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	changed, ended, err := e.events(ctx)
	if err != nil {
		return false, err
	}
	tick := time.NewTicker(engineResync)
	defer tick.Stop()
	for {
		ids, err := e.Labelled(ctx)
		if err != nil {
			return answered, err
		}
		answered = true
		w.Listed(ids)
		for again := false; !again; {
			select {
			case id := <-changed:
				w.Changed(id)
			case err := <-ended:
				return true, err
			case <-ctx.Done():
				return true, nil
			case <-tick.C:
				again = true
			case <-w.Again:
				again = true
			}
		}
	}
}

// engineEvent is the part of one event that is read.
type engineEvent struct {
	Action string
	Actor  struct {
		ID         string
		Attributes map[string]string // the container's labels, and more
	}
}

// engineActions are what a container may have begun or ended to run with, in
// the words of Docker and in those of Podman.
func engineActions() []string {
	return []string{"start", "restart", "die", "died", "stop", "kill", "destroy", "remove"}
}

// events begins to read the engine's events about labelled containers, until
// ctx ends. The engine is not asked for those with the label: Podman takes a
// label without a value for one that nothing has.
func (e *Engine) events(ctx context.Context) (changed <-chan string, ended <-chan error, err error) {
	since := time.Now().Add(-engineOverlap)
	resp, err := e.open(ctx, "/events", url.Values{
		"since":   {strconv.FormatInt(since.Unix(), 10)},
		"filters": {encodeFilters(map[string][]string{"type": {"container"}, "event": engineActions()})},
	})
	if err != nil {
		return nil, nil, err
	}
	ids, end := make(chan string), make(chan error, 1)
	go func() {
		defer resp.Body.Close()
		lines := bufio.NewScanner(resp.Body)
		lines.Buffer(nil, engineEventMax)
		for lines.Scan() {
			id, ok, err := readEvent(lines.Bytes())
			if err != nil {
				end <- err
				return
			}
			if !ok {
				continue
			}
			select {
			case ids <- id:
			case <-ctx.Done():
				return
			}
		}
		err := lines.Err()
		if err == nil {
			err = errors.New("engine: the stream of events ended")
		}
		end <- err
	}()
	return ids, end, nil
}

// readEvent returns the container of an event after which it may have begun
// or ended to run, if it has LabelSandbox.
func readEvent(line []byte) (id string, ok bool, err error) {
	if len(line) == 0 {
		return "", false, nil
	}
	var v engineEvent
	if err := json.Unmarshal(line, &v); err != nil {
		return "", false, fmt.Errorf("engine: event: %w", err)
	}
	_, labelled := v.Actor.Attributes[LabelSandbox]
	if v.Actor.ID == "" || !labelled || !slices.Contains(engineActions(), v.Action) {
		return "", false, nil
	}
	return v.Actor.ID, true, nil
}
