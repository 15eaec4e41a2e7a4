package postern

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/populationgenomics/postern-go/hatch"
	"github.com/populationgenomics/postern-go/internal/testutil"
	"golang.org/x/sys/unix"
)

// Promises 39 to 42: one loop for both streams, in order of arrival, without
// waiting for lines, and neither can stall the other.
func TestOutputOrder(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		s := sandbox(t, Profile{})
		p := start(t, s, Command{Args: []string{"sh", "-c", "printf 1; read x; printf 2 >&2; read x; printf 3; read x; printf 4 >&2"}, StdinPipe: true})
		var got []string
		for s, b := range p.Output() { // each piece is written only after the one before was read
			got = append(got, s.String()+" "+string(b))
			if _, err := p.Stdin().Write([]byte("\n")); err != nil && !errors.Is(err, syscall.EPIPE) {
				t.Fatal(err)
			}
		}
		if want := "stdout 1,stderr 2,stdout 3,stderr 4"; strings.Join(got, ",") != want {
			t.Errorf("got %v", got)
		}
		if code := wait(t, p); code != 0 {
			t.Errorf("exit code %d", code)
		}

		p = start(t, s, Bash("head -c 3000000 /dev/zero; head -c 3000000 /dev/zero >&2; head -c 3000000 /dev/zero"))
		sizes := map[Stream]int{}
		for s, b := range p.Output() {
			sizes[s] += len(b)
		}
		if sizes[Stdout] != 6_000_000 || sizes[Stderr] != 3_000_000 {
			t.Errorf("got %v", sizes)
		}
	})
}

// Promises 43, 44.
func TestCommunicateCollectsTheRest(t *testing.T) {
	s := sandbox(t, Profile{})
	p := start(t, s, Command{Args: []string{"sh", "-c", "echo first; read x; echo second; echo third >&2; exit 5"}, StdinPipe: true})
	await(t, p, "first\n")
	p.Stdin().Close()
	r, err := p.Communicate(context.Background())
	if err != nil || string(r.Stdout) != "second\n" || string(r.Stderr) != "third\n" || r.ExitCode != 5 {
		t.Errorf("%q %q %d %v", r.Stdout, r.Stderr, r.ExitCode, err)
	}
	if r, err := p.Communicate(context.Background()); err != nil || len(r.Stdout) != 0 || r.ExitCode != 5 {
		t.Errorf("a second time: %q %d %v", r.Stdout, r.ExitCode, err)
	}
}

const trap = "trap 'echo cleaning; echo up >&2; exit 3' TERM; echo ready; while :; do sleep 1000 & wait; done"

// Promises 45 to 47, 50, 51, 65, 66: a graceful stop.
func TestTerminate(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		s := sandbox(t, Profile{})
		p := start(t, s, Bash(trap))
		if _, ended := p.ExitCode(); ended || p.Terminated() || p.PID() <= 0 {
			t.Errorf("running: ended %v, terminated %v, PID %d", ended, p.Terminated(), p.PID())
		}
		await(t, p, "ready")
		done := make(chan struct{})
		go func() { p.Terminate(time.Hour); close(done) }()
		<-done // it does not wait for the grace
		r, err := p.Communicate(context.Background())
		if err != nil || r.ExitCode != 3 || r.Reason != Stopped || string(r.Stdout) != "cleaning\n" || string(r.Stderr) != "up\n" {
			t.Errorf("%q %q %d %v %v", r.Stdout, r.Stderr, r.ExitCode, r.Reason, err)
		}
		if code, ended := p.ExitCode(); code != 3 || !ended || !p.Terminated() {
			t.Errorf("ended: code %d, %v, terminated %v", code, ended, p.Terminated())
		}

		p = start(t, s, Bash("echo ready; exec sleep 1000"))
		await(t, p, "ready")
		p.Terminate(DefaultGrace)
		if code := wait(t, p); code != 143 {
			t.Errorf("without a trap: exit code %d", code)
		}
	})
}

// Promise 50: the whole process group gets the signal.
func TestTerminateReachesTheGroup(t *testing.T) {
	s := sandbox(t, Profile{})
	p := start(t, s, Bash("(trap 'echo child; exit' TERM; echo ready; while :; do sleep 1000 & wait; done) & trap : TERM; wait; wait"))
	await(t, p, "ready")
	p.Terminate(time.Hour)
	if r, err := p.Communicate(context.Background()); err != nil || string(r.Stdout) != "child\n" {
		t.Errorf("%q %v", r.Stdout, err)
	}
}

