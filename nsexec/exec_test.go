//go:build linux

package nsexec_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/populationgenomics/postern-go/internal/stage"
	"github.com/populationgenomics/postern-go/internal/testutil"
	"github.com/populationgenomics/postern-go/internal/testutil/guest"
	"github.com/populationgenomics/postern-go/mounts"
	"github.com/populationgenomics/postern-go/nsexec"
	"golang.org/x/sys/unix"
)

// execSpecs are launches by Exec, by name.
var execSpecs = map[string]func(script string) *nsexec.Spec{
	"init": func(script string) *nsexec.Spec { return launcher(guest.Shell(script)) },
	"no init": func(script string) *nsexec.Spec {
		s := launcher(guest.Shell(script))
		s.Init = false
		return s
	},
	"no PID namespace": func(script string) *nsexec.Spec {
		s := launcher(guest.Shell(script))
		sharePID(s)
		return s
	},
	"bare": func(script string) *nsexec.Spec {
		return launcher(&nsexec.Spec{Path: "sh", Args: []string{"sh", "-c", script}, Env: []string{"PATH=/usr/bin:/bin"}})
	},
	"own status": func(script string) *nsexec.Spec {
		s := launcher(guest.Spec([]string{script}))
		s.Launcher.ExecStatus, s.Launcher.ExecPrefix = 1, "execvp "
		return s
	},
	"missing bind": func(string) *nsexec.Spec {
		return launcher(guest.Shell("true", mounts.Bind{Source: "/missing", Dest: "/mnt"}))
	},
	"phrase": func(string) *nsexec.Spec {
		s := launcher(guest.Shell("true", mounts.Bind{Source: "/missing", Dest: "/mnt"}))
		s.Launcher.Phrase = func(do, on string) (before, place, after string) { return "[" + do + "|", on, "]" }
		return s
	},
	"no hostname": func(string) *nsexec.Spec {
		s := launcher(guest.Shell("true"))
		s.Hostname = ptr(strings.Repeat("x", 100))
		return s
	},
	"forward": func(script string) *nsexec.Spec {
		s := launcher(guest.Shell(script))
		s.Launcher.Forward = true
		return s
	},
	"die": func(script string) *nsexec.Spec {
		s := launcher(guest.Shell(script))
		s.Launcher.DieWithParent, s.Launcher.Parent = true, os.Getppid()
		return s
	},
	"die, no init": func(script string) *nsexec.Spec {
		s := launcher(guest.Shell(script))
		s.Init, s.Launcher.DieWithParent, s.Launcher.Parent = false, true, os.Getppid()
		return s
	},
	"locks": func(script string) *nsexec.Spec {
		s := launcher(guest.Shell(script, mounts.Bind{Source: os.Getenv("DIR"), Dest: "/shared", Mode: mounts.ReadWrite}))
		s.Launcher.Locks = []string{"/shared/lock"}
		return s
	},
	"locks, no PID namespace": func(script string) *nsexec.Spec {
		s := launcher(guest.Shell(script, mounts.Bind{Source: os.Getenv("DIR"), Dest: "/shared", Mode: mounts.ReadWrite}))
		s.Launcher.Locks = []string{"/shared/lock"}
		sharePID(s)
		return s
	},
	"missing lock": func(string) *nsexec.Spec {
		s := launcher(guest.Shell("true"))
		s.Launcher.Locks = []string{"/missing"}
		return s
	},
	"descriptors": func(script string) *nsexec.Spec {
		s := launcher(guest.Shell(script))
		s.Launcher.Sync, s.Launcher.Inherited = []int{3}, []int{3, 4}
		return s
	},
	"block": func(script string) *nsexec.Spec {
		s := launcher(guest.Shell(script))
		s.Launcher.Block, s.Launcher.Inherited = ptr(3), []int{3}
		return s
	},
	"block on nothing": func(script string) *nsexec.Spec {
		s := launcher(guest.Shell(script))
		s.Launcher.Block = ptr(200)
		return s
	},
}

// sharePID changes a spec to the caller's PID namespace, whose /proc can only
// be bound.
func sharePID(s *nsexec.Spec) {
	s.Init, s.Namespaces.PID = false, nsexec.Share
	for i, op := range s.Mounts.Ops {
		if p, ok := op.(mounts.Proc); ok {
			p.Host = true
			s.Mounts.Ops[i] = p
		}
	}
}

