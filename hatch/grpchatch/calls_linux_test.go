package grpchatch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"

	pb "github.com/populationgenomics/postern-go/examples/greeter/greeterpb"
	"github.com/populationgenomics/postern-go/hatch"
	"github.com/populationgenomics/postern-go/hatch/internal/hatchtest"
)

func TestAllowedCallsOfEveryKind(t *testing.T) {
	h, s := newHatch(t, Config{Allow: everyMethod})
	serve(t, h)
	client := pb.NewGreeterClient(dial(t, h))
	ctx := t.Context()

	reply, err := client.SayHello(ctx, &pb.HelloRequest{Name: "Ada"})
	if err != nil || reply.Message != "Hello Ada" {
		t.Errorf("unary: %v, %v", reply, err)
	}

	many, err := client.SayHelloMany(ctx, &pb.HelloManyRequest{Name: "Ada", Count: 3})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if reply, err := many.Recv(); err != nil || reply.Message != "Hello Ada" {
			t.Errorf("server streaming: %v, %v", reply, err)
		}
	}
	if _, err := many.Recv(); err != io.EOF {
		t.Errorf("server streaming ended with %v", err)
	}

	all, err := client.SayHelloToAll(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"Ada", "Grace"} {
		if err := all.Send(&pb.HelloRequest{Name: name}); err != nil {
			t.Fatal(err)
		}
	}
	if reply, err := all.CloseAndRecv(); err != nil || reply.Message != "Hello Ada, Grace" {
		t.Errorf("client streaming: %v, %v", reply, err)
	}

	chat, err := client.Chat(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"Ada", "Grace"} {
		if err := chat.Send(&pb.HelloRequest{Name: name}); err != nil {
			t.Fatal(err)
		}
		if reply, err := chat.Recv(); err != nil || reply.Message != "Hello "+name {
			t.Errorf("bidirectional: %v, %v", reply, err)
		}
	}
	chat.CloseSend()
	if _, err := chat.Recv(); err != io.EOF {
		t.Errorf("bidirectional ended with %v", err)
	}
	if n := s.entered.Load(); n != 4 {
		t.Errorf("%d calls reached the servicer, want 4", n)
	}
}

// call starts a call and sends no message, so that what is answered is
// answered before one is read.
func call(ctx context.Context, t *testing.T, conn *grpc.ClientConn, method string) error {
	t.Helper()
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method)
	if err != nil {
		return err
	}
	return stream.RecvMsg(new(pb.HelloReply))
}

