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
	"os/signal"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/populationgenomics/postern-go/hatch"
	"github.com/populationgenomics/postern-go/hatch/internal/hatchtest"
	"github.com/populationgenomics/postern-go/internal/testutil"
	"github.com/populationgenomics/postern-go/internal/testutil/guest"
)

// Promise 211: the end of the stream and a reset, as the kernel gives them.
func TestEndOfStream(t *testing.T) {
	h := serving(t, HandlerFunc(func(ctx context.Context, s *Stream) (*Command, error) {
		line, err := s.ReadLine(100, forever)
		if err != nil {
			return nil, err
		}
		return shell(map[string]string{
			"consumes":      "wc -c",
			"dies":          "head -c 1 >/dev/null; kill -9 $$",
			"exits unread":  "echo bye; exit 3",
			"closes early":  "echo done; exec <&- >&-; exec sleep 7777",
			"closes output": "exec >&-; cat >/dev/null",
		}[strings.TrimSpace(string(line))]), nil
	}), Config{Grace: -1})

	c := dial(t, h)
	send(t, c, "consumes\nabcdef")
	c.CloseWrite()
	expectEnd(t, c, "6\n")

	// What is unread must be in the socket before the command dies.
	for _, how := range []string{"dies", "exits unread"} {
		c = dial(t, h)
		send(t, c, how+"\n"+strings.Repeat("x", 1000))
		if err := over(c); !isReset(err) {
			t.Errorf("%s: the stream ended with %v, want a reset", how, err)
		}
	}

	// A command that goes on does not keep the connection.
	c = dial(t, h)
	send(t, c, "closes early\n")
	expectEnd(t, c, "done\n")
}

// Promise 212: one connection more than MaxConns waits and is served in turn.
func TestMaxConns(t *testing.T) {
	h := serving(t, Exec("cat"), Config{MaxConns: 2})
	first, second, third := dial(t, h), dial(t, h), dial(t, h)
	for _, c := range []net.Conn{first, second, third} {
		send(t, c, "x")
	}
	expect(t, first, "x")
	expect(t, second, "x")
	third.SetReadDeadline(time.Unix(1, 0))
	if _, err := third.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the third is served: %v", err)
	}
	h.mu.Lock()
	if n := len(h.conns); n != 2 {
		t.Errorf("%d connections are accepted", n)
	}
	h.mu.Unlock()
	first.CloseWrite()
	expectEnd(t, first, "")
	third.SetReadDeadline(time.Time{})
	expect(t, third, "x")
}

// Promise 213: the backlog is that of listen. The kernel takes one more.
func TestBacklog(t *testing.T) {
	h := newHatch(t, Exec("cat"), Config{Backlog: 3})
	for i := range 6 {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		err = unix.Connect(fd, &unix.SockaddrUnix{Name: h.SocketPath()})
		if want := i > 3; want != (err == unix.EAGAIN) || err != nil && err != unix.EAGAIN {
			t.Errorf("connection %d: %v", i, err)
		}
	}
}

// Promises 217, 218: Close ends what is in flight, with the grace between
// SIGTERM and SIGKILL.
func TestCloseEndsConnections(t *testing.T) {
	for name, tt := range map[string]struct {
		script string
		grace  time.Duration
		want   string
	}{
		"heeds SIGTERM":   {`trap 'echo bye; exit' TERM; echo up; while :; do sleep 7777 & wait; done`, forever, "bye\n"},
		"ignores SIGTERM": {`trap '' TERM; echo up; sleep 7777`, time.Millisecond, ""},
		"no grace":        {`trap 'echo bye; exit' TERM; echo up; while :; do sleep 7777 & wait; done`, -1, ""},
	} {
		for end, stop := range map[string]func(h *Hatch, stop func()){
			"close": func(h *Hatch, stop func()) { h.Close() },
			"stop":  func(h *Hatch, stop func()) { stop() },
		} {
			t.Run(name+"/"+end, func(t *testing.T) {
				var log hatchtest.Log
				h := newHatch(t, shell(tt.script), Config{Grace: tt.grace, Logger: log.Logger(slog.LevelDebug)})
				stopServing, err := h.Serve()
				if err != nil {
					t.Fatal(err)
				}
				c := dial(t, h)
				expect(t, c, "up\n")
				stop(h, stopServing)
				expectEnd(t, c, tt.want)
				// Promise 229.
				if n := len(entries(t, &log, slog.LevelDebug, "connection cut, as the hatch "+end+"s")); n != 1 {
					t.Errorf("%d lines for the connection in flight", n)
				}
			})
		}
	}
}

