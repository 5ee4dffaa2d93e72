//go:build linux

package corpus_test

func secretsPolicy() map[string]string { return nil }
