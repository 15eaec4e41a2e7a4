package postern

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/populationgenomics/postern-go/hatch"
	"github.com/populationgenomics/postern-go/internal/testutil"
	"github.com/populationgenomics/postern-go/nsexec"
)

// Promises 1, 5 to 8, 10, 11, 15 to 17: exit codes are results.
func TestExitStatus(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		s := sandbox(t, Profile{})
		for _, tt := range []struct {
			name   string
			cmd    Command
			code   int
			signal syscall.Signal
			reason Reason
		}{
			{"success", Command{Args: []string{"true"}}, 0, 0, Exited},
			{"failure", Bash("exit 7"), 7, 0, Exited},
			{"no such program", Command{Args: []string{"no-such-program"}}, 127, 0, Exited},
			{"no such path", Command{Args: []string{"/no/such/program"}}, 127, 0, Exited},
			{"not executable", Command{Args: []string{"/etc"}}, 126, 0, Exited},
			{"SIGKILL", Bash("kill -KILL $$"), 137, syscall.SIGKILL, Signalled},
			{"SIGTERM", Bash("kill -TERM $$"), 143, syscall.SIGTERM, Signalled},
			{"SIGSEGV", Bash("kill -SEGV $$"), 139, syscall.SIGSEGV, Signalled},
			{"python 300", Python("import sys; sys.exit(300)"), 44, 0, Exited},
			{"python -1", Python("import sys; sys.exit(-1)"), 255, 0, Exited},
		} {
			t.Run(tt.name, func(t *testing.T) {
				r := run(t, s, tt.cmd)
				if r.ExitCode != tt.code || r.Signal != tt.signal || r.Reason != tt.reason || r.OK() != (tt.code == 0) {
					t.Errorf("exit code %d, signal %v, %v, OK %v; want %d, %v, %v\n%s", r.ExitCode, r.Signal, r.Reason, r.OK(), tt.code, tt.signal, tt.reason, r.Stderr)
				}
			})
		}
		t.Run("says what is not there", func(t *testing.T) {
			if r := run(t, s, Command{Args: []string{"no-such-program"}}); !strings.Contains(string(r.Stderr), "no-such-program: No such file or directory") {
				t.Errorf("stderr %q", r.Stderr)
			}
		})
	})
}

// Promises 22, 23, 34: streams are bytes, apart, and input is empty.
func TestStreams(t *testing.T) {
	s := sandbox(t, Profile{})
	r := run(t, s, Bash(`printf '\377\0out'; printf 'err' >&2; cat; readlink /proc/self/fd/0`))
	if want := "\xff\x00out/dev/null\n"; string(r.Stdout) != want || string(r.Stderr) != "err" {
		t.Errorf("stdout %q, stderr %q", r.Stdout, r.Stderr)
	}
	big := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	if r := run(t, s, Command{Args: []string{"cat"}, Input: big}); !bytes.Equal(r.Stdout, big) {
		t.Errorf("an input of %d bytes came back as %d", len(big), len(r.Stdout))
	}
	if r := run(t, s, Command{Args: []string{"sh", "-c", "echo x > /proc/self/fd/0; cat"}, Input: []byte("sealed\n")}); string(r.Stdout) != "sealed\n" {
		t.Errorf("a guest changed its input: %q", r.Stdout)
	}
}

// Promises 12 to 14.
func TestTimeout(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		s := sandbox(t, Profile{Timeout: 2 * time.Second})
		r := run(t, s, Bash("trap '' TERM; echo partial; echo problem >&2; setsid sleep 98761 & while :; do sleep 98761; done"))
		if r.ExitCode != 124 || r.Reason != TimedOut {
			t.Errorf("exit code %d, %v", r.ExitCode, r.Reason)
		}
		if string(r.Stdout) != "partial\n" || string(r.Stderr) != "problem\n\n[postern] timed out" {
			t.Errorf("stdout %q, stderr %q", r.Stdout, r.Stderr)
		}
		if out, _ := exec.Command("pgrep", "-x", "-f", "sleep 98761").Output(); len(out) > 0 {
			t.Errorf("still running: %s", out)
		}
	})
}

