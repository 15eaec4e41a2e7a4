package grpchatch

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	pb "github.com/populationgenomics/postern-go/examples/greeter/greeterpb"
	"github.com/populationgenomics/postern-go/hatch/internal/hatchtest"
)

// Every test here also fails if a descriptor or goroutine is left
// when the hostile client and the hatch are gone: see newHatch.

const chat = pb.Greeter_Chat_FullMethodName

// farDeadline is one for which a timer never goes off.
var farDeadline = hpack.HeaderField{Name: "grpc-timeout", Value: "99999999H"}

// grew fails the test if the heap is larger than it was, by more than allowed.
func grew(t *testing.T, before, allowed int) {
	t.Helper()
	if growth := hatchtest.Heap() - before; growth > allowed {
		t.Errorf("the heap grew by %d KiB, want at most %d", growth>>10, allowed>>10)
	}
}

func TestConnectionFlood(t *testing.T) {
	const maxConns, clients = 4, 200
	h, _ := newHatch(t, Config{Allow: everyMethod, MaxConns: maxConns, ServerOptions: []grpc.ServerOption{grpc.ConnectionTimeout(time.Minute)}})
	serve(t, h)
	// Clients that say nothing. Those beyond the backlog find nobody at home.
	goroutines, descriptors := runtime.NumGoroutine(), hatchtest.Descriptors(t)
	opened := 0
	for range clients {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		opened++
		defer unix.Close(fd)
		if err := unix.Connect(fd, &unix.SockaddrUnix{Name: h.SocketPath()}); err == unix.EAGAIN {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if opened == clients {
		t.Errorf("the kernel let %d connections wait", clients)
	}
	if n := runtime.NumGoroutine() - goroutines; n > 2*maxConns {
		t.Errorf("%d goroutines for %d connections", n, maxConns)
	}
	if n := hatchtest.Descriptors(t) - descriptors - opened; n > maxConns {
		t.Errorf("%d descriptors for %d connections", n, maxConns)
	}
}

func TestSilentClientsLoseTheirPlace(t *testing.T) {
	const maxConns = 4
	h, _ := newHatch(t, Config{Allow: everyMethod, MaxConns: maxConns, ServerOptions: []grpc.ServerOption{grpc.ConnectionTimeout(50 * time.Millisecond)}})
	serve(t, h)
	for i := range 2 * maxConns {
		conn := connect(t, h)
		io.WriteString(conn, http2.ClientPreface[:3*i])
	}
	works(t, h)
}

func TestRapidReset(t *testing.T) {
	h, _ := newHatch(t, Config{Allow: everyMethod})
	serve(t, h)
	goroutines, heap := runtime.NumGoroutine(), hatchtest.Heap()
	c := connectRaw(t, h)
	ended := c.discard()
	most := 0
	for i := range 20_000 {
		stream, err := c.call(chat, farDeadline)
		if err == nil {
			err = c.WriteRSTStream(stream, http2.ErrCodeCancel)
		}
		if err != nil {
			t.Fatal(err)
		}
		if i%100 == 0 {
			most = max(most, runtime.NumGoroutine()-goroutines)
		}
	}
	if most > 64+8 {
		t.Errorf("%d goroutines for 64 streams", most)
	}
	works(t, h)
	c.Close()
	<-ended
	grew(t, heap, 4<<20)
}

func TestStreamFlood(t *testing.T) {
	h, s := newHatch(t, Config{Allow: everyMethod, MaxCalls: 10})
	serve(t, h)
	heap := hatchtest.Heap()
	c := connectRaw(t, h)
	const streams = 2000
	written := make(chan error)
	go func() {
		for range streams {
			if _, err := c.call(chat); err != nil {
				written <- err
				return
			}
		}
		written <- nil
	}()
	// 10 served, 10 wait, 44 are told that this is too much, and the rest is
	// refused by the limit of the connection, or told so later.
	refused, told := 0, 0
	for refused+told < streams-20 {
		frame, err := c.ReadFrame()
		if err != nil {
			t.Fatalf("%v, after %d refused and %d told", err, refused, told)
		}
		switch frame := frame.(type) {
		case *http2.RSTStreamFrame:
			if frame.ErrCode == http2.ErrCodeRefusedStream {
				refused++
			}
		case *http2.HeadersFrame:
			told++
		}
	}
	if err := <-written; err != nil {
		t.Fatal(err)
	}
	if n := s.entered.Load(); n != 10 {
		t.Errorf("%d calls reached the servicer, want 10", n)
	}
	c.Close()
	works(t, h)
	grew(t, heap, 4<<20)
}

func TestContinuationFlood(t *testing.T) {
	h, _ := newHatch(t, Config{Allow: everyMethod})
	serve(t, h)
	heap := hatchtest.Heap()
	c := connectRaw(t, h)
	ended := c.discard()
	if err := c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: c.fragment(chat)}); err != nil {
		t.Fatal(err)
	}
	c.fields.Reset()
	c.encoder.WriteField(hpack.HeaderField{Name: "x", Value: strings.Repeat("y", 10_000), Sensitive: true})
	sent := 0
	for ; sent < 64<<20; sent += c.fields.Len() {
		if err := c.WriteContinuation(1, false, c.fields.Bytes()); err != nil {
			break
		}
	}
	if sent >= 64<<20 {
		t.Error("the server took 64 MiB of headers")
	}
	<-ended
	works(t, h)
	grew(t, heap, 4<<20)
}

