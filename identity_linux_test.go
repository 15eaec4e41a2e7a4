package postern

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/populationgenomics/postern-go/hatch"
	"github.com/populationgenomics/postern-go/internal/testutil"
	"github.com/populationgenomics/postern-go/seccompbpf"
	"golang.org/x/sys/unix"
)

// asRoot skips a test that only root can make.
func asRoot(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can choose another user")
	}
}

// owner returns the host's owner of a file.
func owner(t testing.TB, path string) (uid, gid int) {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		t.Fatal(err)
	}
	return int(st.Uid), int(st.Gid)
}

// Promises 103, 133 to 135, 142: who the guest is, to itself and to the kernel.
func TestGuestIdentity(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		uid, gid := os.Geteuid(), os.Getegid()
		for _, tt := range []struct {
			profile Profile
			want    string
		}{
			{Profile{}, "65534 65534"},
			{Profile{GuestUID: NumericID(1000), GuestGID: NumericID(100)}, "1000 100"},
			{Profile{GuestUID: NumericID(0)}, "0 65534"},
			{Profile{GuestUID: CallerID, GuestGID: CallerID}, fmt.Sprintf("%d %d", uid, gid)},
			{Profile{HostUID: ignored(uid)}, "65534 65534"},
		} {
			s := sandbox(t, tt.profile)
			if got := outputOf(t, s, "touch mine; echo $(id -u) $(id -g); grep ^CapEff /proc/self/status | cut -c 8- | tr -d '\\t'"); got != tt.want+"\n0000000000000000" {
				t.Errorf("%+v: got %q, want %q", tt.profile, got, tt.want)
			}
			if u, g := owner(t, s.Workspace()+"/mine"); u != uid || g != gid {
				t.Errorf("in the kernel it is %d %d", u, g)
			}
			line := strings.Fields(outputOf(t, s, "cat /proc/self/uid_map"))
			if len(line) != 3 || line[2] != "1" {
				t.Errorf("the map is %v", line)
			}
		}
	})
}

// ignored is a HostUID that has no effect: promise 139.
func ignored(uid int) *uint32 {
	if uid == 0 {
		return nil
	}
	return new(uint32(1234))
}

// Promises 136 to 138, 140.
func TestHostUser(t *testing.T) {
	asRoot(t)
	for _, tt := range []struct {
		profile  Profile
		uid, gid int
	}{
		{Profile{HostUID: new(uint32(1234)), HostGID: new(uint32(4321))}, 1234, 4321},
		{Profile{HostUID: new(uint32(1234))}, 1234, 65534},
		{Profile{HostUID: new(uint32(1234)), GuestGID: NumericID(77)}, 1234, 77},
		{Profile{HostUID: new(uint32(1234)), GuestGID: CallerID}, 1234, os.Getegid()},
	} {
		s := sandbox(t, tt.profile)
		outputOf(t, s, "touch mine")
		if u, g := owner(t, s.Workspace()+"/mine"); u != tt.uid || g != tt.gid {
			t.Errorf("%+v: the kernel has %d %d, want %d %d", tt.profile, u, g, tt.uid, tt.gid)
		}
		if got := outputOf(t, s, "grep ^Groups: /proc/self/status"); strings.TrimSpace(strings.TrimPrefix(got, "Groups:")) != "" {
			t.Errorf("supplementary groups: %s", got)
		}
	}
	closed := t.TempDir() // 0700, root's
	os.Chmod(closed, 0o700)
	os.Mkdir(closed+"/in", 0o755)
	s := sandbox(t, Profile{HostUID: new(uint32(1234)), RequiredBinds: []Bind{{Host: closed + "/in"}}})
	if _, err := s.Run(context.Background(), "true"); !errors.Is(err, syscall.EACCES) || !strings.Contains(err.Error(), closed+"/in") {
		t.Errorf("an unreachable bind: %v", err)
	}
	s = sandbox(t, Profile{HostUID: new(uint32(1234))}, WithHatch(newEchoHatch(t, "")))
	if _, err := s.Run(context.Background(), "true"); !errors.Is(err, syscall.EACCES) {
		t.Errorf("an unreachable hatch: %v", err)
	}
}

