//go:build linux

package corpus_test

func isolationPolicy() map[string]string { return nil }
