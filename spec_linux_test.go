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

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/populationgenomics/postern-go/internal/testutil"
	"github.com/populationgenomics/postern-go/mounts"
	"github.com/populationgenomics/postern-go/nsexec"
	"github.com/populationgenomics/postern-go/seccompbpf"
)

func paths(ops []mounts.Op) []string {
	var out []string
	for _, op := range ops {
		out = append(out, op.String())
	}
	return out
}

// Promise 110: these twelve are covered, whatever else is.
func TestMasks(t *testing.T) {
	for _, m := range []string{"sys", "sysrq-trigger", "irq", "bus", "fs", "acpi", "scsi", "kcore", "keys", "latency_stats", "timer_list", "sched_debug"} {
		if !slices.Contains(masks, m) && !slices.Contains(hidden, m) {
			t.Errorf("/proc/%s is not covered", m)
		}
	}
}

// Promises 97 to 125: the launch of the zero profile, wholly. Promise 176: it
// is made without side effects.
func TestSpecOfTheZeroProfile(t *testing.T) {
	got, err := Profile{}.Spec([]string{"prog", "arg"})
	if err != nil {
		t.Fatal(err)
	}
	hardened, err := seccompbpf.Hardened().Compile()
	if err != nil {
		t.Fatal(err)
	}
	id := uint32(65534)
	mode := mounts.Perm(0o1777)
	want := &nsexec.Spec{
		Path: "prog", Args: []string{"prog", "arg"},
		Env:        []string{"PATH=/usr/local/bin:/usr/bin:/bin", "PWD=/workspace"},
		Dir:        "/workspace",
		Namespaces: nsexec.AllNew(), UID: &id, GID: &id,
		Init: true, NewSession: true,
		Seccomp: []seccompbpf.Filter{hardened},
		Limits:  Limits{Processes: 1024}.list(),
		Mounts: &mounts.Tree{RootSize: 16 << 20, RootInodes: 4096, Ops: []mounts.Op{
			mounts.Bind{Source: "/usr", Dest: "/usr"},
			mounts.Bind{Source: "/lib", Dest: "/lib", Optional: true},
			mounts.Bind{Source: "/lib64", Dest: "/lib64", Optional: true},
			mounts.Bind{Source: "/bin", Dest: "/bin", Optional: true},
			mounts.Bind{Source: "/sbin", Dest: "/sbin", Optional: true},
			mounts.Dir{Dest: "/etc"},
			mounts.Bind{Source: "/etc/ld.so.cache", Dest: "/etc/ld.so.cache", Optional: true},
			mounts.Proc{Dest: "/proc", Masks: masks, Hidden: hidden},
			mounts.Dev{Dest: "/dev", Size: 1 << 20, Inodes: 1024, FixedNodes: true},
			mounts.Tmpfs{Dest: "/dev/shm", Perm: mode, Size: DefaultShmSize, Inodes: DefaultShmSize / 4096},
			mounts.Tmpfs{Dest: "/tmp", Perm: mode, Size: DefaultTmpSize, Inodes: DefaultTmpSize / 4096},
			mounts.Tmpfs{Dest: "/workspace", Perm: mode, Size: DefaultTmpSize, Inodes: DefaultTmpSize / 4096},
		}},
	}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(nsexec.Namespace{}), cmpopts.IgnoreUnexported(os.File{})); d != "" {
		t.Error(d)
	}
}

// Promises 107, 108, 118, 119, 125: what the user adds comes after all it may
// lie below, in order.
func TestSpecOrder(t *testing.T) {
	p := Profile{
		Workspace:     "/srv/ws",
		ReadOnlyBinds: []Bind{{Host: "/srv/a"}},
		RequiredBinds: []Bind{{Host: "/srv/b", Guest: "/b"}},
		WritableBinds: []Bind{{Host: "/srv/c"}},
		StubFiles:     []string{"/srv/x.py", "/srv/y.py"},
		TmpSize:       Unlimited,
		ShmSize:       1 << 20,
	}
	s, err := p.Spec([]string{"true"})
	if err != nil {
		t.Fatal(err)
	}
	ops := s.Mounts.Ops
	i := slices.IndexFunc(ops, func(o mounts.Op) bool { _, ok := o.(mounts.Proc); return ok })
	want := []mounts.Op{
		mounts.Tmpfs{Dest: "/dev/shm", Perm: mounts.Perm(0o1777), Size: 1 << 20, Inodes: 1024},
		mounts.Tmpfs{Dest: "/tmp", Perm: mounts.Perm(0o1777)},
		mounts.Bind{Source: "/srv/ws", Dest: "/workspace", Mode: mounts.ReadWrite},
		mounts.Bind{Source: "/srv/a", Dest: "/srv/a", Optional: true},
		mounts.Bind{Source: "/srv/b", Dest: "/b"},
		mounts.Bind{Source: "/srv/c", Dest: "/srv/c", Mode: mounts.ReadWrite},
		mounts.Bind{Source: "/srv/x.py", Dest: "/run/postern/stubs/x.py"},
		mounts.Bind{Source: "/srv/y.py", Dest: "/run/postern/stubs/y.py"},
	}
	if d := cmp.Diff(want, ops[i+2:]); d != "" {
		t.Error(d)
	}
	for _, op := range paths(ops) { // promise 106
		for _, no := range []string{`"/etc"`, `"/home`, `"/root`} {
			if strings.Contains(op, no) && !strings.HasPrefix(op, "dir ") {
				t.Errorf("%s in %s", no, op)
			}
		}
	}
	p = Profile{StubDir: "/srv/stubs"}
	if s, err = p.Spec([]string{"true"}); err != nil {
		t.Fatal(err)
	}
	if got := s.Mounts.Ops[len(s.Mounts.Ops)-1]; got != (mounts.Bind{Source: "/srv/stubs", Dest: "/run/postern/stubs"}) {
		t.Errorf("the stubs are %v", got)
	}
}

