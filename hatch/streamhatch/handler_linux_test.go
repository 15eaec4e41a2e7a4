package streamhatch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/populationgenomics/postern-go/hatch"
	"github.com/populationgenomics/postern-go/hatch/internal/hatchtest"
	"github.com/populationgenomics/postern-go/internal/guesttext"
)

// Promises 180, 189, 201.
func TestDefaults(t *testing.T) {
	h := newHatch(t, Exec("cat"), Config{})
	if h.Name() != "stream" || h.grace != defaultGrace || defaultMaxConns != 8 || defaultGrace.Seconds() != 5 {
		t.Errorf("name %q, grace %v", h.Name(), h.grace)
	}
	for _, c := range []struct {
		cfg  Config
		want error
	}{{Config{Name: "Bad"}, hatch.ErrInvalidName}, {Config{MaxConns: -1}, nil}, {Config{Backlog: -1}, nil}, {Config{SocketPath: "/tmp/" + strings.Repeat("x", 108)}, hatch.ErrPathTooLong}} {
		if h, err := New(Exec("cat"), c.cfg); err == nil || c.want != nil && !errors.Is(err, c.want) {
			t.Errorf("%+v: %v, %v", c.cfg, h, err)
		}
	}
	if _, err := New(nil, Config{}); err == nil {
		t.Error("a hatch without a handler")
	}
}

// Promise 203: a handler chooses the command, or refuses.
func TestHandlerChooses(t *testing.T) {
	var log hatchtest.Log
	h := serving(t, HandlerFunc(func(ctx context.Context, s *Stream) (*Command, error) {
		switch b, err := s.ReadPreamble(1, forever); {
		case err != nil:
			return nil, err
		case b[0] == 'a':
			return Exec("echo", "A"), nil
		case b[0] == 'b':
			return Exec("echo", "B"), nil
		}
		return nil, nil
	}), Config{Logger: log.Logger(slog.LevelDebug)})
	for request, want := range map[string]string{"a": "A\n", "b": "B\n", "c": ""} {
		c := dial(t, h)
		send(t, c, request)
		expectEnd(t, c, want)
	}
	// Promises 229, 233: that is at DEBUG, and at no other level.
	if n := len(entries(t, &log, slog.LevelDebug, "connection refused by the handler")); n != 1 {
		t.Errorf("%d lines for one refusal", n)
	}
	if n := len(log.Entries(t, slog.LevelWarn)); n != 0 {
		t.Errorf("%d lines at WARN", n)
	}
}

// Promises 226, 229, 230, 231, 232.
func TestFailingHandlers(t *testing.T) {
	const forged = "x\nlevel=ERROR msg=forged"
	var log hatchtest.Log
	var nothing *nilError
	failures := map[string]func() error{
		"error":       func() error { return errors.New(forged) },
		"long":        func() error { return errors.New(strings.Repeat("y", 10*guesttext.MaxBytes)) },
		"panic":       func() error { panic(forged) },
		"panic error": func() error { panic(errors.New(forged)) },
		"runtime":     func() error { return errors.New(string([]byte{}[len(os.Args):][0])) },
		"typed nil":   func() error { panic(nothing) },
		"nil error":   func() error { return nothing },
	}
	h := serving(t, HandlerFunc(func(ctx context.Context, s *Stream) (*Command, error) {
		name, err := s.ReadLine(100, forever)
		if err != nil {
			return nil, err
		}
		return nil, failures[strings.TrimSpace(string(name))]()
	}), Config{Logger: log.Logger(slog.LevelDebug), Name: "repo"})
	const times = 3
	for name := range failures {
		for range times {
			c := dial(t, h)
			send(t, c, name+"\n")
			expectEnd(t, c, "")
		}
	}
	warned := entries(t, &log, slog.LevelWarn, "a handler failed")
	if len(warned) != times*len(failures) {
		t.Errorf("%d lines, want one for each of %d failures", len(warned), times*len(failures))
	}
	for _, e := range warned {
		text := e["error"].(string)
		if strings.ContainsAny(text, "\n\r") || len(text) > guesttext.MaxBytes*2 || e["logger"] != "postern.stream" || e["hatch"] != "repo" || e["type"] == "" {
			t.Errorf("the line is %v", e)
		}
	}
	stacks := entries(t, &log, slog.LevelDebug, "stack of the panic")
	if len(stacks) != 4*times {
		t.Errorf("%d stacks", len(stacks))
	}
	for _, e := range stacks {
		if s := e["stack"].(string); strings.Contains(s, "\n") {
			t.Errorf("the stack is %q", s)
		}
	}
	if n := len(log.Entries(t, slog.LevelError)); n != 0 {
		t.Errorf("%d forged lines", n)
	}
}

type nilError struct{ text string }

func (e *nilError) Error() string { return e.text }

func TestCommandsThatCannotStart(t *testing.T) {
	var log hatchtest.Log
	h := serving(t, HandlerFunc(func(ctx context.Context, s *Stream) (*Command, error) {
		line, err := s.ReadLine(100, forever)
		if err != nil {
			return nil, err
		}
		switch strings.TrimSpace(string(line)) {
		case "missing":
			return Exec("no-such-program"), nil
		case "directory":
			return &Command{Args: []string{"cat"}, Dir: "/no/such/directory"}, nil
		}
		return &Command{}, nil
	}), Config{Logger: log.Logger(slog.LevelWarn)})
	for name, msg := range map[string]string{"missing": "a command could not be executed", "directory": "a command could not be started", "empty": "a command could not be started"} {
		before := len(entries(t, &log, slog.LevelWarn, msg))
		c := dial(t, h)
		send(t, c, name+"\n")
		over(c)
		hatchtest.Eventually(t, "a warning about "+name, func() bool { return len(entries(t, &log, slog.LevelWarn, msg)) == before+1 })
	}
}