func TestEverythingElseIsDenied(t *testing.T) {
	const allowed = "/greeter.Greeter/Chat"
	denied := []string{
		// Registered, one of each kind.
		pb.Greeter_SayHello_FullMethodName,
		pb.Greeter_SayHelloMany_FullMethodName,
		pb.Greeter_SayHelloToAll_FullMethodName,
		// Not registered.
		"/greeter.Greeter/Nothing",
		"/other.Service/Method",
		"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
		"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
		"/grpc.health.v1.Health/Watch",
		// Registered and not allowed, of another service.
		"/grpc.health.v1.Health/Check",
		// Almost an allowed one.
		"/greeter.Greeter/chat",
		"/greeter.Greeter/Chat/",
		"/greeter.Greeter/Chat ",
		"/greeter.Greeter//Chat",
		"//greeter.Greeter/Chat",
		"/./greeter.Greeter/Chat",
		"/greeter.Greeter/../greeter.Greeter/Chat",
		"/greeter.Greeter%2fChat",
		"/greeter.Greeter/Chat?x",
		"/Greeter/Chat",
		// Not of the form of a method.
		"//",
		"///",
		"/",
		"/greeter.Greeter",
		"/Chat",
		"/\xff\xfe/\xff",
		"/" + strings.Repeat("a", 4000) + "/b",
	}
	for _, refusedBy := range []string{"tap, without a deadline", "tap, with one", "gate"} {
		t.Run(refusedBy, func(t *testing.T) {
			var log hatchtest.Log
			h, s := newHatch(t, Config{Allow: []string{allowed}, Logger: log.Logger(slog.LevelWarn)})
			grpc_health_v1.RegisterHealthServer(h, health.NewServer())
			serve(t, h)
			conn := dial(t, h)
			ctx := t.Context()
			if refusedBy != "tap, without a deadline" {
				var cancel func()
				ctx, cancel = context.WithTimeout(ctx, time.Hour)
				defer cancel()
			}
			denied := denied
			if refusedBy == "gate" {
				h.tapped.Store(maxTapped)
				denied = slices.DeleteFunc(slices.Clone(denied), func(method string) bool {
					return strings.Count(method, "/") < 2 // see tap
				})
			}
			for _, method := range denied {
				err := call(ctx, t, conn, method)
				if got, want := status.Code(err), codes.PermissionDenied; got != want {
					t.Errorf("%.80q: %v, want %v", method, err, want)
				}
				// A gRPC status is UTF-8, so that is what can be exact.
				if got, want := status.Convert(err).Message(), string([]rune(method))+" is not on the hatch allowlist"; got != want {
					t.Errorf("%.80q: message %q, want %q", method, got, want)
				}
			}
			if n := s.entered.Load(); n != 0 {
				t.Errorf("%d denied calls reached the servicer", n)
			}
			warnings := log.Entries(t, slog.LevelWarn)
			if len(warnings) != len(denied) {
				t.Errorf("%d warnings for %d denied calls", len(warnings), len(denied))
			}
			for _, w := range warnings {
				if method, _ := w["method"].(string); w["logger"] != "postern.grpc" || len(method) > 3000 || strings.ContainsRune(method, '\ufffd') {
					t.Errorf("a warning is %v", w)
				}
			}
			// The control: the same client reaches what is allowed.
			chat, err := pb.NewGreeterClient(conn).Chat(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if err := chat.Send(&pb.HelloRequest{Name: "Ada"}); err != nil {
				t.Fatal(err)
			}
			if reply, err := chat.Recv(); err != nil || reply.Message != "Hello Ada" {
				t.Errorf("the allowed call: %v, %v", reply, err)
			}
			chat.CloseSend()
			if _, err := chat.Recv(); err != io.EOF {
				t.Error(err)
			}
		})
	}
}

// The server would say that it does not know the encoding.
func TestDenialComesBeforeTheEncoding(t *testing.T) {
	h, _ := newHatch(t, Config{})
	serve(t, h)
	c := connectRaw(t, h)
	c.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	if _, err := c.call(pb.Greeter_SayHello_FullMethodName, hpack.HeaderField{Name: "grpc-encoding", Value: "x"}); err != nil {
		t.Fatal(err)
	}
	for {
		frame, err := c.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if headers, ok := frame.(*http2.MetaHeadersFrame); ok {
			for _, f := range headers.Fields {
				if f.Name == "grpc-status" && f.Value != fmt.Sprint(uint32(codes.PermissionDenied)) {
					t.Errorf("status %s", f.Value)
				}
			}
			return
		}
	}
}

func TestNothingIsAllowedByDefault(t *testing.T) {
	h, s := newHatch(t, Config{})
	serve(t, h)
	conn := dial(t, h)
	for _, method := range everyMethod {
		if err := call(t.Context(), t, conn, method); status.Code(err) != codes.PermissionDenied {
			t.Errorf("%s: %v", method, err)
		}
	}
	if n := s.entered.Load(); n != 0 {
		t.Errorf("%d calls reached the servicer", n)
	}
}

func TestListedServicesOfGRPCWork(t *testing.T) {
	h, _ := newHatch(t, Config{Allow: []string{grpc_health_v1.Health_Check_FullMethodName}})
	grpc_health_v1.RegisterHealthServer(h, health.NewServer())
	serve(t, h)
	client := grpc_health_v1.NewHealthClient(dial(t, h))
	reply, err := client.Check(t.Context(), new(grpc_health_v1.HealthCheckRequest))
	if err != nil || reply.Status != grpc_health_v1.HealthCheckResponse_SERVING {
		t.Errorf("%v, %v", reply, err)
	}
}

// The host's interceptors are code of the host that takes what the guest sends.
func TestInterceptorsRunForAllowedCallsOnly(t *testing.T) {
	var unary, streaming int
	h, _ := newHatch(t, Config{
		Allow: []string{pb.Greeter_SayHello_FullMethodName, pb.Greeter_Chat_FullMethodName},
		ServerOptions: []grpc.ServerOption{
			grpc.UnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
				unary++
				return handler(ctx, req)
			}),
			grpc.ChainStreamInterceptor(func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
				streaming++
				return handler(srv, stream)
			}),
			grpc.UnknownServiceHandler(func(any, grpc.ServerStream) error { panic("the caller's own") }),
		},
	})
	serve(t, h)
	conn := dial(t, h)
	for _, method := range []string{pb.Greeter_SayHelloMany_FullMethodName, pb.Greeter_SayHelloToAll_FullMethodName, "/no.Such/Method", "/"} {
		if err := call(t.Context(), t, conn, method); status.Code(err) != codes.PermissionDenied {
			t.Errorf("%s: %v", method, err)
		}
	}
	if unary != 0 || streaming != 0 {
		t.Errorf("interceptors ran %d and %d times for denied calls", unary, streaming)
	}
	client := pb.NewGreeterClient(conn)
	if _, err := client.SayHello(t.Context(), new(pb.HelloRequest)); err != nil {
		t.Error(err)
	}
	chat, err := client.Chat(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	chat.CloseSend()
	if _, err := chat.Recv(); err != io.EOF {
		t.Error(err)
	}
	if unary != 1 || streaming != 1 {
		t.Errorf("interceptors ran %d and %d times for allowed calls, want 1 and 1", unary, streaming)
	}
}