// Promise 140 the other way: with a reachable socket the hatch works.
func TestHostUserWithHatch(t *testing.T) {
	asRoot(t)
	dir := reachable(t, t.TempDir())
	h, err := hatch.NewSocket(hatch.SocketConfig{Path: dir + "/s", MaxConns: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	served := make(chan error, 1)
	go func() {
		c, err := h.Accept()
		if err == nil {
			_, err = c.Write([]byte("hi"))
			c.Close()
		}
		served <- err
	}()
	s := sandbox(t, Profile{HostUID: new(uint32(1234))}, WithHatch(h))
	r := run(t, s, Python("import os, socket\nc = socket.socket(socket.AF_UNIX); c.connect(os.environ['POSTERN_HATCH']); print(c.recv(9))"))
	if err := <-served; err != nil || string(r.Stdout) != "b'hi'\n" {
		t.Errorf("%v %s%s", err, r.Stdout, r.Stderr)
	}
}

// Promises 172, 173.
func TestWorkspaceMode(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		for _, tt := range []struct {
			profile Profile
			want    os.FileMode
		}{
			{Profile{}, os.ModeSticky | 0o777},
			{Profile{GuestUID: NumericID(0)}, 0o700},
			{Profile{GuestUID: CallerID}, 0o700},
		} {
			s := sandbox(t, tt.profile)
			outputOf(t, s, "touch x")
			st, err := os.Stat(s.Workspace())
			if err != nil || st.Mode()&^os.ModeDir != tt.want {
				t.Errorf("GuestUID %v: mode %v, %v", tt.profile.GuestUID, st.Mode(), err)
			}
		}
	})
}

// Promise 173: with another user in the kernel, the guest cannot remove what
// the host wrote. The control is the same user.
func TestStickyWorkspace(t *testing.T) {
	asRoot(t)
	for _, host := range []*uint32{new(uint32(1234)), nil} {
		s := sandbox(t, Profile{HostUID: host})
		os.WriteFile(s.Workspace()+"/hostfile", nil, 0o644)
		r := run(t, s, Bash("rm -f hostfile"))
		if r.OK() != (host == nil) {
			t.Errorf("HostUID %v: rm ended with %d: %s", host, r.ExitCode, r.Stderr)
		}
	}
}

// Promise 144, 145: nothing of the host's environment is in any process of a
// launch. The init is read from the host, where root may.
func TestLaunchEnvironment(t *testing.T) {
	asRoot(t)
	t.Setenv("POSTERN_TEST_SECRET", "canary")
	s := sandbox(t, Profile{})
	p := start(t, s, Command{Args: []string{"sh", "-c", "echo ready; read x"}, StdinPipe: true})
	await(t, p, "ready")
	if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", p.PID())); err != nil || strings.Contains(string(b), "=") {
		t.Errorf("the init's environment: %q, %v", b, err)
	}
	if b, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", os.Getpid())); err != nil || len(b) == 0 {
		t.Errorf("the control: %v", err)
	}
}

var denied = []string{
	"unshare", "setns", "mount", "umount2", "pivot_root", "chroot", "add_key", "keyctl", "request_key", "ptrace",
	"perf_event_open", "move_pages", "mbind", "get_mempolicy", "set_mempolicy", "migrate_pages", "syslog", "acct",
	"quotactl", "bpf", "init_module", "finit_module", "delete_module", "kexec_load", "reboot", "swapon", "swapoff",
	"io_uring_setup", "io_uring_enter", "io_uring_register",
}

var unknown = []string{"clone3", "open_tree", "move_mount", "fsopen", "fsconfig", "fsmount", "fspick", "mount_setattr"}

