//go:build linux

package corpus_test

func auditPolicy() map[string]string { return nil }
