//go:build linux

package nsexec

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/populationgenomics/postern-go/internal/stage"
	"golang.org/x/sys/unix"
)

// A socket is the host's end of the control socket of a launch. It is in the
// runtime's poller: a thread that blocked in a system call instead would have
// the runtime look after it every few microseconds, on the processors that the
// launch could use.
type socket struct{ *os.File }

// newSockets returns both ends.
func newSockets() (ours socket, theirs int, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		if err = unix.SetNonblock(fds[0], true); err != nil {
			unix.Close(fds[0])
			unix.Close(fds[1])
		}
	}
	if err != nil {
		return socket{}, -1, fmt.Errorf("create the control socket of a launch: %w", err)
	}
	return socket{os.NewFile(uintptr(fds[0]), "launch control")}, fds[1], nil
}

// unpolled takes the socket out of the runtime's poller, which would wake this
// process for everything that the init writes and for its end of the socket,
// and that on a processor that the end of the guest could use. Only receive
// without wait is for such a socket.
func (s socket) unpolled() socket {
	conn, err := s.SyscallConn()
	if err != nil {
		return s
	}
	fd := -1
	cerr := conn.Control(func(polled uintptr) { fd, err = unix.FcntlInt(polled, unix.F_DUPFD_CLOEXEC, 0) })
	if cerr != nil || err != nil {
		return s // which does as well
	}
	s.Close()
	unix.SetNonblock(fd, false)
	return socket{os.NewFile(uintptr(fd), "launch control")}
}

// goOn lets a launch that waits for the host go on.
func (s socket) goOn(word []byte) error {
	_, err := s.Write(word)
	if errors.Is(err, unix.EPIPE) { // it has failed already and said why
		err = nil
	}
	return err
}

// hangUp lets the launch read end of file, which makes it exit.
func (s socket) hangUp() error {
	conn, err := s.SyscallConn()
	if err != nil {
		return err
	}
	cerr := conn.Control(func(fd uintptr) { err = unix.Shutdown(int(fd), unix.SHUT_WR) })
	return errors.Join(cerr, err)
}

// A message is a record and what came with it.
type message struct {
	stage.Record
	rest []byte
	fd   int   // a descriptor that the receiver owns, or -1
	lost error // why one that was sent did not arrive
}

// receive returns the next message, and io.EOF when there will be none. Without
// wait it returns EAGAIN if there is none yet.
func (s socket) receive(wait bool) (message, error) {
	m := message{fd: -1}
	buf := make([]byte, 512)
	oob := make([]byte, unix.CmsgSpace(4))
	conn, err := s.SyscallConn()
	if err != nil {
		return m, err
	}
	var n, oobn, flags int
	how := unix.MSG_CMSG_CLOEXEC
	if !wait {
		how |= unix.MSG_DONTWAIT
	}
	rerr := conn.Read(func(fd uintptr) bool {
		for {
			n, oobn, flags, _, err = unix.Recvmsg(int(fd), buf, oob, how)
			// A peer that is gone with bytes of ours unread is reported once,
			// ahead of what it sent before.
			if err != unix.EINTR && err != unix.ECONNRESET {
				return err != unix.EAGAIN || !wait
			}
		}
	})
	switch {
	case err == nil && rerr != nil:
		err = rerr
	case err == nil && n == 0:
		return m, io.EOF
	}
	if err != nil {
		return m, fmt.Errorf("read the status of a launch: %w", err)
	}
	if m.Record, err = stage.ParseRecord(buf[:n]); err != nil {
		return m, err
	}
	m.rest = buf[stage.RecordSize:n]
	if flags&unix.MSG_CTRUNC != 0 {
		m.lost = unix.EMFILE
	} else if oobn > 0 {
		m.fd, err = passed(oob[:oobn])
	}
	return m, err
}

// passed returns the descriptor that came with a message.
func passed(oob []byte) (int, error) {
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil || len(msgs) != 1 {
		return -1, stage.ErrRecord
	}
	fds, err := unix.ParseUnixRights(&msgs[0])
	if err != nil || len(fds) != 1 {
		return -1, stage.ErrRecord
	}
	return fds[0], nil
}
