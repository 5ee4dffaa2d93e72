// Package capture is how traffic arrives. A sandbox is a network namespace
// with no way out, or an interface with none, in which sallyport holds the
// listening sockets: a socket belongs to the namespace it was made in, whoever
// holds it. Every new TCP connection, to whatever address and port, arrives at
// a listener with its original destination as LocalAddr; every question to port
// 53 arrives with the resolver that was asked; every other packet is refused
// at once and reported.
//
// Which sandbox speaks is known from the socket. Nothing here decides anything.
package capture
