// Package grpchatch is the hatch for typed calls: a gRPC server on a Unix
// socket, of which the guest can call the methods on an allowlist and nothing
// else.
//
//	h, err := grpchatch.New(grpchatch.Config{
//		Allow: []string{"/greeter.Greeter/SayHello"},
//	})
//	...
//	defer h.Close()
//	greeterpb.RegisterGreeterServer(h, servicer{})
//
// The guest dials unix:$POSTERN_HATCH with the stubs generated for its
// language, or with raw bytes. It is taken to be hostile: see [Config] for what
// bounds it.
package grpchatch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"reflect"
	"regexp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"github.com/populationgenomics/postern-go/hatch"
)

// Config says what a Hatch lets through. Only Allow is needed.
//
// What a guest can make the host hold is bounded by MaxConns, by MaxCalls and,
// unless ServerOptions say otherwise, by these settings of the gRPC server:
//
//   - 64 streams at a time per connection (MaxConcurrentStreams);
//   - 4 MiB per message received (MaxRecvMsgSize), and 64 KiB per stream ahead of
//     what the servicer has asked for (StaticStreamWindowSize);
//   - 16 KiB of headers per call (MaxHeaderListSize);
//   - 10 s for a new connection to speak HTTP/2 (ConnectionTimeout);
//   - a connection is closed that has no call for 5 min, that does not answer a
//     ping within 20 s, sent when it has been silent for 1 min, or that pings
//     oftener than every 10 s (KeepaliveParams, KeepaliveEnforcementPolicy);
//   - a connection is closed that cuts messages into tiny frames (no option).
//
// Not bounded is what a message becomes when it is decoded, which its type
// decides, nor what the servicer does with it.
//
// The bounds are those of the hatch: sandboxes which share one compete for them.
// Guests that must not be able to starve one another get a hatch each.
type Config struct {
	// Allow lists the methods that the guest may call, as exact names of the
	// form /package.Service/Method. There are no patterns. Every one must be
	// registered before Serve. If empty, the guest can call nothing.
	Allow []string

	// Name is that of the hatch, if it is not to be the unnamed one.
	Name string

	// SocketPath is where to put the socket. If empty, it is in a private
	// directory: see Path in [hatch.SocketConfig].
	SocketPath string

	// MaxConns is how many connections are served at a time, 64 if 0. Further
	// ones wait to be accepted.
	MaxConns int

	// MaxCalls is how many allowed calls are served at a time over all
	// connections, 64 if 0. As many more wait, before any message is read,
	// until their turn or their deadline comes. What is beyond that is answered
	// RESOURCE_EXHAUSTED.
	MaxCalls int

	// Grace is how long Close lets calls come to an end, 5 s if 0. If negative,
	// it does not let them.
	Grace time.Duration

	// ServerOptions are for the gRPC server; they override the settings above.
	// Interceptors run for allowed calls only, and see the servicer's own
	// errors. Three options are the hatch's own: StreamInterceptor (use
	// ChainStreamInterceptor) and InTapHandle are errors, UnknownServiceHandler
	// has no effect.
	ServerOptions []grpc.ServerOption

	// Logger gets one line at WARN for each call of a method that is not
	// allowed, and for each call whose servicer panics or returns an error
	// that has no gRPC status. It gets the stack of the panic at DEBUG, and what
	// [hatch.SocketConfig] says. Each line has the attribute
	// logger=postern.grpc. What the guest chose is escaped and capped. If nil,
	// nothing is logged.
	Logger *slog.Logger
}

// Errors of New and Serve, found with [errors.Is].
var (
	ErrInvalidMethod = errors.New("not a method name of the form /package.Service/Method")
	ErrNotRegistered = errors.New("allowed but not registered")
)

const (
	defaultMaxConns = 64
	defaultMaxCalls = 64
	defaultGrace    = 5 * time.Second
)

var methodName = regexp.MustCompile(`^/[A-Za-z_]\w*(\.[A-Za-z_]\w*)*/[A-Za-z_]\w*$`)

