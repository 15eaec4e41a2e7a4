package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/populationgenomics/postern-go/internal/testutil"
	"golang.org/x/sys/unix"
)

const parentEnv = "POSTERN_TEST_PARENT"

// TestMain makes this program the launcher when it is called by its name, and
// a parent of one where a test needs one to kill.
func TestMain(m *testing.M) {
	switch {
	case filepath.Base(os.Args[0]) == "bwrap", filepath.Base(os.Args[0]) == "postern-launch":
		main()
	case os.Getenv(parentEnv) != "":
		os.Unsetenv(parentEnv)
		cmd := exec.Command(os.Args[1], os.Args[2:]...)
		cmd.ExtraFiles = []*os.File{os.NewFile(3, "held"), os.NewFile(4, "args")}
		if err := cmd.Start(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		cmd.Wait()
		os.Exit(0)
	}
	code := m.Run()
	if dir, err := launchers(); err == nil {
		os.RemoveAll(dir)
	}
	os.Exit(code)
}

// launchers is a directory with this program as bwrap and as postern-launch.
var launchers = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("/tmp", "postern-launch-")
	if err != nil {
		return "", err
	}
	data, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(dir, "bwrap"), data, 0o755); err != nil {
		return "", err
	}
	if err := os.Link(filepath.Join(dir, "bwrap"), filepath.Join(dir, "postern-launch")); err != nil {
		return "", err
	}
	return dir, os.Chmod(dir, 0o755)
})

func launcher(t testing.TB, name string) string {
	t.Helper()
	dir, err := launchers()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, name)
}

// hostRoot is the host's file system, read-only, with its own /dev and /proc.
var hostRoot = []string{"--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"}

func words(line string) []string { return strings.Fields(line) }

// A result is what came of a launch.
type result struct {
	code   int
	signal syscall.Signal
	out    string
	err    string
}

func finish(t testing.TB, cmd *exec.Cmd) result {
	t.Helper()
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	ws := cmd.ProcessState.Sys().(syscall.WaitStatus)
	r := result{code: ws.ExitStatus(), out: out.String(), err: errs.String()}
	if ws.Signaled() {
		r.signal = ws.Signal()
	}
	return r
}

func bwrap(t testing.TB, args ...string) result {
	t.Helper()
	cmd := exec.Command(launcher(t, "bwrap"), args...)
	// A directory on the PATH that cannot be searched would be what a missing
	// program is reported with.
	cmd.Env = append(os.Environ(), "PATH=/usr/bin:/bin")
	return finish(t, cmd)
}

func onHost(t testing.TB, args ...string) result {
	t.Helper()
	return bwrap(t, append(append([]string{}, hostRoot...), args...)...)
}

func TestVersion(t *testing.T) {
	if r := bwrap(t, "--version"); r.out != "bubblewrap 0.13.1\n" || r.code != 0 {
		t.Errorf("%+v", r)
	}
	r := finish(t, exec.Command(launcher(t, "postern-launch"), "--version"))
	if !strings.HasPrefix(r.out, "postern-launch ") || !strings.HasSuffix(r.out, "compatible with bubblewrap 0.13.1\n") {
		t.Errorf("%+v", r)
	}
	if r := bwrap(t, "--unshare-pid", "--help"); r.code != 0 || !strings.Contains(r.out, "--forward-signals") || !strings.Contains(r.out, "--ro-bind SRC DEST") {
		t.Errorf("%+v", r)
	}
	if r := bwrap(t); r.code != 1 || r.out != "" || !strings.HasPrefix(r.err, "usage: ") {
		t.Errorf("%+v", r)
	}
}

