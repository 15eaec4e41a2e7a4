package postern

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/populationgenomics/postern-go/internal/testutil"
	"github.com/populationgenomics/postern-go/mounts"
	"github.com/populationgenomics/postern-go/nsexec"
)

// Promises 99, 111, 115 to 117, 124, 126 to 128, 131: what the guest sees.
func TestGuestView(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		s := sandbox(t, Profile{})
		host, _ := os.Hostname()
		for script, want := range map[string]string{
			"ls / | tr '\\n' ' '":             "bin dev etc lib lib64 proc sbin tmp usr workspace",
			"ls -A /etc":                      "ld.so.cache",
			"pwd; readlink /proc/self/cwd":    "/workspace\n/workspace",
			"stat -c %a /tmp /dev/shm":        "1777\n1777",
			"uname -n":                        host,
			"ls /dev | tr '\\n' ' '":          "core fd full null ptmx pts random shm stderr stdin stdout tty urandom zero",
			"ls -A /dev/shm /tmp | grep -c .": "2", // the two headings: nothing is there
		} {
			if _, err := os.Stat("/lib64"); err != nil {
				want = strings.Replace(want, "lib64 ", "", 1)
			}
			r := run(t, s, Bash(script))
			if got := strings.TrimSpace(string(r.Stdout)); got != want {
				t.Errorf("%s:\n got %q\nwant %q %s", script, got, want, r.Stderr)
			}
		}
		for _, ns := range []string{"user", "mnt", "pid", "net", "ipc", "uts", "cgroup", "time"} {
			mine, err := os.Readlink("/proc/self/ns/" + ns)
			if err != nil {
				t.Fatal(err)
			}
			if theirs := outputOf(t, s, "readlink /proc/self/ns/"+ns); (theirs == mine) != (ns == "time") {
				t.Errorf("namespace %s: host %s, guest %s", ns, mine, theirs)
			}
		}
		for _, dir := range []string{"/usr", "/lib", "/bin", "/etc/ld.so.cache"} {
			opts := mountOptions(t, s, dir)
			for _, o := range []string{"ro", "nosuid", "nodev"} {
				if !slices.Contains(strings.Split(opts, ","), o) {
					t.Errorf("%s is mounted %q, without %s", dir, opts, o)
				}
			}
		}
		if r := run(t, s, Bash("touch /usr/x")); !strings.Contains(string(r.Stderr), "Read-only file system") {
			t.Errorf("writing to /usr: %s", r.Stderr)
		}
		for _, path := range []string{"/etc/passwd", "/etc/hostname", "/home", "/root", "/sys", "/var", "/run", "/oldroot"} {
			if r := run(t, s, Command{Args: []string{"ls", path}}); r.OK() {
				t.Errorf("the guest has %s", path)
			}
		}
		if got := outputOf(t, s, "cat /proc/self/mountinfo"); strings.Contains(got, " - ext4 ") && strings.Contains(got, "/home") {
			t.Errorf("the host shows:\n%s", got)
		}
	})
}

// Promises 110 to 112: /proc is read-only where it matters, for root's guest
// too. The control is the same launch without the masks.
func TestProcMasks(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		s := sandbox(t, Profile{})
		const try = "import os, errno\nfor p in ('kernel/core_pattern', 'vm/drop_caches'):\n  try: os.close(os.open('/proc/sys/' + p, os.O_WRONLY)); print('open')\n  except OSError as e: print(errno.errorcode[e.errno])"
		want := "EROFS\nEROFS\n"
		got := string(run(t, s, Command{Args: []string{"python3", "-c", try}}).Stdout)
		if strings.Contains(got, "open") || os.Geteuid() == 0 && got != want {
			t.Errorf("got %q", got)
		}
		spec, err := Profile{}.Spec([]string{"python3", "-c", try})
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(spec.Mounts.Ops, func(op mounts.Op) bool { _, is := op.(mounts.Proc); return is })
		proc := spec.Mounts.Ops[i].(mounts.Proc)
		mounted := outputOf(t, s, "cat /proc/self/mountinfo")
		for _, m := range slices.Concat(proc.Masks, proc.Hidden) {
			_, err := os.Stat("/proc/" + m)
			is := strings.Contains(mounted, " /proc/"+m+" ")
			if is != (err == nil) {
				t.Errorf("/proc/%s: covered %v, on the host %v", m, is, err)
			}
		}
		if os.Geteuid() != 0 {
			return
		}
		proc.Masks = nil
		spec.Mounts.Ops[i] = proc
		if got := outputOfSpec(t, spec); !strings.Contains(got, "open") {
			t.Errorf("the control got %q", got)
		}
	})
}

