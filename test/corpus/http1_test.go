//go:build linux

package corpus_test

func http1Policy() map[string]string { return nil }
