//go:build linux

package corpus_test

func clientsPolicy() map[string]string { return nil }