// A field of 4000 bytes, sent once and then referred to in one byte each.
func TestHeaderBomb(t *testing.T) {
	h, s := newHatch(t, Config{Allow: everyMethod})
	serve(t, h)
	heap := hatchtest.Heap()
	c := connectRaw(t, h)
	ended := c.discard()
	for range 20 {
		stream := c.next
		c.next += 2
		c.fragment(chat)
		for range 10_000 {
			c.encoder.WriteField(hpack.HeaderField{Name: "x", Value: strings.Repeat("y", 3900)})
		}
		if c.fields.Len() > 16<<10 {
			t.Fatalf("the bomb has %d bytes", c.fields.Len())
		}
		if err := c.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: c.fields.Bytes(), EndHeaders: true}); err != nil {
			break
		}
	}
	works(t, h)
	if n := s.entered.Load(); n != 1 {
		t.Errorf("%d calls reached the servicer, want the one of the control", n)
	}
	grew(t, heap, 4<<20)
	c.Close()
	<-ended
}

func TestLargeHeaders(t *testing.T) {
	h, _ := newHatch(t, Config{Allow: everyMethod})
	serve(t, h)
	client := pb.NewGreeterClient(dial(t, h))
	for size, ok := range map[int]bool{1 << 10: true, 8 << 10: true, 20 << 10: false, 1 << 20: false} {
		ctx := metadata.AppendToOutgoingContext(t.Context(), "x", strings.Repeat("y", size))
		if _, err := client.SayHello(ctx, new(pb.HelloRequest)); (err == nil) != ok {
			t.Errorf("%d bytes of headers: %v", size, err)
		}
	}
}

func TestGiantMessages(t *testing.T) {
	h, s := newHatch(t, Config{Allow: everyMethod})
	serve(t, h)
	heap := hatchtest.Heap()
	client := pb.NewGreeterClient(dial(t, h))
	if _, err := client.SayHello(t.Context(), &pb.HelloRequest{Name: strings.Repeat("a", 5<<20)}); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("5 MiB: %v", err)
	}
	if n := s.entered.Load(); n != 0 {
		t.Errorf("%d calls reached the servicer", n)
	}
	// Announced, and not sent.
	c := connectRaw(t, h)
	for range 60 {
		stream, err := c.call(chat)
		if err != nil {
			t.Fatal(err)
		}
		prefix := make([]byte, messagePrefixLen)
		binary.BigEndian.PutUint32(prefix[1:], math.MaxUint32-uint32(stream))
		if err := c.WriteData(stream, false, prefix); err != nil {
			t.Fatal(err)
		}
	}
	for ended := 0; ended < 60; {
		frame, err := c.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if frame, ok := frame.(*http2.HeadersFrame); ok && frame.StreamEnded() {
			ended++
		}
	}
	c.Close()
	if reply, err := client.SayHello(t.Context(), &pb.HelloRequest{Name: strings.Repeat("a", 3<<20)}); err != nil || len(reply.Message) < 3<<20 {
		t.Errorf("3 MiB: %v", err)
	}
	grew(t, heap, 16<<20) // pooled buffers of the 3 MiB
}

func TestTinyFrames(t *testing.T) {
	var log hatchtest.Log
	h, _ := newHatch(t, Config{Allow: everyMethod, Logger: log.Logger(slog.LevelDebug)})
	serve(t, h)
	c := connectRaw(t, h)
	ended := c.discard()
	stream, err := c.call(chat)
	if err != nil {
		t.Fatal(err)
	}
	all := message(4<<20 - 10)
	for i := range all {
		if c.WriteData(stream, false, all[i:i+1]) != nil {
			break
		}
	}
	<-ended // by the server
	found := false
	for _, entry := range log.Entries(t, slog.LevelDebug) {
		found = found || entry["error"] == errTinyFrames.Error()
	}
	if !found {
		t.Error("the connection ended for another reason")
	}
	works(t, h)
}