// outputOfSpec runs a spec that has been changed.
func outputOfSpec(t testing.TB, spec *nsexec.Spec) string {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	spec.Stdout, spec.Stderr = w, w
	p, err := nsexec.Start(spec)
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	buf := make([]byte, 4096)
	for {
		n, err := r.Read(buf)
		b.Write(buf[:n])
		if err != nil {
			break
		}
	}
	<-p.Done()
	return b.String()
}

// Promise 107, 108.
func TestBinds(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		dir := reachable(t, t.TempDir())
		for _, d := range []string{"ro", "rw"} {
			os.Mkdir(filepath.Join(dir, d), 0o777)
			os.WriteFile(filepath.Join(dir, d, "file"), []byte(d), 0o644)
		}
		s := sandbox(t, Profile{
			ReadOnlyBinds: []Bind{{Host: "/no/such", Guest: "/missing"}, {Host: dir + "/ro"}},
			RequiredBinds: []Bind{{Host: dir + "/ro/file", Guest: "/opt/one"}},
			WritableBinds: []Bind{{Host: dir + "/rw", Guest: "/data"}},
		})
		if got := outputOf(t, s, fmt.Sprintf("cat %s/ro/file /opt/one /data/file; test ! -e /missing; echo new > /data/new", dir)); got != "rororw" {
			t.Errorf("got %q", got)
		}
		if b, _ := os.ReadFile(dir + "/rw/new"); string(b) != "new\n" {
			t.Errorf("the guest wrote %q", b)
		}
		for _, path := range []string{dir + "/ro/file", dir + "/ro/new", "/opt/one"} {
			if r := run(t, s, Bash("echo x > "+path)); !strings.Contains(string(r.Stderr), "Read-only") {
				t.Errorf("writing %s: %d %s", path, r.ExitCode, r.Stderr)
			}
		}
		for _, mnt := range []string{"/data", "/opt/one", dir + "/ro"} {
			opts := mountOptions(t, s, mnt)
			if !strings.Contains(opts, "nosuid,nodev") {
				t.Errorf("%s is mounted %s", mnt, opts)
			}
		}
	})
}

// Promises 118 to 120.
func TestStubs(t *testing.T) {
	dir := t.TempDir()
	os.WriteFile(dir+"/mystub.py", []byte("name = 'stub'"), 0o644)
	for name, p := range map[string]Profile{
		"directory": {StubDir: dir},
		"files":     {StubFiles: []string{dir + "/mystub.py"}},
		"and more":  {StubDir: dir, Env: []string{"PYTHONPATH=/elsewhere"}},
	} {
		r := run(t, sandbox(t, p), Python("import mystub, sys; print(mystub.name, mystub.__file__, sys.path[1:3])"))
		if !strings.HasPrefix(string(r.Stdout), "stub /run/postern/stubs/mystub.py ['/run/postern/stubs'") {
			t.Errorf("%s: %s%s", name, r.Stdout, r.Stderr)
		}
	}
}

// A full memory file system is the guest's problem alone.
func TestSizes(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		s := sandbox(t, Profile{TmpSize: 1 << 20, ShmSize: 1 << 20, WorkspaceSize: 1 << 20})
		for _, dir := range []string{"/tmp", "/dev/shm", "/workspace", "/dev", "/"} {
			r := run(t, s, Bash(fmt.Sprintf("head -c 20000000 /dev/zero > %s/full", strings.TrimSuffix(dir, "/"))))
			if r.OK() || !strings.Contains(string(r.Stderr), "No space left on device") {
				t.Errorf("%s: %d %s", dir, r.ExitCode, r.Stderr)
			}
		}
		for _, dir := range []string{"/tmp", "/dev/shm", "/workspace"} {
			r := run(t, s, Python(fmt.Sprintf("i = 0\ntry:\n  while i < 5000: open('%s/%%d' %% i, 'w'); i += 1\nexcept OSError as e: print(e.errno)", dir)))
			if string(r.Stdout) != fmt.Sprintln(int(syscall.ENOSPC)) {
				t.Errorf("files in %s: %q %s", dir, r.Stdout, r.Stderr)
			}
		}
		if s.Workspace() != "" {
			t.Errorf("a workspace in memory is at %q", s.Workspace())
		}
		if _, err := s.Accessor(); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("Accessor: %v", err)
		}
		if got := outputOf(t, s, "ls -A"); got != "" {
			t.Errorf("a workspace in memory begins with %q", got)
		}
	})
}

// mountOptions returns the options of a mount of the guest.
func mountOptions(t testing.TB, s *Sandbox, dir string) string {
	t.Helper()
	for l := range strings.Lines(outputOf(t, s, "cat /proc/self/mountinfo")) {
		if f := strings.Fields(l); f[4] == dir {
			return f[5]
		}
	}
	t.Errorf("nothing is mounted on %s", dir)
	return ""
}