type statsHandler struct {
	stats.Handler
	conns chan struct{}
}

func (statsHandler) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (statsHandler) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (statsHandler) HandleRPC(context.Context, stats.RPCStats)                         {}
func (s statsHandler) HandleConn(_ context.Context, event stats.ConnStats) {
	if _, ok := event.(*stats.ConnBegin); ok {
		s.conns <- struct{}{}
	}
}

func TestServerOptionsPassThrough(t *testing.T) {
	conns := make(chan struct{}, 1)
	h, _ := newHatch(t, Config{
		Allow:         everyMethod,
		ServerOptions: []grpc.ServerOption{grpc.MaxRecvMsgSize(100), grpc.StatsHandler(statsHandler{conns: conns})},
	})
	serve(t, h)
	client := pb.NewGreeterClient(dial(t, h))
	if _, err := client.SayHello(t.Context(), &pb.HelloRequest{Name: strings.Repeat("a", 50)}); err != nil {
		t.Error(err)
	}
	if _, err := client.SayHello(t.Context(), &pb.HelloRequest{Name: strings.Repeat("a", 150)}); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a message beyond the caller's limit: %v", err)
	}
	<-conns
}

func TestBadConfig(t *testing.T) {
	hatchtest.NoLeaks(t)
	for _, cfg := range []Config{
		{Name: "hatch"},
		{MaxConns: -1},
		{MaxCalls: -1},
		{SocketPath: "/" + strings.Repeat("a", 200)},
		{ServerOptions: []grpc.ServerOption{grpc.StreamInterceptor(func(any, grpc.ServerStream, *grpc.StreamServerInfo, grpc.StreamHandler) error { return nil })}},
	} {
		if h, err := New(cfg); err == nil {
			h.Close()
			t.Errorf("%+v was accepted", cfg)
		}
	}
	for _, method := range []string{
		"", "/", "//", "greeter.Greeter/SayHello", "/greeter.Greeter", "/greeter.Greeter/", "/greeter.Greeter/*",
		"/*", "/greeter.Greeter/SayHello ", "/greeter.Greeter/SayHello\n", "/a/b/c", "/.a/b", "/a./b", "/a..b/c", "/1a/b", "/a/é",
	} {
		h, err := New(Config{Allow: []string{method}})
		if err == nil {
			h.Close()
		}
		if !errors.Is(err, ErrInvalidMethod) {
			t.Errorf("Allow %q: %v", method, err)
		}
	}
}

func TestAllowedButNotRegistered(t *testing.T) {
	h, _ := newHatch(t, Config{Allow: []string{"/greeter.Greeter/SayHallo"}})
	if _, err := h.Serve(); !errors.Is(err, ErrNotRegistered) || !strings.Contains(err.Error(), "SayHallo") {
		t.Errorf("Serve: %v", err)
	}
}

func TestRegistrationMistakesPanic(t *testing.T) {
	h, s := newHatch(t, Config{})
	panics := func(what string, f func()) {
		t.Helper()
		defer func() {
			if reason := recover(); reason == nil || !strings.HasPrefix(fmt.Sprint(reason), "grpchatch: service ") {
				t.Errorf("%s: recovered %v", what, reason)
			}
		}()
		f()
	}
	panics("twice", func() { pb.RegisterGreeterServer(h, s) })
	panics("of another type", func() { h.RegisterService(&grpc_health_v1.Health_ServiceDesc, s) })
	serve(t, h)
	panics("late", func() { grpc_health_v1.RegisterHealthServer(h, health.NewServer()) })
}

