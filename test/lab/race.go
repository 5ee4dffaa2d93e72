//go:build linux && race

package lab

// raceDetector says whether the test, and so the gateway, has the detector.
const raceDetector = true