// Promises 183, 184, 185: runs come and go, Close is for good.
func TestRunsComeAndGo(t *testing.T) {
	h := newHatch(t, Exec("cat"), Config{})
	works := func() {
		t.Helper()
		c := dial(t, h)
		send(t, c, "x")
		c.CloseWrite()
		expectEnd(t, c, "x")
	}
	for range 10 {
		first, err := h.Serve()
		if err != nil {
			t.Fatal(err)
		}
		second, err := h.Serve()
		if err != nil {
			t.Fatal(err)
		}
		works()
		first()
		first()
		works()
		second()
	}
	for range 2 {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := h.Serve(); !errors.Is(err, hatch.ErrClosed) {
		t.Errorf("Serve after Close: %v", err)
	}
}

// Close does not wait for a handler that heeds nothing, and what that returns
// is not started any more.
func TestHandlerThatHangs(t *testing.T) {
	entered, leave, left := make(chan bool), make(chan bool), make(chan bool)
	marker := t.TempDir() + "/started"
	h := serving(t, HandlerFunc(func(ctx context.Context, s *Stream) (*Command, error) {
		close(entered)
		<-leave
		defer close(left)
		return Exec("touch", marker), nil
	}), Config{})
	c := dial(t, h)
	<-entered
	h.Close()
	expectEnd(t, c, "")
	close(leave)
	<-left
	hatchtest.Eventually(t, "the connection is over", func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return len(h.conns) == 0
	})
	if _, err := os.Lstat(marker); err == nil {
		t.Error("a command was started after Close")
	}
}

// Promises 214, 215: the first hole. Whatever a command leaves behind ends with
// it, and with it the connection: a child in the background, and a daemon that
// has left the session, the process group and its parent.
func TestDescendantsEndWithTheCommand(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		for name, leave := range map[string]string{
			"child in the background": "sleep 98765.%[1]d &",
			"daemon":                  "setsid sh -c 'sleep 98765.%[1]d & exec sleep 98765.%[1]d' &",
			"ignores signals":         "(trap '' TERM HUP INT; exec setsid sleep 98765.%[1]d) &",
		} {
			for ending, script := range map[string]string{"exits": "exit 0", "is ended": "read wait"} {
				t.Run(name+"/"+ending, func(t *testing.T) {
					mark := fmt.Sprintf("98765.%d", os.Getpid())
					h := newHatch(t, shell(fmt.Sprintf(leave, os.Getpid())+` echo left; read go; `+script), Config{Grace: time.Minute})
					stop, err := h.Serve()
					if err != nil {
						t.Fatal(err)
					}
					c := dial(t, h)
					expect(t, c, "left\n")
					// The control: it is there, and the host can see it.
					hatchtest.Eventually(t, "the descendant runs", func() bool { return alive(t, "sleep\x00"+mark) > 0 })
					send(t, c, "go\n")
					if ending == "is ended" {
						stop()
					}
					over(c) // hangs if somebody has the socket
					h.Close()
					if n := alive(t, "sleep\x00"+mark); n != 0 {
						t.Errorf("%d descendants are left", n)
					}
					stop()
				})
			}
		}
	})
}