func TestExitStatus(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		for _, pid := range []string{"", "--unshare-pid", "--unshare-pid --as-pid-1", "--unshare-all", "--lock-file /etc/passwd", "--json-status-fd 2 --unshare-pid"} {
			for script, want := range map[string]int{"exit 0": 0, "exit 7": 7, "kill -9 $$": 137, "exit 255": 255} {
				if strings.Contains(pid, "as-pid-1") && strings.HasPrefix(script, "kill") {
					continue // nothing can kill process 1 from inside
				}
				if r := onHost(t, append(words(pid), "sh", "-c", script)...); r.code != want {
					t.Errorf("%s %s: %+v, want %d", pid, script, r, want)
				}
			}
		}
		for _, c := range []struct {
			line, text string
			code       int
		}{
			{"missing", "bwrap: execvp missing: No such file or directory\n", 1},
			{"--unshare-pid /etc/passwd", "bwrap: execvp /etc/passwd: Permission denied\n", 1},
			{"--level-prefix missing", "<3>bwrap: execvp missing: No such file or directory\n", 1},
			{"--launch-status 77 missing", "bwrap: execvp missing: No such file or directory\n", 77},
			{"--launch-status 77 --chdir /missing true", "bwrap: Can't chdir to /missing: No such file or directory\n", 77},
			{"--bogus", "bwrap: Unknown option --bogus\n", 1},
		} {
			if r := onHost(t, words(c.line)...); r.code != c.code || r.err != c.text {
				t.Errorf("%s: %+v", c.line, r)
			}
		}
	})
}

// TestWords has what bubblewrap 0.13.1 says, where other programs may look.
func TestWords(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		w := t.TempDir()
		for _, dir := range []string{"d"} {
			os.Mkdir(filepath.Join(w, dir), 0o755)
		}
		os.WriteFile(filepath.Join(w, "f"), []byte("text"), 0o644)
		os.Symlink("d", filepath.Join(w, "l"))
		for _, c := range []struct{ line, want string }{
			{"--ro-bind / / --bind W/d W/l true", "bwrap: Can't mount on symlink destination W/l"},
			{"--bind / / --bind W/d W/f true", "bwrap: Destination is not a directory W/f"},
			{"--bind / / --tmpfs W/f true", "bwrap: Destination is not a directory W/f"},
			{"--bind / / --bind W/f W/d true", "bwrap: Destination is not a file W/d"},
			{"--ro-bind / / --ro-bind W/f W/new true", "bwrap: Can't create file W/new: Read-only file system"},
			{"--ro-bind / / --tmpfs W/new true", "bwrap: Can't create file W/new: Read-only file system"},
			{"--ro-bind / / --tmpfs W/new/x true", "bwrap: Can't mkdir parents for W/new/x: Read-only file system"},
			{"--ro-bind W/nope / true", "bwrap: Can't find source path W/nope: No such file or directory"},
			{"--ro-bind nope / true", "bwrap: Can't find source path nope: No such file or directory"},
			{"--ro-bind / / --symlink a W/f true", "bwrap: Can't make symlink at W/f: destination exists and is not a symlink"},
			{"--ro-bind / / --chmod 0700 W/nope true", "bwrap: Can't open W/nope: No such file or directory"},
			{"--ro-bind / / --lock-file /nope true", "bwrap: Unable to open lock file /nope: No such file or directory"},
			{"--ro-bind / / --userns 99 true", "bwrap: Joining specified user namespace failed: Bad file descriptor"},
			{"--ro-bind / / --userns 0 true", "bwrap: Joining the specified user namespace failed, it might not be a descendant of the current user namespace."},
			{"--ro-bind / / --pidns 99 true", "bwrap: Setting pidns failed: Bad file descriptor"},
			{"--ro-bind / / --assert-userns-disabled true", "bwrap: creation of new user namespaces was not disabled as requested"},
			{"--ro-bind / / --exec-label x true", "bwrap: labeling not supported on this system"},
			{"--ro-bind / / --info-fd 99 true", "bwrap: Write to info_fd: Bad file descriptor"},
			{"--ro-bind / / --overlay-src W/nope --tmp-overlay /mnt true", "bwrap: Can't find source path W/nope: No such file or directory"},
			{"--ro-bind / / --ro-bind-fd 99 /mnt true", "bwrap: Can't find source path /proc/self/fd/99: No such file or directory"},
		} {
			r := bwrap(t, words(strings.ReplaceAll(c.line, "W/", w+"/"))...)
			if want := strings.ReplaceAll(c.want, "W/", w+"/") + "\n"; r.err != want || r.code != 1 {
				t.Errorf("%s:\n got %d %swant %s", c.line, r.code, r.err, want)
			}
		}
	})
}

