//go:build linux

package capture

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
)

// LabelSandbox is the label of a container that names the sandbox it is.
const LabelSandbox = "sallyport.sandbox"

// NetworkNone is the network mode of a container that has no network.
const NetworkNone = "none"

const (
	// engineCallTime bounds one call to an engine, which may be busy.
	engineCallTime = 10 * time.Second
	// engineAnswerMax bounds the body of an answer, in bytes.
	engineAnswerMax = 16 << 20
	// engineImagesMax is how many images' labels are remembered.
	engineImagesMax = 256
)

// ErrNoContainer says that the engine has no such container.
var ErrNoContainer = errors.New("no such container")

// Engine is a container engine, spoken to over its Unix socket by those calls
// of the Docker Engine API that Podman's service answers too. It is safe for
// concurrent use.
type Engine struct {
	client *http.Client

	mu     sync.Mutex
	images map[string]map[string]string // image ID → labels, which never change
}

// NewEngine returns the engine that listens on a Unix socket. It need not be
// there yet.
func NewEngine(socket string) *Engine {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		d := net.Dialer{Timeout: engineCallTime}
		return d.DialContext(ctx, "unix", socket)
	}
	return &Engine{
		client: &http.Client{Transport: &http.Transport{DialContext: dial, MaxIdleConnsPerHost: 8, IdleConnTimeout: time.Minute}},
		images: map[string]map[string]string{},
	}
}

// Close closes connections that nothing uses.
func (e *Engine) Close() { e.client.CloseIdleConnections() }

// Container is what an engine says of a container.
type Container struct {
	ID          string
	Name        string
	Image       string            // as whoever started it called it
	Labels      map[string]string // less those that its image brings
	ImageLabels map[string]string
	NetworkMode string // NetworkNone, a network's name, "host", "container:ID"
	Resolvers   []string
	Running     bool
	Created     bool // and never started, as far as the engine has noticed
	PID         int  // of its first process, as this machine counts; 0 if there is none
}

// NetNS is the path of the container's network namespace.
func (c Container) NetNS() string { return fmt.Sprintf("/proc/%d/ns/net", c.PID) }

// inspected is the part of GET /containers/ID/json that is read.
type inspected struct {
	ID    string `json:"Id"`
	Name  string
	Image string // ID of the image
	State struct {
		Status  string
		Running bool
		PID     int `json:"Pid"`
	}
	Config struct {
		Image  string
		Labels map[string]string
	}
	HostConfig struct {
		NetworkMode string
		DNS         []string `json:"Dns"`
	}
}

// Container looks at one container. The error is ErrNoContainer if there is
// none.
func (e *Engine) Container(ctx context.Context, id string) (Container, error) {
	var in inspected
	if err := e.get(ctx, "/containers/"+url.PathEscape(id)+"/json", nil, &in); err != nil {
		return Container{}, err
	}
	c := Container{ID: in.ID, Name: strings.TrimPrefix(in.Name, "/"), Image: in.Config.Image, NetworkMode: in.HostConfig.NetworkMode,
		Resolvers: in.HostConfig.DNS, Running: in.State.Running, Created: in.State.Status == "created", PID: in.State.PID}
	return c, e.takeLabels(ctx, &c, in.Config.Labels, in.Image)
}

// listed is the part of GET /containers/json that is read.
type listed struct {
	ID         string `json:"Id"`
	Names      []string
	Image      string
	ImageID    string
	State      string
	Labels     map[string]string
	HostConfig struct{ NetworkMode string }
}

// Starting looks at a container that its engine is about to start, as a hook of
// the runtime sees it. Container would wait for the engine, which waits for the
// hook; the list does not. PID is 0.
func (e *Engine) Starting(ctx context.Context, id string) (Container, error) {
	list, err := e.list(ctx, map[string][]string{"id": {id}})
	if err != nil {
		return Container{}, err
	}
	for _, l := range list {
		if l.ID != id {
			continue
		}
		c := Container{ID: l.ID, Image: l.Image, NetworkMode: l.HostConfig.NetworkMode, Running: l.State == "running", Created: l.State == "created"}
		if len(l.Names) > 0 {
			c.Name = strings.TrimPrefix(l.Names[0], "/")
		}
		return c, e.takeLabels(ctx, &c, l.Labels, l.ImageID)
	}
	return Container{}, fmt.Errorf("container %.12s: %w", id, ErrNoContainer)
}

