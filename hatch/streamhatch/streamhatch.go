// Package streamhatch is the hatch for raw streams: a Unix socket of which every
// connection becomes the standard input and output of a command of the host.
//
//	h, err := streamhatch.New(streamhatch.GitUploadPack("/srv/repo.git"), streamhatch.Config{Name: "repo"})
//	...
//	defer h.Close()
//
// The socket is the capability. It leads to one resource by one program, whose
// arguments, environment and directory are the host's, so there is no request to
// be parsed and nothing else that the guest could ask for. The command has the
// very socket that the guest connected to: the host copies nothing, and the
// guest gets the end of the stream, or a reset, as the kernel gives it. A
// command that has consumed its input and exits makes end of file; one that
// dies with input unread makes ECONNRESET.
//
// # Descendants
//
// The command runs in a PID namespace of its own, started by package nsexec, as
// the same user and with the same view of the file system. When it ends, or is
// ended, the kernel kills all that it has started, also what has called setsid
// or was orphaned, so nothing of it can hold the connection. How it ended is
// learnt from the namespace's init and not by reaping, so something else in
// this process that reaps every child, or ignores SIGCHLD, changes nothing.
// Where such a namespace cannot be had, New fails with an [*IsolationError].
//
// # What is not promised
//
// A command does what its input grammar lets its peer ask for. The input of
// git upload-pack grants a repository. That of sqlite3, psql, ed or a shell has
// ways to run other commands, so such a hatch is a shell on the host, unless
// [Command.Sandbox] confines it.
//
// What a command writes to standard output, the guest sees, paths of the host
// in its error messages included. Name files relative to [Command.Dir].
package streamhatch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/populationgenomics/postern-go/hatch"
	"github.com/populationgenomics/postern-go/internal/guesttext"
)

// Config says how to make a Hatch. Its zero value will do.
type Config struct {
	// Name is that of the hatch, "stream" if empty. The guest finds the socket
	// at the path in POSTERN_HATCH_<NAME>.
	Name string

	// SocketPath is where to put the socket. If empty, it is in a private
	// directory: see Path in [hatch.SocketConfig].
	SocketPath string

	// MaxConns is how many connections are served at a time, 8 if 0. Further
	// ones wait in the kernel, where they cost the host nothing, until one is
	// over.
	MaxConns int

	// Backlog is how many connections may wait, 64 if 0.
	Backlog int

	// Grace is how long a command has from SIGTERM to SIGKILL when the hatch
	// ends it, because the last run stops or Close is called: 5 s if 0. If
	// negative, it is killed at once.
	Grace time.Duration

	// Logger gets a line at WARN for each connection that the host fails to
	// serve: the handler returns an error or panics, or the command cannot be
	// started. It gets one at DEBUG for each that the handler refuses and for
	// each command that fails, the stack of a panic, and what
	// [hatch.SocketConfig] says. Each line has the attribute
	// logger=postern.stream. What may come from the guest is escaped and capped.
	// If nil, nothing is logged.
	Logger *slog.Logger
}

const (
	defaultName     = "stream"
	defaultMaxConns = 8
	defaultGrace    = 5 * time.Second
)

// A Handler decides what a connection gets. It is a *Command, which all
// connections get, or a HandlerFunc.
type Handler interface {
	// Handle returns the command for a connection, or nil to refuse it. An
	// error refuses it too and says that something is wrong with the host. The
	// context ends when the hatch stops; a handler that does not return then
	// is not waited for.
	//
	// The guest decides how often Handle is called, and what it can read from
	// the stream. Handle is called by many goroutines.
	Handle(ctx context.Context, s *Stream) (*Command, error)
}

// A HandlerFunc is a function as a Handler.
type HandlerFunc func(ctx context.Context, s *Stream) (*Command, error)

// Handle implements [Handler].
func (f HandlerFunc) Handle(ctx context.Context, s *Stream) (*Command, error) { return f(ctx, s) }

// Hatch is a [hatch.Hatch] whose connections are served by commands.
type Hatch struct {
	handler Handler
	grace   time.Duration
	log     *slog.Logger
	socket  *hatch.Socket

	mu       sync.Mutex
	runs     int
	serving  bool
	closed   bool
	conns    map[*connection]struct{}
	loop     sync.WaitGroup // the goroutine that accepts
	commands sync.WaitGroup

	closeOnce sync.Once
	closeErr  error
}

var _ hatch.Hatch = (*Hatch)(nil)

// A connection is one being served.
type connection struct {
	*hatch.Conn
	ctx    context.Context
	cancel context.CancelFunc
}

// New makes a hatch whose socket is there, but not served. It must be closed.
//
// The error is a [*CommandError] if the handler is a Command that cannot be
// started, an [*IsolationError] if no command can, or one of [hatch.NewSocket].
func New(handler Handler, cfg Config) (*Hatch, error) {
	if handler == nil {
		return nil, errors.New("streamhatch: no handler")
	}
	if c, ok := handler.(*Command); ok {
		if err := c.Validate(); err != nil {
			return nil, err
		}
	}
	if err := probe(); err != nil {
		return nil, &IsolationError{err}
	}
	log := cfg.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	log = log.With("logger", "postern.stream")
	name := cmp.Or(cfg.Name, defaultName)
	socket, err := hatch.NewSocket(hatch.SocketConfig{
		Name:     name,
		Path:     cfg.SocketPath,
		MaxConns: cmp.Or(cfg.MaxConns, defaultMaxConns),
		Backlog:  cfg.Backlog,
		Logger:   log,
	})
	if err != nil {
		return nil, err
	}
	return &Hatch{
		handler: handler,
		grace:   cmp.Or(cfg.Grace, defaultGrace),
		log:     log.With("hatch", name),
		socket:  socket,
		conns:   make(map[*connection]struct{}),
	}, nil
}

