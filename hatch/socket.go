package hatch

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"
)

// MaxPath is the longest path, in bytes, that a Unix socket can have on Linux.
const MaxPath = 107

// acceptRetryDelay bounds how often a failing accept is tried and logged.
const acceptRetryDelay = 50 * time.Millisecond

// defaultBacklog is how many connections wait in the kernel unless told.
const defaultBacklog = 64

// SocketConfig says how to make a Socket.
type SocketConfig struct {
	// Name is that of the hatch.
	Name string

	// Path is where to put the socket. Its directory must exist, and nothing
	// may be at Path but a socket that nobody listens on, which is replaced.
	// The longest possible is MaxPath bytes. If empty, the socket is in a new
	// directory of its own, which only the user of this process can enter,
	// named postern-* in [os.TempDir].
	Path string

	// MaxConns is how many connections are accepted at a time, at least 1.
	// Further ones wait in the kernel, where they cost the host no descriptor.
	MaxConns int

	// Backlog is how many connections the kernel lets wait, 64 if 0. It may
	// let in one more, and fewer if net.core.somaxconn is smaller.
	Backlog int

	// Logger gets one line at INFO for each start and stop of a run, at WARN
	// for each failure to accept, and at DEBUG for each connection still open
	// when the last run stops. If nil, nothing is logged.
	Logger *slog.Logger
}

// Socket is a listening Unix stream socket with the lifetime of a hatch: made
// once, opened by Serve for each run, and closed for good. It implements
// [net.Listener]; whoever serves it calls Accept in a loop.
//
// The socket has mode 0666 whatever the umask, so a guest of another user may
// connect: who can reach it is decided by the directory it is in, and by which
// sandboxes it is bound into.
//
// A Socket does not look at who connects, nor at what is sent. Descriptors
// that a client attaches to its bytes are dropped by the kernel as long as the
// bytes are read with plain reads, as Conn does.
type Socket struct {
	name     string
	path     string
	maxConns int
	log      *slog.Logger
	listener *net.UnixListener
	place    place
	closing  chan struct{} // closed when closed is set

	mu     sync.Mutex
	change sync.Cond // something that Accept waits for
	closed bool      // to new runs and connections
	runs   int
	slots  int // connections accepted or being accepted, and not closed
	conns  map[*Conn]struct{}
}

// SocketError says what failed for which socket. It wraps the cause: an errno,
// ErrPathTooLong, or ErrInUse.
type SocketError struct {
	Step string // what was being done: "bind"
	Path string // the path of the socket or of its directory
	Hint string // what to do about it, if known
	Err  error
}

func (e *SocketError) Error() string {
	s := fmt.Sprintf("hatch: %s %s: %v", e.Step, e.Path, e.Err)
	if e.Hint != "" {
		s += " (" + e.Hint + ")"
	}
	return s
}

func (e *SocketError) Unwrap() error { return e.Err }

// NewSocket makes a socket that listens but does not accept until Serve. The
// error is ErrInvalidName or a *SocketError; away from Linux it is
// [errors.ErrUnsupported].
func NewSocket(cfg SocketConfig) (*Socket, error) {
	if err := CheckName(cfg.Name); err != nil {
		return nil, err
	}
	if cfg.MaxConns < 1 {
		return nil, fmt.Errorf("hatch: MaxConns is %d, want at least 1", cfg.MaxConns)
	}
	backlog := cfg.Backlog
	if backlog == 0 {
		backlog = defaultBacklog
	}
	if backlog < 0 {
		return nil, fmt.Errorf("hatch: Backlog is %d, want at least 1, or 0 for %d", backlog, defaultBacklog)
	}
	log := cfg.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	listener, place, err := listen(cfg.Path, fileName(cfg.Name), backlog)
	if err != nil {
		return nil, err
	}
	s := &Socket{
		name:     cfg.Name,
		path:     place.path,
		maxConns: cfg.MaxConns,
		log:      log.With("hatch", cfg.Name),
		listener: listener,
		place:    place,
		closing:  make(chan struct{}),
		conns:    make(map[*Conn]struct{}),
	}
	s.change.L = &s.mu
	return s, nil
}

