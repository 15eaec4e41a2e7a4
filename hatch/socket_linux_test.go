package hatch

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/populationgenomics/postern-go/hatch/internal/hatchtest"
)

// accepting runs the loop of a hatch. The channel is closed when the loop ends.
func accepting(t *testing.T, s *Socket) <-chan net.Conn {
	t.Helper()
	conns := make(chan net.Conn)
	go func() {
		defer close(conns)
		for {
			c, err := s.Accept()
			if err != nil {
				if !errors.Is(err, net.ErrClosed) {
					t.Errorf("Accept: %v", err)
				}
				return
			}
			conns <- c
		}
	}()
	return conns
}

func dial(t *testing.T, s *Socket) *net.UnixConn {
	t.Helper()
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: s.SocketPath(), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func serve(t *testing.T, s *Socket) (stop func()) {
	t.Helper()
	stop, err := s.Serve()
	if err != nil {
		t.Fatal(err)
	}
	return stop
}

func (s *Socket) slotsTaken() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.slots
}

func ended(c net.Conn) bool {
	_, err := c.Read(make([]byte, 1))
	return err != nil
}

func TestSocketServesWhileARunNeedsIt(t *testing.T) {
	s := newSocket(t, SocketConfig{})
	conns := accepting(t, s)
	early := dial(t, s)
	if n := s.slotsTaken(); n != 0 {
		t.Fatalf("%d connections accepted without a run", n)
	}

	stop1 := serve(t, s)
	stop2 := serve(t, s)
	served := <-conns
	if _, err := early.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(served, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}

	stop1()
	stop1() // counts once
	dial(t, s)
	second := <-conns // the other run still needs it

	stop2()
	if !ended(early) || !ended(served) {
		t.Error("a connection outlived the last run")
	}
	served.Close()
	second.Close()

	late := dial(t, s)
	hatchtest.Eventually(t, "no slot is taken without a run", func() bool { return s.slotsTaken() == 0 })
	stop3 := serve(t, s)
	again := <-conns
	if _, err := again.Write([]byte("y")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(late, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}

	s.Close()
	if !ended(late) {
		t.Error("a connection outlived Close")
	}
	again.Close()
	stop3() // after Close is no mistake
	if _, err := s.Serve(); !errors.Is(err, ErrClosed) {
		t.Errorf("Serve after Close: %v", err)
	}
	if _, open := <-conns; open {
		t.Error("a connection was accepted after Close")
	}
}

func TestDrainLeavesConnectionsOpen(t *testing.T) {
	s := newSocket(t, SocketConfig{})
	conns := accepting(t, s)
	defer serve(t, s)()
	client := dial(t, s)
	served := <-conns
	defer served.Close()
	if err := s.Drain(); err != nil {
		t.Fatal(err)
	}
	if _, open := <-conns; open {
		t.Error("a connection was accepted after Drain")
	}
	absent(t, s.SocketPath())
	if _, err := served.Write([]byte("x")); err != nil {
		t.Error(err)
	}
	if _, err := io.ReadFull(client, make([]byte, 1)); err != nil {
		t.Error(err)
	}
	s.Close()
	if !ended(client) {
		t.Error("a connection outlived Close")
	}
}

func TestMaxConnsGatesAccepting(t *testing.T) {
	s := newSocket(t, SocketConfig{MaxConns: 2, Backlog: 300})
	conns := accepting(t, s)
	before := hatchtest.Descriptors(t)
	defer serve(t, s)()
	const clients = 200
	for range clients {
		dial(t, s)
	}
	first, second := <-conns, <-conns
	defer second.Close()
	hatchtest.Eventually(t, "both slots are taken", func() bool { return s.slotsTaken() == 2 })
	if got := hatchtest.Descriptors(t) - before; got > clients+2 {
		t.Errorf("%d descriptors for %d clients and 2 connections", got, clients)
	}
	select {
	case <-conns:
		t.Fatal("a third connection was accepted")
	default:
	}
	first.Close()
	first.Close() // gives back one slot, not two
	third := <-conns
	if n := s.slotsTaken(); n > 2 {
		t.Errorf("%d slots are taken, of 2", n)
	}
	third.Close()
	// All the others get their turn.
	for range clients - 3 {
		(<-conns).Close()
	}
}

// Promise 227: out of descriptors is a state that a busy host gets into and out of again.
func TestAcceptOutlastsDescriptorExhaustion(t *testing.T) {
	var log hatchtest.Log
	s := newSocket(t, SocketConfig{Logger: log.Logger(slog.LevelWarn)})
	conns := accepting(t, s)
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	client := os.NewFile(uintptr(fd), "client")
	defer client.Close()
	defer serve(t, s)()

	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	lowered := limit
	lowered.Cur = 0 // opened ones stay open; no number is below it
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &lowered); err != nil {
		t.Fatal(err)
	}
	restore := func() { unix.Setrlimit(unix.RLIMIT_NOFILE, &limit) }
	defer restore()
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: s.SocketPath()}); err != nil {
		t.Fatal(err)
	}
	hatchtest.Eventually(t, "two warnings", func() bool { return len(log.Entries(t, slog.LevelWarn)) >= 2 })
	restore()
	(<-conns).Close()
	entry := log.Entries(t, slog.LevelWarn)[0]
	if reason, _ := entry["error"].(string); !strings.Contains(reason, "too many open files") {
		t.Errorf("the warning is %v", entry)
	}
}