// A client that lets the server send all it wants, and reads nothing.
func TestClientThatNeverReads(t *testing.T) {
	h, s := newHatch(t, Config{Allow: everyMethod})
	serve(t, h)
	heap := hatchtest.Heap()
	c := connectRaw(t, h, http2.Setting{ID: http2.SettingInitialWindowSize, Val: math.MaxInt32})
	if err := c.WriteWindowUpdate(0, math.MaxInt32-65535); err != nil {
		t.Fatal(err)
	}
	const calls = 20
	request := encode(t, &pb.HelloManyRequest{Name: strings.Repeat("a", 10_000), Count: math.MaxInt32})
	for range calls {
		stream, err := c.call(pb.Greeter_SayHelloMany_FullMethodName)
		if err == nil {
			err = c.WriteData(stream, true, request)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	hatchtest.Eventually(t, "the calls are served", func() bool { return s.entered.Load() == calls })
	// Meanwhile it makes work whose answers it does not read. At some point
	// the server does not read either.
	flooded := make(chan struct{})
	var written atomic.Int64
	go func() {
		defer close(flooded)
		for {
			if _, err := c.call("/no.Such/Method"); err != nil {
				return
			}
			written.Add(1)
		}
	}()
	hatchtest.Eventually(t, "hundreds of calls are not answered", func() bool { return written.Load() >= 300 })
	works(t, h)
	grew(t, heap, 32<<20)
	c.Close()
	<-flooded
	hatchtest.Eventually(t, "the servicers are done", func() bool { return len(h.calls) == 0 })
	grew(t, heap, 8<<20)
}

// A client that holds calls and does not answer is cut off in the end.
func TestKeepalive(t *testing.T) {
	h, s := newHatch(t, Config{Allow: everyMethod, ServerOptions: []grpc.ServerOption{
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: time.Second, Timeout: 50 * time.Millisecond}),
	}})
	serve(t, h)
	c := connectRaw(t, h)
	if _, err := c.call(chat); err != nil {
		t.Fatal(err)
	}
	hatchtest.Eventually(t, "the call is served", func() bool { return s.entered.Load() == 1 })
	<-c.discard()
	hatchtest.Eventually(t, "the servicer is done", func() bool { return len(h.calls) == 0 })
}

func TestPingFlood(t *testing.T) {
	h, _ := newHatch(t, Config{Allow: everyMethod})
	serve(t, h)
	c := connectRaw(t, h)
	go func() {
		for c.WritePing(false, [8]byte{}) == nil {
		}
	}()
	for {
		frame, err := c.ReadFrame()
		if err != nil {
			t.Fatalf("no reason was given: %v", err)
		}
		if frame, ok := frame.(*http2.GoAwayFrame); ok {
			if frame.ErrCode != http2.ErrCodeEnhanceYourCalm {
				t.Errorf("the reason is %v", frame.ErrCode)
			}
			break
		}
	}
	<-c.discard()
	works(t, h)
}

// gRPC keeps the timer of some refused calls until their deadline. That of
// these is in eleven thousand years.
func TestRefusedCallsLeaveNothing(t *testing.T) {
	for _, method := range []string{"/no.Such/Method", "/malformed"} {
		t.Run(method[1:], func(t *testing.T) {
			h, _ := newHatch(t, Config{Allow: everyMethod})
			serve(t, h)
			c := connectRaw(t, h)
			ended := c.discard()
			flood := func(calls int) {
				for range calls {
					stream, err := c.call(method, farDeadline)
					if err == nil {
						err = c.WriteRSTStream(stream, http2.ErrCodeCancel)
					}
					if err != nil {
						t.Fatal(err)
					}
				}
			}
			flood(5_000)
			heap := hatchtest.Heap()
			flood(50_000)
			grew(t, heap, 2<<20)
			works(t, h)
			c.Close()
			<-ended
		})
	}
}

func TestMalformedMethodsBeyondTheBound(t *testing.T) {
	h, s := newHatch(t, Config{Allow: everyMethod})
	serve(t, h)
	conn := dial(t, h)
	ctx, cancel := context.WithTimeout(t.Context(), 1000*time.Hour)
	defer cancel()
	got := make(map[codes.Code]int)
	for range maxTapped + 10 {
		got[status.Code(call(ctx, t, conn, "/malformed"))]++
	}
	if got[codes.PermissionDenied] != maxTapped || got[codes.Unimplemented] != 10 {
		t.Errorf("answers: %v", got)
	}
	// Without a deadline there is no bound.
	if err := call(t.Context(), t, conn, "/malformed"); status.Code(err) != codes.PermissionDenied {
		t.Error(err)
	}
	if n := s.entered.Load(); n != 0 {
		t.Errorf("%d calls reached the servicer", n)
	}
}

