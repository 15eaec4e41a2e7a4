package main

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/populationgenomics/postern-go/internal/testutil"
	"golang.org/x/sys/unix"
)

func hardenedRun(t testing.TB, args ...string) result {
	t.Helper()
	return finish(t, exec.Command(launcher(t, "postern-launch"), append([]string{"--hardened"}, args...)...))
}

func TestHardenedStatus(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		for _, tt := range []struct {
			args   []string
			code   int
			stderr string // its only line begins with this
		}{
			{[]string{"sh", "-c", "exit 7"}, 7, ""},
			{[]string{"--", "sh", "-c", "kill -9 $$"}, 137, ""},
			{[]string{"no-such-program"}, 127, "postern-launch: no-such-program: No such file or directory"},
			{[]string{"/usr"}, 126, "postern-launch: /usr: Permission denied"},
			{[]string{"--ro-bind", "/missing", "/x", "true"}, 125, "postern-launch: launch failed: open bind source /missing: No such file or directory"},
			{[]string{"--rootfs", "/missing", "true"}, 125, "postern-launch: launch failed: open bind source /missing/usr: No such file or directory"},
			{[]string{"--ro-bind-try", "/missing", "/x", "true"}, 0, ""},
			{[]string{"--bogus", "true"}, 125, "postern-launch: unknown option --bogus"},
			{[]string{"--ro-bind", "/usr"}, 125, "postern-launch: --ro-bind takes 2 argument(s)"},
			{[]string{"--rlimit", "nproc", "true"}, 125, "postern-launch: --rlimit:"},
			{[]string{"--rlimit", "nofile=9:5", "true"}, 125, "postern-launch:"},
			{[]string{"--seccomp", "loose", "true"}, 125, "postern-launch: --seccomp:"},
			{[]string{"--uid", "-1", "true"}, 125, "postern-launch: --uid:"},
			{nil, 125, "postern-launch: no command"},
		} {
			r := hardenedRun(t, tt.args...)
			if r.code != tt.code || !strings.HasPrefix(r.err, tt.stderr) || strings.Count(r.err, "\n") > 1 || (tt.stderr == "") != (r.err == "") {
				t.Errorf("%q: status %d, want %d; %q, want %q", tt.args, r.code, tt.code, r.err, tt.stderr)
			}
		}
	})
}

// What a shell and a Python script see, with the same probes on the host as the
// control.
func TestHardenedWall(t *testing.T) {
	testutil.RequireTool(t, "python3")
	testutil.EachUser(t, func(t *testing.T) {
		secret := filepath.Join(t.TempDir(), "secret")
		if err := os.WriteFile(secret, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		const script = `id -u; id -g; grep -h -e ^CapEff -e ^CapBnd -e ^NoNewPrivs -e ^Seccomp: /proc/self/status | tr -d '\t '
			echo "$HOME|$PWD|$CANARY"; touch /workspace/x /tmp/x && echo wrote; touch /usr/x 2>/dev/null || echo kept
			/usr/bin/python3 -c 'import socket; socket.create_connection(("192.0.2.1", 80), 1)' 2>&1 | tail -1`
		cmd := exec.Command(launcher(t, "postern-launch"), "--hardened", "sh", "-c", script+"; ls "+secret+" 2>/dev/null || echo hidden")
		cmd.Env = append(os.Environ(), "CANARY=host")
		r := finish(t, cmd)
		want := "65534\n65534\nCapEff:0000000000000000\nCapBnd:0000000000000000\nNoNewPrivs:1\nSeccomp:2\n|/workspace|\nwrote\nkept\n" +
			"OSError: [Errno 101] Network is unreachable\nhidden\n"
		if r.code != 0 || r.out != want {
			t.Errorf("status %d, %q\n%s\nwant\n%s", r.code, r.err, r.out, want)
		}
		if out, err := exec.Command("sh", "-c", "CANARY=host; echo $CANARY; ls "+secret).CombinedOutput(); err != nil || !strings.HasPrefix(string(out), "host\n") {
			t.Errorf("the control: %s %v", out, err)
		}
	})
}

func TestHardenedOptions(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		work, extra := t.TempDir(), t.TempDir()
		if err := os.WriteFile(filepath.Join(extra, "f"), []byte("extra\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		r := hardenedRun(t, "--workspace", work, "--ro-bind", extra, "/extra", "--bind", extra, "/writable", "--setenv", "A", "b c", "--etc",
			"--rlimit", "nofile=50:60", "--uid", "1000", "--gid", "1001", "--tmp-size", "1048576",
			"sh", "-c", `cat /extra/f; touch /extra/g 2>/dev/null || echo read-only; touch /writable/g; echo "$A"; ulimit -n; ulimit -Hn; id -u; id -g
				grep -c guest /etc/passwd; echo kept > result; head -c 2M /dev/zero > /tmp/x 2>/dev/null || echo full; grep -c . /proc/1/comm`)
		if want := "extra\nread-only\nb c\n50\n60\n1000\n1001\n1\nfull\n1\n"; r.code != 0 || r.out != want {
			t.Errorf("status %d, %q, %q, want %q", r.code, r.out, r.err, want)
		}
		if b, err := os.ReadFile(filepath.Join(work, "result")); string(b) != "kept\n" {
			t.Errorf("the workspace: %q %v", b, err)
		}
		if _, err := os.Stat(filepath.Join(extra, "g")); err != nil {
			t.Errorf("the writable bind: %v", err)
		}
	})
}

