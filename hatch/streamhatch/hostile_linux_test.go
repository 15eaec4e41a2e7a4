package streamhatch

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/populationgenomics/postern-go/hatch/internal/hatchtest"
)

// What hostile guests can make a host hold is bounded, and it lets go of it.
// The counts are of this process: its descriptors, goroutines and heap.

const maxConns = 4

// perConnection bounds the descriptors of a connection while a command is being
// started for it: the socket twice, the launch image, both ends of its control
// socket, /dev/null, the hold on the init, and those of the launch's vfork.
const perConnection = 10

func TestConnectionFlood(t *testing.T) {
	var served atomic.Int64
	h := serving(t, HandlerFunc(func(ctx context.Context, s *Stream) (*Command, error) {
		served.Add(1)
		return Exec("cat"), nil
	}), Config{MaxConns: maxConns, Backlog: 64})
	heap, before := hatchtest.Heap(), hatchtest.Descriptors(t)
	const clients, goroutines = 16, 4 * maxConns
	most := 0
	stop := make(chan struct{})
	results := make(chan int)
	for range clients {
		go func() {
			n := 0
			for {
				select {
				case <-stop:
					results <- n
					return
				default:
				}
				if c, err := net.Dial("unix", h.SocketPath()); err == nil {
					n++
					c.Close()
				}
			}
		}()
	}
	for served.Load() < 200 {
		most = max(most, hatchtest.Descriptors(t))
	}
	close(stop)
	total := 0
	for range clients {
		total += <-results
	}
	if total < 200 {
		t.Errorf("only %d connections: no flood", total)
	}
	if limit := before + 2*clients + maxConns*perConnection; most > limit {
		t.Errorf("%d descriptors, at most %d are due", most, limit)
	}
	works(t, h)
	hatchtest.Eventually(t, "descriptors are as before", func() bool { return hatchtest.Descriptors(t) <= before })
	if grown := hatchtest.Heap() - heap; grown > 4<<20 {
		t.Errorf("the heap has grown by %d bytes", grown)
	}
}

// works fails the test unless the hatch, whose command is cat, serves a new client.
func works(t *testing.T, h *Hatch) {
	t.Helper()
	c := dial(t, h)
	send(t, c, "works")
	c.CloseWrite()
	expectEnd(t, c, "works")
	c.Close()
}

// Guests that open connections and say nothing hold MaxConns slots until the
// handler loses its patience.
func TestSlowPreambles(t *testing.T) {
	timeouts := make(chan error, 100)
	h := serving(t, HandlerFunc(func(ctx context.Context, s *Stream) (*Command, error) {
		b, err := s.ReadPreamble(3, 20*time.Millisecond)
		if string(b) == "go!" {
			return Exec("cat"), nil
		}
		timeouts <- err
		return nil, nil
	}), Config{MaxConns: maxConns})
	before := hatchtest.Descriptors(t)
	const clients = 20
	var conns []*net.UnixConn
	for range clients {
		c := dial(t, h)
		send(t, c, "g") // and no more
		conns = append(conns, c)
	}
	for _, c := range conns {
		if err := over(c); err != nil && !isReset(err) {
			t.Error(err)
		}
		c.Close()
	}
	for range clients {
		if err := <-timeouts; !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("a slow preamble ended with %v", err)
		}
	}
	c := dial(t, h)
	send(t, c, "go!hello")
	c.CloseWrite()
	expectEnd(t, c, "hello")
	c.Close()
	hatchtest.Eventually(t, "descriptors are as before", func() bool { return hatchtest.Descriptors(t) <= before })
}

// Half-open streams: one direction is ended, the other never used. They take
// slots, and the end of the run takes those back.
func TestHalfOpenStreams(t *testing.T) {
	h := newHatch(t, shell("exec cat >/dev/null"), Config{MaxConns: maxConns, Grace: -1})
	before := hatchtest.Descriptors(t)
	stop, err := h.Serve()
	if err != nil {
		t.Fatal(err)
	}
	var conns []*net.UnixConn
	for range 3 * maxConns {
		c := dial(t, h)
		c.CloseRead()
		conns = append(conns, c)
	}
	hatchtest.Eventually(t, "all slots are taken", func() bool { h.mu.Lock(); defer h.mu.Unlock(); return len(h.conns) == maxConns })
	stop()
	for _, c := range conns {
		c.Close()
	}
	hatchtest.Eventually(t, "descriptors are as before", func() bool { return hatchtest.Descriptors(t) <= before })
	stop, err = h.Serve() // and it serves again
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	c := dial(t, h)
	c.CloseWrite()
	expectEnd(t, c, "")
}