func TestComm(t *testing.T) {
	r := onHost(t, "--unshare-pid", "--ro-bind", "/proc", "/mnt", "sh", "-c", "cat /proc/1/comm")
	if r.out != "bwrap\n" {
		t.Errorf("init: %+v", r)
	}
	// The launcher itself is the parent of what it starts.
	r = bwrap(t, "--ro-bind", "/", "/", "sh", "-c", "cat /proc/$PPID/comm")
	if r.out != "bwrap\n" {
		t.Errorf("launcher: %+v", r)
	}
}

// filled returns a pipe's end from which data can be read.
func filled(t testing.TB, data string) *os.File {
	t.Helper()
	r, w := testutil.Pipe(t)
	if _, err := w.WriteString(data); err != nil {
		t.Fatal(err)
	}
	w.Close()
	return r
}

func TestDescriptors(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		for _, mode := range []string{"", "--unshare-pid", "--unshare-pid --as-pid-1", "--json-status-fd 2 --unshare-all"} {
			cmd := exec.Command(launcher(t, "bwrap"), append(append(hostRoot[:len(hostRoot):len(hostRoot)], words(mode)...),
				"--args", "4", "--ro-bind-data", "5", "/tmp/data", "sh", "-c", "cat /tmp/data; echo; cat <&3; for i in 4 5 6 7 8 9; do [ -e /proc/self/fd/$i ] && echo $i; done; true")...)
			cmd.ExtraFiles = []*os.File{filled(t, "inherited "), filled(t, "--tmpfs\x00/tmp"), filled(t, "data"), filled(t, "")}
			if r := finish(t, cmd); r.out != "data\ninherited 6\n" {
				t.Errorf("%s: %+v", mode, r)
			}
		}
	})
}

// TestSyncFD: the init keeps it, the command does not have it.
func TestSyncFD(t *testing.T) {
	r, w := testutil.Pipe(t)
	cmd := exec.Command(launcher(t, "bwrap"), append(hostRoot[:len(hostRoot):len(hostRoot)], "--unshare-pid", "--sync-fd", "3", "--sync-fd", "4",
		"sh", "-c", "for i in 3 4; do [ -e /proc/$$/fd/$i ] && echo $i; done; exit 3")...)
	cmd.ExtraFiles = []*os.File{w, filled(t, "")}
	res := finish(t, cmd)
	w.Close()
	if rest, err := io.ReadAll(r); err != nil || len(rest) != 0 || res.code != 3 || res.out != "" {
		t.Errorf("%+v, %q, %v", res, rest, err)
	}
}

var (
	infoDocument   = regexp.MustCompile(`^\{\n    "child-pid": \d+,\n    "ipc-namespace": \d+,\n    "mnt-namespace": \d+,\n    "pid-namespace": \d+\n\}\n$`)
	statusDocument = regexp.MustCompile(`^\{ "child-pid": \d+, "ipc-namespace": \d+, "mnt-namespace": \d+, "pid-namespace": \d+ \}\n(\{ "exit-code": \d+ \}\n)?$`)
)