// Promises 147 to 152, in the kernel and through the whole launch, for both
// named policies. The control is a guest without a filter.
func TestSeccomp(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		abi := native(t)
		code := "import ctypes\nl = ctypes.CDLL(None, use_errno=True)\n"
		for _, name := range append(append([]string{}, denied...), unknown...) {
			nr, ok := abi.Number(name)
			if !ok {
				continue
			}
			code += fmt.Sprintf("ctypes.set_errno(0); l.syscall(%d, -1, -1, -1, -1, -1, -1); print(%q, ctypes.get_errno())\n", nr, name)
		}
		code += `import fcntl, os
for req in (0x5412, 0x541C):
    for high in (0, 1 << 32):
        ctypes.set_errno(0); l.syscall(` + fmt.Sprint(number(t, "ioctl")) + `, ctypes.c_long(-1), ctypes.c_ulong(req | high), 0); print("ioctl", ctypes.get_errno())
ctypes.set_errno(0); print("userns", l.unshare(0x10000000), ctypes.get_errno())
ctypes.set_errno(0); print("clone", l.syscall(` + fmt.Sprint(number(t, "clone")) + `, 0x10000000 | 17, 0, 0, 0, 0), ctypes.get_errno())
`
		for _, p := range []Profile{{}, {Seccomp: new(seccompbpf.Baseline())}} {
			r := run(t, sandbox(t, p), Python(code))
			lines := strings.Split(strings.TrimSpace(string(r.Stdout)), "\n")
			for _, l := range lines {
				f := strings.Fields(l)
				want := fmt.Sprint(int(unix.EPERM))
				for _, u := range unknown {
					if f[0] == u {
						want = fmt.Sprint(int(unix.ENOSYS))
					}
				}
				if f[len(f)-1] != want {
					t.Errorf("%s, want %s", l, want)
				}
			}
			if len(lines) < 35 {
				t.Errorf("only %d lines: %s", len(lines), r.Stderr)
			}
		}
		r := run(t, sandbox(t, Profile{NoSeccomp: true}), Python("import ctypes; print(ctypes.CDLL(None).unshare(0x10000000))\nprint([l for l in open('/proc/self/status') if l.startswith('Seccomp:')])"))
		if string(r.Stdout) != "0\n['Seccomp:\\t0\\n']\n" {
			t.Errorf("without a filter: %s%s", r.Stdout, r.Stderr)
		}
	})
}

func native(t testing.TB) seccompbpf.ABI {
	t.Helper()
	out, err := exec.Command("uname", "-m").Output()
	if err != nil {
		t.Fatal(err)
	}
	abi, err := seccompbpf.ForArch(strings.TrimSpace(string(out)))
	if err != nil {
		t.Fatal(err)
	}
	return abi
}

func number(t testing.TB, name string) uint32 {
	t.Helper()
	nr, ok := native(t).Number(name)
	if !ok {
		t.Fatalf("no system call %s", name)
	}
	return nr
}

const connect = `import socket, sys
for family, address in ((socket.AF_INET, ("127.0.0.1", int(sys.argv[1]))), (socket.AF_UNIX, sys.argv[2].replace("@", "\0")), (socket.AF_INET, ("1.1.1.1", 443))):
    s = socket.socket(family); s.settimeout(5)
    try: s.connect(address); print("connected")
    except OSError as e: print(e.strerror)
`

// Promises 160 to 163. The control is the host, which reaches its own servers.
func TestNetwork(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		tcp, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer tcp.Close()
		name := fmt.Sprintf("@postern-test-%d", os.Getpid())
		abstract, err := net.Listen("unix", name)
		if err != nil {
			t.Fatal(err)
		}
		defer abstract.Close()
		_, port, _ := net.SplitHostPort(tcp.Addr().String())
		c := Python(connect, port, name)
		if got := string(run(t, sandbox(t, Profile{}), c).Stdout); got != "Connection refused\nConnection refused\nNetwork is unreachable\n" {
			t.Errorf("the guest: %q", got)
		}
		out, err := exec.Command("python3", "-c", connect, port, name).Output()
		if err != nil || !strings.HasPrefix(string(out), "connected\nconnected\n") {
			t.Errorf("the control: %q, %v", out, err)
		}
		r := run(t, sandbox(t, Profile{}), Python(`import socket
l = socket.create_server(("127.0.0.1", 0)); c = socket.create_connection(l.getsockname()); print("own loopback")
socket.socketpair(); socket.socket(socket.AF_INET6); print("sockets")`))
		if string(r.Stdout) != "own loopback\nsockets\n" {
			t.Errorf("%s%s", r.Stdout, r.Stderr)
		}
	})
}