func TestSentDescriptorsAreDropped(t *testing.T) {
	s := newSocket(t, SocketConfig{})
	conns := accepting(t, s)
	defer serve(t, s)()
	client := dial(t, s)
	served := <-conns
	defer served.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	before := hatchtest.Descriptors(t)
	rights := unix.UnixRights(int(null.Fd()), int(null.Fd()), int(null.Fd()))
	for range 100 {
		if _, _, err := client.WriteMsgUnix([]byte("x"), rights, nil); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(served, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
	if after := hatchtest.Descriptors(t); after != before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
	// The control: they were really sent.
	if _, _, err := client.WriteMsgUnix([]byte("x"), rights, nil); err != nil {
		t.Fatal(err)
	}
	oob := make([]byte, 64)
	_, n, _, _, err := served.(*Conn).ReadMsgUnix(make([]byte, 1), oob)
	if err != nil || n == 0 {
		t.Fatalf("no descriptor arrived: %v", err)
	}
	messages, err := unix.ParseSocketControlMessage(oob[:n])
	if err != nil {
		t.Fatal(err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		unix.Close(fd)
	}
}

func TestTwoLogLinesPerRun(t *testing.T) {
	var log hatchtest.Log
	s := newSocket(t, SocketConfig{Name: "repo", Logger: log.Logger(slog.LevelDebug)})
	conns := accepting(t, s)
	for range 3 {
		stop := serve(t, s)
		dial(t, s)
		c := <-conns
		stop()
		stop()
		c.Close()
	}
	s.Close()
	info := log.Entries(t, slog.LevelInfo)
	if len(info) != 6 {
		t.Errorf("%d lines at INFO for 3 runs, want 6", len(info))
	}
	for i, entry := range info {
		if want := []string{"hatch started", "hatch stopped"}[i%2]; entry["msg"] != want || entry["hatch"] != "repo" || entry["path"] != s.SocketPath() {
			t.Errorf("line %d is %v", i, entry)
		}
	}
	if n := len(log.Entries(t, slog.LevelDebug)); n != 3 {
		t.Errorf("%d lines at DEBUG for 3 connections cut", n)
	}
	if n := len(log.Entries(t, slog.LevelWarn)); n != 0 {
		t.Errorf("%d lines at WARN", n)
	}
}

func TestManySocketsLeaveNothing(t *testing.T) {
	t.Setenv("TMPDIR", shortDir(t))
	hatchtest.NoLeaks(t)
	for range 50 {
		s, err := NewSocket(SocketConfig{MaxConns: 1})
		if err != nil {
			t.Fatal(err)
		}
		serve(t, s)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(os.TempDir(), "*")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}