// Promises 52, 53: what does not end is killed, with all its descendants.
func TestKill(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		s := sandbox(t, Profile{})
		for name, stop := range map[string]func(*Process){
			"grace over": func(p *Process) { p.Terminate(20 * time.Millisecond) },
			"kill":       func(p *Process) { p.Kill() },
			"shortened":  func(p *Process) { p.Terminate(time.Hour); p.Terminate(20 * time.Millisecond) },
			"signal":     func(p *Process) { p.Signal(syscall.SIGKILL) },
		} {
			p := start(t, s, Bash("trap '' TERM; setsid sh -c 'trap \"\" TERM; sleep 1000' & echo ready; while :; do sleep 1000; done"))
			await(t, p, "ready")
			pidfd, err := p.Pidfd()
			if err != nil {
				t.Fatal(err)
			}
			defer pidfd.Close()
			stop(p)
			if code := wait(t, p); code != 137 {
				t.Errorf("%s: exit code %d", name, code)
			}
			if err := unix.PidfdSendSignal(int(pidfd.Fd()), 0, nil, 0); err != unix.ESRCH {
				t.Errorf("%s: the init is still there: %v", name, err)
			}
			if err := p.Signal(syscall.SIGTERM); !errors.Is(err, os.ErrProcessDone) {
				t.Errorf("%s: Signal afterwards: %v", name, err)
			}
			if _, err := p.Pidfd(); !errors.Is(err, os.ErrProcessDone) {
				t.Errorf("%s: Pidfd afterwards: %v", name, err)
			}
		}
	})
}

// Promise 54: a stop right after the start is not lost.
func TestEarlyTerminate(t *testing.T) {
	s := sandbox(t, Profile{})
	for range 50 {
		p, err := s.Start(context.Background(), "sleep", "1000")
		if err != nil {
			t.Fatal(err)
		}
		p.Terminate(time.Hour)
		if code := wait(t, p); code != 143 {
			t.Fatalf("exit code %d", code)
		}
		p.Close()
	}
}

// Promise 56: a signal to the process group of the host reaches the init or
// is harmless; it is a signal to the init that counts.
func TestSignalToTheInitIsForwarded(t *testing.T) {
	s := sandbox(t, Profile{})
	p := start(t, s, Bash(trap))
	await(t, p, "ready")
	if err := syscall.Kill(p.PID(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if r, err := p.Communicate(context.Background()); err != nil || r.ExitCode != 3 || r.Reason != Exited || p.Terminated() {
		t.Errorf("%d %v %v", r.ExitCode, r.Reason, err)
	}
}

func TestSignal(t *testing.T) {
	s := sandbox(t, Profile{})
	p := start(t, s, Bash("trap 'echo usr1' USR1; trap 'echo hup; exit 4' HUP; echo ready; while :; do sleep 1000 & wait; done"))
	await(t, p, "ready")
	p.Signal(syscall.SIGUSR1)
	await(t, p, "usr1")
	p.Signal(syscall.SIGHUP)
	await(t, p, "hup")
	if code := wait(t, p); code != 4 || p.Terminated() {
		t.Errorf("exit code %d", code)
	}
}

// Promises 59, 68: leaving the loop early, and closing.
func TestCloseStopsTheGuest(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		kept := reachable(t, t.TempDir())
		s := sandbox(t, Profile{Workspace: kept})
		p := start(t, s, Bash("trap 'touch cleaned; exit 3' TERM; yes & wait"))
		for range p.Output() {
			break
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		if code, ended := p.ExitCode(); !ended || code != 3 || !p.Terminated() {
			t.Errorf("code %d, ended %v", code, ended)
		}
		if _, err := os.Stat(kept + "/cleaned"); err != nil {
			t.Errorf("it could not clean up: %v", err)
		}
		if err := p.Close(); err != nil {
			t.Errorf("a second Close: %v", err)
		}
		for range p.Output() {
			t.Error("output after Close")
		}
		p = start(t, s, Bash("yes"))
		for range p.Output() {
			p.Close() // in the loop, which then ends
		}
	})
}

func TestContextEndStopsAProcess(t *testing.T) {
	s := sandbox(t, Profile{})
	ctx, cancel := context.WithCancel(context.Background())
	p, err := s.StartBash(ctx, trap)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	await(t, p, "ready")
	cancel()
	r, err := p.Communicate(context.Background())
	if !errors.Is(err, context.Canceled) || r.ExitCode != 3 || string(r.Stdout) != "cleaning\n" {
		t.Errorf("%d %q %v", r.ExitCode, r.Stdout, err)
	}
}

// Promise 60, 178 to 183: a hatch is bound, told about, and serves until the
// process is closed.
func TestHatchServesUntilClose(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		unnamed, named := newEchoHatch(t, ""), newEchoHatch(t, "data")
		s := sandbox(t, Profile{}, WithHatch(unnamed, named))
		const dial = `import os, socket
for v in ("POSTERN_HATCH", "POSTERN_HATCH_DATA"):
    c = socket.socket(socket.AF_UNIX)
    c.connect(os.environ[v])
    print(v, os.environ[v], c.recv(10).decode())`
		const want = "POSTERN_HATCH /run/postern/hatch.sock hello\nPOSTERN_HATCH_DATA /run/postern/data.sock hello\n"
		for name, c := range map[string]Command{"python": Python(dial), "argv": {Args: []string{"python3", "-c", dial}}} {
			if r := run(t, s, c); string(r.Stdout) != want {
				t.Errorf("%s: %q, %s", name, r.Stdout, r.Stderr)
			}
		}
		if r := run(t, s, Bash("chmod 0 $POSTERN_HATCH; rm -f $POSTERN_HATCH; echo > $POSTERN_HATCH; stat -c %a $POSTERN_HATCH")); string(r.Stdout) != "666\n" {
			t.Errorf("a guest changed its hatch: %q %s", r.Stdout, r.Stderr)
		}
		p := start(t, s, Command{Args: []string{"true"}})
		wait(t, p)
		if n := unnamed.serving(); n != 1 {
			t.Errorf("%d runs are served before Close", n)
		}
		p.Close()
		if n := unnamed.serving(); n != 0 {
			t.Errorf("%d runs are served after Close", n)
		}
		named.Close()
		if _, err := s.Run(context.Background(), "true"); err == nil || unnamed.serving() != 0 {
			t.Errorf("with a closed hatch: %v, %d served", err, unnamed.serving())
		}
	})
}

