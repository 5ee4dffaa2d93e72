// Package lab is a small internet for tests: a gateway's host, sandboxes of
// every kind behind it, and the servers that they may or may not reach, all in
// network namespaces of one test process and without a way out of it.
//
//	sandboxes (netns, interface, run) ── gw: 203.0.113.1, 2001:db8:1::1 ── net
//
// The host of the gateway forwards on purpose: only the product's own rules
// stand between a sandbox and the net. Every packet that arrives in the net
// from another source than the gateway's own address is counted, and Close
// fails if there was one.
//
// It needs root, and says so; it is never skipped.
package lab