func TestDocuments(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		for script, code := range map[string]string{"exit 4": "4", "kill -15 $$": "143"} {
			info, infoW := testutil.Pipe(t)
			status, statusW := testutil.Pipe(t)
			cmd := exec.Command(launcher(t, "bwrap"), append(hostRoot[:len(hostRoot):len(hostRoot)], "--info-fd", "3", "--json-status-fd", "4",
				"--unshare-pid", "--unshare-ipc", "sh", "-c", script)...)
			cmd.ExtraFiles = []*os.File{infoW, statusW}
			r := finish(t, cmd)
			infoW.Close()
			statusW.Close()
			i, _ := io.ReadAll(info)
			s, _ := io.ReadAll(status)
			if !infoDocument.Match(i) || !statusDocument.Match(s) || !bytes.HasSuffix(s, []byte("{ \"exit-code\": "+code+" }\n")) {
				t.Errorf("%+v\n%s\n%s", r, i, s)
			}
		}
		status, statusW := testutil.Pipe(t)
		cmd := exec.Command(launcher(t, "bwrap"), append(hostRoot[:len(hostRoot):len(hostRoot)], "--json-status-fd", "3", "--unshare-pid", "--unshare-ipc", "missing")...)
		cmd.ExtraFiles = []*os.File{statusW}
		r := finish(t, cmd)
		statusW.Close()
		if s, _ := io.ReadAll(status); r.code != 1 || !statusDocument.Match(s) || bytes.Contains(s, []byte("exit-code")) {
			t.Errorf("%+v\n%s", r, s)
		}
	})
}

// TestForeignMaps writes the ID maps from outside, between the documents and
// the byte that lets the launch go on.
func TestForeignMaps(t *testing.T) {
	if os.Geteuid() != 0 {
		testutil.Missing(t, "only root can map more than its own ID")
	}
	info, infoW := testutil.Pipe(t)
	blockR, block := testutil.Pipe(t)
	cmd := exec.Command(launcher(t, "bwrap"), append(hostRoot[:len(hostRoot):len(hostRoot)], "--unshare-user", "--unshare-pid", "--info-fd", "3", "--userns-block-fd", "4",
		"sh", "-c", "cat /proc/self/uid_map; id -u")...)
	cmd.ExtraFiles = []*os.File{infoW, blockR}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	infoW.Close()
	blockR.Close()
	text, err := io.ReadAll(info)
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`"child-pid": (\d+)`).FindSubmatch(text)
	if m == nil {
		t.Fatalf("%s %s", text, &out)
	}
	for file, data := range map[string]string{"uid_map": "0 0 70000\n", "gid_map": "0 0 70000\n"} {
		if err := os.WriteFile("/proc/"+string(m[1])+"/"+file, []byte(data), 0); err != nil {
			t.Fatal(err)
		}
	}
	block.Write([]byte{1})
	if err := cmd.Wait(); err != nil || strings.Join(strings.Fields(out.String()), " ") != "0 0 70000 0" {
		t.Errorf("%v\n%s", err, &out)
	}
}

// ends waits for the end of everything that holds a pipe's other end.
func ends(t testing.TB, r *os.File) bool {
	t.Helper()
	r.SetReadDeadline(time.Now().Add(20 * time.Second))
	_, err := io.ReadAll(r)
	return err == nil
}

// TestDieWithParent kills launchers, and parents of launchers, at random
// moments, and waits for the guest's end.
func TestDieWithParent(t *testing.T) {
	kills := 500
	if testing.Short() {
		kills = 40
	}
	for _, opts := range []string{"", "--unshare-pid", "--unshare-pid --as-pid-1", "--lock-file /etc/passwd", "--unshare-all --json-status-fd 2"} {
		for _, victim := range []string{"launcher", "parent"} {
			t.Run(victim+" "+opts, func(t *testing.T) {
				for range max(kills/10, 1) {
					killAtRandom(t, words(opts), victim)
				}
			})
		}
	}
}

