package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/user"
	"slices"
	"strconv"
	"syscall"
	"unsafe"
)

// callers are who may use the control socket: root, the daemon's own user,
// and whom the daemon file names. The kernel says who calls; no call does.
type callers struct {
	uids  []uint32
	gid   uint32
	named bool // the daemon file names users
}

// permit reads who may call.
func (c *control) permit() (err error) {
	c.may, err = c.d.file.permitted()
	return err
}

// permitted are those whom the daemon file names, and who may call anyway.
func (d *daemonFile) permitted() (callers, error) {
	may := callers{uids: []uint32{0, uint32(os.Geteuid())}, gid: uint32(os.Getegid())}
	b := d.Control
	if b == nil {
		return may, nil
	}
	if b.Group != "" {
		g, err := user.LookupGroup(b.Group)
		if err != nil {
			return may, d.at(err, "control", "group")
		}
		if may.gid, err = identifier(g.Gid); err != nil {
			return may, err
		}
	}
	for _, name := range b.Users {
		u, err := user.Lookup(name)
		if err != nil {
			return may, d.at(err, "control", "users")
		}
		uid, err := identifier(u.Uid)
		if err != nil {
			return may, err
		}
		may.uids, may.named = append(may.uids, uid), true
	}
	return may, nil
}

func identifier(s string) (uint32, error) {
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("control: id %q of a user or group: %w", s, err)
	}
	return uint32(n), nil
}

// peer is who is at the other end of a connection.
type peer struct {
	uid    uint32
	groups []uint32
}

// include says whether a process with these credentials may call.
func (m callers) include(p *peer) bool {
	return p != nil && (slices.Contains(m.uids, p.uid) || slices.Contains(p.groups, m.gid))
}

type peerKey struct{}

// withPeer keeps who is at the other end of a connection, as of its opening.
func withPeer(ctx context.Context, conn net.Conn) context.Context {
	u, ok := conn.(syscall.Conn)
	if !ok {
		return ctx
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return ctx
	}
	var p *peer
	if raw.Control(func(fd uintptr) { p, err = credentialsOf(fd) }) != nil || err != nil {
		return ctx
	}
	return context.WithValue(ctx, peerKey{}, p)
}

// peerGroups is SO_PEERGROUPS (include/uapi/asm-generic/socket.h).
const peerGroups = 59

func credentialsOf(fd uintptr) (*peer, error) {
	cred, err := syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	if err != nil {
		return nil, err
	}
	groups := make([]uint32, 1<<16) // NGROUPS_MAX
	size := uint32(len(groups) * 4) // bytes
	_, _, no := syscall.Syscall6(syscall.SYS_GETSOCKOPT, fd, syscall.SOL_SOCKET, peerGroups,
		uintptr(unsafe.Pointer(&groups[0])), uintptr(unsafe.Pointer(&size)), 0)
	if no != 0 {
		size = 0 // then the first group alone counts
	}
	return &peer{uid: cred.Uid, groups: append([]uint32{cred.Gid}, groups[:size/4]...)}, nil
}

// permitted answers those who may call; whose credentials are not known may
// not.
func (c *control) permitted(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p, _ := r.Context().Value(peerKey{}).(*peer)
		if !c.may.include(p) {
			respond(w, http.StatusForbidden, apiError{Error: "this user may not use the control socket; see control in the daemon file"})
			return
		}
		next.ServeHTTP(w, r)
	})
}