// An existing network namespace, by descriptor and by name.
func TestNetworkJoin(t *testing.T) {
	asRoot(t)
	testutil.RequireTool(t, "unshare")
	holder := exec.Command("unshare", "-n", "sh", "-c", "echo; exec cat")
	in, err := holder.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := holder.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	defer holder.Wait()
	defer in.Close()
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	path := fmt.Sprintf("/proc/%d/ns/net", holder.Process.Pid)
	want, err := os.Readlink(path)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, p := range []Profile{{Network: Network{File: f}}, {Network: Network{File: f}, HostUID: new(uint32(1234))}} {
		s := sandbox(t, p)
		for range 2 {
			if got := outputOf(t, s, "readlink /proc/self/ns/net"); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		}
	}
	name := fmt.Sprintf("postern-test-%d", os.Getpid())
	named := "/run/netns/" + name
	if err := os.MkdirAll("/run/netns", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(named, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(named)
	if err := unix.Mount(path, named, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(named, unix.MNT_DETACH)
	if got := outputOf(t, sandbox(t, Profile{Network: Network{Name: name}}), "readlink /proc/self/ns/net"); got != want {
		t.Errorf("by name: got %s, want %s", got, want)
	}
	_, err = sandbox(t, Profile{Network: Network{Name: "no-such-namespace"}}).Run(context.Background(), "true")
	if fe, ok := errors.AsType[*FieldError](err); !ok || fe.Field != "Profile.Network.Name" || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no such namespace: %v", err)
	}
}

// Promises 104, 105, 164 to 166: another root, and nothing of the host's.
func TestRootfs(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		root := reachable(t, t.TempDir())
		makeRoot(t, root)
		s := sandbox(t, Profile{Rootfs: root})
		if got := outputOf(t, s, "echo /usr/* /lib /bin/bash /usr/share/*; cat /etc/ld.so.cache"); got != "/usr/bin /usr/lib /usr/lib64 /usr/share /lib /bin/bash /usr/share/mine\ncache" {
			t.Errorf("got %q", got)
		}
		if r := run(t, s, Command{Args: []string{"python3"}}); r.ExitCode != 127 {
			t.Errorf("the host's Python: %d %s", r.ExitCode, r.Stderr)
		}
		// Links mean what they mean inside: an absolute one is no way out.
		os.Remove(root + "/bin")
		os.Symlink("/usr/bin", root+"/bin")
		os.Symlink("/../../../../../..", root+"/sbin")
		if got := outputOf(t, sandbox(t, Profile{Rootfs: root}), "test -e /bin/bash && test ! -e /bin/python3 && test ! -e /sbin/home && echo /sbin/usr/share/*"); got != "/sbin/usr/share/mine" {
			t.Errorf("links: %q", got)
		}
		empty := t.TempDir()
		_, err := sandbox(t, Profile{Rootfs: empty}).Run(context.Background(), "true")
		if !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), empty+"/usr") {
			t.Errorf("a rootfs without usr: %v", err)
		}
	})
}

