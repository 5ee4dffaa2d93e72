// Command probe is what the tests run inside sandboxes: clients, and an
// attacker who looks for secrets and for ways out.
package main

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "probe: no command")
		os.Exit(2)
	}
	if err := command(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "probe:", err)
		os.Exit(1)
	}
}

func command(name string, args []string) error {
	switch name {
	case "get":
		return get(args)
	case "ws":
		return webSocket(args[0])
	case "search":
		return search(args)
	}
	return fmt.Errorf("unknown command %q", name)
}

// get sends GETs to the URL args[0], with header lines after it, over
// HTTP/1.1 and HTTP/2, and prints protocol, status and body of each answer.
func get(args []string) error {
	for _, h2 := range []bool{false, true} {
		var p http.Protocols
		p.SetHTTP1(!h2)
		p.SetHTTP2(h2)
		c := &http.Client{Transport: &http.Transport{Protocols: &p, TLSClientConfig: &tls.Config{}}}
		req, err := http.NewRequest(http.MethodGet, args[0], nil)
		if err != nil {
			return err
		}
		for _, line := range args[1:] {
			name, text, _ := strings.Cut(line, ": ")
			req.Header.Add(name, text)
		}
		resp, err := c.Do(req)
		if err != nil {
			return err
		}
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			return err
		}
		_ = resp.Body.Close() // read whole
		fmt.Printf("%s %d %s\n", resp.Proto, resp.StatusCode, body)
	}
	return nil
}