// The control for the test above: started as any program would, the daemon does
// hold the connection.
func TestDaemonHoldsAConnectionOtherwise(t *testing.T) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "a"), os.NewFile(uintptr(pair[1]), "b")
	defer ours.Close()
	cmd := exec.Command("sh", "-c", "setsid sleep 7777 & echo $!")
	cmd.Stdin, cmd.Stdout = theirs, theirs
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	var pid int
	if _, err := fmt.Fscan(ours, &pid); err != nil {
		t.Fatal(err)
	}
	defer unix.Kill(pid, unix.SIGKILL)
	if _, err := unix.Write(int(ours.Fd()), []byte("x")); err != nil {
		t.Errorf("the connection is over: %v", err)
	}
}

// Promise 216: the second hole. A host that reaps every child there is, or that
// lets the kernel do so, gets its slots back and leaks nothing.
var hostProbe = guest.Probe("host with a reaper", func(args []string) {
	if args[0] == "ignores SIGCHLD" {
		signal.Ignore(unix.SIGCHLD)
	} else {
		chld := make(chan os.Signal, 100)
		signal.Notify(chld, unix.SIGCHLD)
		go func() {
			for range chld {
				for {
					if pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil); pid <= 0 && err != unix.EINTR {
						break
					}
				}
			}
		}()
	}
	fail := func(err error) {
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	}
	h, err := New(shell("setsid sleep 54321."+args[1]+" & cat; exit 7"), Config{MaxConns: 1, Grace: time.Minute})
	fail(err)
	stop, err := h.Serve()
	fail(err)
	// More connections than slots, one after the other.
	for i := range 20 {
		c, err := net.Dial("unix", h.SocketPath())
		fail(err)
		_, err = io.WriteString(c, "x")
		fail(err)
		if i%2 == 0 {
			fail(c.(*net.UnixConn).CloseWrite())
		} else {
			_, err := c.Read(make([]byte, 1)) // it is served
			fail(err)
			c.Close()
			continue
		}
		got, err := io.ReadAll(c)
		fail(err)
		if string(got) != "x" {
			fail(fmt.Errorf("got %q", got))
		}
		c.Close()
	}
	// And one in flight.
	c, err := net.Dial("unix", h.SocketPath())
	fail(err)
	io.WriteString(c, "y")
	c.Read(make([]byte, 1))
	// The control: a daemon runs now, and the host can see it.
	for daemons := []byte{}; len(daemons) == 0; { // the error is that somebody has reaped pgrep
		daemons, _ = exec.Command("pgrep", "-f", "^sleep 54321."+args[1]).Output()
	}
	stop()
	fail(over(c))
	fail(h.Close())
	fmt.Println("done")
})

func TestForeignReaper(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		for _, host := range []string{"ignores SIGCHLD", "reaps everything"} {
			t.Run(host, func(t *testing.T) {
				mark := fmt.Sprintf("%d%d", os.Getpid(), len(host))
				c := probeCommand(t, hostProbe, host, mark)
				cmd := exec.Command(c.Args[0], c.Args[1:]...)
				cmd.Env = append(c.Env, "TMPDIR="+os.TempDir())
				out, err := cmd.CombinedOutput()
				if err != nil || string(out) != "done\n" {
					t.Errorf("%v\n%s", err, out)
				}
				if n := alive(t, "sleep\x0054321."+mark); n != 0 {
					t.Errorf("%d descendants are left", n)
				}
			})
		}
	})
}

// A machine on which commands cannot have a PID namespace gets no hatch, and an
// error that says why.
var noNamespacesProbe = guest.Probe("no namespaces", func([]string) {
	h, err := New(Exec("cat"), Config{})
	_, typed := errors.AsType[*IsolationError](err)
	fmt.Println(h == nil, typed, errors.Is(err, unix.ENOSPC), err)
})

func TestNoNamespaces(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		s := guest.ProbeSpec(t, noNamespacesProbe, nil)
		s.DisableUserns = true // and without them there are no PID namespaces
		got := guest.MustOutput(t, s)
		if !strings.HasPrefix(got, "true true ") || !strings.Contains(got, "streamhatch: commands cannot have a PID namespace of their own: launch failed: create namespaces") {
			t.Error(got)
		}
	})
}