// makeRoot fills a directory with what bash needs and little else.
func makeRoot(t testing.TB, root string) {
	t.Helper()
	for _, d := range []string{"usr/bin", "usr/lib", "usr/lib64", "usr/share/mine", "etc"} {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range []string{"bin", "lib", "lib64"} {
		if err := os.Symlink("usr/"+d, filepath.Join(root, d)); err != nil {
			t.Fatal(err)
		}
	}
	os.WriteFile(root+"/etc/ld.so.cache", []byte("cache"), 0o644)
	for _, prog := range []string{"bash", "cat"} {
		addProgram(t, root, testutil.RequireTool(t, prog), "/usr/bin/"+prog)
	}
}

// addProgram copies a program of the host and its libraries to a root.
func addProgram(t testing.TB, root, prog, to string) {
	t.Helper()
	copyFile(t, prog, root+to)
	out, err := exec.Command("ldd", prog).Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range strings.Fields(string(out)) {
		if strings.HasPrefix(f, "/") {
			if err := os.MkdirAll(filepath.Dir(root+f), 0o755); err != nil {
				t.Fatal(err)
			}
			copyFile(t, f, root+f)
		}
	}
}

func copyFile(t testing.TB, from, to string) {
	t.Helper()
	b, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, b, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// The roadmap's layers: read-only below, in memory or kept above.
func TestOverlay(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		base, top := reachable(t, t.TempDir()), reachable(t, t.TempDir())
		makeRoot(t, base)
		os.MkdirAll(top+"/opt", 0o755)
		os.WriteFile(top+"/opt/layer", []byte("top\n"), 0o644)
		lower := []string{base, top}
		s := sandbox(t, Profile{Overlay: &Overlay{Lower: lower}})
		const script = "cat /opt/layer; echo new > /written; echo * > /dev/null; test -e /proc/1 && cat /written"
		if got := outputOf(t, s, script); got != "top\nnew" {
			t.Errorf("got %q", got)
		}
		if r := run(t, s, Bash("cat /written")); r.OK() {
			t.Error("memory is kept")
		}
		small := sandbox(t, Profile{Overlay: &Overlay{Lower: lower, Size: 1 << 20}})
		if r := run(t, small, Bash("while echo 0123456789012345678901234567890123456789012345678901234567890123456789; do :; done > /big")); !strings.Contains(string(r.Stderr), "No space left") {
			t.Errorf("its size: %d %s", r.ExitCode, r.Stderr)
		}
		upper := filepath.Join(s.Workspace(), "upper")
		kept := sandbox(t, Profile{Overlay: &Overlay{Lower: lower, Upper: upper}})
		outputOf(t, kept, script)
		if got := outputOf(t, kept, "cat /written"); got != "new" {
			t.Errorf("kept: %q", got)
		}
		for _, l := range lower {
			if _, err := os.Stat(l + "/written"); err == nil {
				t.Error("a lower layer was written")
			}
		}
		p := start(t, kept, Bash("echo ready; read x < /dev/zero"))
		await(t, p, "ready")
		if _, err := kept.Run(context.Background(), "true"); !errors.Is(err, syscall.EWOULDBLOCK) {
			t.Errorf("a second run at once: %v", err)
		}
		p.Kill()
		p.Close()
		outputOf(t, kept, "cat /written")
	})
}

// Users' request 25: what programs look up, and nothing of the host's /etc.
func TestEtc(t *testing.T) {
	testutil.EachUser(t, func(t *testing.T) {
		s := sandbox(t, Profile{Etc: &Etc{TimeZone: "Asia/Tokyo"}})
		r := run(t, s, Python(`import pwd, grp, os, socket, time
print(*pwd.getpwuid(os.getuid())); print(grp.getgrgid(os.getgid()).gr_name)
print(os.path.expanduser("~"), socket.gethostbyname("localhost"), pwd.getpwuid(0).pw_name)
socket.gethostbyname(socket.gethostname())
print(time.strftime("%Z", time.localtime(0)))
print(sorted(os.listdir("/etc")))`))
		want := "guest x 65534 65534  /workspace /bin/sh\nguest\n/workspace 127.0.0.1 root\nJST\n['group', 'hosts', 'ld.so.cache', 'localtime', 'nsswitch.conf', 'passwd']\n"
		if _, err := os.Stat("/usr/share/zoneinfo/Asia/Tokyo"); err != nil {
			want = strings.Replace(want, "JST", "UTC", 1)
		}
		if string(r.Stdout) != want {
			t.Errorf("got  %s\nwant %s\n%s", r.Stdout, want, r.Stderr)
		}
		s = sandbox(t, Profile{GuestUID: NumericID(1000), GuestGID: NumericID(50), Etc: &Etc{User: "ada", Home: "/tmp"}})
		if got := outputOf(t, s, "id -un; id -gn; echo ~ $HOME; cat /etc/passwd"); got != "ada\nada\n/tmp /tmp\nada:x:1000:50::/tmp:/bin/sh\nroot:x:0:0::/root:/usr/sbin/nologin\nnobody:x:65534:65534::/nonexistent:/usr/sbin/nologin" {
			t.Errorf("got %q", got)
		}
	})
}
