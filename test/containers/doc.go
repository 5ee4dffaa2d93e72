// Package containers tries the gateway with a real container engine: a Docker
// daemon of its own, with its own data and socket, in the network namespace of
// the lab's gateway. Images are imported from files of this machine.
package containers