// A guest that never reads blocks its own command, which is ended with the run.
// Nothing of what is written is held by this process.
func TestGuestThatNeverReads(t *testing.T) {
	h := newHatch(t, Exec("cat", "/dev/zero"), Config{MaxConns: maxConns, Grace: forever})
	heap, before := hatchtest.Heap(), hatchtest.Descriptors(t)
	stop, err := h.Serve()
	if err != nil {
		t.Fatal(err)
	}
	for range maxConns {
		c := dial(t, h)
		expect(t, c, "\x00") // it runs, and fills what it can
		defer c.Close()
	}
	if grown := hatchtest.Heap() - heap; grown > 1<<20 {
		t.Errorf("the heap has grown by %d bytes", grown)
	}
	stop() // SIGTERM ends cat
	hatchtest.Eventually(t, "only the clients' descriptors are left", func() bool { return hatchtest.Descriptors(t) <= before+maxConns })
}

// Descriptors sent along are dropped, whether the handler reads them or the
// command does.
func TestDescriptorsSentAlong(t *testing.T) {
	read := make(chan int)
	h := serving(t, HandlerFunc(func(ctx context.Context, s *Stream) (*Command, error) {
		if _, err := s.ReadLine(1000, forever); err != nil {
			return nil, err
		}
		read <- hatchtest.Descriptors(t)
		return Exec("sh", "-c", "cat; ls /proc/self/fd | wc -l"), nil
	}), Config{MaxConns: 1})
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	many := make([]int, 200)
	for i := range many {
		many[i] = int(null.Fd())
	}
	with := func(rights []byte) (host int, command string) {
		c := dial(t, h)
		for _, text := range []string{"pre", "amble\n", "rest\n"} {
			if _, _, err := c.WriteMsgUnix([]byte(text), rights, nil); err != nil {
				t.Fatal(err)
			}
		}
		c.CloseWrite()
		host = <-read
		out, err := io.ReadAll(c)
		if err != nil {
			t.Fatal(err)
		}
		return host, string(out)
	}
	wantHost, wantCommand := with(nil)
	gotHost, gotCommand := with(unix.UnixRights(many...))
	// A client more of this test's is open.
	if gotHost > wantHost+1 {
		t.Errorf("this process has %d descriptors, %d without", gotHost, wantHost)
	}
	if gotCommand != wantCommand || !strings.HasPrefix(gotCommand, "rest\n") {
		t.Errorf("the command says %q, %q without", gotCommand, wantCommand)
	}
}

// A guest that sends without end, to a command that does not read, fills its
// socket and no memory of the host's.
func TestEndlessInput(t *testing.T) {
	h := newHatch(t, shell("echo up; exec sleep 7777"), Config{Grace: -1})
	stop, err := h.Serve()
	if err != nil {
		t.Fatal(err)
	}
	c := dial(t, h)
	expect(t, c, "up\n")
	heap := hatchtest.Heap()
	sent := make(chan int64)
	go func() {
		n, _ := io.Copy(c, zeros{})
		sent <- n
	}()
	hatchtest.Eventually(t, "the socket is full", func() bool {
		raw, err := c.SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		full := false
		raw.Control(func(fd uintptr) {
			fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
			unix.Poll(fds, 0)
			full = fds[0].Revents&unix.POLLOUT == 0
		})
		return full
	})
	if grown := hatchtest.Heap() - heap; grown > 1<<20 {
		t.Errorf("the heap has grown by %d bytes", grown)
	}
	stop()
	if n := <-sent; n > 4<<20 {
		t.Errorf("the kernel took %d bytes", n)
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// A preamble that claims to be huge costs what was sent of it.
func TestHugePreamble(t *testing.T) {
	grown := make(chan int, 1)
	h := serving(t, HandlerFunc(func(ctx context.Context, s *Stream) (*Command, error) {
		heap := hatchtest.Heap()
		b, err := s.ReadPreamble(1<<40, forever)
		grown <- hatchtest.Heap() - heap
		if len(b) != 5 || !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%d bytes, %v", len(b), err)
		}
		return nil, nil
	}), Config{})
	c := dial(t, h)
	send(t, c, "hello")
	c.CloseWrite()
	expectEnd(t, c, "")
	if n := <-grown; n > 1<<20 {
		t.Errorf("the heap has grown by %d bytes", n)
	}
}