// Promise 228: two lines at INFO for each run.
func TestTwoLinesPerRun(t *testing.T) {
	var log hatchtest.Log
	h := newHatch(t, Exec("cat"), Config{Logger: log.Logger(slog.LevelInfo)})
	for range 3 {
		stop, err := h.Serve()
		if err != nil {
			t.Fatal(err)
		}
		c := dial(t, h)
		send(t, c, "x")
		expect(t, c, "x")
		stop()
		stop()
		over(c)
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	lines := log.Entries(t, slog.LevelInfo)
	if len(lines) != 6 {
		t.Errorf("%d lines for 3 runs: %v", len(lines), lines)
	}
	for i, e := range lines {
		if want := []string{"hatch started", "hatch stopped"}[i%2]; e["msg"] != want || e["logger"] != "postern.stream" {
			t.Errorf("line %d is %v", i, e)
		}
	}
	// Promise 225: without a Logger nothing is logged, and nobody's default is used.
	old := slog.Default()
	defer slog.SetDefault(old)
	var global hatchtest.Log
	slog.SetDefault(global.Logger(slog.LevelDebug))
	quiet := serving(t, HandlerFunc(func(context.Context, *Stream) (*Command, error) { return nil, errors.New("no") }), Config{Name: "quiet"})
	over(dial(t, quiet))
	quiet.Close()
	for _, level := range []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError} {
		if n := len(global.Entries(t, level)); n != 0 {
			t.Errorf("%d lines to the default logger", n)
		}
	}
}

// Promise 208: a preamble is read to the byte, and the command gets the rest.
func TestPreambleLeavesTheRest(t *testing.T) {
	flags := make(chan int, 4)
	h := serving(t, HandlerFunc(func(ctx context.Context, s *Stream) (*Command, error) {
		flags <- statusFlags(s)
		head, err := s.ReadPreamble(4, forever)
		if err != nil {
			return nil, err
		}
		line, err := s.ReadLine(100, forever)
		if err != nil {
			return nil, err
		}
		none, err := s.ReadPreamble(0, forever)
		if err != nil || len(none) != 0 {
			return nil, fmt.Errorf("%q, %w", none, err)
		}
		flags <- statusFlags(s)
		return shell(fmt.Sprintf("printf '%%s' %q; cat", string(head)+"|"+strings.TrimSpace(string(line))+"|")), nil
	}), Config{})

	c := dial(t, h)
	send(t, c, "HEADline\nrest\nof it")
	c.CloseWrite()
	expectEnd(t, c, "HEAD|line|rest\nof it")
	if before, after := <-flags, <-flags; before != after {
		t.Errorf("the socket's flags were %#x and are %#x", before, after)
	}

	// In pieces.
	c = dial(t, h)
	for _, piece := range []string{"H", "EA", "D", "l", "in", "e", "\nre", "st"} {
		send(t, c, piece)
	}
	c.CloseWrite()
	expectEnd(t, c, "HEAD|line|rest")
}

func statusFlags(s *Stream) (flags int) {
	raw, err := s.c.SyscallConn()
	if err == nil {
		raw.Control(func(fd uintptr) { flags, _ = unix.FcntlInt(fd, unix.F_GETFL, 0) })
	}
	return flags
}

func TestPreambleErrors(t *testing.T) {
	type result struct {
		got string
		err error
	}
	results := make(chan result)
	request := make(chan func(s *Stream) ([]byte, error), 1)
	h := newHatch(t, HandlerFunc(func(ctx context.Context, s *Stream) (*Command, error) {
		got, err := (<-request)(s)
		results <- result{string(got), err}
		return nil, nil
	}), Config{})
	stop, err := h.Serve()
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	preamble := func(s *Stream) ([]byte, error) { return s.ReadPreamble(10, forever) }
	for _, tt := range []struct {
		name string
		read func(s *Stream) ([]byte, error)
		do   func(c *net.UnixConn)
		want result
	}{
		{"slow", func(s *Stream) ([]byte, error) { return s.ReadPreamble(10, 1) }, nil, result{"", os.ErrDeadlineExceeded}},
		{"ends early", preamble, func(c *net.UnixConn) { send(t, c, "abc"); c.CloseWrite() }, result{"abc", io.ErrUnexpectedEOF}},
		{"ends at once", preamble, func(c *net.UnixConn) { c.Close() }, result{"", io.ErrUnexpectedEOF}},
		{"negative", func(s *Stream) ([]byte, error) { return s.ReadPreamble(-1, forever) }, nil, result{"", errors.New("")}},
		{"long line", func(s *Stream) ([]byte, error) { return s.ReadLine(3, forever) }, func(c *net.UnixConn) { send(t, c, "abcd\n") }, result{"abc", ErrTooLong}},
		{"hatch stops", func(s *Stream) ([]byte, error) { go stop(); return preamble(s) }, nil, result{"", net.ErrClosed}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			request <- tt.read
			c := dial(t, h)
			if tt.do != nil {
				tt.do(c)
			}
			got := <-results
			if got.got != tt.want.got || got.err == nil || tt.want.err.Error() != "" && !errors.Is(got.err, tt.want.err) {
				t.Errorf("%q, %v; want %q, %v", got.got, got.err, tt.want.got, tt.want.err)
			}
		})
	}
}

// Promise 224.
func TestNoGRPC(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(out), "postern-go/nsexec") || strings.Contains(string(out), "google.golang.org/grpc") {
		t.Error("the stream hatch links gRPC, or nothing is listed")
	}
}