// Promises 61, 62: a straggler holds nothing up, not even with the pipe in the
// hands of another guest.
func TestStragglers(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		s := sandbox(t, Profile{})
		for _, script := range []string{
			"sleep 1000 & echo hi",
			"setsid sleep 1000 & echo hi",
			"(trap '' TERM HUP INT; setsid sleep 1000) & disown; echo hi",
		} {
			if got := outputOf(t, s, script); got != "hi" {
				t.Errorf("%s: %q", script, got)
			}
		}
		keeper := start(t, s, Python(`import socket, os
l = socket.socket(socket.AF_UNIX); l.bind("/workspace/s"); l.listen()
print("listening", flush=True)
c, _ = l.accept()
_, fds, _, _ = socket.recv_fds(c, 1, 1)
print("got", os.fstat(fds[0]).st_size, flush=True)
import time; time.sleep(1000)`))
		await(t, keeper, "listening")
		giver := start(t, s, Python(`import socket
c = socket.socket(socket.AF_UNIX); c.connect("/workspace/s")
print("before"); socket.send_fds(c, [b"x"], [1]); print("after")`))
		await(t, keeper, "got")
		r, err := giver.Communicate(context.Background())
		if err != nil || string(r.Stdout) != "before\nafter\n" {
			t.Errorf("%q %s %v", r.Stdout, r.Stderr, err)
		}
	})
}

// Promise 63.
func TestCommandClosesItsOutput(t *testing.T) {
	s := sandbox(t, Profile{})
	p := start(t, s, Command{Args: []string{"sh", "-c", "echo bye; exec >&- 2>&-; read x; exit 6"}, StdinPipe: true})
	var got bytes.Buffer
	for _, b := range p.Output() {
		got.Write(b)
	}
	if _, ended := p.ExitCode(); ended || got.String() != "bye\n" {
		t.Errorf("after the loop: ended %v, %q", ended, got.String())
	}
	p.Stdin().Close()
	if code := wait(t, p); code != 6 {
		t.Errorf("exit code %d", code)
	}
}

// Promise 64: waiting can end without the guest.
func TestWaitIsNoStop(t *testing.T) {
	s := sandbox(t, Profile{})
	p := start(t, s, Command{Args: []string{"sleep", "1000"}})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := p.Wait(ctx); !errors.Is(err, context.Canceled) || p.Terminated() {
		t.Errorf("%v, terminated %v", err, p.Terminated())
	}
	if _, ended := p.ExitCode(); ended {
		t.Error("it ended")
	}
}

