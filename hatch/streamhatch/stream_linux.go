package streamhatch

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// A Stream is a connection whose command the handler is to choose. It can be read
// from while the handler runs, and only as much as is asked for, so the command
// finds the rest.
//
// Descriptors that the guest sends along are dropped by the kernel.
type Stream struct{ c *connection }

// ReadPreamble reads the first, or next, n bytes of the stream, within a time.
// It takes nothing of what is behind them, and neither blocks the
// socket nor sets an option of it.
//
// When they do not come, it returns what came and one of the errors
// [os.ErrDeadlineExceeded], [io.ErrUnexpectedEOF], [net.ErrClosed] if the hatch
// stops, or the socket's.
func (s *Stream) ReadPreamble(n int, timeout time.Duration) ([]byte, error) {
	if n < 0 {
		return nil, fmt.Errorf("streamhatch: a preamble of %d bytes", n)
	}
	return s.read(n, timeout, func(got, more []byte) (take int, done bool) {
		return len(more), len(got)+len(more) == n
	})
}

// ReadLine is ReadPreamble for a line, which it returns with its '\n'. If
// there is none within max bytes, the error is ErrTooLong.
func (s *Stream) ReadLine(max int, timeout time.Duration) ([]byte, error) {
	line, err := s.read(max, timeout, func(got, more []byte) (take int, done bool) {
		if i := bytes.IndexByte(more, '\n'); i >= 0 {
			return i + 1, true
		}
		return len(more), len(got)+len(more) == max
	})
	if err == nil && !bytes.HasSuffix(line, []byte("\n")) {
		err = ErrTooLong
	}
	return line, err
}

// chunk bounds how much memory a promise to send much takes.
const chunk = 4096

// read looks at what has come, and takes as much of it as choose says.
func (s *Stream) read(max int, timeout time.Duration, choose func(got, more []byte) (take int, done bool)) ([]byte, error) {
	raw, err := s.c.SyscallConn()
	if err != nil {
		return nil, err
	}
	if err := s.c.SetReadDeadline(time.Now().Add(timeout)); err != nil {
		return nil, err
	}
	var got []byte
	buf := make([]byte, min(max, chunk))
	for done := max <= 0; !done; {
		var n int
		var failed error
		err := raw.Read(func(fd uintptr) bool {
			n, failed = receive(int(fd), buf[:min(max-len(got), len(buf))], unix.MSG_PEEK)
			if n > 0 {
				n, done = choose(got, buf[:n])
				n, failed = receive(int(fd), buf[:n], 0)
			}
			return failed != unix.EAGAIN
		})
		got = append(got, buf[:n]...)
		switch {
		case err != nil:
			return got, err
		case failed != nil:
			return got, os.NewSyscallError("recv", failed)
		case n == 0:
			return got, io.ErrUnexpectedEOF
		}
	}
	return got, nil
}

func receive(fd int, buf []byte, flags int) (int, error) {
	for {
		n, _, err := unix.Recvfrom(fd, buf, flags|unix.MSG_DONTWAIT)
		if err != unix.EINTR {
			return max(n, 0), err
		}
	}
}

// File returns the socket, for a handler that starts a command itself: see
// [FromCmd]. It is a blocking descriptor of the caller's own, to be closed as
// soon as the command has it. After that, nothing can be read from the Stream.
func (s *Stream) File() (*os.File, error) {
	raw, err := s.c.SyscallConn()
	if err != nil {
		return nil, err
	}
	var fd int
	var failed error
	err = raw.Control(func(socket uintptr) {
		if fd, failed = unix.FcntlInt(socket, unix.F_DUPFD_CLOEXEC, 3); failed != nil {
			return
		}
		// The runtime had it otherwise, and the flag is that of all
		// duplicates.
		if failed = unix.SetNonblock(fd, false); failed != nil {
			unix.Close(fd)
		}
	})
	if err == nil {
		err = os.NewSyscallError("duplicate the socket", failed)
	}
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "stream"), nil
}