func launcher(s *nsexec.Spec) *nsexec.Spec {
	s.KeepFDs = true
	s.Launcher = &nsexec.Launcher{Comm: "postern-test", Prefix: "test: ", FailStatus: 125, ExecPrefix: "test: "}
	return s
}

// begun is what a launcher says when it is about to launch.
const begun = "begun\n"

var execProbe = guest.Probe("exec", func(args []string) {
	// What the test program holds itself is not the launcher's to pass on.
	for fd := 3; fd < 1024; fd++ {
		if fd > 4 || os.Getenv("FDS") == "" {
			unix.CloseOnExec(fd)
		}
	}
	spec := execSpecs[args[0]](args[1])
	if os.Getenv("BEGUN") != "" {
		io.Copy(io.Discard, os.Stdin)
		os.Stdout.WriteString(begun)
	}
	err := nsexec.Exec(spec)
	fmt.Println("Exec returned:", err)
	os.Exit(99)
})

// execCmd returns a command that becomes a launch.
func execCmd(t testing.TB, name, script string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, name, script)
	cmd.Env = append(os.Environ(), guest.ProbeEnv(execProbe))
	return cmd
}

func runExec(t testing.TB, name, script string) (out string, code int) {
	t.Helper()
	b, err := execCmd(t, name, script).CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if exit != nil {
		code = exit.ExitCode()
	}
	return string(b), code
}

func TestExecStatus(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		names := []string{"init", "no init", "no PID namespace", "forward", "die", "descriptors"}
		for _, name := range append(names, "bare") {
			for script, want := range map[string]int{"exit 0": 0, "exit 1": 1, "exit 255": 255, "kill -9 $$": 137, "kill -TERM $$": 143, "exec nowhere 2>/dev/null": 127} {
				if name == "no init" && strings.HasPrefix(script, "kill") {
					continue // PID 1 cannot kill itself
				}
				if out, code := runExec(t, name, script); code != want || out != "" {
					t.Errorf("%s, %s: %d %q", name, script, code, out)
				}
			}
		}
		for _, c := range []struct {
			name, script, out string
			code              int
		}{
			{"own status", "nowhere", "execvp nowhere: No such file or directory\n", 1},
			{"missing bind", "", "test: open bind source /missing: No such file or directory\n", 125},
			{"phrase", "", "test: [open bind source|/missing]: No such file or directory\n", 125},
			{"no hostname", "", "test: set the host name " + strings.Repeat("x", 100) + ": Invalid argument\n", 125},
			{"missing lock", "", "test: open lock file /missing: No such file or directory\n", 125},
			{"block on nothing", "echo runs", "runs\n", 0},
		} {
			if out, code := runExec(t, c.name, c.script); code != c.code || out != c.out {
				t.Errorf("%s: %d %q, want %d %q", c.name, code, out, c.code, c.out)
			}
		}
	})
}