// Promise 68.
func TestOneReader(t *testing.T) {
	s := sandbox(t, Profile{})
	p := start(t, s, Command{Args: []string{"sh", "-c", "echo ready; read x; true"}, StdinPipe: true})
	for range p.Output() {
		if _, err := p.Communicate(context.Background()); !errors.Is(err, ErrConcurrentRead) {
			t.Errorf("Communicate in an Output loop: %v", err)
		}
		func() {
			defer func() {
				if r := recover(); r != ErrConcurrentRead {
					t.Errorf("Output in an Output loop: %v", r)
				}
			}()
			for range p.Output() {
				t.Error("two readers")
			}
		}()
		break
	}
	p.Stdin().Close()
	if r, err := p.Communicate(context.Background()); err != nil || !r.OK() {
		t.Errorf("afterwards: %v %v", r, err)
	}
}

// Promise 67: an idle process costs the goroutine that waits for its end, and
// a closed one nothing.
func TestGoroutines(t *testing.T) {
	testutil.NoLeak(t, func() {
		s, err := New(Profile{})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		before := runtime.NumGoroutine()
		const n = 20
		var ps []*Process
		for range n {
			p, err := s.Start(context.Background(), "sleep", "1000")
			if err != nil {
				t.Fatal(err)
			}
			ps = append(ps, p)
		}
		if got := runtime.NumGoroutine() - before; got > n {
			t.Errorf("%d goroutines for %d processes", got, n)
		}
		for _, p := range ps {
			p.Kill()
			p.Close()
		}
	})
}

// A process that is dropped without Close is cleaned up, and said so.
func TestForgottenProcess(t *testing.T) {
	var log lockedBuffer
	testutil.NoLeak(t, func() {
		pid := func() int {
			s, err := New(Profile{Workspace: t.TempDir()}, WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
			if err != nil {
				t.Fatal(err)
			}
			p, err := s.Start(context.Background(), "sleep", "1000")
			if err != nil {
				t.Fatal(err)
			}
			return p.PID()
		}()
		for syscall.Kill(pid, 0) == nil {
			runtime.GC()
			time.Sleep(time.Millisecond) // polls for the event
		}
	})
	if !strings.Contains(log.String(), "level=WARN") || !strings.Contains(log.String(), "was not closed") {
		t.Errorf("log: %s", log.String())
	}
}

// Promise 100: the guest does not outlive its host, not even killed.
func TestHostIsKilled(t *testing.T) {
	if dir := os.Getenv("POSTERN_TEST_HOST"); dir != "" {
		s, err := New(Profile{Workspace: dir})
		if err != nil {
			t.Fatal(err)
		}
		p, err := s.StartBash(context.Background(), "trap '' TERM HUP INT; echo ready; setsid sleep 1000 & while :; do sleep 1000; done")
		if err != nil {
			t.Fatal(err)
		}
		await(t, p, "ready")
		os.Stdout.WriteString("PID " + strconv.Itoa(p.PID()) + "\n")
		select {}
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, "-test.run=^TestHostIsKilled$")
	cmd.Env = append(os.Environ(), "POSTERN_TEST_HOST="+t.TempDir(), "TMPDIR="+t.TempDir())
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var pid int
	line := make([]byte, 64)
	n, err := out.Read(line)
	if err != nil {
		t.Fatal(err)
	}
	if pid, err = strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(string(line[:n]), "PID "))); err != nil {
		t.Fatal(err)
	}
	pidfd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pidfd)
	cmd.Process.Kill()
	io.Copy(io.Discard, out)
	cmd.Wait()
	if n, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, 10_000); n != 1 {
		t.Errorf("the guest is still there: %v", err)
	}
}

// lockedBuffer is a buffer that may be written to and read at once.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// An echoHatch says hello to whoever connects.
type echoHatch struct {
	*hatch.Socket
	runs atomic.Int64
}

func newEchoHatch(t testing.TB, name string) *echoHatch {
	t.Helper()
	s, err := hatch.NewSocket(hatch.SocketConfig{Name: name, MaxConns: 4})
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		for {
			c, err := s.Accept()
			if err != nil {
				return
			}
			io.WriteString(c, "hello")
			c.Close()
		}
	}()
	t.Cleanup(func() {
		s.Close()
		<-served
	})
	return &echoHatch{Socket: s}
}

func (h *echoHatch) Serve() (func(), error) {
	stop, err := h.Socket.Serve()
	if err != nil {
		return nil, err
	}
	h.runs.Add(1)
	return sync.OnceFunc(func() { stop(); h.runs.Add(-1) }), nil
}

func (h *echoHatch) serving() int64 { return h.runs.Load() }