func killAtRandom(t *testing.T, opts []string, victim string) {
	held, heldW := testutil.Pipe(t)
	argsR, argsW := testutil.Pipe(t)
	argv := append([]string{launcher(t, "bwrap"), "--args", "4", "--die-with-parent"}, append(opts, "sleep", "1000")...)
	cmd := exec.Command(argv[0], argv[1:]...)
	if victim == "parent" {
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		cmd = exec.Command(self, argv...)
		cmd.Env = append(os.Environ(), parentEnv+"=1")
	}
	cmd.ExtraFiles = []*os.File{heldW, argsR}
	argsW.WriteString(strings.Join(hostRoot, "\x00"))
	argsW.Close()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	heldW.Close()
	// Whoever dies before the launcher has looked is nobody's parent.
	for victim == "parent" {
		n, err := unix.IoctlGetInt(int(argsR.Fd()), unix.TIOCINQ)
		if err != nil || n == 0 {
			break
		}
		runtime.Gosched()
	}
	time.Sleep(rand.N(6 * time.Millisecond)) // the random moment
	cmd.Process.Kill()
	cmd.Wait()
	if !ends(t, held) {
		t.Errorf("%s: something survived", argv)
	}
}

// TestLinger: what the command leaves behind lives on, unless it is to die with
// the launcher.
func TestLinger(t *testing.T) {
	for opts, lives := range map[string]bool{"--unshare-pid": true, "--unshare-pid --die-with-parent": false, "--unshare-pid --as-pid-1": false} {
		held, heldW := testutil.Pipe(t)
		leave, leaveW := testutil.Pipe(t)
		cmd := exec.Command(launcher(t, "bwrap"), append(append(hostRoot[:len(hostRoot):len(hostRoot)], words(opts)...), "sh", "-c", "cat <&4 >/dev/null 2>&1 & exit 5")...)
		cmd.ExtraFiles = []*os.File{heldW, leave}
		cmd.Run() // without pipes, which the init would hold open
		heldW.Close()
		leave.Close()
		if code := cmd.ProcessState.ExitCode(); code != 5 {
			t.Errorf("%s: %v", opts, cmd.ProcessState)
		}
		if lives {
			held.SetReadDeadline(time.Now())
			if _, err := held.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("%s: nothing is left: %v", opts, err)
			}
			leaveW.Close()
		}
		if !ends(t, held) {
			t.Errorf("%s: something survived", opts)
		}
		leaveW.Close()
	}
}

// A program that becomes the launcher may have children. They are not the
// guest.
func TestChildrenOfTheCaller(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		for _, opts := range []string{"", "--unshare-net", "--unshare-pid", "--unshare-all", "--unshare-all --as-pid-1", "--unshare-all --die-with-parent"} {
			args := append(append([]string{"-c", `(exit 3) & exec "$0" "$@"`, launcher(t, "bwrap")}, hostRoot...), words(opts)...)
			cmd := exec.Command("sh", append(args, "sh", "-c", "exit 7")...)
			cmd.Run()
			if code := cmd.ProcessState.ExitCode(); code != 7 {
				t.Errorf("%s: %v, want the guest's status 7", opts, cmd.ProcessState)
			}
		}
	})
}

func TestForwardSignals(t *testing.T) {
	for _, opts := range []string{"", "--unshare-pid", "--unshare-pid --json-status-fd 2"} {
		ready, readyW := testutil.Pipe(t)
		cmd := exec.Command(launcher(t, "bwrap"), append(append(hostRoot[:len(hostRoot):len(hostRoot)], words(opts)...), "--forward-signals",
			"sh", "-c", "trap 'kill $!; exit 9' TERM; sleep 1000 3>&- & echo >&3; exec 3>&-; wait")...)
		cmd.ExtraFiles = []*os.File{readyW}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		readyW.Close()
		io.ReadAll(ready)
		cmd.Process.Signal(unix.SIGTERM)
		cmd.Wait()
		if code := cmd.ProcessState.ExitCode(); code != 9 {
			t.Errorf("%s: %v", opts, cmd.ProcessState)
		}
	}
}