// Labelled returns the IDs of all containers, running or not, that have
// LabelSandbox.
func (e *Engine) Labelled(ctx context.Context) ([]string, error) {
	list, err := e.list(ctx, map[string][]string{"label": {LabelSandbox}})
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, l := range list {
		ids = append(ids, l.ID)
	}
	return ids, nil
}

func (e *Engine) list(ctx context.Context, filters map[string][]string) ([]listed, error) {
	var out []listed
	return out, e.get(ctx, "/containers/json", url.Values{"all": {"1"}, "filters": {encodeFilters(filters)}}, &out)
}

func encodeFilters(filters map[string][]string) string {
	b, _ := json.Marshal(filters) // strings always marshal
	return string(b)
}

// takeLabels gives c its labels, told apart by who set them: a container has
// those of its image too, and whoever made the image is not who started it.
func (e *Engine) takeLabels(ctx context.Context, c *Container, all map[string]string, image string) error {
	if _, ok := all[LabelSandbox]; !ok {
		return nil // none of ours; its image may be whatever it is
	}
	var err error
	if c.ImageLabels, err = e.imageLabels(ctx, image); err != nil {
		return err
	}
	c.Labels = maps.Clone(all)
	maps.DeleteFunc(c.Labels, func(k, _ string) bool { _, ok := c.ImageLabels[k]; return ok })
	return nil
}

func (e *Engine) imageLabels(ctx context.Context, id string) (map[string]string, error) {
	e.mu.Lock()
	labels, ok := e.images[id]
	e.mu.Unlock()
	if ok {
		return labels, nil
	}
	var in struct {
		Config struct{ Labels map[string]string }
	}
	if err := e.get(ctx, "/images/"+url.PathEscape(id)+"/json", nil, &in); err != nil {
		return nil, fmt.Errorf("image %s: who set the labels is not known: %w", id, err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.images) >= engineImagesMax {
		clear(e.images)
	}
	e.images[id] = in.Config.Labels
	return in.Config.Labels, nil
}

// get makes one call and decodes its answer.
func (e *Engine) get(ctx context.Context, path string, query url.Values, out any) error {
	ctx, cancel := context.WithTimeout(ctx, engineCallTime)
	defer cancel()
	resp, err := e.open(ctx, path, query)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, engineAnswerMax+1))
	if err != nil {
		return fmt.Errorf("engine: %s: %w", path, err)
	}
	if len(body) > engineAnswerMax {
		return fmt.Errorf("engine: %s: the answer is larger than %d bytes", path, engineAnswerMax)
	}
	if err := json.Unmarshal(body, out); err != nil {
		return fmt.Errorf("engine: %s: %w", path, err)
	}
	return nil
}

// open makes one call. Its answer is good, and the caller closes its body.
func (e *Engine) open(ctx context.Context, path string, query url.Values) (*http.Response, error) {
	u := url.URL{Scheme: "http", Host: "engine", Opaque: "//engine" + path, RawQuery: query.Encode()}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://engine/", nil)
	if err != nil {
		return nil, err
	}
	req.URL = &u
	resp, err := e.client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("engine: %w", err)
	}
	if resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	defer resp.Body.Close()
	var problem struct {
		Message string `json:"message"`
	}
	_ = json.NewDecoder(io.LimitReader(resp.Body, 4<<10)).Decode(&problem) // the status says enough
	// Podman has no 404 for a container that goes while it is looked at.
	if resp.StatusCode == http.StatusNotFound || strings.Contains(problem.Message, ErrNoContainer.Error()) {
		return nil, fmt.Errorf("engine: %s: %w", path, ErrNoContainer)
	}
	return nil, fmt.Errorf("engine: %s: %s: %.200q", path, resp.Status, problem.Message)
}