// Promise 37: the entry points differ in nothing but what is executed.
func TestSpecIsTheSameForEveryEntryPoint(t *testing.T) {
	p := Profile{}
	a, err := p.spec("/ws", Bash("x"), nil)
	if err != nil {
		t.Fatal(err)
	}
	b, err := p.spec("/ws", Python("x"), nil)
	if err != nil {
		t.Fatal(err)
	}
	b.Path, b.Args = a.Path, a.Args
	b.Mounts.RootSize = a.Mounts.RootSize
	b.Mounts.Ops = b.Mounts.Ops[:len(b.Mounts.Ops)-1] // the code
	if d := cmp.Diff(a, b, cmp.AllowUnexported(nsexec.Namespace{}), cmpopts.IgnoreUnexported(os.File{})); d != "" {
		t.Error(d)
	}
}

func TestValidate(t *testing.T) {
	if err := (Profile{}).Validate(); err != nil {
		t.Error(err)
	}
	bad := Profile{
		Workspace: "/x", WorkspaceSize: 5,
		Rootfs: "/r", Overlay: &Overlay{Upper: "rel", Size: 3}, Etc: &Etc{User: "a:b", Home: "home", TimeZone: "../x"},
		ReadOnlyBinds: []Bind{{Host: "relative"}, {Host: "/a", Guest: "/proc/x"}, {Host: "/"}},
		RequiredBinds: []Bind{{Host: "/a", Guest: "b"}, {Host: "/a", Guest: "/b/../c"}, {Host: "/a", Guest: "/workspace"}},
		WritableBinds: []Bind{{Host: "/a\x00"}},
		StubDir:       "stubs", StubFiles: []string{"/a/x", "/b/x"},
		TmpSize: -2, ShmSize: -3, Python: "a\x00",
		Env:     []string{"A", "=x", "PWD=/", "POSTERN_HATCH=x", "B=1", "B=2"},
		HostGID: new(uint32(1)), Seccomp: new(seccompbpf.Policy{Rules: []seccompbpf.Rule{{Syscall: "no-such-call"}}}),
		Limits:      Limits{Processes: -2, AddressSpace: -2, OpenFiles: -2, FileSize: -2, Stack: -2, CPU: 1500e6},
		Network:     Network{Name: "../x", File: os.Stdin},
		OutputLimit: -9,
	}
	err := bad.Validate()
	if err == nil {
		t.Fatal("it is valid")
	}
	var got []string
	for _, e := range err.(interface{ Unwrap() []error }).Unwrap() {
		f, ok := errors.AsType[*FieldError](e)
		if !ok {
			t.Errorf("%v is no FieldError", e)
			continue
		}
		got = append(got, strings.TrimPrefix(f.Field, "Profile."))
	}
	want := []string{
		"WorkspaceSize", "Overlay", "Etc", "Overlay.Lower", "Overlay.Upper", "Overlay.Size",
		"ReadOnlyBinds[0].Host", "ReadOnlyBinds[1].Guest", "ReadOnlyBinds[2].Guest",
		"RequiredBinds[0].Guest", "RequiredBinds[1].Guest", "RequiredBinds[2].Guest", "WritableBinds[0].Host", "WritableBinds[0].Guest",
		"StubDir", "StubFiles", "StubFiles[1]", "Etc.User", "Etc.Home", "Etc.TimeZone", "TmpSize", "ShmSize", "Python",
		"Env[0]", "Env[1]", "Env[2]", "Env[3]", "Env[5]", "HostGID", "Seccomp",
		"Limits.Processes", "Limits.AddressSpace", "Limits.OpenFiles", "Limits.FileSize", "Limits.Stack", "Limits.CPU",
		"Network", "Network.Name", "OutputLimit",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("%s\n%v", d, err)
	}
	if !errors.Is(err, seccompbpf.ErrInvalidPolicy) {
		t.Error("the cause is lost")
	}
	if _, err := New(bad); err == nil {
		t.Error("New takes it")
	}
	if _, err := bad.Spec([]string{"true"}); err == nil {
		t.Error("Spec takes it")
	}
	if err := (Profile{NoSeccomp: true, Seccomp: new(seccompbpf.Baseline())}).Validate(); err == nil {
		t.Error("a policy and none is valid")
	}
	for _, c := range []Command{{}, {Args: []string{""}}, {Args: []string{"a\x00"}}, {Args: []string{"a"}, Env: []string{"x"}},
		{Args: []string{"a"}, Input: []byte{}, StdinPipe: true}, {Args: []string{"a"}, StdinPipe: true, Terminal: &WindowSize{}}} {
		if _, ok := errors.AsType[*FieldError](c.validate()); !ok {
			t.Errorf("%+v is valid", c)
		}
	}
}

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
		mounted := outputOf(t, s, "cat /proc/self/mountinfo")
		for _, m := range slices.Concat(masks, hidden) {
			_, err := os.Stat("/proc/" + m)
			is := strings.Contains(mounted, " /proc/"+m+" ")
			if is != (err == nil) {
				t.Errorf("/proc/%s: covered %v, on the host %v", m, is, err)
			}
		}
		if os.Geteuid() != 0 {
			return
		}
		spec, err := Profile{}.Spec([]string{"python3", "-c", try})
		if err != nil {
			t.Fatal(err)
		}
		for i, op := range spec.Mounts.Ops {
			if p, ok := op.(mounts.Proc); ok {
				p.Masks = nil
				spec.Mounts.Ops[i] = p
			}
		}
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