func TestRemoveMountpoints(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		w := t.TempDir()
		os.WriteFile(filepath.Join(w, "kept"), nil, 0o644)
		os.Mkdir(filepath.Join(w, "keptdir"), 0o755)
		args := func(remove string) []string {
			return append(words(remove), words("--ro-bind / / --bind W W --ro-bind /dev/null W/file --tmpfs W/dir --ro-bind /etc W/a/b/c --ro-bind /dev/null W/kept --tmpfs W/keptdir "+
				"sh -c")...)
		}
		run := func(remove, script string) []string {
			line := args(remove)
			for i := range line {
				line[i] = strings.ReplaceAll(line[i], "W", w)
			}
			if r := bwrap(t, append(line, script)...); r.code != 6 {
				t.Fatalf("%+v", r)
			}
			entries, err := os.ReadDir(w)
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, e := range entries {
				names = append(names, e.Name())
			}
			return names
		}
		if got := run("--remove-mountpoints", "exit 6"); strings.Join(got, " ") != "kept keptdir" {
			t.Errorf("left over: %q", got)
		}
		// Somebody put something there meanwhile: it is not ours any more.
		if got := run("--remove-mountpoints", "echo >"+w+"/a/new; exit 6"); strings.Join(got, " ") != "a kept keptdir" {
			t.Errorf("removed too much or too little: %q", got)
		}
		os.RemoveAll(filepath.Join(w, "a"))
		// Without the option they stay, as with bubblewrap.
		if got := run("", "exit 6"); strings.Join(got, " ") != "a dir file kept keptdir" {
			t.Errorf("without the option: %q", got)
		}
	})
}

func TestFollowDest(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		w := t.TempDir()
		os.Mkdir(filepath.Join(w, "d"), 0o755)
		os.WriteFile(filepath.Join(w, "d", "inner"), []byte("inner"), 0o644)
		script := []string{"cat", "/mnt/real/inner"}
		line := []string{"--ro-bind", "/", "/", "--tmpfs", "/mnt", "--dir", "/mnt/real", "--symlink", "real", "/mnt/link"}
		refused := bwrap(t, append(append(line, "--bind", w+"/d", "/mnt/link"), script...)...)
		if refused.err != "bwrap: Can't mount on symlink destination /mnt/link\n" {
			t.Errorf("%+v", refused)
		}
		if r := bwrap(t, append(append(line, "--follow-dest", "--bind", w+"/d", "/mnt/link"), script...)...); r.out != "inner" {
			t.Errorf("%+v", r)
		}
	})
}

func TestRlimit(t *testing.T) {
	if r := onHost(t, "--rlimit", "nofile=33:44", "sh", "-c", "ulimit -n; ulimit -Hn"); r.out != "33\n44\n" {
		t.Errorf("%+v", r)
	}
	// What the Go runtime did to its own limit is not passed on.
	cmd := exec.Command("sh", "-c", `ulimit -Sn 64; exec "$@"`, "sh", launcher(t, "bwrap"), "--ro-bind", "/", "/", "sh", "-c", "ulimit -n")
	if r := finish(t, cmd); r.out != "64\n" {
		t.Errorf("%+v", r)
	}
}

func TestUmaskAndSession(t *testing.T) {
	cmd := exec.Command("sh", "-c", `umask 027; exec "$@"`, "sh", launcher(t, "bwrap"), "--ro-bind", "/", "/", "--tmpfs", "/mnt", "--new-session", "sh", "-c",
		`umask; stat -c %a /mnt; [ $(cut -d" " -f6 /proc/self/stat) = $$ ] && echo leader`)
	if r := finish(t, cmd); r.out != "0027\n755\nleader\n" {
		t.Errorf("%+v", r)
	}
}

func TestProcSysIsCoveredForRealRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		testutil.Missing(t, "only root can write it in the first place")
	}
	const file = "/proc/sys/kernel/core_pattern"
	if f, err := os.OpenFile(file, os.O_WRONLY, 0); err != nil {
		testutil.Missing(t, "it is read-only here: "+err.Error())
	} else {
		f.Close()
	}
	for _, opts := range []string{"", "--unshare-pid", "--unshare-user", "--unshare-all --cap-drop ALL"} {
		if r := onHost(t, append(words(opts), "sh", "-c", ": >"+file)...); r.code == 0 || !strings.Contains(r.err, "Read-only file system") {
			t.Errorf("%s: %+v", opts, r)
		}
	}
}

func TestNested(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		ours := launcher(t, "bwrap")
		outer := []string{ours}
		if real, err := exec.LookPath("bwrap"); err == nil {
			outer = append(outer, real)
		} else {
			t.Log("no bubblewrap is installed to be nested in")
		}
		for _, o := range outer {
			args := append(hostRoot[:len(hostRoot):len(hostRoot)], ours)
			args = append(append(args, hostRoot...), "--unshare-user", "--unshare-net", "sh", "-c", "exit 8")
			if r := finish(t, exec.Command(o, args...)); r.code != 8 {
				t.Errorf("in %s: %+v", o, r)
			}
		}
		if os.Geteuid() != 0 { // root covers parts of /proc, and then the kernel allows no fresh one below
			args := append(append(words("--unshare-all"), hostRoot...), ours, "--unshare-all")
			if r := bwrap(t, append(append(args, hostRoot...), "sh", "-c", "exit 8")...); r.code != 8 {
				t.Errorf("all new in all new: %+v", r)
			}
		}
	})
}

func TestByPath(t *testing.T) {
	dir := filepath.Dir(launcher(t, "bwrap"))
	cmd := exec.Command("sh", "-c", "bwrap --ro-bind / / --dev /dev sh -c 'echo hi'")
	cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
	if r := finish(t, cmd); r.out != "hi\n" {
		t.Errorf("%+v", r)
	}
}

func TestPWD(t *testing.T) {
	w := t.TempDir()
	for _, c := range []struct {
		line, want string
	}{
		{"--ro-bind / /", w},
		{"--ro-bind / / --tmpfs " + w + " --chdir " + w, w},
		{"--ro-bind / / --tmpfs /tmp --clearenv --setenv HOME /etc", "/etc"},
		{"--ro-bind / / --tmpfs /tmp --clearenv", "/"},
	} {
		cmd := exec.Command(launcher(t, "bwrap"), append(words(c.line), "/usr/bin/env")...)
		cmd.Dir = w
		if r := finish(t, cmd); !strings.Contains("\n"+r.out, "\nPWD="+c.want+"\n") {
			t.Errorf("%s: %+v", c.line, r)
		}
		cmd = exec.Command(launcher(t, "bwrap"), append(words(c.line), "/usr/bin/pwd", "-P")...)
		cmd.Dir = w
		if r := finish(t, cmd); r.out != c.want+"\n" {
			t.Errorf("%s: %+v", c.line, r)
		}
	}
}

func TestExplain(t *testing.T) {
	r := onHost(t, "--unshare-all", "--explain", "true")
	for _, want := range []string{"pivot_root", "\"open bind source /\"", "[\"/usr/bin/true\"", "\"execute true\""} {
		if !strings.Contains(r.out, want) {
			t.Errorf("%q is missing:\n%s%s", want, r.out, r.err)
		}
	}
}

func TestSetuidIsRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		testutil.Missing(t, "needs root")
	}
	path := filepath.Join(testutil.NobodyDir(t), "bwrap")
	data, err := os.ReadFile(launcher(t, "bwrap"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o4755|os.ModeSetuid); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, "--ro-bind", "/", "/", "true")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: testutil.Nobody, Gid: testutil.Nobody}}
	if r := finish(t, cmd); r.code != 1 || r.err != "bwrap: setuid use of bubblewrap is not supported\n" {
		t.Errorf("%+v", r)
	}
}
