package main

import (
	"context"
	"fmt"
	"time"

	"github.com/coder/websocket"
)

// webSocket sends a message to an echo and prints what comes back.
func webSocket(url string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	c, _, err := websocket.Dial(ctx, url, nil)
	if err != nil {
		return err
	}
	if err := c.Write(ctx, websocket.MessageText, []byte("to the echo")); err != nil {
		return err
	}
	_, b, err := c.Read(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("%s\n", b)
	return c.Close(websocket.StatusNormalClosure, "")
}