func TestHardenedHelpVerifyExplain(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		if r := hardenedRun(t, "--help"); r.code != 0 || !strings.HasPrefix(r.out, "usage: postern-launch --hardened") {
			t.Errorf("--help: %+v", r)
		}
		for _, o := range hardenedOptions {
			if !strings.Contains(hardenedUsage, o.name) {
				t.Errorf("--help does not have %s", o.name)
			}
		}
		if r := hardenedRun(t, "--verify"); r.code != 0 || !strings.Contains(r.out, "works here") {
			t.Errorf("--verify: %+v", r)
		}
		if r := hardenedRun(t, "--verify", "--rootfs", "/missing"); r.code != 125 || !strings.Contains(r.err, "/missing/usr") {
			t.Errorf("--verify of what cannot work: %+v", r)
		}
		if r := hardenedRun(t, "--verify", "--seccomp", "off"); r.code != 125 || !strings.Contains(r.err, "seccomp is disabled; refusing to treat this as a hardened sandbox") {
			t.Errorf("--verify of a weaker wall: %+v", r)
		}
		mark := filepath.Join(t.TempDir(), "ran")
		if r := hardenedRun(t, "--verify", "--bind", filepath.Dir(mark), "/m", "touch", "/m/ran"); r.code != 0 {
			t.Errorf("--verify with a command: %+v", r)
		}
		r := hardenedRun(t, "--explain", "--bind", filepath.Dir(mark), "/m", "touch", "/m/ran")
		for _, part := range []string{`"mount proc on /proc"`, `"create namespaces"`, `"execute touch"`, `"wait for the guest"`} {
			if !strings.Contains(r.out, part) {
				t.Errorf("--explain lacks %s", part)
			}
		}
		if _, err := os.Stat(mark); err == nil {
			t.Error("--verify or --explain ran the command")
		}
	})
}

// With -t the guest has a terminal of its own, which takes the size of ours and
// turns Ctrl-C into a signal.
func TestHardenedTerminal(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		master, slave := pty(t)
		if err := unix.IoctlSetWinsize(int(slave.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 33, Col: 77}); err != nil {
			t.Fatal(err)
		}
		before, err := unix.IoctlGetTermios(int(slave.Fd()), unix.TCGETS)
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(launcher(t, "postern-launch"), "--hardened", "-t", "bash", "-c", `trap 'echo caught; exit 4' INT; tty; stty size; echo up; while :; do read x; done`)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		out := bufio.NewReader(master)
		line := func() string {
			l, err := out.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			return strings.TrimSpace(l)
		}
		if tty := line(); !strings.HasPrefix(tty, "/dev/pts/") {
			t.Errorf("the guest's terminal is %q", tty)
		}
		if size := line(); size != "33 77" {
			t.Errorf("its size is %q", size)
		}
		for line() != "up" {
		}
		if _, err := master.Write([]byte{3}); err != nil {
			t.Fatal(err)
		}
		if l := line(); !strings.HasSuffix(l, "caught") {
			t.Errorf("Ctrl-C: %q", l)
		}
		cmd.Wait()
		if code := cmd.ProcessState.ExitCode(); code != 4 {
			t.Errorf("status %d", code)
		}
		if after, err := unix.IoctlGetTermios(int(slave.Fd()), unix.TCGETS); err != nil || *after != *before {
			t.Errorf("the terminal was left in another state: %+v, was %+v, %v", after, before, err)
		}
	})
	if r := hardenedRun(t, "-t", "true"); r.code != 125 || !strings.Contains(r.err, "--terminal needs a terminal") {
		t.Errorf("without a terminal: %+v", r)
	}
}

// pty returns the two sides of a new pseudo-terminal.
func pty(t testing.TB) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { master.Close() })
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	peer, _, errno := unix.Syscall(unix.SYS_IOCTL, master.Fd(), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY)
	if errno != 0 {
		t.Fatal(errno)
	}
	slave = os.NewFile(peer, "slave")
	t.Cleanup(func() { slave.Close() })
	return master, slave
}