func TestContextEndStopsTheRun(t *testing.T) {
	s := sandbox(t, Profile{})
	reason := errors.New("the user pressed stop")
	for _, tt := range []struct {
		name   string
		ctx    func(started func()) context.Context
		is     []error
		reason Reason
		code   int
	}{
		{"cancel", func(ready func()) context.Context {
			ctx, cancel := context.WithCancelCause(context.Background())
			go func() { ready(); cancel(reason) }()
			return ctx
		}, []error{context.Canceled, reason}, Stopped, 3},
		{"deadline", func(func()) context.Context {
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
			t.Cleanup(cancel)
			return ctx
		}, []error{context.DeadlineExceeded}, TimedOut, 124},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ctx := tt.ctx(func() { awaitFile(t, s.Workspace(), "ready") })
			r, err := s.RunBash(ctx, "trap 'echo cleaned; exit 3' TERM; echo partial; touch ready; while :; do sleep 1000 & wait; done")
			for _, want := range tt.is {
				if !errors.Is(err, want) {
					t.Errorf("error %v is not %v", err, want)
				}
			}
			if r.Reason != tt.reason || r.ExitCode != tt.code || string(r.Stdout) != "partial\ncleaned\n" {
				t.Errorf("%v, exit code %d, stdout %q, stderr %q", r.Reason, r.ExitCode, r.Stdout, r.Stderr)
			}
		})
	}
	t.Run("one signal", func(t *testing.T) { // a second would run the trap again
		p, err := s.Start(t.Context(), "bash", "-c", "trap 'echo cleaned; [ -e seen ] && exit 4; touch seen trapped; read x < go; exit 3' TERM; mkfifo go; touch up; while :; do sleep 1000 & wait; done")
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		awaitFile(t, s.Workspace(), "up")
		p.Terminate(time.Minute)
		awaitFile(t, s.Workspace(), "trapped")
		p.Terminate(time.Minute)
		// Open in both directions, a FIFO waits for nobody.
		goOn, err := os.OpenFile(filepath.Join(s.Workspace(), "go"), os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer goOn.Close()
		if _, err := goOn.WriteString("\n"); err != nil {
			t.Fatal(err)
		}
		r, err := p.Communicate(t.Context())
		if err != nil || r.ExitCode != 3 || string(r.Stdout) != "cleaned\n" {
			t.Errorf("exit code %d, %q, %v", r.ExitCode, r.Stdout, err)
		}
	})
	t.Run("before the start", func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		r, err := s.Run(ctx, "touch", "started")
		if !errors.Is(err, context.Canceled) || r.Reason != NotRun || r.OK() {
			t.Errorf("%+v, %v", r, err)
		}
		if _, err := os.Stat(filepath.Join(s.Workspace(), "started")); err == nil {
			t.Error("it was started")
		}
	})
}

// awaitFile returns when a guest has made a file.
func awaitFile(t testing.TB, dir, name string) {
	t.Helper()
	for {
		if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
			os.Remove(filepath.Join(dir, name))
			return
		}
		time.Sleep(time.Millisecond) // polls for the event
	}
}

func TestUsage(t *testing.T) {
	s := sandbox(t, Profile{})
	r := run(t, s, Python("x = bytearray(100 << 20)\nfor i in range(3_000_000): pass"))
	if !r.OK() || r.User <= 0 || r.Wall < r.User/2 || r.PeakMemory < 100<<20 {
		t.Errorf("%v, wall %v, user %v, peak %d", r.Reason, r.Wall, r.User, r.PeakMemory)
	}
}

// Users' request 12: output without end.
func TestOutputLimit(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		s := sandbox(t, Profile{OutputLimit: 100_000})
		for _, script := range []string{"yes", "yes >&2", "yes & yes >&2"} {
			r := run(t, s, Bash("trap '' TERM; "+script))
			if r.Reason != OutputLimit || len(r.Stdout)+len(r.Stderr) != 100_000 {
				t.Errorf("%s: %v with %d bytes", script, r.Reason, len(r.Stdout)+len(r.Stderr))
			}
		}
		if r := run(t, s, Bash("head -c 100000 /dev/zero")); r.Reason != Exited || len(r.Stdout) != 100_000 {
			t.Errorf("just the limit: %v with %d bytes", r.Reason, len(r.Stdout))
		}
		s = sandbox(t, Profile{OutputLimit: Unlimited})
		if r := run(t, s, Bash("head -c 80000000 /dev/zero")); r.Reason != Exited || len(r.Stdout) != 80_000_000 {
			t.Errorf("without a limit: %v with %d bytes", r.Reason, len(r.Stdout))
		}
	})
}

