//go:build linux && race

package audit_test

// memoryFactor is how much more a gateway takes with the race detector.
const memoryFactor = 8