// Name is the name of the hatch.
func (s *Socket) Name() string { return s.name }

// SocketPath is the absolute path of the socket.
func (s *Socket) SocketPath() string { return s.path }

// Addr implements [net.Listener].
func (s *Socket) Addr() net.Addr { return &net.UnixAddr{Name: s.path, Net: "unix"} }

// Serve opens the socket for one run, as [Hatch] has it.
func (s *Socket) Serve() (stop func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrClosed
	}
	s.runs++
	if s.runs == 1 {
		s.listener.SetDeadline(time.Time{})
		s.change.Broadcast()
	}
	s.log.Info("hatch started", "path", s.path)
	return sync.OnceFunc(s.stop), nil
}

func (s *Socket) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.runs--
	if s.runs == 0 {
		// Takes Accept out of the kernel.
		s.listener.SetDeadline(time.Unix(1, 0))
		s.cutLocked()
	}
	s.log.Info("hatch stopped", "path", s.path)
}

// cutLocked ends the connections, whose slots come back when those who serve
// them notice and close them.
func (s *Socket) cutLocked() {
	for c := range s.conns {
		s.log.Debug("connection cut, as the hatch stops")
		c.UnixConn.Close()
	}
}

// Accept waits for a run that needs the hatch, for one of the MaxConns slots,
// and for a connection, which is a *Conn. A failure, as when the process is out
// of descriptors, is logged and tried again, at most 20 times a second. The
// only error is [net.ErrClosed], after Drain or Close.
func (s *Socket) Accept() (net.Conn, error) {
	for {
		if !s.reserve() {
			return nil, net.ErrClosed
		}
		conn, err := s.listener.AcceptUnix()
		if c := s.admit(conn); c != nil {
			return c, nil
		}
		if err == nil || errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, net.ErrClosed) {
			continue
		}
		s.log.Warn("accepting a connection failed", "error", err, "retry_after", acceptRetryDelay)
		retry := time.NewTimer(acceptRetryDelay)
		select {
		case <-retry.C:
		case <-s.closing:
			retry.Stop()
		}
	}
}

// reserve waits for a run and a slot. It reports false after Drain.
func (s *Socket) reserve() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !s.closed && (s.runs == 0 || s.slots >= s.maxConns) {
		s.change.Wait()
	}
	if s.closed {
		return false
	}
	s.slots++
	return true
}

// admit uses the reserved slot for a connection. Without one, or if the last
// run has stopped meanwhile, it gives the slot back and returns nil.
func (s *Socket) admit(conn *net.UnixConn) *Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	if conn != nil && s.runs > 0 && !s.closed {
		c := &Conn{UnixConn: conn, socket: s}
		s.conns[c] = struct{}{}
		return c
	}
	if conn != nil {
		conn.Close()
	}
	s.slots--
	return nil
}

// Drain is Close, except that the connections stay open. It is for a hatch that
// lets them come to an end, and calls Close after that.
func (s *Socket) Drain() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	close(s.closing)
	s.change.Broadcast()
	s.mu.Unlock()
	return errors.Join(s.listener.Close(), s.place.remove())
}

// Close stops listening, closes the connections, and removes the socket and
// the directory made for it. It leaves alone what is at its path if it is no
// longer this socket, and a directory of the caller's. Further calls do nothing.
func (s *Socket) Close() error {
	err := s.Drain()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cutLocked()
	return err
}

// Conn is a connection accepted by a Socket.
type Conn struct {
	*net.UnixConn
	socket *Socket
	once   sync.Once
	err    error
}

// Close closes the connection and makes its slot free for another.
func (c *Conn) Close() error {
	c.once.Do(func() {
		c.err = c.UnixConn.Close()
		s := c.socket
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.conns, c)
		s.slots--
		s.change.Signal()
	})
	return c.err
}