// Promises 25, 28, 33, 108: a wall that cannot be built is an error that says
// at what.
func TestLaunchError(t *testing.T) {
	s := sandbox(t, Profile{RequiredBinds: []Bind{{Host: "/no/such/directory"}}})
	r, err := s.Run(context.Background(), "true")
	if _, ok := errors.AsType[*IsolationError](err); !ok || !errors.Is(err, syscall.ENOENT) || r.Reason != NotRun || r.OK() {
		t.Errorf("%+v, %v", r, err)
	}
	if se, ok := errors.AsType[*nsexec.StartError](err); !ok || se.On != "/no/such/directory" {
		t.Errorf("%v does not name the path", err)
	}
	if err := s.Verify(context.Background()); err == nil || !strings.Contains(err.Error(), "sandbox failed to launch") {
		t.Errorf("Verify: %v", err)
	}
}

// Promises 26, 28 to 30.
func TestVerify(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		if !Available() {
			t.Error("not available")
		}
		if err := sandbox(t, Profile{}).Verify(context.Background()); err != nil {
			t.Error(err)
		}
		err := sandbox(t, Profile{NoSeccomp: true}).Verify(context.Background())
		if _, ok := errors.AsType[*IsolationError](err); !ok || !strings.Contains(err.Error(), "seccomp is disabled; refusing to treat this as a hardened sandbox") {
			t.Errorf("without seccomp: %v", err)
		}
		empty := t.TempDir()
		os.Mkdir(filepath.Join(empty, "usr"), 0o755)
		if err := sandbox(t, Profile{Rootfs: reachable(t, empty)}).Verify(context.Background()); err != nil {
			t.Errorf("an empty rootfs: %v", err)
		}
	})
}

// reachable makes a temporary directory one that everybody can enter.
func reachable(t testing.TB, dir string) string {
	t.Helper()
	for d := dir; d != "/tmp" && d != "/"; d = filepath.Dir(d) {
		if st, err := os.Stat(d); err != nil || st.Mode().Perm()&0o111 == 0o111 {
			continue
		}
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// Promise 141: no user namespaces, no run. The limit is set in a user
// namespace of the test's own, not on the machine.
func TestNoUserNamespaces(t *testing.T) {
	if os.Getenv("POSTERN_TEST_NO_USERNS") != "" {
		if Available() {
			t.Error("available")
		}
		s := sandbox(t, Profile{})
		err := s.Verify(context.Background())
		if _, ok := errors.AsType[*IsolationError](err); !ok || !errors.Is(err, nsexec.ErrNoUserns) {
			t.Errorf("Verify: %v", err)
		}
		if r, err := s.Run(context.Background(), "id"); !errors.Is(err, syscall.ENOSPC) || len(r.Stdout) > 0 {
			t.Errorf("%+v, %v", r, err)
		}
		return
	}
	testutil.RequireTool(t, "unshare")
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("unshare", "-Ur", "sh", "-c", "echo 0 > /proc/sys/user/max_user_namespaces && exec "+exe+" -test.v -test.run='^TestNoUserNamespaces$'")
	cmd.Env = append(os.Environ(), "POSTERN_TEST_NO_USERNS=1")
	if out, err := cmd.CombinedOutput(); err != nil || !bytes.Contains(out, []byte("--- PASS: TestNoUserNamespaces")) {
		t.Errorf("%v\n%s", err, out)
	}
}

// Promise 38, 174, 175: many runs, one workspace.
func TestWorkspacePersistsBetweenRuns(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		s := sandbox(t, Profile{})
		outputOf(t, s, "echo hello > file")
		if got := outputOf(t, s, "cat file /workspace/file"); got != "hello\nhello" {
			t.Errorf("the second run read %q", got)
		}
		if b, err := os.ReadFile(filepath.Join(s.Workspace(), "file")); string(b) != "hello\n" {
			t.Errorf("the host read %q, %v", b, err)
		}
		ws, err := s.Accessor()
		if err != nil {
			t.Fatal(err)
		}
		defer ws.Close()
		if b, err := ws.ReadFile("file"); string(b) != "hello\n" {
			t.Errorf("the accessor read %q, %v", b, err)
		}
	})
}