// Hatch is a [hatch.Hatch] that serves gRPC, and a [grpc.ServiceRegistrar].
type Hatch struct {
	log    *slog.Logger
	socket *hatch.Socket
	server *grpc.Server
	grace  time.Duration

	allowed map[string]bool
	calls   chan struct{} // holds one item per call being served
	waiting atomic.Int64  // how many calls wait to be
	tapped  atomic.Int64  // see tap

	mu         sync.Mutex
	serving    bool
	registered map[string]bool // methods on the allowlist, and service names

	closeOnce sync.Once
	closeErr  error
}

var (
	_ hatch.Hatch           = (*Hatch)(nil)
	_ grpc.ServiceRegistrar = (*Hatch)(nil)
)

// New makes a hatch whose socket is there, but not served. It must be closed.
//
// The error is ErrInvalidMethod, one of [hatch.NewSocket], or tells
// which setting is not valid.
func New(cfg Config) (_ *Hatch, err error) {
	allowed := make(map[string]bool, len(cfg.Allow))
	for _, method := range cfg.Allow {
		if !methodName.MatchString(method) {
			return nil, fmt.Errorf("grpchatch: Allow has %q: %w", method, ErrInvalidMethod)
		}
		allowed[method] = true
	}
	maxCalls := cmp.Or(cfg.MaxCalls, defaultMaxCalls)
	if maxCalls < 1 {
		return nil, fmt.Errorf("grpchatch: MaxCalls is %d, want at least 1, or 0 for %d", cfg.MaxCalls, defaultMaxCalls)
	}
	log := cfg.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	log = log.With("logger", "postern.grpc")

	h := &Hatch{
		log:        log.With("hatch", cfg.Name),
		grace:      cmp.Or(cfg.Grace, defaultGrace),
		allowed:    allowed,
		calls:      make(chan struct{}, maxCalls),
		registered: make(map[string]bool),
	}
	if h.server, err = newServer(h.options(cfg.ServerOptions)); err != nil {
		return nil, err
	}
	h.socket, err = hatch.NewSocket(hatch.SocketConfig{
		Name:     cfg.Name,
		Path:     cfg.SocketPath,
		MaxConns: cmp.Or(cfg.MaxConns, defaultMaxConns),
		Logger:   log,
	})
	if err != nil {
		h.server.Stop()
		return nil, err
	}
	return h, nil
}

// options has the caller's between the defaults, which they override, and the
// gate, which they do not: of two values for an option, the later one holds.
func (h *Hatch) options(caller []grpc.ServerOption) []grpc.ServerOption {
	defaults := []grpc.ServerOption{
		grpc.MaxConcurrentStreams(64),
		grpc.MaxRecvMsgSize(4 << 20),
		grpc.MaxHeaderListSize(16 << 10),
		grpc.ConnectionTimeout(10 * time.Second),
		// Static, so that a window does not grow with what the guest sends.
		grpc.StaticStreamWindowSize(64 << 10),
		grpc.StaticConnWindowSize(1 << 20),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			MaxConnectionIdle: 5 * time.Minute,
			Time:              time.Minute,
			Timeout:           20 * time.Second,
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{
			MinTime:             10 * time.Second,
			PermitWithoutStream: true,
		}),
	}
	gate := []grpc.ServerOption{
		grpc.StreamInterceptor(h.gate),
		grpc.UnknownServiceHandler(unimplemented),
		grpc.InTapHandle(h.tap),
	}
	return slices.Concat(defaults, caller, gate)
}

// newServer is grpc.NewServer, which panics at an option set twice.
func newServer(options []grpc.ServerOption) (_ *grpc.Server, err error) {
	defer func() {
		if reason := recover(); reason != nil {
			err = fmt.Errorf("grpchatch: ServerOptions has one that is the hatch's own: %v", reason)
		}
	}()
	return grpc.NewServer(options...), nil
}