func TestFailingServicer(t *testing.T) {
	var log hatchtest.Log
	h, _ := newHatch(t, Config{Allow: everyMethod, Logger: log.Logger(slog.LevelDebug)})
	serve(t, h)
	client := pb.NewGreeterClient(dial(t, h))
	unary := func(name string) error {
		_, err := client.SayHello(t.Context(), &pb.HelloRequest{Name: name})
		return err
	}
	streaming := func(name string) error {
		stream, err := client.SayHelloMany(t.Context(), &pb.HelloManyRequest{Name: name, Count: 1})
		if err != nil {
			return err
		}
		_, err = stream.Recv()
		return err
	}
	for kind, do := range map[string]func(string) error{"unary": unary, "streaming": streaming} {
		for _, tt := range []struct {
			name, message string
			code          codes.Code
			logged        bool
		}{
			{"panic", failed, codes.Internal, true},
			{"typed nil", failed, codes.Internal, true},
			{"error", failed, codes.Unknown, true},
			{"status", "wrapped: rpc error: code = NotFound desc = no such person", codes.NotFound, false},
		} {
			before := len(log.Entries(t, slog.LevelWarn))
			err := do(tt.name)
			if status.Code(err) != tt.code || status.Convert(err).Message() != tt.message {
				t.Errorf("%s, %s: %v, want %v: %s", kind, tt.name, err, tt.code, tt.message)
			}
			if got := len(log.Entries(t, slog.LevelWarn)) - before; (got == 1) != tt.logged || got > 1 {
				t.Errorf("%s, %s: %d warnings", kind, tt.name, got)
			}
		}
	}
	for _, w := range log.Entries(t, slog.LevelWarn) {
		if reason, _ := w["error"].(string); reason == "" || strings.Contains(reason, "\n") || w["type"] == "" || w["method"] == "" {
			t.Errorf("a warning is %v", w)
		}
	}
	stacks := log.Entries(t, slog.LevelDebug)
	if len(stacks) != 4 {
		t.Fatalf("%d stacks for 4 panics", len(stacks))
	}
	for _, entry := range stacks {
		if stack, _ := entry["stack"].(string); !strings.Contains(stack, "grpchatch.(*servicer).greet:") && !strings.Contains(stack, "grpchatch.(*nilError).Error:") || strings.Contains(stack, secret) {
			t.Errorf("the stack is %s", stack)
		}
	}
	works(t, h)
}

func TestMaxCalls(t *testing.T) {
	const limit = 3
	h, s := newHatch(t, Config{Allow: everyMethod, MaxCalls: limit})
	serve(t, h)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	client := pb.NewGreeterClient(dial(t, h))
	chats := make([]grpc.BidiStreamingClient[pb.HelloRequest, pb.HelloReply], 0, limit)
	for range limit {
		chat, err := client.Chat(ctx)
		if err != nil {
			t.Fatal(err)
		}
		chats = append(chats, chat)
	}
	hatchtest.Eventually(t, "every turn is taken", func() bool { return s.entered.Load() == limit })

	// One more waits till its deadline, of either kind.
	short, stop := context.WithTimeout(ctx, 50*time.Millisecond)
	defer stop()
	if _, err := client.SayHello(short, new(pb.HelloRequest)); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("unary: %v", err)
	}
	if err := call(short, t, dial(t, h), pb.Greeter_Chat_FullMethodName); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("streaming: %v", err)
	}
	if n := s.entered.Load(); n != limit {
		t.Errorf("%d calls reached the servicer, want %d", n, limit)
	}
	// What is not allowed does not need a turn to be denied.
	if err := call(ctx, t, dial(t, h), "/no.Such/Method"); status.Code(err) != codes.PermissionDenied {
		t.Errorf("denied: %v", err)
	}
	// And one gets its turn when another ends.
	answered := make(chan error)
	go func() {
		_, err := client.SayHello(ctx, new(pb.HelloRequest))
		answered <- err
	}()
	chats[0].CloseSend()
	if err := <-answered; err != nil {
		t.Error(err)
	}
}

func TestNamedHatches(t *testing.T) {
	one, _ := newHatch(t, Config{Allow: everyMethod})
	two, err := New(Config{Name: "admin", Allow: everyMethod})
	if err != nil {
		t.Fatal(err)
	}
	defer two.Close()
	pb.RegisterGreeterServer(two, new(servicer))
	serve(t, one)
	serve(t, two)
	if err := hatch.CheckSet([]hatch.Hatch{one, two}); err != nil {
		t.Error(err)
	}
	works(t, one)
	works(t, two)
}