// Name implements [hatch.Hatch].
func (h *Hatch) Name() string { return h.socket.Name() }

// SocketPath implements [hatch.Hatch].
func (h *Hatch) SocketPath() string { return h.socket.SocketPath() }

// WantsConnector says that a guest of this hatch wants the program of package
// connector.
func (h *Hatch) WantsConnector() bool { return true }

// Serve implements [hatch.Hatch]. When the last run stops, the commands being
// run are ended: by SIGTERM and, after the Grace, SIGKILL.
func (h *Hatch) Serve() (stop func(), err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	stopSocket, err := h.socket.Serve()
	if err != nil {
		return nil, err
	}
	h.runs++
	if !h.serving {
		h.serving = true
		h.loop.Go(h.accept)
	}
	return sync.OnceFunc(func() {
		// No other run can begin between the two, whose connections would be
		// ended too. And a connection that is not in conns yet is closed.
		h.mu.Lock()
		defer h.mu.Unlock()
		stopSocket()
		if h.runs--; h.runs == 0 {
			h.endAll()
		}
	}), nil
}

// endAll ends the connections. Their commands keep the socket until they are
// ended, but nothing else will begin to use it.
func (h *Hatch) endAll() {
	for c := range h.conns {
		c.cancel()
		c.UnixConn.Close()
	}
}

// Close implements [hatch.Hatch]. It ends the commands being run, by SIGTERM and,
// after the Grace, SIGKILL, and returns when nothing of them is left.
func (h *Hatch) Close() error {
	h.closeOnce.Do(func() {
		h.closeErr = h.socket.Drain()
		h.loop.Wait()
		h.mu.Lock()
		h.closed = true
		for range h.conns {
			h.log.Debug("connection cut, as the hatch closes")
		}
		h.endAll()
		h.mu.Unlock()
		h.commands.Wait()
		h.socket.Close()
	})
	return h.closeErr
}

func (h *Hatch) accept() {
	for {
		conn, err := h.socket.Accept()
		if err != nil {
			return
		}
		c := &connection{Conn: conn.(*hatch.Conn)}
		c.ctx, c.cancel = context.WithCancel(context.Background())
		h.mu.Lock()
		h.conns[c] = struct{}{}
		h.mu.Unlock()
		go h.serve(c)
	}
}

func (h *Hatch) serve(c *connection) {
	defer func() {
		c.cancel()
		h.mu.Lock()
		delete(h.conns, c)
		h.mu.Unlock()
		c.Close()
	}()
	cmd, err := h.handle(c)
	switch {
	case c.ctx.Err() != nil:
		cmd.abandon()
		return
	case err != nil:
		h.log.Warn("a handler failed", "type", guesttext.Text(fmt.Sprintf("%T", err)), "error", guesttext.Text(fmt.Sprint(err)))
		return
	case cmd == nil:
		h.log.Debug("connection refused by the handler")
		return
	}
	p, err := h.start(c, cmd)
	if err != nil {
		h.log.Warn("a command could not be started", "type", guesttext.Text(fmt.Sprintf("%T", err)), "error", guesttext.Text(err.Error()))
		return
	}
	if p == nil {
		return
	}
	defer h.commands.Done()
	// The command has the socket now, and when it closes it, it is closed.
	c.UnixConn.Close()
	h.attend(c, p)
	if err := p.result(); err != nil {
		h.log.Warn("a command could not be executed", "error", guesttext.Text(err.Error()))
	}
}

// handle calls the handler and keeps its panics from ending the host.
func (h *Hatch) handle(c *connection) (cmd *Command, err error) {
	defer func() {
		if reason := recover(); reason != nil {
			h.log.Debug("stack of the panic", "stack", guesttext.Text(debug.Stack()))
			cmd, err = nil, &panicError{reason}
		}
	}()
	cmd, err = h.handler.Handle(c.ctx, &Stream{c})
	return cmd, err
}

type panicError struct{ reason any }

func (e *panicError) Error() string { return fmt.Sprintf("panic: %v", e.reason) }

// start starts a command, unless the connection has been ended already.
func (h *Hatch) start(c *connection, cmd *Command) (process, error) {
	h.mu.Lock()
	over := h.closed || c.ctx.Err() != nil
	if !over {
		h.commands.Add(1)
	}
	h.mu.Unlock()
	if over {
		cmd.abandon()
		return nil, nil
	}
	p, err := cmd.start(&Stream{c})
	if err != nil {
		h.commands.Done()
	}
	return p, err
}

// A process is a command being run.
type process interface {
	terminate()            // SIGTERM
	kill()                 // SIGKILL
	done() <-chan struct{} // closed when nothing of it is left
	result() error         // why the command was not executed
}

// attend waits for the end of a command, and brings it about when that of
// the connection has come.
func (h *Hatch) attend(c *connection, p process) {
	select {
	case <-p.done():
		return
	case <-c.ctx.Done():
	}
	if h.grace > 0 {
		p.terminate()
		patience := time.NewTimer(h.grace)
		defer patience.Stop()
		select {
		case <-p.done():
			return
		case <-patience.C:
		}
	}
	p.kill()
	<-p.done()
}
