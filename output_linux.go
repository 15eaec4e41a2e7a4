package postern

import (
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// An output reads a guest's streams in the order their data arrives.
//
// The streams, and a pidfd for the guest's end, are in an epoll set; the epoll
// descriptor itself can be waited for by the Go runtime. So a waiting reader
// costs no thread, and a process that nobody reads costs not even a goroutine.
type output struct {
	epoll *os.File
	conn  syscall.RawConn

	mu      sync.Mutex
	streams [3]int // descriptors by Stream, -1 when done; 0 is the pidfd
	open    int    // streams that are not done
	ended   bool   // the guest has, so nothing more can come
}

const pidfdSlot = 0

// newOutput takes over the descriptors, -1 for none. Without a pidfd the guest
// has ended.
func newOutput(pidfd, stdout, stderr int) (*output, error) {
	o := &output{streams: [3]int{pidfdSlot: pidfd, Stdout: stdout, Stderr: stderr}, ended: pidfd < 0}
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err == nil {
		err = unix.SetNonblock(fd, true)
		o.epoll = os.NewFile(uintptr(fd), "guest output")
	}
	for i, s := range o.streams {
		if err == nil && s >= 0 {
			err = unix.EpollCtl(fd, unix.EPOLL_CTL_ADD, s, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(i)})
		}
		if s >= 0 && i != pidfdSlot {
			o.open++
		}
	}
	if err == nil {
		o.conn, err = o.epoll.SyscallConn()
	}
	if err != nil {
		o.close()
		return nil, fmt.Errorf("postern: wait for a guest's output: %w", err)
	}
	return o, nil
}

// read returns what has arrived first, or io.EOF.
func (o *output) read(buf []byte) (s Stream, n int, err error) {
	rerr := o.conn.Read(func(epoll uintptr) bool {
		o.mu.Lock()
		defer o.mu.Unlock()
		for o.open > 0 {
			next, ready := o.next(int(epoll))
			if !ready {
				return false
			}
			if next == pidfdSlot {
				o.ended = true
				o.drop(int(epoll), pidfdSlot)
				continue
			}
			n, err = unix.Read(o.streams[next], buf)
			switch {
			case n > 0:
				s, err = Stream(next), nil
				return true
			case err == unix.EINTR, err == unix.EAGAIN && !o.ended:
			default: // its end; of a terminal that is EIO
				o.drop(int(epoll), next)
			}
		}
		err = io.EOF
		return true
	})
	if rerr != nil {
		return 0, 0, io.EOF // closed
	}
	return s, max(n, 0), err
}

// next returns a stream that has something. When the guest has ended that is
// any: what does not have something by then will not.
func (o *output) next(epoll int) (stream int, ready bool) {
	if o.ended {
		for i := Stdout; i <= Stderr; i++ {
			if o.streams[i] >= 0 {
				return int(i), true
			}
		}
	}
	var ev [1]unix.EpollEvent
	for {
		n, err := unix.EpollWait(epoll, ev[:], 0)
		if err != unix.EINTR {
			return int(ev[0].Fd), n > 0
		}
	}
}

// drop closes a stream. It must leave the set first: the set would keep it for
// as long as there are duplicates of it.
func (o *output) drop(epoll, i int) {
	if o.streams[i] < 0 {
		return
	}
	_ = unix.EpollCtl(epoll, unix.EPOLL_CTL_DEL, o.streams[i], nil)
	unix.Close(o.streams[i])
	o.streams[i] = -1
	if i != pidfdSlot {
		o.open--
	}
}

// close ends a read that is waiting, too.
func (o *output) close() {
	o.mu.Lock()
	for i := range o.streams {
		if o.conn != nil {
			_ = o.conn.Control(func(epoll uintptr) { o.drop(int(epoll), i) })
		}
	}
	o.mu.Unlock()
	if o.epoll != nil {
		o.epoll.Close()
	}
}