func TestExecRefusesWhatIsForStart(t *testing.T) {
	for field, change := range map[string]func(*nsexec.Spec){
		"Launcher":   func(s *nsexec.Spec) { s.Launcher = nil },
		"Terminal":   func(s *nsexec.Spec) { s.Terminal = true },
		"UIDMap":     func(s *nsexec.Spec) { s.UIDMap, s.GIDMap = []nsexec.IDMap{{Count: 1}}, []nsexec.IDMap{{Count: 1}} },
		"Files":      func(s *nsexec.Spec) { s.Files = []*os.File{os.Stdin} },
		"StageFiles": func(s *nsexec.Spec) { s.StageFiles = []*os.File{os.Stdin} },
		"Stdin":      func(s *nsexec.Spec) { s.Stdout = os.Stdout },
	} {
		s := launcher(guest.Shell("true"))
		change(s)
		var se *nsexec.SpecError
		if err := nsexec.Exec(s); !errors.As(err, &se) || se.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
}

// What stays of the launcher is a few pages and no runtime.
func TestMonitorFootprint(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		for _, name := range []string{"init", "no PID namespace", "forward", "die"} {
			cmd, in, _ := startExec(t, name, "echo up; read x")
			pid := cmd.Process.Pid
			read := func(file string) string {
				b, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file))
				// It shares its memory with the init, into which only root may look.
				if err != nil && !(os.Geteuid() != 0 && errors.Is(err, fs.ErrPermission)) {
					t.Fatal(err)
				}
				return string(b)
			}
			// The guest may be up before the launcher has become the monitor,
			// which then sleeps.
			for !strings.Contains(read("stat"), "(postern-test) S") {
				runtime.Gosched()
			}
			var private, threads int
			for l := range strings.Lines(read("smaps_rollup")) {
				var n int
				if _, err := fmt.Sscanf(l, "Private_Dirty: %d", &n); err == nil {
					private += n
				}
				if _, err := fmt.Sscanf(l, "Private_Clean: %d", &n); err == nil {
					private += n
				}
			}
			for l := range strings.Lines(read("status")) {
				fmt.Sscanf(l, "Threads: %d", &threads)
			}
			if private >= 64 || threads != 1 {
				t.Errorf("%s: %d KiB private, %d threads", name, private, threads)
			}
			if maps := read("maps"); strings.Contains(maps, ".test") {
				t.Errorf("%s: maps the launcher:\n%s", name, maps)
			}
			links, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
			if err != nil || len(links) > 3+7 {
				t.Errorf("%s: %d descriptors: %v", name, len(links), err)
			}
			in.Close()
			cmd.Wait()
		}
	})
}

// startExec starts a launch whose guest has said that it is up.
func startExec(t testing.TB, name, script string) (cmd *exec.Cmd, in *os.File, out *bufio.Reader) {
	t.Helper()
	cmd = execCmd(t, name, script)
	in, out = startUp(t, cmd)
	return cmd, in, out
}

// startUp starts a launch and waits for its guest to say that it is up.
func startUp(t testing.TB, cmd *exec.Cmd) (in *os.File, out *bufio.Reader) {
	t.Helper()
	inR, in := testutil.Pipe(t)
	outR, outW := testutil.Pipe(t)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = inR, outW, outW
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	inR.Close()
	outW.Close()
	t.Cleanup(func() {
		in.Close()
		cmd.Process.Kill()
		cmd.Wait()
	})
	out = bufio.NewReader(outR)
	if l, err := out.ReadString('\n'); l != "up\n" {
		t.Fatalf("%v: %q %v", cmd.Args, l, err)
	}
	return in, out
}

// With Forward signals reach the guest; otherwise they are the monitor's.
func TestExecForward(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		cmd, _, out := startExec(t, "forward", `trap 'echo got it; exit 3' TERM; echo up; while :; do read x || sleep 1000; done`)
		// The guest may be up before the launcher has turned into the monitor;
		// what is sent to the launcher is not forwarded.
		const term = 1 << (unix.SIGTERM - 1)
		for blocked := uint64(0); blocked&term == 0; {
			b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid))
			if err != nil {
				t.Fatal(err)
			}
			_, rest, _ := strings.Cut(string(b), "SigBlk:\t")
			fmt.Sscanf(rest, "%x", &blocked)
		}
		if err := cmd.Process.Signal(unix.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if l, err := out.ReadString('\n'); l != "got it\n" {
			t.Errorf("%q %v", l, err)
		}
		cmd.Wait()
		if code := cmd.ProcessState.ExitCode(); code != 3 {
			t.Errorf("status %d", code)
		}

		cmd, in, out := startExec(t, "init", `trap 'echo got it' TERM; echo up; read x; echo $x`)
		if err := cmd.Process.Signal(unix.SIGTERM); err != nil {
			t.Fatal(err)
		}
		cmd.Wait()
		if ws := cmd.ProcessState.Sys().(syscall.WaitStatus); ws.Signal() != unix.SIGTERM {
			t.Errorf("without Forward: %v", ws)
		}
		io.WriteString(in, "still here\n")
		if l, err := out.ReadString('\n'); l != "still here\n" {
			t.Errorf("without Forward the guest said %q, %v", l, err)
		}
	})
}