// Promises 36, 170, 171.
func TestWorkspaceLifetime(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		s := sandbox(t, Profile{})
		dir := s.Workspace()
		if !strings.HasPrefix(filepath.Base(dir), "postern-ws-") || filepath.Dir(dir) != filepath.Clean(os.TempDir()) {
			t.Errorf("the private workspace is %s", dir)
		}
		outputOf(t, s, "mkdir -p a/b; touch a/b/c; chmod 0 a/b a; ln -s / out")
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("after Close: %v", err)
		}
		if _, err := s.Run(context.Background(), "true"); !errors.Is(err, ErrClosed) {
			t.Errorf("Run after Close: %v", err)
		}
		if err := s.Close(); err != nil {
			t.Errorf("a second Close: %v", err)
		}

		mine := filepath.Join(reachable(t, t.TempDir()), "new", "workspace")
		s = sandbox(t, Profile{Workspace: mine})
		outputOf(t, s, "touch file")
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(filepath.Join(mine, "file")); err != nil {
			t.Errorf("the caller's workspace after Close: %v", err)
		}
	})
}

func TestCloseStopsRuns(t *testing.T) {
	s := sandbox(t, Profile{})
	p := start(t, s, Bash("trap 'touch /workspace/cleaned; exit' TERM; echo ready; while :; do sleep 1000 & wait; done"))
	await(t, p, "ready")
	kept := t.TempDir()
	s2 := sandbox(t, Profile{Workspace: kept})
	p2 := start(t, s2, Bash("trap 'touch cleaned; exit' TERM; echo ready; while :; do sleep 1000 & wait; done"))
	await(t, p2, "ready")
	s.Close()
	s2.Close()
	for _, p := range []*Process{p, p2} {
		if _, ended := p.ExitCode(); !ended {
			t.Error("it still runs")
		}
	}
	if _, err := os.Stat(filepath.Join(kept, "cleaned")); err != nil {
		t.Errorf("it could not clean up: %v", err)
	}
}

// All that is wrong is said at once, and nothing is made.
func TestNewChecksTheProfile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "workspace")
	_, err := New(Profile{Workspace: dir, TmpSize: -2}, WithHatch(&fakeHatch{}, &fakeHatch{}))
	if fe, ok := errors.AsType[*FieldError](err); !ok || fe.Field != "Profile.TmpSize" || !errors.Is(err, hatch.ErrDuplicate) {
		t.Error(err)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("the workspace is there")
	}
}

// Promises 3, 4, 180.
func TestHatchNamesAreChecked(t *testing.T) {
	unnamed, named := &fakeHatch{}, &fakeHatch{name: "data"}
	for _, tt := range []struct {
		hatches []hatch.Hatch
		want    error
	}{
		{[]hatch.Hatch{unnamed, named}, nil},
		{[]hatch.Hatch{unnamed, &fakeHatch{}}, hatch.ErrDuplicate},
		{[]hatch.Hatch{named, &fakeHatch{name: "data"}}, hatch.ErrDuplicate},
		{[]hatch.Hatch{&fakeHatch{name: "a/b"}}, hatch.ErrInvalidName},
		{[]hatch.Hatch{&fakeHatch{name: "stubs"}}, hatch.ErrInvalidName},
	} {
		s, err := New(Profile{}, WithHatch(tt.hatches...))
		if !errors.Is(err, tt.want) {
			t.Errorf("%v: %v, want %v", tt.hatches, err, tt.want)
		}
		if err == nil {
			s.Close()
		}
	}
}

type fakeHatch struct{ name string }

func (h *fakeHatch) Name() string           { return h.name }
func (h *fakeHatch) SocketPath() string     { return "/nowhere" }
func (h *fakeHatch) Serve() (func(), error) { return func() {}, nil }
func (h *fakeHatch) Close() error           { return nil }
func (h *fakeHatch) String() string         { return h.name }
