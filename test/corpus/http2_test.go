//go:build linux

package corpus_test

func http2Policy() map[string]string { return nil }