func TestSentDescriptorsAreDropped(t *testing.T) {
	h, s := newHatch(t, Config{Allow: everyMethod})
	serve(t, h)
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	conn := connect(t, h)
	c := &rawClient{UnixConn: conn, next: 1}
	c.encoder = hpack.NewEncoder(&c.fields)
	c.Framer = http2.NewFramer(withDescriptors{conn, unix.UnixRights(int(null.Fd()), int(null.Fd()))}, conn)
	io.WriteString(conn, http2.ClientPreface)
	c.WriteSettings()
	before := 0
	for i := range 200 {
		stream, err := c.call(chat)
		if err == nil {
			err = c.WriteData(stream, true, nil)
		}
		if err != nil {
			t.Fatal(err)
		}
		// The call is answered, so all that came with it has been read.
		for {
			frame, err := c.ReadFrame()
			if err != nil {
				t.Fatal(err)
			}
			if frame, ok := frame.(*http2.HeadersFrame); ok && frame.StreamEnded() {
				break
			}
		}
		if i == 0 {
			before = hatchtest.Descriptors(t)
		}
	}
	if after := hatchtest.Descriptors(t); after != before {
		t.Errorf("%d descriptors after one call, %d after 200", before, after)
	}
	if n := s.entered.Load(); n != 200 {
		t.Errorf("%d calls reached the servicer", n)
	}
}

// withDescriptors attaches descriptors to all that is written.
type withDescriptors struct {
	*net.UnixConn
	rights []byte
}

func (w withDescriptors) Write(p []byte) (int, error) {
	n, _, err := w.WriteMsgUnix(p, w.rights, nil)
	return n, err
}

func TestGarbage(t *testing.T) {
	h, _ := newHatch(t, Config{Allow: everyMethod})
	serve(t, h)
	random := rand.NewChaCha8([32]byte{})
	for i := range 300 {
		garbage := make([]byte, 1+i*7)
		random.Read(garbage)
		conn := connect(t, h)
		if i%2 == 0 {
			io.WriteString(conn, http2.ClientPreface)
			conn.Write([]byte{0, 0, 0, byte(http2.FrameSettings), 0, 0, 0, 0, 0})
		}
		conn.Write(garbage)
		conn.CloseWrite()
		io.Copy(io.Discard, conn)
		conn.Close()
	}
	works(t, h)
}

// What the guest chose is one line of the log at most, however it is written.
func TestLogCannotBeForged(t *testing.T) {
	var out strings.Builder
	h, _ := newHatch(t, Config{Allow: everyMethod, Logger: slog.New(slog.NewTextHandler(&out, nil))})
	stop, err := h.Serve()
	if err != nil {
		t.Fatal(err)
	}
	conn := dial(t, h)
	methods := []string{"/a\u2028level=ERROR/b", "/a\u0085/b", "/a\"/b", "/a\xff/b", "/" + strings.Repeat("\xff", 5000) + "/b"}
	for _, method := range methods {
		if err := call(t.Context(), t, conn, method); status.Code(err) != codes.PermissionDenied {
			t.Errorf("%.20q: %v", method, err)
		}
	}
	// HTTP/2 itself has no newline in a header: that call is not even refused.
	if err := call(t.Context(), t, conn, "/a\nlevel=ERROR/b"); status.Code(err) == codes.PermissionDenied {
		t.Errorf("a newline in a header: %v", err)
	}
	if _, err := pb.NewGreeterClient(conn).SayHello(t.Context(), &pb.HelloRequest{Name: "panic"}); status.Code(err) != codes.Internal {
		t.Error(err)
	}
	stop()
	h.Close()
	lines := strings.FieldsFunc(out.String(), func(r rune) bool { return r == '\n' || r == '\u2028' || r == '\u0085' })
	if want := len(methods) + 3; len(lines) != want {
		t.Errorf("%d lines, want %d:\n%s", len(lines), want, out.String())
	}
	for _, line := range lines {
		if !strings.HasPrefix(line, "time=") || len(line) > 4000 {
			t.Errorf("a line is %s", line)
		}
	}
}

func TestFloodFromManyClients(t *testing.T) {
	h, _ := newHatch(t, Config{Allow: everyMethod, MaxCalls: 1000})
	serve(t, h)
	heap := hatchtest.Heap()
	errs := make(chan error)
	const clients = 20
	for i := range clients {
		conn := dial(t, h)
		go func() {
			client := pb.NewGreeterClient(conn)
			for range 50 {
				want := fmt.Sprint("client ", i)
				reply, err := client.SayHello(t.Context(), &pb.HelloRequest{Name: want})
				if err == nil && reply.Message != "Hello "+want {
					err = fmt.Errorf("client %d was told %q", i, reply.Message)
				}
				if err != nil {
					errs <- err
					return
				}
			}
			errs <- nil
		}()
	}
	for range clients {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	grew(t, heap, 16<<20)
}