// The locks are the init's: held while the guest runs and gone with it.
func TestLocks(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		dir := t.TempDir()
		t.Setenv("DIR", dir)
		f, err := os.Create(filepath.Join(dir, "lock"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		writable := func() bool {
			lk := unix.Flock_t{Type: unix.F_WRLCK}
			if err := unix.FcntlFlock(f.Fd(), unix.F_GETLK, &lk); err != nil {
				t.Fatal(err)
			}
			return lk.Type == unix.F_UNLCK
		}
		for _, name := range []string{"locks", "locks, no PID namespace"} {
			if !writable() {
				t.Fatal("locked before")
			}
			cmd, in, _ := startExec(t, name, "echo up; read x; exit 5")
			if writable() {
				t.Errorf("%s: not locked", name)
			}
			in.Close()
			cmd.Wait()
			if code := cmd.ProcessState.ExitCode(); code != 5 {
				t.Errorf("%s: status %d", name, code)
			}
		}
	})
}

// Descriptors reach whom they are for: 3 is the init's, 4 the program's.
func TestSyncAndInherited(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		t.Setenv("FDS", "1")
		syncR, syncW := testutil.Pipe(t)
		inhR, inhW := testutil.Pipe(t)
		cmd := execCmd(t, "descriptors", `for f in /proc/self/fd/*; do [ -e $f ] && printf "${f##*/} "; done; exec 4>&-; echo; read x`)
		cmd.ExtraFiles = []*os.File{syncW, inhW}
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		outR, outW := testutil.Pipe(t)
		cmd.Stdout, cmd.Stderr = outW, outW
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		outW.Close()
		syncW.Close()
		inhW.Close()
		if l, err := bufio.NewReader(outR).ReadString('\n'); l != "0 1 2 4 \n" {
			t.Errorf("the program has %q, %v", l, err)
		}
		// The program has closed 4, and nobody else may hold it.
		if _, err := inhR.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("4 is held by the init or the monitor: %v", err)
		}
		if _, err := readNow(syncR); err != unix.EAGAIN {
			t.Errorf("3 is not held: %v", err)
		}
		in.Close()
		cmd.Wait()
		if _, err := syncR.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("3 is still held: %v", err)
		}
	})
}

func TestBlock(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		t.Setenv("FDS", "1")
		for _, release := range []func(w *os.File){func(w *os.File) { w.Write([]byte{1}) }, func(w *os.File) { w.Close() }} {
			blockR, blockW := testutil.Pipe(t)
			outR, outW := testutil.Pipe(t)
			cmd := execCmd(t, "block", "echo ran; ls /proc/self/fd | grep -c '^3$'")
			cmd.ExtraFiles = []*os.File{blockR}
			cmd.Stdout, cmd.Stderr = outW, outW
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			outW.Close()
			blockR.Close()
			// Whenever it looks, the program has not run.
			for range 1000 {
				if n, err := readNow(outR); err != unix.EAGAIN {
					t.Fatalf("ran before it was let: %d, %v", n, err)
				}
			}
			release(blockW)
			b, err := io.ReadAll(outR)
			cmd.Wait()
			if !strings.HasPrefix(string(b), "ran\n") {
				t.Errorf("%q, %v", b, err)
			}
		}
	})
}

// readNow reads a byte without waiting for one.
func readNow(f *os.File) (int, error) {
	fd := int(f.Fd()) // which makes it blocking
	unix.SetNonblock(fd, true)
	defer unix.SetNonblock(fd, false)
	return unix.Read(fd, make([]byte, 1))
}

// The program starts when there is a monitor, or when the host of a Start has
// its hold on the guest, whatever the launch is like.
func TestProgramComesLast(t *testing.T) {
	t.Setenv("DIR", t.TempDir())
	for name, spec := range execSpecs {
		prog, err := nsexec.CompileExec(spec("true"))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		comesBeforeExecute(t, name, prog, "wait for the monitor")
		s := spec("true")
		s.Launcher = nil
		if prog, err = nsexec.Compile(s); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		comesBeforeExecute(t, name+", by Start", prog, "wait for the host")
	}
}

func comesBeforeExecute(t *testing.T, name string, prog *stage.Program, do string) {
	t.Helper()
	is := func(do string) int {
		return slices.IndexFunc(prog.Ops, func(op stage.Op) bool { return op.Step.Do == do })
	}
	if wait, execute := is(do), is("execute"); wait < 0 || execute < wait {
		t.Errorf("%s: %q is operation %d, the program is executed by %d", name, do, wait, execute)
	}
}