// RegisterService implements [grpc.ServiceRegistrar]. Generated code calls it:
// greeterpb.RegisterGreeterServer(h, servicer).
//
// Like the gRPC server's own, it takes no second service of the same name, none
// after Serve, and no impl that lacks the service's methods. It panics then.
//
// When impl panics, or returns an error that has no gRPC status, the guest is
// told that the host failed, and no more: such an error was not made for it. To
// tell it something, return one made by package status. A panic in a
// goroutine of impl's own ends the host, as any such panic does.
func (h *Hatch) RegisterService(desc *grpc.ServiceDesc, impl any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.serving {
		panic(fmt.Sprintf("grpchatch: service %s registered after Serve", desc.ServiceName))
	}
	if h.registered[desc.ServiceName] {
		panic(fmt.Sprintf("grpchatch: service %s registered twice", desc.ServiceName))
	}
	if impl != nil {
		want := reflect.TypeOf(desc.HandlerType).Elem()
		if got := reflect.TypeOf(impl); !got.Implements(want) {
			panic(fmt.Sprintf("grpchatch: service %s: %v does not implement %v", desc.ServiceName, got, want))
		}
	}
	h.registered[desc.ServiceName] = true

	// The gRPC server gets to know of the allowed methods only. So there is no
	// code that could serve another, and no description by which to read its
	// messages.
	gated := *desc
	gated.Methods, gated.Streams = nil, nil
	for _, m := range desc.Methods {
		if name := "/" + desc.ServiceName + "/" + m.MethodName; h.allowed[name] {
			h.registered[name] = true
			m.Handler = h.guardUnary(name, m.Handler)
			gated.Methods = append(gated.Methods, m)
		}
	}
	for _, s := range desc.Streams {
		if name := "/" + desc.ServiceName + "/" + s.StreamName; h.allowed[name] {
			h.registered[name] = true
			gated.Streams = append(gated.Streams, s)
		}
	}
	h.server.RegisterService(&gated, impl)
}

// Name implements [hatch.Hatch].
func (h *Hatch) Name() string { return h.socket.Name() }

// SocketPath implements [hatch.Hatch].
func (h *Hatch) SocketPath() string { return h.socket.SocketPath() }

// Serve implements [hatch.Hatch]. When the last run stops, calls still being
// served have their context cancelled.
//
// The error is ErrNotRegistered if a method on the allowlist is not, which a
// misspelt one is not, or [hatch.ErrClosed].
func (h *Hatch) Serve() (stop func(), err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for method := range h.allowed {
		if !h.registered[method] {
			return nil, fmt.Errorf("grpchatch: method %s is %w: correct it, or register its service before Serve", method, ErrNotRegistered)
		}
	}
	stop, err = h.socket.Serve()
	if err != nil {
		return nil, err
	}
	if !h.serving {
		h.serving = true
		go h.server.Serve(listener{h.socket, h.log})
	}
	return stop, nil
}

// Close implements [hatch.Hatch]. It takes no more calls, gives those being
// served the Grace to come to an end, and then cancels their context and closes
// the connections. It does not wait for a servicer that ignores its context.
func (h *Hatch) Close() error {
	h.closeOnce.Do(func() {
		h.closeErr = h.socket.Drain()
		if h.grace > 0 {
			ctx, cancel := context.WithTimeout(context.Background(), h.grace)
			defer cancel()
			go func() {
				h.server.GracefulStop()
				cancel()
			}()
			<-ctx.Done()
		}
		h.server.Stop()
		h.socket.Close()
	})
	return h.closeErr
}

// listener is the socket as the gRPC server has it.
type listener struct {
	*hatch.Socket
	log *slog.Logger
}

func (l listener) Accept() (net.Conn, error) {
	conn, err := l.Socket.Accept()
	if err != nil {
		return nil, err
	}
	return &policedConn{Conn: conn.(*hatch.Conn), log: l.log}, nil
}

// Close is what the gRPC server does at the beginning of a graceful stop.
func (l listener) Close() error { return l.Drain() }
